//! One call of an HTTP tool over the shard's connections: deadlines, limits, retries.

use std::{rc::Rc, time::Duration};

use shards::deadline::now_ms;

use super::{mapping::HttpCall, tool::Tool};
use crate::{
    config::credential::Credential,
    http::{Decimal, header_values},
    shard_state::ShardState,
    upstream::{
        CallFault, Exchange,
        cancel::Cancel,
        exchange::{Manner, Repeat},
        target::Target,
    },
};

/// Headers of the caller that are passed on (dual-profile.md 2.2).
const PASSED: [&str; 3] = ["accept-language", "traceparent", "tracestate"];

/// What an API answered.
#[derive(Debug)]
pub(super) struct HttpReply {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// Who calls what, for every attempt of one call.
pub(super) struct HttpCaller<'a> {
    pub(super) shard: &'a Rc<ShardState>,
    pub(super) tool: &'a Tool,
    pub(super) target: &'a Rc<Target>,
    pub(super) credential: Option<&'a Credential>,
    /// Head of the client's request.
    pub(super) client_head: &'a [u8],
    pub(super) cancel: Option<&'a Cancel>,
    /// The arguments allow a second attempt.
    pub(super) may_repeat: bool,
}

impl HttpCaller<'_> {
    /// Calls, again if the tool's policy says so.
    pub(super) async fn call(&self, call: &HttpCall) -> Result<HttpReply, CallFault> {
        let retry = self.tool.retry.as_ref().filter(|_| self.may_repeat);
        let mut attempt = 1;
        loop {
            let outcome = self.attempt(call).await;
            let Some(retry) = retry.filter(|retry| attempt < retry.attempts) else {
                return outcome;
            };
            let is_due = match &outcome {
                Ok(reply) => retry.is_for_status(reply.status),
                Err(fault) => retry.is_for(*fault),
            };
            if !is_due {
                return outcome;
            }
            shards::task::sleep(retry.pause).await;
            if self.cancel.is_some_and(Cancel::is_cancelled) {
                return Err(CallFault::Cancelled);
            }
            self.shard.numbers.declared_retries.add(1);
            attempt += 1;
        }
    }

    async fn attempt(&self, call: &HttpCall) -> Result<HttpReply, CallFault> {
        let upstream = &self.shard.upstream;
        let time = self.tool.timeout.unwrap_or(upstream.limits.call);
        let is_harmless = matches!(call.method, "GET" | "HEAD" | "OPTIONS")
            || self.tool.safety.idempotent == Some(true);
        let manner = Manner {
            repeat: match is_harmless {
                true => Repeat::Harmless,
                false => Repeat::IfUnsent,
            },
            first_byte: time,
            is_lateness_telling: false,
            is_stateless: false,
            is_endless: false,
            cancel: self.cancel,
        };
        let started_ms = now_ms();
        let buffer = self.shard.shard.buffers.take();
        let request = self.request(call);
        let (mut exchange, _) = upstream
            .exchange(self.target, request, manner, buffer)
            .await?;
        let spent = Duration::from_millis(now_ms().saturating_sub(started_ms));
        exchange.link.deadline().arm(time.saturating_sub(spent));
        let body = self.body(&mut exchange).await;
        let body = body.map_err(|fault| match self.cancel {
            // We have ended it ourselves.
            Some(cancel) if cancel.is_cancelled() => CallFault::Cancelled,
            _ => fault,
        })?;
        let status = exchange.head.status;
        self.shard.shard.buffers.put(upstream.finish(exchange));
        Ok(HttpReply { status, body })
    }

    async fn body(&self, exchange: &mut Exchange) -> Result<Vec<u8>, CallFault> {
        let document = self.shard.upstream.document(exchange).await;
        document.map(std::borrow::Cow::into_owned)
    }

    /// The whole request. Nothing of the client's head is in it but what [`PASSED`] names.
    fn request(&self, call: &HttpCall) -> Vec<u8> {
        let mut out = Vec::with_capacity(512 + call.body.as_ref().map_or(0, Vec::len));
        out.extend_from_slice(call.method.as_bytes());
        out.push(b' ');
        out.extend_from_slice(call.target.as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\nhost: ");
        out.extend_from_slice(self.target.authority.as_bytes());
        out.extend_from_slice(b"\r\naccept-encoding: identity\r\nuser-agent: shardgate\r\n");
        let mut line = |name: &str, value: &[u8]| {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        };
        let is_mapped = |name: &str| call.headers.iter().any(|(mapped, _)| **mapped == *name);
        line("accept", b"application/json, */*;q=0.5");
        for (name, value) in &call.headers {
            line(name, value.as_bytes());
        }
        for name in PASSED.into_iter().filter(|name| !is_mapped(name)) {
            let value = header_values(self.client_head, name).next();
            let is_sound =
                |value: &&[u8]| value.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
            if let Some(value) = value.filter(is_sound) {
                line(name, value);
            }
        }
        if let Some(own) = self.credential {
            line(&own.name, own.value.bytes());
        }
        let body = call.body.as_deref();
        if body.is_some() {
            line("content-type", b"application/json");
        }
        // RFC 9110 section 8.6: a method that means a body says when there is none.
        if body.is_some() || matches!(call.method, "POST" | "PUT" | "PATCH") {
            out.extend_from_slice(b"content-length: ");
            let length = body.map_or(0, <[u8]>::len) as u64;
            out.extend_from_slice(Decimal::new(length).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body.unwrap_or_default());
        out
    }
}
