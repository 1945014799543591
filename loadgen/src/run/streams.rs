//! Sessions that hold a GET stream open, beside those that call.

use std::time::{Duration, Instant};

use super::{tally::record, team::Team};
use crate::client::{CallFault, Events, Session};

/// Pause before a stream that ended is opened again.
const REOPEN_PAUSE: Duration = Duration::from_millis(100);

/// Holds a stream of its own session until the run ends.
pub(crate) async fn hold(team: &Team, number: u64) {
    while !team.is_over() {
        let opened = open(team, number).await;
        let Ok(mut events) = opened else {
            shards::sleep(REOPEN_PAUSE).await;
            continue;
        };
        // What came with the head, or before this stream was opened, has no gap.
        let mut last: Option<Instant> = None;
        while !team.is_over() {
            let Some(count) = events.next().await else {
                break;
            };
            let now = Instant::now();
            let mut tally = team.tally.borrow_mut();
            tally.stream_events += count;
            if let Some(last) = last.replace(now) {
                record(&mut tally.stream_gap, now - last);
            }
        }
        if !team.is_over() {
            shards::sleep(REOPEN_PAUSE).await;
        }
    }
}

async fn open(team: &Team, number: u64) -> Result<Events, CallFault> {
    let script = &team.common.script;
    let mut connection = team.connect().await?;
    let session = Session::begin(script, number, &mut connection).await?;
    let sent = team.elapsed();
    let opened = Events::open(&session, script, connection).await;
    let result = opened.as_ref().map(|(_, at)| (team.since_start(*at), 0));
    team.record_extra(
        "stream_open",
        session.owner,
        sent,
        result.map_err(|fault| *fault),
    );
    // Its session is ended with the others.
    let seat = team.seat(session, number);
    team.ended.borrow_mut().push(seat);
    opened.map(|(events, _)| events)
}
