//! What a server asks: of the one client it can mean, or it is told that nobody is asked.

use serde_json::{Value, json};

use crate::{
    stage::{FRAMINGS, Framing, Server, TOOLS, client, gateway, until_tools},
    support::{Ask, EventStream, Gateway, HOST, McpClient, call_body, initialize_body},
};

/// A client that says it can sample.
fn sampler(gateway: &Gateway) -> McpClient {
    let mut client = client(gateway);
    let body = initialize_body("0", "2025-11-25")
        .replace(r#""capabilities":{}"#, r#""capabilities":{"sampling":{}}"#);
    let token = client.token.clone().unwrap();
    let ask = Ask::post(&client.target, body).with("authorization", &format!("Bearer {token}"));
    let response = client.connection.ask(&ask);
    client.session = response.header("mcp-session-id").unwrap().to_owned();
    client.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    client
}

/// Calls the tool that asks, under the raw id, and gives the call's stream with the question.
fn asked(client: &McpClient, id: &str) -> (EventStream, Value) {
    let mut calling = client.again();
    let request = calling.request(call_body(id, "sample", "{}"));
    calling.connection.send(request.bytes());
    let mut stream = EventStream::begun(calling.connection);
    let question = stream.next_message();
    assert_eq!(question["method"], "sampling/createMessage");
    (stream, question)
}

#[test]
fn equal_ids_of_both_sides_do_not_meet() {
    for framing in FRAMINGS {
        let gateway = gateway(4);
        let server = Server::connect(&gateway, framing);
        let mut client = sampler(&gateway);
        until_tools(&mut client, &TOOLS);
        for round in 0..3 {
            // The server asks under the very id that the call has with it.
            let (mut stream, question) = asked(&client, &round.to_string());
            let call = server.wait_for("tools/call");
            let answer = json!({"jsonrpc": "2.0", "id": question["id"],
                "result": {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}});
            assert_eq!(client.post(answer.to_string()).status, 202);
            let answered = server.wait_for_answer();
            assert_eq!(answered["id"], call["id"]);
            assert_eq!(answered["result"]["content"]["text"], "hi");
            server.say(&json!({"jsonrpc": "2.0", "id": call["id"], "result": {"content": []}}));
            let last = stream.next_message();
            assert_eq!(
                (&last["id"], &last["result"]["content"]),
                (&json!(round), &json!([]))
            );
        }
    }
}

#[test]
fn a_question_that_could_be_for_two_is_refused() {
    let gateway = gateway(4);
    let server = Server::connect(&gateway, Framing::Plain);
    let mut one = sampler(&gateway);
    let other = sampler(&gateway);
    until_tools(&mut one, &TOOLS);
    let mut waiting = other.again();
    waiting.send_call("1", "wait", "{}");
    let waits = server.wait_for("tools/call");
    one.send_call("1", "sample", "{}");
    let call = server.wait_for("tools/call");
    let refused = server.wait_for_answer();
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
    for (call, connection) in [(call, &mut one), (waits, &mut waiting)] {
        server.say(&json!({"jsonrpc": "2.0", "id": call["id"], "result": {"content": []}}));
        assert!(connection.connection.read_response().result().is_object());
    }
    // Without a call there is nobody at all.
    server.say(&json!({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage"}));
    let refused = server.wait_for_answer();
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!("q"), &json!(-32603))
    );
    server.say(&json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}));
    assert_eq!(
        server.wait_for_answer(),
        json!({"jsonrpc": "2.0", "id": "p", "result": {}})
    );
}

#[test]
fn a_question_of_a_call_that_nobody_waits_for_is_answered() {
    let gateway = gateway(2);
    let server = Server::connect(&gateway, Framing::Plain);
    let mut client = sampler(&gateway);
    until_tools(&mut client, &TOOLS);
    let (stream, question) = asked(&client, "5");
    let call = server.wait_for("tools/call");
    client.post(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#);
    drop((stream, question));
    // In whatever order: the call is cancelled, and the question does not wait for ever.
    let told = [server.next(), server.next()];
    let cancelled = told
        .iter()
        .find(|one| one["method"] == "notifications/cancelled");
    assert_eq!(cancelled.unwrap()["params"]["requestId"], call["id"]);
    let answer = told.iter().find(|one| one.get("method").is_none());
    assert!(answer.unwrap()["error"].is_object(), "{told:?}");
}

#[test]
fn a_client_without_a_session_is_asked_when_its_requests_are_bridged() {
    use crate::{
        stage::SOURCE,
        support::{ModernClient, Plan},
    };
    let backends = json!({"a": {"url": crate::stage::url(SOURCE), "protocol": "legacy",
        "bridge": "per-request", "session_independent_tools": ["*"]}});
    let gateway = Plan::document(json!({"virtual_hosts": {HOST: {"backends": backends}}}))
        .shards(2)
        .with_tokens()
        .settings(|settings| {
            let wanted = shardgate::settings::ConnectionGateway::testing();
            settings.connection_gateway = Some(wanted);
        })
        .start();
    let server = Server::connect(&gateway, Framing::Plain);
    let token = gateway.token("client");
    let mut modern = ModernClient::of(&gateway, HOST, Some(&token));
    crate::support::eventually("the tools are seen", || {
        (modern.tool_names() == TOOLS).then_some(())
    });
    let meta = r#""io.modelcontextprotocol/clientCapabilities":{"sampling":{}}"#;
    let body =
        crate::support::modern_body("1", "tools/call", r#""name":"sample","arguments":{}"#, "")
            .replace(r#""io.modelcontextprotocol/clientCapabilities":{}"#, meta);
    let ask = modern.request_of(&body);
    let response = modern.connection.ask(&ask);
    assert_eq!(
        response.result()["resultType"],
        "input_required",
        "{}",
        response.text()
    );
    server.wait_for("tools/call");
}
