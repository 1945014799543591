//! What the workers of a shard share, and how they make a call.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    task::{Poll, Waker},
    time::{Duration, Instant},
};

use shards::{Shard, notify::Event};

use super::{
    Common, Pattern, Rhythm,
    pace::NOT_WAITING,
    tally::{Tally, record},
    worker::Order,
};
use crate::{
    affinity::{Violation, ViolationKind},
    arrivals::Schedule,
    client::{CallFault, Called, Connection, Session},
    delay::Delay,
    operation::Method,
    random::Random,
    record::Timing,
};

/// Pause of a worker whose connection failed, so that a dead server is not hammered.
const FAULT_PAUSE: Duration = Duration::from_millis(10);
/// Sessions a worker looks at for one that is not at home with its connection.
const PICKS_MAX: usize = 32;
/// A caller that thinks looks this often whether the run is over.
const REST_PIECE: Duration = Duration::from_millis(100);
/// Calls in a burst of an agent, at the least, and how many more there can be.
const BURST_MIN: u32 = 2;
const BURST_MORE: u64 = 4;
/// Mean of the thinking between bursts when nothing is said.
const AGENT_THINK: Delay = Delay::Exponential(Duration::from_secs(1));
/// Time that late calls have after the end of a schedule, at the least.
const GRACE_MIN: Duration = Duration::from_secs(1);

/// A session and its number in the run.
pub(crate) struct Seat {
    pub(crate) session: Session,
    pub(crate) number: u64,
    /// Operations left in its life.
    left: u32,
}

/// A worker's connection.
#[derive(Default)]
pub(crate) struct Line {
    pub(crate) connection: Option<Connection>,
    /// The first session used over it, and the target's shard that owns that: a gateway moves a
    /// connection there, and leaves it there.
    home: Option<(u64, Option<u16>)>,
}

impl Line {
    /// A session is used over it.
    pub(crate) fn come_home(&mut self, number: u64, owner: Option<u16>) {
        self.home.get_or_insert((number, owner));
    }

    fn is_home_of(&self, seat: &Seat) -> bool {
        match (self.home, seat.session.owner) {
            (None, _) => false,
            (Some((_, Some(home))), Some(owner)) => home == owner,
            (Some((number, _)), _) => number == seat.number,
        }
    }
}

/// Whether the next exchange can use this connection.
pub(crate) fn is_kept(connection: &Connection) -> bool {
    connection.is_kept()
}

/// A call that is to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    intended: Duration,
    /// Since when a worker was free to make it.
    free_at: Duration,
}

/// Calls until a caller rests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rest {
    burst_left: u32,
}

/// What the workers of a shard share.
pub(crate) struct Team {
    pub(super) common: Arc<Common>,
    pub(super) shard: Shard<(), Order>,
    pub(super) has_started: Event,
    /// Sessions nobody uses just now.
    pub(super) idle: RefCell<VecDeque<Seat>>,
    /// Sessions nobody will use again, to be ended at the end.
    pub(super) ended: RefCell<Vec<Seat>>,
    pub(super) tally: RefCell<Tally>,
    started_at: Cell<Option<Instant>>,
    is_stopped: Cell<bool>,
    /// Workers that have ended.
    done: Cell<usize>,
    has_ended: Cell<bool>,
    /// Calls given out.
    taken: Cell<u64>,
    /// Calls of this shard; none beyond are given out.
    calls_max: u64,
    schedule: Option<RefCell<Schedule>>,
    /// Workers with a call that is not due, in the order of their calls.
    waiting: RefCell<VecDeque<(Duration, Waker)>>,
    random: RefCell<Random>,
    /// The recorder's numbers of the forms.
    slots: Vec<usize>,
}

