//! Masking annotations: what a backend gets in place of a value, and where they may stand.

use serde_json::{Value, json};
use shardgate::schema::Reason;

use crate::{faults, input};

fn masked(schema: &Value, mut arguments: Value) -> Value {
    input(schema).unwrap().mask(&mut arguments);
    arguments
}

#[test]
fn values_are_masked_wherever_the_schema_leads() {
    let secret = json!({"x-mask": true});
    for (schema, arguments, expected) in [
        (
            json!({"type": "object", "properties": {"a": secret, "b": {}}}),
            json!({"a": "x", "b": "x"}),
            json!({"a": "******", "b": "x"}),
        ),
        (
            json!({"type": "object", "properties": {"a": {"x-sensitive": true}}}),
            json!({"a": {"n": 1, "t": true, "z": null, "l": ["s", 2]}}),
            json!({"a": {"n": "******", "t": "******", "z": "******", "l": ["******", "******"]}}),
        ),
        (
            json!({"type": "object", "patternProperties": {"^s_": secret}}),
            json!({"s_a": "x", "a": "x"}),
            json!({"s_a": "******", "a": "x"}),
        ),
        (
            json!({"type": "object", "additionalProperties": {"x-mask": true}}),
            json!({"a": 1}),
            json!({"a": "******"}),
        ),
        (
            json!({"type": "object", "properties": {"l": {"items": {"properties": {"p": secret}}}}}),
            json!({"l": [{"p": "x", "q": "x"}, {"p": "y"}]}),
            json!({"l": [{"p": "******", "q": "x"}, {"p": "******"}]}),
        ),
        (
            json!({"type": "object", "properties": {"l": {"prefixItems": [{}, secret]}}}),
            json!({"l": ["x", "y", "z"]}),
            json!({"l": ["x", "******", "z"]}),
        ),
        (
            json!({"type": "object", "oneOf": [{"properties": {"a": secret}}, {"required": ["q"]}]}),
            json!({"a": "x"}),
            json!({"a": "******"}),
        ),
        (
            json!({"type": "object", "if": {}, "then": {"properties": {"a": secret}}}),
            json!({"a": "x"}),
            json!({"a": "******"}),
        ),
        (
            json!({"type": "object", "dependentSchemas": {"b": {"properties": {"a": secret}}}}),
            json!({"a": "x"}),
            json!({"a": "******"}),
        ),
        (
            json!({"type": "object", "$defs": {"s": secret},
                "properties": {"a": {"$ref": "#/$defs/s"}}}),
            json!({"a": "x"}),
            json!({"a": "******"}),
        ),
    ] {
        assert_eq!(masked(&schema, arguments), expected, "{schema}");
    }
}

#[test]
fn a_pattern_masks_its_matches_and_else_everything() {
    let with = |pattern: &str| {
        json!({"type": "object", "properties": {"card": {
            "x-mask": true, "x-mask-pattern": pattern}}})
    };
    let card = |text: &str| json!({"card": text});
    let digits = with("[0-9]{4}-");
    assert_eq!(
        masked(&digits, card("1234-5678-9012")),
        card("************9012")
    );
    assert_eq!(masked(&digits, card("none")), card("******"));
    assert_eq!(masked(&digits, json!({"card": 7})), card("******"));
    assert_eq!(masked(&with("("), card("x(y")), card("******"));
    assert_eq!(masked(&with("a"), card("$0a$1")), card("$0******$1"));
    let both = json!({"type": "object", "properties": {"card": {
        "x-mask": true, "x-sensitive": true, "x-mask-pattern": "^.{4}"}}});
    assert_eq!(masked(&both, card("1234-5678")), card("******"));
}

#[test]
fn masks_that_could_not_hold_are_refused() {
    let secret = json!({"x-mask": true});
    let pattern = |text: &str| json!({"x-mask": true, "x-mask-pattern": text});
    for schema in [
        json!({"type": "object", "properties": {"a": {"not": secret}}}),
        json!({"type": "object", "if": {"properties": {"a": secret}}}),
        json!({"type": "object", "propertyNames": secret}),
        json!({"type": "object", "properties": {"a": {"contentSchema": secret}}}),
        json!({"type": "object", "properties": {"a": secret, "below": {"$ref": "#"}}}),
        json!({"type": "object", "$defs": {"t": {"properties": {
            "a": secret, "below": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"}),
        json!({"type": "object", "x-mask": true}),
        json!({"type": "object", "properties": {"a": {"x-mask": "yes"}}}),
        json!({"type": "object", "properties": {"a": {"x-mask-pattern": "a"}}}),
        json!({"type": "object", "properties": {"a": {"x-mask": true, "x-mask-pattern": 1}}}),
        json!({"type": "object", "allOf": [
            {"properties": {"a": pattern("x")}}, {"properties": {"a": pattern("y")}}]}),
    ] {
        let found = faults(&schema);
        assert_eq!(found.len(), 1, "{schema}: {found:?}");
        assert_eq!(found[0].0, Reason::AnnotationInvalid, "{schema}");
    }
    let same = json!({"type": "object", "allOf": [
        {"properties": {"a": pattern("x")}}, {"properties": {"a": pattern("x")}}]});
    assert_eq!(faults(&same), []);
    let unused = json!({"type": "object", "$defs": {"s": secret}, "x-tokenize": true});
    assert_eq!(faults(&unused), []);
}
