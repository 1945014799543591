//! Pairs commands with replies: what waits to be written, and who waits for what comes back.
//!
//! Redis answers in the order it was asked, so a queue is all there is. A caller that goes away
//! leaves its place behind, or every later reply would reach the wrong caller.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use shards::notify::Notify;

use super::{
    client::RedisFault,
    reply::Reply,
    resp::{encode, encoded_bytes_max},
};

/// Bytes of commands that wait for the socket; with more a call is refused.
const OUTBOX_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Capacity kept for the next commands once the outbox has been written.
const OUTBOX_BYTES_KEPT: usize = 64 * 1024;

/// One caller's place in the queue.
#[derive(Debug, Default)]
pub(super) struct Waiter {
    outcome: RefCell<Option<Result<Reply, RedisFault>>>,
    ready: Notify,
}

impl Waiter {
    /// Waits for the reply, or for the end of the connection. May be dropped at any time.
    pub(super) async fn wait(&self) -> Result<Reply, RedisFault> {
        loop {
            let outcome = self.outcome.borrow_mut().take();
            if let Some(outcome) = outcome {
                return outcome;
            }
            self.ready.wait().await;
        }
    }

    fn settle(&self, outcome: Result<Reply, RedisFault>) {
        *self.outcome.borrow_mut() = Some(outcome);
        self.ready.notify();
    }
}

#[derive(Debug)]
struct Pending {
    waiter: Rc<Waiter>,
    at_ms: u64,
}

/// The commands of one connection that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    pending: RefCell<VecDeque<Pending>>,
    outbox: RefCell<Vec<u8>>,
    spare: RefCell<Vec<u8>>,
    /// Wakes the connection's task: there is something to write, or it is to stop.
    pub(super) wake: Notify,
}

impl Pipeline {
    /// Queues a command that must be answered by `at_ms`. Times must not go back.
    pub(super) fn push(
        &self,
        arguments: &[&[u8]],
        at_ms: u64,
        (in_flight_max, frame_bytes_max): (usize, usize),
    ) -> Result<Rc<Waiter>, RedisFault> {
        let size = encoded_bytes_max(arguments);
        if size > frame_bytes_max {
            return Err(RedisFault::TooLarge);
        }
        let mut pending = self.pending.borrow_mut();
        let mut outbox = self.outbox.borrow_mut();
        if pending.len() >= in_flight_max || outbox.len() + size > OUTBOX_BYTES_MAX {
            return Err(RedisFault::Busy);
        }
        encode(arguments, &mut outbox);
        let waiter = Rc::new(Waiter::default());
        pending.push_back(Pending {
            waiter: waiter.clone(),
            at_ms,
        });
        self.wake.notify();
        Ok(waiter)
    }

    /// All bytes to be written, oldest first; empty when there are none.
    pub(super) fn take_outbox(&self) -> Vec<u8> {
        self.outbox.replace(self.spare.take())
    }

    /// Gives back the buffer of [`Self::take_outbox`].
    pub(super) fn return_outbox(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        buffer.shrink_to(OUTBOX_BYTES_KEPT);
        *self.spare.borrow_mut() = buffer;
    }

    /// When the oldest command must be answered.
    pub(super) fn oldest_at_ms(&self) -> Option<u64> {
        self.pending.borrow().front().map(|pending| pending.at_ms)
    }

