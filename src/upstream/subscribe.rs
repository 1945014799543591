//! `subscriptions/listen` at a stateless backend: what it says outside calls (mcp.md 2.7).
//!
//! One stream for each listener and backend, with the listener's own filter, for as long as it
//! listens. A stream that ends is opened again after a pause; what was said meanwhile is lost, so
//! whoever listens is told that something may have changed.

use std::{pin::pin, rc::Rc, time::Duration};

use futures_util::future::{Either, select};
use shards::notify::Event;

use crate::{
    http::{ContentKind, Encoding, sse::EventParser},
    mcp::{
        json, profile,
        reply_scan::{ReplyKind, ReplyScan, scan_reply},
    },
    route::family::Family,
    session::{Place, state::OpenBackend},
    shard_state::ShardState,
    upstream::{
        Exchange, FromClient, Voice,
        exchange::{Manner, Repeat},
        request,
        rpc::is_message,
    },
};

/// Pauses before a stream that ended is opened again, ms: first and longest.
const PAUSE_MS: (u64, u64) = (1_000, 30_000);

/// The first thing a backend says.
const ACKNOWLEDGED: &[u8] = b"notifications/subscriptions/acknowledged";

/// What a listener wants to hear of one backend, in the backend's own names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wants {
    /// That its tools are others now.
    pub tools: bool,
    /// That its prompts are.
    pub prompts: bool,
    /// That its resources are.
    pub resources: bool,
    /// That one of these resources is another.
    pub uris: Vec<Box<str>>,
    /// How these tasks go.
    pub tasks: Vec<Box<str>>,
}

impl Wants {
    /// Whether it wants nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it wants to hear that the list of this family is another.
    pub fn is_family(&self, family: Family) -> bool {
        match family {
            Family::Tools => self.tools,
            Family::Prompts => self.prompts,
            Family::Resources => self.resources,
            Family::Templates | Family::Tasks => false,
        }
    }

    /// The object of `params.notifications`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut member = |name: &str, value: &[u8]| {
            out.push(if out.len() == start { b'{' } else { b',' });
            json::quote(out, name);
            out.push(b':');
            out.extend_from_slice(value);
        };
        for (name, is_wanted) in [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ] {
            if is_wanted {
                member(name, b"true");
            }
        }
        for (name, list) in [
            ("resourceSubscriptions", &self.uris),
            ("taskIds", &self.tasks),
        ] {
            if !list.is_empty() {
                let mut array = Vec::new();
                for text in list {
                    array.push(if array.is_empty() { b'[' } else { b',' });
                    json::quote(&mut array, text);
                }
                array.push(b']');
                member(name, &array);
            }
        }
        if out.len() == start {
            out.push(b'{');
        }
        out.push(b'}');
    }
}

/// What is heard.
#[derive(Debug)]
pub enum Said<'a> {
    /// The stream is open, and heard from here on.
    Open,
    /// A notification.
    Notification(&'a [u8], &'a ReplyScan),
    /// Something may have been missed.
    Gap,
}

