//! `x-mcp-header`: which arguments of a tool are mirrored in headers (SEP-2243, mcp.md 2.2).
//!
//! A mark where none may stand makes the whole tool invalid, so schemas are searched for it in
//! every place a schema can be. What is data (`default`, `enum`, `examples`) is not a schema.

use serde_json::{Map, Value};

use crate::mcp::json;

const MARK: &str = "x-mcp-header";
/// Mirrored arguments of one tool at the most: each is a header of every call.
const HEADERS_MAX: usize = 64;
/// Deepest argument.
const DEPTH_MAX: usize = 16;

/// One mirrored argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamHeader {
    /// The header's whole name, lower case.
    pub field: Box<str>,
    /// Names of the properties that lead to the argument.
    path: Box<[Box<str>]>,
}

impl ParamHeader {
    /// The argument, raw; `None` when it is absent or null.
    pub fn value<'a>(&self, arguments: &'a [u8]) -> Option<&'a [u8]> {
        let mut value = arguments;
        for name in &self.path {
            value = json::member(value, name)?.slice(value);
        }
        (value != b"null").then_some(value)
    }
}

/// A mark that must not be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidMark;

/// The mirrored arguments of a tool with this `inputSchema`.
///
/// # Errors
/// The tool must not be offered.
pub fn param_headers(schema: &[u8]) -> Result<Vec<ParamHeader>, InvalidMark> {
    if memchr::memmem::find(schema, MARK.as_bytes()).is_none() {
        // An escaped spelling of it is still one; nobody writes one, and nobody means it.
        return Ok(Vec::new());
    }
    let Ok(Value::Object(root)) = serde_json::from_slice(schema) else {
        return Ok(Vec::new());
    };
    let mut search = Search::default();
    search.schema(&root, true)?;
    Ok(search.found)
}

#[derive(Default)]
struct Search {
    path: Vec<Box<str>>,
    found: Vec<ParamHeader>,
}

