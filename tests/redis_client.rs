//! The Redis client against real servers and, for what a real one never does, scripted ones: order,
//! invalidation, outage, refusal, hostile replies. Every test runs on each I/O driver there is.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]
use std::{
    cell::Cell,
    fs,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, future::join_all};
use rustls::pki_types::ServerName;
use shardgate::{
    link::Link,
    redis::{
        Connect, ConnectionEnd, Invalidated, OnInvalidate, RedisClient, RedisFault, RedisOptions,
        Tracking,
    },
};
use shards::{Stream, sleep, spawn};

#[path = "redis_client/scripted.rs"]
mod scripted;
#[path = "redis_client/stage.rs"]
mod stage;
#[path = "support/redis.rs"]
mod support;

use stage::{Told, on_each_driver, patient, plain, refused, start, until};
use support::{PATIENCE, Server, free_port};

#[test]
fn binary_keys_and_values_come_back_as_they_went() {
    on_each_driver(
        || Server::start(&[]),
        |shard, server| {
            Box::pin(async move {
                let (client, _) = start(&shard, server.port, patient());
                let bytes: Vec<u8> = (0..=255).collect();
                assert_eq!(client.get(&bytes).await, Ok(None));
                assert_eq!(client.tracking(), Tracking::On);
                let large = bytes.repeat(8_000);
                for value in [&bytes[..], b"", b"\r\n$-1\r\n", &large] {
                    assert_eq!(client.set(&bytes, value).await, Ok(()));
                    assert!(client.get(&bytes).await == Ok(Some(value.to_vec())));
                    assert!(server.admin().ask(&[b"GET", &bytes]) == value);
                }
                assert_eq!(client.del(&bytes).await, Ok(true));
                assert_eq!(client.del(&bytes).await, Ok(false));
                assert_eq!(client.get(&bytes).await, Ok(None));
                assert_eq!(client.counters().gets.get(), 6);
                assert_eq!(client.counters().faults.get(), 0);
                assert_eq!(client.counters().reconnects.get(), 0);
            })
        },
    );
}

#[test]
fn a_fault_of_one_command_leaves_the_connection_alone() {
    on_each_driver(
        || Server::start(&[]),
        |shard, server| {
            Box::pin(async move {
                let (client, _) = start(&shard, server.port, patient());
                client.command(&[b"LPUSH", b"list", b"a"]).await.unwrap();
                let fault = RedisFault::Refused(String::from("WRONGTYPE"));
                assert_eq!(client.get(b"list").await, Err(fault));
                let huge = vec![0; 5 * 1024 * 1024];
                assert_eq!(client.set(b"huge", &huge).await, Err(RedisFault::TooLarge));
                assert_eq!(client.get(b"other").await, Ok(None));
                assert_eq!(client.counters().faults.get(), 2);
                assert_eq!(client.last_end(), None);
            })
        },
    );
}

#[test]
fn changes_by_others_and_by_ourselves_are_told() {
    on_each_driver(
        || Server::start(&[]),
        |shard, server| {
            Box::pin(async move {
                let (client, told) = start(&shard, server.port, patient());
                let mut admin = server.admin();
                let key: &[u8] = b"\x92\xaaUserConfig\xa1\r";
                // A key that was not there is tracked as well.
                assert_eq!(client.get(key).await, Ok(None));
                admin.order(&[b"SET", key, b"1"]);
                told.wait_for(Some(key)).await;
                assert_eq!(client.get(key).await, Ok(Some(b"1".to_vec())));
                client.set(key, b"2").await.unwrap();
                told.wait_for(Some(key)).await;
                assert_eq!(client.get(key).await, Ok(Some(b"2".to_vec())));
                assert_eq!(admin.ask(&[b"PEXPIRE", key, b"1"]), b":1");
                told.wait_for(Some(key)).await;
                client.get(key).await.unwrap();
                admin.order(&[b"FLUSHALL"]);
                told.wait_for(None).await;
                assert!(client.counters().invalidations.get() >= 4);
            })
        },
    );
}

