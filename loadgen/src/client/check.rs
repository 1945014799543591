//! Whether a reply is the one its call must have.
//!
//! The usual shapes are told by looking at a few bytes; whatever looks different is parsed as JSON
//! before it is judged.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{CallFault, request::Digits, response::Response};

/// What a reply must be, beside an id that fits and no error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// Any result.
    Result,
    /// The result of a tool that did not fail.
    Tool,
    /// The same, in JSON of this many bytes, give or take: a gateway may put an id of another
    /// length in.
    Bytes { count: usize, tolerance: usize },
    /// The same, its text a number.
    Number,
    /// The same, its text this one, as JSON has it between the quotes.
    Text(&'a [u8]),
    /// The same, its text so many times the letter x.
    Filled(usize),
}

/// What a result must say of itself (mcp.md 2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marks {
    /// Nothing.
    None,
    /// That it is complete.
    Complete,
    /// And how long it may be kept, and by whom.
    Kept,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallResult<'a> {
    is_error: Option<bool>,
    #[serde(borrow)]
    content: Option<Vec<Part<'a>>>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MarkedResult<'a> {
    #[serde(borrow)]
    result_type: Option<&'a RawValue>,
    #[serde(borrow)]
    ttl_ms: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_scope: Option<&'a RawValue>,
}

