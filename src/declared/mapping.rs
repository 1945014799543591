//! A call of an HTTP tool as an HTTP request: where each argument goes (dual-profile.md 4.3).

use std::borrow::Cow;

use serde_json::{Map, Value};
use url::form_urlencoded;

use super::{
    routing::{Location, Part, Unmapped, has_dot_segment},
    tool::HttpRoute,
};

/// A request, but for what every request has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpCall {
    /// Request method.
    pub method: &'static str,
    /// Path and query.
    pub target: String,
    /// Headers, by name and value.
    pub headers: Vec<(Box<str>, String)>,
    /// JSON body.
    pub body: Option<Vec<u8>>,
}

/// Why arguments make no request: always -32602. The texts name arguments, never values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MapFault {
    /// A placeholder of the path has no argument, or an empty one.
    #[error("the argument {0} is needed for the path")]
    PathMissing(Box<str>),
    /// The path would have a segment `.` or `..`.
    #[error("the arguments make a path that leads elsewhere")]
    PathLeads,
    /// An argument has no place.
    #[error("the argument {0} has no place in the request")]
    Unmapped(Box<str>),
    /// A header cannot have this value.
    #[error("the argument {0} cannot be a header")]
    HeaderValue(Box<str>),
}

impl HttpRoute {
    /// The request of a call with these arguments, which must be an object.
    ///
    /// # Errors
    /// When they make none.
    pub fn request(&self, arguments: &Value) -> Result<HttpCall, MapFault> {
        let empty = Map::new();
        let arguments = arguments.as_object().unwrap_or(&empty);
        let mut parts = Parts::default();
        for (name, value) in arguments {
            self.place(name, value, &mut parts)?;
        }
        let mut target = self.path(arguments)?;
        if !parts.query.is_empty() {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.extend_pairs(&parts.query);
            target.push('?');
            target.push_str(&query.finish());
        }
        if !parts.cookies.is_empty() {
            parts
                .headers
                .push(("cookie".into(), parts.cookies.join("; ")));
        }
        Ok(HttpCall {
            method: self.method,
            target,
            headers: parts.headers,
            body: self.body(arguments, parts.whole, parts.fields),
        })
    }

    fn takes_body(&self) -> bool {
        !matches!(self.method, "GET" | "HEAD")
    }

    fn body(
        &self,
        arguments: &Map<String, Value>,
        whole: Option<Value>,
        fields: Map<String, Value>,
    ) -> Option<Vec<u8>> {
        if !self.takes_body() {
            return None;
        }
        let is_unrouted =
            self.routing.locations.is_none() && self.routing.unmapped == Unmapped::MethodDefault;
        let body = if is_unrouted {
            Value::Object(arguments.clone())
        } else if let Some(whole) = whole {
            whole
        } else if fields.is_empty() {
            return None;
        } else {
            Value::Object(fields)
        };
        Some(body.to_string().into_bytes())
    }

    fn place(&self, name: &str, value: &Value, parts: &mut Parts<'_>) -> Result<(), MapFault> {
        let locations = self.routing.locations.as_ref();
        let location = match locations.and_then(|all| all.get(name)) {
            Some(location) => *location,
            None => match self.routing.unmapped {
                Unmapped::Reject => return Err(MapFault::Unmapped(name.into())),
                Unmapped::Query => Location::Query,
                Unmapped::MethodDefault if !self.takes_body() => Location::Query,
                Unmapped::MethodDefault | Unmapped::Body => {
                    // Never the whole body by chance: only one that is called so.
                    if name == "body" {
                        parts.whole = Some(value.clone());
                    } else {
                        parts.fields.insert(name.to_owned(), value.clone());
                    }
                    return Ok(());
                }
            },
        };
        match location {
            Location::Path => {}
            Location::Body => {
                if name == "body" || !self.routing.is_body_of_fields {
                    parts.whole = Some(value.clone());
                } else {
                    parts.fields.insert(name.to_owned(), value.clone());
                }
            }
            _ if value.is_null() => {}
            Location::Query => parts.pair(name, text(value)),
            Location::QueryEach => match value {
                Value::Array(elements) => {
                    for element in elements.iter().filter(|element| !element.is_null()) {
                        parts.pair(name, text(element));
                    }
                }
                other => parts.pair(name, text(other)),
            },
            Location::QueryJoined => match value {
                Value::Array(elements) => {
                    let texts: Vec<Cow<'_, str>> = elements.iter().map(text).collect();
                    parts.pair(name, texts.join(",").into());
                }
                other => parts.pair(name, text(other)),
            },
            Location::Header => {
                let text = text(value);
                // RFC 9110 section 5.5, ASCII only, without the blanks that would be lost.
                let is_sound = text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
                    && text.trim_matches(' ') == text;
                if !is_sound {
                    return Err(MapFault::HeaderValue(name.into()));
                }
                parts
                    .headers
                    .push((name.to_ascii_lowercase().into(), text.into_owned()));
            }
            Location::Cookie => {
                let mut pair = format!("{name}=");
                percent_encode(&mut pair, &text(value));
                parts.cookies.push(pair);
            }
        }
        Ok(())
    }

