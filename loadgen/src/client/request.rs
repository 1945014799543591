//! Requests as bytes: heads, and the message of each operation, prepared once.

use serde_json::{Value, value::RawValue};

use super::{
    Script,
    check::{Content, Marks},
};
use crate::{
    era::{Era, STATELESS_REVISION, header_value},
    operation::{Check, Method, Operation, Sizes},
};

/// Bytes by which a reply may differ from [`Check::Bytes`].
const SIZE_TOLERANCE: usize = 32;
/// How every message of ours begins; the id follows.
const OPENING: &[u8] = br#"{"jsonrpc":"2.0","id":"#;

/// The message of an operation, all but its id and its payload.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) method: Method,
    pub(crate) payload: Option<Sizes>,
    check: Check,
    /// Header lines of its own.
    lines: Vec<u8>,
    /// From behind the id to where the payload goes, and what comes after it.
    before: Vec<u8>,
    after: Vec<u8>,
    /// The argument `text` as JSON has it, without its quotes.
    text: Vec<u8>,
}

impl Form {
    pub(crate) fn new(operation: &Operation, era: Era) -> Self {
        let method = operation.method;
        let (mut before, mut after) = (String::new(), String::new());
        if let Some(key) = method.target_key() {
            let target = Value::from(operation.target.as_str());
            before = format!(r#""{key}":{target}"#);
            if method != Method::ReadResource {
                let (start, end) = arguments(operation);
                before += r#","arguments":"#;
                before += &start;
                after += &end;
            }
        }
        let mut lines = String::new();
        if era == Era::Stateless {
            let comma = if before.is_empty() { "" } else { "," };
            before = format!("{}{comma}{before}", meta());
            lines = format!("mcp-method: {}\r\n", method.name());
            if method.target_key().is_some() {
                lines += &format!("mcp-name: {}\r\n", header_value(&operation.target));
            }
        }
        let mut start = format!(r#","method":"{}""#, method.name());
        if !before.is_empty() {
            start += r#","params":{"#;
            after.push('}');
        }
        before.insert_str(0, &start);
        after.push('}');
        Self {
            method,
            payload: operation.payload,
            check: operation.check,
            lines: lines.into_bytes(),
            before: before.into_bytes(),
            after: after.into_bytes(),
            text: text_of(&operation.arguments),
        }
    }

    /// Appends the message with this id and so many bytes of payload, behind its head.
    pub(super) fn put(&self, out: &mut Vec<u8>, head: &[u8], id: u64, payload: usize) {
        let mut digits = Digits::default();
        let id = digits.of(id);
        let fixed = OPENING.len() + self.before.len() + self.after.len();
        put_head(out, head, &self.lines, fixed + id.len() + payload);
        out.extend_from_slice(OPENING);
        out.extend_from_slice(id);
        out.extend_from_slice(&self.before);
        out.resize(out.len() + payload, b'x');
        out.extend_from_slice(&self.after);
    }

    /// What its result must say of itself.
    pub(super) fn marks(&self, era: Era) -> Marks {
        match era {
            Era::Legacy => Marks::None,
            Era::Stateless if self.method.can_be_kept() => Marks::Kept,
            Era::Stateless => Marks::Complete,
        }
    }

    /// What the reply must hold.
    pub(super) fn content(&self, payload: usize) -> Content<'_> {
        if self.method != Method::CallTool {
            return Content::Result;
        }
        match self.check {
            Check::Success => Content::Tool,
            Check::Counter => Content::Number,
            Check::Bytes(count) => Content::Bytes {
                count,
                tolerance: SIZE_TOLERANCE,
            },
            Check::Echo if self.payload.is_some() => Content::Filled(payload),
            Check::Echo => Content::Text(&self.text),
        }
    }
}

/// What every stateless request says of itself (mcp.md 2.1).
fn meta() -> String {
    format!(
        concat!(
            r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"{}","#,
            r#""io.modelcontextprotocol/clientInfo":{{"name":"loadgen","version":"{}"}},"#,
            r#""io.modelcontextprotocol/clientCapabilities":{{}}}}"#
        ),
        STATELESS_REVISION,
        env!("CARGO_PKG_VERSION")
    )
}

/// The arguments in two parts, the payload between them; all in the first without a payload.
fn arguments(operation: &Operation) -> (String, String) {
    if operation.payload.is_none() {
        return (operation.arguments.clone(), String::new());
    }
    let parsed = serde_json::from_str::<serde_json::Map<String, Value>>(&operation.arguments);
    // Checked before a run starts.
    let mut members = parsed.unwrap_or_default();
    members.remove("text");
    let mut start = Value::Object(members).to_string();
    start.pop();
    if start.len() > 1 {
        start.push(',');
    }
    start += r#""text":""#;
    (start, r#""}"#.to_owned())
}

fn text_of(arguments: &str) -> Vec<u8> {
    #[derive(serde::Deserialize)]
    struct Arguments<'a> {
        #[serde(borrow)]
        text: Option<&'a RawValue>,
    }
    let parsed: Option<Arguments<'_>> = serde_json::from_str(arguments).ok();
    let raw = parsed.and_then(|parsed| parsed.text).map(RawValue::get);
    let text = raw.and_then(|raw| raw.strip_prefix('"')?.strip_suffix('"'));
    text.unwrap_or_default().as_bytes().to_vec()
}

/// The head of a session's requests, all but the lines of each request and its length.
pub(super) fn head_of(script: &Script, method: &str, number: u64, said: Said<'_>) -> Vec<u8> {
    let mut head = format!(
        "{method} {} HTTP/1.1\r\nhost: {}\r\nuser-agent: loadgen\r\n\
         accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n",
        script.target.path, script.target.authority
    );
    if let Some(token) = token_of(&script.tokens, number) {
        head.push_str(&format!("authorization: Bearer {token}\r\n"));
    }
    for line in &script.headers {
        head.push_str(line);
        head.push_str("\r\n");
    }
    if let Some(id) = said.session {
        head.push_str(&format!("mcp-session-id: {id}\r\n"));
    }
    if let Some(revision) = said.revision {
        head.push_str(&format!("mcp-protocol-version: {revision}\r\n"));
    }
    head.into_bytes()
}

/// What the requests of a session say of it in their heads.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Said<'a> {
    pub(super) session: Option<&'a str>,
    pub(super) revision: Option<&'a str>,
}

