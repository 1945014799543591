//! `tools/call`: one tool of one backend. This is the hot path.

use std::{rc::Rc, time::Instant};

use crate::{
    http::Span,
    mcp::{envelope::Envelope, json},
    method::{id_of, tools_list},
    preflight::text,
    refusal::Refusal,
    reply::{
        Reply,
        relay::{Call, Cut, relay},
    },
    request::Caller,
    route::{family::Family, names::route_tool},
    session::{BackendSession, Session, state::OpenBackend},
    shard_state::ShardState,
    upstream::{
        CallFault,
        exchange::{Manner, Repeat},
        open, request,
    },
};

/// Relays one call. A backend that lost its session is opened again and asked once more: the first
/// request reached no tool (market.md S4).
pub async fn call(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    session: &Rc<Session>,
    message: &Envelope,
    started: Instant,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let id = id_of(caller, message);
    let body = caller.request.body_bytes();
    let id_at = message.id.ok_or(Refusal::Internal)?;
    let name_at = message
        .name
        .ok_or_else(|| Refusal::rpc(id, -32602, "Invalid params: name"))?;
    let name = text(Some(name_at.slice(body)))
        .ok_or_else(|| Refusal::rpc(id, -32602, "Invalid params: name"))?;
    let is_doubtful = session.learned.borrow().lacks(&caller.host, Family::Tools);
    if is_doubtful {
        // Prefixes alone do not tell the backend: learn the exact names first.
        Box::pin(tools_list::gather(shard, caller, session)).await;
    }
    let route = route_tool(&caller.host, &session.learned.borrow(), &name)
        .ok_or_else(|| Refusal::rpc(id, -32602, "Routing problem... tool not found"))?;
    let link = session
        .backend(&caller.host, route.backend)
        .ok_or_else(|| Refusal::Backend(id.into(), CallFault::Reconfigured))?;
    let mut renamed = Vec::new();
    if *route.original != *name {
        json::quote(&mut renamed, &route.original);
    }
    let attempt = Attempt {
        shard,
        caller,
        link: &link,
        backend: route.backend,
        body,
        id_at,
        name_at,
        renamed: &renamed,
        client_id: id,
    };
    shard.numbers.calls.add(1);
    let mut is_second = false;
    let outcome = loop {
        let opened = match link.open() {
            Some(opened) => opened,
            None => {
                let patience = shard.upstream.limits.first_byte;
                let place = (&caller.host, route.backend);
                let opening = open::ensure(shard, session, place, &link, patience);
                match Box::pin(opening).await {
                    Ok(opened) => opened,
                    Err(fault) => break Err(Cut::Backend(fault)),
                }
            }
        };
        match attempt.run(&opened, started, reply).await {
            Err(Cut::Backend(CallFault::SessionLost)) if !is_second => {
                is_second = true;
                link.forget(&opened);
                shard.numbers.backend_reopened.add(1);
            }
            outcome => break outcome,
        }
    };
    match outcome {
        Err(Cut::Backend(fault)) => {
            shard.numbers.calls_failed.add(1);
            Err(Refusal::Backend(id.into(), fault))
        }
        // A client that left is no refusal; its connection closes.
        Ok(()) | Err(Cut::Client) => Ok(()),
    }
}

/// What every attempt of one call shares.
struct Attempt<'a, 'b> {
    shard: &'a Rc<ShardState>,
    caller: &'a Caller<'b>,
    link: &'a BackendSession,
    backend: usize,
    body: &'a [u8],
    id_at: Span,
    name_at: Span,
    renamed: &'a [u8],
    client_id: &'a [u8],
}

impl Attempt<'_, '_> {
    async fn run(
        &self,
        open: &Rc<OpenBackend>,
        started: Instant,
        reply: &mut Reply<'_>,
    ) -> Result<(), Cut> {
        let shard = self.shard;
        let mut upstream_id = Vec::with_capacity(20);
        request::decimal(&mut upstream_id, self.link.next_id());
        let http = self.request(open, &upstream_id);
        let manner = Manner {
            repeat: Repeat::IfUnsent,
            first_byte: shard.upstream.limits.first_byte,
            is_lateness_telling: false,
        };
        let sent = Instant::now();
        let target = &self.caller.host.backends[self.backend].target;
        let buffer = shard.shard.buffers.take();
        let (exchange, http) = shard
            .upstream
            .exchange(target, http, manner, buffer)
            .await?;
        let upstream_us = micros(sent);
        shard.shard.buffers.put(http);
        let call = Call {
            host: &self.caller.host,
            backend: self.backend,
            open,
            client_id: self.client_id,
            upstream_id: &upstream_id,
        };
        let result = relay(shard, &call, exchange, reply).await;
        shard
            .latency
            .borrow_mut()
            .record(micros(started), upstream_us);
        result
    }

    /// The request to the backend: its own head, the caller's body with our id and the tool's own
    /// name.
    fn request(&self, open: &OpenBackend, upstream_id: &[u8]) -> Vec<u8> {
        let id_edit = (self.id_at, upstream_id);
        let name_edit = (self.name_at, self.renamed);
        let edits: &[(Span, &[u8])] = if self.renamed.is_empty() {
            &[id_edit]
        } else if self.id_at.start < self.name_at.start {
            &[id_edit, name_edit]
        } else {
            &[name_edit, id_edit]
        };
        let length = edits.iter().fold(self.body.len(), |length, (span, new)| {
            length - span.len() + new.len()
        });
        let mut http = self.shard.shard.buffers.take();
        http.extend_from_slice(&open.head);
        let backend = &self.caller.host.backends[self.backend];
        request::finish_head(&mut http, length, backend, self.caller.request.head_bytes());
        json::splice(&mut http, self.body, edits);
        http
    }
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
