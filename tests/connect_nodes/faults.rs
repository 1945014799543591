//! Connections to Redis that are cut again and again: every exchange is answered or fails with a
//! word, and none is done twice.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::json;

use crate::{
    cluster::{PREFIX, node_with},
    redis::Server,
    stage::{Client, Heard, Node, Session, chunk, end, lines},
    support::{Effect, Fault, FaultProxy, eventually},
};

/// Callers at the same time.
const CALLERS: usize = 4;
/// One cut for so many exchanges.
const CUT_EVERY: usize = 100;

/// How exchanges ended.
#[derive(Default, Debug)]
struct Outcomes {
    whole: usize,
    /// With an error line.
    failed: usize,
    /// Before anything was streamed.
    refused: usize,
}

/// Answers each request with its own id; how often each came.
fn serve(client: &mut Client, session: &Session, is_over: &AtomicBool) -> HashMap<String, usize> {
    let mut seen = HashMap::new();
    while !is_over.load(Ordering::SeqCst) {
        match client.hear() {
            Heard::Message(message) if message["type"] == "envelope" => {
                let id = message["envelope"]["requestId"]
                    .as_str()
                    .unwrap()
                    .to_owned();
                let part = session.envelope("stream", &id, chunk(json!(id)));
                client.send_envelope(part);
                client.send_envelope(session.envelope("stream", &id, end()));
                *seen.entry(id).or_default() += 1;
            }
            // The last one is the test's own.
            Heard::Message(message) if message["type"] == "heartbeat" => {}
            other => panic!("{other:?}"),
        }
    }
    seen
}

fn call(node: &Node, session: &Session, id: &str) -> Outcome {
    let body = json!({"timeoutMs": 20_000, "envelope": session.request(id)});
    let (mut caller, head) = node.stream(session.id(), &body);
    if head.status != 200 {
        assert_eq!(head.status, 503);
        return Outcome::Refused;
    }
    let lines = lines(&mut caller);
    let last = lines.last().expect("a stream has a last line");
    let parts = &lines[..lines.len() - 1];
    assert!(parts.len() <= 1, "{lines:?}");
    for part in parts {
        assert_eq!(part["payload"]["data"], id, "somebody else's answer");
    }
    match last["payload"]["event"].as_str() {
        Some("end") => {
            assert_eq!(parts.len(), 1, "a part is lost in silence");
            Outcome::Whole
        }
        Some("error") => {
            let message = last["payload"]["message"].as_str().unwrap();
            assert!(!message.contains("timed out"), "nobody may hang: {id}");
            Outcome::Failed
        }
        _ => panic!("{last}"),
    }
}

enum Outcome {
    Whole,
    Failed,
    Refused,
}

/// A Redis, a node that reaches it through a proxy, and one that does not.
fn behind_a_proxy(index: usize) -> (Server, FaultProxy, [Node; 2]) {
    let redis = Server::start(&[]);
    let proxy = FaultProxy::start(SocketAddr::from(([127, 0, 0, 1], redis.port)));
    let nodes = [0, 1].map(|number| {
        let port = if number == index {
            proxy.address.port()
        } else {
            redis.port
        };
        node_with(port, &format!("node-{number}"), 2, |settings| {
            if let (Some(redis), true) = (&mut settings.redis, number == index) {
                redis.host = proxy.address.ip().to_string();
            }
        })
    });
    (redis, proxy, nodes)
}

/// From now on what Redis says is lost with the connection, and done all the same.
fn lose_replies(proxy: &FaultProxy) {
    proxy.arm(Fault::in_reply(0, Effect::Reset));
}

/// The owner cannot know that its answers have arrived, and sends them again.
#[test]
fn answers_whose_fate_is_unknown_arrive_once() {
    let (_redis, proxy, [a, b]) = behind_a_proxy(0);
    let (mut client, session) = a.bound("tmb_1");
    for round in 0..10 {
        let id = format!("r-{round}");
        let mut caller = b.open_stream(session.id(), &session.stream_body(&id));
        client.envelope();
        let hits = proxy.hits();
        lose_replies(&proxy);
        client.send_envelope(session.envelope("stream", &id, chunk(json!(round))));
        proxy.await_hits(hits + 1);
        proxy.mend();
        client.send_envelope(session.envelope("stream", &id, end()));
        let lines = lines(&mut caller);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(lines[0]["payload"]["data"], round);
        assert_eq!(lines[1]["payload"]["event"], "end");
        eventually("the node is back", || a.is_ready().then_some(()));
    }
}

