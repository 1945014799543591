//! Names to addresses, on the control thread; a shard only waits for the answer.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use shards::{ShardId, deadline::now_ms, notify::Event};

/// How long an answer is used before it is asked for again.
const ANSWER_MS: u64 = 30_000;
/// How long a shard waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A question to the control thread.
#[derive(Debug)]
pub struct Question {
    /// Who asks.
    pub shard: ShardId,
    /// Number to answer with.
    pub ticket: u64,
    /// The host name.
    pub host: Box<str>,
    /// Copied into the addresses.
    pub port: u16,
}

/// The control thread's answer; no addresses: the name has none.
#[derive(Debug)]
pub struct Answer {
    /// The question's number.
    pub ticket: u64,
    /// What the name stands for.
    pub addresses: Vec<SocketAddr>,
}

/// Sends a question; false when the control thread does not take it.
pub type Ask = Box<dyn Fn(Question) -> bool>;

/// A shard's side of name resolution.
pub struct Resolver {
    shard: ShardId,
    ask: Ask,
    may_block: bool,
    next_ticket: Cell<u64>,
    waiting: RefCell<HashMap<u64, Rc<Wait>>>,
}

/// A question under way, for all who want its answer.
struct Wait {
    ticket: u64,
    host: Box<str>,
    port: u16,
    answered: Event,
    addresses: RefCell<Vec<SocketAddr>>,
}

impl Resolver {
    /// A resolver that asks through `ask`.
    pub fn new(shard: ShardId, ask: Ask) -> Self {
        Self {
            shard,
            ask,
            may_block: false,
            next_ticket: Cell::new(0),
            waiting: RefCell::default(),
        }
    }

    /// A resolver that asks the system and waits for it: for tools, never for a serving shard.
    pub fn blocking(shard: ShardId) -> Self {
        let mut resolver = Self::new(shard, Box::new(|_| false));
        resolver.may_block = true;
        resolver
    }

    /// The addresses of `host`, which may be one itself; empty when there are none. `cache` is the
    /// target's last answer and until when it holds.
    pub async fn resolve(
        &self,
        host: &str,
        port: u16,
        cache: &RefCell<(Vec<SocketAddr>, u64)>,
    ) -> Vec<SocketAddr> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return vec![SocketAddr::new(address, port)];
        }
        if self.may_block {
            use std::net::ToSocketAddrs;
            return (host, port)
                .to_socket_addrs()
                .map(Iterator::collect)
                .unwrap_or_default();
        }
        let now = now_ms();
        if cache.borrow().1 > now {
            return cache.borrow().0.clone();
        }
        let Some(wait) = self.question(host, port) else {
            return Vec::new();
        };
        let _ = shards::task::within(PATIENCE, wait.answered.wait()).await;
        // Unless the answer did it; whoever comes next asks again.
        self.waiting.borrow_mut().remove(&wait.ticket);
        let addresses = wait.addresses.borrow().clone();
        if !addresses.is_empty() {
            *cache.borrow_mut() = (addresses.clone(), now + ANSWER_MS);
        }
        addresses
    }

    /// The question for this name: the one under way, or a new one. `None`: the control thread does
    /// not take it.
    fn question(&self, host: &str, port: u16) -> Option<Rc<Wait>> {
        let is_same = |wait: &&Rc<Wait>| *wait.host == *host && wait.port == port;
        if let Some(known) = self.waiting.borrow().values().find(is_same) {
            return Some(known.clone());
        }
        let ticket = self.next_ticket.replace(self.next_ticket.get() + 1);
        let is_taken = (self.ask)(Question {
            shard: self.shard,
            ticket,
            host: host.into(),
            port,
        });
        let wait = Rc::new(Wait {
            ticket,
            host: host.into(),
            port,
            answered: Event::default(),
            addresses: RefCell::default(),
        });
        is_taken.then(|| {
            self.waiting.borrow_mut().insert(ticket, wait.clone());
            wait
        })
    }

    /// Takes in an answer of the control thread.
    pub fn answered(&self, answer: Answer) {
        let wait = self.waiting.borrow_mut().remove(&answer.ticket);
        if let Some(wait) = wait {
            *wait.addresses.borrow_mut() = answer.addresses;
            wait.answered.fire();
        }
    }
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver")
            .field("shard", &self.shard)
            .finish_non_exhaustive()
    }
}
