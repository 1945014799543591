//! A stateless backend's result that asks first, for a client with a session: each question becomes
//! a request on the call's own stream, and the answers go back with the same call (SEP-2322,
//! mcp.md 2.8).

use std::{collections::BTreeMap, pin::pin, rc::Rc, time::Duration};

use futures_util::future::{Either, select};
use serde_json::value::RawValue;
use shards::deadline::now_ms;

use super::Attempt;
use crate::{
    mcp::{
        json,
        reply_scan::{ReplyKind, scan_reply},
    },
    method::{id_of, result},
    refusal::rpc_error,
    reply::{
        flow::Flow,
        relay::{Cut, session_tool_error},
    },
    session::{Answers, Place, state::OpenBackend},
    upstream::CallFault,
};

/// Rounds of one call at the most.
const ROUNDS_MAX: u32 = 8;
/// Questions of one round at the most.
const QUESTIONS_MAX: usize = 32;

/// What comes of the questions.
pub(super) enum Round {
    /// The call is to be made again with these members of its parameters, each with a comma.
    Again(Vec<u8>),
    /// The call is over, and was answered.
    Over(ReplyKind),
}

/// Asks the client what `document` asks, and waits for all answers.
pub(super) async fn ask(
    call: &Attempt<'_, '_>,
    open: &Rc<OpenBackend>,
    document: &[u8],
    round: u32,
    flow: &mut Flow<'_, '_>,
) -> Result<Round, Cut> {
    let Some(asked) = Asked::read(document).filter(|_| round <= ROUNDS_MAX) else {
        return give_up(
            call,
            flow,
            "The backend asks in a way that cannot be answered",
        )
        .await;
    };
    let is_known = |question: &Question<'_>| {
        let method = question.method.as_bytes();
        matches!(
            method,
            b"elicitation/create" | b"sampling/createMessage" | b"roots/list"
        ) && call.session.can_be_asked(method)
    };
    if !asked.questions.values().all(is_known) {
        return give_up(
            call,
            flow,
            "The backend asks for what this client cannot do",
        )
        .await;
    }
    let answers = Rc::new(Answers::new(asked.questions.len()));
    let mut waiting = Waiting {
        call,
        ids: Vec::new(),
    };
    let mut messages = Vec::new();
    let place = Place {
        host: call.caller.host.clone(),
        index: call.route.backend,
    };
    for (index, question) in asked.questions.values().enumerate() {
        let waiter = (answers.clone(), index);
        let id = call
            .session
            .asked
            .borrow_mut()
            .ask_for(&place, open, waiter);
        let Some(id) = id else {
            return give_up(call, flow, "Too many questions wait for the client").await;
        };
        waiting.ids.push(id);
        messages.push(question.message(id));
    }
    call.shard.numbers.client_asked.add(messages.len() as u64);
    flow.pass_on(messages).await?;
    let limit = call.shard.upstream.limits.client_answer;
    let Some(all) = wait(call, &answers, limit, flow).await? else {
        call.shard.numbers.client_answers_late.add(1);
        return give_up(call, flow, "The client did not answer in time").await;
    };
    drop(waiting);
    let mut responses = Vec::new();
    for (key, answer) in asked.questions.keys().zip(all) {
        let Some(answer) = answer else {
            return give_up(call, flow, "The client refused to answer").await;
        };
        responses.push(if responses.is_empty() { b'{' } else { b',' });
        json::quote(&mut responses, key);
        responses.push(b':');
        responses.extend_from_slice(&answer);
    }
    let mut members = Vec::with_capacity(responses.len() + 64);
    if !responses.is_empty() {
        members.extend_from_slice(b"\"inputResponses\":");
        members.extend_from_slice(&responses);
        members.extend_from_slice(b"},");
    }
    if let Some(state) = asked.state {
        members.extend_from_slice(b"\"requestState\":");
        members.extend_from_slice(state);
        members.push(b',');
    }
    Ok(Round::Again(members))
}

/// Waits for the answers with heartbeats; `None`: they did not come in time.
async fn wait(
    call: &Attempt<'_, '_>,
    answers: &Answers,
    limit: Duration,
    flow: &mut Flow<'_, '_>,
) -> Result<Option<Vec<crate::session::Answer>>, Cut> {
    let until_ms = now_ms() + u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    let heartbeat = call.shard.upstream.limits.heartbeat;
    loop {
        if call.entry.cancel.is_cancelled() {
            return Err(CallFault::Cancelled.into());
        }
        if let Some(all) = answers.all() {
            return Ok(Some(all));
        }
        let left = Duration::from_millis(until_ms.saturating_sub(now_ms()));
        if left.is_zero() || call.session.has_ended.get() {
            return Ok(None);
        }
        let pause = pin!(shards::sleep(left.min(heartbeat)));
        let answered = pin!(answers.changed());
        let told = pin!(call.entry.changed());
        let news = select(answered, told);
        if let Either::Right(_) = select(news, pause).await {
            flow.heartbeat().await?;
        }
    }
}

