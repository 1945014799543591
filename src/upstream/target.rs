//! Where backends are: one target for each scheme, host and port, with its idle connections.
//!
//! The pool is last-in first-out, belongs to the shard, and is bounded; a connection is in it only
//! when its last exchange was read to the end and nothing followed.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
};

use shards::{ShardId, deadline::now_ms};

use crate::{
    bridge::{Bridge, SECRET_HEADER, URL_HEADER, reverse_id, reverse_path},
    config::user_config::StdioServer,
    link::Link,
    upstream::{CallFault, breaker::Breaker, discover::Discoveries},
};

/// Connections younger than this in the pool are taken without asking the kernel whether the other
/// side has closed.
const TRUSTED_MS: u64 = 5;

/// One place backends are at.
#[derive(Debug)]
pub struct Target {
    /// Whether it is spoken to in TLS.
    pub is_tls: bool,
    /// Whether nobody on the way can read along, which the connection mode may ask for: TLS, or
    /// what is behind the bridge is TLS or a child process.
    pub is_private: bool,
    /// Only addresses of the public internet are connected to.
    pub is_guarded: bool,
    /// Host name or address, no brackets.
    pub host: Box<str>,
    /// Port.
    pub port: u16,
    /// The `Host` header's value.
    pub authority: Box<str>,
    /// What an operator knows it by: scheme and authority, or a child's virtual host and key.
    pub name: Box<str>,
    /// Fails fast when the target does.
    pub breaker: Breaker,
    /// Its addresses and until when they hold, ms.
    pub(super) addresses: RefCell<(Vec<SocketAddr>, u64)>,
    idle: RefCell<Vec<Idle>>,
    next_id: Cell<u64>,
    /// From one request id of this shard to the next.
    id_step: u64,
    /// Connections opened, for the reuse ratio.
    pub opened_count: Cell<u64>,
    /// Exchanges under way, backends' own streams not counted.
    pub in_flight: Cell<u32>,
    /// Those of them in the stateless revision.
    stateless_in_flight: Cell<u32>,
    /// Exchanges that failed.
    pub fault_count: Cell<u64>,
    /// How the last one failed, and when, ms.
    pub last_fault: Cell<Option<(CallFault, u64)>>,
    /// Which profiles its backends speak.
    pub discoveries: Discoveries,
}

#[derive(Debug)]
struct Idle {
    link: Link,
    since_ms: u64,
}

/// Which request ids are a shard's own.
#[derive(Debug, Clone, Copy)]
pub struct RequestIds {
    first: u64,
    step: u64,
}

impl RequestIds {
    /// Those of shard `id` of `count`.
    pub fn of(id: ShardId, count: u16) -> Self {
        Self {
            first: u64::from(id) + 1,
            step: u64::from(count.max(1)),
        }
    }
}

impl Default for RequestIds {
    fn default() -> Self {
        Self::of(0, 1)
    }
}

impl Target {
    fn new(ids: RequestIds, is_tls: bool, host: &str, port: u16, authority: String) -> Self {
        let scheme = if is_tls { "https" } else { "http" };
        Self {
            name: format!("{scheme}://{authority}").into(),
            is_tls,
            is_private: is_tls,
            is_guarded: false,
            host: host.into(),
            port,
            authority: authority.into(),
            breaker: Breaker::default(),
            addresses: RefCell::default(),
            idle: RefCell::default(),
            next_id: Cell::new(ids.first),
            id_step: ids.step,
            opened_count: Cell::new(0),
            in_flight: Cell::new(0),
            stateless_in_flight: Cell::new(0),
            fault_count: Cell::new(0),
            last_fault: Cell::new(None),
            discoveries: Discoveries::default(),
        }
    }

    /// A request id that neither this shard nor another has used before: a stateless client may
    /// ask again over another one, and that request must not have the first one's id (mcp.md 2.8).
    pub fn next_id(&self) -> u64 {
        self.next_id.replace(self.next_id.get() + self.id_step)
    }

    /// Keeps in mind how an exchange failed, if that says something about the target.
    pub fn remember(&self, fault: CallFault) {
        let is_ours = matches!(
            fault,
            CallFault::Busy
                | CallFault::CircuitOpen
                | CallFault::PlainTextForbidden
                | CallFault::Cancelled
                | CallFault::SessionLost
        );
        if !is_ours {
            self.fault_count.set(self.fault_count.get() + 1);
            self.last_fault.set(Some((fault, now_ms())));
        }
    }

