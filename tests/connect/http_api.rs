//! The internal HTTP API: who may ask, every row of its tables of routes and errors, byte for byte
//! where the contract has bytes.

use serde_json::{Value, json};

use crate::{
    stage::{
        Node, SHARDS, authorized, chunk, claims_of, end, lines, next_line, sign, stream_ask,
        with_body,
    },
    support::{Ask, Response},
};

/// A code and a status of an error, whose message both reasons repeat.
#[track_caller]
fn is_error(response: &Response, status: u16, code: &str, message: &str) -> Value {
    assert_eq!(response.status, status, "{}", response.text());
    assert_eq!(response.header("content-type"), Some("application/json"));
    let mut error = response.json()["error"].take();
    assert_eq!(error["code"], code);
    assert_eq!(error["message"], message);
    assert_eq!(error["reason"], json!({"en": message, "zh-CN": message}));
    error["data"].take()
}

#[test]
fn only_the_bearer_of_the_token_may_ask_and_health_is_open() {
    let node = Node::start(2);
    for target in [
        "/metrics",
        "/internal",
        "/internal/sessions/x/status",
        "/internal/nothing",
    ] {
        for value in [
            None,
            Some("Bearer wrong"),
            Some("bearer token"),
            Some("Bearer  token"),
            Some("Bearer token "),
            Some("Basic token"),
        ] {
            let mut ask = Ask::new("GET", target);
            if let Some(value) = value.filter(|value| !value.ends_with(' ')) {
                ask = ask.header("authorization", value);
            } else if value.is_some() {
                continue;
            }
            let response = node.ask(&ask);
            assert_eq!(response.status, 401, "{target} {value:?}");
            assert_eq!(
                response.header("content-type"),
                Some("text/plain;charset=UTF-8")
            );
            assert_eq!(response.text(), "Unauthorized");
        }
    }
    let health = node.ask(&Ask::new("GET", "/health"));
    assert_eq!(health.status, 200);
    assert_eq!(health.json()["data"]["status"], "ok");
    let time = health.json()["data"]["timestamp"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        time.starts_with("20") && time.len() == 24 && time.ends_with('Z'),
        "{time}"
    );
}

#[test]
fn unknown_routes_are_404_and_nothing_is_for_browsers() {
    let node = Node::start(1);
    let id = "7a76e6cf-0000-4000-8000-000000000000";
    for (method, target) in [
        ("GET", "/"),
        ("GET", "/health/"),
        ("GET", "/Health"),
        ("POST", "/health"),
        ("GET", "/openapi.json"),
        ("OPTIONS", "/health"),
        ("GET", "/internal/sessions"),
        ("GET", &format!("/internal/sessions/{id}/requests")),
        ("PUT", &format!("/internal/sessions/{id}/metadata")),
        ("GET", &format!("/internal/sessions/{id}/status/")),
        ("GET", "/internal/sessions/by-source/a/b/status"),
    ] {
        let mut ask = authorized(method, target).header("origin", "http://localhost");
        if method == "POST" || method == "PUT" {
            ask.body = Some(Vec::new());
        }
        let response = node.ask(&ask);
        assert_eq!(response.status, 404, "{method} {target}");
        assert_eq!(
            response.header("content-type"),
            Some("text/plain; charset=UTF-8")
        );
        assert_eq!(response.text(), "404 Not Found");
        assert_eq!(response.header("access-control-allow-origin"), None);
    }
    let head = node.ask(&authorized("HEAD", "/health"));
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn a_request_id_is_echoed_when_it_is_fit_and_made_up_when_not() {
    let node = Node::start(1);
    let id_of = |said: &str| {
        let ask = Ask::new("GET", "/health").header("x-request-id", said);
        node.ask(&ask).header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(id_of("a-B_9="), "a-B_9=");
    let long = "x".repeat(255);
    assert_eq!(id_of(&long), long);
    for unfit in ["a b", "a.b", &"x".repeat(256)] {
        let made = id_of(unfit);
        assert_eq!((made.len(), made.matches('-').count()), (36, 4), "{made}");
    }
    assert_ne!(id_of("."), id_of("."));
}

#[test]
fn status_by_id_and_by_source_is_the_contract_s_view() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (client, session) = node.bound("tmb_1");
        for response in [
            node.status(session.id()),
            node.by_source("debug:tmbId:tmb_1"),
            node.by_source("debug%3AtmbId%3Atmb_1"),
        ] {
            assert_eq!(response.status, 200);
            let data = response.json()["data"].take();
            assert_eq!(data["session"]["id"], session.id());
            assert_eq!(data["session"].get("now"), None, "only `bound` has it");
            assert_eq!(data["session"]["status"], "connected");
            assert_eq!(data["ownerAlive"], true);
            assert_eq!(data["mailboxLag"], 0);
            let first = &data["logs"][0];
            assert_eq!(first["level"], "info");
            assert_eq!(first["message"], "Gateway WebSocket session bound");
            let wanted = json!({"consumerType": "plugin-debug", "subject": "tmb_1",
                "transport": "websocket", "generation": 0});
            assert_eq!(first["data"], wanted);
        }
        for response in [
            node.status("nope"),
            node.status("7a76e6cf-0000-4000-8000-000000000000"),
            node.by_source("nobody"),
        ] {
            is_error(
                &response,
                404,
                "http.not_found",
                "Gateway session not found",
            );
        }
        // A closed session is shown until its lease ends.
        drop(client);
        crate::support::eventually("it is closed", || {
            let view = node.by_source("debug:tmbId:tmb_1").json()["data"].take();
            (view["session"]["status"] == "closed" && view["ownerAlive"] == false).then_some(())
        });
    }
}