/// Listens to a backend until nobody wants to hear it any more, or it has nothing to say at all.
/// `voice` is what it is asked with, each time anew.
pub async fn listen(
    shard: &Rc<ShardState>,
    place: &Place,
    open: &Rc<OpenBackend>,
    voice: impl Fn() -> Rc<Voice>,
    wants: &Wants,
    unwanted: &Event,
    mut on: impl FnMut(Said<'_>),
) {
    let mut pause_ms = PAUSE_MS.0;
    let mut is_first = true;
    while !unwanted.has_fired() {
        match subscribe(shard, place, open, voice().say(), wants).await {
            Ok(exchange) => {
                pause_ms = PAUSE_MS.0;
                if !std::mem::take(&mut is_first) {
                    on(Said::Gap);
                }
                hear(shard, exchange, unwanted, &mut on).await;
            }
            Err(Refused::ForGood) => return,
            Err(Refused::Now) => {}
        }
        let jitter_ms = shard.random() % (pause_ms / 4);
        let pause = pin!(shards::sleep(Duration::from_millis(pause_ms + jitter_ms)));
        if let Either::Left(_) = select(pin!(unwanted.wait()), pause).await {
            return;
        }
        pause_ms = (pause_ms * 2).min(PAUSE_MS.1);
    }
}

/// Why there is no stream.
enum Refused {
    /// It has none.
    ForGood,
    /// It may have one later.
    Now,
}

async fn subscribe(
    shard: &Rc<ShardState>,
    place: &Place,
    open: &Rc<OpenBackend>,
    client: FromClient<'_>,
    wants: &Wants,
) -> Result<Exchange, Refused> {
    const METHOD: &str = "subscriptions/listen";
    let backend = place.backend();
    let id = backend.target.next_id();
    let mut body =
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{METHOD}","params":{{"#).into_bytes();
    profile::own_meta(&mut body);
    body.extend_from_slice(b",\"notifications\":");
    wants.write(&mut body);
    body.extend_from_slice(b"}}");
    let mut http = open.head.to_vec();
    let mirror = request::Mirror::of_method(METHOD.as_bytes());
    request::finish_mirrored_head(&mut http, body.len(), &mirror, backend, client);
    http.extend_from_slice(&body);
    let manner = Manner {
        repeat: Repeat::Harmless,
        first_byte: shard.upstream.limits.first_byte,
        is_lateness_telling: false,
        is_stateless: true,
        is_endless: true,
        cancel: None,
    };
    let asked = shard
        .upstream
        .exchange(&backend.target, http, manner, Vec::new())
        .await;
    let (exchange, _) = asked.map_err(|_| Refused::Now)?;
    let head = &exchange.head;
    let is_stream = head.status == 200
        && head.content == ContentKind::EventStream
        && head.encoding == Encoding::Identity;
    match head.status {
        _ if is_stream => Ok(exchange),
        200 | 400..429 => Err(Refused::ForGood),
        _ => Err(Refused::Now),
    }
}

/// Hears a stream to its end.
async fn hear(
    shard: &Rc<ShardState>,
    mut exchange: Exchange,
    unwanted: &Event,
    on: &mut impl FnMut(Said<'_>),
) {
    // Silence is what such a stream is made of.
    exchange.link.deadline().disarm();
    let limits = &shard.upstream.limits;
    let mut parser = EventParser::new(limits.event_bytes_max);
    let mut piece = Vec::new();
    loop {
        if exchange.body.needs_input() {
            let input = pin!(exchange.link.readable());
            if let Either::Right(_) = select(input, pin!(unwanted.wait())).await {
                return;
            }
        }
        piece.clear();
        exchange.link.deadline().arm(limits.first_byte);
        let read = exchange.body.piece(&mut exchange.link, &mut piece).await;
        exchange.link.deadline().disarm();
        if read != Ok(true) {
            return;
        }
        let mut is_over = false;
        let fed = parser.feed(&piece, |event| {
            if !is_message(event.name) || event.data.is_empty() {
                return;
            }
            let Ok(scan) = scan_reply(event.data) else {
                return;
            };
            let method = scan.method.map_or(&b""[..], |span| span.slice(event.data));
            match scan.kind {
                ReplyKind::Notification if method == ACKNOWLEDGED => on(Said::Open),
                ReplyKind::Notification => on(Said::Notification(event.data, &scan)),
                // Its graceful end (mcp.md 2.7).
                ReplyKind::Result | ReplyKind::Error => is_over = true,
                ReplyKind::Request => {}
            }
        });
        if fed.is_err() || is_over {
            return;
        }
    }
}

/// Whether a stateless backend tells when a resource is another.
pub fn takes_uris(open: &OpenBackend) -> bool {
    says(open, "resources", "subscribe")
}

fn says(open: &OpenBackend, family: &str, flag: &str) -> bool {
    let capabilities = &*open.capabilities;
    json::member(capabilities, family).is_some_and(|family| {
        let family = family.slice(capabilities);
        json::member(family, flag).is_some_and(|value| value.slice(family) == b"true")
    })
}

/// What a backend offers of what is wanted.
pub fn offered(open: &OpenBackend, mut wants: Wants) -> Wants {
    if !open.version.is_stateless() {
        return Wants::default();
    }
    wants.tools &= says(open, "tools", "listChanged");
    wants.prompts &= says(open, "prompts", "listChanged");
    wants.resources &= says(open, "resources", "listChanged");
    if !takes_uris(open) {
        wants.uris.clear();
    }
    wants
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_written_as_the_protocol_has_them() {
        let written = |wants: &Wants| {
            let mut out = Vec::new();
            wants.write(&mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(&Wants::default()), "{}");
        let all = Wants {
            tools: true,
            prompts: false,
            resources: true,
            uris: vec!["a:1".into(), "b\"".into()],
            tasks: vec!["t".into()],
        };
        assert_eq!(
            written(&all),
            r#"{"toolsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["a:1","b\""],"taskIds":["t"]}"#
        );
    }
}