/// The token of a session, by its number: users take turns.
fn token_of(tokens: &[String], number: u64) -> Option<&String> {
    let count = tokens.len() as u64;
    // Below the number of tokens.
    let index = number.checked_rem(count)? as usize;
    tokens.get(index)
}

fn put_head(out: &mut Vec<u8>, head: &[u8], lines: &[u8], body_bytes: usize) {
    out.extend_from_slice(head);
    out.extend_from_slice(lines);
    out.extend_from_slice(b"content-length: ");
    let mut digits = Digits::default();
    out.extend_from_slice(digits.of(body_bytes as u64));
    out.extend_from_slice(b"\r\n\r\n");
}

/// Appends a whole request.
pub(super) fn put_request(out: &mut Vec<u8>, head: &[u8], body: &[u8]) {
    put_head(out, head, b"", body.len());
    out.extend_from_slice(body);
}

/// A number's decimal digits, without the formatting machinery.
#[derive(Default)]
pub(super) struct Digits([u8; 20]);

impl Digits {
    pub(super) fn of(&mut self, mut number: u64) -> &[u8] {
        let mut at = self.0.len();
        loop {
            at -= 1;
            self.0[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return &self.0[at..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(operation: &Operation, era: Era, payload: usize) -> (String, Value) {
        let mut out = Vec::new();
        Form::new(operation, era).put(&mut out, b"first\r\n", 7, payload);
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let length = format!("\r\ncontent-length: {}", body.len());
        let lines = head.strip_suffix(&length).unwrap();
        (lines.to_owned(), serde_json::from_str(body).unwrap())
    }

    fn message(operation: &Operation, payload: usize) -> Value {
        let (lines, message) = request(operation, Era::Legacy, payload);
        assert_eq!(lines, "first");
        message
    }

    #[test]
    fn every_method_has_its_message() {
        for method in Method::ALL {
            let message = message(&Operation::of(method), 0);
            assert_eq!(message["id"], 7);
            assert_eq!(message["method"], method.name());
            match method.target_key() {
                Some(key) => assert!(message["params"][key].is_string(), "{message}"),
                None => assert!(message.get("params").is_none(), "{message}"),
            }
        }
    }

    #[test]
    fn a_stateless_request_says_everything_in_body_and_head() {
        for method in Method::ALL {
            let operation = Operation::of(method);
            let (lines, message) = request(&operation, Era::Stateless, 0);
            let meta = &message["params"]["_meta"];
            let member = |name: &str| &meta[format!("io.modelcontextprotocol/{name}")];
            assert_eq!(member("protocolVersion"), STATELESS_REVISION);
            assert!(member("clientCapabilities").is_object(), "{message}");
            assert_eq!(member("clientInfo")["name"], "loadgen");
            let mut wanted = format!("first\r\nmcp-method: {}", method.name());
            if let Some(key) = method.target_key() {
                wanted += &format!("\r\nmcp-name: {}", operation.target);
                assert_eq!(message["params"][key], operation.target.as_str());
            }
            assert_eq!(lines, wanted);
        }
    }

    #[test]
    fn a_payload_replaces_the_text_and_nothing_else() {
        for (arguments, others) in [
            (r#"{"text":"a","n":1}"#, serde_json::json!({"n": 1})),
            ("{}", serde_json::json!({})),
        ] {
            let operation = Operation {
                arguments: arguments.to_owned(),
                payload: Some(Sizes { min: 5, max: 5 }),
                ..Operation::of(Method::CallTool)
            };
            let mut sent = message(&operation, 5)["params"]["arguments"].clone();
            let text = sent.as_object_mut().unwrap().remove("text").unwrap();
            assert_eq!((text, sent), ("xxxxx".into(), others));
        }
    }

    #[test]
    fn tokens_take_turns() {
        let tokens = ["a".to_owned(), "b".to_owned()];
        assert_eq!(token_of(&tokens, 3).unwrap(), "b");
        assert_eq!(token_of(&tokens, 4).unwrap(), "a");
        assert_eq!(token_of(&[], 4), None);
    }
}
