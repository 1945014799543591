//! `x-mcp-header`: which arguments of a tool are mirrored in headers (SEP-2243, mcp.md 2.2).
//!
//! A mark where none may stand makes the whole tool invalid, so schemas are searched for it in
//! every place a schema can be. What is data (`default`, `enum`, `examples`) is not a schema.

use serde_json::{Map, Value};

use crate::{mcp::json, schema::pointer::push as push_token};

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

/// A mark that must not be there, or not be like that.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InvalidMark {
    /// Where the schema that has it is, as a JSON pointer.
    pub pointer: String,
    /// What is wrong.
    pub text: &'static str,
}

/// The mirrored arguments of a tool with this `inputSchema`.
///
/// # Errors
/// All that is wrong: the tool must not be offered.
pub fn param_headers(schema: &[u8]) -> Result<Vec<ParamHeader>, Vec<InvalidMark>> {
    if memchr::memmem::find(schema, MARK.as_bytes()).is_none() {
        // An escaped spelling of it is still one; nobody writes one, and nobody means it.
        return Ok(Vec::new());
    }
    let Ok(Value::Object(root)) = serde_json::from_slice(schema) else {
        return Ok(Vec::new());
    };
    headers_in(&root)
}

/// The same of a schema that was read already.
///
/// # Errors
/// As [`param_headers`].
pub fn headers_in(root: &Map<String, Value>) -> Result<Vec<ParamHeader>, Vec<InvalidMark>> {
    let mut search = Search::default();
    search.schema(root, true);
    if search.invalid.is_empty() {
        Ok(search.found)
    } else {
        Err(search.invalid)
    }
}

#[derive(Default)]
struct Search {
    path: Vec<Box<str>>,
    pointer: String,
    found: Vec<ParamHeader>,
    invalid: Vec<InvalidMark>,
}

impl Search {
    /// `is_reachable`: only `properties` lead here from the root.
    fn schema(&mut self, schema: &Map<String, Value>, is_reachable: bool) {
        if let Some(mark) = schema.get(MARK) {
            let taken = self.take(mark, schema.get("type"), is_reachable);
            if let Err(text) = taken
                && self.invalid.len() < HEADERS_MAX
            {
                let pointer = self.pointer.clone();
                self.invalid.push(InvalidMark { pointer, text });
            }
        }
        for (keyword, value) in schema {
            match keyword.as_str() {
                "properties" => self.within(keyword, |search| {
                    for (name, inner) in value.as_object().into_iter().flatten() {
                        let Some(inner) = inner.as_object() else {
                            continue;
                        };
                        search.path.push(name.as_str().into());
                        search.within(name, |search| search.schema(inner, is_reachable));
                        search.path.pop();
                    }
                }),
                "patternProperties" | "dependentSchemas" | "$defs" | "definitions"
                | "dependencies" => self.within(keyword, |search| {
                    for (name, inner) in value.as_object().into_iter().flatten() {
                        search.within(name, |search| search.unreachable(inner));
                    }
                }),
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
                | "unevaluatedProperties" => {
                    self.within(keyword, |search| search.unreachable(value));
                }
                _ => {}
            }
        }
    }

    /// Does `work` one step further in the document.
    fn within(&mut self, token: &str, work: impl FnOnce(&mut Self)) {
        let length = self.pointer.len();
        push_token(&mut self.pointer, token);
        work(self);
        self.pointer.truncate(length);
    }

    fn unreachable(&mut self, value: &Value) {
        match value {
            Value::Object(schema) => self.schema(schema, false),
            Value::Array(all) => {
                for (index, one) in all.iter().enumerate() {
                    self.within(&index.to_string(), |search| search.unreachable(one));
                }
            }
            _ => {}
        }
    }

    fn take(
        &mut self,
        mark: &Value,
        kind: Option<&Value>,
        is_reachable: bool,
    ) -> Result<(), &'static str> {
        let name = mark.as_str().filter(|name| is_token(name));
        let name = name.ok_or("it must be a header name: letters, digits and !#$%&'*+-.^_`|~")?;
        let kind = kind.and_then(Value::as_str);
        if !matches!(kind, Some("string" | "integer" | "boolean")) {
            return Err("the type must be exactly string, integer or boolean");
        }
        if !is_reachable || self.path.is_empty() {
            return Err("only `properties` may lead from the root to the property");
        }
        let field = format!("mcp-param-{}", name.to_ascii_lowercase());
        if self.found.iter().any(|known| *known.field == *field) {
            return Err("another property has the same header");
        }
        if self.path.len() > DEPTH_MAX || self.found.len() >= HEADERS_MAX {
            return Err("it is nested too deep, or there are too many");
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

    fn fields(schema: &str) -> Result<Vec<String>, Vec<InvalidMark>> {
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
            assert_eq!(fields(&bad).unwrap_err().len(), 1, "{bad}");
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
