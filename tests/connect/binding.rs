//! Binding: tokens, sources, the budget of a subject; what is said when it fails, and that
//! something always is.

use serde_json::{Value, json};

use crate::{
    stage::{Client, Heard, Node, SHARDS, claims_of, sign, token_of},
    support::eventually,
};
use shardgate::websocket::frame;

/// Binds with these claims and expects this code, and the end.
#[track_caller]
fn refused(node: &Node, token: &str, code: &str, close: u16) {
    let mut client = node.client();
    client.send_bind(token, &json!({}));
    assert_eq!(client.error(Some("bind-1")), code, "{token}");
    client.ends_with(Some(close));
}

#[test]
fn a_bound_session_is_what_the_contract_shows() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let metadata = json!({"pluginDebug": {"targets": []}});
        let session = client.bind(&token_of("tmb_1"), &metadata);
        let keys: Vec<&String> = session.0.as_object().unwrap().keys().collect();
        // serde_json sorts; the order on the wire is tested with the recorded exchange.
        let mut wanted = vec![
            "capabilities",
            "connectedAt",
            "consumerType",
            "expiresAt",
            "generation",
            "id",
            "lastSeenAt",
            "metadata",
            "now",
            "ownerNodeId",
            "sessionScope",
            "status",
            "subject",
            "transport",
        ];
        wanted.sort_unstable();
        let mut keys: Vec<&str> = keys.into_iter().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, wanted);
        assert_eq!(session.0["status"], "connected");
        assert_eq!(session.0["generation"], 0);
        assert_eq!(session.0["ownerNodeId"], "node-a");
        assert_eq!(session.0["metadata"], metadata);
        let (now, expires) = (&session.0["now"], &session.0["expiresAt"]);
        assert_eq!(expires.as_u64().unwrap() - now.as_u64().unwrap(), 15_000);
        client.is_served();
    }
}

#[test]
fn each_fault_of_a_token_has_its_code_and_an_error_always_comes_before_the_end() {
    let node = Node::start(2);
    let with = |change: fn(&mut Value)| {
        let mut claims = claims_of("tmb_1");
        change(&mut claims);
        sign(&claims)
    };
    refused(&node, "a.b.c", "invalid_token", 1008);
    refused(&node, &format!("{}x", token_of("a")), "invalid_token", 1008);
    refused(
        &node,
        &with(|claims| claims["expiresAt"] = 1.into()),
        "token_expired",
        1008,
    );
    let unable = with(|claims| claims["capabilities"] = json!(["invoke"]));
    refused(&node, &unable, "capability_denied", 1008);
    refused(
        &node,
        &with(|claims| claims["transport"] = "tcp".into()),
        "bind_failed",
        1008,
    );
    refused(
        &node,
        &with(|claims| claims["consumerType"] = "x".repeat(65).into()),
        "bind_failed",
        1008,
    );

    // A short text, not a validator's report.
    let mut client = node.client();
    client.send_bind(
        &with(|claims| claims["transport"] = "tcp".into()),
        &json!({}),
    );
    let message = client.message();
    assert_eq!(
        message["message"],
        "Invalid connection token claims: transport"
    );
}

#[test]
fn a_bind_that_breaks_its_schema_is_told_so_before_the_end() {
    let node = Node::start(1);
    for (message, request_id) in [
        (
            json!({"type": "bind", "requestId": "b", "token": ""}),
            Some("b"),
        ),
        (json!({"type": "bind", "token": "t"}), None),
        (
            json!({"type": "bind", "requestId": "b", "token": "t", "metadata": []}),
            Some("b"),
        ),
    ] {
        let mut client = node.client();
        client.send(message);
        assert_eq!(client.error(request_id), "invalid_message");
        client.ends_with(Some(1008));
    }
}

#[test]
fn a_source_has_one_live_session_and_is_free_when_that_one_ends() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (first, session) = node.bound("tmb_1");
        refused(&node, &token_of("tmb_1"), "session_already_bound", 1008);
        assert_eq!(
            node.by_source("debug:tmbId:tmb_1").json()["data"]["session"]["id"],
            session.id()
        );
        drop(first);
        let again = eventually("the source is free", || {
            let mut client = node.client();
            client.send_bind(&token_of("tmb_1"), &json!({}));
            match client.message() {
                message if message["type"] == "bound" => Some(client),
                _ => None,
            }
        });
        drop(again);
    }
}

#[test]
fn sources_that_overlap_in_part_are_not_claimed_in_part() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let with = |user: &str, sources: &[&str]| {
            let mut claims = claims_of(user);
            claims["sessionScope"] = json!({"userId": user, "sources": sources});
            sign(&claims)
        };
        let mut first = node.client();
        first.bind(&with("a", &["s1", "s3"]), &json!({}));
        refused(
            &node,
            &with("b", &["s2", "s3", "s4"]),
            "session_already_bound",
            1008,
        );
        // What the refused one had claimed already is free again, once its release has arrived.
        for source in ["s2", "s4"] {
            let token = with("c", &[source]);
            let mut client = eventually("the source is free", || {
                let mut client = node.client();
                client.send_bind(&token, &json!({}));
                (client.message()["type"] == "bound").then_some(client)
            });
            client.is_served();
        }
        first.is_served();
    }
}

