//! Promise 17: a Redis that goes and comes back, again and again under load. Who is known never
//! notices, who is not is told at once, nobody waits for ever, and each return costs one read a
//! user and shard.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    caller::{Caller, await_ready, curl, metric},
    is_long,
    process::{Folder, Process, until},
    redis::{Admin, Server},
    redis_config::{PING, Seen, caller, info, look, map_form, publish, serve, until_seen},
    support::Connection,
};

const SHARDS: u64 = 2;
const KNOWN: u64 = 4;
/// Requests over one connection before the next one, which another shard may get.
const PER_CONNECTION: usize = 20;
/// What recovery and a refusal may take (reliability contract, section 8).
const AT_ONCE: Duration = Duration::from_secs(1);

/// Asks without an end as one user; every answer must be that of one whose configuration is there.
fn ask_on(caller: &Caller, is_over: &AtomicBool, answered: &AtomicU64) {
    let request = caller.post_bytes(PING);
    while !is_over.load(Ordering::SeqCst) {
        let mut connection = Connection::open(caller.address);
        for _ in 0..PER_CONNECTION {
            connection.send(&request);
            let response = connection.read_response();
            let text = response.text();
            let is_known = text.contains("Mcp-Session-Id header is required");
            assert!(response.status == 400 && is_known, "{text}");
            answered.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// How often this run of Redis was asked for a user's configuration.
fn reads(admin: &mut Admin) -> u64 {
    let calls = info(admin, "commandstats", "cmdstat_get:calls=");
    calls.split(',').next().unwrap().trim().parse().unwrap_or(0)
}

/// The one in the middle.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

struct Flaps<'a> {
    redis: &'a Server,
    process: &'a Process,
    cold: &'a Caller,
    answered: &'a AtomicU64,
    refusals: Vec<Duration>,
    recoveries: Vec<Duration>,
}

impl Flaps<'_> {
    /// Stops Redis, sees all served and refused as they must be, starts it, and counts its reads.
    fn flap(&mut self) {
        self.redis.kill();
        let ready = format!("http://{}/readyz", self.process.admin_address());
        until("it is noticed", || {
            (curl(&[&ready]).status == 503).then_some(())
        });
        let before = self.answered.load(Ordering::SeqCst);
        for _ in 0..4 {
            let started = Instant::now();
            assert_eq!(look(self.cold), Seen::NoConfig);
            self.refusals.push(started.elapsed());
        }
        self.await_answers(before + 200);

        self.redis.restart();
        let started = Instant::now();
        let mut admin = self.redis.admin();
        let wanted = KNOWN * SHARDS;
        until("each shard has read each user again", || {
            (reads(&mut admin) >= wanted).then_some(())
        });
        self.recoveries.push(started.elapsed());
        self.await_answers(self.answered.load(Ordering::SeqCst) + 200);
        assert_eq!(reads(&mut admin), wanted, "one read a user and shard");
    }

    fn await_answers(&self, count: u64) {
        until("known users are served", || {
            (self.answered.load(Ordering::SeqCst) >= count).then_some(())
        });
    }
}

#[test]
fn a_redis_that_goes_and_comes_back_again_and_again_is_ridden_out() {
    let rounds = if is_long() { 100 } else { 10 };
    // One that keeps its data, as it comes back with it.
    let redis = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let home = Folder::new();
    // Kept for an hour: only the return of Redis makes a shard read again.
    let process = serve(
        &home,
        redis.port,
        &["--user-config-cache-expiry-seconds", "3600"],
    );
    let admin = process.admin_address();
    await_ready(admin);
    let mut store = redis.admin();
    let known: Vec<Caller> = (0..KNOWN)
        .map(|number| {
            let subject = format!("known-{number}");
            publish(&mut store, &subject, &map_form("one"));
            caller(&process, &subject, "one")
        })
        .collect();
    publish(&mut store, "cold", &map_form("one"));
    for caller in &known {
        until_seen(caller, Seen::Host);
    }
    let cold = caller(&process, "cold", "one");
    let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let (refusals, recoveries) = thread::scope(|scope| {
        // However this ends, the others must too.
        let _end = OnDrop(&is_over);
        for caller in known.iter().chain(&known) {
            scope.spawn(|| ask_on(caller, &is_over, &answered));
        }
        let mut flaps = Flaps {
            redis: &redis,
            process: &process,
            cold: &cold,
            answered: &answered,
            refusals: Vec::new(),
            recoveries: Vec::new(),
        };
        for _ in 0..rounds {
            flaps.flap();
        }
        (flaps.refusals, flaps.recoveries)
    });
    until_seen(&cold, Seen::Host);
    let (refusal, recovery) = (median(refusals), median(recoveries));
    println!(
        "{rounds} returns, {} answers: refused in {refusal:?}, recovered in {recovery:?}",
        answered.load(Ordering::SeqCst)
    );
    // Of many, so that a busy machine does not decide.
    assert!(refusal <= AT_ONCE, "{refusal:?}");
    assert!(recovery <= AT_ONCE, "{recovery:?}");
    assert_eq!(metric(admin, "shardgate_panics_total"), 0);
}

struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
