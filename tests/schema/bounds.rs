//! Bounds of schemas and of the work on values: nothing grows without one.

use std::fmt::Write;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use shardgate::schema::{InputSchema, OutputSchema, Reason, SchemaLimits};

use crate::{faults, input};

fn first_reason(schema: &Value) -> Reason {
    faults(schema).first().unwrap().0
}

#[test]
fn references_that_multiply_are_cut() {
    // Each level refers twice to the next: 2^20 ways.
    let mut definitions = Map::new();
    for level in 0..20 {
        let next = format!("#/$defs/d{}", level + 1);
        definitions.insert(
            format!("d{level}"),
            json!({"properties": {"a": {"$ref": next}, "b": {"$ref": next}}}),
        );
    }
    definitions.insert("d20".to_owned(), json!({}));
    let schema = json!({"type": "object", "$defs": definitions, "$ref": "#/$defs/d0"});
    assert_eq!(first_reason(&schema), Reason::GraphVisits);
}

#[test]
fn long_chains_do_not_exhaust_the_stack() {
    let mut definitions = Map::new();
    for link in 0..4000 {
        let next = format!("#/$defs/c{}", link + 1);
        definitions.insert(format!("c{link}"), json!({"$ref": next}));
    }
    definitions.insert("c4000".to_owned(), json!({}));
    let schema = json!({"type": "object", "$defs": definitions, "$ref": "#/$defs/c0"});
    assert_eq!(first_reason(&schema), Reason::GraphVisits);
}

#[test]
fn branches_are_counted_for_each_way_to_them() {
    let branches: Vec<Value> = (0..100).map(|number| json!({"const": number})).collect();
    let with = |uses: usize| {
        let properties: Map<String, Value> = (0..uses)
            .map(|number| (format!("p{number}"), json!({"$ref": "#/$defs/many"})))
            .collect();
        json!({"type": "object", "$defs": {"many": {"anyOf": branches}}, "properties": properties})
    };
    assert!(input(&with(2)).is_ok());
    assert_eq!(first_reason(&with(3)), Reason::CompositionBranches);
}

#[test]
fn depth_and_size_are_refused_before_anything_descends() {
    let mut deep = String::new();
    for _ in 0..100 {
        write!(deep, r#"{{"not":"#).unwrap();
    }
    deep.push_str("{}");
    deep.push_str(&"}".repeat(100));
    let schema: Value = serde_json::from_str(&deep).unwrap();
    assert_eq!(first_reason(&schema), Reason::BudgetExceeded);
    let long = json!({"type": "object", "description": "x".repeat(1 << 20)});
    assert_eq!(first_reason(&long), Reason::BudgetExceeded);
}

/// The deepest schema that any setting lets in, on a thread like those that load it.
#[test]
fn the_deepest_schema_of_all_is_judged_and_checked() {
    let limits = SchemaLimits {
        depth_max: 128,
        subschemas_max: 1_000_000,
        branches_max: 1_000_000,
        visits_max: 1_000_000,
        ..SchemaLimits::default()
    };
    for keyword in ["not", "items", "additionalProperties"] {
        let deep = (0..126).fold(json!({}), |below, _| json!({keyword: below}));
        let work = move || {
            let sound = OutputSchema::new(&deep, &limits).unwrap();
            let value = (0..126).fold(json!(1), |below, _| json!([below]));
            let _ = sound.check(&value);
        };
        let loading = std::thread::Builder::new().stack_size(2 << 20).spawn(work);
        loading.unwrap().join().unwrap();
    }
}

#[test]
fn what_is_said_about_a_large_value_is_short() {
    let schema = json!({"type": "array", "items": {"anyOf": [{"type": "string"}, {"const": 1}]}});
    let sound = OutputSchema::new(&schema, &SchemaLimits::default()).unwrap();
    let numbers: Vec<u32> = (2..200_000).collect();
    let text = sound.check(&json!(numbers)).unwrap_err();
    assert!(text.len() < 1000, "{} bytes", text.len());
    let plain = OutputSchema::new(
        &json!({"type": "array", "items": {"type": "string"}}),
        &SchemaLimits::default(),
    );
    assert_eq!(
        plain.unwrap().check(&json!(numbers)),
        Err("/0: type".to_owned())
    );
}

/// Any JSON value, with the words of schemas in it.
fn schema_like() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "properties",
        "patternProperties",
        "$defs",
        "$ref",
        "$anchor",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "items",
        "prefixItems",
        "additionalProperties",
        "x-mask",
        "$id",
        "x-mask-pattern",
        "x-sensitive",
        "x-mcp-header",
        "type",
        "required",
        "const",
        "$schema",
        "a",
        "minimum",
        "pattern",
    ]);
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        Just(Value::Null),
        prop::sample::select(vec![
            "object",
            "string",
            "#",
            "#/$defs/a",
            "#/properties/a",
            "#a",
            "^a",
            "(",
            "Region",
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(words.clone(), inner, 0..5).prop_map(|members| {
                let members = members.into_iter();
                Value::Object(
                    members
                        .map(|(name, value)| (name.to_owned(), value))
                        .collect(),
                )
            }),
        ]
    })
}

proptest! {
    #[test]
    fn no_document_breaks_the_judge(document in schema_like(), value in schema_like()) {
        let limits = SchemaLimits::default();
        if let Ok(sound) = InputSchema::new(Some(&document), &limits) {
            let verdict = sound.schema.check(&value);
            prop_assert_eq!(verdict.is_err(), sound.schema.check(&value).is_err());
            let mut masked = value.clone();
            sound.mask(&mut masked);
            let mut again = masked.clone();
            sound.mask(&mut again);
            if sound.masks_nothing() {
                prop_assert_eq!(&masked, &value);
            }
            // What is advertised is a schema of the same kind, and has nothing left to take away.
            let advertised = InputSchema::new(Some(sound.schema.advertised()), &limits).unwrap();
            prop_assert!(advertised.masks_nothing());
            prop_assert_eq!(advertised.schema.advertised(), sound.schema.advertised());
        }
        let _ = OutputSchema::new(&document, &limits);
    }
}
