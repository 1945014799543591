//! What a client sends that wants no reply: notifications, and its answers to what backends asked.
//!
//! All of it is taken with 202 (mcp.md 1.2); what belongs to nobody is dropped.

use std::{rc::Rc, time::Duration};

use futures_util::future::join_all;

use crate::{
    http::Span,
    mcp::{
        edits::Edits,
        envelope::{Envelope, Kind},
        json,
    },
    request::Caller,
    route::rewrite,
    session::{Place, Session, calls::ClientCall},
    shard_state::ShardState,
    upstream::{
        FromClient, Voice,
        say::{self, Listener},
    },
};

/// Time for a backend to take a cancellation before the connection of its call is ended.
const CANCEL_PATIENCE: Duration = Duration::from_secs(5);

/// Takes a message.
pub fn take(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    session: &Rc<Session>,
    message: &Envelope,
) {
    let body = caller.body;
    let taker = Taker {
        shard,
        caller,
        session,
        message,
        body,
    };
    if message.kind == Kind::Response {
        taker.answer();
        return;
    }
    let method = message.method.map_or(&b""[..], |span| span.slice(body));
    match method {
        // Backends have been told when they were opened.
        b"notifications/initialized" => {}
        b"notifications/cancelled" => taker.cancel(),
        b"notifications/progress" => taker.progress(),
        b"notifications/roots/list_changed" | b"notifications/tasks/status" => taker.tell_all(),
        // One backend is spoken to as if we were not there.
        _ if caller.host.is_single => taker.tell_all(),
        _ => {}
    }
}

struct Taker<'a, 'b> {
    shard: &'a Rc<ShardState>,
    caller: &'a Caller<'b>,
    session: &'a Rc<Session>,
    message: &'a Envelope,
    body: &'a [u8],
}

impl Taker<'_, '_> {
    /// An answer goes to the backend that asked, under its own id.
    fn answer(&self) {
        let Some(id) = self.message.id else { return };
        let asked = self.session.asked.borrow_mut().take(id.slice(self.body));
        let Some(asked) = asked else {
            self.shard.numbers.client_answers_unknown.add(1);
            return;
        };
        if let Some((answers, index)) = asked.waiter {
            let result = self.message.result.map(|span| span.slice(self.body));
            answers.put(index, result.map(Box::from));
            return;
        }
        let mut edits = Edits::default();
        edits.put_copy(id, &asked.backend_id);
        let to = Listener {
            place: asked.place,
            open: asked.open,
        };
        self.say(to, edits);
    }

    fn progress(&self) {
        let Some(token) = self.member("progressToken") else {
            return;
        };
        let asked = self.session.asked.borrow();
        let Some(asked) = asked.get(token.slice(self.body)) else {
            return;
        };
        let Some(theirs) = &asked.progress_token else {
            return;
        };
        let mut edits = Edits::default();
        edits.put_copy(token, theirs);
        let to = Listener {
            place: asked.place.clone(),
            open: asked.open.clone(),
        };
        self.say(to, edits);
    }

    /// Gives up the request with that id: each backend that works on it is told once, with its own
    /// id, then the connection that waits for the reply is ended (market.md S9).
    fn cancel(&self) {
        let Some(id) = self.message.request_id else {
            return;
        };
        let Some(call) = self.session.calls.find(id.slice(self.body)) else {
            return;
        };
        if call.cancel.is_cancelled() {
            return;
        }
        call.give_up();
        self.shard.numbers.calls_cancelled.add(1);
        // A stateless backend sees its connection end (mcp.md 2.6).
        let legs = call.legs().into_iter();
        let legs = legs.filter(|leg| !leg.open.version.is_stateless());
        let told = legs.map(|leg| {
            let mut edits = Edits::default();
            edits.put(id, leg.upstream_id.to_string().into_bytes());
            let to = Listener {
                place: leg.place,
                open: leg.open,
            };
            let message = self.for_backend(&to.place, edits);
            (to, message)
        });
        let told: Vec<(Listener, Vec<u8>)> = told.collect();
        let client = FromClient::of(self.caller.request, &self.caller.principal);
        tell_and_cut(self.shard, call, told, client.keep());
    }

    fn tell_all(&self) {
        for (index, link) in self.session.all_backends().into_iter().enumerate() {
            let host = self.session.backends.borrow().host.clone();
            if let Some(open) = link.open().filter(|open| !open.version.is_stateless()) {
                let to = Listener {
                    place: Place { host, index },
                    open,
                };
                self.say(to, Edits::default());
            }
        }
    }

    fn say(&self, to: Listener, edits: Edits) {
        if to.place.backend().admit(&self.caller.principal).is_err() {
            self.shard.numbers.backend_answers_failed.add(1);
            return;
        }
        let message = self.for_backend(&to.place, edits);
        let client = FromClient::of(self.caller.request, &self.caller.principal);
        say::say(self.shard, self.session, to, message, client);
    }

    fn for_backend(&self, place: &Place, mut edits: Edits) -> Vec<u8> {
        rewrite::original_related_task(
            &place.host,
            place.index,
            self.body,
            self.message,
            &mut edits,
        );
        let mut message = Vec::with_capacity(self.body.len() + 32);
        edits.apply(&mut message, self.body);
        message
    }

    fn member(&self, name: &str) -> Option<Span> {
        let params = self.message.params?;
        let found = json::member(params.slice(self.body), name)?;
        Some(json::within(params, found))
    }
}

/// Gives up a request whose client has left: each backend with a session is told, then the
/// connections that wait for replies are ended. `client` is the request.
pub fn abandon(shard: &Rc<ShardState>, call: &Rc<ClientCall>, client: FromClient<'_>) {
    call.give_up();
    let legs = call.legs().into_iter();
    let told = legs.filter(|leg| !leg.open.version.is_stateless()).map(|leg| {
        let message = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{}}}}}"#,
            leg.upstream_id
        );
        let to = Listener {
            place: leg.place,
            open: leg.open,
        };
        (to, message.into_bytes())
    });
    let told: Vec<(Listener, Vec<u8>)> = told.collect();
    match told.is_empty() {
        true => call.cancel.cut(),
        false => tell_and_cut(shard, call.clone(), told, client.keep()),
    }
}

fn tell_and_cut(
    shard: &Rc<ShardState>,
    call: Rc<ClientCall>,
    told: Vec<(Listener, Vec<u8>)>,
    voice: Voice,
) {
    let shard = shard.clone();
    shards::spawn(async move {
        let all = told.iter().map(|(to, message)| {
            let (shard, voice) = (&shard, &voice);
            async move {
                if voice.admit(to.place.backend()).is_err() {
                    return;
                }
                let told = say::say_now(shard, to, message, voice.say(), CANCEL_PATIENCE).await;
                if told.is_err() {
                    shard.numbers.backend_answers_failed.add(1);
                }
            }
        });
        join_all(all).await;
        call.cancel.cut();
    });
}
