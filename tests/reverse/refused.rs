//! Who does not come in, and what it is told.

use serde_json::json;

use crate::{
    stage::{
        Framing, SOURCE, Said, Server, Socket, TOOLS, USER, adjusted, claims, client, gateway,
        register, sign, until_tools, url, websocket,
    },
    support::{Gateway, eventually},
};

fn refusal(gateway: &Gateway, extra: &str) -> (u16, String) {
    match Socket::open(websocket(gateway), Framing::Plain.path(), extra) {
        Ok(_) => panic!("it is let in"),
        Err(refused) => refused,
    }
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn tokens_that_are_not_good_enough_have_their_status() {
    let gateway = gateway(2);
    let mut late = claims(&[SOURCE]);
    late["expiresAt"] = 1.into();
    for extra in [
        "",
        "Authorization: Basic x\r\n",
        &bearer("x.y.z"),
        &bearer(&sign(&late)),
    ] {
        let (status, head) = refusal(&gateway, extra);
        assert_eq!(status, 401, "{extra}");
        assert!(head.contains("WWW-Authenticate: Bearer\r\n"));
    }
    let mut other_consumer = claims(&[SOURCE]);
    other_consumer["consumerType"] = "plugin-debug".into();
    let mut incapable = claims(&[SOURCE]);
    incapable["capabilities"] = json!(["gateway.bind"]);
    let mut unbindable = claims(&[SOURCE]);
    unbindable["capabilities"] = json!(["mcp"]);
    for claims in [
        &other_consumer,
        &incapable,
        &unbindable,
        &claims(&[]),
        &claims(&[SOURCE, "b"]),
    ] {
        assert_eq!(refusal(&gateway, &bearer(&sign(claims))).0, 403, "{claims}");
    }
    let extra = format!(
        "{}X-Shardgate-Source: other\r\n",
        bearer(&sign(&claims(&[SOURCE])))
    );
    assert_eq!(refusal(&gateway, &extra).0, 403);
    // A client's token does not say which server it brings.
    assert_eq!(refusal(&gateway, &bearer(&gateway.token(USER))).0, 403);
}

#[test]
fn a_client_s_token_and_a_name_are_good_enough() {
    let gateway = gateway(2);
    let extra = format!(
        "{}X-Shardgate-Source: files\r\n",
        bearer(&gateway.token(USER))
    );
    let path = Framing::Plain.path();
    let mut socket = Socket::open(websocket(&gateway), path, &extra).unwrap_or_else(|_| panic!());
    let greeting = socket.text();
    assert_eq!(greeting["method"], "initialize");
    assert_eq!(greeting["params"]["protocolVersion"], "2025-11-25");
    let both = format!(
        "{}X-Shardgate-Source: git\r\n",
        bearer(&sign(&claims(&["a:files", "a:git"])))
    );
    let picked = Socket::open(websocket(&gateway), path, &both);
    assert!(picked.is_ok());
}

#[test]
fn a_source_has_one_live_connection() {
    for shards in [1, 4] {
        let gateway = gateway(shards);
        let first = Server::connect(&gateway, Framing::Plain);
        let extra = bearer(&sign(&claims(&[SOURCE])));
        for _ in 0..4 {
            assert_eq!(refusal(&gateway, &extra).0, 409);
        }
        // In every framing: here it is told with the registration.
        let token = format!("Authorization: Bearer {}\r\n", gateway.token(USER));
        let path = Framing::ContextForge.path();
        let mut proxy =
            Socket::open(websocket(&gateway), path, &token).unwrap_or_else(|_| panic!());
        proxy.say(&register("files"));
        assert_eq!(proxy.text()["type"], "register_ack");
        assert_eq!(proxy.text()["status"], "error");
        assert_eq!(proxy.hear(), Said::Close(Some(1008)));
        let mut client = client(&gateway);
        until_tools(&mut client, &TOOLS);
        drop(first);
        eventually("the source is free", || {
            Socket::open(websocket(&gateway), Framing::Plain.path(), &extra).ok()
        });
    }
}

#[test]
fn over_the_limit_it_is_told_to_come_again() {
    let gateway = adjusted(2, &[("a", &url(SOURCE))], |settings| {
        settings.sessions_per_subject_max = 1;
    });
    let _first = Server::connect(&gateway, Framing::Plain);
    let (status, head) = refusal(&gateway, &bearer(&sign(&claims(&["mcp:alice:other"]))));
    assert_eq!(status, 503);
    assert!(head.contains("Retry-After: "), "{head}");
}

#[test]
fn envelopes_for_a_server_need_one_source_and_its_session_takes_no_other() {
    let gateway = gateway(2);
    let path = Framing::Envelopes.path();
    let mut socket = Socket::open(websocket(&gateway), path, "").unwrap_or_else(|_| panic!());
    let token = sign(&claims(&["a", "b"]));
    socket.say(
        &json!({"protocol": "connection-gateway.ws.v1", "type": "bind",
        "requestId": "b", "token": token}),
    );
    let refused = socket.text();
    assert_eq!(
        refused["code"], "connection_gateway.bind_failed",
        "{refused}"
    );
    // What was claimed is free again.
    let mut socket = Socket::open(websocket(&gateway), path, "").unwrap_or_else(|_| panic!());
    let token = sign(&claims(&["a"]));
    socket.say(
        &json!({"protocol": "connection-gateway.ws.v1", "type": "bind",
        "requestId": "b", "token": token}),
    );
    assert_eq!(socket.text()["type"], "bound");
}

#[test]
fn without_mcp_clients_there_is_nothing_to_connect_to() {
    use shardgate::settings::ConnectionGateway;
    let gateway = crate::support::Plan::without_document()
        .settings(|settings| {
            settings.connection_gateway = Some(ConnectionGateway::testing());
        })
        .start();
    assert!(gateway.inner().connection_gateway.is_some());
    let (status, _) = match Socket::open(websocket(&gateway), "/reverse/v2", "") {
        Ok(_) => panic!("it is let in"),
        Err(refused) => refused,
    };
    assert_eq!(status, 404);
}