#[test]
fn a_thousand_callers_share_the_connection_and_each_gets_its_own_value() {
    on_each_driver(
        || Server::start(&[]),
        |shard, server| {
            Box::pin(async move {
                let mut admin = server.admin();
                for index in 0..1_000 {
                    let text = format!("k{index}");
                    admin.order(&[b"SET", text.as_bytes(), format!("v{index}").as_bytes()]);
                }
                let (client, _) = start(&shard, server.port, patient());
                let done = Rc::new(Cell::new(0));
                for index in 0..1_000 {
                    let (client, done) = (client.clone(), done.clone());
                    spawn(async move {
                        let value = client.get(format!("k{index}").as_bytes()).await;
                        if value == Ok(Some(format!("v{index}").into_bytes())) {
                            done.set(done.get() + 1);
                        }
                    });
                }
                until("all callers", || done.get() == 1_000).await;
                let clients = admin.ask(&[b"CLIENT", b"LIST"]);
                let clients = String::from_utf8(clients).unwrap();
                assert_eq!(clients.matches("name=shardgate").count(), 1);
            })
        },
    );
}

#[test]
fn more_commands_than_allowed_are_refused_and_the_rest_served() {
    on_each_driver(
        || Server::start(&[]),
        |shard, server| {
            Box::pin(async move {
                let options = RedisOptions {
                    in_flight_max: 4,
                    ..patient()
                };
                let (client, _) = start(&shard, server.port, options);
                client.get(b"k").await.unwrap();
                let outcomes = join_all((0..10).map(|_| client.get(b"k"))).await;
                let expected: Vec<_> = (0..10)
                    .map(|index| {
                        if index < 4 {
                            Ok(None)
                        } else {
                            Err(RedisFault::Busy)
                        }
                    })
                    .collect();
                assert_eq!(outcomes, expected);
            })
        },
    );
}

#[test]
fn a_caller_that_leaves_does_not_shift_the_replies() {
    on_each_driver(
        || Server::start(&[]),
        |shard, server| {
            Box::pin(async move {
                server.admin().order(&[b"SET", b"a", b"1"]);
                server.admin().order(&[b"SET", b"b", b"2"]);
                let (client, _) = start(&shard, server.port, patient());
                client.get(b"c").await.unwrap();
                // Polled once, so queued, and then dropped.
                assert_eq!(client.get(b"a").now_or_never(), None);
                assert_eq!(client.get(b"b").await, Ok(Some(b"2".to_vec())));
            })
        },
    );
}

#[test]
fn a_killed_server_fails_calls_at_once_and_its_return_is_noticed() {
    on_each_driver(
        || Server::start(&[]),
        |shard, server| {
            Box::pin(async move {
                let (client, told) = start(&shard, server.port, patient());
                client.set(b"k", b"1").await.unwrap();
                server.kill();
                until("the loss", || !client.is_connected()).await;
                assert_eq!(client.tracking(), Tracking::Disconnected);
                // Ready on the first poll: no caller waits inside the reconnect loop.
                for _ in 0..3 {
                    let outcome = client.get(b"k").now_or_never();
                    assert_eq!(outcome, Some(Err(RedisFault::Disconnected)));
                }
                until("a refused attempt", || {
                    let unreachable =
                        ConnectionEnd::Unreachable(std::io::ErrorKind::ConnectionRefused);
                    client.last_end() == Some(unreachable)
                })
                .await;
                assert!(!told.has(None));
                server.restart();
                until("the return", || client.is_connected()).await;
                assert!(told.has(None), "what was cached before may be stale");
                assert_eq!(client.tracking(), Tracking::On);
                assert_eq!(client.counters().reconnects.get(), 1);
                assert_eq!(client.get(b"k").await, Ok(None));
                server.admin().order(&[b"SET", b"k", b"2"]);
                told.wait_for(Some(b"k")).await;
            })
        },
    );
}

#[test]
fn a_suspended_server_costs_one_time_limit_and_then_nothing() {
    on_each_driver(
        || Server::start(&[]),
        |shard, server| {
            Box::pin(async move {
                let options = RedisOptions {
                    idle_check: PATIENCE,
                    ..RedisOptions::default()
                };
                let (client, told) = start(&shard, server.port, options);
                until("the connection", || client.is_connected()).await;
                client.get(b"k").await.unwrap();
                server.suspend();
                let start = Instant::now();
                let outcomes = join_all((0..3).map(|_| client.get(b"k"))).await;
                assert_eq!(outcomes, vec![Err(RedisFault::Timeout); 3]);
                assert!(start.elapsed() >= Duration::from_millis(490));
                assert!(start.elapsed() < Duration::from_secs(10));
                // The system still accepts connections for it, but none is one for our callers.
                let outcome = client.get(b"k").now_or_never();
                assert_eq!(outcome, Some(Err(RedisFault::Disconnected)));
                sleep(Duration::from_millis(200)).await;
                let outcome = client.get(b"k").now_or_never();
                assert_eq!(outcome, Some(Err(RedisFault::Disconnected)));
                assert_eq!(client.last_end(), Some(ConnectionEnd::Timeout));
                server.resume();
                until("the return", || client.is_connected()).await;
                assert!(told.has(None));
                assert_eq!(client.get(b"k").await, Ok(None));
            })
        },
    );
}

