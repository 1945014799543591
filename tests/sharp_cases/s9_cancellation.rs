//! S9: a cancelled request is cancelled where it runs, there only, and has no answer.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    support::{
        Asked, Backend, EventStream, Gate, HOST, LAYOUTS, Layout, McpClient, Plan, Response,
        call_body, eventually, request,
    },
    text_of,
};

const CANCELLED: &str = "notifications/cancelled";

/// A backend with tools, prompts and resources whose `slow` ones wait at the gate.
fn busy(name: &'static str, gate: &Arc<Gate>) -> Backend {
    let gate = gate.clone();
    let backend = Backend::scripted(name, &["slow", "fast"], move |asked, wire| {
        let is_slow = match asked.rpc_method()?.as_str() {
            "tools/call" => asked.tool()? == "slow",
            "prompts/get" | "resources/read" | "completion/complete" => true,
            "prompts/list" => {
                wire.result(asked, r#"{"prompts":[{"name":"slow"}]}"#);
                return Some(());
            }
            "resources/list" => {
                let uri = format!(r#"{{"resources":[{{"uri":"{name}://slow","name":"x"}}]}}"#);
                wire.result(asked, &uri);
                return Some(());
            }
            "resources/templates/list" => {
                wire.result(asked, r#"{"resourceTemplates":[]}"#);
                return Some(());
            }
            _ => false,
        };
        if is_slow {
            gate.wait();
        }
        None
    });
    backend.set_capabilities(r#"{"tools":{},"prompts":{},"resources":{},"completions":{}}"#);
    backend
}

fn cancel(client: &mut McpClient, id: &str) {
    let params = format!(r#"{{"requestId":{id},"reason":"x"}}"#);
    let response = client.post(request(None, CANCELLED, &params));
    assert_eq!((response.status, response.body.len()), (202, 0), "{id}");
}

/// Nothing, said as a stream that ends or as an empty body.
fn assert_unanswered(response: &Response) {
    assert!(
        matches!(response.status, 200 | 202 | 204),
        "{}",
        response.text()
    );
    if response.header("content-type") == Some("text/event-stream") {
        assert_eq!(response.messages(), [""; 0]);
    } else {
        assert_eq!(response.text(), "");
    }
}

/// The one cancellation a backend has seen is of this request, by its own id.
fn assert_cancelled(backend: &Backend, cancelled: &Asked) {
    let seen = backend.await_rpc(CANCELLED, 1);
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].param("requestId"), Some(cancelled.id()));
    let session = |asked: &Asked| asked.header("mcp-session-id").map(str::to_owned);
    assert_eq!(session(&seen[0]), session(cancelled));
}

#[test]
fn s9_a_call_is_cancelled_at_its_backend_only() {
    for layout in LAYOUTS {
        for id in ["42", r#""42""#, "0", r#""""#, r#""\u00e9""#] {
            let gate = Arc::new(Gate::default());
            let (a, b) = (busy("a", &gate), busy("b", &gate));
            let gateway = Plan::of(&[("a", &a.url()), ("b", &b.url())])
                .layout(layout)
                .start();
            let mut first = McpClient::open(&gateway);
            let (mut on_a, mut on_b) = (first.again(), first.again());
            on_a.send_call("7", "a-slow", "{}");
            on_b.send_call(id, "b-slow", "{}");
            gate.await_arrivals(2);
            cancel(&mut first, id);
            assert_unanswered(&on_b.connection.read_response());
            let call = b.seen_rpc("tools/call").remove(0);
            assert_cancelled(&b, &call);
            assert_ne!(call.id(), id, "by the backend's id, not the client's");
            // Once more changes nothing, nor does its late result.
            cancel(&mut first, id);
            gate.open();
            assert_eq!(text_of(&on_a.connection.read_response()), "a slow {}");
            for client in [&mut first, &mut on_a, &mut on_b.again()] {
                assert_eq!(text_of(&client.call(id, "b-fast", "{}")), "b fast {}");
                assert_eq!(text_of(&client.call(id, "a-fast", "{}")), "a fast {}");
            }
            assert_eq!(b.seen_rpc(CANCELLED).len(), 1);
            assert_eq!(a.seen_rpc(CANCELLED).len(), 0);
        }
    }
}

/// The connection itself goes on, if the gateway keeps it.
#[test]
fn s9_what_follows_on_the_connection_gets_its_own_answer() {
    for layout in LAYOUTS {
        let gate = Arc::new(Gate::default());
        let a = busy("a", &gate);
        let gateway = Plan::one(&a).layout(layout).start();
        let mut first = McpClient::open(&gateway);
        let mut waiting = first.again();
        waiting.send_call("1", "slow", "{}");
        gate.await_arrivals(1);
        cancel(&mut first, "1");
        let response = waiting.connection.read_response();
        assert_unanswered(&response);
        gate.open();
        if response.header("connection") != Some("close") {
            let response = waiting.call("2", "fast", "{}");
            assert_eq!(response.message()["id"], 2);
            assert_eq!(text_of(&response), "a fast {}");
        }
    }
}

#[test]
fn s9_who_is_not_meant_is_not_cancelled() {
    for layout in LAYOUTS {
        let gate = Arc::new(Gate::default());
        let a = busy("a", &gate);
        let document = serde_json::json!({"users": {"*": {"virtual_hosts": {HOST: {"backends": {
            "a": {"name": "a", "url": a.url()}
        }}}}}});
        let gateway = Plan::document(document)
            .layout(layout)
            .with_tokens()
            .start();
        let (ann, bob) = (gateway.token("ann"), gateway.token("bob"));
        let open = |token: &str| McpClient::open_on(&gateway, HOST, Some(token));
        let mut first = open(&ann);
        let mut waiting = first.again();
        waiting.send_call("42", "slow", "{}");
        gate.await_arrivals(1);
        // Other ids, other types, no ids.
        for id in ["41", r#""42""#, "42.0", "null", "[42]", r#"{"x":42}"#] {
            cancel(&mut first, id);
        }
        let empty = first.post(request(None, CANCELLED, "{}"));
        assert_eq!(empty.status, 202);
        // Other sessions, of the same caller and of another one.
        for token in [&ann, &bob] {
            cancel(&mut open(token), "42");
        }
        // What was answered already.
        assert_eq!(text_of(&first.call("5", "fast", "{}")), "a fast {}");
        cancel(&mut first, "5");
        gate.open();
        assert_eq!(text_of(&waiting.connection.read_response()), "a slow {}");
        assert_eq!(a.seen_rpc(CANCELLED).len(), 0);
    }
}

#[test]
fn s9_every_method_can_be_cancelled() {
    for (layout, (method, params)) in LAYOUTS.into_iter().cycle().zip([
        ("prompts/get", r#"{"name":"b-slow"}"#),
        ("resources/read", r#"{"uri":"b-b://slow"}"#),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/prompt","name":"b-slow"},"argument":{"name":"x","value":""}}"#,
        ),
    ]) {
        let gate = Arc::new(Gate::default());
        let (a, b) = (busy("a", &gate), busy("b", &gate));
        let gateway = Plan::of(&[("a", &a.url()), ("b", &b.url())])
            .layout(layout)
            .start();
        let mut first = McpClient::open(&gateway);
        let mut waiting = first.again();
        let ask = waiting.request(request(Some("9"), method, params));
        waiting.connection.send(ask.bytes());
        gate.await_arrivals(1);
        cancel(&mut first, "9");
        assert_unanswered(&waiting.connection.read_response());
        assert_cancelled(&b, &b.seen_rpc(method)[0]);
        gate.open();
        assert_eq!(text_of(&first.call("9", "b-fast", "{}")), "b fast {}");
        assert_eq!(a.seen_rpc(CANCELLED).len(), 0, "{method}");
        assert_eq!(b.seen_rpc(CANCELLED).len(), 1, "{method}");
    }
}

/// A list runs at all backends; each one that has not answered is told, by its own id.
#[test]
fn s9_a_list_is_cancelled_wherever_it_is_not_done() {
    for layout in LAYOUTS {
        let gate = Arc::new(Gate::default());
        let hanging = |name: &'static str| {
            let gate = gate.clone();
            Backend::scripted(name, &["one"], move |asked, _| {
                if asked.is("tools/list") {
                    gate.wait();
                }
                None
            })
        };
        let (a, b) = (hanging("a"), hanging("b"));
        let c = Backend::start("c", &["two"]);
        let gateway = Plan::of(&[("a", &a.url()), ("b", &b.url()), ("c", &c.url())])
            .layout(layout)
            .settings(|settings| settings.timeouts.initialize = std::time::Duration::from_secs(25))
            .start();
        let mut first = McpClient::open(&gateway);
        let mut waiting = first.again();
        let ask = waiting.request(request(Some("3"), "tools/list", "{}"));
        waiting.connection.send(ask.bytes());
        gate.await_arrivals(2);
        c.await_rpc("tools/list", 1);
        eventually("the third one has answered", || {
            (c.seen_rpc("tools/list").len() == 1).then_some(())
        });
        cancel(&mut first, "3");
        assert_unanswered(&waiting.connection.read_response());
        for backend in [&a, &b] {
            assert_cancelled(backend, &backend.seen_rpc("tools/list")[0]);
        }
        gate.open();
        assert_eq!(first.tool_names(), ["a-one", "b-one", "c-two"]);
        for backend in [&a, &b] {
            assert_eq!(backend.seen_rpc(CANCELLED).len(), 1);
        }
    }
}

#[test]
fn s9_a_stream_that_has_begun_ends_without_a_response() {
    for layout in LAYOUTS {
        let gate = Arc::new(Gate::default());
        let backend = Backend::scripted("a", &["slow", "fast"], {
            let gate = gate.clone();
            move |asked, wire| {
                if asked.tool()? != "slow" {
                    return None;
                }
                wire.stream_head();
                let note = request(
                    None,
                    "notifications/message",
                    r#"{"level":"error","data":1}"#,
                );
                wire.send(format!("data: {note}\n\n"));
                gate.wait();
                let late = crate::support::response(asked, "late");
                wire.send(format!("data: {late}\n\n"));
                Some(())
            }
        });
        let gateway = Plan::one(&backend).layout(layout).start();
        let mut client = McpClient::open(&gateway);
        let mut stream = client.call_stream("8", "slow", "{}");
        assert_eq!(stream.next_message()["method"], "notifications/message");
        cancel(&mut client, "8");
        assert_eq!(stream.rest(), [""; 0]);
        assert_cancelled(&backend, &backend.seen_rpc("tools/call")[0]);
        gate.open();
        assert_eq!(text_of(&client.call("8", "fast", "{}")), "a fast {}");
    }
}

/// mcp.md 1.2: a connection that ends is no cancellation.
#[test]
fn s9_a_client_that_leaves_has_not_cancelled() {
    for layout in LAYOUTS {
        let gate = Arc::new(Gate::default());
        let backend = busy("a", &gate);
        let gateway = Plan::one(&backend).layout(layout).start();
        let mut client = McpClient::open(&gateway);
        let mut leaving = client.again();
        leaving.send_call("1", "slow", "{}");
        gate.await_arrivals(1);
        drop(leaving);
        assert_eq!(text_of(&client.call("2", "fast", "{}")), "a fast {}");
        gate.open();
        assert_eq!(text_of(&client.call("3", "slow", "{}")), "a slow {}");
        assert_eq!(backend.seen_rpc(CANCELLED).len(), 0);
    }
}

/// Two requests with one id: one of them is cancelled, and the other has its answer.
#[test]
fn s9_of_two_requests_with_one_id_one_is_cancelled() {
    let gate = Arc::new(Gate::default());
    let backend = busy("a", &gate);
    let gateway = Plan::one(&backend).layout(Layout::Spread).start();
    let mut client = McpClient::open(&gateway);
    let (mut first, mut second) = (client.again(), client.again());
    first.send_call("1", "slow", r#"{"n":1}"#);
    gate.await_arrivals(1);
    second.send_call("1", "slow", r#"{"n":2}"#);
    gate.await_arrivals(2);
    cancel(&mut client, "1");
    assert_unanswered(&second.connection.read_response());
    gate.open();
    let text = text_of(&first.connection.read_response());
    assert_eq!(text, r#"a slow {"n":1}"#);
    assert_eq!(backend.seen_rpc(CANCELLED).len(), 1);
}

/// `_meta.progressToken` is the caller's own (mcp.md 3.4, 4): a backend gets a number of ours.
#[test]
fn s9_progress_comes_back_with_the_callers_token_before_the_response() {
    let backend = Backend::scripted("a", &["steps"], |asked, wire| {
        asked.tool()?;
        let meta: Value = serde_json::from_str(&asked.param("_meta")?).unwrap();
        let token = &meta["progressToken"];
        assert!(token.is_u64(), "a number of ours: {token}");
        assert_eq!(meta["x/y"], "kept");
        wire.stream_head();
        for step in 1..=3 {
            let params = format!(r#"{{"progress":{step},"progressToken":{token},"total":3}}"#);
            wire.send(format!("data: {}\n\n", request(None, PROGRESS, &params)));
        }
        // Not of this call, nor of any other.
        let params = r#"{"progress":9,"progressToken":"nobody's"}"#;
        wire.send(format!("data: {}\n\n", request(None, PROGRESS, params)));
        wire.send(format!(
            "data: {}\n\n",
            crate::support::response(asked, "done")
        ));
        Some(())
    });
    for layout in LAYOUTS {
        let gateway = Plan::one(&backend).layout(layout).start();
        let client = McpClient::open(&gateway);
        let tokens = [
            "0",
            "-1",
            "9007199254740993",
            "123456789012345678901234567890",
            r#""t""#,
            r#""""#,
            r#""\u0074\/""#,
        ];
        // All at once: each stream has its own call's progress, whatever the tokens are.
        let mut streams: Vec<(&str, EventStream)> = tokens
            .iter()
            .chain(&tokens)
            .map(|token| {
                let body = call_body("5", "steps", "{}").replace(
                    r#""params":{"#,
                    &format!(r#""params":{{"_meta":{{"progressToken":{token},"x/y":"kept"}},"#),
                );
                (*token, client.open_stream(&client.request(body)))
            })
            .collect();
        for (token, stream) in &mut streams {
            let messages = stream.rest();
            assert_eq!(messages.len(), 4, "{token}: {messages:?}");
            for (step, message) in (1..=3).zip(&messages) {
                let params = format!(r#"{{"progress":{step},"progressToken":{token},"total":3}}"#);
                assert_eq!(*message, request(None, PROGRESS, &params));
            }
            let last: Value = serde_json::from_str(&messages[3]).unwrap();
            assert_eq!(last["result"]["content"][0]["text"], "done");
        }
        let mut ours: Vec<String> = backend
            .seen_rpc("tools/call")
            .iter()
            .map(|call| call.param("_meta").unwrap())
            .collect();
        let count = ours.len();
        ours.sort_unstable();
        ours.dedup();
        assert!(
            ours.len() >= 14.min(count),
            "tokens of calls at once differ"
        );
    }
}

const PROGRESS: &str = "notifications/progress";

/// A call that asked for no progress gets none, whatever its backend says.
#[test]
fn s9_who_asked_for_no_progress_gets_none() {
    let backend = Backend::scripted("a", &["steps"], |asked, wire| {
        asked.tool()?;
        assert_eq!(asked.param("_meta"), None);
        wire.stream_head();
        for token in [asked.id(), "0".to_owned(), r#""x""#.to_owned()] {
            let params = format!(r#"{{"progress":1,"progressToken":{token}}}"#);
            wire.send(format!("data: {}\n\n", request(None, PROGRESS, &params)));
        }
        wire.send(format!(
            "data: {}\n\n",
            crate::support::response(asked, "done")
        ));
        Some(())
    });
    for layout in LAYOUTS {
        let gateway = Plan::one(&backend).layout(layout).start();
        let response = McpClient::open(&gateway).call("5", "steps", "{}");
        assert_eq!(text_of(&response), "done");
        assert_eq!(response.messages().len(), 1);
    }
}
