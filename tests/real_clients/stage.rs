//! What every test here plays on: a gateway with four shards, its backends, its counters.

use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

use loadgen::backend::{Backend, BackendKind, BackendOptions, ReplyKind};
use serde_json::{Value, json};
use shardgate::{
    gateway::Gateway,
    settings::{Secret, Settings, StoreSource},
};

use crate::nginx::Nginx;

/// A running gateway, stopped cleanly by `end`.
pub(crate) struct Stage {
    gateway: Gateway,
    folder: PathBuf,
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

impl Stage {
    /// Four shards, these servers merged for anyone.
    pub(crate) fn open(servers: &[(&str, &str)]) -> Self {
        let servers: serde_json::Map<String, Value> = servers
            .iter()
            .map(|(name, url)| ((*name).to_owned(), json!({"url": url})))
            .collect();
        Self::start(&json!({"mcpServers": servers}), None)
    }

    /// Four shards, this configuration; with a secret, tokens signed with it are asked for.
    pub(crate) fn start(document: &Value, secret: Option<&str>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("shardgate-clients-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("users.json");
        std::fs::write(&file, document.to_string()).unwrap();
        let mut settings = Settings::testing();
        settings.shards.count = NonZeroUsize::new(4);
        settings.store.source = StoreSource::File(file);
        settings.state_dir = folder.join("state");
        if let Some(secret) = secret {
            settings.access.allow_anonymous = false;
            settings.auth.secret = Some(Secret::new(secret));
        }
        let gateway = Gateway::start(settings).unwrap();
        Self {
            gateway,
            folder,
            nginx: None,
        }
    }

    /// Puts nginx in front, with this many kept connections to the gateway.
    pub(crate) fn behind_nginx(mut self, kept: u32) -> Self {
        let upstream = self.gateway.address.unwrap();
        self.nginx = Some(Nginx::start(&self.folder, upstream, kept));
        self
    }

    /// Where clients come to.
    pub(crate) fn address(&self) -> SocketAddr {
        match &self.nginx {
            Some(nginx) => nginx.address,
            None => self.gateway.address.unwrap(),
        }
    }

    /// The endpoint of the default virtual host.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address())
    }

    /// The counters as they are.
    pub(crate) fn totals(&self) -> Totals {
        let view = &self.gateway.view;
        let mut totals = Totals {
            handed_over: 0,
            forwarded: 0,
            calls: 0,
            failures: 0,
        };
        for engine in view.engine.iter() {
            totals.handed_over += engine.handed_over.value();
            totals.forwarded += engine.forwarded.value();
            totals.failures += engine.ring_full.value() + engine.accept_errors.value();
        }
        for numbers in view.numbers.iter() {
            totals.calls += numbers.calls.value();
            totals.failures += numbers.calls_failed.value()
                + numbers.refused.value()
                + numbers.panics.value()
                + numbers.backend_open_failed.value()
                + numbers.backend_reopened.value()
                + numbers.backend_end_failed.value()
                + numbers.lists_partial.value();
        }
        totals
    }

    /// Stops everything; nothing may be cut off.
    pub(crate) fn end(self) {
        drop(self.nginx);
        assert!(self.gateway.stop(), "the gateway drained cleanly");
        std::fs::remove_dir_all(&self.folder).unwrap();
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
