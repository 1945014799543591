//! Which keywords hold schemas, and what those schemas say about the instance (JSON Schema
//! 2020-12, core sections 10 and 11). Everything else in a schema is data: a `default` or an
//! `enum` that looks like a schema is none.

use serde_json::{Map, Value};

use super::pointer;

/// How a subschema relates to the instance of the schema it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Applies<'a> {
    /// To the property of this name.
    Property(&'a str),
    /// To the properties whose names match.
    PatternProperty(&'a str),
    /// To properties of any name.
    AnyProperty,
    /// To the element at this index.
    Element(usize),
    /// To elements at any index.
    AnyElement,
    /// To the same instance, as one of several alternatives or always.
    Same,
    /// To the same instance, counted as a branch of a composition.
    Branch,
    /// To the same instance, and what it says is reversed or only asked: `not`, `if`.
    Asked,
    /// To names, or to the content of a string.
    Elsewhere,
    /// To nothing by itself: `$defs`.
    Definition,
}

/// Calls `visit` with each subschema of a schema object: its pointer, how it applies, itself.
pub(super) fn subschemas<'a>(
    schema: &'a Map<String, Value>,
    at: &str,
    visit: &mut impl FnMut(String, Applies<'a>, &'a Value),
) {
    for (keyword, value) in schema {
        let here = || pointer::join(at, keyword);
        match keyword.as_str() {
            "properties" => map(value, &here(), visit, Applies::Property),
            "patternProperties" => map(value, &here(), visit, Applies::PatternProperty),
            "$defs" | "definitions" => map(value, &here(), visit, |_| Applies::Definition),
            "dependentSchemas" => map(value, &here(), visit, |_| Applies::Same),
            "allOf" | "anyOf" | "oneOf" => list(value, &here(), visit, |_| Applies::Branch),
            "prefixItems" => list(value, &here(), visit, Applies::Element),
            "items" | "contains" | "additionalItems" | "unevaluatedItems" => {
                visit(here(), Applies::AnyElement, value);
            }
            "additionalProperties" | "unevaluatedProperties" => {
                visit(here(), Applies::AnyProperty, value);
            }
            "then" | "else" => visit(here(), Applies::Same, value),
            "not" | "if" => visit(here(), Applies::Asked, value),
            "propertyNames" | "contentSchema" => visit(here(), Applies::Elsewhere, value),
            _ => {}
        }
    }
}

fn map<'a>(
    value: &'a Value,
    at: &str,
    visit: &mut impl FnMut(String, Applies<'a>, &'a Value),
    applies: impl Fn(&'a str) -> Applies<'a>,
) {
    for (name, schema) in value.as_object().into_iter().flatten() {
        visit(pointer::join(at, name), applies(name), schema);
    }
}

fn list<'a>(
    value: &'a Value,
    at: &str,
    visit: &mut impl FnMut(String, Applies<'a>, &'a Value),
    applies: impl Fn(usize) -> Applies<'a>,
) {
    for (index, schema) in value.as_array().into_iter().flatten().enumerate() {
        visit(
            pointer::join(at, &index.to_string()),
            applies(index),
            schema,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_not_a_schema() {
        let schema = serde_json::json!({
            "default": {"properties": {"a": {}}}, "const": {"not": {}}, "enum": [{"items": {}}],
            "examples": [{"allOf": [{}]}], "x-other": {"properties": {"b": {}}},
            "required": ["a"], "properties": {"default": {"type": "string"}},
            "prefixItems": [{}, true], "not": {},
        });
        let mut seen = Vec::new();
        subschemas(schema.as_object().unwrap(), "", &mut |at, applies, _| {
            seen.push((at, applies));
        });
        seen.sort_by(|left, right| left.0.cmp(&right.0));
        assert_eq!(
            seen,
            [
                ("/not".to_owned(), Applies::Asked),
                ("/prefixItems/0".to_owned(), Applies::Element(0)),
                ("/prefixItems/1".to_owned(), Applies::Element(1)),
                (
                    "/properties/default".to_owned(),
                    Applies::Property("default")
                ),
            ]
        );
    }
}
