//! The backend's tools: their list, and what calling them gives.

use std::{io::Write, time::Duration};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    BackendKind, CounterFault,
    answer::{Asked, write_error, write_number},
    session::Session,
};
use crate::era::Era;

/// Longest text `payload` makes.
const PAYLOAD_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Longest time `sleep` sleeps.
const SLEEP_MS_MAX: u64 = 60_000;

const TEXT: &[u8] = b"\"content\":[{\"type\":\"text\",\"text\":\"";
const DONE: &[u8] = b"\"}],\"isError\":false}}";
const FAILED: &[u8] = b"\"}],\"isError\":true}}";

#[derive(Deserialize)]
struct EchoArguments<'a> {
    #[serde(borrow)]
    text: &'a RawValue,
}

#[derive(Deserialize)]
struct PayloadArguments {
    bytes: u64,
}

#[derive(Deserialize)]
struct SleepArguments {
    ms: u64,
}

/// The tools of one shard.
pub(super) struct Tools {
    kind: BackendKind,
    filler_count: u32,
    payload_bytes: Option<usize>,
    fault: Option<CounterFault>,
    /// The one number of sessions that are mixed up.
    mixed: Session,
    /// What a result of `tools/list` holds, with sessions and without.
    listed: Vec<u8>,
    listed_stateless: Vec<u8>,
}

impl Tools {
    pub(super) fn new(kind: BackendKind, filler_count: u32, payload_bytes: Option<usize>) -> Self {
        let listed = describe(kind, filler_count, Era::Legacy).into_bytes();
        let listed_stateless = describe(kind, filler_count, Era::Stateless).into_bytes();
        Self {
            kind,
            filler_count,
            payload_bytes,
            fault: None,
            mixed: Session::default(),
            listed,
            listed_stateless,
        }
    }

    /// Counts wrong on purpose.
    pub(super) fn with_fault(mut self, fault: Option<CounterFault>) -> Self {
        self.fault = fault;
        self
    }

    /// Appends a result that says the tool failed.
    pub(super) fn fail(asked: Asked<'_>, body: &mut Vec<u8>) {
        write_failure(body, asked, "told to fail");
    }

    /// Appends the reply to `tools/list`: everything on one page, always the same bytes.
    pub(super) fn list(&self, asked: Asked<'_>, body: &mut Vec<u8>) {
        asked.open_kept_result(body);
        body.extend_from_slice(match asked.era {
            Era::Legacy => &self.listed,
            Era::Stateless => &self.listed_stateless,
        });
        body.extend_from_slice(b"}}");
    }

    /// Appends the reply to `tools/call`; nothing counts without a session. The time to wait before
    /// it is sent.
    pub(super) fn call(
        &self,
        asked: Asked<'_>,
        name: &str,
        arguments: Option<&RawValue>,
        session: Option<&Session>,
        body: &mut Vec<u8>,
    ) -> Duration {
        let arguments = arguments.map_or("{}", RawValue::get);
        let has = |kind| self.kind == kind || self.kind == BackendKind::All;
        let counter = session.filter(|_| has(BackendKind::Counter));
        let echoes = has(BackendKind::Echo);
        match (name, counter) {
            ("increment", Some(session)) => write_count(body, asked, self.increment(session)),
            ("value", Some(session)) => write_count(body, asked, session.value()),
            ("reset", Some(session)) => {
                session.reset();
                write_count(body, asked, 0);
            }
            ("echo", _) if echoes => match serde_json::from_str(arguments) {
                // The text stays as the caller escaped it.
                Ok(EchoArguments { text }) if text.get().starts_with('"') => {
                    let text = text.get();
                    self.write_padded(body, asked, &text[1..text.len() - 1]);
                }
                _ => write_failure(body, asked, "the argument `text` must be a string"),
            },
            ("payload", _) if echoes => match serde_json::from_str(arguments) {
                Ok(PayloadArguments {
                    bytes: bytes @ ..=PAYLOAD_BYTES_MAX,
                }) => {
                    open_text(body, asked);
                    // Bounded above, so it fits.
                    let length = body.len() + bytes as usize;
                    body.resize(length, b'x');
                    body.extend_from_slice(DONE);
                }
                _ => write_failure(body, asked, "the argument `bytes` must be 0 to 4194304"),
            },
            ("sleep", _) if echoes => match serde_json::from_str(arguments) {
                Ok(SleepArguments {
                    ms: ms @ ..=SLEEP_MS_MAX,
                }) => {
                    self.write_padded(body, asked, "slept");
                    return Duration::from_millis(ms);
                }
                _ => write_failure(body, asked, "the argument `ms` must be 0 to 60000"),
            },
            _ if self.is_filler(name) => self.write_padded(body, asked, name),
            _ => write_error(body, asked.id, -32602, "Unknown tool"),
        }
        Duration::ZERO
    }

