//! A connection to a target: from its pool, or a new one under the connection mode.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use rustls::{ClientConfig, pki_types::ServerName};
use shards::{Deadlines, Stream, clock::coarse_ms, deadline::now_ms};

use crate::{
    link::Link,
    settings::UpstreamMode,
    upstream::{
        CallFault,
        guard::is_forbidden,
        resolve::Resolver,
        target::{Target, Targets},
    },
};

/// Addresses of a target tried for one connection: each may take the whole time for it.
const ADDRESSES_MAX: usize = 4;

/// Limits of the backend side.
#[derive(Debug, Clone)]
pub struct UpstreamLimits {
    /// Time for a connection, TLS included.
    pub connect: Duration,
    /// Time until the first byte of a reply.
    pub first_byte: Duration,
    /// Time for a whole call.
    pub call: Duration,
    /// Time for one backend inside `initialize` and the lists.
    pub fan_out: Duration,
    /// Time for a client to answer what a backend asks it.
    pub client_answer: Duration,
    /// A silent time after which an event stream gets a heartbeat.
    pub heartbeat: Duration,
    /// Exchanges with a target under way.
    pub in_flight_max: u32,
    /// Those of them in the stateless revision.
    pub stateless_in_flight_max: u32,
    /// Idle connections kept for a target.
    pub idle_per_target_max: usize,
    /// How long they are kept, ms.
    pub idle_ms_max: u64,
    /// Bytes of a buffered reply, decoded.
    pub reply_bytes_max: usize,
    /// Bytes of one event of a stream.
    pub event_bytes_max: usize,
}

/// What a shard needs to reach backends.
#[derive(Debug)]
pub struct Upstream {
    /// Where they are.
    pub targets: Targets,
    /// Which schemes are allowed.
    pub mode: UpstreamMode,
    /// Client side of TLS, with the client certificate in the mTLS modes.
    pub tls: RefCell<Arc<ClientConfig>>,
    /// Limits.
    pub limits: UpstreamLimits,
    /// Names to addresses.
    pub resolver: Rc<Resolver>,
    /// The shard's deadlines.
    pub deadlines: Deadlines,
}

impl Upstream {
    /// Whether the mode lets us speak to `target` at all (contextforge.md 1.3).
    fn is_allowed(&self, target: &Target) -> bool {
        target.is_private
            || matches!(
                self.mode,
                UpstreamMode::PlainTextOrTls | UpstreamMode::PlainTextOrMtls
            )
    }

    /// A connection to `target`; true: it comes from the pool.
    pub async fn connection(&self, target: &Rc<Target>) -> Result<(Link, bool), CallFault> {
        if let Some(link) = target.take_idle(coarse_ms()) {
            return Ok((link, true));
        }
        Ok((self.dial(target).await?, false))
    }

    /// A new connection to `target`. What fails counts against its breaker.
    pub async fn dial(&self, target: &Rc<Target>) -> Result<Link, CallFault> {
        if !self.is_allowed(target) {
            return Err(CallFault::PlainTextForbidden);
        }
        if !target.breaker.admit(now_ms()) {
            return Err(CallFault::CircuitOpen);
        }
        let result = Box::pin(self.dial_now(target)).await;
        if let Err(fault) = result {
            target.breaker.failed(now_ms());
            target.remember(fault);
        }
        result
    }

    async fn dial_now(&self, target: &Rc<Target>) -> Result<Link, CallFault> {
        let addresses = self
            .resolver
            .resolve(&target.host, target.port, &target.addresses)
            .await;
        // One forbidden address condemns the name: which one is used is up to chance.
        if target.is_guarded && addresses.iter().any(|one| is_forbidden(one.ip())) {
            return Err(CallFault::AddressForbidden);
        }
        let mut fault = CallFault::Unresolved;
        for address in addresses.into_iter().take(ADDRESSES_MAX) {
            match Stream::connect(address, self.limits.connect, &self.deadlines).await {
                Ok(stream) => {
                    target.opened_count.set(target.opened_count.get() + 1);
                    return self.secure(target, stream).await;
                }
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                    fault = CallFault::ConnectTimeout;
                }
                Err(_) => fault = CallFault::ConnectFailed,
            }
        }
        Err(fault)
    }

    async fn secure(&self, target: &Target, stream: Stream) -> Result<Link, CallFault> {
        if !target.is_tls {
            return Ok(Link::Plain(stream));
        }
        let name =
            ServerName::try_from(target.host.to_string()).map_err(|_| CallFault::TlsFailed)?;
        stream.deadline().arm(self.limits.connect);
        let tls = self.tls.borrow().clone();
        let link = Link::connect_tls(stream, tls, name)
            .await
            .map_err(|_| CallFault::TlsFailed)?;
        link.deadline().disarm();
        Ok(link)
    }
}
