//! What tests that drive a whole gateway through sockets share: `#[path = "support/support.rs"]
//! mod support;`.
//!
//! A gateway of the test's own, a client that sees every byte, a backend that says what the test
//! wants. Nothing here sleeps: what must wait waits for an event, with a deadline that only a
//! failing test reaches.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test binary uses a part of it"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

mod asked;
mod backend;
mod client;
mod fault_proxy;
mod gateway;
mod head;
mod listening;
mod mcp;
mod modern;
mod refusing;
mod speaker;

use std::{
    sync::{Condvar, Mutex},
    time::{Duration, Instant},
};

pub use asked::Asked;
pub use backend::{Backend, Script, Wire};
pub use client::{Ask, Connection, Event, Response, Transport, find};
pub use fault_proxy::{Effect, Fault, FaultProxy, Side};
pub use gateway::{Gateway, HOST, LAYOUTS, Layout, Plan};
pub use head::Headers;
pub use listening::Listening;
pub use mcp::{EventStream, McpClient, VERSION, call_body, initialize_body};
pub use modern::{ModernClient, STATELESS, modern_body, modern_request};
pub use refusing::Refusing;
pub use speaker::{Speaker, event, request, response};

/// Longer than anything here takes on a busy machine; reached only by a failing test.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The limit of one wait, whatever else comes meanwhile: a connection that is kept alive is never
/// silent for [`PATIENCE`], and neither is who waits for something on it.
pub struct Limit(Instant);

impl Limit {
    /// From now on.
    pub fn begin() -> Self {
        Self(Instant::now() + PATIENCE)
    }

    /// Fails the test when the time is over.
    #[track_caller]
    pub fn check(&self, what: &str) {
        assert!(!self.left().is_zero(), "never came: {what}");
    }

    /// What is left of it.
    pub fn left(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// A gate that threads wait at until the test opens it.
#[derive(Default)]
pub struct Gate {
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    /// Opens it for good.
    pub fn open(&self) {
        self.state.lock().unwrap().0 = true;
        self.changed.notify_all();
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        self.state.lock().unwrap().0
    }

    /// Counts as one that has come, and goes on.
    pub fn arrive(&self) {
        self.state.lock().unwrap().1 += 1;
        self.changed.notify_all();
    }

    /// Waits until it is open.
    pub fn wait(&self) {
        self.arrive();
        let state = self.state.lock().unwrap();
        let (_state, late) = self
            .changed
            .wait_timeout_while(state, PATIENCE, |state| !state.0)
            .unwrap();
        assert!(!late.timed_out(), "nobody opened the gate");
    }

    /// Waits until `count` threads have come to it.
    pub fn await_arrivals(&self, count: usize) {
        let state = self.state.lock().unwrap();
        let (state, late) = self
            .changed
            .wait_timeout_while(state, PATIENCE, |state| state.1 < count)
            .unwrap();
        assert!(!late.timed_out(), "{} of {count} came", state.1);
    }
}

/// Asks again and again until `probe` has something to say.
pub fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "never came true: {what}");
        // Not for time to pass, but for others to run.
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
