//! `docs/loadgen-report.schema.json` describes `report.json`: nothing is missing, nothing is more.

use std::fs;

use serde_json::Value;

use crate::{
    sample::{Shape, recording, search},
    scratch,
};

/// The keywords that the schema uses; another one fails the test that meets it.
const KEYWORDS: [&str; 14] = [
    "$defs",
    "$id",
    "$ref",
    "$schema",
    "additionalProperties",
    "anyOf",
    "const",
    "description",
    "enum",
    "items",
    "properties",
    "required",
    "title",
    "type",
];

/// What of `value` the schema does not allow.
fn findings(root: &Value, schema: &Value, value: &Value, place: &str) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let target = root.pointer(name.trim_start_matches('#')).unwrap();
        return findings(root, target, value, place);
    }
    let mut found = Vec::new();
    for keyword in schema.as_object().unwrap().keys() {
        let is_known = KEYWORDS.contains(&keyword.as_str()) || is_bound(keyword);
        assert!(is_known, "the test does not know {keyword}");
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let fits = |choice: &Value| findings(root, choice, value, place).is_empty();
        if !choices.iter().any(fits) {
            found.push(format!("{place}: none of anyOf"));
        }
    }
    if !schema["const"].is_null() && schema["const"] != *value {
        found.push(format!("{place}: not the constant"));
    }
    if schema["enum"]
        .as_array()
        .is_some_and(|all| !all.contains(value))
    {
        found.push(format!("{place}: not of the enum"));
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        Value::String(one) => vec![one.as_str()],
        _ => Vec::new(),
    };
    if !types.is_empty() && !types.iter().any(|one| is_type(one, value)) {
        found.push(format!("{place}: {value} is none of {types:?}"));
    }
    if let Some(number) = value.as_f64() {
        let above = schema["maximum"].as_f64().is_some_and(|most| number > most);
        if above
            || schema["minimum"]
                .as_f64()
                .is_some_and(|least| number < least)
        {
            found.push(format!("{place}: {number} is out of range"));
        }
    }
    for item in value.as_array().into_iter().flatten() {
        found.extend(findings(
            root,
            &schema["items"],
            item,
            &format!("{place}[]"),
        ));
    }
    if let Some(members) = value.as_object() {
        for name in schema["required"].as_array().into_iter().flatten() {
            if !members.contains_key(name.as_str().unwrap()) {
                found.push(format!("{place}: {name} is missing"));
            }
        }
        for (name, member) in members {
            let place = format!("{place}.{name}");
            let own = &schema["properties"][name];
            let rest = &schema["additionalProperties"];
            match (own.is_null(), rest) {
                (false, _) => found.extend(findings(root, own, member, &place)),
                (true, Value::Object(_)) => found.extend(findings(root, rest, member, &place)),
                (true, Value::Bool(false)) => {
                    found.push(format!("{place} is not in the schema"));
                }
                (true, _) => {}
            }
        }
    }
    found
}

fn is_bound(keyword: &str) -> bool {
    ["minimum", "maximum"].contains(&keyword)
}

fn is_type(name: &str, value: &Value) -> bool {
    match name {
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "object" => value.is_object(),
        "string" => value.is_string(),
        _ => false,
    }
}

fn schema() -> Value {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docs/loadgen-report.schema.json"
    );
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn reports_are_as_the_schema_says() {
    let schema = schema();
    for (name, run) in [
        ("schema-plain", recording(&Shape::default())),
        ("schema-search", search()),
        ("schema-empty", loadgen::record::Recording::default()),
    ] {
        let folder = scratch(name);
        run.save(&folder).unwrap();
        let report = fs::read(folder.join("report.json")).unwrap();
        let mut report: Value = serde_json::from_slice(&report).unwrap();
        assert_eq!(findings(&schema, &schema, &report, "$"), [""; 0], "{name}");
        // The test itself can fail.
        report["summary"]["good"] = "many".into();
        report["more"] = 1.into();
        assert_eq!(findings(&schema, &schema, &report, "$").len(), 2);
    }
}
