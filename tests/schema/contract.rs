//! SCH-1 and SCH-2 of dual-profile.md section 10.1, as a table: one line for each situation of
//! section 3.1, with values that conform and values that do not.

use serde_json::{Value, json};
use shardgate::schema::{InputSchema, Reason, SchemaLimits, Structured};

use crate::{faults, input, output};

/// What a schema must be, and what it must say about values.
enum Verdict {
    /// Sound: these conform, these do not.
    Sound(Vec<Value>, Vec<Value>),
    /// Refused, for this reason at this place.
    Refused(Reason, &'static str),
}

use Verdict::{Refused, Sound};

fn input_cases() -> Vec<(&'static str, Value, Verdict)> {
    let closed = json!({"$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object", "properties": {}, "additionalProperties": false});
    let alternatives = |keyword: &str| {
        json!({"type": "object", keyword: [
            {"properties": {"shape": {"const": "circle"}, "radius": {"type": "number"}},
             "required": ["shape", "radius"]},
            {"properties": {"shape": {"const": "square"}, "side": {"type": "number"}},
             "required": ["shape", "side"]},
        ], "unevaluatedProperties": false})
    };
    let parts = json!({
        "width": {"properties": {"width": {"type": "integer"}}, "required": ["width"]},
        "height": {"properties": {"height": {"type": "integer"}}, "required": ["height"]},
    });
    let of_parts = |keyword: &str| {
        json!({"type": "object", "$defs": parts,
            keyword: [{"$ref": "#/$defs/width"}, {"$ref": "#/$defs/height"}],
            "unevaluatedProperties": false})
    };
    vec![
        (
            "no arguments, closed",
            closed,
            Sound(vec![json!({})], vec![json!({"a": 1}), Value::Null]),
        ),
        (
            "plain parameters",
            json!({"type": "object", "properties": {
                "station": {"type": "string"}, "hours": {"type": "integer", "minimum": 1}},
                "required": ["station"], "additionalProperties": false}),
            Sound(
                vec![json!({"station": "x"}), json!({"station": "x", "hours": 2})],
                vec![json!({"hours": 2}), json!({"station": "x", "hours": 0})],
            ),
        ),
        (
            "allOf",
            json!({"type": "object", "allOf": [
                {"properties": {"a": {"type": "string", "minLength": 1}}, "required": ["a"]},
                {"properties": {"b": {"const": 7}}, "required": ["b"]}],
                "unevaluatedProperties": false}),
            Sound(
                vec![json!({"a": "x", "b": 7})],
                vec![
                    json!({"a": "x", "b": 8}),
                    json!({"a": "x"}),
                    json!({"a": "", "b": 7}),
                ],
            ),
        ),
        (
            "anyOf that overlaps",
            json!({"type": "object", "anyOf": [
                {"properties": {"mail": {"type": "string"}}, "required": ["mail"]},
                {"properties": {"phone": {"type": "string"}}, "required": ["phone"]}],
                "unevaluatedProperties": false}),
            Sound(
                vec![json!({"mail": "m"}), json!({"mail": "m", "phone": "p"})],
                vec![json!({}), json!({"mail": "m", "fax": "f"})],
            ),
        ),
        (
            "oneOf told apart by a constant",
            alternatives("oneOf"),
            Sound(
                vec![
                    json!({"shape": "circle", "radius": 1}),
                    json!({"shape": "square", "side": 1}),
                ],
                vec![
                    json!({"shape": "circle"}),
                    json!({"shape": "star", "radius": 1}),
                ],
            ),
        ),
        (
            "oneOf whose branches do not ask for the constant",
            json!({"type": "object", "oneOf": [
                {"properties": {"shape": {"const": "circle"}}},
                {"properties": {"shape": {"const": "square"}}}]}),
            Sound(vec![json!({"shape": "circle"})], vec![json!({})]),
        ),
        (
            "if, then, else",
            json!({"type": "object", "properties": {"kind": {"enum": ["a", "b"]}},
                "required": ["kind"],
                "if": {"properties": {"kind": {"const": "a"}}, "required": ["kind"]},
                "then": {"properties": {"x": {"type": "string"}}, "required": ["x"]},
                "else": {"properties": {"y": {"type": "string"}}, "required": ["y"]},
                "unevaluatedProperties": false}),
            Sound(
                vec![json!({"kind": "a", "x": ""}), json!({"kind": "b", "y": ""})],
                vec![
                    json!({"kind": "a"}),
                    json!({"kind": "b"}),
                    json!({"kind": "b", "x": ""}),
                ],
            ),
        ),
        (
            "a root with type and reference",
            json!({"type": "object", "$defs": {"r": {"properties": {"id": {"type": "string"}},
                "required": ["id"]}}, "$ref": "#/$defs/r", "unevaluatedProperties": false}),
            Sound(
                vec![json!({"id": "1"})],
                vec![json!({"id": 1}), json!({"id": "1", "b": 2})],
            ),
        ),
        (
            "references in allOf",
            of_parts("allOf"),
            Sound(
                vec![json!({"width": 1, "height": 1})],
                vec![json!({"width": 1})],
            ),
        ),
        (
            "references in anyOf",
            of_parts("anyOf"),
            Sound(vec![json!({"width": 1})], vec![json!({})]),
        ),
        (
            "references in oneOf",
            of_parts("oneOf"),
            Sound(
                vec![json!({"width": 1})],
                vec![json!({}), json!({"width": 1, "height": 1})],
            ),
        ),
        (
            "a chain of references",
            json!({"type": "object", "$defs": {"a": {"$ref": "#/$defs/b"},
                "b": {"$ref": "#/$defs/c"},
                "c": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}},
                "$ref": "#/$defs/a"}),
            Sound(vec![json!({"n": 1})], vec![json!({"n": "1"})]),
        ),
        (
            "boolean subschemas",
            json!({"type": "object", "properties": {"any": true, "none": false},
                "additionalProperties": false}),
            Sound(vec![json!({"any": [1, "x"]})], vec![json!({"none": 1})]),
        ),
        (
            "unevaluatedProperties looks into branches",
            alternatives("anyOf"),
            Sound(
                vec![json!({"shape": "square", "side": 1})],
                vec![json!({"shape": "square", "side": 1, "radius": 1})],
            ),
        ),
        (
            "additionalProperties does not",
            json!({"type": "object", "properties": {"shape": {"const": "circle"}},
                "oneOf": [{"properties": {"radius": {"type": "number"}}, "required": ["radius"]}],
                "additionalProperties": false}),
            Sound(vec![], vec![json!({"shape": "circle", "radius": 1})]),
        ),
        (
            "a schema that contains itself",
            json!({"type": "object", "$defs": {"tree": {"type": "object", "properties": {
                "leaf": {"type": "string"}, "below": {"$ref": "#/$defs/tree"}},
                "required": ["leaf"], "additionalProperties": false}}, "$ref": "#/$defs/tree"}),
            Sound(
                vec![json!({"leaf": "x", "below": {"leaf": "y"}})],
                vec![json!({"leaf": "x", "below": {"leaf": 1}})],
            ),
        ),
        (
            "a root that is an object through its reference alone",
            json!({"$defs": {"r": {"type": "object", "properties": {"id": {"type": "string"}},
                "required": ["id"]}}, "$ref": "#/$defs/r"}),
            Sound(vec![json!({"id": "1"})], vec![json!({}), json!([])]),
        ),
        (
            "a diamond of references",
            json!({"type": "object", "$defs": {
                "base": {"properties": {"id": {"type": "string"}}, "required": ["id"]},
                "left": {"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"l": {}}}]},
                "right": {"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"r": {}}}]}},
                "allOf": [{"$ref": "#/$defs/left"}, {"$ref": "#/$defs/right"}],
                "unevaluatedProperties": false}),
            Sound(
                vec![json!({"id": "1", "l": 1, "r": 1})],
                vec![json!({"l": 1, "r": 1})],
            ),
        ),
        (
            "a mask on names of a pattern",
            json!({"type": "object", "patternProperties": {"^s_[a-z]+$": {
                "type": "string", "x-mask": true}}, "additionalProperties": false}),
            Sound(vec![json!({"s_key": "k"})], vec![json!({"key": "k"})]),
        ),
        (
            "properties and definitions named as annotations",
            json!({"type": "object", "$defs": {"x-sensitive": {"type": "object"}},
                "properties": {"x-mask": {"type": "string"}, "d": {"$ref": "#/$defs/x-sensitive"},
                    "m": {"default": {"x-sensitive": "data"}, "examples": [{"x-mask": 3}]}},
                "required": ["x-mask"]}),
            Sound(
                vec![json!({"x-mask": "plain", "d": {}})],
                vec![json!({"x-mask": 1})],
            ),
        ),
        (
            "an anchor that stays",
            json!({"type": "object", "$defs": {"r": {"$anchor": "named",
                "properties": {"id": {"type": "string"}}}}, "$ref": "#named"}),
            Sound(vec![json!({"id": "1"})], vec![json!({"id": 1})]),
        ),
        (
            "a format is a remark",
            json!({"type": "object", "properties": {"when": {"type": "string", "format": "date"}}}),
            Sound(vec![json!({"when": "soon"})], vec![json!({"when": 1})]),
        ),
        (
            "composition alone makes no object",
            json!({"allOf": [{"type": "object"}]}),
            Refused(Reason::InputMissingObjectRoot, ""),
        ),
        (
            "a list of types is not the word",
            json!({"type": ["object"]}),
            Refused(Reason::InputMissingObjectRoot, ""),
        ),
        (
            "empty",
            json!({}),
            Refused(Reason::InputMissingObjectRoot, ""),
        ),
        (
            "text",
            json!(""),
            Refused(Reason::InputNotObjectDocument, ""),
        ),
        (
            "number",
            json!(1),
            Refused(Reason::InputNotObjectDocument, ""),
        ),
        (
            "array",
            json!([]),
            Refused(Reason::InputNotObjectDocument, ""),
        ),
        (
            "null",
            Value::Null,
            Refused(Reason::InputNotObjectDocument, ""),
        ),
        ("true", json!(true), Refused(Reason::InputBooleanRoot, "")),
        ("false", json!(false), Refused(Reason::InputBooleanRoot, "")),
        (
            "a reference into nothing",
            json!({"type": "object", "$ref": "#/$defs/gone"}),
            Refused(Reason::UnresolvedReference, "/$ref"),
        ),
        (
            "a reference to the network",
            json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/s"}}}),
            Refused(Reason::ExternalReference, "/properties/a/$ref"),
        ),
        (
            "a dynamic reference",
            json!({"type": "object", "$dynamicRef": "#n"}),
            Refused(Reason::DynamicReference, "/$dynamicRef"),
        ),
        (
            "a dynamic anchor",
            json!({"type": "object", "$dynamicAnchor": "n"}),
            Refused(Reason::AnchorReference, "/$dynamicAnchor"),
        ),
        (
            "an identifier inside",
            json!({"type": "object", "properties": {"a": {"$id": "a.json", "type": "object"}}}),
            Refused(Reason::NestedId, "/properties/a/$id"),
        ),
        (
            "a dialect inside",
            json!({"type": "object", "properties": {"a": {
                "$schema": "https://json-schema.org/draft/2020-12/schema"}}}),
            Refused(Reason::NestedDialect, "/properties/a/$schema"),
        ),
        (
            "another dialect",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}),
            Refused(Reason::UnsupportedDialect, "/$schema"),
        ),
        (
            "no schema at all",
            json!({"type": "object", "properties": {"a": {"type": "whatever"}}}),
            Refused(Reason::CompilationFailed, "/properties/a/type"),
        ),
        (
            "an expression that looks around",
            json!({"type": "object", "properties": {"a": {"pattern": "(?=x)"}}}),
            Refused(Reason::CompilationFailed, "/properties/a/pattern"),
        ),
    ]
}

#[test]
fn input_schemas() {
    let cases = input_cases();
    assert!(cases.len() >= 37);
    for (name, schema, verdict) in cases {
        match verdict {
            Sound(conform, fail) => {
                let sound = input(&schema).unwrap_or_else(|faults| panic!("{name}: {faults:?}"));
                for value in conform {
                    assert_eq!(sound.schema.check(&value), Ok(()), "{name}: {value}");
                }
                for value in fail {
                    assert!(sound.schema.check(&value).is_err(), "{name}: {value}");
                }
                assert_eq!(sound.schema.advertised()["type"], "object", "{name}");
            }
            Refused(reason, pointer) => {
                assert_eq!(faults(&schema), [(reason, pointer.to_owned())], "{name}");
            }
        }
    }
}

#[test]
fn no_schema_takes_any_object() {
    let any = InputSchema::new(None, &SchemaLimits::default()).unwrap();
    assert!(any.schema.check(&json!({"a": [1]})).is_ok());
    assert!(any.schema.check(&json!([])).is_err());
}

#[test]
fn one_fault_does_not_hide_another() {
    let schema = json!({
        "$schema": "urn:other",
        "properties": {
            "a": {"$id": "x"},
            "b": {"$ref": "https://example.com/"},
            "c": {"type": "string", "x-mcp-header": "no spaces"},
        },
    });
    let reasons: Vec<Reason> = faults(&schema)
        .into_iter()
        .map(|(reason, _)| reason)
        .collect();
    assert_eq!(
        reasons,
        [
            Reason::InputMissingObjectRoot,
            Reason::UnsupportedDialect,
            Reason::NestedId,
            Reason::ExternalReference,
            Reason::AnnotationInvalid,
        ]
    );
}

#[test]
fn output_schemas_have_any_root() {
    let objects = json!({"type": "object", "required": ["id"]});
    for (schema, conform, fail) in [
        (json!({"type": "array"}), json!([1]), json!({})),
        (json!({"type": "null"}), Value::Null, json!(0)),
        (json!({"type": "number"}), json!(1.5), json!("1.5")),
        (
            json!({"$defs": {"o": objects}, "$ref": "#/$defs/o"}),
            json!({"id": 1}),
            json!({}),
        ),
    ] {
        let sound = output(&schema).unwrap();
        assert_eq!(sound.check(&conform), Ok(Structured::Whole), "{schema}");
        assert!(sound.check(&fail).is_err(), "{schema}");
        assert!(!sound.is_object);
    }
    assert_eq!(
        output(&json!(true)).unwrap().check(&json!(1)),
        Ok(Structured::Whole)
    );
    assert!(output(&json!("x")).is_err());
    assert!(output(&json!({"$ref": "https://example.com/"})).is_err());
}

#[test]
fn an_array_in_its_wrapper_is_taken_out_when_only_that_conforms() {
    let array = output(&json!({"type": "array", "items": {"type": "integer"}})).unwrap();
    let wrapper = output(&json!({"type": "object", "required": ["items"]})).unwrap();
    let wrapped = json!({"items": [1, 2]});
    assert_eq!(wrapper.check(&wrapped), Ok(Structured::Whole));
    assert_eq!(array.check(&wrapped), Ok(Structured::InnerArray));
    assert_eq!(
        array.check(&json!({"items": ["x"]})),
        Err("/: type".to_owned())
    );
    assert!(array.check(&json!({"items": [1], "more": 1})).is_err());
}

#[test]
fn what_is_private_is_not_advertised() {
    let schema = json!({
        "type": "object",
        "properties": {
            "x-mask": {"type": "string", "x-mask": true, "x-mask-pattern": "a"},
            "region": {"type": "string", "x-mcp-header": "Region"},
        },
        "$defs": {"x-sensitive": {"items": {"x-sensitive": false}}},
        "default": {"x-sensitive": true},
    });
    let advertised = json!({
        "type": "object",
        "properties": {
            "x-mask": {"type": "string"},
            "region": {"type": "string", "x-mcp-header": "Region"},
        },
        "$defs": {"x-sensitive": {"items": {}}},
        "default": {"x-sensitive": true},
    });
    assert_eq!(input(&schema).unwrap().schema.advertised(), &advertised);
}
