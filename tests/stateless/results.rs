//! What a result of a backend may say it is, and what becomes of the rest (RES-1, EXT-1).

use serde_json::json;

use crate::{
    assert_refused,
    support::{Asked, Backend, Layout, McpClient, ModernClient, Plan, Wire, modern_body},
    text_of, whole_result,
};

const TASKS: &str = "io.modelcontextprotocol/tasks";

/// A backend whose tools are named after what they answer with.
fn answers(asked: &Asked, wire: &mut Wire<'_>) -> Option<()> {
    let content = r#""content":[{"type":"text","text":"canary"}]"#;
    let result = match asked.tool()?.as_str() {
        "missing" => format!("{{{content}}}"),
        "number" => format!(r#"{{"resultType":7,{content}}}"#),
        "null" => format!(r#"{{"resultType":null,{content}}}"#),
        "unknown" => format!(r#"{{"resultType":"com.example/canary",{content}}}"#),
        "task" => r#"{"resultType":"task","taskId":"canary","status":"working","ttlMs":null}"#.to_owned(),
        "input" => r#"{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}},"requestState":"é \" opaque"}"#.to_owned(),
        "old-code" => {
            wire.error(asked, -32002, "gone");
            return Some(());
        }
        "lacks" => {
            wire.refuse(asked, 400, -32021, r#"{"requiredCapabilities":{"sampling":{}}}"#);
            return Some(());
        }
        "version" => {
            wire.refuse(asked, 400, -32022, r#"{"supported":["2099-01-01"],"requested":"2026-07-28"}"#);
            return Some(());
        }
        "headers" => {
            wire.refuse(asked, 400, -32020, "null");
            return Some(());
        }
        "no-method" => {
            wire.refuse(asked, 404, -32601, "null");
            return Some(());
        }
        "no-name" => {
            wire.error(asked, -32602, "Unknown tool");
            return Some(());
        }
        _ => return None,
    };
    wire.result(asked, &result);
    Some(())
}

#[test]
fn a_stateless_backend_must_say_what_its_result_is() {
    let backend = Backend::modern_scripted("a", &["one"], answers);
    let gateway = Plan::one(&backend).start();
    let mut client = ModernClient::new(&gateway);
    let mut session = McpClient::open(&gateway);
    for tool in ["missing", "number", "null"] {
        let response = client.call("1", tool, "{}");
        assert_refused(&response, 200, Some("1"), -32603);
        assert!(!response.text().contains("canary"));
        assert_eq!(session.call("1", tool, "{}").error_code(), -32603);
    }
    text_of(&client.call("1", "one", "{}"));
}

#[test]
fn a_backend_with_sessions_need_not() {
    let backend = Backend::scripted("a", &["missing"], answers);
    let document = json!({"virtual_hosts": {"main": {"backends": {
        "a": {"name": "a", "url": backend.url(), "bridge": "per-request", "session_independent_tools": ["*"]}
    }}}});
    let gateway = Plan::document(document).start();
    assert_eq!(
        text_of(&ModernClient::new(&gateway).call("1", "missing", "{}")),
        "canary"
    );
}

/// A result of an extension that the client has not named is not one it could read.
#[test]
fn results_of_extensions_come_only_to_clients_that_know_them() {
    let backend = Backend::modern_scripted("a", &["one"], answers);
    backend.set_capabilities(&format!(
        r#"{{"tools":{{}},"extensions":{{"{TASKS}":{{}}}}}}"#
    ));
    let gateway = Plan::one(&backend).start();
    let mut client = ModernClient::new(&gateway);
    let mut ask = |capabilities: &str, tool: &str| {
        let body = modern_body("1", "tools/call", &format!(r#""name":"{tool}""#), "");
        let body = body.replace(
            r#"clientCapabilities":{}"#,
            &format!(r#"clientCapabilities":{capabilities}"#),
        );
        let ask = client.request_of(&body);
        client.connection.ask(&ask)
    };
    let others = r#"{"extensions":{"com.example/x":{"y":1}},"experimental":{"z":{}},"roots":{}}"#;
    for tool in ["unknown", "task"] {
        for capabilities in ["{}", r#"{"extensions":{}}"#] {
            let response = ask(capabilities, tool);
            let result = whole_result(&response);
            assert_eq!(result["isError"], true);
            assert!(!response.text().contains("canary"), "{}", response.text());
        }
    }
    // To know one is not to know another.
    let response = ask(others, "task");
    assert_eq!(whole_result(&response)["isError"], true);
    assert!(!response.text().contains("canary"));
    // What a client knows does no harm where it is not used, and reaches the backend.
    text_of(&ask(others, "one"));
    let told = backend.seen_rpc("tools/call").pop().unwrap();
    assert!(told.text().contains(others));
    let knows = format!(r#"{{"extensions":{{"{TASKS}":{{}}}}}}"#);
    let result = ask(&knows, "task").result();
    assert_eq!(
        (&result["resultType"], &result["taskId"]),
        (&json!("task"), &json!("canary"))
    );
    let mut session = McpClient::open(&gateway);
    for tool in ["unknown", "task"] {
        let response = session.call("1", tool, "{}");
        assert_eq!(response.result()["isError"], true);
        assert!(!response.text().contains("canary"));
    }
}

#[test]
fn a_question_passes_whole_and_leaves_nothing_behind() {
    for layout in [Layout::One, Layout::Two] {
        let backend = Backend::modern_scripted("a", &["input"], |asked, wire| {
            let has_answer = asked.param("inputResponses").is_some();
            if has_answer {
                None
            } else {
                answers(asked, wire)
            }
        });
        let gateway = Plan::one(&backend).layout(layout).start();
        let mut client = ModernClient::new(&gateway);
        let result = client.call("1", "input", "{}").result();
        assert_eq!(result["resultType"], "input_required");
        assert_eq!(result["requestState"], "é \" opaque");
        assert_eq!(result["inputRequests"]["k"]["method"], "elicitation/create");
        // Asked again, elsewhere, it comes with what it was given and nothing else.
        let state = result["requestState"].to_string();
        let params = format!(
            r#""name":"input","requestState":{state},"inputResponses":{{"k":{{"action":"accept","content":{{}}}}}}"#
        );
        let response = client.again().ask("2", "tools/call", &params);
        text_of(&response);
        let told = backend.seen_rpc("tools/call").pop().unwrap();
        assert_eq!(told.param("requestState").as_deref(), Some(&*state));
        crate::assert_no_session(&gateway);
    }
}

/// What is between the gateway and a backend is not the client's; what is the client's reaches it.
#[test]
fn errors_of_backends_are_sorted_by_whose_they_are() {
    let backend = Backend::modern_scripted("a", &["one"], answers);
    let gateway = Plan::one(&backend).start();
    let mut client = ModernClient::new(&gateway);
    for (tool, status, code) in [
        ("lacks", 400, -32021),
        ("no-method", 404, -32601),
        ("no-name", 200, -32602),
        // Codes that this revision forbids.
        ("old-code", 200, -32602),
        ("headers", 200, -32603),
        ("version", 200, -32603),
    ] {
        let response = client.call("1", tool, "{}");
        let data = assert_refused(&response, status, Some("1"), code);
        if tool == "lacks" {
            assert_eq!(data, json!({"requiredCapabilities": {"sampling": {}}}));
        }
        assert!(!response.text().contains("2099"), "{}", response.text());
    }
}

#[test]
fn answers_that_are_not_of_the_call_are_not_taken() {
    let backend = Backend::modern_scripted("a", &["one"], |asked, wire| {
        let id = asked.id();
        let complete = r#""result":{"resultType":"complete","content":[],"canary":1}"#;
        match asked.tool()?.as_str() {
            "other-id" => wire.json(format!(r#"{{"jsonrpc":"2.0","id":9{id},{complete}}}"#)),
            "text-id" => wire.json(format!(r#"{{"jsonrpc":"2.0","id":"{id}",{complete}}}"#)),
            "html" => wire.answer(200, "content-type: text/html\r\n", "canary"),
            "no-json" => wire.json("canary"),
            "accepted" => wire.answer(202, "", ""),
            "stream-end" => wire.answer(
                200,
                "content-type: text/event-stream\r\n",
                "data: {\"canary\":1}\n\n",
            ),
            _ => return None,
        }
        Some(())
    });
    let gateway = Plan::one(&backend).start();
    let mut client = ModernClient::new(&gateway);
    for tool in [
        "other-id",
        "text-id",
        "html",
        "no-json",
        "accepted",
        "stream-end",
    ] {
        let response = client.call("1", tool, "{}");
        assert_refused(&response, 200, Some("1"), -32603);
        assert!(!response.text().contains("canary"), "{tool}");
    }
    text_of(&client.call("1", "one", "{}"));
}

/// A call whose client was asked in its stream ends there, however it ends.
#[test]
fn what_becomes_of_a_call_after_a_question_is_said_in_its_stream() {
    let backend = Backend::modern_scripted("a", &["input"], |asked, wire| {
        asked.tool()?;
        match asked.param("inputResponses") {
            None => answers(asked, wire),
            Some(_) => {
                wire.answer(500, "", "canary");
                Some(())
            }
        }
    });
    let gateway = Plan::one(&backend).start();
    let open = || McpClient::open_with(&gateway, "2025-06-18", r#"{"elicitation":{}}"#);
    let mut client = open();
    let mut stream = client.call_stream("1", "input", "{}");
    assert_eq!(stream.next_message()["method"], "elicitation/create");
    let cancelled =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(client.post(cancelled).status, 202);
    assert_eq!(stream.rest(), [""; 0]);

    let mut client = open();
    let mut stream = client.call_stream("2", "input", "{}");
    let id = stream.next_message()["id"].to_string();
    client.answer(&id, r#"{"action":"accept","content":{}}"#);
    let last = stream.next_message();
    assert_eq!(
        (&last["id"], &last["error"]["code"]),
        (&json!(2), &json!(-32603))
    );
    assert!(!last.to_string().contains("canary"), "{last}");
    assert_eq!(stream.rest(), [""; 0]);
}
