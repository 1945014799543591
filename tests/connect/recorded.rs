//! The recorded exchanges of the original, replayed: what the gateway says must be those bytes, but
//! for ids and times. Where section 8 of the contract asks for better, the difference is written
//! down here.

use std::{collections::BTreeMap, fs};

use serde_json::{Value, json};

use crate::{
    stage::{Client, Heard, Node, Session, chunk, claims_of, end, next_line, sign},
    support::Connection,
};

fn case(name: &str) -> String {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/cases/connection_gateway/"
    );
    fs::read_to_string(format!("{folder}{name}.txt")).unwrap()
}

/// A text with each id and each time in the place where it stands, by what stands before it: every
/// run of digits of a time, and every UUID, is a `#`.
fn shape(text: &str) -> String {
    let uuid =
        regex_lite::Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
            .unwrap();
    let time = regex_lite::Regex::new("1[0-9]{12}(-[0-9]+)?").unwrap();
    let text = uuid.replace_all(text, "#");
    time.replace_all(&text, "#").into_owned()
}

/// What follows `name` on its line of the transcript.
fn recorded<'a>(transcript: &'a str, name: &str) -> &'a str {
    let line = transcript.lines().find(|line| line.starts_with(name));
    line.unwrap_or_else(|| panic!("no {name}"))
        .strip_prefix(name)
        .unwrap()
}

/// The next text frame as it is on the wire: its head and its text.
fn raw_text(client: &mut Client) -> (Vec<u8>, String) {
    let connection = &mut client.connection;
    while connection.buffer.len() < 2 {
        assert!(connection.fill());
    }
    let head_bytes = if connection.buffer[1] == 126 { 4 } else { 2 };
    while connection.buffer.len() < head_bytes {
        assert!(connection.fill());
    }
    let length = match connection.buffer[1] {
        126 => usize::from(u16::from_be_bytes([
            connection.buffer[2],
            connection.buffer[3],
        ])),
        short => usize::from(short),
    };
    while connection.buffer.len() < head_bytes + length {
        assert!(connection.fill());
    }
    let head = connection.buffer.drain(..head_bytes).collect();
    let text = connection.buffer.drain(..length).collect();
    (head, String::from_utf8(text).unwrap())
}

/// The JSON behind the headers of a recorded answer.
fn body(line: &str) -> &str {
    let (_, body) = line.split_once("} {").unwrap();
    &line[line.len() - body.len() - 1..]
}

