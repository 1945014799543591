//! What the workers of a shard share, and how they make a call.

mod notes;
mod rests;
mod turns;

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use shards::{
    Shard,
    notify::{Event, Notify},
};

use super::{Common, Pattern, tally::Tally, worker::Order};
use crate::{
    arrivals::Schedule,
    client::{CallFault, Called, Connection, Session},
    operation::Method,
    random::Random,
};
pub(crate) use turns::Turn;
use turns::Waiter;

/// Sessions a worker looks at for one that is not at home with its connection.
const PICKS_MAX: usize = 32;

/// A session and its number in the run.
pub(crate) struct Seat {
    pub(crate) session: Session,
    pub(crate) number: u64,
    /// Operations left in its life.
    left: u32,
    /// Nothing was done in it yet.
    is_new: bool,
}

impl Seat {
    fn whose(&self) -> Whose {
        Whose {
            owner: self.session.owner,
            number: Some(self.number),
        }
    }
}

/// Whose call one was.
#[derive(Debug, Clone, Copy)]
struct Whose {
    /// The target's shard, where known.
    owner: Option<u16>,
    /// The session's number in the run.
    number: Option<u64>,
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
    /// With its first connection.
    pub(crate) fn of(connection: Connection) -> Self {
        Self {
            connection: Some(connection),
            home: None,
        }
    }

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
    /// Workers that are free while no call is due, longest first.
    waiting: RefCell<VecDeque<Waiter>>,
    tickets: Cell<u64>,
    /// Whether the shard has a core of its own, on which it polls when a call is due soon.
    pub(super) has_own_core: bool,
    /// A call that a worker waits for is due soon, or the run ends.
    pub(super) is_soon: Notify,
    /// Time spent polling for nothing, which is no work.
    pub(super) idle_polling: Cell<Duration>,
    /// Grows with everything the workers do.
    pub(super) deeds: Cell<u64>,
    pub(super) random: RefCell<Random>,
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
            tickets: Cell::new(0),
            has_own_core: common.shape.is_some() && options.cpus.is_some(),
            is_soon: Notify::default(),
            idle_polling: Cell::default(),
            deeds: Cell::new(0),
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
            is_new: true,
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
                self.dismiss_all();
            }
        }
    }

    /// A worker has ended; with the last of `all` the streams end too.
    pub(super) fn one_is_done(self: &Rc<Self>, all: usize) {
        self.done.set(self.done.get() + 1);
        if self.done.get() == all {
            self.has_ended.set(true);
            self.is_soon.notify();
            self.shard.deadlines.end_idle();
        }
    }

    /// The run will not begin.
    pub(super) fn abandon(&self) {
        self.has_ended.set(true);
    }

    /// The target's shard that owns a session, where that can be told.
    pub(super) fn owner_of(&self, session: &str) -> Option<u16> {
        let slots = self.common.script.slots.as_ref()?;
        Some(slots.owner_of(session.as_bytes()))
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

    /// A call that nobody scheduled.
    fn turn_now(&self) -> Turn {
        let now = self.elapsed();
        Turn {
            intended: now,
            free_at: now,
        }
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
    pub(super) async fn ready<'a>(
        &self,
        line: &'a mut Line,
    ) -> Result<&'a mut Connection, CallFault> {
        let is_kept = line.connection.as_ref().is_some_and(Connection::is_kept);
        if !is_kept {
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
        let mut turn = turn;
        let is_new = std::mem::replace(&mut seat.is_new, false);
        if let Some(discovery) = self.common.discovery.filter(|_| is_new) {
            self.perform(turn, discovery, line, seat).await;
            // Agents have no schedule: the call follows.
            turn = self.turn_now();
        }
        let form = self.common.script.mix.draw(&mut self.random.borrow_mut());
        if self.common.script.forms[form].method == Method::Initialize {
            self.renew(turn, self.slots[form], line, seat).await;
            return;
        }
        self.perform(turn, form, line, seat).await;
        seat.left = seat.left.saturating_sub(1);
        if seat.left == 0 {
            let slot = self.tally.borrow_mut().recorder.operation("initialize");
            self.renew(self.turn_now(), slot, line, seat).await;
        }
    }

    async fn perform(&self, turn: Turn, form: usize, line: &mut Line, seat: &mut Seat) {
        let sent = self.sent_at(turn);
        let result = self.exchange(form, line, seat).await;
        let slot = self.slots[form];
        self.note(slot, turn, sent, result, seat.whose());
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
        self.note(
            slot,
            turn,
            sent,
            result.map_err(|fault| *fault),
            seat.whose(),
        );
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
}
