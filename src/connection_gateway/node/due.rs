//! What happens by itself: leases that end, limits of time, what is forgotten, and the drain.

use std::rc::{Rc, Weak};

use super::{CUT_AFTER_MS, End, Node, Outstanding, millis};
use crate::{
    connection_gateway::{
        fault::Fault,
        outbox::Outbox,
        registry::Registry,
        session::{Now, Session, Status},
        timers::Due,
    },
    shard_state::ShardState,
    websocket::CloseCode,
};

impl Node {
    /// Does what is due.
    pub fn look(self: &Rc<Self>, state: &Rc<ShardState>) {
        let now = Now::read();
        while let Some(due) = self.timers.pop(now.mono_ms) {
            match due {
                Due::Lease(session) => {
                    if let Some(session) = session.upgrade() {
                        self.lease_due(state, &session, now);
                    }
                }
                Due::Exchange(session, request_id, exchange) => {
                    if let (Some(session), Some(exchange)) = (session.upgrade(), exchange.upgrade())
                        && !exchange.is_over()
                    {
                        exchange.timer.set(None);
                        session.exchanges.borrow_mut().remove(&request_id);
                        let reason = "Gateway request timed out waiting for its response";
                        self.fail_exchange(&session, &request_id, &exchange, reason);
                    }
                }
                Due::Bind(outbox) => {
                    if let Some(outbox) = outbox.upgrade()
                        && !outbox.is_bound.get()
                        && !outbox.is_closing()
                    {
                        outbox.fail(None, &Fault::BindTimeout);
                        self.cut_later(&outbox, now);
                    }
                }
                Due::Slow(outbox) => {
                    if let Some(outbox) = outbox.upgrade() {
                        self.slow_due(&outbox, now);
                    }
                }
                Due::Cut(outbox) => {
                    if let Some(outbox) = outbox.upgrade() {
                        outbox.cut();
                    }
                }
                Due::Forget(id) => self.forget(id),
                Due::Renewal(session) => {
                    if let (Some(session), Registry::Redis(cluster)) =
                        (session.upgrade(), &self.registry)
                    {
                        cluster.renewal_due((state, self), &session);
                    }
                }
                Due::Look(id) => {
                    if let Registry::Redis(cluster) = &self.registry {
                        cluster.look_due(self, id);
                    }
                }
                Due::Call(call) => {
                    if let (Some(call), Registry::Redis(cluster)) = (call.upgrade(), &self.registry)
                    {
                        cluster.call_due(self, &call);
                    }
                }
                Due::Ping(outbox) => {
                    if let Some(outbox) = outbox.upgrade()
                        && !outbox.is_closing()
                    {
                        outbox.push_ping();
                        self.ping_later(&outbox);
                    }
                }
            }
        }
    }

    /// Asks for a sign of life a third of the lease from now, and again and again.
    pub(in crate::connection_gateway) fn ping_later(&self, outbox: &Rc<Outbox>) {
        let at = shards::clock::now_ms() + millis(self.settings.lease / 3).max(1);
        self.timers.add(at, Due::Ping(Rc::downgrade(outbox)));
    }

    fn lease_due(self: &Rc<Self>, state: &Rc<ShardState>, session: &Rc<Session>, now: Now) {
        if session.status() != Status::Connected {
            return;
        }
        // While we do not read, silence is ours; how long we do not is bounded elsewhere.
        if self.is_clogged(session) || session.outbox.is_writing() {
            self.heard(session, now);
        }
        if session.lease_until() > now.mono_ms {
            let due = Due::Lease(Rc::downgrade(session));
            self.timers.add(session.lease_until(), due);
            return;
        }
        self.lose(state, session);
    }

    /// Ends a session whose lease is over, or is not its own any more.
    pub(in crate::connection_gateway) fn lose(
        self: &Rc<Self>,
        state: &Rc<ShardState>,
        session: &Rc<Session>,
    ) {
        self.numbers.lease_expiries.add(1);
        // Nobody here waits for its claims.
        let _ = self.end(state, session, End::Expired);
        session.outbox.fail(None, &Fault::OwnerExpired);
        self.cut_later(&session.outbox, Now::read());
    }

    fn slow_due(&self, outbox: &Rc<Outbox>, now: Now) {
        let Some(since) = outbox.slow_since.get() else {
            return;
        };
        let until = since + millis(self.settings.slow_consumer_time);
        if until > now.mono_ms {
            self.timers.add(until, Due::Slow(Rc::downgrade(outbox)));
            return;
        }
        self.numbers.slow_consumers.add(1);
        let dropped = outbox.give_up(&Fault::SlowConsumer);
        self.numbers.mailbox_lag.subtract(dropped as u64);
        self.cut_later(outbox, now);
    }

    /// Ends a connection for good if its client does not.
    pub(in crate::connection_gateway) fn cut_later(&self, outbox: &Rc<Outbox>, now: Now) {
        self.timers
            .add(now.mono_ms + CUT_AFTER_MS, Due::Cut(Rc::downgrade(outbox)));
    }

    /// Forgets what is over.
    pub fn sweep(&self) {
        let now = Now::read();
        self.index.borrow_mut().sweep(now.mono_ms, now.unix_ms);
        self.outboxes
            .borrow_mut()
            .retain(|outbox| outbox.strong_count() > 0);
        let sessions = self.sessions.borrow();
        self.closed
            .borrow_mut()
            .retain(|id| sessions.contains_key(id));
        if let Registry::Redis(cluster) = &self.registry {
            for session in sessions.values() {
                cluster.forget_callers(session, now.mono_ms);
            }
            cluster.sweep(now.mono_ms);
        }
    }

    /// Takes nothing on any more. A session ends when nothing of it is outstanding.
    pub fn drain(&self, outstanding: Outstanding) {
        self.is_draining.set(true);
        if let (Registry::Redis(cluster), Outstanding::Fail) = (&self.registry, outstanding) {
            cluster.fail_all_calls(self, "Gateway is shutting down");
        }
        let sessions: Vec<_> = self.sessions.borrow().values().cloned().collect();
        for session in sessions {
            if outstanding == Outstanding::Fail {
                self.fail_exchanges(&session, "Gateway is shutting down");
            }
            if session.outbox.has_server.get() && outstanding == Outstanding::Finish {
                // Its connection ends when no call is under way.
                session.outbox.changed.notify();
            } else if session.is_quiet() {
                session.outbox.close(Some((CloseCode::GOING_AWAY, "")));
            }
        }
        let outboxes: Vec<_> = self
            .outboxes
            .borrow()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for outbox in outboxes.iter().filter(|outbox| !outbox.is_bound.get()) {
            // Before it is bound the real client waits for ever unless it is told.
            outbox.fail(None, &Fault::Draining);
        }
    }
}
