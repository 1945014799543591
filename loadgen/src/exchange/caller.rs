//! A caller: its request, and whether the lines that came are the whole answer to it.

use super::{
    Bound, Plan,
    words::{self, Envelope, Heard},
};
use crate::client::{CallFault, Script};

/// The header lines that all requests of a run have in common.
pub(crate) fn common_lines(script: &Script) -> Vec<u8> {
    let mut lines = format!(
        "host: {}\r\nuser-agent: loadgen\r\ncontent-type: application/json\r\n",
        script.target.authority
    );
    if let Some(token) = script.tokens.first() {
        lines.push_str(&format!("authorization: Bearer {token}\r\n"));
    }
    for line in &script.headers {
        lines.push_str(line);
        lines.push_str("\r\n");
    }
    lines.into_bytes()
}

/// Appends a streamed request (connection-gateway.md 3.2). `head` has the lines that all requests
/// have in common, `body` is room to compose in.
pub(crate) fn put_request(
    out: &mut Vec<u8>,
    body: &mut Vec<u8>,
    bound: &Bound,
    (request_id, request_bytes): (&str, usize),
    (common, timeout_ms): (&[u8], u128),
) {
    body.clear();
    words::put(
        body,
        format_args!(r#"{{"timeoutMs":{timeout_ms},"envelope":"#),
    );
    let envelope = Envelope {
        session: &bound.session,
        generation: bound.generation,
        request_id,
        kind: "request",
        now_ms: shards::clock::unix_ms(),
    };
    envelope.put(body, |body| {
        body.extend_from_slice(
            br#"{"kind":"plugin-debug.run","eventName":"run","payload":{"pluginId":"loadgen","input":{"text":""#,
        );
        body.resize(body.len() + request_bytes, b'x');
        body.extend_from_slice(br#""},"systemVar":{}}}"#);
    });
    body.push(b'}');
    out.extend_from_slice(b"POST /internal/sessions/");
    out.extend_from_slice(bound.session.as_bytes());
    out.extend_from_slice(b"/requests:stream HTTP/1.1\r\n");
    out.extend_from_slice(common);
    words::put(out, format_args!("content-length: {}\r\n\r\n", body.len()));
    out.extend_from_slice(body);
}

/// Whether the lines are the answer to the request: `accepted`, all parts in their order, `end`.
pub(crate) fn check(plan: &Plan, request_id: &str, lines: &[u8]) -> Result<(), CallFault> {
    let mut lines = lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let mut next = || -> Result<Heard<'_>, CallFault> {
        let line = lines.next().ok_or(CallFault::Incomplete)?;
        let heard: Heard<'_> = serde_json::from_slice(line).map_err(|_| CallFault::Wire)?;
        let payload = heard.payload.as_ref();
        let is_failure = payload.is_some_and(|payload| {
            payload.event.as_deref() == Some("error")
                || payload.kind.as_deref() == Some("plugin-debug.error")
        });
        if heard.request_id.as_deref() != Some(request_id) {
            Err(CallFault::WrongId)
        } else if is_failure {
            Err(CallFault::ErrorLine)
        } else {
            Ok(heard)
        }
    };
    let accepted = next()?;
    let kind = accepted.payload.and_then(|payload| payload.kind);
    if accepted.kind != "response" || kind.as_deref() != Some("plugin-debug.accepted") {
        return Err(CallFault::Incomplete);
    }
    for index in 0..plan.options.chunks {
        let part = next()?;
        let content = part.payload.and_then(|payload| payload.data?.data?.content);
        if part.kind != "stream" || !is_part(content.as_deref(), index, plan.options.chunk_bytes) {
            return Err(CallFault::Incomplete);
        }
    }
    let end = next()?;
    let event = end.payload.and_then(|payload| payload.event);
    if event.as_deref() != Some("end") || lines.next().is_some() {
        return Err(CallFault::Incomplete);
    }
    Ok(())
}

/// Whether this is the text of part `index` of `bytes` bytes.
fn is_part(content: Option<&str>, index: u32, bytes: usize) -> bool {
    let parts = content.and_then(|content| Some((content.len(), content.split_once(' ')?)));
    parts.is_some_and(|(length, (number, filling))| {
        number.parse() == Ok(index)
            && filling.bytes().all(|byte| byte == b'x')
            && length == bytes.max(number.len() + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        exchange::{Answerer, ExchangeOptions, frame},
        random::Random,
    };
    use serde_json::Value;

    fn plan(chunks: u32, chunk_bytes: usize) -> Plan {
        let options = ExchangeOptions {
            clients_at: "ws://127.0.0.1:1/connection-gateway/v1".to_owned(),
            chunks,
            chunk_bytes,
            ..ExchangeOptions::default()
        };
        Plan::new(options).unwrap()
    }

    fn bound() -> Bound {
        Bound {
            session: "7a76e6cf".to_owned(),
            generation: 3,
        }
    }

    /// The lines a gateway makes of a client's answer to `request_id`.
    fn lines(plan: &Plan, request_id: &str) -> Vec<String> {
        let (mut out, mut body, mut random) = (Vec::new(), Vec::new(), Random::new(1));
        let request = (request_id, 9);
        put_request(&mut out, &mut body, &bound(), request, (b"host: h\r\n", 5));
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["timeoutMs"], 5);
        let message = serde_json::json!({"type": "envelope", "envelope": body["envelope"]});
        let message = message.to_string();
        let mut inbound = vec![0x81, 126];
        let length = u16::try_from(message.len()).unwrap();
        inbound.extend_from_slice(&length.to_be_bytes());
        inbound.extend_from_slice(message.as_bytes());
        let mut answers = Vec::new();
        let mut answerer = Answerer::new(bound());
        let heard = answerer.hear(plan, &mut inbound, &mut answers, &mut random);
        assert!(heard.is_ok() && inbound.is_empty());
        let mut lines = Vec::new();
        while !answers.is_empty() {
            // As the gateway sees it, without the mask.
            let wide = if answers[1] == 0x80 | 126 { 4 } else { 2 };
            let mask: Vec<u8> = answers.drain(wide..wide + 4).collect();
            answers[1] &= 0x7f;
            // The mask is off only once the payload's place is known.
            let length = match wide {
                4 => usize::from(u16::from_be_bytes([answers[2], answers[3]])),
                _ => usize::from(answers[1]),
            };
            for (at, byte) in answers[wide..wide + length].iter_mut().enumerate() {
                *byte ^= mask[at % 4];
            }
            let first = frame::first(&answers).unwrap().unwrap();
            let message: Value = serde_json::from_slice(&answers[first.payload.clone()]).unwrap();
            assert_eq!(message["envelope"]["sessionId"], "7a76e6cf");
            assert_eq!(message["envelope"]["generation"], 3);
            lines.push(message["envelope"].to_string());
            answers.drain(..first.payload.end);
        }
        lines
    }

    fn judge(plan: &Plan, lines: &[String]) -> Result<(), CallFault> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        check(plan, "r-1", text.as_bytes())
    }

    #[test]
    fn a_whole_answer_is_right_and_every_other_one_is_not() {
        for (chunks, chunk_bytes) in [(0, 64), (3, 0), (3, 64), (12, 300)] {
            let plan = plan(chunks, chunk_bytes);
            let whole = lines(&plan, "r-1");
            assert_eq!(whole.len(), chunks as usize + 2);
            assert_eq!(judge(&plan, &whole), Ok(()), "{chunks} {chunk_bytes}");
            for missing in 0..whole.len() {
                let mut rest = whole.clone();
                rest.remove(missing);
                assert_eq!(judge(&plan, &rest), Err(CallFault::Incomplete), "{missing}");
            }
            for first in 0..whole.len() - 1 {
                let mut turned = whole.clone();
                turned.swap(first, first + 1);
                assert_eq!(judge(&plan, &turned), Err(CallFault::Incomplete), "{first}");
            }
            let mut more = whole.clone();
            more.extend(whole.last().cloned());
            assert_eq!(judge(&plan, &more), Err(CallFault::Incomplete));
        }
    }

    #[test]
    fn another_request_s_answer_and_a_failure_are_told_apart() {
        let plan = plan(3, 64);
        let mut mixed = lines(&plan, "r-1");
        mixed[2] = lines(&plan, "r-2")[2].clone();
        assert_eq!(judge(&plan, &mixed), Err(CallFault::WrongId));
        let failure = mixed[4].replace(
            r#""event":"end""#,
            r#""event":"error","message":"Gateway session closed""#,
        );
        mixed.truncate(2);
        mixed.push(failure);
        assert_eq!(judge(&plan, &mixed), Err(CallFault::ErrorLine));
        let mut short = lines(&plan, "r-1");
        short[1] = short[1].replacen("xx", "x", 1);
        assert_eq!(judge(&plan, &short), Err(CallFault::Incomplete));
        assert_eq!(judge(&plan, &["{".to_owned()]), Err(CallFault::Wire));
    }

    #[test]
    fn heartbeats_come_in_their_share() {
        let mut plan = plan(1, 8);
        plan.options.heartbeats = 1.0;
        let mut random = Random::new(1);
        let message = r#"{"type":"envelope","envelope":{"type":"request","requestId":"r"}}"#;
        let mut inbound = vec![0x81, u8::try_from(message.len()).unwrap()];
        inbound.extend_from_slice(message.as_bytes());
        let (mut with, mut without) = (Vec::new(), Vec::new());
        let mut answerer = Answerer::new(bound());
        let mut again = inbound.clone();
        answerer
            .hear(&plan, &mut inbound, &mut with, &mut random)
            .unwrap();
        plan.options.heartbeats = 0.0;
        answerer
            .hear(&plan, &mut again, &mut without, &mut random)
            .unwrap();
        assert!(with.len() > without.len() + 60);
    }
}
