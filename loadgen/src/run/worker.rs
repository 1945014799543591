//! One shard of the generator from start to end: opening, working, closing.
//!
//! A worker has one connection (or none, with fresh ones) and makes one call at a time. With
//! Sticky it keeps its session; otherwise sessions wait in a queue and a worker picks one.

use std::{rc::Rc, sync::Arc, time::Instant};

use crossbeam_channel::Sender;
use shards::{Control, Shard};

use super::{
    Common, Pattern, Word,
    busy::Reading,
    exchange, streams,
    tally::Tally,
    team::{Line, Seat, Team},
    watch,
};
use crate::{
    client::{CallFault, Connection, Session},
    era::Era,
    exchange::CLIENTS,
};

/// Sessions a shard keeps histograms for.
const SESSIONS_TOLD_MAX: usize = 64;

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

/// The part of `whole` that falls to shard `id` of `count`.
pub(crate) fn share_of(whole: u64, id: u16, count: u16) -> u64 {
    let (id, count) = (u64::from(id), u64::from(count));
    whole / count + u64::from(whole % count > id)
}

/// The life of a shard of the generator.
pub(crate) async fn live(shard: Shard<(), Order>, common: Arc<Common>, words: Sender<Word>) {
    let options = &common.options;
    let (id, count) = (shard.id, shard.count);
    let share = |whole: u64| share_of(whole, id, count);
    let workers = share(u64::from(options.connections)) as usize;
    let sessions = match (options.pattern, options.sessions) {
        (Pattern::Sticky, _) | (Pattern::Fresh, None) => workers,
        (_, Some(sessions)) => share(u64::from(sessions)).max(workers as u64) as usize,
        // Twice what can be in use, so that sessions wander over the connections.
        (Pattern::Pooled | Pattern::Spread, None) => workers * 2,
    };
    let is_told = options.pattern.is_shared() && sessions <= SESSIONS_TOLD_MAX;
    let is_open_loop = common.shape.is_some();
    let tally = Tally::new(options, is_open_loop, if is_told { sessions } else { 0 });
    let calls_max = options.calls.map_or(u64::MAX, share);
    let stream_count = share(u64::from(options.streams));
    let team = Rc::new(Team::new(common.clone(), shard, calls_max, tally));
    let for_orders = team.clone();
    team.shard.take_in(move |control| match control {
        Control::Message(order) => for_orders.obey(&order),
        // The generator forwards nothing, so nothing can arrive.
        Control::Arrival(_) => {}
    });
    let crew = match open_crew(&team, workers, sessions).await {
        Ok(crew) => crew,
        Err(fault) => {
            team.abandon();
            // The starting thread waits for this; when it is gone there is nobody to tell.
            let _ = words.send(Word::Ready(Err(fault)));
            return;
        }
    };
    let _ = words.send(Word::Ready(Ok(())));
    team.has_started.wait().await;
    let reading = Reading::take();
    match crew {
        Crew::OfSessions(crew) => {
            let hands = crew.len();
            for (line, seat) in crew {
                set_to_work(&team, hands, async move |team| work(team, line, seat).await);
            }
        }
        Crew::OfExchanges(pairs) => {
            let hands = pairs.len();
            for pair in pairs {
                set_to_work(&team, hands, async move |team| {
                    exchange::work(team, pair).await;
                });
            }
        }
    }
    for index in 0..stream_count {
        let (team, pass) = (team.clone(), team.shard.gate.enter());
        let number = team.number(sessions + index as usize);
        shards::spawn(async move {
            streams::hold(&team, number).await;
            drop(pass);
        });
    }
    if team.has_own_core {
        shards::spawn(watch::watch(team.clone()));
    }
    team.shard.gate.close();
    team.shard.gate.emptied().await;
    let busy = reading.and_then(|reading| reading.busy_since(team.idle_polling.get()));
    close_all(&team).await;
    let mut tally = team.tally.replace(Tally::new(options, false, 0));
    tally.busy = busy;
    let _ = words.send(Word::Done(Box::new(tally)));
}

