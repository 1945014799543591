//! What a backend behind a declared tool says before its result: progress, log messages and
//! questions go the ways they go for any other tool; the result is checked whenever it comes.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    McpClient, Response,
    stateless::{fronted, refused, result_of},
    support::{
        Asked, Backend, Connection, EventStream, Gate, Gateway, ModernClient, Speaker, Wire,
        call_body, event, eventually, modern_body, request,
    },
    text_of,
};

/// A declared tool that gives a number, in front of `lookup`, for clients of any kind.
fn number() -> Value {
    json!({"sessionIndependent": true, "inputSchema": {"type": "object",
        "properties": {"pin": {"type": "string", "x-mask": true}}},
        "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}},
            "required": ["n"]}})
}

fn bridge() -> Value {
    json!({"bridge": "per-request"})
}

/// A result of `lookup` with this number, which may be none.
fn said(asked: &Asked, number: &str) -> String {
    let id = asked.id();
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","content":[],"structuredContent":{{"n":{number}}}}}}}"#
    )
}

/// The progress of a request, by the token it came with.
fn progress(asked: &Asked, number: u32) -> String {
    let meta: Value = serde_json::from_str(&asked.param("_meta").unwrap()).unwrap();
    let token = &meta["progressToken"];
    let params = format!(r#"{{"progressToken":{token},"progress":{number}}}"#);
    event(None, &request(None, "notifications/progress", &params))
}

fn told(number: u32) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": "mine", "progress": number}})
}