    /// Whether every command has been answered.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.borrow().is_empty()
    }

    /// Gives `reply` to the oldest command; false when there is none, and the server is not one.
    #[must_use]
    pub(super) fn answer(&self, reply: Reply) -> bool {
        let oldest = self.pending.borrow_mut().pop_front();
        let Some(oldest) = oldest else {
            return false;
        };
        oldest.waiter.settle(match reply {
            Reply::Error { kind, .. } => Err(RedisFault::Refused(kind)),
            reply => Ok(reply),
        });
        true
    }

    /// Ends the oldest command with `fault`; false when there is none.
    #[must_use]
    pub(super) fn fail_oldest(&self, fault: RedisFault) -> bool {
        let oldest = self.pending.borrow_mut().pop_front();
        oldest.is_some_and(|oldest| {
            oldest.waiter.settle(Err(fault));
            true
        })
    }

    /// Ends all commands with `fault`, and forgets what was not written.
    pub(super) fn fail(&self, fault: &RedisFault) {
        self.outbox.borrow_mut().clear();
        let all = std::mem::take(&mut *self.pending.borrow_mut());
        for pending in all {
            pending.waiter.settle(Err(fault.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const FRAME: usize = 4 << 20;

    fn outcome(waiter: &Waiter) -> Option<Result<Reply, RedisFault>> {
        waiter.wait().now_or_never()
    }

    #[test]
    fn replies_go_to_callers_in_the_order_of_their_commands() {
        let pipeline = Pipeline::default();
        let first = pipeline.push(&[b"GET", b"a"], 10, (8, FRAME)).unwrap();
        let second = pipeline.push(&[b"GET", b"b"], 20, (8, FRAME)).unwrap();
        assert_eq!(
            pipeline.take_outbox(),
            b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*2\r\n$3\r\nGET\r\n$1\r\nb\r\n"
        );
        assert_eq!(pipeline.oldest_at_ms(), Some(10));
        assert!(pipeline.answer(Reply::Integer(1)));
        assert_eq!(pipeline.oldest_at_ms(), Some(20));
        assert_eq!(outcome(&second), None);
        assert_eq!(outcome(&first), Some(Ok(Reply::Integer(1))));
        assert!(pipeline.answer(Reply::Integer(2)));
        assert_eq!(outcome(&second), Some(Ok(Reply::Integer(2))));
        assert!(pipeline.is_idle());
        assert!(!pipeline.answer(Reply::Null), "nobody asked");
    }

    #[test]
    fn a_caller_that_left_keeps_its_place() {
        let pipeline = Pipeline::default();
        drop(pipeline.push(&[b"GET", b"a"], 0, (8, FRAME)).unwrap());
        let second = pipeline.push(&[b"GET", b"b"], 0, (8, FRAME)).unwrap();
        assert!(pipeline.answer(Reply::Integer(1)));
        assert_eq!(outcome(&second), None);
        assert!(pipeline.answer(Reply::Integer(2)));
        assert_eq!(outcome(&second), Some(Ok(Reply::Integer(2))));
    }

    #[test]
    fn an_error_reply_is_a_fault_that_keeps_only_its_kind() {
        let pipeline = Pipeline::default();
        let waiter = pipeline.push(&[b"GET", b"a"], 0, (8, FRAME)).unwrap();
        assert!(pipeline.answer(Reply::Error {
            kind: String::from("WRONGTYPE"),
            text: String::from("WRONGTYPE for key a"),
        }));
        let fault = RedisFault::Refused(String::from("WRONGTYPE"));
        assert_eq!(outcome(&waiter), Some(Err(fault)));
    }

    #[test]
    fn the_limits_refuse_without_queueing() {
        let pipeline = Pipeline::default();
        let first = pipeline.push(&[b"PING"], 0, (1, FRAME)).unwrap();
        assert_eq!(
            pipeline.push(&[b"PING"], 0, (1, FRAME)).unwrap_err(),
            RedisFault::Busy
        );
        let large = vec![0; 4 * 1024 * 1024];
        assert_eq!(
            pipeline.push(&[&large], 0, (9, FRAME)).unwrap_err(),
            RedisFault::TooLarge
        );
        let half = vec![0; 3 * 1024 * 1024];
        let second = pipeline.push(&[&half], 0, (9, FRAME)).unwrap();
        let third = pipeline.push(&[&half], 0, (9, FRAME)).unwrap();
        assert_eq!(
            pipeline.push(&[&half], 0, (9, FRAME)).unwrap_err(),
            RedisFault::Busy
        );
        assert!(pipeline.take_outbox().len() > 6 * 1024 * 1024);
        pipeline.fail(&RedisFault::Lost);
        for waiter in [first, second, third] {
            assert_eq!(outcome(&waiter), Some(Err(RedisFault::Lost)));
        }
        assert!(pipeline.is_idle());
    }

    #[test]
    fn what_was_not_written_is_not_written_after_a_failure() {
        let pipeline = Pipeline::default();
        let waiter = pipeline.push(&[b"SET", b"a", b"1"], 0, (8, FRAME)).unwrap();
        pipeline.fail(&RedisFault::Timeout);
        assert_eq!(outcome(&waiter), Some(Err(RedisFault::Timeout)));
        assert!(pipeline.take_outbox().is_empty());
        pipeline.return_outbox(Vec::with_capacity(OUTBOX_BYTES_MAX));
        assert_eq!(pipeline.take_outbox().capacity(), 0);
        assert!(pipeline.take_outbox().capacity() <= OUTBOX_BYTES_KEPT);
    }
}
