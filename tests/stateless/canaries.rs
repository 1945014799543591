//! What callers and backends say in confidence is in no log, no metric, no page of the admin
//! listener and no refusal (SEC-1).

use shardgate::auth::{MintRequest, SignatureAlgorithm, SigningKey, mint};

use crate::{
    process::{Folder, Process},
    support::{Ask, Backend, Connection, EventStream, ModernClient, initialize_body, modern_body},
    text_of,
};

const SECRET: &str = "canary-secret of these tests, long enough";
/// Stands in everything nobody else may read.
const CANARY: &str = "canary";

struct House {
    process: Process,
    backend: Backend,
    token: String,
    _home: Folder,
}

impl House {
    fn new() -> Self {
        let backend = Backend::modern_scripted("a", &["one"], |asked, wire| {
            match asked.tool()?.as_str() {
                "fails" => wire.answer(500, "x-canary: canary\r\n", "canary"),
                "wrong" => wire.json("canary"),
                "extension" => wire.result(asked, r#"{"resultType":"canary","canary":1}"#),
                "headers" => wire.refuse(asked, 400, -32020, "\"canary\""),
                _ => return None,
            }
            Some(())
        });
        let home = Folder::new();
        let host = format!(
            r#"{{"backends":{{"a":{{"name":"a","url":"{}","auth":{{"type":"bearer","token":"env:OWN"}}}}}}}}"#,
            backend.url()
        );
        let file = home.write(
            "users.json",
            &format!(r#"{{"virtual_hosts":{{"default":{host}}}}}"#),
        );
        let process = Process::serve_with(
            &home,
            &[("OWN", "canary-credential")],
            &[
                "--config-file",
                &file,
                "--token-verification-secret",
                SECRET,
                "--upstream-connection-mode",
                "plain-text-or-tls",
                "--log-level",
                "trace",
            ],
        );
        let key = SigningKey::from_secret(SECRET.as_bytes()).unwrap();
        let subject = "canary-subject@example.com";
        let request = MintRequest::bootstrap(subject, subject, SignatureAlgorithm::Hs256, &key);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let token = mint(&request, now.unwrap().as_secs()).unwrap();
        Self {
            process,
            backend,
            token,
            _home: home,
        }
    }

    fn client(&self) -> ModernClient {
        ModernClient::at(self.process.address(), "/mcp", Some(&self.token))
    }
}

/// The request with a canary in every header that a caller can have.
fn with_canaries(ask: Ask) -> Ask {
    ask.header("cookie", "canary=1")
        .header("x-csrf-token", CANARY)
        .header("mcp-session-id", "canary-session")
        .header("traceparent", CANARY)
        .header("mcp-param-canary", CANARY)
}

#[test]
fn nothing_confidential_is_written_anywhere() {
    let house = House::new();
    let mut client = house.client();
    let arguments = r#"{"canary":"canary"}"#;
    let mut refusals = Vec::new();
    let mut ask = |client: &mut ModernClient, ask: Ask| {
        let response = client.connection.ask(&with_canaries(ask));
        refusals.push(format!("{:?} {}", response.headers, response.text()));
        response
    };
    text_of(
        &client
            .connection
            .ask(&with_canaries(client.call_request("1", "one", arguments))),
    );
    let told = house.backend.seen_rpc("tools/call").remove(0);
    assert_eq!(
        told.header("authorization"),
        Some("Bearer canary-credential")
    );
    assert_eq!(told.json()["params"]["arguments"]["canary"], "canary");

    for tool in ["fails", "wrong", "extension", "headers", "canary-tool"] {
        let call = client.call_request("1", tool, arguments);
        match tool {
            // A name that the backend itself does not know.
            "canary-tool" => drop(client.connection.ask(&with_canaries(call))),
            _ => drop(ask(&mut client, call)),
        }
    }
    let call = client.call_request("1", "one", arguments);
    for bad in [
        call.clone().with("mcp-name", CANARY),
        call.clone().with("mcp-method", CANARY),
        call.clone().header("mcp-name", CANARY),
        call.clone().with("content-type", "text/canary"),
        call.clone().with("accept", "text/canary"),
        call.clone().header("origin", "https://canary.example"),
        client.request("1", "canary/method", r#""canary":1"#),
        client.request("1", "tools/list", r#""cursor":"canary""#),
        client.request(
            "1",
            "subscriptions/listen",
            r#""notifications":{"toolsListChanged":"canary"}"#,
        ),
        client.request_of(&modern_body(
            "1",
            "tools/list",
            "",
            r#""io.modelcontextprotocol/clientInfo":"canary""#,
        )),
    ] {
        assert!(ask(&mut client, bad).status >= 400);
    }
    for broken in [
        "{\"canary\":",
        "[\"canary\"]",
        "\"canary\"",
        "{\"jsonrpc\":\"2.0\",\"canary\":1,\"canary\":2}",
    ] {
        let body = Some(broken.as_bytes().to_vec());
        assert_eq!(
            ask(
                &mut client,
                Ask {
                    body,
                    ..call.clone()
                }
            )
            .status,
            400
        );
    }
    let foreign = call
        .clone()
        .with("authorization", "Bearer canary.canary.canary");
    assert_eq!(ask(&mut client, foreign).status, 401);
    let nowhere = Ask {
        target: "/servers/canary/mcp".into(),
        ..call
    };
    assert_eq!(ask(&mut client, nowhere).status, 404);

    // A listener, and a session whose id is nobody else's either.
    let listen = client.listen_request(
        "\"canary\"",
        r#"{"toolsListChanged":true,"resourceSubscriptions":["canary:1"]}"#,
    );
    let mut connection = Connection::open(client.address);
    connection.send(listen.bytes());
    let mut stream = EventStream::begun(connection);
    stream.next_message();
    let opened = Ask::post("/mcp", initialize_body("0", "2025-11-25"))
        .header("authorization", &format!("Bearer {}", house.token));
    let opened = client.connection.ask(&opened);
    let session = opened.header("mcp-session-id").unwrap().to_owned();

    let mut written = refusals;
    let admin = house.process.admin_address();
    for page in [
        "/metrics",
        "/status",
        "/backends",
        "/readyz",
        "/debug/shards",
        "/debug/hdr",
    ] {
        let response = Connection::open(admin).ask(&Ask::new("GET", page));
        assert!(
            matches!(response.status, 200 | 503),
            "{page}: {}",
            response.status
        );
        written.push(format!("{page}: {}", response.text()));
    }
    drop(stream);
    let mut house = house;
    house.process.signal("TERM");
    assert_eq!(house.process.exit_code(), 0);
    written.push(house.process.stdout());
    written.push(house.process.stderr());
    assert!(house.process.stderr().contains("draining"));
    for text in &written {
        for secret in [CANARY, &session, &house.token, SECRET] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}