/// Both kinds of backend, with what their configuration says besides.
fn backends(
    script: impl Fn(&Asked, &mut Wire<'_>) -> Option<()> + Send + Sync + Clone + 'static,
) -> [(Backend, Value); 2] {
    [
        (
            Backend::modern_scripted("a", &["lookup"], script.clone()),
            json!({}),
        ),
        (Backend::scripted("a", &["lookup"], script), bridge()),
    ]
}

fn with_token(body: &str) -> String {
    body.replace(
        r#""params":{"#,
        r#""params":{"_meta":{"progressToken":"mine"},"#,
    )
}

/// A script that says the first events itself, and then what the test says, on one call.
fn speaking(
    first: fn(&Asked) -> String,
) -> (
    Arc<Speaker>,
    impl Fn(&Asked, &mut Wire<'_>) -> Option<()> + Send + Sync + Clone + 'static,
) {
    let speaker: Arc<Speaker> = Arc::default();
    let script = {
        let speaker = speaker.clone();
        move |asked: &Asked, wire: &mut Wire<'_>| {
            asked.tool()?;
            speaker.say(first(asked));
            speaker.speak(wire);
            Some(())
        }
    };
    (speaker, script)
}

/// One call of a client of either kind, whose stream is to come; and the session's own stream.
fn send_call(gateway: &Gateway, is_modern: bool) -> (Connection, Option<EventStream>) {
    if is_modern {
        let client = ModernClient::new(gateway);
        let params = r#""name":"find","arguments":{"pin":"1234"}"#;
        let body = modern_body("\"c\"", "tools/call", params, r#""progressToken":"mine""#);
        let mut connection = client.again().connection;
        connection.send(client.request_of(&body).bytes());
        return (connection, None);
    }
    let client = McpClient::open(gateway);
    let body = with_token(&call_body("\"c\"", "find", r#"{"pin":"1234"}"#));
    let own = client.stream();
    let mut connection = client.connect();
    connection.send(client.request(body).bytes());
    (connection, Some(own))
}

#[test]
fn progress_comes_on_the_calls_own_stream_as_it_is_made() {
    for (is_modern, kind) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        let (speaker, script) = speaking(|asked| progress(asked, 1));
        let (backend, members) = backends(script).into_iter().nth(kind).unwrap();
        let gateway = fronted(&backend, members, number());
        let (connection, own) = send_call(&gateway, is_modern);
        let mut stream = EventStream::begun(connection);
        // It comes before there is a result.
        assert_eq!(stream.next_message(), told(1));
        let asked = backend.seen_rpc("tools/call").remove(0);
        assert_eq!(asked.json()["params"]["arguments"]["pin"], "******");
        speaker.say(progress(&asked, 2));
        assert_eq!(stream.next_message(), told(2));
        // What does not conform is found at the end of a stream, too.
        let number = if is_modern { "7" } else { "\"canary\"" };
        speaker.say(event(None, &said(&asked, number)));
        let last = stream.next_message();
        assert_eq!(last["id"], "c");
        if is_modern {
            assert_eq!(last["result"]["structuredContent"], json!({"n": 7}));
        } else {
            assert_eq!(last["result"]["isError"], true);
            assert!(!last.to_string().contains("canary"), "{last}");
        }
        assert_eq!(stream.next_event().map(|event| event.data), None);
        // A session's own stream hears nothing of it, before the session ends.
        if let Some(mut own) = own {
            assert!(gateway.stop());
            assert_eq!(own.rest(), [""; 0]);
        }
    }
}

#[test]
fn a_backend_that_breaks_off_is_an_error_at_the_end_of_the_stream() {
    let script = |asked: &Asked, wire: &mut Wire<'_>| {
        asked.tool()?;
        wire.stream_head();
        wire.send(progress(asked, 1));
        if asked.text().contains("refuses") {
            let id = asked.id();
            let error = r#"{"code":-31000,"message":"canary"}"#;
            let refusal = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
            wire.send(event(None, &refusal));
        }
        Some(())
    };
    for (backend, members) in backends(script) {
        let gateway = fronted(&backend, members, number());
        let mut modern = ModernClient::new(&gateway);
        let mut session = McpClient::open(&gateway);
        let mut ask = |is_modern: bool, pin: &str| -> Response {
            let arguments = format!(r#"{{"pin":"x","why":"{pin}"}}"#);
            if is_modern {
                let params = format!(r#""name":"find","arguments":{arguments}"#);
                return modern.ask_with(r#""progressToken":"mine""#, "tools/call", &params);
            }
            session.post(with_token(&call_body("1", "find", &arguments)))
        };
        for is_modern in [true, false] {
            let broken = ask(is_modern, "breaks off");
            assert_eq!(broken.messages().len(), 2, "{}", broken.text());
            let text = text_of(&broken, true);
            assert!(text.starts_with("upstream failed: "), "{text}");
            let refused = ask(is_modern, "refuses");
            assert_eq!(refused.messages().len(), 2, "{}", refused.text());
            assert_eq!(refused.error_code(), -32603);
            assert!(!refused.text().contains("canary"), "{}", refused.text());
        }
    }
}

/// The question of a stateless backend, and more than a question may hold.
const ASKS: &str = r#"{"resultType":"input_required","requestState":"é \" s",
    "content":[{"type":"text","text":"canary"}],"structuredContent":{"n":"canary"},
    "inputRequests":{"q":{"method":"elicitation/create","params":{"message":"m",
        "requestedSchema":{"type":"object","properties":{}}}}}}"#;

const ACCEPTED: &str = r#"{"action":"accept","content":{"n":7}}"#;

/// Asks first, and answers with the number that it was told.
fn asking(asked: &Asked, wire: &mut Wire<'_>) -> Option<()> {
    asked.tool()?;
    let Some(answers) = asked.param("inputResponses") else {
        wire.result(asked, ASKS);
        return Some(());
    };
    let answers: Value = serde_json::from_str(&answers).unwrap();
    assert_eq!(asked.param("requestState").as_deref(), Some(r#""é \" s""#));
    wire.json(said(asked, &answers["q"]["content"]["n"].to_string()));
    Some(())
}

#[test]
fn a_stateless_client_is_asked_and_its_answers_go_back() {
    let backend = Backend::modern_scripted("a", &["lookup"], asking);
    let gateway = fronted(&backend, json!({}), number());
    let mut client = ModernClient::new(&gateway);
    let first = client.call("1", "find", r#"{"pin":"1"}"#);
    let asks = first.result();
    assert_eq!(asks["resultType"], "input_required");
    assert_eq!(asks["requestState"], "é \" s");
    assert_eq!(asks["inputRequests"]["q"]["method"], "elicitation/create");
    // A question is no way around the checks of a result.
    assert!(!first.text().contains("canary"), "{}", first.text());
    let answer = |number: &str| {
        let params = format!(
            r#""name":"find","arguments":{{"pin":"1"}},"requestState":{},"inputResponses":{{"q":{{"action":"accept","content":{{"n":{number}}}}}}}"#,
            asks["requestState"]
        );
        client.again().ask("2", "tools/call", &params)
    };
    assert_eq!(
        result_of(&answer("7"))["structuredContent"],
        json!({"n": 7})
    );
    let unsound = answer("\"canary\"");
    assert_eq!(result_of(&unsound)["isError"], true);
    assert!(!unsound.text().contains("canary"), "{}", unsound.text());
    for asked in backend.seen_rpc("tools/call") {
        assert_eq!(asked.json()["params"]["arguments"]["pin"], "******");
    }
    // Answers are looked at like anything that comes with arguments.
    let params = r#""name":"find","arguments":{"pin":1},"requestState":"s""#;
    let bad = client.ask("3", "tools/call", params);
    assert_eq!(result_of(&bad)["isError"], true);
    assert_eq!(backend.seen_rpc("tools/call").len(), 3);
}

#[test]
fn a_client_with_a_session_is_asked_on_the_calls_stream() {
    let question = |_: &Asked| {
        let params = r#"{"message":"m","requestedSchema":{"type":"object","properties":{}}}"#;
        event(None, &request(Some("5"), "elicitation/create", params))
    };
    let (speaker, old) = speaking(question);
    for backend in [
        Backend::modern_scripted("a", &["lookup"], asking),
        Backend::scripted("a", &["lookup"], old),
    ] {
        let gateway = fronted(&backend, json!({}), number());
        let mut client = McpClient::open_with(&gateway, "2025-11-25", r#"{"elicitation":{}}"#);
        let mut stream = client.call_stream("1", "find", "{}");
        let question = stream.next_message();
        assert_eq!(question["method"], "elicitation/create");
        assert_eq!(question["params"]["message"], "m");
        client.answer(&question["id"].to_string(), ACCEPTED);
        if backend.seen_rpc("server/discover").is_empty() {
            let answer = backend.await_answers(1).remove(0);
            assert_eq!(answer.json()["result"]["content"]["n"], 7);
            let asked = backend.seen_rpc("tools/call").remove(0);
            speaker.say(event(None, &said(&asked, "7")));
        }
        let last = stream.next_message();
        assert_eq!(last["result"]["structuredContent"], json!({"n": 7}));
        assert_eq!(last["id"], 1);
    }
}

#[test]
fn a_call_that_is_held_goes_on_as_one_of_a_declared_tool() {
    let question = |_: &Asked| {
        let params = r#"{"message":"m"}"#;
        event(None, &request(Some("5"), "elicitation/create", params))
    };
    for number_said in ["7", "\"canary\""] {
        let (speaker, script) = speaking(question);
        let backend = Backend::scripted("a", &["lookup"], script);
        let gateway = fronted(&backend, bridge(), number());
        let client = ModernClient::new(&gateway);
        let ask = |id: &str, more: &str| {
            let params = format!(r#""name":"find","arguments":{{"pin":"1"}}{more}"#);
            let body = modern_body(id, "tools/call", &params, r#""progressToken":"mine""#);
            client.request_of(&body.replace(
                r#"clientCapabilities":{}"#,
                r#"clientCapabilities":{"elicitation":{}}"#,
            ))
        };
        let asks = client.again().connection.ask(&ask("1", "")).result();
        assert_eq!(asks["resultType"], "input_required");
        let asked = backend.seen_rpc("tools/call").remove(0);
        let answers = format!(
            r#","requestState":{},"inputResponses":{{"question-1":{ACCEPTED}}}"#,
            asks["requestState"]
        );
        let mut connection = client.again().connection;
        connection.send(ask("2", &answers).bytes());
        let told_back = backend.await_answers(1).remove(0);
        assert_eq!(told_back.json()["result"]["content"]["n"], 7);
        speaker.say(progress(&asked, 1));
        let mut stream = EventStream::begun(connection);
        assert_eq!(stream.next_message(), told(1));
        speaker.say(event(None, &said(&asked, number_said)));
        let last = stream.next_message();
        assert_eq!(last["id"], 2);
        if number_said == "7" {
            assert_eq!(last["result"]["structuredContent"], json!({"n": 7}));
        } else {
            assert_eq!(last["result"]["isError"], true);
            assert!(!last.to_string().contains("canary"), "{last}");
        }
        // It is good once.
        let again = client.again().connection.ask(&ask("3", &answers));
        assert_eq!(refused(&again).1, -32602);
        eventually("no session is left at the backend", || {
            (backend.session_count() == 0).then_some(())
        });
    }
}

#[test]
fn what_the_client_lacks_is_told_to_it() {
    let backend = Backend::modern_scripted("a", &["lookup"], |asked, wire| {
        asked.tool()?;
        wire.refuse(
            asked,
            400,
            -32021,
            r#"{"requiredCapabilities":{"sampling":{}}}"#,
        );
        Some(())
    });
    let gateway = fronted(&backend, json!({}), json!({}));
    let response = ModernClient::new(&gateway).call("1", "find", "{}");
    assert_eq!(refused(&response).0, 400);
    let error = response.message()["error"].clone();
    assert_eq!(error["code"], -32021);
    assert_eq!(
        error["data"],
        json!({"requiredCapabilities": {"sampling": {}}})
    );
}

#[test]
fn nothing_of_an_extension_is_asked_for_or_comes_back() {
    const TASKS: &str = "io.modelcontextprotocol/tasks";
    let backend = Backend::modern_scripted("a", &["lookup"], |asked, wire| {
        asked.tool()?;
        wire.result(
            asked,
            r#"{"resultType":"task","taskId":"canary","status":"working","ttlMs":null}"#,
        );
        Some(())
    });
    let gateway = fronted(&backend, json!({}), json!({}));
    let mut client = ModernClient::new(&gateway);
    let params = r#""name":"find","arguments":{},"task":{"ttl":1}"#;
    let body = modern_body("1", "tools/call", params, r#""x/y":1"#).replace(
        r#"clientCapabilities":{}"#,
        &format!(r#"clientCapabilities":{{"extensions":{{"{TASKS}":{{}}}},"roots":{{}}}}"#),
    );
    let request = client.request_of(&body);
    let response = client.connection.ask(&request);
    assert_eq!(result_of(&response)["isError"], true);
    assert!(!response.text().contains("canary"), "{}", response.text());
    let told = backend.seen_rpc("tools/call").remove(0);
    assert_eq!(told.param("task"), None);
    let meta = told.json()["params"]["_meta"].clone();
    assert_eq!(
        meta["io.modelcontextprotocol/clientCapabilities"],
        json!({"roots": {}})
    );
    assert_eq!(meta["x/y"], 1);
}

#[test]
fn calls_one_after_the_other_share_a_connection_to_the_backend() {
    let backend = Backend::modern("a", &["lookup"]);
    let gateway = fronted(&backend, json!({}), json!({}));
    let mut client = ModernClient::new(&gateway);
    client.call("1", "find", "{}").result();
    let before = backend.connection_count();
    for _ in 0..4 {
        client.call("1", "find", "{}").result();
    }
    let calls = backend.seen_rpc("tools/call");
    let used: std::collections::BTreeSet<usize> =
        calls[1..].iter().map(|asked| asked.connection).collect();
    assert!(used.len() <= 2, "{used:?}");
    assert!(backend.connection_count() <= before + 1);
}

#[test]
fn leaving_ends_the_call_at_the_backend() {
    let gate = Arc::new(Gate::default());
    let script = {
        let gate = gate.clone();
        move |asked: &Asked, wire: &mut Wire<'_>| {
            asked.tool()?;
            wire.stream_head();
            wire.send(progress(asked, 1));
            wire.await_end();
            gate.arrive();
            Some(())
        }
    };
    for (count, (backend, members)) in backends(script).into_iter().enumerate() {
        let gateway = fronted(&backend, members, number());
        let client = ModernClient::new(&gateway);
        let params = r#""name":"find","arguments":{}"#;
        let body = modern_body("1", "tools/call", params, r#""progressToken":"mine""#);
        let mut connection = client.again().connection;
        connection.send(client.request_of(&body).bytes());
        let mut stream = EventStream::begun(connection);
        assert_eq!(stream.next_message(), told(1));
        drop(stream);
        gate.await_arrivals(count + 1);
        eventually("the call is counted as cancelled", || {
            (gateway.metric("shardgate_calls_cancelled_total") == 1).then_some(())
        });
    }
}