    fn increment(&self, session: &Session) -> u64 {
        let turn = |session: &Session| session.value() % 50 == 49;
        match self.fault {
            Some(CounterFault::Mixed) => return self.mixed.increment(),
            Some(CounterFault::Resets) if turn(session) => session.reset(),
            Some(CounterFault::Repeats) if session.value() > 0 && session.is_odd_turn() => {
                return session.value();
            }
            Some(CounterFault::Skips) if turn(session) => {
                session.increment();
            }
            _ => {}
        }
        session.increment()
    }

    fn is_filler(&self, name: &str) -> bool {
        let number = name
            .strip_prefix("tool_")
            .and_then(|digits| digits.parse::<u32>().ok());
        number.is_some_and(|number| {
            (1..=self.filler_count).contains(&number) && filler_name(number) == name
        })
    }

    /// A text result, padded to the size asked for.
    fn write_padded(&self, body: &mut Vec<u8>, asked: Asked<'_>, text: &str) {
        let start = body.len();
        open_text(body, asked);
        body.extend_from_slice(text.as_bytes());
        if let Some(total) = self.payload_bytes {
            let length = (start + total).saturating_sub(DONE.len());
            body.resize(length.max(body.len()), b'x');
        }
        body.extend_from_slice(DONE);
    }
}

fn open_text(body: &mut Vec<u8>, asked: Asked<'_>) {
    asked.open_result(body);
    body.extend_from_slice(TEXT);
}

fn write_count(body: &mut Vec<u8>, asked: Asked<'_>, value: u64) {
    open_text(body, asked);
    write_number(body, usize::try_from(value).unwrap_or(usize::MAX));
    body.extend_from_slice(DONE);
}

/// A result that says the tool failed; `reason` needs no escaping.
fn write_failure(body: &mut Vec<u8>, asked: Asked<'_>, reason: &str) {
    open_text(body, asked);
    body.extend_from_slice(reason.as_bytes());
    body.extend_from_slice(FAILED);
}

fn filler_name(number: u32) -> String {
    format!("tool_{number:03}")
}