#[test]
fn without_a_source_nothing_is_exclusive() {
    let node = Node::start(2);
    let mut claims = claims_of("tmb_1");
    claims["sessionScope"] = json!({"userId": "tmb_1"});
    let mut clients: Vec<Client> = (0..3).map(|_| node.client()).collect();
    for client in &mut clients {
        client.bind(&sign(&claims), &json!({}));
    }
}

/// D18.
#[test]
fn a_second_bind_on_a_connection_is_refused_and_the_first_session_goes_on() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut client, session) = node.bound("tmb_1");
        for name in ["tmb_1", "tmb_2"] {
            client.send_bind(&token_of(name), &json!({}));
            assert_eq!(client.error(Some("bind-1")), "session_already_bound");
        }
        client.is_served();
        let status = node.status(session.id()).json();
        assert_eq!(status["data"]["ownerAlive"], true);
        assert_eq!(node.by_source("debug:tmbId:tmb_2").status, 404);
        // Its answers still reach its callers.
        let mut caller = node.open_stream(session.id(), &session.stream_body("r"));
        client.envelope();
        client.send_envelope(session.envelope("response", "r", json!({})));
        assert_eq!(crate::stage::lines(&mut caller).len(), 1);
    }
}

/// D19.
#[test]
fn twenty_binds_at_once_with_a_budget_of_five_give_exactly_five() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let token = |number: usize| {
            let mut claims = claims_of("tmb_1");
            claims["sessionScope"]["source"] = format!("s{number}").into();
            sign(&claims)
        };
        let mut clients: Vec<Client> = (0..20).map(|_| node.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.send_bind(&token(number), &json!({}));
        }
        let (mut bound, mut refused) = (Vec::new(), 0);
        for mut client in clients {
            let message = client.message();
            if message["type"] == "bound" {
                bound.push(client);
            } else {
                assert_eq!(
                    message["code"],
                    "connection_gateway.resource_limit_exceeded"
                );
                client.ends_with(Some(1013));
                refused += 1;
            }
        }
        assert_eq!((bound.len(), refused), (5, 15));
        // A closed session takes no place.
        drop(bound.pop());
        eventually("a place is free", || {
            let mut client = node.client();
            client.send_bind(&token(99), &json!({}));
            (client.message()["type"] == "bound").then_some(client)
        });
    }
}

/// D23: replay.
#[test]
fn a_token_with_a_nonce_binds_once_when_that_is_asked_for() {
    let node = Node::with(3, |settings| settings.single_use_tokens = true);
    let mut claims = claims_of("tmb_1");
    claims["sessionScope"] = json!({"userId": "tmb_1"});
    let without = sign(&claims);
    claims["nonce"] = "n-1".into();
    let once = sign(&claims);
    let mut first = node.client();
    first.bind(&once, &json!({}));
    refused(&node, &once, "invalid_token", 1008);
    for _ in 0..2 {
        node.client().bind(&without, &json!({}));
    }
    first.is_served();
}

#[test]
fn messages_sent_in_one_packet_with_the_upgrade_are_heard() {
    let node = Node::start(1);
    let mut bytes = shardgate::websocket::handshake::request("a", crate::stage::PATH, [7; 16], "");
    let bind = json!({"protocol": "connection-gateway.ws.v1", "type": "bind", "requestId": "b",
        "token": token_of("tmb_1")});
    let masking = shardgate::websocket::Masking::Key([9; 4]);
    shardgate::websocket::write_frame(&mut bytes, 1, bind.to_string().as_bytes(), masking);
    let mut connection = crate::support::Connection::open(node.websocket);
    connection.send(bytes);
    assert_eq!(connection.read_head().status, 101);
    while !connection
        .buffer
        .windows(7)
        .any(|window| window == b"\"bound\"")
    {
        assert!(connection.fill());
    }
    // Ending without a Close frame is an end (D3).
    connection.end_output();
    eventually("the session is closed", || {
        (node.metrics()["activeSessions"] == 0).then_some(())
    });
}

/// Claims belong to all shards. Whoever was told that a session is gone finds them free, and so
/// does one whose own connection has just ended: the real CLI stops for good when it is refused.
#[test]
fn a_source_can_be_bound_again_at_once() {
    let node = Node::with(4, |settings| settings.sessions_per_subject_max = 1);
    let (mut client, mut session) = node.bound("tmb_1");
    for _ in 0..500 {
        assert_eq!(node.delete(session.id()).status, 200);
        let (next, next_session) = node.bound("tmb_1");
        client.ends_with(None);
        (client, session) = (next, next_session);
    }
    for _ in 0..200 {
        client.send_frame(frame::CLOSE, &[]);
        assert_eq!(client.hear(), Heard::Close(None));
        (client, _) = node.bound("tmb_1");
    }
    for _ in 0..200 {
        drop(client);
        (client, _) = node.bound("tmb_1");
    }
}
