//! Redis down, away and back, and under a rush: known users are served, unknown ones are told at
//! once, and a user's configuration is read once a shard.

use std::{
    sync::{Arc, Barrier},
    time::{Duration, Instant},
};

use crate::{
    caller::{await_ready, curl, metric},
    process::{Folder, until},
    redis::Server,
    redis_config::{
        NO_CONFIG, PING, Seen, both, caller, info, look, map_form, publish, serve, until_seen,
    },
};

#[test]
fn without_redis_at_the_start_it_starts_says_so_and_recovers() {
    let redis = Server::start(&[]);
    redis.kill();
    let home = Folder::new();
    let mut process = serve(&home, redis.port, &[]);
    process.printed("not ready");
    let admin = process.admin_address();
    let ready = || curl(&[&format!("http://{admin}/readyz")]);
    assert_eq!((ready().status, &*ready().body), (503, "not ready\n"));
    assert_eq!(curl(&[&format!("http://{admin}/livez")]).status, 200);
    let ann = caller(&process, "ann", "one");
    for _ in 0..10 {
        ann.post(PING).assert_plain(400, NO_CONFIG);
    }

    redis.restart();
    publish(&mut redis.admin(), "ann", &map_form("one"));
    await_ready(admin);
    until_seen(&ann, Seen::Host);
    process.signal("TERM");
    assert_eq!(process.exit_code(), 0);
}

#[test]
fn an_outage_of_redis_is_ridden_out_by_who_is_known_and_told_to_who_is_not() {
    // A lifetime of nothing: each request asks, so each is served in spite of the outage.
    for lifetime in ["0", "1"] {
        let (redis, process, _home) = both(&["--user-config-cache-expiry-seconds", lifetime]);
        let admin = process.admin_address();
        let (ann, cold) = (
            caller(&process, "ann", "one"),
            caller(&process, "cold", "one"),
        );
        publish(&mut redis.admin(), "ann", &map_form("one"));
        publish(&mut redis.admin(), "cold", &map_form("one"));
        until_seen(&ann, Seen::Host);

        let stale = || metric(admin, "shardgate_configs_stale_total");
        for suspend in [true, false] {
            if suspend {
                redis.suspend();
            } else {
                redis.kill();
            }
            let before = stale();
            until("known users are served beyond the lifetime", || {
                assert_eq!(look(&ann), Seen::Host);
                (stale() >= before + 2).then_some(())
            });
            let started = Instant::now();
            for _ in 0..10 {
                assert_eq!(look(&cold), Seen::NoConfig);
            }
            let elapsed = started.elapsed();
            println!(
                "10 refusals of an unknown user in {} ms",
                elapsed.as_millis()
            );
            assert!(elapsed < Duration::from_secs(4), "{elapsed:?}");
            assert_eq!(curl(&[&format!("http://{admin}/readyz")]).status, 503);
            if suspend {
                redis.resume();
                await_ready(admin);
                until_seen(&ann, Seen::Host);
            }
        }
        redis.restart();
        publish(&mut redis.admin(), "cold", &map_form("one"));
        await_ready(admin);
        until_seen(&cold, Seen::Host);
        // It came back without data: nobody has a configuration that nobody published.
        until_seen(&ann, Seen::NoConfig);
    }
}

#[test]
fn many_cold_requests_of_one_user_are_one_read_a_shard() {
    let (redis, process, _home) = both(&[]);
    let mut admin = redis.admin();
    for round in 0..4 {
        let subject = format!("user-{round}");
        publish(&mut admin, &subject, &map_form("one"));
        admin.order(&[b"CONFIG", b"RESETSTAT"]);
        let start = Arc::new(Barrier::new(50));
        let threads: Vec<_> = (0..50)
            .map(|_| {
                let (start, caller) = (start.clone(), caller(&process, &subject, "one"));
                std::thread::spawn(move || {
                    start.wait();
                    look(&caller)
                })
            })
            .collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Seen::Host);
        }
        let gets = info(&mut admin, "commandstats", "cmdstat_get:calls=");
        let gets: u32 = gets.split(',').next().unwrap().parse().unwrap();
        assert!((1..=2).contains(&gets), "{gets} reads");
    }
}
