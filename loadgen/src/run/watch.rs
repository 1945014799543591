//! A shard with a core of its own looks at its schedule itself when the next call is due soon.
//!
//! A sleep ends tens of microseconds after it should, and milliseconds when the thread that was to
//! ring the shard has to wait for a core. So the last stretch is polled: the shard asks its driver
//! for replies without waiting, over and over, and looks at the clock in between. Each empty look
//! offers the core to whoever else has to share it.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
    time::{Duration, Instant},
};

use super::team::Team;

/// How long before a call is due the shard begins to poll: more than a sleep is late by, which in
/// virtual machines is 300 us for one in ten; and a core that never slept takes in replies sooner.
pub(crate) const WATCH_AHEAD: Duration = Duration::from_millis(1);
/// A shard that polls has no timers, so it lets them pass this often.
const TIMERS_INTERVAL: Duration = Duration::from_millis(4);
/// A timer that is over by then, whatever the driver rounds.
const TIMER: Duration = Duration::from_millis(1);
/// A look that takes longer was one in which somebody else had the core.
const LOOK_MAX: Duration = Duration::from_micros(20);

/// Polls whenever a call that a worker waits for is due soon, until the run ends.
pub(crate) async fn watch(team: Rc<Team>) {
    loop {
        team.is_soon.wait().await;
        if team.is_over() {
            return;
        }
        while team.gap().is_some_and(|gap| gap <= WATCH_AHEAD) {
            look_for_a_while(&team).await;
        }
        team.wake_due();
    }
}

/// Looks until nothing is due soon, or until timers have to pass.
async fn look_for_a_while(team: &Team) {
    let mut timer = pin!(shards::sleep(TIMER));
    // Starts it: it is over when the time for timers comes, so waiting for it then takes no time.
    poll_fn(|context| {
        let _ = timer.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
    let started_at = Instant::now();
    let (mut looked_at, mut deeds) = (started_at, team.deeds.get());
    while team.gap().is_some_and(|gap| gap <= WATCH_AHEAD) {
        team.wake_due();
        shards::next_turn().await;
        let now = Instant::now();
        let took = now - looked_at;
        looked_at = now;
        let before = std::mem::replace(&mut deeds, team.deeds.get());
        if before == deeds {
            if took < LOOK_MAX {
                team.idle_polling.set(team.idle_polling.get() + took);
            }
            std::thread::yield_now();
        }
        if now - started_at > TIMERS_INTERVAL {
            timer.await;
            return;
        }
    }
}
