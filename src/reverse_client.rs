//! `shardgate reverse`: puts an MCP server that nobody can connect to behind a gateway.
//!
//! Connects to the gateway and stays connected: WebSocket text frames, one JSON-RPC message each;
//! the gateway speaks first, with `initialize`. Each connection is one MCP session, so each has a
//! local server of its own: a new child process, or a new session with an HTTP server. The server
//! is there before the gateway is asked; who is connected can be called.
//!
//! `channel`, `calls` and `retry` decide without I/O; `session` and `local` carry bytes. Runs on a
//! Tokio runtime of its own and needs no shards.

mod calls;
mod channel;
mod local;
mod opening;
mod retry;
mod session;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ring::rand::{SecureRandom, SystemRandom};
use tokio::{sync::watch, time::sleep};

use self::{
    local::{Local, StartFault},
    opening::{Door, Opened},
    retry::{Ended, Next, Retry},
};
use crate::settings::ReverseSettings;

/// Bytes of one message in either direction.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Stays connected until `stop` becomes true. `tell` gets lines for the operator, none with a
/// secret in it.
///
/// # Errors
/// Why another attempt would be useless.
pub async fn run(
    settings: &ReverseSettings,
    tls: Arc<rustls::ClientConfig>,
    mut stop: watch::Receiver<bool>,
    tell: impl Fn(&str),
) -> Result<(), String> {
    let client = Client {
        door: Door {
            url: settings.to.clone(),
            tls: tls.clone(),
            headers: settings.headers.clone(),
        },
        settings,
        tls,
    };
    let mut ready = None;
    let outcome = client.stay(&mut ready, &mut stop, &tell).await;
    if let Some(local) = ready {
        local.end().await;
    }
    outcome
}

struct Client<'a> {
    door: Door,
    settings: &'a ReverseSettings,
    tls: Arc<rustls::ClientConfig>,
}

/// Why there is no connection.
enum Unopened {
    /// It will not be otherwise the next time.
    Final(String),
    /// For now.
    Failed(Ended),
}

impl Client<'_> {
    /// Connects again and again. `ready` is a local server that no connection has used.
    async fn stay(
        &self,
        ready: &mut Option<Local>,
        stop: &mut watch::Receiver<bool>,
        tell: &impl Fn(&str),
    ) -> Result<(), String> {
        let mut retry = Retry::default();
        let mut stopped = stop.clone();
        loop {
            let opened = tokio::select! {
                opened = self.open(ready) => opened,
                _ = stopped.wait_for(|is_stopped| *is_stopped) => return Ok(()),
            };
            let (ended, lived) = match (opened, ready.take()) {
                (Ok(opened), Some(mut local)) => {
                    retry.opened();
                    tell(&format!("connected to {}", self.settings.shown()));
                    let since = Instant::now();
                    let ended = session::run(opened, &mut local, stop, tell).await;
                    let lived = since.elapsed();
                    // Before another starts: two may not get along.
                    let how = local.end().await;
                    match ended {
                        Ended::Local(None) => (Ended::Local(Some(how)), lived),
                        other => (other, lived),
                    }
                }
                (opened, unused) => {
                    *ready = unused;
                    match opened.err() {
                        Some(Unopened::Final(why)) => return Err(why),
                        Some(Unopened::Failed(ended)) => (ended, Duration::ZERO),
                        None => (Ended::Cut, Duration::ZERO),
                    }
                }
            };
            if *stop.borrow() {
                return Ok(());
            }
            let may_change = self.settings.token.may_change();
            let pause = match retry.next(&ended, lived, may_change, Instant::now(), chance()) {
                Next::Stop(why) => return Err(why),
                Next::Again(pause, why) => {
                    let seconds = pause.as_secs_f64();
                    tell(&format!("{why}; trying again in {seconds:.1} s"));
                    pause
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                _ = stopped.wait_for(|is_stopped| *is_stopped) => return Ok(()),
            }
        }
    }

    /// Has a local server ready and opens a connection for it.
    async fn open(&self, ready: &mut Option<Local>) -> Result<Opened, Unopened> {
        let local = match ready {
            Some(local) => local,
            None => {
                let started = Local::start(&self.settings.server, &self.tls).await;
                ready.insert(started.map_err(|StartFault { how, is_final }| {
                    if is_final {
                        Unopened::Final(format!("the local server {how}"))
                    } else {
                        Unopened::Failed(Ended::Local(Some(how)))
                    }
                })?)
            }
        };
        let token = self.settings.token.read().map_err(Unopened::Final)?;
        let opened = tokio::select! {
            opened = self.door.open(&token) => Some(opened),
            () = local.input.closed() => None,
        };
        match (opened, ready.take_if(|local| local.input.is_closed())) {
            (Some(Ok(opened)), None) => Ok(opened),
            (Some(Err(fault)), None) => Err(Unopened::Failed(Ended::Unopened(fault))),
            (_, Some(local)) => Err(Unopened::Failed(Ended::Local(Some(local.end().await)))),
            (None, None) => Err(Unopened::Failed(Ended::Local(None))),
        }
    }
}

/// A number nobody can foresee; without one, pauses are not spread.
fn chance() -> u16 {
    let mut bytes = [0; 2];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => u16::from_ne_bytes(bytes),
        Err(_) => 0,
    }
}