impl Team {
    pub(super) fn new(
        common: Arc<Common>,
        shard: Shard<(), Order>,
        calls_max: u64,
        mut tally: Tally,
    ) -> Self {
        let options = &common.options;
        let schedule = common.shape.as_ref().map(|shape| {
            let (arrivals, seed) = (options.arrivals, options.seed);
            RefCell::new(Schedule::new(shape, arrivals, seed, shard.id, shard.count))
        });
        let mut names: Vec<String> = options
            .operations()
            .into_iter()
            .map(|operation| operation.name)
            .collect();
        if common.discovery.is_some() {
            names.push(Method::ListTools.name().to_owned());
        }
        let slots = names
            .iter()
            .map(|name| tally.recorder.operation(name))
            .collect();
        let random = Random::new(options.seed ^ (u64::from(shard.id) << 16) ^ 0x5eed);
        Self {
            has_started: Event::default(),
            idle: RefCell::default(),
            ended: RefCell::default(),
            tally: RefCell::new(tally),
            started_at: Cell::new(None),
            is_stopped: Cell::new(false),
            done: Cell::new(0),
            has_ended: Cell::new(false),
            taken: Cell::new(0),
            calls_max,
            schedule,
            waiting: RefCell::default(),
            random: RefCell::new(random),
            slots,
            shard,
            common,
        }
    }

    /// The number in the run of this shard's session `index`.
    pub(super) fn number(&self, index: usize) -> u64 {
        index as u64 * u64::from(self.shard.count) + u64::from(self.shard.id)
    }

    pub(super) fn seat(&self, session: Session, number: u64) -> Seat {
        Seat {
            session,
            number,
            left: self.common.options.session_life.unwrap_or(u32::MAX),
        }
    }

    pub(super) fn obey(&self, order: &Order) {
        match order {
            Order::Start(at) => {
                self.started_at.set(Some(*at));
                self.has_started.fire();
            }
            Order::Due => self.wake_due(),
            Order::Stop => {
                self.is_stopped.set(true);
                self.has_started.fire();
                for (_, waker) in self.waiting.take() {
                    waker.wake();
                }
            }
        }
    }

    /// A worker has ended; with the last of `all` the streams end too.
    pub(super) fn one_is_done(self: &Rc<Self>, all: usize) {
        self.done.set(self.done.get() + 1);
        if self.done.get() == all {
            self.has_ended.set(true);
            self.shard.deadlines.end_idle();
        }
    }

    /// Whether the workers have ended.
    pub(super) fn is_over(&self) -> bool {
        self.has_ended.get() || self.is_stopped.get() && self.started_at.get().is_none()
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.since_start(Instant::now())
    }

    pub(super) fn since_start(&self, at: Instant) -> Duration {
        let started_at = self.started_at.get();
        started_at.map_or(Duration::ZERO, |start| at.saturating_duration_since(start))
    }

