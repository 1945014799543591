//! What is asked: content headers, the message itself, revisions, sessions, methods.

use crate::{
    LIST, TARGET, assert_rpc, list,
    support::{Ask, Backend, McpClient, Plan, Refusing, call_body, initialize_body},
};

#[test]
fn accept_must_name_both_types() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let client = McpClient::open(&gateway);
    for accept in [
        "application/json",
        "text/event-stream",
        "text/html",
        "application/*",
        "text/*, application/json",
        "",
        "*",
    ] {
        let response = client
            .again()
            .connection
            .ask(&client.request(LIST).with("accept", accept));
        assert_rpc(&response, 406, "null", -32000, accept);
    }
    let response = client
        .again()
        .connection
        .ask(&client.request(LIST).without("accept"));
    assert_rpc(&response, 406, "null", -32000, "none");
    for accept in [
        "application/json, text/event-stream",
        "text/event-stream,application/json",
        "text/event-stream;q=0.5, application/json;q=0.1",
        // Goose writes it so.
        "application/json;application/json; text/event-stream",
        "*/*",
        "text/html, */*;q=0.1",
    ] {
        let ask = client.request(LIST).with("accept", accept);
        assert_eq!(client.again().connection.ask(&ask).status, 200, "{accept}");
    }
    let ask = client
        .request(LIST)
        .with("accept", "application/json")
        .header("Accept", "text/event-stream");
    assert_eq!(
        client.again().connection.ask(&ask).status,
        200,
        "over two lines"
    );
}

#[test]
fn accept_of_a_get_must_take_streams() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let client = McpClient::open(&gateway);
    for accept in ["application/json", "text/html", ""] {
        let ask = client.bare("GET").with("accept", accept);
        let response = client.again().connection.ask(&ask);
        assert_rpc(&response, 406, "null", -32000, accept);
    }
    for accept in [
        "text/event-stream",
        "*/*",
        "application/json, text/event-stream",
    ] {
        let mut connection = gateway.connect();
        connection.send(client.bare("GET").with("accept", accept).bytes());
        let head = connection.read_head();
        assert_eq!(head.status, 200, "{accept}");
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        assert_eq!(head.header("cache-control"), Some("no-cache"));
    }
}

#[test]
fn content_type_must_be_json() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let client = McpClient::open(&gateway);
    for content_type in [
        "text/plain",
        "application/jsonx",
        "application/json+x",
        "application/",
        "json",
        "",
    ] {
        let ask = client.request(LIST).with("content-type", content_type);
        let response = client.again().connection.ask(&ask);
        assert_rpc(&response, 415, "null", -32000, content_type);
    }
    let response = client
        .again()
        .connection
        .ask(&client.request(LIST).without("content-type"));
    assert_rpc(&response, 415, "null", -32000, "none");
    for content_type in [
        "application/json",
        "Application/JSON; charset=utf-8",
        "application/json;charset=UTF-8",
    ] {
        let ask = client.request(LIST).with("content-type", content_type);
        assert_eq!(
            client.again().connection.ask(&ask).status,
            200,
            "{content_type}"
        );
    }
}

#[test]
fn bodies_that_are_no_json_are_400_with_a_parse_error() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let mut client = McpClient::open(&gateway);
    let bodies: [&[u8]; 14] = [
        b"{",
        b"",
        b" ",
        b"hello",
        b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"",
        b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",}",
        b"{'jsonrpc':'2.0','id':7,'method':'ping'}",
        b"{\"jsonrpc\":\"2.0\",\"id\":07,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"pi\xffng\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"} {}",
        b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"params\":{\"x\":NaN}}",
        b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"pi\nng\"}",
        b"[",
    ];
    for body in bodies {
        let context = String::from_utf8_lossy(body).into_owned();
        assert_rpc(&client.post(body), 400, "null", -32700, &context);
    }
    assert_eq!(client.tool_names(), ["one"], "the connection is still good");
}

