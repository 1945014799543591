//! One shard of the generator: its sessions, and the tasks that call for them.
//!
//! A worker has one connection (or none, with fresh ones) and makes one call at a time. With
//! Sticky it keeps its session; otherwise sessions wait in a queue and a worker takes the first.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    task::{Poll, Waker},
    time::{Duration, Instant},
};

use crossbeam_channel::Sender;
use shards::{Control, Shard, notify::Event};

use super::{
    Common, Pattern, Word,
    pace::{NOT_WAITING, Schedule},
    report::Tally,
};
use crate::client::{CallFault, Called, Connection, Session};

/// Sessions a shard keeps histograms for.
const SESSIONS_TOLD_MAX: usize = 64;
/// Pause of a worker after a failed call, so that a dead server is not hammered.
const FAULT_PAUSE: Duration = Duration::from_millis(10);

/// What the starting thread and the pacer tell a shard.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    /// The clock starts here.
    Start(Instant),
    /// A waiting call is due.
    Due,
    /// Start no more calls.
    Stop,
}

/// A session and its number on this shard.
struct Seat {
    session: Session,
    index: usize,
}

/// What the workers of a shard share.
struct Team {
    common: Arc<Common>,
    shard: Shard<(), Order>,
    started_at: Cell<Option<Instant>>,
    has_started: Event,
    is_stopped: Cell<bool>,
    /// Calls given out.
    taken: Cell<u64>,
    /// Calls of this shard; none beyond are given out.
    calls_max: u64,
    schedule: Option<Schedule>,
    /// Workers with a call that is not due, in the order of their calls.
    waiting: RefCell<VecDeque<(Duration, Waker)>>,
    /// Sessions nobody uses just now.
    idle: RefCell<VecDeque<Seat>>,
    tally: RefCell<Tally>,
}

/// The life of a shard of the generator.
pub(crate) async fn live(shard: Shard<(), Order>, common: Arc<Common>, words: Sender<Word>) {
    let options = &common.options;
    let (id, count) = (shard.id, shard.count);
    let share =
        |whole: u64| whole / u64::from(count) + u64::from(whole % u64::from(count) > u64::from(id));
    let workers = share(u64::from(options.connections)) as usize;
    let sessions = match (options.pattern, options.sessions) {
        (Pattern::Sticky, _) | (Pattern::Fresh, None) => workers,
        (_, Some(sessions)) => share(u64::from(sessions)).max(workers as u64) as usize,
        // Twice what can be in use, so that sessions wander over the connections.
        (Pattern::Spread, None) => workers * 2,
    };
    let sessions_told = if options.pattern == Pattern::Spread && sessions <= SESSIONS_TOLD_MAX {
        sessions
    } else {
        0
    };
    let team = Rc::new(Team {
        started_at: Cell::new(None),
        has_started: Event::default(),
        is_stopped: Cell::new(false),
        taken: Cell::new(0),
        calls_max: options.calls.map_or(u64::MAX, share),
        schedule: options.rate.map(|rate| Schedule::new(rate, id, count)),
        waiting: RefCell::default(),
        idle: RefCell::default(),
        tally: RefCell::new(Tally::new(options.rate.is_some(), sessions_told)),
        shard,
        common: common.clone(),
    });
    let for_orders = team.clone();
    team.shard.take_in(move |control| match control {
        Control::Message(order) => for_orders.obey(&order),
        // The generator forwards nothing, so nothing can arrive.
        Control::Arrival(_) => {}
    });
    let opened = open_all(&team, workers, sessions).await;
    let crew = match opened {
        Ok(crew) => crew,
        Err(fault) => {
            // The starting thread waits for this; when it is gone there is nobody to tell.
            let _ = words.send(Word::Ready(Err(fault)));
            return;
        }
    };
    let _ = words.send(Word::Ready(Ok(())));
    team.has_started.wait().await;
    for (connection, seat) in crew {
        let (team, pass) = (team.clone(), team.shard.gate.enter());
        shards::spawn(async move {
            work(&team, connection, seat).await;
            drop(pass);
        });
    }
    team.shard.gate.close();
    team.shard.gate.emptied().await;
    close_all(&team).await;
    let tally = team.tally.replace(Tally::new(false, 0));
    let _ = words.send(Word::Done(Box::new(tally)));
}

type Crew = Vec<(Option<Connection>, Option<Seat>)>;

/// Opens the workers' connections and all sessions, one after the other: no thundering herd.
async fn open_all(team: &Team, workers: usize, sessions: usize) -> Result<Crew, CallFault> {
    let script = &team.common.script;
    let is_sticky = team.common.options.pattern == Pattern::Sticky;
    let mut crew: Crew = Vec::new();
    for index in 0..sessions.max(workers) {
        let mut connection = team.connect().await?;
        let session = Session::open(script, &mut connection).await?;
        let mut seat = Some(Seat { session, index });
        if !is_sticky {
            team.idle.borrow_mut().extend(seat.take());
        }
        if crew.len() < workers {
            let is_fresh = team.common.options.pattern == Pattern::Fresh;
            crew.push(((!is_fresh).then_some(connection), seat));
        }
    }
    Ok(crew)
}

/// Ends the sessions, so that repeated runs do not fill the server.
async fn close_all(team: &Team) {
    let seats = team.idle.take();
    let mut connection: Option<Connection> = None;
    for seat in seats {
        if !connection.as_ref().is_some_and(Connection::is_kept) {
            connection = team.connect().await.ok();
        }
        let Some(connection) = connection.as_mut() else {
            return;
        };
        seat.session.close(&team.common.script, connection).await;
    }
}