#[test]
fn a_silent_connection_is_found_out_without_a_caller() {
    on_each_driver(
        || Server::start(&[]),
        |shard, server| {
            Box::pin(async move {
                let options = RedisOptions {
                    idle_check: Duration::from_millis(20),
                    ..RedisOptions::default()
                };
                let (client, _) = start(&shard, server.port, options);
                until("the connection", || client.is_connected()).await;
                server.suspend();
                until("the loss", || !client.is_connected()).await;
                assert_eq!(client.last_end(), Some(ConnectionEnd::Timeout));
                server.resume();
                until("the return", || client.is_connected()).await;
            })
        },
    );
}

#[test]
fn a_wrong_password_is_a_fault_and_tried_again_until_it_is_right() {
    on_each_driver(
        || Server::start(&["--requirepass", "right"]),
        |shard, server| {
            Box::pin(async move {
                let (none, _) = start(&shard, server.port, patient());
                assert_eq!(none.get(b"k").await, Err(RedisFault::Disconnected));
                assert_eq!(none.last_end(), Some(refused("NOAUTH")));
                let options = RedisOptions {
                    password: Some(String::from("late")),
                    ..patient()
                };
                let (client, told) = start(&shard, server.port, options);
                assert_eq!(client.get(b"k").await, Err(RedisFault::Disconnected));
                assert_eq!(client.last_end(), Some(refused("WRONGPASS")));
                let mut admin = server.admin();
                admin.order(&[b"AUTH", b"right"]);
                admin.order(&[b"CONFIG", b"SET", b"requirepass", b"late"]);
                until("the right password", || client.is_connected()).await;
                assert_eq!(client.get(b"k").await, Ok(None));
                assert_eq!(client.counters().reconnects.get(), 0);
                assert!(
                    !told.has(None),
                    "nothing was cached before the first connection"
                );
                assert!(!none.is_connected());
            })
        },
    );
}

#[test]
fn users_databases_and_missing_rights() {
    on_each_driver(
        || Server::start(&[]),
        |shard, server| {
            Box::pin(async move {
                let mut admin = server.admin();
                admin.order(&[b"ACL", b"SETUSER", b"full", b"on", b">pw", b"~*", b"+@all"]);
                let few: &[&[u8]] = &[
                    b"ACL", b"SETUSER", b"few", b"on", b">pw", b"~*", b"+get", b"+select",
                ];
                admin.order(few);
                admin.order(&[b"SELECT", b"3"]);
                admin.order(&[b"SET", b"k", b"three"]);
                for (user, tracking) in [("full", Tracking::On), ("few", Tracking::Unavailable)] {
                    let options = RedisOptions {
                        username: Some(String::from(user)),
                        password: Some(String::from("pw")),
                        database: 3,
                        ..patient()
                    };
                    let (client, _) = start(&shard, server.port, options);
                    assert_eq!(client.get(b"k").await, Ok(Some(b"three".to_vec())));
                    assert_eq!(client.tracking(), tracking);
                }
                let options = RedisOptions {
                    database: 99,
                    ..patient()
                };
                let (client, _) = start(&shard, server.port, options);
                assert_eq!(client.get(b"k").await, Err(RedisFault::Disconnected));
                assert_eq!(client.last_end(), Some(refused("ERR")));
            })
        },
    );
}

