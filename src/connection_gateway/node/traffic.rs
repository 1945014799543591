//! What passes through a session: envelopes to its client, envelopes from it, and the requests that
//! wait for them.

use std::rc::Rc;

use shards::buffer::BufferPool;

use super::{MessageId, Node, millis};
use crate::{
    connection_gateway::{
        envelope::Envelope,
        exchange::{Coding, Exchange},
        fault::Fault,
        message,
        outbox::Outbox,
        session::{Delivery, Now, Session, Status},
        timers::Due,
    },
    websocket::CloseCode,
};

impl Node {
    /// Takes an envelope of the client.
    pub(in crate::connection_gateway) fn receive(
        &self,
        session: &Rc<Session>,
        envelope: &Envelope<'_>,
        line: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        if let Err(fault) = session.check_from_client(envelope) {
            self.numbers.envelopes_refused.add(1);
            return Err(fault);
        }
        match session.deliver(envelope, line) {
            Delivery::Taken(bytes) => self.buffer(session, bytes),
            Delivery::Last(bytes, exchange) => {
                self.buffer(session, bytes);
                self.exchange_over(session, &exchange);
            }
            Delivery::Late => {
                if !self.registry.relay(self, session, envelope) {
                    self.numbers.late_replies.add(1);
                    return Ok(());
                }
                self.close_if_quiet(session);
            }
        }
        self.numbers.replies.add(1);
        Ok(())
    }

    /// The client was heard: its lease begins anew, here at once and elsewhere in time.
    pub(in crate::connection_gateway) fn heard(&self, session: &Rc<Session>, now: Now) {
        session.renew(now);
        self.registry.heard(self, session);
    }

    /// Whether callers have so much to take that the client must wait.
    pub(in crate::connection_gateway) fn is_clogged(&self, session: &Session) -> bool {
        session.buffered.get() > self.settings.slow_consumer_bytes
    }

    /// So many bytes of answers wait more.
    pub(in crate::connection_gateway) fn buffer(&self, session: &Session, bytes: usize) {
        session.buffered.set(session.buffered.get() + bytes);
        self.numbers.stream_buffer_bytes.add(bytes as u64);
    }

    /// A caller has taken so much, or has left it.
    pub(in crate::connection_gateway) fn unbuffer(&self, session: &Session, bytes: usize) {
        let was_clogged = self.is_clogged(session);
        session
            .buffered
            .set(session.buffered.get().saturating_sub(bytes));
        self.numbers.stream_buffer_bytes.subtract(bytes as u64);
        if was_clogged && !self.is_clogged(session) {
            session.outbox.changed.notify();
        }
    }

    /// Queues a caller's envelope, written already, for the client; the message's id. What is
    /// queued is never dropped but with its session; who would go over the bounds is told.
    pub(in crate::connection_gateway) fn publish(
        &self,
        session: &Session,
        envelope: &[u8],
    ) -> Result<MessageId, Fault> {
        if session.outbox.is_closing() {
            // It is told the end already and has nothing else to hear.
            return Err(Fault::NotConnected(Status::Closed.word()));
        }
        if !session.outbox.takes_envelopes() {
            // Its client speaks MCP and nothing else.
            return Err(Fault::CapabilityDenied);
        }
        let max = self.settings.mailbox_messages_max;
        if session.outbox.envelopes() >= max {
            return Err(Fault::ResourceLimit("mailboxMaxLength", max as u64));
        }
        let bytes_max = self.settings.slow_consumer_bytes;
        if session.outbox.bytes() > bytes_max {
            return Err(Fault::ResourceLimit(
                "slowConsumerBufferBytes",
                bytes_max as u64,
            ));
        }
        self.push(session, envelope);
        self.numbers.published.add(1);
        let count = self.message_count.get();
        self.message_count.set(count + 1);
        Ok((shards::clock::unix_ms(), count))
    }

    /// Queues an envelope for the client, whatever waits already.
    pub(in crate::connection_gateway) fn push(&self, session: &Session, envelope: &[u8]) {
        let bytes_max = self.settings.slow_consumer_bytes;
        session.outbox.push_envelope(envelope);
        self.numbers.mailbox_lag.add(1);
        if session.outbox.bytes() > bytes_max && session.outbox.slow_since.get().is_none() {
            let now = shards::clock::now_ms();
            session.outbox.slow_since.set(Some(now));
            let due = Due::Slow(Rc::downgrade(&session.outbox));
            self.timers
                .add(now + millis(self.settings.slow_consumer_time), due);
        }
    }