/// One worker, until no more calls are given out.
async fn work(team: &Team, mut connection: Option<Connection>, seat: Option<Seat>) {
    let pattern = team.common.options.pattern;
    if let Some(seat) = seat {
        // Only Sticky seats its workers; they keep their seat to the end.
        let mut seat = seat;
        while let Some(intended) = team.next_call().await {
            team.call(intended, &mut connection, &mut seat).await;
        }
        team.idle.borrow_mut().push_back(seat);
        return;
    }
    while let Some(intended) = team.next_call().await {
        let first = team.idle.borrow_mut().pop_front();
        // There are at least as many sessions as workers, and each worker takes one.
        let Some(mut seat) = first else { return };
        if pattern == Pattern::Fresh {
            connection = None;
        }
        team.call(intended, &mut connection, &mut seat).await;
        team.idle.borrow_mut().push_back(seat);
    }
}

impl Team {
    fn obey(&self, order: &Order) {
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

    fn elapsed(&self) -> Duration {
        self.started_at
            .get()
            .map_or(Duration::ZERO, |at| at.elapsed())
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

    /// Waits for the next call's turn; its intended start, or `None` when there are no more.
    async fn next_call(&self) -> Option<Instant> {
        let started_at = self.started_at.get()?;
        let options = &self.common.options;
        let end = options.duration.map(|duration| options.warm_up + duration);
        let is_over = || self.is_stopped.get() || self.taken.get() >= self.calls_max;
        if is_over() {
            return None;
        }
        let Some(schedule) = self.schedule else {
            let now = Instant::now();
            if end.is_some_and(|end| now >= started_at + end) {
                return None;
            }
            self.taken.set(self.taken.get() + 1);
            return Some(now);
        };
        let due = schedule.at(self.taken.get());
        if end.is_some_and(|end| due >= end) {
            return None;
        }
        self.taken.set(self.taken.get() + 1);
        self.wait_until(due).await;
        // Past the end and one more exchange's time, the schedule is given up.
        let is_late = end.is_some_and(|end| self.elapsed() > end + options.limit);
        if self.is_stopped.get() || is_late {
            self.tally.borrow_mut().unsent += 1;
            return if is_late {
                self.skip_rest(schedule, end)
            } else {
                None
            };
        }
        Some(started_at + due)
    }

    /// Counts what is left of a schedule that cannot be kept.
    fn skip_rest(&self, schedule: Schedule, end: Option<Duration>) -> Option<Instant> {
        while self.taken.get() < self.calls_max
            && end.is_some_and(|end| schedule.at(self.taken.get()) < end)
        {
            self.taken.set(self.taken.get() + 1);
            self.tally.borrow_mut().unsent += 1;
        }
        None
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

    async fn connect(&self) -> Result<Connection, CallFault> {
        let script = &self.common.script;
        Connection::open(script.target.address, script.limit, &self.shard.deadlines).await
    }

    /// One call and its place in the tally.
    async fn call(&self, intended: Instant, connection: &mut Option<Connection>, seat: &mut Seat) {
        let sent_at = if self.schedule.is_some() {
            Instant::now()
        } else {
            intended
        };
        let result = self.exchange(connection, seat).await;
        self.common.calls[usize::from(self.shard.id)].add(1);
        let fault = {
            let mut tally = self.tally.borrow_mut();
            tally.sent += 1;
            match result {
                Ok(called) => {
                    self.record(&mut tally, intended, sent_at, called, seat.index);
                    None
                }
                Err(fault) => {
                    tally.add_error(fault);
                    tally.ended_at = Some(Instant::now());
                    Some(fault)
                }
            }
        };
        if let Some(fault) = fault {
            self.recover(fault, connection, seat).await;
        }
    }

    async fn exchange(
        &self,
        connection: &mut Option<Connection>,
        seat: &mut Seat,
    ) -> Result<Called, CallFault> {
        if !connection.as_ref().is_some_and(Connection::is_kept) {
            if self.common.options.pattern != Pattern::Fresh {
                self.tally.borrow_mut().reconnects += 1;
            }
            *connection = None;
        }
        let open = match connection.take() {
            Some(open) => open,
            None => self.connect().await?,
        };
        seat.session
            .call(&self.common.script, connection.insert(open))
            .await
    }

    fn record(
        &self,
        tally: &mut Tally,
        intended: Instant,
        sent_at: Instant,
        called: Called,
        index: usize,
    ) {
        tally.bytes += called.bytes as u64;
        tally.ended_at = Some(called.at);
        let measured_from = self
            .started_at
            .get()
            .map(|at| at + self.common.options.warm_up);
        if measured_from.is_some_and(|from| intended < from) {
            return;
        }
        let ns = |from: Instant, to: Instant| {
            u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
        };
        let service_ns = ns(sent_at, called.at);
        tally.service.saturating_record(service_ns);
        if let Some(response) = &mut tally.response {
            response.saturating_record(ns(intended, called.at));
        }
        if let Some(slip) = &mut tally.slip {
            slip.saturating_record(ns(intended, sent_at));
        }
        if let Some(times) = tally.by_session.get_mut(index) {
            times.saturating_record(service_ns);
        }
    }

    /// After a failed call: a spoiled connection goes, a forgotten session is opened anew.
    async fn recover(
        &self,
        fault: CallFault,
        connection: &mut Option<Connection>,
        seat: &mut Seat,
    ) {
        shards::sleep(FAULT_PAUSE).await;
        if fault.spoils_connection() {
            *connection = None;
        }
        if fault == CallFault::Status(404)
            && let Ok(mut fresh) = self.connect().await
            && let Ok(session) = Session::open(&self.common.script, &mut fresh).await
        {
            seat.session = session;
            *connection = Some(fresh);
        }
    }
}