#[test]
fn what_is_no_single_message_is_400_with_an_invalid_request() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let mut client = McpClient::open(&gateway);
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"ping","params":{{"x":{}{}}}}}"#,
        "[".repeat(5000),
        "]".repeat(5000)
    );
    for (id, body) in [
        ("null", format!("[{LIST}]")),
        ("null", format!("[{LIST},{LIST}]")),
        ("null", "[]".to_owned()),
        ("null", "null".to_owned()),
        ("null", "7".to_owned()),
        ("null", r#""text""#.to_owned()),
        (
            "null",
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#.to_owned(),
        ),
        (
            "null",
            r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#.to_owned(),
        ),
        (
            "null",
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#.to_owned(),
        ),
        (
            "null",
            r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#.to_owned(),
        ),
        (
            "7",
            r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#.to_owned(),
        ),
        ("7", r#"{"id":7,"method":"ping"}"#.to_owned()),
        ("7", r#"{"jsonrpc":"2.0","id":7}"#.to_owned()),
        ("7", r#"{"jsonrpc":"2.0","id":7,"method":7}"#.to_owned()),
        (
            "7",
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/call"}"#.to_owned(),
        ),
        (
            "7",
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","Method":"tools/call"}"#.to_owned(),
        ),
        (
            "null",
            r#"{"jsonrpc":"2.0","id":7,"id":8,"method":"ping"}"#.to_owned(),
        ),
        (
            "7",
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","result":{}}"#.to_owned(),
        ),
        ("null", deep),
    ] {
        assert_rpc(
            &client.post(&body),
            400,
            id,
            -32600,
            &body[..body.len().min(80)],
        );
    }
    let body = r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}"#;
    assert_rpc(&client.post(body), 400, "7", -32602, body);
    assert_eq!(client.tool_names(), ["one"]);
}

#[test]
fn revisions_that_are_not_spoken_or_not_the_sessions_are_400() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let client = McpClient::open(&gateway);
    for version in [
        "2025-06-18",
        "2024-11-05",
        "1999-01-01",
        "2025-11-25x",
        "latest",
        "",
    ] {
        let ask = client.request(LIST).with("mcp-protocol-version", version);
        let response = client.again().connection.ask(&ask);
        assert_rpc(&response, 400, "null", -32000, version);
        for method in ["GET", "DELETE"] {
            let ask = client.bare(method).with("mcp-protocol-version", version);
            let response = client.again().connection.ask(&ask);
            assert_rpc(&response, 400, "null", -32000, version);
        }
    }
    let twice = client
        .request(LIST)
        .header("MCP-Protocol-Version", "2025-11-25");
    assert_rpc(
        &client.again().connection.ask(&twice),
        400,
        "null",
        -32600,
        "twice",
    );
    let absent = client.request(LIST).without("mcp-protocol-version");
    assert_eq!(client.again().connection.ask(&absent).status, 200, "absent");
}

#[test]
fn the_stateless_revision_is_refused_with_what_is_spoken() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend)
        .settings(|settings| settings.protocols.stateless = false)
        .start();
    let meta = r#"{"jsonrpc":"2.0","id":"m","method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    for ask in [
        Ask::post(TARGET, meta),
        Ask::post(TARGET, meta).header("mcp-protocol-version", "2026-07-28"),
    ] {
        let response = gateway.connect().ask(&ask);
        assert_rpc(&response, 400, r#""m""#, -32022, "stateless");
        let supported = response.message()["error"]["data"]["supported"].clone();
        assert!(
            supported.as_array().unwrap().contains(&"2025-11-25".into()),
            "{supported}"
        );
    }
}

#[test]
fn initialize_agrees_on_a_revision_and_never_the_stateless_one() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    for (asked, agreed) in [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2024-11-05"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        ("", "2025-11-25"),
    ] {
        let ask = Ask::post(TARGET, initialize_body("0", asked));
        let response = gateway.connect().ask(&ask);
        assert_eq!(response.status, 200, "{asked}");
        assert_eq!(response.result()["protocolVersion"], agreed);
        assert_eq!(response.message()["id"], 0);
    }
}

#[test]
fn sessions_get_400_404_200_and_202() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let mut client = McpClient::open(&gateway);
    assert_rpc(
        &client.connection.ask(&list()),
        400,
        "null",
        -32000,
        "no session",
    );
    let unknown = list().header("mcp-session-id", "nope");
    assert_rpc(
        &client.connection.ask(&unknown),
        404,
        "null",
        -32001,
        "unknown session",
    );
    for body in [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/made-up"}"#,
        r#"{"jsonrpc":"2.0","id":0,"result":{"roots":[]}}"#,
        r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"no"}}"#,
    ] {
        let response = client.post(body);
        assert_eq!((response.status, response.body.len()), (202, 0), "{body}");
        assert_eq!(response.header("content-type"), None);
        let bare = Ask::post(TARGET, body);
        assert_eq!(
            client.connection.ask(&bare).status,
            400,
            "outside a session: {body}"
        );
    }
    let response = client.delete();
    assert_eq!((response.status, response.body.len()), (200, 0));
    assert_rpc(&client.post(LIST), 404, "null", -32001, "after DELETE");
}

#[test]
fn methods_and_tools_that_are_not_there_are_errors_in_a_200() {
    let backend = Backend::start("a", &["one"]);
    let refusing = Refusing::new();
    let gateway = Plan::of(&[("a", &backend.url()), ("b", &refusing.url())]).start();
    let mut client = McpClient::open(&gateway);
    let made_up = r#"{"jsonrpc":"2.0","id":"x","method":"made/up"}"#;
    assert_rpc(&client.post(made_up), 200, r#""x""#, -32601, "a method");
    assert_rpc(
        &client.call("1", "zzz-none", "{}"),
        200,
        "1",
        -32602,
        "a tool",
    );
    let cursor = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"%%%"}}"#;
    assert_rpc(&client.post(cursor), 200, "2", -32602, "a cursor");
    let nameless = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"arguments":{}}}"#;
    assert_rpc(&client.post(nameless), 200, "3", -32602, "no name");
    assert_rpc(
        &client.post(call_body("4", "b-one", "{}")),
        200,
        "4",
        -32603,
        "unreachable",
    );
}
