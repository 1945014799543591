//! HDR-1 of dual-profile.md section 10.1: which `x-mcp-header` annotations are valid. What requests
//! say by them is tested beside `src/mcp/mirror.rs`.

use serde_json::{Value, json};
use shardgate::schema::Reason;

use crate::{faults, input};

#[test]
fn annotations_are_judged_one_by_one() {
    let on = |annotation: Value, kind: Value| {
        json!({"type": "object", "properties": {
            "a": {"type": kind, "x-mcp-header": annotation}}})
    };
    let nested = json!({"type": "object", "properties": {"o": {"type": "object", "properties": {
        "a": {"type": "integer", "x-mcp-header": "Deep-Id"}}}}});
    for sound in [
        on(json!("Region"), json!("string")),
        on(json!("x!#$%&'*+-.^_`|~9"), json!("boolean")),
        on(json!("Count"), json!("integer")),
        nested,
    ] {
        assert_eq!(faults(&sound), [], "{sound}");
        assert_eq!(input(&sound).unwrap().headers.len(), 1);
    }
    let annotated = json!({"type": "string", "x-mcp-header": "A"});
    let bad = [
        on(json!(""), json!("string")),
        on(json!("a b"), json!("string")),
        on(json!("a\r\nb"), json!("string")),
        on(json!("a:"), json!("string")),
        on(json!("\u{e4}"), json!("string")),
        on(json!(7), json!("string")),
        on(json!("A"), json!("number")),
        on(json!("A"), json!("object")),
        on(json!("A"), json!("array")),
        on(json!("A"), json!("null")),
        on(json!("A"), json!(["string"])),
        json!({"type": "object", "properties": {"a": {"x-mcp-header": "A"}}}),
        json!({"type": "object", "properties": {"a": annotated,
            "b": {"type": "string", "x-mcp-header": "a"}}}),
        json!({"type": "object", "x-mcp-header": "A"}),
        json!({"type": "object", "properties": {"l": {"items": annotated}}}),
        json!({"type": "object", "properties": {"l": {"prefixItems": [annotated]}}}),
        json!({"type": "object", "additionalProperties": annotated}),
        json!({"type": "object", "patternProperties": {"^a": annotated}}),
        json!({"type": "object", "allOf": [{"properties": {"a": annotated}}]}),
        json!({"type": "object", "anyOf": [{"properties": {"a": annotated}}]}),
        json!({"type": "object", "not": {"properties": {"a": annotated}}}),
        json!({"type": "object", "if": {}, "then": {"properties": {"a": annotated}}}),
        json!({"type": "object", "$defs": {"d": annotated}}),
        json!({"type": "object", "$defs": {"d": annotated},
            "properties": {"a": {"$ref": "#/$defs/d"}}}),
        json!({"type": "object", "properties": {"a": {"type": "string",
            "x-mcp-header": "A", "x-sensitive": true}}}),
        json!({"type": "object", "properties": {"o": {"x-mask": true, "properties": {
            "a": annotated}}}}),
        json!({"type": "object", "patternProperties": {"^a": {"x-mask": true}},
            "properties": {"a": annotated}}),
    ];
    for schema in bad {
        let found = faults(&schema);
        assert_eq!(found.len(), 1, "{schema}: {found:?}");
        assert_eq!(found[0].0, Reason::AnnotationInvalid, "{schema}");
    }
}