#[test]
fn the_happy_path_is_byte_for_byte_the_recorded_one() {
    let transcript = case("happy_path");
    let node = Node::start(2);
    let mut connection = Connection::open(node.websocket);
    connection.send(
        "GET /connection-gateway/v1 HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\
         Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    let handshake: String = serde_json::from_str(recorded(&transcript, "HANDSHAKE ")).unwrap();
    while connection.buffer.len() < handshake.len() {
        assert!(connection.fill());
    }
    assert_eq!(
        String::from_utf8(std::mem::take(&mut connection.buffer)).unwrap(),
        handshake
    );
    // The rest of the talk is on this connection; its opening is done.
    let mut client = Client::opened(connection);

    let metadata = json!({"pluginDebug": {"targets": [{"source": "debug:tmbId:tmb_1",
        "pluginId": "getTime", "version": "1.0.0", "name": "getTime"}]}});
    // In the recorded order of its members, which the gateway keeps.
    let metadata_text = "{\"pluginDebug\":{\"targets\":[{\"source\":\"debug:tmbId:tmb_1\",\
        \"pluginId\":\"getTime\",\"version\":\"1.0.0\",\"name\":\"getTime\"}]}}";
    assert_eq!(
        serde_json::from_str::<Value>(metadata_text).unwrap(),
        metadata
    );
    let token = sign(&claims_of("tmb_1"));
    client.send_text(&format!(
        "{{\"protocol\":\"connection-gateway.ws.v1\",\"type\":\"bind\",\"requestId\":\"bind-1\",\
         \"token\":\"{token}\",\"metadata\":{metadata_text}}}"
    ));
    let (head, bound) = raw_text(&mut client);
    let line = recorded(&transcript, "BOUND fin 1 op 1 masked 0 len ");
    let (length, text) = line.split_once(' ').unwrap();
    let length: u16 = length.parse().unwrap();
    assert_eq!(head, [&[0x81, 126][..], &length.to_be_bytes()].concat());
    assert_eq!(shape(&bound), shape(text));
    let bound: Value = serde_json::from_str(&bound).unwrap();
    let session = Session(bound["session"].clone());

    let status = node.status(session.id());
    let wanted = shape(body(recorded(&transcript, "STATUS 200 ")));
    assert_eq!(shape(status.text()), wanted);
    assert_eq!(status.header("content-type"), Some("application/json"));

    let request = recorded(&transcript, "WS REQ fin 1 op 1 ");
    let request: Value = serde_json::from_str(request).unwrap();
    let recorded_id = request["envelope"]["sessionId"].as_str().unwrap();
    let envelope_text = recorded(&transcript, "WS REQ fin 1 op 1 ")
        .split_once("\"envelope\":")
        .unwrap()
        .1
        .strip_suffix('}')
        .unwrap()
        .replace(recorded_id, session.id());
    let mut ask = crate::stage::stream_ask(session.id(), &json!({}));
    ask.body = Some(format!("{{\"timeoutMs\":5000,\"envelope\":{envelope_text}}}").into_bytes());
    let mut caller = node.caller();
    caller.send(ask.bytes());
    let head = caller.read_head();
    assert_eq!(head.status, 200);
    for name in ["content-type", "cache-control", "transfer-encoding"] {
        let line = recorded(&transcript, "STREAM 200 ");
        let headers: Value = serde_json::from_str(line.rsplit_once(' ').unwrap().0).unwrap();
        assert_eq!(head.header(name), headers[name].as_str(), "{name}");
    }
    let (_, text) = raw_text(&mut client);
    assert_eq!(
        text.replace(session.id(), recorded_id),
        recorded(&transcript, "WS REQ fin 1 op 1 ")
    );

    let answers = [
        ("response", json!({"kind": "plugin-debug.accepted"})),
        (
            "stream",
            chunk(json!({"type": "stream", "data": {"type": "answer", "content": "hé"}})),
        ),
        (
            "stream",
            chunk(json!({"type": "response", "data": {"time": "now"}})),
        ),
        ("stream", end()),
    ];
    let chunks: Vec<String> = transcript
        .lines()
        .filter_map(|line| line.strip_prefix("  chunk@"))
        .map(|line| serde_json::from_str(line.split_once(' ').unwrap().1).unwrap())
        .collect();
    assert_eq!(chunks.len(), answers.len());
    for (wanted, (kind, payload)) in chunks.iter().zip(answers) {
        // The client's own bytes, in the recorded order.
        let text = wanted.trim_end().replace(recorded_id, session.id());
        let sent: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&sent["type"], &sent["payload"]), (&json!(kind), &payload));
        client.send_text(&format!(
            "{{\"protocol\":\"connection-gateway.ws.v1\",\"type\":\"envelope\",\"envelope\":{text}}}"
        ));
        let line = String::from_utf8(caller.read_chunk().unwrap()).unwrap();
        assert_eq!(line, format!("{text}\n"));
    }
    assert_eq!(next_line(&mut caller), None);

    client.send(json!({"type": "heartbeat", "ts": 1}));
    assert_eq!(
        shape(&raw_text(&mut client).1),
        shape(recorded(&transcript, "HB "))
    );
    client.send_text(
        "{\"protocol\":\"connection-gateway.ws.v1\",\"type\":\"metadata\",\"metadata\":{\"a\":1}}",
    );
    client.is_served();
    // Of the log the original keeps more lines; its session is this one.
    let whole = recorded(&transcript, "STATUS2 200 ");
    let (wanted, _) = whole.split_once(",\"logs\":").unwrap();
    let status = node.status(session.id());
    assert_eq!(
        shape(status.text().split_once(",\"logs\":").unwrap().0),
        shape(wanted)
    );

    let envelope = recorded(&transcript, "WS {")
        .split_once("\"envelope\":")
        .unwrap()
        .1;
    let envelope = envelope
        .strip_suffix('}')
        .unwrap()
        .replace(recorded_id, session.id());
    let target = format!("/internal/sessions/{}/requests", session.id());
    let mut ask = crate::stage::with_body("POST", &target, &json!({}));
    ask.body = Some(format!("{{\"envelope\":{envelope}}}").into_bytes());
    let accepted = node.ask(&ask);
    assert_eq!(accepted.status, 202);
    assert_eq!(
        shape(accepted.text()),
        shape(body(recorded(&transcript, "REQ accepted 202 ")))
    );
    let (_, text) = raw_text(&mut client);
    let wanted = format!("{{{}", recorded(&transcript, "WS {"));
    assert_eq!(text.replace(session.id(), recorded_id), wanted);

    let patched = node.patch(session.id(), &json!({"b": 2}));
    assert_eq!(
        shape(patched.text()),
        shape(recorded(&transcript, "PATCH 200 "))
    );
    let metrics: Value = serde_json::from_str(body(recorded(&transcript, "METRICS 200 "))).unwrap();
    let mut ours = node.get("/metrics").json();
    // The last sample of something there is none of.
    ours["data"]["mailbox"]["redisRoundTripMs"] = 3.into();
    assert_eq!(ours, metrics);
    client.send_frame(9, b"ping!");
    assert_eq!(client.hear(), Heard::Pong(b"ping!".to_vec()));
    assert_eq!(
        node.delete(session.id()).text(),
        recorded(&transcript, "DELETE 200 ")
    );
    client.ends_with(None);
    assert_eq!(
        node.status(session.id()).text(),
        recorded(&transcript, "STATUS after delete 404 ")
    );
    assert_eq!(
        node.delete("nope").text(),
        recorded(&transcript, "DELETE nope 200 ")
    );
}

