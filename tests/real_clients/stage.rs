//! What every test here plays on: a gateway with four shards, nginx in front where it is wanted,
//! and the gateway's counters.

use std::{
    path::PathBuf,
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use loadgen::backend::{Backend, BackendKind, BackendOptions, ReplyKind};

use crate::{
    nginx::Nginx,
    support::{Gateway, Plan},
};

/// Held while a stage stands: those where time is looked at stand alone.
static TURNS: RwLock<()> = RwLock::new(());

#[expect(dead_code, reason = "they are held, not read")]
enum Turn {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

/// A running gateway, stopped by `end`.
pub(crate) struct Stage {
    pub(crate) gateway: Gateway,
    nginx: Option<Nginx>,
    _turn: Turn,
}

/// Counters over all shards.
#[derive(Debug)]
pub(crate) struct Totals {
    pub(crate) handed_over: u64,
    pub(crate) forwarded: u64,
    pub(crate) calls: u64,
    /// Counters of something that went wrong, those above zero.
    pub(crate) failures: Vec<(&'static str, u64)>,
}

/// Counters that stay at zero while all is well. Refusals are not among them: a client that ends
/// its session may still have its GET under way, and any other refusal it reports itself.
const FAILURES: [&str; 8] = [
    "shardgate_calls_failed_total",
    "shardgate_panics_total",
    "shardgate_backend_sessions_failed_total",
    "shardgate_backend_sessions_reopened_total",
    "shardgate_backend_deletes_failed_total",
    "shardgate_lists_partial_total",
    "shardgate_ring_full_total",
    "shardgate_accept_errors_total",
];

impl Stage {
    /// Four shards, these backends merged for anyone.
    pub(crate) fn open(backends: &[(&str, &str)]) -> Self {
        Self::start(Plan::of(backends))
    }

    /// The same while no other test of this file runs.
    pub(crate) fn open_alone(backends: &[(&str, &str)]) -> Self {
        let turn = TURNS.write().unwrap_or_else(PoisonError::into_inner);
        Self::on(Plan::of(backends), Turn::Alone(turn))
    }

    /// Four shards of this plan.
    pub(crate) fn start(plan: Plan) -> Self {
        let turn = TURNS.read().unwrap_or_else(PoisonError::into_inner);
        Self::on(plan, Turn::Shared(turn))
    }

    fn on(plan: Plan, turn: Turn) -> Self {
        Self {
            gateway: plan.shards(4).start(),
            nginx: None,
            _turn: turn,
        }
    }

    /// Puts nginx in front, with this many kept connections to the gateway.
    pub(crate) fn behind_nginx(mut self, kept: u32) -> Self {
        let folder: PathBuf = self.gateway.config_path().parent().unwrap().to_owned();
        self.nginx = Some(Nginx::start(&folder, self.gateway.address, kept));
        self
    }

    /// Where clients come to.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        match &self.nginx {
            Some(nginx) => nginx.address,
            None => self.gateway.address,
        }
    }

    /// The endpoint of the virtual host.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/servers/main/mcp", self.address())
    }

    /// The counters as they are.
    pub(crate) fn totals(&self) -> Totals {
        let metric = |name| self.gateway.metric(name);
        Totals {
            handed_over: metric("shardgate_handed_over_total"),
            forwarded: metric("shardgate_forwarded_total"),
            calls: metric("shardgate_calls_total"),
            failures: FAILURES
                .into_iter()
                .map(|name| (name, metric(name)))
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }

    /// Stops everything; nothing may be cut off.
    pub(crate) fn end(self) {
        drop(self.nginx);
        assert!(self.gateway.stop(), "the gateway drained cleanly");
    }
}

/// A sample backend of ours.
pub(crate) fn sample(kind: BackendKind, reply: ReplyKind) -> Backend {
    Backend::start(BackendOptions {
        kind,
        reply,
        ..Default::default()
    })
    .unwrap()
}
