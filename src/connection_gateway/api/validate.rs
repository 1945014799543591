//! What is wrong with a body, said as the original's validator says it. Only bodies that were
//! refused come here, so it may take its time.

use serde_json::{Map, Value, json};

use crate::connection_gateway::{envelope, json::INTEGER_MAX, token::WORD_UNITS_MAX};

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Issue {
    path: String,
    message: String,
    code: &'static str,
    /// `expected`, `minimum` or `maximum`.
    detail: Option<(&'static str, Value)>,
}

impl Issue {
    /// As a part of the message.
    pub(super) fn text(&self) -> String {
        format!("{}: {}", self.path, self.message)
    }

    /// As an entry of the data.
    pub(super) fn value(&self) -> Value {
        let mut value = json!({"path": self.path, "message": self.message, "code": self.code});
        if let Some((name, detail)) = &self.detail {
            value[*name] = detail.clone();
        }
        value
    }

    fn wrong_type(path: &str, expected: &'static str, found: Option<&Value>) -> Self {
        let received = match found {
            None => "undefined",
            Some(Value::Null) => "null",
            Some(Value::Bool(_)) => "boolean",
            Some(Value::Number(_)) => "number",
            Some(Value::String(_)) => "string",
            Some(Value::Array(_)) => "array",
            Some(Value::Object(_)) => "object",
        };
        Self {
            path: path.to_owned(),
            message: format!("Invalid input: expected {expected}, received {received}"),
            code: "invalid_type",
            detail: Some(("expected", expected.into())),
        }
    }

    fn too_small(path: &str, message: &str, minimum: u64) -> Self {
        Self {
            path: path.to_owned(),
            message: format!("Too small: expected {message}"),
            code: "too_small",
            detail: Some(("minimum", minimum.into())),
        }
    }

    fn too_big(path: &str, message: &str, maximum: u64) -> Self {
        Self {
            path: path.to_owned(),
            message: format!("Too big: expected {message}"),
            code: "too_big",
            detail: Some(("maximum", maximum.into())),
        }
    }

    fn invalid_value(path: &str, message: String) -> Self {
        Self {
            path: path.to_owned(),
            message,
            code: "invalid_value",
            detail: None,
        }
    }
}

/// Gathers what is wrong with an object's members.
struct Checker<'a> {
    members: &'a Map<String, Value>,
    prefix: &'static str,
    issues: Vec<Issue>,
}

impl Checker<'_> {
    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn text(&mut self, name: &str, is_needed: bool, (min, max): (usize, usize)) {
        let path = self.path(name);
        match self.members.get(name) {
            None if !is_needed => {}
            Some(Value::String(text)) => {
                let length = text.encode_utf16().count();
                if length < min {
                    let message = format!("string to have >={min} characters");
                    self.issues
                        .push(Issue::too_small(&path, &message, min as u64));
                } else if length > max {
                    let message = format!("string to have <={max} characters");
                    self.issues
                        .push(Issue::too_big(&path, &message, max as u64));
                }
            }
            other => self.issues.push(Issue::wrong_type(&path, "string", other)),
        }
    }

    /// A whole number above `above`, or from 0 when there is none.
    fn integer(&mut self, name: &str, is_needed: bool, above: Option<u64>) {
        let path = self.path(name);
        let Some(value) = self.members.get(name) else {
            if is_needed {
                self.issues.push(Issue::wrong_type(&path, "number", None));
            }
            return;
        };
        let Some(number) = value.as_f64() else {
            self.issues
                .push(Issue::wrong_type(&path, "number", Some(value)));
            return;
        };
        if number.fract() != 0.0 {
            self.issues
                .push(Issue::wrong_type(&path, "int", Some(value)));
        } else if number > INTEGER_MAX as f64 {
            let message = format!("int to be <={INTEGER_MAX}");
            self.issues
                .push(Issue::too_big(&path, &message, INTEGER_MAX));
        } else {
            match above {
                Some(limit) if number <= limit as f64 => {
                    self.issues
                        .push(Issue::too_small(&path, "number to be >0", limit));
                }
                None if number < 0.0 => {
                    self.issues
                        .push(Issue::too_small(&path, "number to be >=0", 0));
                }
                _ => {}
            }
        }
    }
}

