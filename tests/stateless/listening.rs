//! `subscriptions/listen`: what is acknowledged, what is heard, and how it ends (SUB-1, SUB-2).

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use crate::{
    assert_refused,
    support::{
        Backend, Connection, EventStream, Gateway, LAYOUTS, Layout, ModernClient, PATIENCE, Plan,
        Speaker, event, eventually, find, request,
    },
    text_of,
};

const ID_KEY: &str = "io.modelcontextprotocol/subscriptionId";
const TOOLS: &str = r#"{"toolsListChanged":true}"#;
const ALL: &str = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true}}"#;
const LONG_MS: u64 = 86_400_000;

/// A backend that says on its listeners' streams what the test says.
struct House {
    speaker: Arc<Speaker>,
    backend: Backend,
}

impl House {
    fn new(name: &str) -> Self {
        let speaker = Arc::new(Speaker::default());
        let backend = Backend::modern_scripted(name, &["one"], {
            let speaker = speaker.clone();
            move |asked, wire| {
                asked
                    .is("subscriptions/listen")
                    .then(|| speaker.speak(wire))
            }
        });
        backend.set_capabilities(ALL);
        Self { speaker, backend }
    }

    fn say(&self, method: &str, params: &str) {
        self.speaker
            .say(event(None, &request(None, method, params)));
    }
}