/// D22.
#[test]
fn any_source_of_utf_8_makes_the_round_trip_and_is_decoded_once() {
    for shards in SHARDS {
        let node = Node::start(shards);
        for (source, encoded) in [
            ("100%", "100%25"),
            ("a%3Ab", "a%253Ab"),
            ("你/好?#", "%E4%BD%A0%2F%E5%A5%BD%3F%23"),
            ("..", ".."),
            ("a b+c", "a%20b+c"),
        ] {
            let mut claims = claims_of(source);
            claims["sessionScope"]["source"] = source.into();
            let mut client = node.client();
            let session = client.bind(&sign(&claims), &json!({}));
            let found = node.by_source(encoded);
            assert_eq!(found.status, 200, "{source}");
            assert_eq!(found.json()["data"]["session"]["id"], session.id());
        }
        assert_eq!(node.by_source("%ff").status, 400);
        assert_eq!(node.by_source("%zz").status, 400);
    }
}

#[test]
fn a_publication_is_accepted_with_a_message_id_and_reaches_the_client() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut client, session) = node.bound("tmb_1");
        let mut envelope = session.request("r");
        envelope["unknown"] = json!(1);
        let accepted = node.publish(session.id(), &envelope);
        assert_eq!(accepted.status, 202);
        let data = accepted.json()["data"].take();
        assert_eq!(data["accepted"], true);
        let (ms, number) = data["messageId"].as_str().unwrap().split_once('-').unwrap();
        assert!(ms.parse::<u64>().unwrap() > 1_700_000_000_000 && number.parse::<u64>().is_ok());
        assert_eq!(client.envelope(), session.request("r"));
        // Any type may go to the client, with or without a request id.
        for kind in ["response", "event", "stream"] {
            let mut any = session.envelope(kind, "x", json!(null));
            any.as_object_mut().unwrap().remove("requestId");
            assert_eq!(node.publish(session.id(), &any).status, 202, "{kind}");
            assert_eq!(client.envelope(), any);
        }
        // The type of the body is not looked at, nor is `stream`.
        for content_type in [None, Some("text/plain")] {
            let target = format!("/internal/sessions/{}/requests", session.id());
            let mut ask = authorized("POST", &target);
            if let Some(content_type) = content_type {
                ask = ask.header("content-type", content_type);
            }
            let body = json!({"envelope": session.request("s"), "stream": true});
            ask.body = Some(body.to_string().into_bytes());
            assert_eq!(node.ask(&ask).status, 202, "{content_type:?}");
            assert_eq!(client.envelope(), session.request("s"));
        }
    }
}

#[test]
fn head_is_answered_where_get_is() {
    let node = Node::start(2);
    let (_client, session) = node.bound("tmb_1");
    for (target, status) in [
        ("/health".to_owned(), 200),
        ("/metrics".to_owned(), 200),
        (format!("/internal/sessions/{}/status", session.id()), 200),
        (
            "/internal/sessions/by-source/debug:tmbId:tmb_1/status".to_owned(),
            200,
        ),
        ("/internal/sessions/by-source/none/status".to_owned(), 404),
    ] {
        let head = node.ask(&authorized("HEAD", &target));
        assert_eq!((head.status, head.body.len()), (status, 0), "{target}");
        let get = node.get(&target);
        assert_eq!(head.header("content-type"), get.header("content-type"));
    }
}