impl Search {
    /// `is_reachable`: only `properties` lead here from the root.
    fn schema(
        &mut self,
        schema: &Map<String, Value>,
        is_reachable: bool,
    ) -> Result<(), InvalidMark> {
        if let Some(mark) = schema.get(MARK) {
            self.take(mark, schema.get("type"), is_reachable)?;
        }
        for (keyword, value) in schema {
            match keyword.as_str() {
                "properties" => self.properties(value, is_reachable)?,
                "patternProperties" | "dependentSchemas" | "$defs" | "definitions"
                | "dependencies" => {
                    for inner in value.as_object().into_iter().flat_map(Map::values) {
                        self.unreachable(inner)?;
                    }
                }
                "allOf"
                | "anyOf"
                | "oneOf"
                | "prefixItems"
                | "items"
                | "additionalItems"
                | "contains"
                | "not"
                | "if"
                | "then"
                | "else"
                | "propertyNames"
                | "contentSchema"
                | "additionalProperties"
                | "unevaluatedItems"
                | "unevaluatedProperties" => self.unreachable(value)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn properties(&mut self, value: &Value, is_reachable: bool) -> Result<(), InvalidMark> {
        for (name, inner) in value.as_object().into_iter().flatten() {
            let Some(inner) = inner.as_object() else {
                continue;
            };
            self.path.push(name.as_str().into());
            self.schema(inner, is_reachable)?;
            self.path.pop();
        }
        Ok(())
    }

    fn unreachable(&mut self, value: &Value) -> Result<(), InvalidMark> {
        match value {
            Value::Object(schema) => self.schema(schema, false),
            Value::Array(all) => all.iter().try_for_each(|one| self.unreachable(one)),
            _ => Ok(()),
        }
    }

    fn take(
        &mut self,
        mark: &Value,
        kind: Option<&Value>,
        is_reachable: bool,
    ) -> Result<(), InvalidMark> {
        let name = mark.as_str().filter(|name| is_token(name));
        let kind = kind.and_then(Value::as_str);
        let is_scalar = matches!(kind, Some("string" | "integer" | "boolean"));
        let (Some(name), true, true) = (name, is_scalar, is_reachable) else {
            return Err(InvalidMark);
        };
        let field = format!("mcp-param-{}", name.to_ascii_lowercase());
        let is_known = self.found.iter().any(|known| *known.field == *field);
        let is_in_bounds = (1..=DEPTH_MAX).contains(&self.path.len());
        if is_known || !is_in_bounds || self.found.len() >= HEADERS_MAX {
            return Err(InvalidMark);
        }
        self.found.push(ParamHeader {
            field: field.into(),
            path: self.path.clone().into(),
        });
        Ok(())
    }
}

fn is_token(name: &str) -> bool {
    // RFC 9110 section 5.6.2.
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(schema: &str) -> Result<Vec<String>, InvalidMark> {
        let found = param_headers(schema.as_bytes())?;
        Ok(found
            .iter()
            .map(|header| header.field.to_string())
            .collect())
    }

    #[test]
    fn marks_on_plain_properties_count() {
        assert_eq!(fields(r#"{"type":"object"}"#), Ok(vec![]));
        let schema = r#"{"type":"object","properties":{
            "a":{"type":"string","x-mcp-header":"Region-1"},
            "o":{"type":"object","properties":{"b":{"type":"integer","x-mcp-header":"b"}}},
            "x-mcp-header":{"type":"string","default":{"x-mcp-header":1}}}}"#;
        let all = vec!["mcp-param-region-1".to_owned(), "mcp-param-b".to_owned()];
        assert_eq!(fields(schema), Ok(all));
    }

    #[test]
    fn marks_elsewhere_make_the_tool_invalid() {
        let property = |schema: &str| format!(r#"{{"properties":{{"a":{schema}}}}}"#);
        let mark = r#"{"type":"string","x-mcp-header":"A"}"#;
        for bad in [
            r#"{"type":"string","x-mcp-header":"A"}"#.to_owned(),
            property(r#"{"type":"string","x-mcp-header":""}"#),
            property(r#"{"type":"string","x-mcp-header":"a b"}"#),
            property(r#"{"type":"string","x-mcp-header":"a\r\nb"}"#),
            property(r#"{"type":"string","x-mcp-header":7}"#),
            property(r#"{"type":"number","x-mcp-header":"A"}"#),
            property(r#"{"type":"object","x-mcp-header":"A"}"#),
            property(r#"{"type":["string","null"],"x-mcp-header":"A"}"#),
            property(r#"{"x-mcp-header":"A"}"#),
            property(&format!(r#"{{"type":"array","items":{mark}}}"#)),
            property(&format!(r#"{{"anyOf":[{mark}]}}"#)),
            format!(r#"{{"$defs":{{"d":{mark}}}}}"#),
            format!(r#"{{"allOf":[{{"properties":{{"a":{mark}}}}}]}}"#),
            format!(r#"{{"patternProperties":{{"x":{mark}}}}}"#),
            format!(r#"{{"if":{{"properties":{{"a":{mark}}}}}}}"#),
            format!(
                r#"{{"properties":{{"a":{mark},"b":{{"type":"string","x-mcp-header":"a"}}}}}}"#
            ),
        ] {
            assert_eq!(fields(&bad), Err(InvalidMark), "{bad}");
        }
    }

    #[test]
    fn values_are_found_by_their_path() {
        let schema =
            r#"{"properties":{"o":{"properties":{"b":{"type":"integer","x-mcp-header":"b"}}}}}"#;
        let headers = param_headers(schema.as_bytes()).unwrap();
        let value = |arguments: &'static str| headers[0].value(arguments.as_bytes());
        assert_eq!(value(r#"{"o":{"b":7}}"#), Some(&b"7"[..]));
        for none in [r#"{"o":{"b":null}}"#, r#"{"o":[]}"#, "{}", "[]"] {
            assert_eq!(value(none), None, "{none}");
        }
    }
}