fn describe(kind: BackendKind, filler_count: u32, era: Era) -> String {
    let none = r#"{"type":"object","properties":{}}"#;
    let echo = r#"{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}"#;
    let number = |name: &str, maximum: u64| {
        format!(
            r#"{{"type":"object","properties":{{"{name}":{{"type":"integer","minimum":0,{rest}"#,
            rest = format_args!(r#""maximum":{maximum}}}}},"required":["{name}"]}}"#)
        )
    };
    let (payload, sleep) = (
        number("bytes", PAYLOAD_BYTES_MAX),
        number("ms", SLEEP_MS_MAX),
    );
    let counting = [
        (
            "increment",
            "Adds one to the number of this session and gives it.",
            none,
        ),
        ("reset", "Sets the number of this session to 0.", none),
        ("value", "Gives the number of this session.", none),
    ];
    let echoing = [
        ("echo", "Gives its text back.", echo),
        (
            "payload",
            "Gives a text of that many bytes.",
            payload.as_str(),
        ),
        ("sleep", "Answers after that many milliseconds.", &sleep),
    ];
    let mut own: Vec<(&str, &str, &str)> = Vec::new();
    if kind != BackendKind::Echo && era == Era::Legacy {
        own.extend(counting);
    }
    if kind != BackendKind::Counter {
        own.extend(echoing);
    }
    let mut out = b"\"tools\":[".to_vec();
    let fillers = (1..=filler_count).map(filler_name).collect::<Vec<_>>();
    let fillers = fillers
        .iter()
        .map(|name| (name.as_str(), "Gives its own name.", none));
    for (index, (name, description, schema)) in own.into_iter().chain(fillers).enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // Writing to a vector cannot fail.
        let _ = write!(
            out,
            r#"{comma}{{"name":"{name}","description":"{description}","inputSchema":{schema}}}"#
        );
    }
    out.push(b']');
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const ASKED: Asked<'_> = Asked {
        id: "7",
        era: Era::Legacy,
    };

    fn call(tools: &Tools, name: &str, arguments: &str) -> (Value, usize, Duration) {
        let mut body = Vec::new();
        let arguments = serde_json::from_str::<Box<RawValue>>(arguments).unwrap();
        let wait = tools.call(ASKED, name, Some(&arguments), None, &mut body);
        (serde_json::from_slice(&body).unwrap(), body.len(), wait)
    }

    #[test]
    fn an_echo_has_exactly_the_size_asked_for() {
        for total in [200, 16 * 1024] {
            let tools = Tools::new(BackendKind::Echo, 0, Some(total));
            let (reply, length, _) = call(&tools, "echo", r#"{"text":"a\"b"}"#);
            assert_eq!(length, total);
            let text = reply["result"]["content"][0]["text"].as_str().unwrap();
            assert!(text.starts_with("a\"bxxx"), "{text}");
            assert_eq!(reply["result"]["isError"], false);
        }
        let tools = Tools::new(BackendKind::Echo, 0, Some(10));
        let (reply, _, _) = call(&tools, "echo", r#"{"text":"longer than asked for"}"#);
        assert_eq!(
            reply["result"]["content"][0]["text"],
            "longer than asked for"
        );
    }

    #[test]
    fn echo_keeps_every_escape() {
        let tools = Tools::new(BackendKind::Echo, 0, None);
        for text in ["", "\"", "\\", "\"\"", "ends with \\\"", "é\n\u{1}😀"] {
            let arguments = serde_json::json!({ "text": text }).to_string();
            let (reply, _, _) = call(&tools, "echo", &arguments);
            assert_eq!(reply["result"]["content"][0]["text"], text);
        }
    }

    #[test]
    fn wrong_arguments_fail_and_unknown_tools_are_an_error() {
        let tools = Tools::new(BackendKind::Echo, 2, None);
        for (name, arguments) in [
            ("echo", "{}"),
            ("echo", r#"{"text":1}"#),
            ("payload", r#"{"bytes":-1}"#),
            ("payload", r#"{"bytes":4194305}"#),
            ("sleep", r#"{"ms":"1"}"#),
        ] {
            assert_eq!(
                call(&tools, name, arguments).0["result"]["isError"],
                true,
                "{name}"
            );
        }
        for name in ["increment", "tool_003", "tool_1", "tool_000", ""] {
            assert_eq!(
                call(&tools, name, "{}").0["error"]["code"],
                -32602,
                "{name}"
            );
        }
    }

    #[test]
    fn payload_sleep_and_fillers() {
        let tools = Tools::new(BackendKind::Echo, 2, None);
        let (reply, _, _) = call(&tools, "payload", r#"{"bytes":1000}"#);
        assert_eq!(
            reply["result"]["content"][0]["text"]
                .as_str()
                .unwrap()
                .len(),
            1000
        );
        assert_eq!(
            call(&tools, "sleep", r#"{"ms":20}"#).2,
            Duration::from_millis(20)
        );
        assert_eq!(
            call(&tools, "tool_002", "{}").0["result"]["content"][0]["text"],
            "tool_002"
        );
    }

    #[test]
    fn lists_are_complete_and_no_name_stands_twice() {
        for kind in [BackendKind::Counter, BackendKind::Echo] {
            let mut body = Vec::new();
            Tools::new(kind, 50, None).list(ASKED, &mut body);
            let reply: Value = serde_json::from_slice(&body).unwrap();
            let tools = reply["result"]["tools"].as_array().unwrap();
            assert_eq!(tools.len(), 53);
            let names: std::collections::BTreeSet<_> = tools
                .iter()
                .map(|tool| tool["name"].as_str().unwrap())
                .collect();
            assert_eq!(names.len(), 53, "{names:?}");
            assert!(names.contains("tool_001") && names.contains("tool_050"));
            for tool in tools {
                assert_eq!(tool["inputSchema"]["type"], "object");
                assert!(tool["description"].as_str().unwrap().ends_with('.'));
            }
        }
    }
}