    /// Whether more may wait for a client than does.
    pub(in crate::connection_gateway) fn has_room(&self, outbox: &Outbox) -> bool {
        outbox.envelopes() < self.settings.mailbox_messages_max
            && outbox.bytes() <= self.settings.slow_consumer_bytes
    }

    /// The connection has written what it took.
    pub(in crate::connection_gateway) fn written(&self, outbox: &Outbox, buffer: Vec<u8>) {
        self.numbers
            .mailbox_lag
            .subtract(outbox.written(buffer) as u64);
        if outbox.bytes() <= self.settings.slow_consumer_bytes {
            outbox.slow_since.set(None);
        }
        if outbox.is_held_back.get() && self.has_room(outbox) {
            outbox.is_held_back.set(false);
            self.registry.wake();
        }
    }

    /// Whether the session may have one more request outstanding, and none of this id.
    pub(in crate::connection_gateway) fn check_in_flight(
        &self,
        session: &Session,
        request_id: Option<&str>,
    ) -> Result<(), Fault> {
        if request_id.is_some_and(|id| session.has_request(id)) {
            return Err(Fault::DuplicateRequest);
        }
        let max = self.settings.in_flight_max;
        if session.exchanges.borrow().len() >= max {
            return Err(Fault::ResourceLimit("maxInFlightPerSession", max as u64));
        }
        Ok(())
    }

    /// Begins a streamed request, which [`Self::check_in_flight`] has let pass.
    pub(in crate::connection_gateway) fn begin_exchange(
        &self,
        session: &Rc<Session>,
        request_id: &str,
        (coding, timeout_ms): (Coding, u64),
        (capability, buffers): (Option<&str>, &BufferPool),
    ) -> Rc<Exchange> {
        let now = shards::clock::now_ms();
        let exchange = Rc::new(Exchange::new(coding, now, capability, buffers));
        let due = Due::Exchange(
            Rc::downgrade(session),
            request_id.into(),
            Rc::downgrade(&exchange),
        );
        exchange
            .timer
            .set(Some(self.timers.add(now.saturating_add(timeout_ms), due)));
        session
            .exchanges
            .borrow_mut()
            .insert(request_id.into(), exchange.clone());
        self.numbers.in_flight.add(1);
        exchange
    }

    /// The caller of a streamed request has left, or has had its last line.
    pub(in crate::connection_gateway) fn caller_left(
        &self,
        session: &Session,
        request_id: &str,
        exchange: &Rc<Exchange>,
    ) {
        self.unbuffer(session, exchange.waiting());
        if exchange.is_over() {
            return;
        }
        let removed = session.exchanges.borrow_mut().remove(request_id);
        debug_assert!(removed.is_some_and(|removed| Rc::ptr_eq(&removed, exchange)));
        self.numbers.exchanges_cancelled.add(1);
        if session.can_cancel() {
            session
                .outbox
                .push(|out| message::write_cancel(out, request_id));
        }
        self.exchange_over(session, exchange);
    }

    /// Ends a request with a line of the gateway's own.
    pub(super) fn fail_exchange(
        &self,
        session: &Session,
        request_id: &str,
        exchange: &Exchange,
        reason: &str,
    ) {
        let mut line = session.failure_line(request_id, exchange, reason, Now::read());
        let bytes = exchange.push(&mut line, true);
        self.buffer(session, bytes);
        self.numbers.exchanges_failed.add(1);
        self.exchange_over(session, exchange);
    }

    /// Ends all requests of a session, wherever their callers are.
    pub(super) fn fail_exchanges(&self, session: &Rc<Session>, reason: &str) {
        self.registry.fail_callers(self, session, reason);
        let all = std::mem::take(&mut *session.exchanges.borrow_mut());
        for (request_id, exchange) in all {
            self.fail_exchange(session, &request_id, &exchange, reason);
        }
    }

    /// A request has had its last line; the session has it no more.
    fn exchange_over(&self, session: &Session, exchange: &Exchange) {
        if let Some(place) = exchange.timer.take() {
            self.timers.remove(place);
        }
        self.numbers.in_flight.subtract(1);
        let took = shards::clock::now_ms().saturating_sub(exchange.began_ms);
        self.numbers.exchange_took(took);
        self.close_if_quiet(session);
    }

    /// Ends a session of a shard that drains when nothing of it is outstanding.
    fn close_if_quiet(&self, session: &Session) {
        if self.is_draining() && session.is_quiet() {
            session.outbox.close(Some((CloseCode::GOING_AWAY, "")));
        }
    }
}
