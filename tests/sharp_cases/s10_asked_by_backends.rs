//! S10: what backends ask their client (mcp.md 3.2), and the way of its answers back.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    support::{
        Asked, Backend, EventStream, LAYOUTS, Layout, McpClient, Plan, Speaker, Wire, event,
        eventually, request, response,
    },
    text_of,
};

const CAPABILITIES: &str = r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}"#;
const ROOTS: &str = r#"{"roots":[{"uri":"file:///x","n":12345678901234567890,"d":0.10}]}"#;

/// A backend whose tool asks the client on the call's own stream and ends when it is told to.
fn asking(name: &'static str, id: &'static str, method: &'static str) -> (Backend, Arc<Speaker>) {
    let speaker = Arc::new(Speaker::default());
    let backend = Backend::scripted(name, &["ask", "one"], {
        let speaker = speaker.clone();
        move |asked: &Asked, wire: &mut Wire<'_>| {
            if asked.tool()? != "ask" {
                return None;
            }
            wire.stream_head();
            wire.send(event(None, &request(Some(id), method, r#"{"x":0.10}"#)));
            speaker.go_on(wire);
            wire.send(event(None, &response(asked, "done")));
            Some(())
        }
    });
    (backend, speaker)
}

fn open(plan: Plan, layout: Layout) -> (crate::support::Gateway, McpClient) {
    let gateway = plan.layout(layout).start();
    let client = McpClient::open_with(&gateway, "2025-11-25", CAPABILITIES);
    (gateway, client)
}

/// The next message, which must be this request: its id, raw.
fn asked_id(stream: &mut EventStream, method: &str) -> String {
    let message = stream.next_message();
    assert_eq!(message["method"], method, "{message}");
    assert!(message["id"].is_u64(), "a number of ours: {message}");
    message["id"].to_string()
}

fn assert_done(stream: &mut EventStream, id: u64) {
    let messages = stream.rest();
    assert_eq!(messages.len(), 1, "{messages:?}");
    let message: Value = serde_json::from_str(&messages[0]).unwrap();
    assert_eq!(message["id"], id);
    assert_eq!(message["result"]["content"][0]["text"], "done");
}

#[test]
fn s10_a_request_is_on_its_calls_stream_and_its_answer_finds_the_way_back() {
    for layout in LAYOUTS {
        for (id, method) in [
            ("0", "roots/list"),
            (r#""s""#, "sampling/createMessage"),
            ("9007199254740993", "elicitation/create"),
            (r#""""#, "roots/list"),
        ] {
            let (backend, speaker) = asking("a", id, method);
            let (_gateway, mut client) = open(Plan::one(&backend), layout);
            let mut stream = client.call_stream("5", "ask", "{}");
            let ours = asked_id(&mut stream, method);
            // On a connection of its own.
            client.again().answer(&ours, ROOTS);
            let answers = backend.await_answers(1);
            assert_eq!(
                answers[0].text(),
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{ROOTS}}}"#)
            );
            let session = backend.seen_rpc("tools/call")[0]
                .header("mcp-session-id")
                .map(str::to_owned);
            assert_eq!(answers[0].header("mcp-session-id"), session.as_deref());
            // Once more is nobody's answer.
            client.answer(&ours, ROOTS);
            client.answer("77777", ROOTS);
            speaker.end();
            assert_done(&mut stream, 5);
            assert_eq!(text_of(&client.call("6", "one", "{}")), "a one {}");
            assert_eq!(backend.answers().len(), 1);
        }
    }
}

#[test]
fn s10_equal_ids_of_two_backends_are_told_apart() {
    for layout in LAYOUTS {
        let (a, on_a) = asking("a", "0", "roots/list");
        let (b, on_b) = asking("b", "0", "roots/list");
        let plan = Plan::of(&[("a", &a.url()), ("b", &b.url())]);
        let (_gateway, mut client) = open(plan, layout);
        let mut first = client.call_stream("5", "a-ask", "{}");
        let mut second = client.call_stream("5", "b-ask", "{}");
        let (for_a, for_b) = (
            asked_id(&mut first, "roots/list"),
            asked_id(&mut second, "roots/list"),
        );
        assert_ne!(for_a, for_b);
        // The other way round than they were asked, and one with an error.
        let error = r#"{"code":-1,"message":"User rejected","data":{"e":1e400}}"#;
        let refused = format!(r#"{{"jsonrpc":"2.0","error":{error},"id":{for_b}}}"#);
        assert_eq!(client.post(refused).status, 202);
        client.answer(&for_a, r#"{"roots":[]}"#);
        let answer = b.await_answers(1).remove(0);
        assert_eq!(
            answer.text(),
            format!(r#"{{"jsonrpc":"2.0","error":{error},"id":0}}"#)
        );
        let answer = a.await_answers(1).remove(0);
        assert_eq!(
            answer.text(),
            r#"{"jsonrpc":"2.0","id":0,"result":{"roots":[]}}"#
        );
        on_a.end();
        on_b.end();
        assert_done(&mut first, 5);
        assert_done(&mut second, 5);
    }
}

#[test]
fn s10_what_is_asked_outside_calls_is_on_the_get_stream() {
    for layout in LAYOUTS {
        let speaker = Arc::new(Speaker::default());
        let backend = Backend::scripted("a", &["one"], {
            let speaker = speaker.clone();
            move |asked, wire| (asked.method == "GET").then(|| speaker.speak(wire))
        });
        let (_gateway, mut client) = open(Plan::one(&backend), layout);
        let mut stream = client.stream();
        speaker.await_listeners(1);
        for id in ["0", r#""x""#] {
            speaker.say(event(None, &request(Some(id), "roots/list", "{}")));
            let ours = asked_id(&mut stream, "roots/list");
            client.answer(&ours, ROOTS);
        }
        let answers = backend.await_answers(2);
        let mut ids: Vec<String> = answers.iter().map(Asked::id).collect();
        ids.sort_unstable();
        assert_eq!(ids, [r#""x""#, "0"]);
    }
}

#[test]
fn s10_a_client_is_not_asked_what_it_cannot_do() {
    for layout in LAYOUTS {
        for (capabilities, method, code) in [
            ("{}", "roots/list", Some(-32601)),
            (r#"{"roots":{}}"#, "sampling/createMessage", Some(-32601)),
            (r#"{"sampling":{}}"#, "elicitation/create", Some(-32601)),
            ("{}", "ping", None),
        ] {
            let (backend, speaker) = asking("a", "0", method);
            let gateway = Plan::one(&backend).layout(layout).start();
            let mut client = McpClient::open_with(&gateway, "2025-11-25", capabilities);
            client.send_call("5", "ask", "{}");
            let answer = backend.await_answers(1).remove(0);
            assert_eq!(answer.id(), "0");
            assert_eq!(answer.json()["error"]["code"].as_i64(), code, "{method}");
            if code.is_none() {
                assert_eq!(answer.json()["result"], serde_json::json!({}));
            }
            speaker.end();
            let response = client.connection.read_response();
            assert_eq!(text_of(&response), "done");
            assert_eq!(response.messages().len(), 1, "{method} was not asked");
        }
    }
}

/// What a backend is told of the client is what the client is.
#[test]
fn s10_backends_know_what_the_client_can_do() {
    let backend = Backend::start("a", &["one"]);
    let (_gateway, _client) = open(Plan::one(&backend), Layout::Spread);
    let initialize = &backend.seen_rpc("initialize")[0];
    let capabilities: Value =
        serde_json::from_str(&initialize.param("capabilities").unwrap()).unwrap();
    for name in ["roots", "sampling", "elicitation"] {
        assert!(capabilities[name].is_object(), "{capabilities}");
    }
}

#[test]
fn s10_nobody_answers_for_another() {
    for layout in LAYOUTS {
        let (backend, speaker) = asking("a", "0", "roots/list");
        let (gateway, mut client) = open(Plan::one(&backend), layout);
        let mut stranger = McpClient::open_with(&gateway, "2025-11-25", CAPABILITIES);
        let mut stream = client.call_stream("5", "ask", "{}");
        let ours = asked_id(&mut stream, "roots/list");
        stranger.answer(&ours, r#"{"canary":1}"#);
        client.answer(&ours, ROOTS);
        let answers = backend.await_answers(1);
        assert!(!answers[0].text().contains("canary"));
        speaker.end();
        assert_done(&mut stream, 5);
        assert_eq!(backend.answers().len(), 1);
    }
}

#[test]
fn s10_a_client_that_does_not_answer_is_waited_for_so_long() {
    for layout in LAYOUTS {
        let (backend, speaker) = asking("a", "0", "roots/list");
        let plan = Plan::one(&backend).settings(|settings| {
            settings.timeouts.client_answer = std::time::Duration::from_millis(200);
        });
        let (_gateway, mut client) = open(plan, layout);
        let mut stream = client.call_stream("5", "ask", "{}");
        let ours = asked_id(&mut stream, "roots/list");
        let answer = backend.await_answers(1).remove(0);
        assert_eq!(answer.id(), "0");
        assert!(answer.json()["error"]["code"].is_i64());
        // Too late: nobody waits for it any more.
        client.answer(&ours, ROOTS);
        speaker.end();
        let messages = stream.rest();
        let last: Value = serde_json::from_str(messages.last().unwrap()).unwrap();
        assert_eq!(last["result"]["content"][0]["text"], "done");
        assert_eq!(backend.answers().len(), 1);
    }
}

/// A backend that has no use for the answer any more says so, by the id the client knows.
#[test]
fn s10_a_backend_may_withdraw_what_it_asked() {
    for layout in LAYOUTS {
        let (backend, speaker) = asking("a", r#""q""#, "sampling/createMessage");
        let (_gateway, mut client) = open(Plan::one(&backend), layout);
        let mut stream = client.call_stream("5", "ask", "{}");
        let ours = asked_id(&mut stream, "sampling/createMessage");
        let params = r#"{"requestId":"q","reason":"x"}"#;
        speaker.say(event(
            None,
            &request(None, "notifications/cancelled", params),
        ));
        let message = stream.next_message();
        assert_eq!(message["method"], "notifications/cancelled");
        assert_eq!(message["params"]["requestId"].to_string(), ours);
        client.answer(&ours, ROOTS);
        speaker.end();
        assert_done(&mut stream, 5);
        assert_eq!(backend.answers().len(), 0);
    }
}

/// Roots that change are every backend's business.
#[test]
fn s10_changed_roots_are_told_to_all_backends() {
    for layout in LAYOUTS {
        let (a, b) = (Backend::start("a", &["one"]), Backend::start("b", &["two"]));
        let plan = Plan::of(&[("a", &a.url()), ("b", &b.url())]);
        let (_gateway, mut client) = open(plan, layout);
        let changed = "notifications/roots/list_changed";
        assert_eq!(client.post(request(None, changed, "{}")).status, 202);
        for backend in [&a, &b] {
            eventually("it was told", || {
                (backend.seen_rpc(changed).len() == 1).then_some(())
            });
        }
    }
}
