//! What every test here plays on: a gateway with four shards, nginx in front where it is wanted,
//! and the gateway's counters.

use std::path::PathBuf;

use loadgen::backend::{Backend, BackendKind, BackendOptions, ReplyKind};

use crate::{
    nginx::Nginx,
    support::{Gateway, Plan},
};

/// A running gateway, stopped by `end`.
pub(crate) struct Stage {
    pub(crate) gateway: Gateway,
    nginx: Option<Nginx>,
}

/// Counters over all shards.
#[derive(Debug)]
pub(crate) struct Totals {
    pub(crate) handed_over: u64,
    pub(crate) forwarded: u64,
    pub(crate) calls: u64,
    /// Every counter of something that went wrong.
    pub(crate) failures: u64,
}

/// Counters that stay at zero while all is well.
const FAILURES: [&str; 9] = [
    "shardgate_calls_failed_total",
    "shardgate_refused_total",
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

    /// Four shards of this plan.
    pub(crate) fn start(plan: Plan) -> Self {
        Self {
            gateway: plan.shards(4).start(),
            nginx: None,
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
            failures: FAILURES.into_iter().map(metric).sum(),
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