/// The call ends with why.
async fn give_up(
    call: &Attempt<'_, '_>,
    flow: &mut Flow<'_, '_>,
    text: &str,
) -> Result<Round, Cut> {
    let id = id_of(call.caller, call.message);
    let (kind, response) = match call.method {
        b"tools/call" => {
            let said = session_tool_error(text);
            (ReplyKind::Result, result(id, said.as_bytes()))
        }
        _ => (ReplyKind::Error, rpc_error(Some(id), -32603, text)),
    };
    flow.finish(Vec::new(), response, 200).await?;
    Ok(Round::Over(kind))
}

/// Questions that wait; nobody waits for their answers when this is dropped.
struct Waiting<'a, 'b, 'c> {
    call: &'a Attempt<'b, 'c>,
    ids: Vec<u64>,
}

impl Drop for Waiting<'_, '_, '_> {
    fn drop(&mut self) {
        let mut asked = self.call.session.asked.borrow_mut();
        for id in &self.ids {
            asked.take(id.to_string().as_bytes());
        }
    }
}

/// What a result asks.
struct Asked<'a> {
    questions: BTreeMap<String, Question<'a>>,
    /// What is to be said with the answers, raw.
    state: Option<&'a [u8]>,
}

#[derive(serde::Deserialize)]
struct Question<'a> {
    method: String,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

impl<'a> Asked<'a> {
    fn read(document: &'a [u8]) -> Option<Self> {
        let scan = scan_reply(document).ok()?;
        let result = scan.result?.slice(document);
        let requests = json::member(result, "inputRequests").map(|span| span.slice(result));
        let questions: BTreeMap<String, Question<'a>> = match requests {
            Some(requests) => serde_json::from_slice(requests).ok()?,
            None => BTreeMap::new(),
        };
        let state = json::member(result, "requestState").map(|span| span.slice(result));
        let is_one = !questions.is_empty() || state.is_some();
        (is_one && questions.len() <= QUESTIONS_MAX).then_some(Self { questions, state })
    }
}

impl Question<'_> {
    /// The request to the client. Sessions know a URL's elicitation by an id, which this revision
    /// has no more (mcp.md 3.2).
    fn message(&self, id: u64) -> Vec<u8> {
        let mut out = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"#).into_bytes();
        json::quote(&mut out, &self.method);
        if let Some(params) = self.params {
            let params = params.get();
            out.extend_from_slice(b",\"params\":");
            let mode = json::member(params.as_bytes(), "mode");
            let is_url = mode.is_some_and(|mode| json::says(mode.slice(params.as_bytes()), "url"));
            let has_id = json::member(params.as_bytes(), "elicitationId").is_some();
            match params.strip_prefix('{') {
                Some(rest) if is_url && !has_id => {
                    out.extend_from_slice(
                        format!(r#"{{"elicitationId":"shardgate-{id}",{rest}"#).as_bytes(),
                    );
                }
                _ => out.extend_from_slice(params.as_bytes()),
            }
        }
        out.push(b'}');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_become_requests() {
        let document =
            br#"{"id":1,"result":{"resultType":"input_required","requestState":"s\u0041",
            "inputRequests":{"b":{"method":"roots/list"},
            "a":{"method":"elicitation/create","params":{"mode":"url","url":"u"}}}}}"#;
        let asked = Asked::read(document).unwrap();
        assert_eq!(asked.state, Some(&br#""s\u0041""#[..]));
        let messages: Vec<String> = asked
            .questions
            .values()
            .map(|question| String::from_utf8(question.message(7)).unwrap())
            .collect();
        assert_eq!(
            messages,
            [
                r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"elicitationId":"shardgate-7","mode":"url","url":"u"}}"#,
                r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#
            ]
        );
        for nothing in [
            &br#"{"id":1,"result":{"resultType":"input_required"}}"#[..],
            br#"{"id":1,"result":{"inputRequests":{"a":7}}}"#,
            br#"{"id":1,"error":{}}"#,
        ] {
            assert!(Asked::read(nothing).is_none());
        }
    }
}
