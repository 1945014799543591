//! What the bridge counts of reverse-connected servers, as Prometheus text.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// The counters, written by the bridge's thread.
#[derive(Debug, Default)]
pub struct ReverseNumbers {
    connected: AtomicU64,
    came: AtomicU64,
    refused: AtomicU64,
    heard: AtomicU64,
    sent: AtomicU64,
    failed: AtomicU64,
}

impl ReverseNumbers {
    /// A server has come.
    pub(super) fn came(&self) {
        self.connected.fetch_add(1, Relaxed);
        self.came.fetch_add(1, Relaxed);
    }

    /// A server has left.
    pub(super) fn left(&self) {
        self.connected.fetch_sub(1, Relaxed);
    }

    /// A server did not initialize.
    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// A message of a server.
    pub(super) fn heard(&self) {
        self.heard.fetch_add(1, Relaxed);
    }

    /// A message for a server.
    pub(super) fn sent(&self) {
        self.sent.fetch_add(1, Relaxed);
    }

    /// A call failed because its server had left, was not there or was late.
    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    /// As Prometheus text.
    pub fn as_text(&self) -> String {
        let mut out = String::new();
        for (name, kind, help, counter) in [
            (
                "servers",
                "gauge",
                "Reverse-connected servers.",
                &self.connected,
            ),
            (
                "servers_connected_total",
                "counter",
                "Reverse-connected servers that came.",
                &self.came,
            ),
            (
                "servers_refused_total",
                "counter",
                "Reverse-connected servers that did not initialize.",
                &self.refused,
            ),
            (
                "messages_received_total",
                "counter",
                "Messages of reverse-connected servers.",
                &self.heard,
            ),
            (
                "messages_sent_total",
                "counter",
                "Messages to reverse-connected servers.",
                &self.sent,
            ),
            (
                "calls_failed_total",
                "counter",
                "Requests that failed because a reverse-connected server was not there or left.",
                &self.failed,
            ),
        ] {
            let value = counter.load(Relaxed);
            // Writing to a text cannot fail.
            let _ = writeln!(
                out,
                "# HELP shardgate_reverse_{name} {help}\n# TYPE shardgate_reverse_{name} {kind}\n\
                 shardgate_reverse_{name} {value}"
            );
        }
        out
    }
}