#[test]
fn tls_carries_replies_and_invalidations() {
    on_each_driver(
        || {
            let names = vec![String::from("localhost")];
            let made = rcgen::generate_simple_self_signed(names).unwrap();
            let folder = support::new_folder();
            let path = |name: &str| folder.join(name).display().to_string();
            let (cert, key) = (path("cert.pem"), path("key.pem"));
            fs::write(&cert, made.cert.pem()).unwrap();
            fs::write(&key, made.signing_key.serialize_pem()).unwrap();
            let mut roots = rustls::RootCertStore::empty();
            roots.add(made.cert.der().clone()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
            let arguments = [
                "--tls-cert-file",
                &cert,
                "--tls-key-file",
                &key,
                "--tls-ca-cert-file",
                &cert,
                "--tls-auth-clients",
                "no",
            ];
            let (server, port) = Server::start_tls(folder, &arguments);
            (server, port, Arc::new(config))
        },
        |shard, fixture| {
            Box::pin(async move {
                let (server, port, config) = (&fixture.0, fixture.1, fixture.2.clone());
                let deadlines = shard.deadlines.clone();
                let connect: Connect = Rc::new(move || {
                    let (deadlines, config) = (deadlines.clone(), config.clone());
                    async move {
                        let address = ([127, 0, 0, 1], port).into();
                        let stream = Stream::connect(address, PATIENCE, &deadlines).await?;
                        stream.deadline().arm(PATIENCE);
                        let name = ServerName::try_from("localhost").unwrap();
                        Link::connect_tls(stream, config, name).await
                    }
                    .boxed_local()
                });
                let told = Told::default();
                let client = RedisClient::start(patient(), connect, told.listener());
                let large = b"0123456789".repeat(100_000);
                client.set(b"k", &large).await.unwrap();
                assert!(client.get(b"k").await == Ok(Some(large)));
                assert_eq!(client.tracking(), Tracking::On);
                server.admin().order(&[b"SET", b"k", b"2"]);
                told.wait_for(Some(b"k")).await;
                let outcomes = join_all((0..100).map(|_| client.get(b"k"))).await;
                assert!(
                    outcomes
                        .iter()
                        .all(|value| *value == Ok(Some(b"2".to_vec())))
                );
            })
        },
    );
}

#[test]
fn the_first_connection_is_waited_for_but_not_for_ever() {
    on_each_driver(
        || (),
        |shard, _| {
            Box::pin(async move {
                let options = RedisOptions {
                    connect_timeout: Duration::from_millis(30),
                    ..patient()
                };
                let never: Connect = Rc::new(|| std::future::pending().boxed_local());
                let told = Told::default();
                let client = RedisClient::start(options, never, told.listener());
                assert_eq!(client.get(b"k").now_or_never(), None);
                assert_eq!(client.get(b"k").await, Err(RedisFault::Disconnected));
                // A refused first attempt is told at once, long before the limit.
                let (client, _) = start(&shard, free_port(), patient());
                assert_eq!(client.get(b"k").await, Err(RedisFault::Disconnected));
                assert!(matches!(
                    client.last_end(),
                    Some(ConnectionEnd::Unreachable(_))
                ));
            })
        },
    );
}

#[test]
fn a_stopped_or_forgotten_client_leaves_no_connection_behind() {
    on_each_driver(
        || Server::start(&[]),
        |shard, server| {
            Box::pin(async move {
                let (client, _) = start(&shard, server.port, patient());
                client.get(b"k").await.unwrap();
                client.stop();
                let outcome = client.get(b"k").now_or_never();
                assert_eq!(outcome, Some(Err(RedisFault::Disconnected)));
                until("the end", || shard.deadlines.open_count() == 0).await;
                assert_eq!(client.last_end(), Some(ConnectionEnd::Stopped));
                let (client, _) = start(&shard, server.port, patient());
                let other = client.clone();
                drop(client);
                assert_eq!(other.get(b"k").await, Ok(None));
                drop(other);
                until("the end", || shard.deadlines.open_count() == 0).await;
            })
        },
    );
}

#[test]
fn a_panic_in_the_listener_costs_one_connection() {
    on_each_driver(
        || Server::start(&[]),
        |shard, server| {
            Box::pin(async move {
                let connect = plain(&shard, server.port);
                let listener: OnInvalidate = Rc::new(|what| {
                    assert!(what == Invalidated::All, "meant to panic");
                });
                let client = RedisClient::start(patient(), connect, listener);
                client.get(b"k").await.unwrap();
                server.admin().order(&[b"SET", b"k", b"1"]);
                until("the end", || {
                    client.last_end() == Some(ConnectionEnd::Panicked)
                })
                .await;
                until("the return", || client.is_connected()).await;
                assert_eq!(client.get(b"k").await, Ok(Some(b"1".to_vec())));
            })
        },
    );
}