impl Marks {
    /// What follows the marks at the start of a result; `None`: they do not stand there as usual.
    fn strip(self, result: &[u8]) -> Option<&[u8]> {
        if self == Self::None {
            return Some(result);
        }
        let rest = result.strip_prefix(br#""resultType":"complete","#)?;
        if self == Self::Complete {
            return Some(rest);
        }
        let rest = rest.strip_prefix(br#""ttlMs":"#)?;
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let rest = rest[length..].strip_prefix(br#","cacheScope":"p"#)?;
        let scope = [&br#"rivate","#[..], br#"ublic","#];
        let rest = scope.into_iter().find_map(|end| rest.strip_prefix(end))?;
        (length > 0).then_some(rest)
    }

    /// Looks for them in the whole of a result.
    fn check(self, result: &RawValue) -> Result<(), CallFault> {
        if self == Self::None {
            return Ok(());
        }
        let marks: MarkedResult<'_> =
            serde_json::from_str(result.get()).map_err(|_| CallFault::Wire)?;
        if marks.result_type.map(RawValue::get) != Some(r#""complete""#) {
            return Err(CallFault::WrongResultType);
        }
        let is_time = |raw: &RawValue| raw.get().parse::<u64>().is_ok();
        let is_scope = |raw: &RawValue| matches!(raw.get(), r#""private""# | r#""public""#);
        if self == Self::Kept
            && !(marks.ttl_ms.is_some_and(is_time) && marks.cache_scope.is_some_and(is_scope))
        {
            return Err(CallFault::WrongLifetime);
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeResult<'a> {
    #[serde(borrow)]
    protocol_version: Cow<'a, str>,
}

impl Content<'_> {
    /// Judges the reply to request `id`; the number of its text, when it is one.
    pub(crate) fn check(
        self,
        marks: Marks,
        response: &Response,
        buffer: &[u8],
        id: u64,
    ) -> Result<Option<u64>, CallFault> {
        let message = message_of(response, buffer, id, marks)?;
        let message = &*message;
        if marks != Marks::None && response.session.is_some() {
            return Err(CallFault::SessionGiven);
        }
        if self == Self::Result {
            return result_of(message, id, marks).map(|()| None);
        }
        if let Self::Bytes { count, tolerance } = self
            && message.len().abs_diff(count) > tolerance
        {
            return Err(CallFault::WrongSize);
        }
        let Some(text) = glance(message, id, marks) else {
            return self.check_slowly(message, id, marks);
        };
        match self {
            Self::Number => number_of(text).map(Some),
            Self::Text(sent) if !begins_with(text, sent) => self.check_slowly(message, id, marks),
            Self::Filled(count) if !is_filled(text, count) => Err(CallFault::WrongContent),
            _ => Ok(None),
        }
    }

    fn check_slowly(self, message: &[u8], id: u64, marks: Marks) -> Result<Option<u64>, CallFault> {
        let (is_error, text) = parse(message, id, marks)?;
        if is_error {
            return Err(CallFault::ToolError);
        }
        let is_right = |wanted: &str| {
            if text.as_deref() == Some(wanted) {
                Ok(None)
            } else {
                Err(CallFault::WrongContent)
            }
        };
        match self {
            Self::Result | Self::Tool | Self::Bytes { .. } => Ok(None),
            Self::Number => {
                let number = text.as_deref().and_then(|text| text.parse().ok());
                number.map(Some).ok_or(CallFault::WrongContent)
            }
            Self::Text(sent) => is_right(&unescaped(sent)),
            Self::Filled(count) => is_right(&"x".repeat(count)),
        }
    }
}

/// The text that is this between quotes in JSON.
fn unescaped(raw: &[u8]) -> String {
    let quoted = [b"\"", raw, b"\""].concat();
    serde_json::from_slice(&quoted).unwrap_or_default()
}

/// Whether the text is this one and ends with it.
fn begins_with(text: &[u8], wanted: &[u8]) -> bool {
    text.strip_prefix(wanted)
        .is_some_and(|rest| rest.first() == Some(&b'"'))
}

fn is_filled(text: &[u8], count: usize) -> bool {
    text.get(count) == Some(&b'"') && text[..count].iter().all(|byte| *byte == b'x')
}

/// The number that the text is.
fn number_of(text: &[u8]) -> Result<u64, CallFault> {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let digits = std::str::from_utf8(&text[..length]).unwrap_or_default();
    digits
        .parse()
        .ok()
        .filter(|_| text.get(length) == Some(&b'"'))
        .ok_or(CallFault::WrongContent)
}

/// Whether the message is a result for `id`.
fn result_of(message: &[u8], id: u64, marks: Marks) -> Result<(), CallFault> {
    let usual = usual_result(message, id, marks);
    if usual.is_some_and(|rest| rest.ends_with(b"}}") || rest == b"}}") {
        return Ok(());
    }
    envelope(message, id, marks).map(|_| ())
}

/// What stands in a result behind its marks, when all before it is as usual.
fn usual_result(message: &[u8], id: u64, marks: Marks) -> Option<&[u8]> {
    let mut digits = Digits::default();
    let result = message
        .strip_prefix(br#"{"jsonrpc":"2.0","id":"#)?
        .strip_prefix(digits.of(id))?
        .strip_prefix(br#","result":{"#)?;
    marks.strip(result)
}

/// Session id and revision of an `initialize` reply.
pub(crate) fn opened(response: &Response, buffer: &[u8]) -> Result<(String, String), CallFault> {
    let message = message_of(response, buffer, 0, Marks::None)?;
    let parsed: Message<'_> = serde_json::from_slice(&message).map_err(|_| CallFault::Wire)?;
    let result = parsed.result.ok_or(CallFault::RpcError)?;
    let result: InitializeResult<'_> =
        serde_json::from_str(result.get()).map_err(|_| CallFault::Wire)?;
    let id = response.session.clone().ok_or(CallFault::NoSession)?;
    let id = std::str::from_utf8(&buffer[id]).map_err(|_| CallFault::Wire)?;
    Ok((id.to_owned(), result.protocol_version.into_owned()))
}

/// The JSON of the reply, out of its event when it is a stream.
fn message_of<'a>(
    response: &Response,
    buffer: &'a [u8],
    id: u64,
    marks: Marks,
) -> Result<Cow<'a, [u8]>, CallFault> {
    if response.status != 200 {
        return Err(CallFault::Status(response.status));
    }
    let body = &buffer[response.body.clone()];
    if !response.is_stream {
        return Ok(Cow::Borrowed(body));
    }
    let mut events = Events(body);
    let answers = |data: &Cow<'_, [u8]>| is_answer(data, id, marks);
    events.find(answers).ok_or(CallFault::Wire)
}

/// Whether this message is the reply to `id`, and not a notification or request on the way.
fn is_answer(data: &[u8], id: u64, marks: Marks) -> bool {
    glance(data, id, marks).is_some()
        || serde_json::from_slice::<Message<'_>>(data)
            .is_ok_and(|message| message.result.is_some() || message.error.is_some())
}

/// Recognises the usual success: our id first, then a result with `isError` absent or false.
/// What follows the quote that opens its text.
fn glance(message: &[u8], id: u64, marks: Marks) -> Option<&[u8]> {
    let rest =
        usual_result(message, id, marks)?.strip_prefix(br#""content":[{"type":"text","text":""#)?;
    // Inside a JSON string the second quote would be escaped, so this is the member.
    if memchr::memmem::find(rest, br#""isError""#).is_some()
        && !rest.ends_with(br#""isError":false}}"#)
    {
        return None;
    }
    Some(rest)
}

/// The result of the message, which must be for `id` and marked.
fn envelope(message: &[u8], id: u64, marks: Marks) -> Result<&RawValue, CallFault> {
    let parsed: Message<'_> = serde_json::from_slice(message).map_err(|_| CallFault::Wire)?;
    let mut digits = Digits::default();
    if parsed.id.map(|raw| raw.get().as_bytes()) != Some(digits.of(id)) {
        return Err(CallFault::WrongId);
    }
    let result = parsed.result.ok_or(CallFault::RpcError)?;
    marks.check(result)?;
    Ok(result)
}

/// The long way: whether the tool failed, and its first text.
fn parse(message: &[u8], id: u64, marks: Marks) -> Result<(bool, Option<String>), CallFault> {
    let result = envelope(message, id, marks)?;
    let result: CallResult<'_> = serde_json::from_str(result.get()).map_err(|_| CallFault::Wire)?;
    let text = result
        .content
        .and_then(|list| list.into_iter().next()?.text)
        .map(Cow::into_owned);
    Ok((result.is_error == Some(true), text))
}

/// The data of each event of a complete stream; events without data are passed over.
struct Events<'a>(&'a [u8]);

impl<'a> Iterator for Events<'a> {
    type Item = Cow<'a, [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut data: Option<Cow<'a, [u8]>> = None;
        while !self.0.is_empty() {
            let end = memchr::memchr(b'\n', self.0);
            let (line, rest) = match end {
                Some(at) => (&self.0[..at], &self.0[at + 1..]),
                None => (self.0, &[][..]),
            };
            self.0 = rest;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                match data.take() {
                    Some(data) if !data.is_empty() => return Some(data),
                    _ => continue,
                }
            }
            let Some(value) = line.strip_prefix(b"data:") else {
                continue;
            };
            let value = value.strip_prefix(b" ").unwrap_or(value);
            data = Some(match data {
                None => Cow::Borrowed(value),
                Some(before) => Cow::Owned([&before, &b"\n"[..], value].concat()),
            });
        }
        // An event without its blank line never happened.
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(body: &str, is_stream: bool) -> Response {
        Response {
            status: 200,
            is_stream,
            session: None,
            body: 0..body.len(),
            used: body.len(),
            is_kept: true,
        }
    }

    fn check(content: Content<'_>, body: &str) -> Result<Option<u64>, CallFault> {
        content.check(Marks::None, &response(body, false), body.as_bytes(), 7)
    }

    fn check_marked(marks: Marks, content: Content<'_>, result: &str) -> Result<(), CallFault> {
        let body = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{{result}}}}}"#);
        let verdict = content.check(marks, &response(&body, false), body.as_bytes(), 7);
        verdict.map(drop)
    }

    #[test]
    fn a_result_without_a_session_says_that_it_is_complete() {
        use CallFault::WrongResultType;
        let content = r#""content":[{"type":"text","text":"a"}]"#;
        for (marks, verdict) in [
            (r#""resultType":"complete","#, Ok(())),
            (r#""resultType": "complete", "#, Ok(())),
            (r#""resultType":"input_required","#, Err(WrongResultType)),
            (r#""resultType":7,"#, Err(WrongResultType)),
            (r#""x":{"resultType":"complete"},"#, Err(WrongResultType)),
            ("", Err(WrongResultType)),
        ] {
            let sent = format!("{marks}{content}");
            let wanted = [Content::Result, Content::Tool, Content::Text(b"a")];
            for wanted in wanted {
                let verdict_here = check_marked(Marks::Complete, wanted, &sent);
                assert_eq!(verdict_here, verdict, "{wanted:?} {sent}");
            }
            let last = format!(
                r#"{content},"isError":false,{}"#,
                marks.trim_end_matches([',', ' '])
            );
            if !marks.is_empty() {
                let verdict_here = check_marked(Marks::Complete, Content::Text(b"a"), &last);
                assert_eq!(verdict_here, verdict, "{last}");
            }
        }
    }

    #[test]
    fn a_list_without_a_session_says_how_long_it_may_be_kept() {
        use CallFault::WrongLifetime;
        for (marks, verdict) in [
            (r#""ttlMs":5,"cacheScope":"private""#, Ok(())),
            (r#""cacheScope":"public","ttlMs":0"#, Ok(())),
            (r#""ttlMs":5,"cacheScope":"shared""#, Err(WrongLifetime)),
            (r#""ttlMs":-5,"cacheScope":"private""#, Err(WrongLifetime)),
            (r#""ttlMs":"5","cacheScope":"private""#, Err(WrongLifetime)),
            (r#""ttlMs":,"cacheScope":"private""#, Err(CallFault::Wire)),
            (r#""ttlMs":5"#, Err(WrongLifetime)),
            (r#""cacheScope":"private""#, Err(WrongLifetime)),
        ] {
            let sent = format!(r#""resultType":"complete",{marks},"tools":[]"#);
            let verdict_here = check_marked(Marks::Kept, Content::Result, &sent);
            assert_eq!(verdict_here, verdict, "{sent}");
        }
    }

    #[test]
    fn a_session_id_that_nobody_asked_for_is_wrong() {
        let body = reply("5", "").replace(r#""content""#, r#""resultType":"complete","content""#);
        let mut given = response(&body, false);
        let verdict =
            |given: &Response| Content::Tool.check(Marks::Complete, given, body.as_bytes(), 7);
        assert_eq!(verdict(&given), Ok(None));
        given.session = Some(0..1);
        assert_eq!(verdict(&given), Err(CallFault::SessionGiven));
    }

    fn reply(text: &str, rest: &str) -> String {
        format!(
            concat!(
                r#"{{"jsonrpc":"2.0","id":7,"result":{{"#,
                r#""content":[{{"type":"text","text":"{text}"}}]{rest}}}}}"#
            ),
            text = text,
            rest = rest
        )
    }

    #[test]
    fn usual_and_unusual_successes() {
        for body in [
            reply("5", r#","isError":false"#),
            reply("5", ""),
            r#" {"result": {"isError": false, "content": [{"text": "5"}]}, "id": 7}"#.to_owned(),
        ] {
            assert_eq!(check(Content::Result, &body), Ok(None), "{body}");
            assert_eq!(check(Content::Tool, &body), Ok(None), "{body}");
            assert_eq!(check(Content::Number, &body), Ok(Some(5)), "{body}");
            assert_eq!(check(Content::Text(b"5"), &body), Ok(None), "{body}");
        }
        assert_eq!(check(Content::Tool, &reply("5x", "")), Ok(None));
        assert_eq!(
            check(Content::Tool, &reply(r#"\"isError\":true"#, "")),
            Ok(None)
        );
        for body in [
            r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
            r#"{"id":7,"result":[]}"#,
        ] {
            assert_eq!(check(Content::Result, body), Ok(None));
        }
    }

    #[test]
    fn texts_must_be_the_ones_sent() {
        let text = |text: &str| reply(text, r#","isError":false"#);
        for (sent, body, verdict) in [
            ("a", text("a"), Ok(None)),
            ("a", text("ab"), Err(CallFault::WrongContent)),
            ("ab", text("a"), Err(CallFault::WrongContent)),
            ("", text(""), Ok(None)),
            (r#"\""#, text(r#"\""#), Ok(None)),
            ("\u{e9}", text(r"\u00e9"), Ok(None)),
            (r"\u00e9", text("\u{e9}"), Ok(None)),
            (
                "a",
                reply("a", r#","isError":true"#),
                Err(CallFault::ToolError),
            ),
        ] {
            let content = Content::Text(sent.as_bytes());
            assert_eq!(check(content, &body), verdict, "{sent} {body}");
        }
        assert_eq!(check(Content::Filled(3), &text("xxx")), Ok(None));
        for wrong in ["xx", "xxxx", "xxy", ""] {
            let verdict = check(Content::Filled(3), &text(wrong));
            assert_eq!(verdict, Err(CallFault::WrongContent), "{wrong}");
        }
    }

    #[test]
    fn every_fault_is_seen() {
        use CallFault::*;
        let counter = Content::Number;
        for (body, fault) in [
            (reply("5", r#","isError":true"#), ToolError),
            (reply("5", r#","isError": true"#), ToolError),
            (
                reply("5", r#","isError":true,"x":{"isError":false"#) + "}",
                ToolError,
            ),
            (reply("x", ""), WrongContent),
            (reply("5x", ""), WrongContent),
            (reply("", ""), WrongContent),
            (reply("99999999999999999999", ""), WrongContent),
            (reply("5", "").replace(":7", ":8"), WrongId),
            (reply("5", "").replace(":7", ":77"), WrongId),
            (reply("5", "").replace(":7", ":\"7\""), WrongId),
            (
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":""}}"#.to_owned(),
                RpcError,
            ),
            ("{".to_owned(), Wire),
        ] {
            assert_eq!(check(counter, &body), Err(fault), "{body}");
        }
        let body = reply("5", "");
        let bytes = |count, tolerance| Content::Bytes { count, tolerance };
        assert_eq!(check(bytes(body.len() + 2, 2), &body), Ok(None));
        assert_eq!(check(bytes(body.len() + 3, 2), &body), Err(WrongSize));
        let not_found = Response {
            status: 404,
            ..response(&body, false)
        };
        assert_eq!(
            counter.check(Marks::None, &not_found, body.as_bytes(), 7),
            Err(Status(404))
        );
    }

    #[test]
    fn the_reply_is_found_among_other_events() {
        let body = reply("5", "");
        let split = body.replacen(",\"id\"", ",\ndata: \"id\"", 1);
        for stream in [
            format!("event: message\ndata: {body}\n\n"),
            format!("id: 1\r\ndata:\r\n\r\ndata:{body}\r\n\r\n"),
            format!("data: {{\"method\":\"notifications/progress\"}}\n\n: x\n\ndata: {split}\n\n"),
        ] {
            let response = response(&stream, true);
            let verdict = Content::Number.check(Marks::None, &response, stream.as_bytes(), 7);
            assert_eq!(verdict, Ok(Some(5)), "{stream}");
        }
        for stream in [
            format!("data: {body}\n"),
            "\n\n".to_owned(),
            "data: {}\n\n".to_owned(),
        ] {
            let response = response(&stream, true);
            let verdict = Content::Tool.check(Marks::None, &response, stream.as_bytes(), 7);
            assert_eq!(verdict, Err(CallFault::Wire), "{stream}");
        }
    }

    #[test]
    fn initialize_gives_id_and_revision() {
        let text = r#"abc{"id":0,"jsonrpc":"2.0","result":{"protocolVersion":"2025-06-18"}}"#;
        let mut response = Response {
            session: Some(0..3),
            body: 3..text.len(),
            ..response(text, false)
        };
        let opened_as = opened(&response, text.as_bytes());
        assert_eq!(opened_as, Ok(("abc".to_owned(), "2025-06-18".to_owned())));
        response.session = None;
        assert_eq!(
            opened(&response, text.as_bytes()),
            Err(CallFault::NoSession)
        );
    }
}