    /// The path: the address's own, unless the tool's begins with it, and the tool's.
    fn path(&self, arguments: &Map<String, Value>) -> Result<String, MapFault> {
        let mut own = String::new();
        for part in &self.routing.template.parts {
            match part {
                Part::Literal(text) => own.push_str(text),
                Part::Placeholder(name) => {
                    let value = arguments.get(&**name).filter(|value| !value.is_null());
                    let text = value.map(text).filter(|text| !text.is_empty());
                    let text = text.ok_or_else(|| MapFault::PathMissing(name.clone()))?;
                    percent_encode(&mut own, &text);
                }
            }
        }
        if has_dot_segment(&own) {
            return Err(MapFault::PathLeads);
        }
        let base = self.base.path().trim_end_matches('/');
        if base.is_empty() || self.repeats(base) {
            return Ok(own);
        }
        Ok(format!("{base}{own}"))
    }

    /// Whether the tool's path begins with the address's own. As it is written: no argument
    /// decides that.
    fn repeats(&self, base: &str) -> bool {
        let parts = &self.routing.template.parts;
        let Some(Part::Literal(first)) = parts.first() else {
            return false;
        };
        first
            .strip_prefix(base)
            .is_some_and(|rest| rest.starts_with('/') || (rest.is_empty() && parts.len() == 1))
    }
}

#[derive(Debug, Default)]
struct Parts<'a> {
    query: Vec<(String, Cow<'a, str>)>,
    headers: Vec<(Box<str>, String)>,
    cookies: Vec<String>,
    whole: Option<Value>,
    fields: Map<String, Value>,
}

impl<'a> Parts<'a> {
    fn pair(&mut self, name: &str, text: Cow<'_, str>) {
        self.query
            .push((name.to_owned(), Cow::<'a, str>::Owned(text.into_owned())));
    }
}

/// A string as it is, anything else as JSON.
fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}

/// Appends `text` with everything but RFC 3986's unreserved characters percent-encoded.
fn percent_encode(out: &mut String, text: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            for digit in [byte >> 4, byte & 15] {
                out.push(char::from(HEX[usize::from(digit)]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::declared::{Kind, Tools};

    fn call(tool: Value, arguments: &Value) -> Result<HttpCall, MapFault> {
        let tools = Tools::read(json!([tool]), &Default::default()).unwrap();
        assert_eq!(tools.faults(), []);
        let Kind::Http(route) = &tools.tools()[0].kind else {
            panic!("not an HTTP tool");
        };
        route.request(arguments)
    }

    /// A tool with an argument in every place.
    fn everywhere() -> Value {
        json!({"name": "t", "targetHost": "https://api.example.com/base", "method": "POST",
            "path": "/a/{p}/b", "toolMetadata": {"routing": {"parameters": {"p": "path",
                "q": "query", "e": "queryEach", "h": "header", "c": "cookie", "b": "body"}}}})
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<String>().prop_map(Value::from),
            "[./%?#&= \r\n]{0,6}".prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null),
        ];
        leaf.prop_recursive(2, 8, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..3)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_argument_leaves_its_place(
            p in value(), q in value(), e in value(), h in value(), c in value(), b in value(),
        ) {
            let arguments = json!({"p": p, "q": q, "e": e, "h": h, "c": c, "b": b});
            let Ok(made) = call(everywhere(), &arguments) else { return Ok(()) };
            // What ends a request line or a header is in none of them.
            prop_assert!(made.target.bytes().all(|byte| byte.is_ascii_graphic()));
            for (name, value) in &made.headers {
                prop_assert!(matches!(&**name, "h" | "cookie"), "{}", name);
                prop_assert!(value.bytes().all(|byte| matches!(byte, b' '..=b'~')));
            }
            let (path, query) = made.target.split_once('?').unwrap_or((&made.target, ""));
            let segments: Vec<&str> = path.split('/').collect();
            prop_assert_eq!(segments.len(), 5, "{}", path);
            prop_assert_eq!((segments[1], segments[2], segments[4]), ("base", "a", "b"));
            prop_assert!(!["", ".", ".."].contains(&segments[3]));
            for (name, _) in form_urlencoded::parse(query.as_bytes()) {
                prop_assert!(name == "q" || name == "e", "{}", name);
            }
            let body: Value = serde_json::from_slice(&made.body.unwrap()).unwrap();
            prop_assert_eq!(&body, &arguments["b"]);
        }

        #[test]
        fn no_path_breaks_its_reader(path in "[/{}a-c.%?]{0,12}") {
            let tool = json!({"name": "t", "targetHost": "https://x", "path": path});
            let _ = Tools::read(json!([tool]), &Default::default());
        }
    }
}