/// The table of 3.1, in its order, for both ways to publish.
#[test]
fn every_row_of_the_table_of_errors() {
    for shards in SHARDS {
        let node = Node::with(shards, |settings| settings.envelope_bytes_max = 2000);
        let (_client, session) = node.bound("tmb_1");
        let id = session.id();
        for route in ["requests", "requests:stream"] {
            let ask = |id: &str, envelope: &Value| {
                let target = format!("/internal/sessions/{id}/{route}");
                node.ask(&with_body("POST", &target, &json!({"envelope": envelope})))
            };
            let with = |name: &str, value: Value| {
                let mut envelope = session.request("r");
                envelope[name] = value;
                envelope
            };
            let data = is_error(
                &ask(id, &with("sessionId", json!(""))),
                400,
                "http.validation_failed",
                "Validation failed: envelope.sessionId: Too small: expected string to have >=1 characters",
            );
            let issue = json!({"path": "envelope.sessionId", "code": "too_small", "minimum": 1,
                "message": "Too small: expected string to have >=1 characters"});
            assert_eq!(data, json!({"issues": [issue]}));
            let mut unparsable = with_body(
                "POST",
                &format!("/internal/sessions/{id}/{route}"),
                &json!(1),
            );
            unparsable.body = Some(b"{".to_vec());
            is_error(
                &node.ask(&unparsable),
                400,
                "http.validation_failed",
                "Validation failed: (root): Invalid input: expected object, received undefined",
            );
            let big = with("payload", json!("x".repeat(2000)));
            let data = is_error(
                &ask(id, &big),
                413,
                "connection_gateway.envelope_too_large",
                "Gateway envelope too large",
            );
            assert_eq!(data, json!({"max": 2000, "actual": big.to_string().len()}));
            let gone = "7a76e6cf-0000-4000-8000-000000000000";
            let not_found = "connection_gateway.session_not_found";
            is_error(
                &ask(gone, &with("sessionId", json!(gone))),
                404,
                not_found,
                "Gateway session not found",
            );
            is_error(
                &ask(id, &with("sessionId", json!(gone))),
                404,
                not_found,
                "Gateway session not found",
            );
            let data = is_error(
                &ask(id, &with("generation", json!(7))),
                409,
                "connection_gateway.stale_generation",
                "Stale gateway generation",
            );
            assert_eq!(
                data,
                json!({"expectedGeneration": 0, "actualGeneration": 7})
            );
            let data = is_error(
                &ask(id, &with("consumerType", json!("other"))),
                401,
                "connection_gateway.invalid_token",
                "Invalid connection token",
            );
            assert_eq!(
                data,
                json!({"expectedConsumerType": "plugin-debug", "actualConsumerType": "other"})
            );
            let data = is_error(
                &ask(id, &with("capability", json!("admin"))),
                403,
                "connection_gateway.capability_denied",
                "Connection token capability denied",
            );
            assert_eq!(data, json!({"capability": "admin"}));
        }
        // Closed: 409, with what it is.
        let (client, session) = node.bound("tmb_2");
        drop(client);
        let refused = crate::support::eventually("it is closed", || {
            let response = node.publish(session.id(), &session.request("r"));
            (response.status != 202).then_some(response)
        });
        let message = "Gateway session is closed";
        let data = is_error(
            &refused,
            409,
            "connection_gateway.session_owner_expired",
            message,
        );
        assert_eq!(data, json!({"status": "closed"}));
    }
}

#[test]
fn blanks_in_a_body_do_not_count_and_a_body_far_over_the_limit_is_not_read() {
    let node = Node::with(2, |settings| settings.envelope_bytes_max = 2000);
    let (mut client, session) = node.bound("tmb_1");
    let mut ask = stream_ask(session.id(), &json!({}));
    let envelope = session
        .request("r")
        .to_string()
        .replace(':', &format!(":{}", " ".repeat(300)));
    ask.body = Some(format!("{{\"envelope\":{envelope}}}").into_bytes());
    let mut caller = node.caller();
    caller.send(ask.bytes());
    assert_eq!(caller.read_head().status, 200);
    client.envelope();
    let mut ask = stream_ask(session.id(), &json!({}));
    ask = ask.header("content-length", "100000");
    ask.body = None;
    let mut caller = node.caller();
    caller.send(ask.bytes());
    let response = caller.read_response();
    is_error(
        &response,
        413,
        "connection_gateway.envelope_too_large",
        "Gateway envelope too large",
    );
}

#[test]
fn metadata_are_patched_and_the_session_is_shown() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (_client, session) = node.bound("tmb_1");
        let patched = node.patch(session.id(), &json!({"b": 2}));
        assert_eq!(patched.status, 200);
        assert_eq!(
            patched.json()["data"]["session"]["metadata"],
            json!({"b": 2})
        );
        assert_eq!(patched.json()["data"]["session"]["id"], session.id());
        let response = node.patch(session.id(), &json!([1]));
        is_error(
            &response,
            400,
            "http.validation_failed",
            "Validation failed: metadata: Invalid input: expected object, received array",
        );
        let gone = node.patch("nope", &json!({}));
        is_error(
            &gone,
            404,
            "connection_gateway.session_not_found",
            "Gateway session not found",
        );
    }
}