    /// An idle connection that still stands, if there is one.
    pub fn take_idle(&self, now_ms: u64) -> Option<Link> {
        loop {
            let mut idle = self.idle.borrow_mut().pop()?;
            let is_trusted = now_ms.saturating_sub(idle.since_ms) < TRUSTED_MS;
            if is_trusted || !idle.link.has_input() {
                return Some(idle.link);
            }
        }
    }

    /// Keeps a connection for the next exchange, unless `idle_max` are kept already.
    pub fn put_idle(&self, link: Link, now_ms: u64, idle_max: usize) {
        link.deadline().disarm();
        let mut idle = self.idle.borrow_mut();
        if idle.len() < idle_max {
            idle.push(Idle {
                link,
                since_ms: now_ms,
            });
        }
    }

    /// Closes connections that were idle for longer than `idle_ms_max`, or that the other side has
    /// closed.
    pub fn sweep(&self, now_ms: u64, idle_ms_max: u64) {
        self.idle.borrow_mut().retain_mut(|idle| {
            now_ms.saturating_sub(idle.since_ms) <= idle_ms_max && !idle.link.has_input()
        });
    }

    /// Idle connections now.
    pub fn idle_count(&self) -> usize {
        self.idle.borrow().len()
    }
}

/// A place among the exchanges with a target, free again when dropped.
#[derive(Debug)]
pub struct Seat {
    /// The target.
    pub target: Rc<Target>,
    is_counted: bool,
    is_stateless: bool,
}

impl Seat {
    /// A place, if fewer than `max` are taken.
    pub fn take(target: &Rc<Target>, max: u32) -> Option<Self> {
        let taken = target.in_flight.get();
        if taken >= max {
            return None;
        }
        target.in_flight.set(taken + 1);
        Some(Self {
            target: target.clone(),
            is_counted: true,
            is_stateless: false,
        })
    }

    /// The same for a request of the stateless revision, of which `stateless_max` may be there.
    pub fn take_stateless(target: &Rc<Target>, max: u32, stateless_max: u32) -> Option<Self> {
        let taken = target.stateless_in_flight.get();
        if taken >= stateless_max {
            return None;
        }
        let mut seat = Self::take(target, max)?;
        target.stateless_in_flight.set(taken + 1);
        seat.is_stateless = true;
        Some(seat)
    }

    /// A place beside the counted ones.
    pub fn beside(target: &Rc<Target>) -> Self {
        Self {
            target: target.clone(),
            is_counted: false,
            is_stateless: false,
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.is_counted {
            self.target.in_flight.set(self.target.in_flight.get() - 1);
        }
        if self.is_stateless {
            let held = &self.target.stateless_in_flight;
            held.set(held.get() - 1);
        }
    }
}

/// All targets of a shard.
#[derive(Debug, Default)]
pub struct Targets {
    known: RefCell<HashMap<Address, Rc<Target>>>,
    bridge: Option<Arc<Bridge>>,
    ids: RequestIds,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Address {
    is_tls: bool,
    /// Behind the bridge the server's own name, and no port.
    host: Box<str>,
    port: u16,
    is_guarded: bool,
}

/// What is behind the bridge.
#[derive(Debug, Clone, Copy)]
pub enum Behind<'a> {
    /// An HTTP+SSE server, by its absolute `http` or `https` URL.
    Sse(&'a str),
    /// A child process.
    Stdio(&'a StdioServer),
    /// A server that connects to the gateway itself, by its source.
    Reverse(&'a str),
}

/// Header lines of the gateway's own.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OwnLines(pub Box<[u8]>);

/// There are secrets in them.
impl std::fmt::Debug for OwnLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OwnLines(***)")
    }
}

impl Targets {
    /// None yet; what other transports lead to is behind `bridge`.
    pub fn new(bridge: Arc<Bridge>, ids: RequestIds) -> Self {
        Self {
            known: RefCell::default(),
            bridge: Some(bridge),
            ids,
        }
    }

