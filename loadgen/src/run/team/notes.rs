//! What is taken down of calls, and what is done after those that failed.

use std::time::Duration;

use super::{Line, Seat, Team, Turn, Whose};
use crate::{
    affinity::{Violation, ViolationKind},
    client::{CallFault, Called, Session},
    record::Timing,
    run::tally::{Tally, record},
};

/// Pause of a worker whose connection failed, so that a dead server is not hammered.
const FAULT_PAUSE: Duration = Duration::from_millis(10);

impl Team {
    pub(in crate::run) fn sent_at(&self, turn: Turn) -> Duration {
        self.deeds.set(self.deeds.get() + 1);
        if self.schedule.is_none() {
            return turn.intended;
        }
        let sent = self.elapsed();
        if let Some(lag) = &mut self.tally.borrow_mut().lag {
            let late = sent.saturating_sub(turn.intended.max(turn.free_at));
            lag.saturating_record(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX));
        }
        sent
    }

    /// Takes down a call of the mix.
    pub(super) fn note(
        &self,
        slot: usize,
        turn: Turn,
        sent: Duration,
        result: Result<Called, CallFault>,
        whose: Whose,
    ) {
        let live = &self.common.live[usize::from(self.shard.id)];
        let owner = whose.owner;
        self.deeds.set(self.deeds.get() + 1);
        let tally = &mut *self.tally.borrow_mut();
        tally.sent += 1;
        match result {
            Ok(called) => {
                let timing = Timing {
                    intended: turn.intended,
                    sent,
                    done: self.since_start(called.at),
                };
                tally.recorder.good(slot, owner, timing, called.bytes);
                let response = timing.done.saturating_sub(timing.intended);
                live.response_ns
                    .add(u64::try_from(response.as_nanos()).unwrap_or(u64::MAX));
                if turn.intended >= self.common.options.warm_up {
                    let service = timing.done.saturating_sub(sent);
                    self.note_more(tally, called, sent, service, whose);
                }
            }
            Err(fault) => {
                let timing = Timing {
                    intended: turn.intended,
                    sent,
                    done: self.elapsed(),
                };
                let text = || fault.to_string();
                tally
                    .recorder
                    .failed(slot, owner, timing, fault.label(), text);
                tally.wrong += u64::from(fault.is_wrong());
                live.errors.add(1);
            }
        }
        live.calls.add(1);
    }

    /// Takes down an exchange.
    pub(in crate::run) fn note_exchange(
        &self,
        turn: Turn,
        sent: Duration,
        result: Result<Called, CallFault>,
        owner: Option<u16>,
    ) {
        let whose = Whose {
            owner,
            number: None,
        };
        // The only operation there is.
        self.note(self.slots[0], turn, sent, result, whose);
    }

    /// A client is bound.
    pub(in crate::run) fn note_client(&self, session: &str) {
        if let Some(owner) = self.owner_of(session) {
            self.tally.borrow_mut().recorder.session(owner);
        }
    }

    /// After a failed exchange: a spoiled connection goes.
    pub(in crate::run) async fn after_fault(&self, fault: CallFault, line: &mut Line) {
        if fault.spoils_connection() {
            line.connection = None;
        }
        if fault.spoils_connection() || fault == CallFault::NoSession {
            shards::sleep(FAULT_PAUSE).await;
        }
    }

    fn note_more(
        &self,
        tally: &mut Tally,
        called: Called,
        sent: Duration,
        service: Duration,
        whose: Whose,
    ) {
        if let Some(at) = called.first_byte_at {
            let first = self.since_start(at).saturating_sub(sent);
            record(&mut tally.first_byte, first);
        }
        let Some(number) = whose.number else { return };
        let index = usize::try_from(number / u64::from(self.shard.count)).unwrap_or(usize::MAX);
        if let Some(times) = tally.by_session.get_mut(index) {
            times.saturating_record(u64::try_from(service.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Takes down what is not of the mix: the end of a session, the opening of a stream.
    pub(in crate::run) fn record_extra(
        &self,
        name: &str,
        owner: Option<u16>,
        sent: Duration,
        result: Result<(Duration, usize), CallFault>,
    ) {
        let tally = &mut *self.tally.borrow_mut();
        let slot = tally.recorder.operation(name);
        let timing = |done| Timing {
            intended: sent,
            sent,
            done,
        };
        match result {
            Ok((done, bytes)) => tally.recorder.good(slot, owner, timing(done), bytes),
            Err(fault) => {
                let text = || fault.to_string();
                let timing = timing(self.elapsed());
                tally
                    .recorder
                    .failed(slot, owner, timing, fault.label(), text);
                tally.wrong += u64::from(fault.is_wrong());
            }
        }
    }

    /// After a failed call: a spoiled connection goes, a forgotten session is opened anew.
    pub(super) async fn recover(&self, fault: CallFault, line: &mut Line, seat: &mut Seat) {
        let through = line.home.and_then(|(_, owner)| owner);
        if let Some((kind, expected, found)) = seat.session.mismatch.take() {
            self.violated(seat, kind, expected, Some(found), through);
        }
        if fault.spoils_connection() {
            line.connection = None;
            shards::sleep(FAULT_PAUSE).await;
        }
        if fault != CallFault::Status(404) {
            return;
        }
        if self.common.options.has_counter() {
            let expected = seat.session.expected();
            self.violated(seat, ViolationKind::Lost, expected, None, through);
        }
        let script = &self.common.script;
        if let Ok(mut fresh) = self.connect().await
            && let Ok((session, _)) = Session::open(script, seat.number, &mut fresh).await
            && session.announce(script, &mut fresh).await.is_ok()
        {
            *seat = self.seat(session, seat.number);
            *line = Line::default();
            line.come_home(seat.number, seat.session.owner);
            line.connection = Some(fresh);
        }
    }

    fn violated(
        &self,
        seat: &Seat,
        kind: ViolationKind,
        expected: u64,
        found: Option<u64>,
        through: Option<u16>,
    ) {
        self.tally.borrow_mut().add_violation(Violation {
            kind,
            session: seat.number,
            expected,
            found,
            owner: seat.session.owner,
            through,
        });
    }
}