/// The lines of a section of the matrix: name and what was recorded for it.
fn matrix(transcript: &str) -> BTreeMap<&str, &str> {
    let mut found = BTreeMap::new();
    for line in transcript.lines() {
        let (name, outcome) = line.split_at(35);
        found.insert(name.trim(), outcome.trim());
    }
    found
}

#[test]
fn the_matrix_of_messages_is_the_recorded_one_or_better() {
    let transcript = case("handshake_and_frames");
    let matrix = matrix(&transcript);
    let node = Node::start(1);
    let session = Session(json!({"id": "7a76e6cf-0000-4000-8000-000000000000"}));
    let bind = |change: &dyn Fn(&mut Value), request_id: &str| {
        let mut claims = claims_of("tmb_1");
        change(&mut claims);
        json!({"type": "bind", "requestId": request_id, "token": sign(&claims)})
    };
    let unchanged: [(&str, Value); 8] = [
        ("heartbeat unbound", json!({"type": "heartbeat", "ts": 1})),
        (
            "heartbeat extra key",
            json!({"type": "heartbeat", "ts": 1, "x": 1}),
        ),
        (
            "envelope unbound",
            json!({"type": "envelope", "envelope": session.request("req-1")}),
        ),
        (
            "metadata unbound",
            json!({"type": "metadata", "requestId": "m", "metadata": {}}),
        ),
        (
            "metadata unbound no rid",
            json!({"type": "metadata", "metadata": {}}),
        ),
        (
            "bind bad token",
            json!({"type": "bind", "requestId": "b", "token": "a.b.c"}),
        ),
        (
            "bind expired",
            bind(&|claims| claims["expiresAt"] = 1.into(), "b"),
        ),
        (
            "bind no cap",
            bind(&|claims| claims["capabilities"] = json!([]), "b"),
        ),
    ];
    for (name, message) in unchanged {
        let mut client = node.client();
        client.send(message);
        let (_, text) = raw_text(&mut client);
        let wanted: Value = serde_json::from_str(matrix[name]).unwrap();
        assert_eq!(shape(&text), shape(wanted[0].as_str().unwrap()), "{name}");
        match wanted[1].as_str() {
            Some("open(no reply)") => client.is_served(),
            // D21: with a code, where the original's was empty.
            _ => client.ends_with(Some(1008)),
        }
    }
    // 2.2: what the original cut off without a word is answered with an error and a code.
    let better: [(&str, Value, &str); 9] = [
        (
            "heartbeat ts 0",
            json!({"type": "heartbeat", "ts": 0}),
            "invalid_message",
        ),
        (
            "heartbeat ts 1.5",
            json!({"type": "heartbeat", "ts": 1.5}),
            "invalid_message",
        ),
        (
            "unknown type",
            json!({"type": "nothing"}),
            "invalid_message",
        ),
        (
            "bind empty token",
            json!({"type": "bind", "requestId": "b", "token": ""}),
            "invalid_message",
        ),
        (
            "bind no requestId",
            json!({"type": "bind", "token": "t"}),
            "invalid_message",
        ),
        (
            "bind metadata array",
            json!({"type": "bind", "requestId": "b", "token": "t", "metadata": []}),
            "invalid_message",
        ),
        (
            "bind tcp transport",
            bind(&|claims| claims["transport"] = "tcp".into(), "b"),
            "bind_failed",
        ),
        (
            "bind bad claims",
            bind(&|claims| *claims = json!({}), "b"),
            "bind_failed",
        ),
        (
            "bind cons type 65",
            bind(
                &|claims| claims["consumerType"] = "x".repeat(65).into(),
                "b",
            ),
            "bind_failed",
        ),
    ];
    for (name, message, code) in better {
        let outcome: Value = serde_json::from_str(matrix[name]).unwrap();
        let first = outcome[0].as_str().unwrap();
        assert!(first == "CLOSED" || first.contains(code), "{name}: {first}");
        let mut client = node.client();
        client.send(message);
        let message = client.message();
        assert_eq!(
            message["code"],
            format!("connection_gateway.{code}"),
            "{name}"
        );
        client.ends_with(Some(1008));
    }
}