fn acknowledged(stream: &mut EventStream) -> Value {
    let message = stream.next_message();
    assert_eq!(
        message["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert!(message.get("id").is_none());
    message["params"].clone()
}

/// Reads the end: the request's result, then nothing.
#[track_caller]
fn assert_ends(stream: &mut EventStream, id: &Value) {
    let message = stream.next_message();
    assert_eq!(&message["id"], id, "{message}");
    let result = &message["result"];
    assert_eq!(result["resultType"], "complete");
    assert_eq!(&result["_meta"][ID_KEY], id);
    assert_eq!(stream.next_event(), None);
}

#[test]
fn what_is_heard_is_acknowledged_first_under_the_requests_own_id() {
    for layout in LAYOUTS {
        let house = House::new("a");
        let gateway = Plan::one(&house.backend).layout(layout).start();
        let client = ModernClient::new(&gateway);
        for id in ["7", "0", "\"listen:0\"", "\"\"", "\"7\""] {
            let mut stream = client.listen(id, r#"{"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["x:1"],"unknown":1}"#);
            for (name, value) in [
                ("cache-control", "no-cache"),
                ("x-accel-buffering", "no"),
                ("mcp-session-id", ""),
            ] {
                assert_eq!(stream.head.header(name).unwrap_or_default(), value);
            }
            let id: Value = serde_json::from_str(id).unwrap();
            let expected = json!({
                "_meta": {ID_KEY: id},
                "notifications": {"toolsListChanged": true, "resourceSubscriptions": ["x:1"]},
            });
            assert_eq!(acknowledged(&mut stream), expected);
        }
        let asked = house.backend.await_rpc("subscriptions/listen", 5);
        let params = &asked[0].json()["params"];
        assert_eq!(
            params["notifications"],
            json!({"toolsListChanged": true, "resourceSubscriptions": ["x:1"]})
        );
        crate::assert_no_session(&gateway);
    }
}

#[test]
fn what_nobody_says_is_not_promised_and_ends_at_once() {
    let plain = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&plain).start();
    let client = ModernClient::new(&gateway);
    for filter in [
        "{}",
        r#"{"promptsListChanged":true}"#,
        r#"{"resourceSubscriptions":["x:1"]}"#,
    ] {
        let mut stream = client.listen("\"e\"", filter);
        assert_eq!(
            acknowledged(&mut stream)["notifications"],
            json!({}),
            "{filter}"
        );
        assert_ends(&mut stream, &json!("e"));
    }
    // Its tools may become others with the configuration, whatever it says itself.
    let mut stream = client.listen(
        "1",
        r#"{"toolsListChanged":true,"promptsListChanged":true}"#,
    );
    assert_eq!(
        acknowledged(&mut stream)["notifications"],
        json!({"toolsListChanged": true})
    );
    assert!(plain.seen_rpc("subscriptions/listen").is_empty());
}

#[test]
fn a_filter_that_is_none_is_refused() {
    let house = House::new("a");
    let gateway = Plan::one(&house.backend).start();
    let mut client = ModernClient::new(&gateway);
    let many = format!("[{}\"x\"]", "\"x\",".repeat(1024));
    let long = format!("[\"{}\"]", "x".repeat(8193));
    for params in [
        String::new(),
        r#""notifications":null"#.into(),
        r#""notifications":[]"#.into(),
        r#""notifications":{"toolsListChanged":1}"#.into(),
        r#""notifications":{"promptsListChanged":"true"}"#.into(),
        r#""notifications":{"resourcesListChanged":null}"#.into(),
        r#""notifications":{"resourceSubscriptions":"x:1"}"#.into(),
        r#""notifications":{"resourceSubscriptions":[7]}"#.into(),
        r#""notifications":{"resourceSubscriptions":[""]}"#.into(),
        format!(r#""notifications":{{"resourceSubscriptions":{many}}}"#),
        format!(r#""notifications":{{"resourceSubscriptions":{long}}}"#),
    ] {
        let response = client.ask("1", "subscriptions/listen", &params);
        assert_refused(&response, 400, Some("1"), -32602);
    }
    let id = format!("\"{}\"", "i".repeat(256));
    let response = client.ask(
        &id,
        "subscriptions/listen",
        &format!(r#""notifications":{TOOLS}"#),
    );
    assert_refused(&response, 400, Some(&id), -32602);
    assert!(house.backend.seen_rpc("subscriptions/listen").is_empty());
}

#[test]
fn only_what_was_asked_for_is_heard_and_every_message_says_for_whom() {
    for layout in LAYOUTS {
        let house = House::new("b");
        let other = Backend::modern("a", &["two"]);
        let gateway = Plan::of(&[("a", &other.url()), ("b", &house.backend.url())])
            .layout(layout)
            .start();
        let client = ModernClient::new(&gateway);
        let mut stream = client.listen(
            "\"s\"",
            r#"{"toolsListChanged":true,"resourceSubscriptions":["b-x:1","c-x:1"]}"#,
        );
        assert_eq!(
            acknowledged(&mut stream)["notifications"],
            json!({"toolsListChanged": true, "resourceSubscriptions": ["b-x:1"]})
        );
        house.speaker.await_listeners(1);
        house.say(
            "notifications/subscriptions/acknowledged",
            r#"{"notifications":{}}"#,
        );
        house.say("notifications/message", r#"{"level":"error","data":1}"#);
        house.say(
            "notifications/progress",
            r#"{"progressToken":1,"progress":1}"#,
        );
        let foreign = format!(r#"{{"_meta":{{"{ID_KEY}":99}}}}"#);
        house.say("notifications/tools/list_changed", &foreign);
        let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"_meta": {ID_KEY: "s"}}});
        assert_eq!(stream.next_message(), changed);
        house.say("notifications/resources/updated", r#"{"uri":"x:1/sub"}"#);
        let updated = stream.next_message();
        assert_eq!(updated["method"], "notifications/resources/updated");
        assert_eq!(
            updated["params"],
            json!({"uri": "b-x:1/sub", "_meta": {ID_KEY: "s"}})
        );
    }
}

/// Whoever hears that a list is another gets the other one, wherever he asks.
#[test]
fn a_list_that_changed_is_kept_by_no_shard() {
    for layout in LAYOUTS {
        let house = House::new("a");
        house.backend.set_ttl_ms(LONG_MS);
        let gateway = Plan::one(&house.backend)
            .layout(layout)
            .settings(|settings| {
                settings.protocols.list_ttl_ms = LONG_MS;
                settings.protocols.discover_ttl_ms = LONG_MS;
            })
            .start();
        let mut clients: Vec<ModernClient> = (0..16).map(|_| ModernClient::new(&gateway)).collect();
        for client in &mut clients {
            assert_eq!(client.tool_names(), ["one"]);
        }
        let mut stream = clients[0].listen("1", TOOLS);
        acknowledged(&mut stream);
        house.speaker.await_listeners(1);
        house.backend.set_pages(&[&["one", "new"]]);
        house.say("notifications/tools/list_changed", "{}");
        stream.next_message();
        for client in &mut clients {
            assert_eq!(client.tool_names(), ["one", "new"]);
        }
    }
}

#[test]
fn a_listener_that_may_have_missed_something_is_told() {
    let house = House::new("a");
    let gateway = Plan::one(&house.backend).layout(Layout::One).start();
    let mut stream = ModernClient::new(&gateway).listen("1", TOOLS);
    acknowledged(&mut stream);
    house.speaker.await_listeners(1);
    house.speaker.end();
    house.speaker.await_listeners(2);
    assert_eq!(
        stream.next_message()["method"],
        "notifications/tools/list_changed"
    );
}

#[test]
fn a_change_of_the_configuration_is_heard_on_all_shards() {
    let backend = Backend::modern("a", &["one", "two"]);
    let gateway = Plan::one(&backend).layout(Layout::Spread).start();
    let mut streams: Vec<EventStream> = (0..16)
        .map(|number| ModernClient::new(&gateway).listen(&number.to_string(), TOOLS))
        .collect();
    for stream in &mut streams {
        acknowledged(stream);
    }
    for allowed in [json!(["one"]), json!(["two"])] {
        let document = json!({"virtual_hosts": {"main": {"backends": {
            "a": {"name": "a", "url": backend.url(), "allowed_tool_names": allowed}
        }}}});
        std::fs::write(gateway.config_path(), document.to_string()).unwrap();
        for (number, stream) in streams.iter_mut().enumerate() {
            let message = stream.next_message();
            assert_eq!(message["method"], "notifications/tools/list_changed");
            assert_eq!(message["params"]["_meta"][ID_KEY], number);
        }
    }
    // The virtual host is gone, and with it what could be heard.
    std::fs::write(gateway.config_path(), r#"{"virtual_hosts":{}}"#).unwrap();
    for (number, stream) in streams.iter_mut().enumerate() {
        assert_ends(stream, &json!(number));
    }
}

#[test]
fn it_ends_when_its_time_is_over() {
    let house = House::new("a");
    let gateway = Plan::one(&house.backend)
        .settings(|settings| settings.protocols.subscription_duration = Duration::from_millis(100))
        .start();
    let mut stream = ModernClient::new(&gateway).listen("\"x\"", TOOLS);
    acknowledged(&mut stream);
    assert_ends(&mut stream, &json!("x"));
}

#[test]
fn it_ends_when_its_token_expires() {
    let house = House::new("a");
    let host =
        json!({"virtual_hosts": {"main": {"backends": {"a": {"url": house.backend.url()}}}}});
    let gateway = Plan::document(json!({"users": {"*": host}}))
        .with_tokens()
        .start();
    let token = gateway.token_at("alice", 0, 2);
    let mut client = ModernClient::of(&gateway, "main", Some(&token));
    let mut stream = client.listen("1", TOOLS);
    acknowledged(&mut stream);
    assert_ends(&mut stream, &json!(1));
    // Clocks may differ a little, so it is still a token: one for no time at all.
    let mut stream = client.listen("2", TOOLS);
    acknowledged(&mut stream);
    assert_ends(&mut stream, &json!(2));
    client.token = Some(gateway.token_at("alice", 3600, 60));
    let response = client.ask(
        "1",
        "subscriptions/listen",
        &format!(r#""notifications":{TOOLS}"#),
    );
    assert_eq!(response.status, 401);
}

#[test]
fn a_silent_stream_is_kept_alive() {
    let house = House::new("a");
    let gateway = Plan::one(&house.backend)
        .settings(|settings| settings.timeouts.heartbeat_interval = Duration::from_millis(50))
        .start();
    let mut stream = ModernClient::new(&gateway).listen("1", TOOLS);
    acknowledged(&mut stream);
    for _ in 0..3 {
        assert!(stream.next_block().unwrap().starts_with(':'));
    }
}

fn one_each(house: &House, write: Duration) -> Gateway {
    let host = json!({"virtual_hosts": {"main": {"backends": {"a": {"name": "a", "url": house.backend.url()}}}}});
    Plan::document(json!({"users": {"*": host}}))
        .layout(Layout::One)
        .with_tokens()
        .settings(move |settings| {
            settings.protocols.subscriptions_per_principal_max = 1;
            settings.timeouts.write = write;
        })
        .start()
}

/// Whether a listener more of this subject is let in.
fn is_let_in(gateway: &Gateway, subject: &str) -> Option<EventStream> {
    let mut client = ModernClient::of(gateway, "main", Some(&gateway.token(subject)));
    let ask = client.listen_request("1", TOOLS);
    client.connection.send(ask.bytes());
    let head = client.connection.read_head();
    match head.status {
        200 => Some(EventStream::new(client.connection, head)),
        429 => None,
        other => panic!("{other}"),
    }
}

#[test]
fn a_listener_that_leaves_frees_its_place_and_its_streams() {
    let house = House::new("a");
    let gateway = one_each(&house, PATIENCE);
    for round in 1..=3 {
        let mut stream = eventually("a place", || is_let_in(&gateway, "alice"));
        acknowledged(&mut stream);
        assert!(is_let_in(&gateway, "alice").is_none());
        house.speaker.await_listeners(round);
        match round % 2 {
            0 => stream.connection.reset(),
            _ => drop(stream),
        }
    }
    drop(eventually("a place", || is_let_in(&gateway, "alice")));
    eventually("nobody listens to the backend", || {
        (gateway.metric("shardgate_backend_in_flight") == 0).then_some(())
    });
}

/// A listener of the subject `slow` that reads its head and no more, and is told more than all
/// buffers on the way hold.
fn overwhelmed(house: &House, gateway: &Gateway) -> Connection {
    let token = gateway.token("slow");
    let slow = ModernClient::of(gateway, "main", Some(&token));
    let mut connection = Connection::open_narrow(gateway.address);
    let ask = slow.listen_request("1", r#"{"resourceSubscriptions":["x:1"]}"#);
    connection.send(ask.bytes());
    assert_eq!(connection.read_head().status, 200);
    house.speaker.await_listeners(1);
    let long = "y".repeat(32 * 1024);
    for number in 0..1024 {
        let params = format!(r#"{{"uri":"x:1/{number}","y":"{long}"}}"#);
        house.say("notifications/resources/updated", &params);
    }
    connection
}

#[test]
fn a_listener_that_does_not_read_is_given_up() {
    let house = House::new("a");
    let gateway = one_each(&house, Duration::from_millis(500));
    let _slow = overwhelmed(&house, &gateway);
    drop(eventually("its place is free", || {
        is_let_in(&gateway, "slow")
    }));
    let token = gateway.token("quick");
    let mut other = ModernClient::of(&gateway, "main", Some(&token));
    text_of(&other.call("1", "one", "{}"));
}

/// What it missed cannot be told, so its stream does not end in words.
#[test]
fn a_listener_that_falls_behind_is_cut_off() {
    let house = House::new("a");
    let gateway = one_each(&house, PATIENCE);
    let mut slow = overwhelmed(&house, &gateway);
    house.speaker.await_said();
    // It wakes up too late.
    while slow.fill() {
        let recent = slow.buffer.len().saturating_sub(64 * 1024);
        let has_all = find(&slow.buffer[recent..], b"x:1/1023").is_some();
        assert!(!has_all, "it has heard all");
    }
    let heard = String::from_utf8_lossy(&slow.buffer).into_owned();
    assert!(heard.contains("notifications/subscriptions/acknowledged"));
    assert!(heard.contains("x:1/0") && !heard.contains("x:1/1023"));
    assert!(!heard.contains("resultType"));
    drop(eventually("its place is free", || {
        is_let_in(&gateway, "slow")
    }));
}

#[test]
fn several_listeners_may_have_one_id_and_none_is_resumed() {
    let house = House::new("a");
    let gateway = Plan::one(&house.backend).start();
    let client = ModernClient::new(&gateway);
    let mut first = client.listen("1", TOOLS);
    acknowledged(&mut first);
    let ask = client
        .listen_request("1", TOOLS)
        .header("last-event-id", "1");
    let mut connection = client.again().connection;
    connection.send(ask.bytes());
    let mut second = EventStream::begun(connection);
    acknowledged(&mut second);
    assert_eq!(
        (first.last_id.as_ref(), second.last_id.as_ref()),
        (None, None)
    );
    house.speaker.await_listeners(2);
    drop(first);
    house.speaker.say_until(
        &event(
            None,
            &request(None, "notifications/tools/list_changed", "{}"),
        ),
        || assert_eq!(second.next_message()["params"]["_meta"][ID_KEY], 1),
    );
}

#[test]
fn a_stop_ends_it_in_words() {
    for layout in LAYOUTS {
        let house = House::new("a");
        let gateway = Plan::one(&house.backend).layout(layout).start();
        let mut streams: Vec<EventStream> = (0..8)
            .map(|number| ModernClient::new(&gateway).listen(&number.to_string(), TOOLS))
            .collect();
        for stream in &mut streams {
            acknowledged(stream);
        }
        assert!(gateway.stop());
        for (number, stream) in streams.iter_mut().enumerate() {
            assert_ends(stream, &json!(number));
            assert!(stream.connection.is_closed());
        }
    }
}
