//! S8: one backend healthy, one silent, one that refuses; and what becomes of them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use shardgate::settings::FailMode;

use crate::{
    support::{Backend, Gate, LAYOUTS, Layout, McpClient, Plan, Refusing, Response, eventually},
    text_of,
};

const UNAVAILABLE: &str = "shardgate/unavailable";
/// Far longer than the fan-out deadline of these tests.
const LONG: Duration = Duration::from_secs(25);

/// A backend that accepts and stays silent until its gate is open.
fn silent(name: &str, tools: &[&str]) -> (Backend, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let backend = Backend::scripted(name, tools, {
        let gate = gate.clone();
        move |_, _| {
            gate.wait();
            None
        }
    });
    (backend, gate)
}

fn names(response: &Response) -> Vec<String> {
    let result = response.result();
    let tools = result["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

fn patient(plan: Plan) -> Plan {
    plan.settings(|settings| {
        settings.timeouts.initialize = Duration::from_secs(1);
        settings.timeouts.upstream_first_byte = LONG;
    })
}

#[test]
fn s8_the_healthy_backend_is_served_while_the_others_are_not() {
    the_others_come_one_by_one(Layout::One);
}

#[test]
fn s8_and_so_it_is_on_two_shards() {
    the_others_come_one_by_one(Layout::Two);
}

#[test]
fn s8_and_so_it_is_when_all_is_forwarded() {
    the_others_come_one_by_one(Layout::Spread);
}

fn the_others_come_one_by_one(layout: Layout) {
    let a = Backend::start("a", &["one"]);
    let (b, gate) = silent("b", &["two"]);
    let c = Refusing::new();
    let plan = Plan::of(&[("a", &a.url()), ("b", &b.url()), ("c", &c.url())]);
    let gateway = patient(plan).layout(layout).start();
    let started = Instant::now();
    let response = gateway
        .connect()
        .ask(&McpClient::initialize("/servers/main/mcp"));
    assert!(started.elapsed() < LONG / 2, "the fan-out deadline counts");
    assert!(response.result()["capabilities"]["tools"].is_object());

    let mut client = McpClient::open(&gateway);
    let mut stream = client.stream();
    assert!(
        stream.next_block().unwrap().starts_with(':'),
        "the first byte comes at once"
    );
    let response = client.list();
    assert_eq!(names(&response), ["a-one"]);
    let missing = &response.result()["_meta"][UNAVAILABLE];
    assert_eq!(missing, &serde_json::json!(["b", "c"]));
    assert_eq!(text_of(&client.call("1", "a-one", "{}")), "a one {}");
    // A call to the silent one holds up nobody else of the session.
    let mut waiting = client.again();
    waiting.send_call("2", "b-two", "{}");
    let response = client.call("3", "c-three", "{}");
    assert_eq!((response.status, response.error_code()), (200, -32603));
    assert_eq!(response.message()["id"], 3);
    for id in 10..30 {
        let response = client.again().call(&id.to_string(), "a-one", "{}");
        assert_eq!(text_of(&response), "a one {}");
    }
    assert!(!gate.is_open(), "the silent one has said nothing yet");

    gate.open();
    let event = stream.next_event().unwrap();
    assert!(
        event.data.contains("notifications/tools/list_changed"),
        "{}",
        event.data
    );
    let response = client.list();
    assert_eq!(names(&response), ["a-one", "b-two"]);
    assert_eq!(
        response.result()["_meta"][UNAVAILABLE],
        serde_json::json!(["c"])
    );
    assert_eq!(text_of(&waiting.connection.read_response()), "b two {}");

    let _c = Backend::scripted_on(c.listen(), "c", &["three"], |_, _| None);
    let event = stream.next_event().unwrap();
    assert!(
        event.data.contains("notifications/tools/list_changed"),
        "{}",
        event.data
    );
    let response = client.list();
    assert_eq!(names(&response), ["a-one", "b-two", "c-three"]);
    assert_eq!(response.result().get("_meta"), None);
}

/// The news must reach the client also when the backend comes before the first look at it.
#[test]
fn s8_a_backend_that_comes_at_once_is_announced_too() {
    let a = Backend::start("a", &["one"]);
    let (b, gate) = silent("b", &["two"]);
    let gateway = patient(Plan::of(&[("a", &a.url()), ("b", &b.url())]))
        .layout(Layout::Spread)
        .start();
    let mut client = McpClient::open(&gateway);
    let mut stream = client.stream();
    assert!(stream.next_block().unwrap().starts_with(':'));
    assert_eq!(client.tool_names(), ["a-one"]);
    gate.open();
    // Opened by its own late answer.
    eventually("both are open", || {
        (gateway.metric("shardgate_backend_sessions_opened_total") == 2).then_some(())
    });
    let event = stream.next_event().unwrap();
    assert!(event.data.contains("list_changed"), "{}", event.data);
    assert_eq!(client.tool_names(), ["a-one", "b-two"]);
}

#[test]
fn s8_the_circuit_spares_lists_the_penalty() {
    let a = Backend::start("a", &["one"]);
    let (b, gate) = silent("b", &["two"]);
    let gateway = Plan::of(&[("a", &a.url()), ("b", &b.url())])
        .layout(Layout::Spread)
        .settings(|settings| {
            // The healthy one has all the time it may need on a busy machine.
            settings.timeouts.initialize = LONG;
            settings.timeouts.upstream_first_byte = Duration::from_millis(500);
        })
        .start();
    let mut client = McpClient::open(&gateway);
    eventually("the healthy one is open", || {
        (client.tool_names() == ["a-one"]).then_some(())
    });
    for _ in 0..300 {
        assert_eq!(client.tool_names(), ["a-one"]);
    }
    // Three failures open it; then a probe after 1 s, 2 s, 4 s, ...: without it, one for each list.
    let asked = b.connection_count();
    assert!(asked <= 15, "the silent backend was asked {asked} times");
    gate.open();
}

#[test]
fn s8_fail_mode_closed_turns_it_into_an_error() {
    let a = Backend::start("a", &["one"]);
    let (b, gate) = silent("b", &["two"]);
    let c = Refusing::new();
    for missing in [b.url(), c.url()] {
        let plan = Plan::of(&[("a", &a.url()), ("x", &missing)]);
        let gateway = patient(plan)
            .settings(|settings| settings.upstream.fail_mode = FailMode::Closed)
            .start();
        let response = gateway
            .connect()
            .ask(&McpClient::initialize("/servers/main/mcp"));
        assert_eq!((response.status, response.error_code()), (200, -32603));
        assert_eq!(response.message()["id"], 0);
        assert_eq!(response.header("mcp-session-id"), None);
        eventually("nothing is left of the session", || {
            (gateway.metric("shardgate_sessions") == 0 && a.session_count() == 0).then_some(())
        });
    }
    gate.open();
}

#[test]
fn s8_fail_mode_closed_counts_for_lists_too() {
    let a = Backend::start("a", &["one"]);
    let b = Backend::start("b", &["two"]);
    let gateway = Plan::of(&[("a", &a.url()), ("b", &b.url())])
        .settings(|settings| settings.upstream.fail_mode = FailMode::Closed)
        .start();
    let mut client = McpClient::open(&gateway);
    assert_eq!(client.tool_names(), ["a-one", "b-two"]);
    drop(b);
    let response = client.list();
    assert_eq!((response.status, response.error_code()), (200, -32603));
    assert_eq!(text_of(&client.call("1", "a-one", "{}")), "a one {}");
}

#[test]
fn s8_without_any_backend_the_session_still_opens() {
    let c = Refusing::new();
    let gateway = Plan::of(&[("a", &c.url()), ("b", &c.url())]).start();
    let response = gateway
        .connect()
        .ask(&McpClient::initialize("/servers/main/mcp"));
    assert_eq!(response.result()["capabilities"], serde_json::json!({}));
    let mut client = McpClient::open(&gateway);
    let response = client.list();
    assert_eq!(names(&response), [""; 0]);
    assert_eq!(
        response.result()["_meta"][UNAVAILABLE],
        serde_json::json!(["a", "b"])
    );
}

/// What a dying backend did or said is neither repeated nor passed on.
#[test]
fn s8_a_backend_that_dies_or_raves_in_a_call_costs_that_call_only() {
    let cases: [(&str, &str); 9] = [
        ("closes", ""),
        ("cuts the head", "HTTP/1.1 200 OK\r\ncontent-type: appl"),
        (
            "cuts the body",
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{\"canary",
        ),
        ("is not HTTP", "canary canary canary\r\n\r\n"),
        (
            "answers HTML",
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\ncanary",
        ),
        (
            "answers 500",
            "HTTP/1.1 500 canary\r\ncontent-length: 6\r\n\r\ncanary",
        ),
        (
            "answers no JSON",
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 6\r\n\r\ncanary",
        ),
        (
            "answers 202",
            "HTTP/1.1 202 OK\r\ncontent-length: 0\r\n\r\n",
        ),
        (
            "answers somebody else",
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 48\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":\"canary\",\"result\":{\"x\":1}}",
        ),
    ];
    for (number, (case, bytes)) in cases.into_iter().enumerate() {
        let backend = Backend::scripted("a", &["one", "dies"], move |asked, wire| {
            if asked.tool()? != "dies" {
                return None;
            }
            wire.send(bytes);
            wire.close();
            Some(())
        });
        let gateway = Plan::one(&backend).layout(LAYOUTS[number % 3]).start();
        let mut client = McpClient::open(&gateway);
        let response = client.call("8", "dies", "{}");
        assert_eq!(
            (response.status, response.error_code()),
            (200, -32603),
            "{case}"
        );
        assert_eq!(response.message()["id"], 8, "{case}");
        assert!(
            !response.text().contains("canary"),
            "{case}: {}",
            response.text()
        );
        assert_eq!(
            backend.seen_rpc("tools/call").len(),
            1,
            "{case}: asked once only"
        );
        assert_eq!(
            text_of(&client.call("9", "one", "{}")),
            "a one {}",
            "{case}"
        );
    }
}

/// A silent and a dead backend cost a thousand sessions no more than one: they are not asked by
/// each of them.
#[test]
fn s8_a_thousand_sessions() {
    const SESSIONS: usize = 1_000;
    const THREADS: usize = 8;
    let a = Backend::start("a", &["one"]);
    let (b, gate) = silent("b", &["two"]);
    let c = Refusing::new();
    let gateway = Plan::of(&[("a", &a.url()), ("b", &b.url()), ("c", &c.url())])
        .layout(Layout::Spread)
        .settings(|settings| {
            settings.timeouts.initialize = Duration::from_millis(300);
            settings.timeouts.upstream_first_byte = Duration::from_millis(300);
            settings.limits.sessions_per_principal_max = 10_000;
        })
        .start();
    std::thread::scope(|scope| {
        let open = || {
            let clients: Vec<McpClient> = (0..SESSIONS / THREADS)
                .map(|_| McpClient::open(&gateway))
                .collect();
            for (number, mut client) in clients.into_iter().enumerate() {
                assert_eq!(client.tool_names(), ["a-one"]);
                let id = number.to_string();
                assert_eq!(client.call(&id, "a-one", "{}").message()["id"], number);
            }
        };
        for _ in 0..THREADS {
            scope.spawn(open);
        }
    });
    assert!(a.session_count() >= SESSIONS);
    let asked = b.connection_count();
    assert!(
        asked < SESSIONS / 4,
        "the silent backend was asked {asked} times"
    );
    gate.open();
}
