//! What is limited, what is said over a limit, and that everything taken is given back (LIM-1).

use std::sync::Arc;

use serde_json::json;

use crate::{
    assert_refused,
    support::{
        Backend, Gate, Gateway, Layout, McpClient, ModernClient, Plan, Response, eventually,
    },
    text_of, whole_result,
};

/// A gateway for anybody with a token, before a backend whose tool `slow` waits at a gate.
struct House {
    gate: Arc<Gate>,
    backend: Backend,
    gateway: Gateway,
}

impl House {
    fn new(adjust: impl FnOnce(&mut shardgate::settings::Settings) + 'static) -> Self {
        let gate = Arc::new(Gate::default());
        let backend = Backend::modern_scripted("a", &["slow", "fast"], {
            let gate = gate.clone();
            move |asked, wire| {
                if asked.tool()? == "slow" {
                    gate.arrive();
                    while !gate.is_open() && !wire.has_left() {
                        std::thread::park_timeout(std::time::Duration::from_millis(2));
                    }
                }
                None
            }
        });
        let host = json!({"virtual_hosts": {"main": {"backends": {"a": {"name": "a", "url": backend.url()}}}}});
        let gateway = Plan::document(json!({"users": {"*": host}}))
            .layout(Layout::One)
            .with_tokens()
            .settings(adjust)
            .start();
        Self {
            gate,
            backend,
            gateway,
        }
    }

    fn client(&self, subject: &str) -> ModernClient {
        let token = self.gateway.token(subject);
        ModernClient::of(&self.gateway, "main", Some(&token))
    }

    /// A client whose call waits at the gate, as the `count`th.
    fn waiting(&self, subject: &str, count: usize) -> ModernClient {
        let mut client = self.client(subject);
        let ask = client.call_request("\"slow\"", "slow", "{}");
        client.connection.send(ask.bytes());
        self.gate.await_arrivals(count);
        client
    }
}

#[track_caller]
fn assert_over(response: &Response, reason: &str) {
    let data = assert_refused(response, 429, Some("1"), -31001);
    assert_eq!(data, json!({"reason": reason}));
    assert_eq!(response.header("retry-after"), Some("1"));
}

#[test]
fn requests_of_one_principal_are_limited() {
    let house = House::new(|settings| settings.protocols.requests_per_principal_max = 2);
    let mut held = [house.waiting("alice", 1), house.waiting("alice", 2)];
    let (mut alice, mut bob) = (house.client("alice"), house.client("bob"));
    for method in ["server/discover", "tools/list"] {
        assert_over(&alice.ask("1", method, ""), "concurrency");
        whole_result(&bob.ask("1", method, ""));
    }
    assert_over(&alice.call("1", "fast", "{}"), "concurrency");
    text_of(&bob.call("1", "fast", "{}"));
    house.gate.open();
    for client in &mut held {
        text_of(&client.connection.read_response());
    }
    text_of(&alice.call("1", "fast", "{}"));
    let refused = shardgate::admin::text(&house.gateway.inner().view);
    assert!(refused.contains("reason=\"concurrency\"} 3"), "{refused}");
}

#[test]
fn requests_in_all_are_limited_and_sessions_are_not_among_them() {
    let house = House::new(|settings| settings.protocols.requests_max = 2);
    let _held = [house.waiting("alice", 1), house.waiting("bob", 2)];
    let mut carol = house.client("carol");
    assert_over(&carol.call("1", "fast", "{}"), "concurrency");
    // Neither has the other's budget.
    let token = house.gateway.token("carol");
    let mut session = McpClient::open_on(&house.gateway, "main", Some(&token));
    session.call("1", "fast", "{}").result();
    session.send_call("2", "slow", "{}");
    house.gate.await_arrivals(3);
    house.gate.open();
    eventually("there is room again", || {
        let response = carol.call("1", "fast", "{}");
        (response.status == 200).then(|| text_of(&response))
    });
}