/// Who works, with what.
enum Crew {
    OfSessions(Vec<Worker>),
    OfExchanges(Vec<exchange::Pair>),
}

type Worker = (Line, Option<Seat>);

/// One of `hands` workers begins; with the last of them the run ends.
fn set_to_work(team: &Rc<Team>, hands: usize, work: impl AsyncFnOnce(&Team) + 'static) {
    let (team, pass) = (team.clone(), team.shard.gate.enter());
    shards::spawn(async move {
        work(&team).await;
        team.one_is_done(hands);
        drop(pass);
    });
}

async fn open_crew(team: &Rc<Team>, workers: usize, sessions: usize) -> Result<Crew, CallFault> {
    let Some(plan) = &team.common.exchange else {
        let crew = open_all(team, workers, sessions).await?;
        return Ok(Crew::OfSessions(crew));
    };
    let whole = team.common.options.sessions;
    let whole = whole.unwrap_or(CLIENTS.min(team.common.options.connections));
    let clients = share_of(u64::from(whole), team.shard.id, team.shard.count).max(1) as usize;
    let pairs = exchange::open(team, plan, (workers, clients)).await?;
    Ok(Crew::OfExchanges(pairs))
}

/// Opens the workers' connections and all sessions, one after the other: no thundering herd.
async fn open_all(team: &Team, workers: usize, sessions: usize) -> Result<Vec<Worker>, CallFault> {
    let script = &team.common.script;
    let is_sticky = team.common.options.pattern == Pattern::Sticky;
    let mut crew: Vec<Worker> = Vec::new();
    for index in 0..sessions.max(workers) {
        let mut connection = team.connect().await?;
        let number = team.number(index);
        let session = Session::begin(script, number, &mut connection).await?;
        if let Some(owner) = session.owner {
            team.tally.borrow_mut().recorder.session(owner);
        }
        let mut line = Line::default();
        line.come_home(number, session.owner);
        let mut seat = Some(team.seat(session, number));
        if !is_sticky {
            team.idle.borrow_mut().extend(seat.take());
        }
        if crew.len() < workers {
            let is_fresh = team.common.options.pattern == Pattern::Fresh;
            line.connection = (!is_fresh).then_some(connection);
            crew.push((line, seat));
        }
    }
    Ok(crew)
}

/// Ends the sessions, so that repeated runs do not fill the server.
async fn close_all(team: &Team) {
    if team.common.script.era == Era::Stateless {
        return;
    }
    let seats = team.idle.take().into_iter().chain(team.ended.take());
    let mut connection: Option<Connection> = None;
    for seat in seats {
        if !connection.as_ref().is_some_and(Connection::is_kept) {
            connection = team.connect().await.ok();
        }
        let Some(connection) = connection.as_mut() else {
            return;
        };
        // The run is over: the answer changes nothing.
        let _ = seat.session.close(&team.common.script, connection).await;
    }
}

/// One worker, until no more calls are given out.
async fn work(team: &Team, mut line: Line, seat: Option<Seat>) {
    let pattern = team.common.options.pattern;
    let mut rest = team.first_rest().await;
    // Only Sticky seats its workers; they keep their seat to the end.
    let mut kept = seat;
    while let Some(turn) = team.next_call().await {
        // There are at least as many sessions as workers, and each worker takes one.
        let Some(mut seat) = kept.take().or_else(|| team.pick(&line)) else {
            return;
        };
        if pattern == Pattern::Fresh {
            line = Line::default();
        }
        team.call(turn, &mut line, &mut seat).await;
        if pattern == Pattern::Sticky {
            kept = Some(seat);
        } else {
            team.idle.borrow_mut().push_back(seat);
        }
        team.rest(&mut rest).await;
    }
    team.idle.borrow_mut().extend(kept);
}