/// Whoever publishes cannot know whether it was done: it is said, and not done again.
#[test]
fn a_publication_whose_fate_is_unknown_is_told_and_not_repeated() {
    let (_redis, proxy, [a, b]) = behind_a_proxy(1);
    let (mut client, session) = a.bound("tmb_1");
    // The session is known from now on.
    assert_eq!(
        b.publish(session.id(), &session.request("first")).status,
        202
    );
    assert_eq!(client.envelope()["requestId"], "first");
    for round in 0..5 {
        let id = format!("r-{round}");
        lose_replies(&proxy);
        let (mut caller, head) = b.stream(session.id(), &session.stream_body(&id));
        assert_eq!(head.status, 200);
        let lines = lines(&mut caller);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["payload"]["event"], "error");
        proxy.mend();
        assert_eq!(client.envelope()["requestId"], id);
        eventually("the node is back", || b.is_ready().then_some(()));
        lose_replies(&proxy);
        let id = format!("plain-{round}");
        let refused = b.publish(session.id(), &session.request(&id));
        assert_eq!(refused.status, 503);
        let code = "connection_gateway.outcome_unknown";
        assert_eq!(refused.json()["error"]["code"], code);
        proxy.mend();
        assert_eq!(client.envelope()["requestId"], id);
        eventually("the node is back", || b.is_ready().then_some(()));
    }
    // Nothing came twice.
    client.is_served();
}

/// What waits in all mailboxes together may be more than a shard takes as one reply.
#[test]
fn mailboxes_that_are_full_at_once_are_read_all_the_same() {
    // 15 MB each, and a reply has 16 MiB: two are more than one reply.
    let sessions = if is_long() { 8 } else { 3 };
    let redis = Server::start(&[]);
    let node = node_with(redis.port, "node-a", 1, |settings| {
        settings.slow_consumer_time = Duration::from_secs(600);
    });
    let bound: Vec<_> = (0..sessions)
        .map(|number| node.bound(&format!("tmb_{number}")))
        .collect();
    // At one moment, as no number of publications would be.
    let fill = r"
        local data = string.rep('x', 950000)
        for key, template in ipairs(ARGV) do
          for number = 1, 16 do
            local text = string.gsub(string.gsub(template, 'DATA', data), 'NUMBER', tostring(number))
            redis.call('XADD', KEYS[key], '*', 'envelope', text)
          end
        end
        return 'done'";
    let key = |session: &Session| format!("{PREFIX}mailbox:{}", session.id());
    let keys: Vec<String> = bound.iter().map(|(_, session)| key(session)).collect();
    let templates: Vec<String> = bound
        .iter()
        .map(|(_, session)| {
            session
                .envelope("event", "NUMBER", json!("DATA"))
                .to_string()
        })
        .collect();
    let count = sessions.to_string();
    let mut command: Vec<&[u8]> = vec![b"EVAL", fill.as_bytes(), count.as_bytes()];
    command.extend(keys.iter().chain(&templates).map(String::as_bytes));
    assert_eq!(redis.admin().ask(&command), b"done");
    thread::scope(|scope| {
        for (mut client, _) in bound {
            scope.spawn(move || {
                for number in 1..=16 {
                    assert_eq!(client.envelope()["requestId"], number.to_string());
                }
                client.is_served();
            });
        }
    });
}

fn is_long() -> bool {
    std::env::var_os("SHARDGATE_TEST_LONG").is_some()
}

#[test]
fn cut_connections_lose_and_repeat_nothing() {
    let count = if is_long() { 10_000 } else { 1_000 };
    let redis = Server::start(&[]);
    let proxies =
        [(); 2].map(|()| FaultProxy::start(SocketAddr::from(([127, 0, 0, 1], redis.port))));
    let [a, b] = [0, 1].map(|index| {
        let name = format!("node-{index}");
        let address = proxies[index].address;
        node_with(address.port(), &name, 2, |settings| {
            if let Some(redis) = &mut settings.redis {
                redis.host = address.ip().to_string();
            }
        })
    });
    let (mut client, session) = a.bound("tmb_1");
    let (is_over, next) = (AtomicBool::new(false), AtomicUsize::new(0));
    let outcomes = Mutex::new((Outcomes::default(), Vec::new()));
    let seen = thread::scope(|scope| {
        let serving = scope.spawn(|| serve(&mut client, &session, &is_over));
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::SeqCst);
                        if number >= count {
                            return;
                        }
                        if number % CUT_EVERY == CUT_EVERY / 2 {
                            proxies[number / CUT_EVERY % 2].cut();
                        }
                        let id = format!("r-{number}");
                        let outcome = call(&b, &session, &id);
                        let mut outcomes = outcomes.lock().unwrap();
                        match outcome {
                            Outcome::Whole => {
                                outcomes.0.whole += 1;
                                outcomes.1.push(id);
                            }
                            Outcome::Failed => outcomes.0.failed += 1,
                            Outcome::Refused => {
                                outcomes.0.refused += 1;
                                drop(outcomes);
                                // Until Redis is reached again.
                                thread::park_timeout(Duration::from_millis(20));
                            }
                        }
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.join().unwrap();
        }
        is_over.store(true, Ordering::SeqCst);
        // One more thing for the client to hear, so that it looks.
        eventually("the last request is accepted", || {
            let response = b.publish(session.id(), &session.request("last"));
            (response.status == 202).then_some(())
        });
        serving.join().unwrap()
    });
    let (outcomes, whole) = outcomes.into_inner().unwrap();
    println!("{count} exchanges: {outcomes:?}");
    assert_eq!(outcomes.whole + outcomes.failed + outcomes.refused, count);
    assert!(
        seen.values().all(|times| *times == 1),
        "a request came twice"
    );
    assert!(whole.iter().all(|id| seen.contains_key(id)));
    assert!(outcomes.whole >= count / 2, "{outcomes:?}");
}