/// The answers to opening requests, up to a blank line and what belongs to it.
fn opening(node: &Node, request: &str) -> String {
    let mut connection = Connection::open(node.websocket);
    connection.send(request);
    while !connection.buffer.starts_with(b"HTTP/1.1 101") && connection.fill() {}
    String::from_utf8(std::mem::take(&mut connection.buffer)).unwrap()
}

#[test]
fn the_matrix_of_handshakes_is_the_recorded_one_or_stricter() {
    let transcript = case("handshake_and_frames");
    let matrix = matrix(&transcript);
    let node = Node::start(2);
    let good = format!(
        "GET {} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        crate::stage::PATH
    );
    let path = crate::stage::PATH;
    let recorded = |name: &str| -> String { serde_json::from_str(matrix[name]).unwrap() };
    for (name, from, to) in [
        ("ok", "", ""),
        ("path query", path, "/connection-gateway/v1?a=b"),
        ("path trailing slash", path, "/connection-gateway/v1/"),
        ("path other", path, "/other"),
        ("path dotdot", path, "/x/../connection-gateway/v1"),
        ("path enc", path, "/connection-gateway/%761"),
        ("absolute url", path, "http://a/connection-gateway/v1"),
        (
            "no key",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
            "",
        ),
        ("ver 8", "Version: 13", "Version: 8"),
        ("no ver", "Sec-WebSocket-Version: 13\r\n", ""),
        (
            "Upgrade: WebSocket",
            "Upgrade: websocket",
            "Upgrade: WebSocket",
        ),
        (
            "Upgrade: h2c, websocket",
            "Upgrade: websocket",
            "Upgrade: h2c, websocket",
        ),
        (
            "subprotocol + ext offered",
            "Host: a",
            "Host: a\r\nSec-WebSocket-Protocol: x",
        ),
        (
            "Origin evil",
            "Host: a",
            "Host: a\r\nOrigin: http://evil.example",
        ),
    ] {
        assert_eq!(
            opening(&node, &good.replacen(from, to, 1)),
            recorded(name),
            "{name}"
        );
    }
    // D21: what the original let pass.
    for (name, from, to) in [
        ("short key", "dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ="),
        ("HTTP/1.0", "HTTP/1.1", "HTTP/1.0"),
        ("POST upgrade", "GET", "PUT"),
    ] {
        assert!(recorded(name).starts_with("HTTP/1.1 101"));
        assert_eq!(
            opening(&node, &good.replacen(from, to, 1)),
            recorded("no key"),
            "{name}"
        );
    }
    // These have a time in their heads.
    for (name, from) in [
        ("no Connection: Upgrade", "Connection: Upgrade\r\n"),
        (
            "plain GET on ws port",
            "Upgrade: websocket\r\nConnection: Upgrade\r\n",
        ),
    ] {
        let whole = recorded(name);
        let (status, rest) = whole.split_once("\r\n").unwrap();
        assert_eq!(rest.split_once("\r\n\r\n").unwrap().1, "");
        let answer = opening(&node, &good.replacen(from, "", 1));
        assert!(
            answer.starts_with(status) && answer.ends_with("\r\n\r\nNot Found"),
            "{answer}"
        );
    }
}
