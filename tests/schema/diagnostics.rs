//! What callers are told: at most three places with their keyword, no value of theirs.

use serde_json::{Value, json};

use crate::input;

fn said(schema: &Value, value: &Value) -> String {
    input(schema).unwrap().schema.check(value).unwrap_err()
}

#[test]
fn places_and_keywords() {
    let schema = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "pattern": "^[A-Z]"},
            "days": {"type": "integer", "maximum": 7},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["city"],
        "additionalProperties": false,
    });
    for (value, expected) in [
        (json!([]), "/: type"),
        (json!({}), "/city: required"),
        (json!({"city": 5}), "/city: type"),
        (json!({"city": "secret"}), "/city: pattern"),
        (json!({"city": "A", "days": 9}), "/days: maximum"),
        (json!({"city": "A", "tags": ["x", 1]}), "/tags/1: type"),
        (
            json!({"city": "A", "hunter2": 1}),
            "/: additionalProperties",
        ),
    ] {
        assert_eq!(said(&schema, &value), expected, "{value}");
    }
    let all = json!({"days": 8, "tags": [1, 2, 3, 4], "hunter2": 1});
    assert_eq!(said(&schema, &all).split("; ").count(), 3);
}

#[test]
fn compositions_come_first_and_name_the_branch_that_was_meant() {
    let branch = |kind: &str, needs: &str| {
        json!({"properties": {"kind": {"const": kind}, needs: {"type": "string"}},
            "required": ["kind", needs]})
    };
    let schema = json!({
        "type": "object",
        "properties": {"count": {"type": "integer"}},
        "oneOf": [branch("event", "eventType"), branch("person", "personType")],
    });
    assert_eq!(
        said(&schema, &json!({"kind": "person"})),
        "/: oneOf (2 branches); /personType: required"
    );
    assert_eq!(
        said(&schema, &json!({"kind": "person", "count": "x"})),
        "/: oneOf (2 branches); /personType: required; /count: type"
    );
    assert_eq!(
        said(&schema, &json!({"kind": "other"})),
        "/: oneOf (2 branches)"
    );
    let any = json!({"type": "object", "properties": {"a": {"anyOf": [
        {"type": "string"}, {"type": "integer"}, {"type": "null"}]}}});
    assert_eq!(said(&any, &json!({"a": []})), "/a: anyOf (3 branches)");
}

#[test]
fn no_value_is_ever_echoed_and_places_are_short() {
    let name = "n".repeat(2000);
    let schema = json!({"type": "object", "additionalProperties": {"enum": ["x"]}});
    let text = said(&schema, &json!({name.as_str(): "canary-value"}));
    assert!(!text.contains("canary"), "{text}");
    assert!(text.len() <= 256 + 2 + 64, "{} bytes", text.len());
    let wide = "\u{e4}".repeat(2000);
    assert!(said(&schema, &json!({wide.as_str(): 1})).len() <= 256 + 2 + 64);
}
