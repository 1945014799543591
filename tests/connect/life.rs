//! The life of a session (contract 5): what is checked first when it begins, what is shown of it
//! while it lives and afterwards, and that a new one is a new one.

use std::time::Duration;

use serde_json::json;

use crate::{
    stage::{Node, SHARDS, Session, claims_of, sign, token_of},
    support::eventually,
};

/// The token, then the budget of the subject, then the sources.
#[test]
fn the_checks_of_a_bind_have_their_order() {
    for shards in SHARDS {
        let node = Node::with(shards, |settings| settings.sessions_per_subject_max = 1);
        let (mut first, _) = node.bound("tmb_1");
        let with = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut claims = claims_of("tmb_1");
            change(&mut claims);
            let mut client = node.client();
            client.send_bind(&sign(&claims), &json!({}));
            client.error(Some("bind-1"))
        };
        // All of it is wrong but the signature; one fault less each time.
        assert_eq!(
            with(&|claims| {
                claims["transport"] = "tcp".into();
                claims["expiresAt"] = 1.into();
                claims["capabilities"] = json!([]);
            }),
            "bind_failed"
        );
        assert_eq!(
            with(&|claims| {
                claims["expiresAt"] = 1.into();
                claims["capabilities"] = json!([]);
            }),
            "token_expired"
        );
        assert_eq!(
            with(&|claims| claims["capabilities"] = json!([])),
            "capability_denied"
        );
        assert_eq!(with(&|_| {}), "resource_limit_exceeded");
        assert_eq!(
            with(&|claims| claims["subject"] = "somebody else".into()),
            "session_already_bound"
        );
        first.is_served();
    }
}

#[test]
fn a_closed_session_is_shown_until_its_lease_ends_and_then_gone() {
    for shards in SHARDS {
        let node = Node::with(shards, |settings| settings.lease = Duration::from_secs(2));
        let (client, session) = node.bound("tmb_1");
        drop(client);
        let view = eventually("it is closed", || {
            let view = node.status(session.id()).json()["data"].take();
            (view["session"]["status"] == "closed").then_some(view)
        });
        assert_eq!(view["ownerAlive"], false);
        let log = view["logs"].as_array().unwrap();
        assert_eq!(log.last().unwrap()["message"], "Gateway session closed");
        eventually("it is forgotten", || {
            let by_source = node.by_source("debug:tmbId:tmb_1").status;
            (node.status(session.id()).status == 404 && by_source == 404).then_some(())
        });
    }
}

#[test]
fn a_client_that_comes_again_has_a_new_session_which_is_the_one_shown() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (client, old) = node.bound("tmb_1");
        drop(client);
        let (mut client, new) = eventually("the source is free", || {
            let mut client = node.client();
            client.send_bind(&token_of("tmb_1"), &json!({}));
            let mut message = client.message();
            (message["type"] == "bound").then(|| (client, Session(message["session"].take())))
        });
        assert_ne!(old.id(), new.id());
        assert_eq!(new.0["generation"], 0);
        let shown = node.by_source("debug:tmbId:tmb_1").json();
        assert_eq!(shown["data"]["session"]["id"], new.id());
        // The old one is what it was; nothing sent to it reaches the new one.
        let old_view = node.status(old.id()).json();
        assert_eq!(old_view["data"]["session"]["status"], "closed");
        assert_eq!(node.publish(old.id(), &old.request("r")).status, 409);
        client.is_served();
        // Its client names the session it has, not the one it had.
        client.send_envelope(old.envelope("response", "r", json!({})));
        assert_eq!(client.error(Some("r")), "session_mismatch");
    }
}

/// There is no session without a connection here, so the original's answer to metadata of a session
/// that is gone (2.6) has nobody to go to: the client is told its end instead.
#[test]
fn a_client_whose_session_is_deleted_hears_the_end_and_nothing_to_what_it_says_after() {
    let node = Node::start(2);
    let (mut client, session) = node.bound("tmb_1");
    node.delete(session.id());
    // It may be gone already.
    let message = json!({"protocol": "connection-gateway.ws.v1", "type": "metadata",
        "requestId": "m", "metadata": {}});
    let mut bytes = Vec::new();
    let masking = shardgate::websocket::Masking::Key([1; 4]);
    shardgate::websocket::write_frame(&mut bytes, 1, message.to_string().as_bytes(), masking);
    client.connection.try_send(&bytes);
    client.ends_with(None);
    assert_eq!(node.status(session.id()).status, 404);
}
