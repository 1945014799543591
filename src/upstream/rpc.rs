//! One JSON-RPC exchange with a backend whose whole answer is wanted: `initialize`, list pages,
//! notifications. Calls whose reply is streamed on are in `reply::relay`.

use std::{borrow::Cow, rc::Rc, time::Duration};

use shards::deadline::now_ms;

use crate::{
    http::{ContentKind, Encoding, sse::EventParser},
    mcp::{
        json,
        reply_scan::{ReplyKind, ReplyScan, scan_marked, scan_reply},
    },
    upstream::{CallFault, Exchange, Upstream, exchange::Manner, inflate::inflate, target::Target},
};

/// Bytes read of a reply that is an HTTP error.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// A backend's answer to one request.
#[derive(Debug)]
pub struct Answer {
    /// The JSON-RPC document.
    pub document: Vec<u8>,
    /// Its members.
    pub scan: ReplyScan,
    /// `Mcp-Session-Id` of the HTTP reply.
    pub session_id: Option<Box<[u8]>>,
}

impl Answer {
    /// The raw `result`, unless it is an error.
    pub fn result(&self) -> Option<&[u8]> {
        self.scan.result.map(|span| span.slice(&self.document))
    }

    /// The code of the error, if it is one.
    pub fn error_code(&self) -> Option<i64> {
        let error = self.scan.error?.slice(&self.document);
        let code = json::member(error, "code")?.slice(error);
        std::str::from_utf8(code).ok()?.parse().ok()
    }

    /// A member of the result, raw.
    pub fn result_member(&self, name: &str) -> Option<&[u8]> {
        let result = self.result()?;
        json::member(result, name).map(|span| span.slice(result))
    }
}

/// What an HTTP reply to a request is, judged by its head.
#[derive(Debug, PartialEq, Eq)]
pub enum ReplyForm {
    /// One JSON document.
    Json,
    /// An event stream.
    Stream,
}

impl Upstream {
    /// Sends a whole HTTP request that carries the JSON-RPC request `id`, and reads until its
    /// response.
    pub async fn ask(
        &self,
        target: &Rc<Target>,
        request: Vec<u8>,
        id: &[u8],
        manner: Manner<'_>,
    ) -> Result<Answer, CallFault> {
        let mut exchange = self.exchange_in_time(target, request, manner).await?;
        let answer = match self.form(&mut exchange, manner.is_stateless).await {
            Ok(form) => self.read_answer(exchange, form, id).await,
            Err(fault) => Err(fault),
        };
        match answer {
            Err(CallFault::CallTimeout) if manner.is_lateness_telling => {
                target.breaker.failed(now_ms());
            }
            _ => target.breaker.succeeded(),
        }
        answer
    }

    /// Reads a reply of this form until the response.
    pub(super) async fn read_answer(
        &self,
        mut exchange: Exchange,
        form: ReplyForm,
        id: &[u8],
    ) -> Result<Answer, CallFault> {
        let session_id = exchange.session_id.take();
        let (document, scan) = match form {
            ReplyForm::Json => {
                let document = self.document(&mut exchange).await?.into_owned();
                let scan = response_to(&document, id, false)?;
                (document, scan)
            }
            ReplyForm::Stream => self.response_in_stream(&mut exchange, id).await?,
        };
        self.drain_later(exchange);
        Ok(Answer {
            document,
            scan,
            session_id,
        })
    }

    /// An exchange whose whole reply is due when its first byte was: a backend that sends a head at
    /// once and then nothing is late all the same.
    pub(super) async fn exchange_in_time(
        &self,
        target: &Rc<Target>,
        request: Vec<u8>,
        manner: Manner<'_>,
    ) -> Result<Exchange, CallFault> {
        let started_ms = now_ms();
        let (exchange, _) = self
            .exchange(target, request, manner, Vec::with_capacity(4096))
            .await?;
        let spent = Duration::from_millis(now_ms().saturating_sub(started_ms));
        let left = manner.first_byte.saturating_sub(spent);
        exchange.link.deadline().arm(left);
        Ok(exchange)
    }

    /// Sends a whole HTTP request that carries a notification, or a DELETE. Only the status counts.
    pub async fn tell(
        &self,
        target: &Rc<Target>,
        request: Vec<u8>,
        manner: Manner<'_>,
    ) -> Result<(), CallFault> {
        let mut exchange = self.exchange_in_time(target, request, manner).await?;
        // Nothing but the status is waited for.
        target.breaker.succeeded();
        let status = exchange.head.status;
        let is_stream = exchange.head.content == ContentKind::EventStream;
        if !is_stream {
            let _ = exchange
                .body
                .whole(&mut exchange.link, ERROR_BYTES_MAX)
                .await?;
        }
        self.finish(exchange);
        if (200..300).contains(&status) {
            Ok(())
        } else {
            Err(CallFault::Status(status))
        }
    }

    /// Judges the head of a reply to a request. An HTTP error is read, to tell a lost session and a
    /// JSON-RPC error that came with it from a plain refusal. A stateless backend says with the
    /// status what its response says as well (mcp.md 2.3).
    pub async fn form(
        &self,
        exchange: &mut Exchange,
        is_stateless: bool,
    ) -> Result<ReplyForm, CallFault> {
        let head = &exchange.head;
        if is_stateless && matches!(head.status, 400..500) {
            return match (head.status, head.content) {
                (400 | 404, ContentKind::Json) => Ok(ReplyForm::Json),
                (status, _) => Err(Self::failed(exchange, CallFault::Status(status))),
            };
        }
        let form = self.judged(exchange).await;
        form.map_err(|fault| Self::failed(exchange, fault))
    }