    fn wake_due(&self) {
        let now = self.elapsed();
        let mut waiting = self.waiting.borrow_mut();
        while waiting.front().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, waker)) = waiting.pop_front() {
                waker.wake();
            }
        }
        self.publish_due(waiting.front().map(|(due, _)| *due));
    }

    fn publish_due(&self, due: Option<Duration>) {
        let due_ns = due.map_or(NOT_WAITING, |due| due.as_nanos() as u64);
        self.common.due[usize::from(self.shard.id)]
            .0
            .store(due_ns, Ordering::Release);
    }

    /// End of the clock, warm-up included.
    fn end(&self) -> Option<Duration> {
        let options = &self.common.options;
        options.length().map(|length| options.warm_up + length)
    }

    /// Waits for the next call's turn; `None` when there are no more.
    pub(super) async fn next_call(&self) -> Option<Turn> {
        self.started_at.get()?;
        if self.is_stopped.get() || self.taken.get() >= self.calls_max {
            return None;
        }
        let free_at = self.elapsed();
        let end = self.end();
        let Some(schedule) = &self.schedule else {
            if end.is_some_and(|end| free_at >= end) {
                return None;
            }
            self.taken.set(self.taken.get() + 1);
            return Some(Turn {
                intended: free_at,
                free_at,
            });
        };
        let due = schedule.borrow_mut().take()?;
        self.taken.set(self.taken.get() + 1);
        self.wait_until(due).await;
        let now = self.elapsed();
        if self.is_stopped.get() {
            // What was not due when the run was stopped was never to be sent.
            if due <= now {
                self.give_up(due);
            }
            return None;
        }
        if end.is_some_and(|end| now > end + self.grace()) {
            self.give_up(due);
            while let Some(due) = schedule.borrow_mut().take() {
                self.give_up(due);
            }
            return None;
        }
        Some(Turn {
            intended: due,
            free_at,
        })
    }

    /// Past its end a schedule is worked off for as long again, but no longer than one exchange
    /// may take; then the rest of it is given up.
    fn grace(&self) -> Duration {
        let length = self.common.options.length().unwrap_or_default();
        self.common.options.limit.min(length.max(GRACE_MIN))
    }

    fn give_up(&self, due: Duration) {
        let form = self.common.script.mix.draw(&mut self.random.borrow_mut());
        let slot = self.slots[form];
        self.tally.borrow_mut().recorder.unsent(slot, due);
    }

    async fn wait_until(&self, due: Duration) {
        let mut is_queued = false;
        poll_fn(|context| {
            if self.is_stopped.get() || self.elapsed() >= due {
                return Poll::Ready(());
            }
            if !is_queued {
                is_queued = true;
                let mut waiting = self.waiting.borrow_mut();
                // Calls are given out in order, so the queue is in order.
                waiting.push_back((due, context.waker().clone()));
                if waiting.len() == 1 {
                    self.publish_due(Some(due));
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// A session for this connection: with Spread, one that is not at home with it.
    pub(super) fn pick(&self, line: &Line) -> Option<Seat> {
        let mut idle = self.idle.borrow_mut();
        if self.common.options.pattern == Pattern::Spread {
            let mut first = idle.iter().take(PICKS_MAX);
            if let Some(index) = first.position(|seat| !line.is_home_of(seat)) {
                return idle.remove(index);
            }
        }
        idle.pop_front()
    }

    pub(super) async fn connect(&self) -> Result<Connection, CallFault> {
        let script = &self.common.script;
        Connection::open(script.target.address, script.limit, &self.shard.deadlines).await
    }

    /// The connection of a line, opened anew when it is gone.
    async fn ready<'a>(&self, line: &'a mut Line) -> Result<&'a mut Connection, CallFault> {
        if line.connection.as_ref().is_some_and(Connection::is_kept) {
            // Looked up again below: a borrow cannot be given back on one path only.
        } else {
            if self.common.options.pattern != Pattern::Fresh {
                self.tally.borrow_mut().recorder.reconnect();
            }
            *line = Line::default();
            line.connection = Some(self.connect().await?);
        }
        line.connection.as_mut().ok_or(CallFault::Connect)
    }

    /// One call and its place in the tally.
    pub(super) async fn call(&self, turn: Turn, line: &mut Line, seat: &mut Seat) {
        let form = self.common.script.mix.draw(&mut self.random.borrow_mut());
        if self.common.script.forms[form].method == Method::Initialize {
            self.renew(turn, self.slots[form], line, seat).await;
            return;
        }
        self.perform(turn, form, line, seat).await;
        seat.left = seat.left.saturating_sub(1);
        if seat.left == 0 {
            let now = self.elapsed();
            let turn = Turn {
                intended: now,
                free_at: now,
            };
            let slot = self.tally.borrow_mut().recorder.operation("initialize");
            self.renew(turn, slot, line, seat).await;
        }
    }

    async fn perform(&self, turn: Turn, form: usize, line: &mut Line, seat: &mut Seat) {
        let sent = self.sent_at(turn);
        let result = self.exchange(form, line, seat).await;
        let slot = self.slots[form];
        self.note(slot, turn, sent, result, seat);
        if let Err(fault) = result {
            self.recover(fault, line, seat).await;
        }
    }

    async fn exchange(
        &self,
        form: usize,
        line: &mut Line,
        seat: &mut Seat,
    ) -> Result<Called, CallFault> {
        self.ready(line).await?;
        line.come_home(seat.number, seat.session.owner);
        let connection = line.connection.as_mut().ok_or(CallFault::Connect)?;
        let script = &self.common.script;
        let form = &script.forms[form];
        seat.session
            .perform(script, form, &self.random, connection)
            .await
    }

    /// A new session in place of the seat's, which is ended.
    async fn renew(&self, turn: Turn, slot: usize, line: &mut Line, seat: &mut Seat) {
        let sent = self.sent_at(turn);
        let script = &self.common.script;
        let opened = match self.ready(line).await {
            Ok(connection) => Session::open(script, seat.number, connection).await,
            Err(fault) => Err(fault),
        };
        let result = opened.as_ref().map(|(_, called)| *called);
        self.note(slot, turn, sent, result.map_err(|fault| *fault), seat);
        let session = match opened {
            Ok((session, _)) => session,
            Err(fault) => return self.recover(fault, line, seat).await,
        };
        if let Some(owner) = session.owner {
            self.tally.borrow_mut().recorder.session(owner);
        }
        let before = std::mem::replace(seat, self.seat(session, seat.number));
        let Some(connection) = line.connection.as_mut() else {
            return;
        };
        let announced = seat.session.announce(script, connection).await;
        line.come_home(seat.number, seat.session.owner);
        if let Err(fault) = announced {
            let sent = self.elapsed();
            self.record_extra("initialized", seat.session.owner, sent, Err(fault));
            return self.recover(fault, line, seat).await;
        }
        self.end_session(before.session, line).await;
        if let Some(form) = self.common.discovery {
            let now = self.elapsed();
            let turn = Turn {
                intended: now,
                free_at: now,
            };
            self.perform(turn, form, line, seat).await;
        }
    }

    async fn end_session(&self, session: Session, line: &mut Line) {
        let Some(connection) = line.connection.as_mut().filter(|one| one.is_kept()) else {
            return;
        };
        let (owner, sent) = (session.owner, self.elapsed());
        let closed = session.close(&self.common.script, connection).await;
        // One that the server had forgotten already is ended all the same.
        let is_gone = matches!(closed, Err(CallFault::Status(404)));
        let result = closed.map(|called| (self.since_start(called.at), called.bytes));
        let done = (self.elapsed(), 0);
        let result = if is_gone { Ok(done) } else { result };
        self.record_extra("delete", owner, sent, result);
    }

    fn sent_at(&self, turn: Turn) -> Duration {
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
    fn note(
        &self,
        slot: usize,
        turn: Turn,
        sent: Duration,
        result: Result<Called, CallFault>,
        seat: &mut Seat,
    ) {
        let live = &self.common.live[usize::from(self.shard.id)];
        let owner = seat.session.owner;
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
                    self.note_more(tally, called, sent, service, seat);
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

    fn note_more(
        &self,
        tally: &mut Tally,
        called: Called,
        sent: Duration,
        service: Duration,
        seat: &Seat,
    ) {
        if let Some(at) = called.first_byte_at {
            let first = self.since_start(at).saturating_sub(sent);
            record(&mut tally.first_byte, first);
        }
        let index = seat.number / u64::from(self.shard.count);
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if let Some(times) = tally.by_session.get_mut(index) {
            times.saturating_record(u64::try_from(service.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Takes down what is not of the mix: the end of a session, the opening of a stream.
    pub(super) fn record_extra(
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
    async fn recover(&self, fault: CallFault, line: &mut Line, seat: &mut Seat) {
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

    /// Callers that think do not all begin at once.
    pub(super) async fn first_rest(&self) -> Rest {
        if let Some(think) = self.think() {
            let random = &mut *self.random.borrow_mut();
            let part = think.draw(random).mul_f64(random.unit());
            self.pause(part)
        } else {
            self.pause(Duration::ZERO)
        }
        .await;
        Rest {
            burst_left: self.burst(),
        }
    }

    /// What a caller does between its calls.
    pub(super) async fn rest(&self, rest: &mut Rest) {
        let Some(think) = self.think() else { return };
        if self.common.options.rhythm == Rhythm::Agent {
            rest.burst_left = rest.burst_left.saturating_sub(1);
            if rest.burst_left > 0 {
                return;
            }
            rest.burst_left = self.burst();
        }
        let time = think.draw(&mut self.random.borrow_mut());
        self.pause(time).await;
    }

    fn burst(&self) -> u32 {
        // Below BURST_MORE.
        BURST_MIN + self.random.borrow_mut().below(BURST_MORE) as u32
    }

    fn think(&self) -> Option<Delay> {
        let options = &self.common.options;
        match (options.think.is_none(), options.rhythm) {
            (false, _) => Some(options.think),
            (true, Rhythm::Agent) => Some(AGENT_THINK),
            (true, Rhythm::Steady) => None,
        }
    }

    /// Sleeps, but not past the end of the run.
    async fn pause(&self, time: Duration) {
        let until = self.elapsed() + time;
        let until = self.end().map_or(until, |end| until.min(end));
        while !self.is_stopped.get() {
            let left = until.saturating_sub(self.elapsed());
            if left.is_zero() {
                return;
            }
            shards::sleep(left.min(REST_PIECE)).await;
        }
    }
}