#[test]
fn deletion_always_succeeds_and_ends_the_client() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut client, session) = node.bound("tmb_1");
        for _ in 0..2 {
            let deleted = node.delete(session.id());
            assert_eq!(
                (deleted.status, deleted.text()),
                (200, r#"{"data":{"deleted":true}}"#)
            );
        }
        client.ends_with(None);
        assert_eq!(node.delete("nope").text(), r#"{"data":{"deleted":true}}"#);
        assert_eq!(node.status(session.id()).status, 404);
        crate::support::eventually("its source is free", || {
            (node.by_source("debug:tmbId:tmb_1").status == 404).then_some(())
        });
    }
}

#[test]
fn a_stream_has_its_head_at_once_and_each_line_as_it_comes() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut client, session) = node.bound("tmb_1");
        let (mut caller, head) = node.stream(session.id(), &session.stream_body("r"));
        assert_eq!(head.status, 200);
        assert_eq!(
            head.header("content-type"),
            Some("application/x-ndjson; charset=utf-8")
        );
        assert_eq!(head.header("cache-control"), Some("no-cache, no-transform"));
        assert_eq!(head.header("transfer-encoding"), Some("chunked"));
        assert_eq!(client.envelope(), session.request("r"));
        for number in 0..3 {
            let envelope = session.envelope("stream", "r", chunk(json!(number)));
            client.send_envelope(envelope.clone());
            assert_eq!(next_line(&mut caller), Some(envelope));
        }
        client.send_envelope(session.envelope("stream", "r", end()));
        assert_eq!(lines(&mut caller).len(), 1);
        // The connection goes on.
        assert_eq!(caller.ask(&authorized("GET", "/health")).status, 200);
    }
}

#[test]
fn a_request_without_an_id_gets_one_and_old_callers_get_plain_lines() {
    let node = Node::start(2);
    let (mut client, session) = node.bound("tmb_1");
    let mut body = session.stream_body("r");
    body["envelope"]
        .as_object_mut()
        .unwrap()
        .remove("requestId");
    let mut caller = node.open_stream(session.id(), &body);
    let request_id = client.envelope()["requestId"].as_str().unwrap().to_owned();
    assert_eq!(request_id.len(), 36);
    client.send_envelope(session.envelope("response", &request_id, json!({})));
    assert_eq!(lines(&mut caller)[0]["requestId"], request_id);
    // HTTP/1.0.
    let mut caller = node.caller();
    let ask = stream_ask(session.id(), &session.stream_body("old")).bytes();
    let ask = String::from_utf8(ask)
        .unwrap()
        .replacen("HTTP/1.1", "HTTP/1.0", 1);
    caller.send(ask);
    client.envelope();
    client.send_envelope(session.envelope("response", "old", json!({})));
    let response = caller.read_response();
    assert_eq!(response.header("transfer-encoding"), None);
    assert!(response.text().ends_with("}\n"), "{}", response.text());
}

#[test]
fn metrics_are_the_contract_s_json_or_prometheus_text() {
    let node = Node::start(2);
    let (mut client, session) = node.bound("tmb_1");
    let mut caller = node.open_stream(session.id(), &session.stream_body("r"));
    client.envelope();
    let wanted = json!({
        "nodeId": "node-a", "activeConnections": 1, "activeSessions": 1, "inFlightRequests": 1,
        "streamBufferBytes": 0, "slowConsumers": 0, "ownerLeaseExpiries": 0,
        "mailbox": {"lag": 0, "redisRoundTripMs": 0},
        "limits": {"maxConnections": 5000, "maxSessionsPerSubject": 5, "maxInFlightPerSession": 50,
            "maxEnvelopeBytes": 1_048_576},
    });
    // What the client has may be counted a moment later.
    crate::support::eventually("nothing waits", || (node.metrics() == wanted).then_some(()));
    client.send_envelope(session.envelope("response", "r", json!({})));
    lines(&mut caller);
    let text =
        node.ask(&authorized("GET", "/metrics").header("accept", "text/plain;version=0.0.4"));
    assert!(
        text.header("content-type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    let sum = |name: &str| -> u64 {
        let lines = text.text().lines().filter(|line| line.starts_with(name));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    };
    assert_eq!(sum("shardgate_connection_gateway_binds_total"), 1);
    assert_eq!(sum("shardgate_connection_gateway_in_flight_requests"), 0);
    assert_eq!(
        sum("shardgate_connection_gateway_exchange_seconds_count"),
        1
    );
}