    /// The target of a server behind the bridge, the path there, and the lines each request needs.
    /// Each server has a target of its own: when it fails, the others are asked all the same.
    /// `None`: there is no such server here.
    pub fn of_bridge(&self, behind: Behind<'_>) -> Option<(Rc<Target>, Box<str>, OwnLines)> {
        let bridge = self.bridge.as_ref()?;
        if matches!(behind, Behind::Reverse(_)) && !bridge.takes_reverse() {
            return None;
        }
        let door = bridge.door()?;
        let mut lines = format!("{SECRET_HEADER}: {}\r\n", door.secret);
        let (key, path, is_private, name): (Box<str>, Box<str>, bool, String) = match behind {
            Behind::Sse(url) => {
                lines.push_str(&format!("{URL_HEADER}: {url}\r\n"));
                let parsed = url::Url::parse(url).ok()?;
                let name = format!("sse+{}", parsed.origin().ascii_serialization());
                (url.into(), "/sse".into(), parsed.scheme() == "https", name)
            }
            Behind::Stdio(server) => {
                let path = format!("/stdio/{}", server.id).into();
                (
                    server.id.clone(),
                    path,
                    true,
                    format!("stdio:{}", server.label),
                )
            }
            Behind::Reverse(source) => {
                let path = reverse_path(&reverse_id(source));
                // No connection of ours: who may read along was settled by whoever came.
                (path.clone(), path, true, format!("reverse:{source}"))
            }
        };
        let host = door.address.ip().to_string();
        let target = self
            .known
            .borrow_mut()
            .entry(Address {
                is_tls: false,
                host: key,
                port: 0,
                is_guarded: false,
            })
            .or_insert_with(|| {
                Rc::new(Target {
                    is_private,
                    name: name.into(),
                    ..Target::new(
                        self.ids,
                        false,
                        &host,
                        door.address.port(),
                        door.address.to_string(),
                    )
                })
            })
            .clone();
        Some((target, path, OwnLines(lines.into_bytes().into())))
    }

    /// The target of an absolute `http` or `https` URL, and the path and query to ask there.
    pub fn of_url(&self, text: &str) -> Option<(Rc<Target>, Box<str>)> {
        let url = url::Url::parse(text).ok()?;
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        Some((self.of_parsed(&url, false)?, path.into()))
    }

    /// The target of a declared tool's server; a guarded one is never connected to at an address
    /// that is not public, and shares no connection with one that may be.
    pub fn of_declared(&self, url: &url::Url, is_guarded: bool) -> Option<Rc<Target>> {
        self.of_parsed(url, is_guarded)
    }

    fn of_parsed(&self, url: &url::Url, is_guarded: bool) -> Option<Rc<Target>> {
        let is_tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let bracketed = url.host_str()?;
        let host = bracketed.trim_start_matches('[').trim_end_matches(']');
        let port = url.port_or_known_default()?;
        let authority = match url.port() {
            Some(port) => format!("{bracketed}:{port}"),
            None => bracketed.to_owned(),
        };
        let target = self
            .known
            .borrow_mut()
            .entry(Address {
                is_tls,
                host: host.into(),
                port,
                is_guarded,
            })
            .or_insert_with(|| {
                Rc::new(Target {
                    is_guarded,
                    ..Target::new(self.ids, is_tls, host, port, authority)
                })
            })
            .clone();
        Some(target)
    }

    /// Closes what was idle for too long, and forgets targets nothing refers to any more.
    pub fn sweep(&self, now_ms: u64, idle_ms_max: u64) {
        self.known.borrow_mut().retain(|_, target| {
            target.sweep(now_ms, idle_ms_max);
            Rc::strong_count(target) > 1 || target.idle_count() > 0
        });
    }

    /// All targets now.
    pub fn all(&self) -> Vec<Rc<Target>> {
        self.known.borrow().values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_shards_use_one_request_id() {
        let mut ids: Vec<u64> = (0..4)
            .map(|shard| Target::new(RequestIds::of(shard, 4), false, "h", 80, "h".into()))
            .flat_map(|target| (0..10).map(move |_| target.next_id()))
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, (1..=40).collect::<Vec<u64>>());
    }

    #[test]
    fn urls_become_targets() {
        let targets = Targets::default();
        let (a, path) = targets.of_url("http://Host.example:8080/mcp?x=1").unwrap();
        assert_eq!(
            (&*a.host, a.port, &*a.authority, &*path),
            ("host.example", 8080, "host.example:8080", "/mcp?x=1")
        );
        let (b, _) = targets.of_url("http://host.example:8080/other").unwrap();
        assert!(Rc::ptr_eq(&a, &b));
        let (c, path) = targets.of_url("https://[::1]").unwrap();
        assert_eq!(
            (&*c.host, c.port, &*c.authority, &*path),
            ("::1", 443, "[::1]", "/")
        );
        let url = url::Url::parse("http://host.example:8080/x").unwrap();
        let guarded = targets.of_declared(&url, true).unwrap();
        assert!(guarded.is_guarded && !Rc::ptr_eq(&guarded, &a));
        assert!(Rc::ptr_eq(&targets.of_declared(&url, false).unwrap(), &a));
        assert!(targets.of_url("ftp://x/").is_none());
        assert!(targets.of_url("nonsense").is_none());
    }
}
