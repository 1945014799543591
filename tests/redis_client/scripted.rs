//! Servers that say what a real one rarely or never says: an older protocol, hostile replies,
//! pushes anywhere, refusals.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use shardgate::redis::{ConnectionEnd, RedisFault, RedisOptions, RespFault, Tracking};

use super::stage::{on_each_driver, patient, refused, start, until};
use super::support::Scripted;

/// What a server of version 3 with tracking says to the handshake; `None` for other commands.
fn welcome(command: &[Vec<u8>]) -> Option<&'static [u8]> {
    match command[0].as_slice() {
        b"HELLO" => Some(b"%1\r\n+proto\r\n:3\r\n"),
        b"CLIENT" => Some(b"+OK\r\n"),
        b"PING" => Some(b"+PONG\r\n"),
        _ => None,
    }
}

#[test]
fn a_server_of_version_2_is_used_without_tracking() {
    on_each_driver(
        || {
            Scripted::start(|command| {
                let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
                let answer: &[u8] = match words[..] {
                    [b"AUTH", b"me", b"pw"] | [b"SELECT", b"2"] => b"+OK\r\n",
                    [b"PING"] => b"+PONG\r\n",
                    [b"GET", b"there"] => b"$5\r\nvalue\r\n",
                    [b"GET", _] => b"$-1\r\n",
                    [b"LRANGE", ..] => b"*2\r\n$-1\r\n:1\r\n",
                    _ => b"-ERR unknown command\r\n",
                };
                answer.to_vec()
            })
        },
        |shard, server| {
            Box::pin(async move {
                let options = RedisOptions {
                    username: Some(String::from("me")),
                    password: Some(String::from("pw")),
                    database: 2,
                    ..patient()
                };
                let (client, _) = start(&shard, server.port, options.clone());
                assert_eq!(client.get(b"there").await, Ok(Some(b"value".to_vec())));
                assert_eq!(client.get(b"not there").await, Ok(None));
                let list = client.command(&[b"LRANGE", b"l", b"0", b"1"]).await;
                assert!(list.is_ok(), "{list:?}");
                assert_eq!(client.tracking(), Tracking::Unavailable);
                let wrong = RedisOptions {
                    password: Some(String::from("no")),
                    ..options
                };
                let (client, _) = start(&shard, server.port, wrong);
                assert_eq!(client.get(b"there").await, Err(RedisFault::Disconnected));
                assert_eq!(client.last_end(), Some(refused("ERR")));
            })
        },
    );
}

#[test]
fn hostile_replies_end_the_connection_and_nothing_else() {
    on_each_driver(
        || {
            Scripted::start(|command| {
                let answer = welcome(command).map(<[u8]>::to_vec);
                answer.unwrap_or_else(|| match command[1].as_slice() {
                    b"deep" => b"*1\r\n".repeat(20_000),
                    b"huge" => b"$99999999999\r\n".to_vec(),
                    b"many" => b"*99999999\r\n".to_vec(),
                    b"line" => vec![b'+'; 100_000],
                    b"other" => b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
                    b"number" => b":12x\r\n".to_vec(),
                    b"twice" => b"_\r\n+OK\r\n".to_vec(),
                    b"gone" => Vec::new(),
                    _ => b"_\r\n".to_vec(),
                })
            })
        },
        |shard, server| {
            Box::pin(async move {
                let options = RedisOptions {
                    back_off_max: Duration::from_millis(5),
                    ..patient()
                };
                let (client, _) = start(&shard, server.port, options);
                let protocol = ConnectionEnd::Protocol;
                for (key, end) in [
                    ("deep", protocol(RespFault::TooDeep)),
                    ("huge", protocol(RespFault::TooLong)),
                    ("many", protocol(RespFault::TooLong)),
                    ("line", protocol(RespFault::LineTooLong)),
                    ("other", protocol(RespFault::Unsupported(b'H'))),
                    ("number", protocol(RespFault::Malformed)),
                    ("gone", ConnectionEnd::Closed),
                    ("twice", ConnectionEnd::Unsolicited),
                ] {
                    until("a connection", || client.is_connected()).await;
                    let outcome = client.get(key.as_bytes()).await;
                    let expected = if key == "twice" {
                        Ok(None)
                    } else {
                        Err(RedisFault::Lost)
                    };
                    assert_eq!(outcome, expected, "{key}");
                    until("the end", || client.last_end() == Some(end.clone())).await;
                }
                until("a connection", || client.is_connected()).await;
                assert_eq!(client.get(b"good").await, Ok(None));
                assert_eq!(client.counters().reconnects.get(), 8);
            })
        },
    );
}

#[test]
fn pushes_between_replies_reach_their_listener_and_no_caller() {
    on_each_driver(
        || {
            Scripted::start(|command| {
                let push = b">2\r\n+invalidate\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n";
                let other = b">2\r\n+message\r\n+x\r\n";
                let answer = match welcome(command) {
                    Some(answer) => answer.to_vec(),
                    None => [b"$1\r\n", &command[1][..], b"\r\n"].concat(),
                };
                [&push[..], &answer, other, push].concat()
            })
        },
        |shard, server| {
            Box::pin(async move {
                let (client, told) = start(&shard, server.port, patient());
                let keys: [&[u8]; 4] = [b"1", b"2", b"3", b"4"];
                let outcomes = join_all(keys.iter().map(|key| client.get(key))).await;
                for (outcome, key) in outcomes.iter().zip(keys) {
                    assert_eq!(outcome, &Ok(Some(key.to_vec())));
                }
                assert!(told.has(Some(b"a")) && told.has(Some(b"b")));
                // Four commands of the handshake and four of ours, two keys before and two behind.
                until("the last push", || {
                    client.counters().invalidations.get() == 32
                })
                .await;
                assert!(!told.has(None));
            })
        },
    );
}

#[test]
fn a_server_that_loads_or_may_not_write_is_left_and_tried_again() {
    on_each_driver(
        || {
            let pings = AtomicU32::new(0);
            Scripted::start(move |command| {
                let is_loading = command[0] == b"PING" && pings.fetch_add(1, Ordering::SeqCst) < 2;
                let answer: &[u8] = match welcome(command) {
                    _ if is_loading => b"-LOADING Redis is loading the dataset in memory\r\n",
                    Some(answer) => answer,
                    None if command[0] == b"SET" => b"-READONLY You can't write here.\r\n",
                    None => b"_\r\n",
                };
                answer.to_vec()
            })
        },
        |shard, server| {
            Box::pin(async move {
                let (client, _) = start(&shard, server.port, patient());
                assert_eq!(client.get(b"k").await, Err(RedisFault::Disconnected));
                assert_eq!(client.last_end(), Some(refused("LOADING")));
                until("the loaded server", || client.is_connected()).await;
                let fault = RedisFault::Refused(String::from("READONLY"));
                assert_eq!(client.set(b"k", b"v").await, Err(fault));
                until("the end", || client.last_end() == Some(refused("READONLY"))).await;
                until("another try", || client.is_connected()).await;
                assert_eq!(client.get(b"k").await, Ok(None));
            })
        },
    );
}