    async fn judged(&self, exchange: &mut Exchange) -> Result<ReplyForm, CallFault> {
        let head = &exchange.head;
        match (head.status, head.content) {
            (200, ContentKind::Json) => Ok(ReplyForm::Json),
            (200, ContentKind::EventStream) if head.encoding == Encoding::Identity => {
                Ok(ReplyForm::Stream)
            }
            (200, ContentKind::EventStream) => Err(CallFault::Encoding),
            (200, _) => Err(CallFault::ContentType),
            (404, _) => Err(CallFault::SessionLost),
            (201..300, _) => Err(CallFault::NotAReply),
            (400, content) => {
                let body = exchange
                    .body
                    .whole(&mut exchange.link, ERROR_BYTES_MAX)
                    .await?;
                // Real servers say 400 and -32000 for a session they do not know (mcp.md 0.7).
                if content == ContentKind::Json && speaks_of_session(&body) {
                    return Err(CallFault::SessionLost);
                }
                Err(CallFault::Status(400))
            }
            (status, _) => Err(CallFault::Status(status)),
        }
    }

    /// The whole JSON document of a reply: in place when it lies in the read buffer, decoded when
    /// the backend coded it.
    pub async fn document<'a>(
        &self,
        exchange: &'a mut Exchange,
    ) -> Result<Cow<'a, [u8]>, CallFault> {
        let bytes_max = self.limits.reply_bytes_max;
        let encoding = exchange.head.encoding;
        if encoding == Encoding::Identity
            && exchange.body.gather(&mut exchange.link, bytes_max).await?
        {
            return Ok(Cow::Borrowed(
                exchange.body.whole_in_place().unwrap_or_default(),
            ));
        }
        let raw = exchange.body.whole(&mut exchange.link, bytes_max).await?;
        match encoding {
            Encoding::Identity => Ok(Cow::Owned(raw)),
            coded => Ok(Cow::Owned(inflate(coded, &raw, bytes_max)?)),
        }
    }

    async fn response_in_stream(
        &self,
        exchange: &mut Exchange,
        id: &[u8],
    ) -> Result<(Vec<u8>, ReplyScan), CallFault> {
        let mut parser = EventParser::new(self.limits.event_bytes_max);
        let mut piece = Vec::new();
        let mut found = None;
        loop {
            piece.clear();
            if !exchange.body.piece(&mut exchange.link, &mut piece).await? {
                return Err(CallFault::NoResponse);
            }
            parser
                .feed(&piece, |event| {
                    if found.is_none() && is_message(event.name) && !event.data.is_empty() {
                        found = response_to(event.data, id, false)
                            .ok()
                            .map(|scan| (event.data.to_vec(), scan));
                    }
                })
                .map_err(|_| CallFault::TooLarge)?;
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }

    /// Ends an exchange whose answer is known. What a stream still holds, its end as a rule, is
    /// read at once if it is there already; otherwise the connection closes: not worth a task.
    pub fn drain_later(&self, mut exchange: Exchange) {
        let mut rest = Vec::new();
        exchange.body.take_buffered(&mut rest);
        self.finish(exchange);
    }
}

/// Whether an event of this name carries a message (WHATWG: no name means `message`).
pub fn is_message(name: &[u8]) -> bool {
    name.is_empty() || name == b"message"
}

/// The members of `document` if it is the response to `id`; `is_marked`: those too by which a
/// stateless backend says what its result is.
pub fn response_to(document: &[u8], id: &[u8], is_marked: bool) -> Result<ReplyScan, CallFault> {
    let scan = if is_marked {
        scan_marked(document)
    } else {
        scan_reply(document)
    };
    let scan = scan.map_err(|_| CallFault::NotAReply)?;
    let is_response = matches!(scan.kind, ReplyKind::Result | ReplyKind::Error);
    if is_response && scan.id.is_some_and(|span| span.slice(document) == id) {
        Ok(scan)
    } else {
        Err(CallFault::NotAReply)
    }
}

/// Whether a JSON-RPC error document says that the session is not known.
pub(crate) fn speaks_of_session(document: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(document) else {
        return false;
    };
    let Some(error) = json::member(document, "error") else {
        return false;
    };
    let error = error.slice(text.as_bytes());
    let Some(message) = json::member(error, "message") else {
        return false;
    };
    json::unescape(message.slice(error))
        .is_some_and(|message| message.to_ascii_lowercase().contains("session"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_sessions_are_told_from_other_refusals() {
        for lost in [
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Session not found"}}"#,
        ] {
            assert!(speaks_of_session(lost.as_bytes()));
        }
        for other in [
            r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"bad params"}}"#,
            r#"{"session":1}"#,
            "session",
            "",
        ] {
            assert!(!speaks_of_session(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn only_the_response_to_the_request_counts() {
        let ours = br#"{"result":{},"jsonrpc":"2.0","id":7}"#;
        assert!(response_to(ours, b"7", false).is_ok());
        assert!(response_to(ours, b"\"7\"", false).is_err());
        assert!(response_to(br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#, b"7", false).is_err());
        assert!(response_to(b"[]", b"7", false).is_err());
    }
}