/// Whatever ends a request gives its place back.
#[test]
fn places_are_given_back_however_a_request_ends() {
    let house = House::new(|settings| {
        settings.protocols.requests_max = 1;
        settings.protocols.requests_per_principal_max = 1;
    });
    for number in 1..=4 {
        let client = house.waiting("alice", number);
        let mut other = house.client("bob");
        assert_over(&other.call("1", "fast", "{}"), "concurrency");
        match number % 2 {
            0 => client.connection.reset(),
            _ => drop(client),
        }
        eventually("the place of one that left", || {
            let response = other.call("1", "fast", "{}");
            (response.status == 200).then(|| text_of(&response))
        });
    }
    // Refusals and failures take none with them.
    let mut client = house.client("alice");
    for _ in 0..3 {
        assert_eq!(client.ask("1", "foo/bar", "").status, 404);
        assert_eq!(client.call("1", "none", "{}").status, 200);
        assert_eq!(client.ask("1", "tools/list", r#""cursor":"x""#).status, 400);
        house.backend.cut_connections();
    }
    eventually("there is room", || {
        let response = client.call("1", "fast", "{}");
        response.message().get("result").map(|_| text_of(&response))
    });
}

#[test]
fn calls_under_way_at_one_backend_are_limited() {
    let house = House::new(|settings| settings.upstream.concurrency_max = 1);
    let mut held = house.waiting("alice", 1);
    let mut bob = house.client("bob");
    let response = bob.call("1", "fast", "{}");
    assert_refused(&response, 200, Some("1"), -32603);
    assert!(response.text().contains("too many calls under way"));
    house.gate.open();
    text_of(&held.connection.read_response());
    text_of(&bob.call("1", "fast", "{}"));
}

#[test]
fn stateless_calls_under_way_at_one_backend_are_limited_by_themselves() {
    let house = House::new(|settings| settings.protocols.backend_calls_max = 1);
    let mut held = house.waiting("alice", 1);
    let mut bob = house.client("bob");
    let response = bob.call("1", "fast", "{}");
    assert_refused(&response, 200, Some("1"), -32603);
    assert!(response.text().contains("too many calls under way"));
    house.gate.open();
    text_of(&held.connection.read_response());
    text_of(&bob.call("1", "fast", "{}"));
}

#[test]
fn a_backends_answer_over_the_limit_is_not_passed_on() {
    let backend = Backend::modern_scripted("a", &["one"], |asked, wire| {
        let text = "x".repeat(asked.param("arguments")?.len().max(1) * 100);
        asked.tool().map(|_| {
            wire.complete(
                asked,
                &format!(r#""content":[{{"type":"text","text":"{text}"}}]"#),
            )
        })
    });
    let gateway = Plan::one(&backend)
        .settings(|settings| settings.limits.response_bytes_max = 16 * 1024)
        .start();
    let mut client = ModernClient::new(&gateway);
    text_of(&client.call("1", "one", "{}"));
    let long = format!(r#"{{"x":"{}"}}"#, "y".repeat(400));
    let response = client.call("1", "one", &long);
    assert_refused(&response, 200, Some("1"), -32603);
    assert!(!response.text().contains("xxxx"));
}

/// Bridged requests of one principal at a time (`src/stateless/bridge.rs`).
const BRIDGED_MAX: usize = 8;

#[test]
fn bridged_requests_of_one_principal_are_limited() {
    let gate = Arc::new(Gate::default());
    let backend = Backend::scripted("a", &["slow", "fast"], {
        let gate = gate.clone();
        move |asked, _| {
            if asked.tool()? == "slow" {
                gate.wait();
            }
            None
        }
    });
    let host = json!({"virtual_hosts": {"main": {"backends": {
        "a": {"name": "a", "url": backend.url(), "bridge": "per-request", "session_independent_tools": ["*"]}
    }}}});
    let gateway = Plan::document(json!({"users": {"*": host}}))
        .layout(Layout::One)
        .with_tokens()
        .start();
    let client = |subject: &str| ModernClient::of(&gateway, "main", Some(&gateway.token(subject)));
    let mut held: Vec<ModernClient> = (0..BRIDGED_MAX)
        .map(|_| {
            let mut client = client("alice");
            client
                .connection
                .send(client.call_request("1", "slow", "{}").bytes());
            client
        })
        .collect();
    gate.await_arrivals(BRIDGED_MAX);
    assert_over(&client("alice").call("1", "fast", "{}"), "bridge");
    text_of(&client("bob").call("1", "fast", "{}"));
    gate.open();
    for client in &mut held {
        text_of(&client.connection.read_response());
    }
    text_of(&client("alice").call("1", "fast", "{}"));
    eventually("all sessions end", || {
        (backend.session_count() == 0).then_some(())
    });
}

#[test]
fn listeners_are_limited_in_all_and_for_each() {
    let house = House::new(|settings| {
        settings.protocols.subscriptions_max = 3;
        settings.protocols.subscriptions_per_principal_max = 2;
    });
    const FILTER: &str = r#"{"toolsListChanged":true}"#;
    let over = |subject: &str| {
        let mut client = house.client(subject);
        let ask = client.listen_request("1", FILTER);
        assert_over(&client.connection.ask(&ask), "subscriptions");
    };
    let open = |subject: &str| {
        let mut stream = house.client(subject).listen("1", FILTER);
        stream.next_message();
        stream
    };
    let mut alice = vec![open("alice"), open("alice")];
    over("alice");
    let bob = open("bob");
    over("bob");
    // They hold no place of requests.
    text_of(&house.client("alice").call("1", "fast", "{}"));
    drop(alice.pop());
    eventually("a place is free", || {
        let mut client = house.client("carol");
        let ask = client.listen_request("1", FILTER);
        client.connection.send(ask.bytes());
        (client.connection.read_head().status == 200).then_some(())
    });
    drop((alice, bob));
}