/// Reads a body as an object, or says what it is instead.
fn object(body: &str) -> Result<Map<String, Value>, Issue> {
    match serde_json::from_str::<Value>(body) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(other) => Err(Issue::wrong_type("(root)", "object", Some(&other))),
        Err(_) => Err(Issue::wrong_type("(root)", "object", None)),
    }
}

/// What is wrong with the body of a publication; `timeoutMs` counts for streams.
pub(super) fn publication(body: &str, has_timeout: bool) -> Vec<Issue> {
    let members = match object(body) {
        Ok(members) => members,
        Err(issue) => return vec![issue],
    };
    let mut issues = match members.get("envelope") {
        Some(Value::Object(envelope)) => envelope_issues(envelope),
        other => vec![Issue::wrong_type("envelope", "object", other)],
    };
    let mut rest = Checker {
        members: &members,
        prefix: "",
        issues: Vec::new(),
    };
    if has_timeout {
        rest.integer("timeoutMs", false, Some(0));
    }
    issues.append(&mut rest.issues);
    if issues.is_empty() {
        // Half of a surrogate pair in a text that is read, or a number with too many digits.
        let message = "Invalid input: not a text or number that can be read".to_owned();
        issues.push(Issue::invalid_value("envelope", message));
    }
    issues
}

fn envelope_issues(envelope: &Map<String, Value>) -> Vec<Issue> {
    let mut checker = Checker {
        members: envelope,
        prefix: "envelope.",
        issues: Vec::new(),
    };
    let text = (1, usize::MAX);
    let word = (1, WORD_UNITS_MAX);
    if envelope.get("protocol").and_then(Value::as_str) != Some(envelope::PROTOCOL) {
        let message = format!("Invalid input: expected \"{}\"", envelope::PROTOCOL);
        checker
            .issues
            .push(Issue::invalid_value("envelope.protocol", message));
    }
    checker.text("sessionId", true, text);
    checker.integer("generation", true, None);
    checker.text("requestId", false, text);
    let kind = envelope.get("type").and_then(Value::as_str);
    if kind.and_then(envelope::Kind::of).is_none() {
        let message =
            "Invalid option: expected one of \"request\"|\"response\"|\"event\"|\"stream\"";
        checker
            .issues
            .push(Issue::invalid_value("envelope.type", message.to_owned()));
    }
    checker.text("consumerType", true, word);
    checker.text("capability", false, word);
    checker.text("traceId", false, (0, usize::MAX));
    checker.integer("createdAt", true, Some(0));
    checker.issues
}

/// What is wrong with the body of a metadata update.
pub(super) fn metadata(body: &str) -> Vec<Issue> {
    match object(body) {
        Ok(members) => vec![Issue::wrong_type(
            "metadata",
            "object",
            members.get("metadata"),
        )],
        Err(issue) => vec![issue],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(body: &str) -> Vec<String> {
        publication(body, true).iter().map(Issue::text).collect()
    }

    #[test]
    fn everything_that_is_wrong_is_told_in_the_original_s_words() {
        assert_eq!(
            told(""),
            ["(root): Invalid input: expected object, received undefined"]
        );
        assert_eq!(
            told("[]"),
            ["(root): Invalid input: expected object, received array"]
        );
        assert_eq!(
            told("{}"),
            ["envelope: Invalid input: expected object, received undefined"]
        );
        let body = r#"{"timeoutMs":0,"envelope":{"protocol":"x","sessionId":"","generation":-1,
            "requestId":null,"type":"other","consumerType":"c","capability":"","traceId":1,
            "createdAt":1.5}}"#;
        let wanted = [
            "envelope.protocol: Invalid input: expected \"connection-gateway.v1\"",
            "envelope.sessionId: Too small: expected string to have >=1 characters",
            "envelope.generation: Too small: expected number to be >=0",
            "envelope.requestId: Invalid input: expected string, received null",
            "envelope.type: Invalid option: expected one of \"request\"|\"response\"|\"event\"|\"stream\"",
            "envelope.capability: Too small: expected string to have >=1 characters",
            "envelope.traceId: Invalid input: expected string, received number",
            "envelope.createdAt: Invalid input: expected int, received number",
            "timeoutMs: Too small: expected number to be >0",
        ];
        assert_eq!(told(body), wanted);
        let issue = publication(body, true).swap_remove(1).value();
        let wanted = json!({"path": "envelope.sessionId", "code": "too_small", "minimum": 1,
            "message": "Too small: expected string to have >=1 characters"});
        assert_eq!(issue, wanted);
    }
}
