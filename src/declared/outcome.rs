//! The result of a call, from what an API or a backend gave to what a client gets
//! (dual-profile.md 3.5 and 4.4).

use serde_json::{Map, Value, json};

use super::list::Profile;
use crate::{
    mcp::profile::{OWN_INFO, SERVER_INFO},
    policy::FilterFault,
    schema::{OutputSchema, Structured, items_of},
};

/// A result of `tools/call`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolResult {
    content: Vec<Value>,
    structured: Option<Json>,
    is_error: bool,
    /// Other members a backend's result had.
    others: Map<String, Value>,
}

/// A JSON value, with its own text when it still has it: numbers keep their digits.
#[derive(Debug, Clone, PartialEq)]
struct Json {
    value: Value,
    text: Option<Box<str>>,
}

impl Json {
    fn text(&self) -> String {
        match &self.text {
            Some(text) => text.to_string(),
            None => self.value.to_string(),
        }
    }

    fn of(value: Value) -> Self {
        Self { value, text: None }
    }
}

fn text_block(text: impl Into<String>) -> Value {
    json!({"type": "text", "text": text.into()})
}

impl ToolResult {
    /// A failed call, told in one text.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self {
            content: vec![text_block(text)],
            is_error: true,
            ..Self::default()
        }
    }

    /// What an HTTP reply means.
    #[must_use]
    pub fn of_http(status: u16, body: &[u8]) -> Self {
        if !(200..300).contains(&status) {
            return Self::error(format!("upstream returned HTTP {status}"));
        }
        let text = match body.trim_ascii() {
            b"" => "success".to_owned(),
            trimmed => match serde_json::from_slice::<Value>(trimmed) {
                Ok(value) => {
                    let text = compact(trimmed);
                    return Self {
                        content: vec![text_block(text.clone())],
                        structured: Some(Json {
                            value,
                            text: Some(text.into()),
                        }),
                        ..Self::default()
                    };
                }
                Err(_) => String::from_utf8_lossy(body).into_owned(),
            },
        };
        Self {
            content: vec![text_block(text)],
            ..Self::default()
        }
    }

    /// What a backend's raw `result` means; `None`: it is no result of a tool.
    #[must_use]
    pub fn of_mcp(result: &[u8]) -> Option<Self> {
        let mut members: Map<String, Value> = serde_json::from_slice(result).ok()?;
        let content = match members.remove("content") {
            Some(Value::Array(content)) => content,
            None => Vec::new(),
            Some(_) => return None,
        };
        let structured = members.remove("structuredContent").map(Json::of);
        let is_error = members.remove("isError") == Some(Value::Bool(true));
        // Written by the profile of the client, not of the backend.
        for name in ["resultType", "ttlMs", "cacheScope"] {
            members.remove(name);
        }
        let mut found = Self {
            content,
            structured,
            is_error,
            others: members,
        };
        if found.content.is_empty()
            && let Some(structured) = &found.structured
        {
            found.content.push(text_block(structured.text()));
        }
        Some(found)
    }

    /// Whether the call failed.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// Has `filter` take away what the caller may not have: from the structured value, or from the
    /// only text, if that is JSON. Everything else that could show it is replaced.
    pub(super) fn filtered(
        mut self,
        filter: impl FnOnce(&mut Value) -> Result<(), FilterFault>,
    ) -> Self {
        let is_structured = self.structured.is_some();
        let payload = match (self.structured.take(), self.content.as_slice()) {
            (Some(structured), _) => Some(structured.value),
            (None, [only]) => only
                .get("text")
                .and_then(Value::as_str)
                .and_then(|text| serde_json::from_str(text).ok()),
            (None, _) => None,
        };
        let outcome = match payload {
            None => Err(FilterFault::Shape),
            Some(mut value) => filter(&mut value).map(|()| value),
        };
        match outcome {
            Err(fault) => Self::error(fault.to_string()),
            Ok(value) => {
                let json = Json::of(value);
                Self {
                    content: vec![text_block(json.text())],
                    structured: is_structured.then_some(json),
                    is_error: self.is_error,
                    others: Map::new(),
                }
            }
        }
    }

    /// The value an output schema is about.
    pub(super) fn structured(&self) -> Option<&Value> {
        self.structured.as_ref().map(|json| &json.value)
    }

    /// Puts the value that conforms in the place of the one that was there.
    pub(super) fn with_structured(mut self, verdict: Verdict) -> Self {
        let Some(structured) = self.structured.take() else {
            return self;
        };
        let structured = match verdict {
            Verdict::AsItIs => structured,
            Verdict::Wrapped => Json::of(json!({"items": structured.value})),
            Verdict::Inner => Json::of(items_of(&structured.value).cloned().unwrap_or_default()),
        };
        if verdict != Verdict::AsItIs {
            self.content = vec![text_block(structured.text())];
        }
        self.structured = Some(structured);
        self
    }

    /// The result as a JSON object for a client of this profile. The stateless one says its
    /// `resultType`, and who answers.
    #[must_use]
    pub fn object(&self, profile: Profile) -> Vec<u8> {
        let mut out = b"{\"content\":".to_vec();
        out.extend_from_slice(Value::from(self.content.clone()).to_string().as_bytes());
        if let Some(structured) = &self.structured {
            let text = match (profile, &structured.value) {
                (Profile::Stateless, _) | (_, Value::Object(_)) => Some(structured.text()),
                // Older revisions know objects only.
                (Profile::Legacy, Value::Array(_)) => {
                    Some(format!("{{\"items\":{}}}", structured.text()))
                }
                (Profile::Legacy, _) => None,
            };
            if let Some(text) = text {
                out.extend_from_slice(b",\"structuredContent\":");
                out.extend_from_slice(text.as_bytes());
            }
        }
        if self.is_error {
            out.extend_from_slice(b",\"isError\":true");
        }
        let mut others = self.others.clone();
        if profile == Profile::Stateless {
            out.extend_from_slice(b",\"resultType\":\"complete\"");
            let meta = others
                .entry("_meta")
                .or_insert_with(|| Value::Object(Map::new()));
            if let (Some(meta), Ok(info)) = (meta.as_object_mut(), serde_json::from_str(OWN_INFO)) {
                meta.insert(SERVER_INFO.to_owned(), info);
            }
        }
        for (name, value) in &others {
            out.push(b',');
            crate::mcp::json::quote(&mut out, name);
            out.push(b':');
            out.extend_from_slice(value.to_string().as_bytes());
        }
        out.push(b'}');
        out
    }
}

/// Which form of a structured value conforms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    AsItIs,
    /// An array conforms as `{"items": [...]}` only.
    Wrapped,
    /// `{"items": [...]}` conforms as its array only.
    Inner,
}

/// Finds the form of `value` that conforms.
///
/// # Errors
/// Diagnostics without values.
pub(super) fn conforming(schema: &OutputSchema, value: &Value) -> Result<Verdict, String> {
    let diagnostics = match schema.check(value) {
        Ok(Structured::Whole) => return Ok(Verdict::AsItIs),
        Ok(Structured::InnerArray) => return Ok(Verdict::Inner),
        Err(diagnostics) => diagnostics,
    };
    if value.is_array() && schema.schema.check(&json!({"items": value})).is_ok() {
        return Ok(Verdict::Wrapped);
    }
    Err(diagnostics)
}

/// A JSON document without the blanks between its parts; everything else is as it was.
fn compact(document: &[u8]) -> String {
    let mut out = Vec::with_capacity(document.len());
    let mut is_text = false;
    let mut is_escaped = false;
    for &byte in document {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' if !is_text => continue,
            b'"' if !is_escaped => is_text = !is_text,
            _ => {}
        }
        is_escaped = is_text && byte == b'\\' && !is_escaped;
        out.push(byte);
    }
    // It was parsed, so it is UTF-8.
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(result: &ToolResult, profile: Profile) -> String {
        String::from_utf8(result.object(profile)).unwrap()
    }

    #[test]
    fn replies_of_apis_become_results() {
        for (status, body, legacy) in [
            (204, "", r#"{"content":[{"text":"success","type":"text"}]}"#),
            (
                200,
                " { \"a\" : 1.10 , \"b c\" : \"x \\\" y\" } ",
                r#"{"content":[{"text":"{\"a\":1.10,\"b c\":\"x \\\" y\"}","type":"text"}],"structuredContent":{"a":1.10,"b c":"x \" y"}}"#,
            ),
            (
                201,
                "[12345678901234567890123]",
                r#"{"content":[{"text":"[12345678901234567890123]","type":"text"}],"structuredContent":{"items":[12345678901234567890123]}}"#,
            ),
            (200, "7", r#"{"content":[{"text":"7","type":"text"}]}"#),
            (
                200,
                "plain",
                r#"{"content":[{"text":"plain","type":"text"}]}"#,
            ),
            (
                503,
                "secret",
                r#"{"content":[{"text":"upstream returned HTTP 503","type":"text"}],"isError":true}"#,
            ),
            (
                302,
                "",
                r#"{"content":[{"text":"upstream returned HTTP 302","type":"text"}],"isError":true}"#,
            ),
        ] {
            let result = ToolResult::of_http(status, body.as_bytes());
            assert_eq!(object(&result, Profile::Legacy), legacy);
        }
        let array = ToolResult::of_http(200, b"[1]");
        assert_eq!(
            object(&array, Profile::Stateless),
            format!(
                r#"{{"content":[{{"text":"[1]","type":"text"}}],"structuredContent":[1],"resultType":"complete","_meta":{{"{SERVER_INFO}":{{"name":"shardgate","version":"{}"}}}}}}"#,
                env!("CARGO_PKG_VERSION")
            )
        );
        let text = ToolResult::of_http(200, b"\xff");
        assert!(object(&text, Profile::Legacy).contains('\u{fffd}'));
    }

    #[test]
    fn results_of_backends_lose_what_their_profile_put_in() {
        let result = ToolResult::of_mcp(
            br#"{"content":[],"structuredContent":{"a":1},"resultType":"complete","ttlMs":5,"_meta":{"x":1}}"#,
        );
        assert_eq!(
            object(&result.unwrap(), Profile::Legacy),
            r#"{"content":[{"text":"{\"a\":1}","type":"text"}],"structuredContent":{"a":1},"_meta":{"x":1}}"#
        );
        for no_result in ["[]", "x", r#"{"content":1}"#] {
            assert_eq!(ToolResult::of_mcp(no_result.as_bytes()), None);
        }
    }

    #[test]
    fn a_filter_leaves_no_second_copy() {
        let result = ToolResult::of_mcp(
            br#"{"content":[{"type":"text","text":"secret"},{"type":"image","data":"secret"}],
                "structuredContent":{"a":1,"b":"secret"},"_meta":{"b":"secret"}}"#,
        );
        let filtered = result.unwrap().filtered(|value| {
            value.as_object_mut().unwrap().remove("b");
            Ok(())
        });
        assert_eq!(
            object(&filtered, Profile::Legacy),
            r#"{"content":[{"text":"{\"a\":1}","type":"text"}],"structuredContent":{"a":1}}"#
        );
        let texts = ToolResult::of_mcp(br#"{"content":[{"type":"text","text":"{\"a\":1}"}]}"#);
        let filtered = texts.unwrap().filtered(|value| {
            value["a"] = json!(2);
            Ok(())
        });
        assert_eq!(
            object(&filtered, Profile::Legacy),
            r#"{"content":[{"text":"{\"a\":2}","type":"text"}]}"#
        );
        for (content, expected) in [
            (
                &br#"{"content":[{"type":"text","text":"no JSON"}]}"#[..],
                "response filter failed",
            ),
            (
                br#"{"content":[{"type":"text","text":"1"},{"type":"text","text":"2"}]}"#,
                "failed",
            ),
        ] {
            let filtered = ToolResult::of_mcp(content).unwrap().filtered(|_| Ok(()));
            assert!(filtered.is_error());
            assert!(object(&filtered, Profile::Legacy).contains(expected));
        }
        let denied = ToolResult::of_http(200, b"{}").filtered(|_| Err(FilterFault::Denied));
        assert!(object(&denied, Profile::Legacy).contains("Access denied by response filter"));
    }
}
