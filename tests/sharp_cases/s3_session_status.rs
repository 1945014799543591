//! S3: what status a session id of every kind gets.

use crate::support::{Ask, Backend, LAYOUTS, McpClient, Plan};

const LIST: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;

fn in_every_layout(test: impl Fn(Plan, &Backend)) {
    for layout in LAYOUTS {
        let backend = Backend::start("a", &["one"]);
        test(Plan::one(&backend).layout(layout), &backend);
    }
}

#[test]
fn s3_an_unknown_session_is_404_with_a_json_rpc_error() {
    in_every_layout(|plan, backend| {
        let gateway = plan.start();
        for id in [
            "nope",
            "",
            "1",
            &"A".repeat(52),
            &"1".repeat(52),
            &"x".repeat(4000),
        ] {
            let ask = Ask::post("/servers/main/mcp", LIST).header("mcp-session-id", id);
            let response = gateway.connect().ask(&ask);
            assert_eq!(response.status, 404, "{id:?}");
            assert_eq!(response.header("content-type"), Some("application/json"));
            assert_eq!(response.error_code(), -32001, "{id:?}");
            for method in ["DELETE", "GET"] {
                let ask = Ask::new(method, "/servers/main/mcp")
                    .header("accept", "text/event-stream")
                    .header("mcp-session-id", id);
                assert_eq!(gateway.connect().ask(&ask).status, 404, "{method} {id:?}");
            }
        }
        assert_eq!(backend.seen().len(), 0);
    });
}

#[test]
fn s3_a_missing_session_is_400() {
    in_every_layout(|plan, _| {
        let gateway = plan.start();
        let response = gateway.connect().ask(&Ask::post("/servers/main/mcp", LIST));
        assert_eq!((response.status, response.error_code()), (400, -32000));
        for method in ["DELETE", "GET"] {
            let ask = Ask::new(method, "/servers/main/mcp").header("accept", "text/event-stream");
            let response = gateway.connect().ask(&ask);
            assert_eq!(
                (response.status, response.error_code()),
                (400, -32000),
                "{method}"
            );
        }
    });
}

#[test]
fn s3_initialize_ignores_a_session_id_it_is_given() {
    in_every_layout(|plan, _| {
        let gateway = plan.start();
        let live = McpClient::open(&gateway).session;
        for id in ["nope", &live] {
            let ask = McpClient::initialize("/servers/main/mcp").header("mcp-session-id", id);
            let response = gateway.connect().ask(&ask);
            assert_eq!(response.status, 200);
            let fresh = response.header("mcp-session-id").unwrap();
            assert_ne!(fresh, id);
            assert!(fresh.bytes().all(|byte| (0x21..=0x7e).contains(&byte)));
        }
    });
}

#[test]
fn s3_an_id_with_one_character_changed_is_404() {
    in_every_layout(|plan, _| {
        let gateway = plan.start();
        let mut client = McpClient::open(&gateway);
        let mut connection = gateway.connect();
        for at in 0..client.session.len() {
            let mut forged = client.session.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            let ask = client.request(LIST).with("mcp-session-id", &forged);
            let response = connection.ask(&ask);
            assert_eq!(
                (response.status, response.error_code()),
                (404, -32001),
                "at {at}"
            );
            let delete = client.bare("DELETE").with("mcp-session-id", &forged);
            assert_eq!(connection.ask(&delete).status, 404, "at {at}");
        }
        assert_eq!(
            client.tool_names(),
            ["one"],
            "the session itself is untouched"
        );
    });
}

#[test]
fn s3_a_deleted_session_is_404_for_everything() {
    in_every_layout(|plan, backend| {
        let gateway = plan.start();
        let mut client = McpClient::open(&gateway);
        let mut other = client.again();
        assert_eq!(other.tool_names(), ["one"]);
        let response = client.delete();
        assert_eq!((response.status, response.body.len()), (200, 0));
        for client in [&mut client, &mut other] {
            let response = client.post(LIST);
            assert_eq!((response.status, response.error_code()), (404, -32001));
            assert_eq!(client.delete().status, 404);
            let get = client.bare("GET");
            assert_eq!(client.connection.ask(&get).status, 404);
            let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
            assert_eq!(client.post(notification).status, 404);
        }
        crate::support::eventually("the backend's session is ended", || {
            (backend.session_count() == 0).then_some(())
        });
    });
}

#[test]
fn s3_a_session_is_its_owners_and_its_virtual_hosts_alone() {
    for layout in LAYOUTS {
        let backend = Backend::start("a", &["one"]);
        let hosts = serde_json::json!({"backends": {"a": {"name": "a", "url": backend.url()}}});
        let config = serde_json::json!({"virtual_hosts": {"main": hosts, "second": hosts}});
        let document = serde_json::json!({"users": {"*": config}});
        let gateway = Plan::document(document)
            .layout(layout)
            .with_tokens()
            .start();
        let (alice, mallory) = (gateway.token("alice"), gateway.token("mallory"));
        let mut client = McpClient::open_on(&gateway, "main", Some(&alice));
        let mut thief = client.again();
        thief.token = Some(mallory);
        let mut astray = client.again();
        astray.target = "/servers/second/mcp".to_owned();
        for stranger in [&mut thief, &mut astray] {
            let response = stranger.post(LIST);
            assert_eq!((response.status, response.error_code()), (404, -32001));
            let get = stranger.bare("GET");
            assert_eq!(stranger.connection.ask(&get).status, 404);
            assert_eq!(stranger.delete().status, 404);
        }
        assert_eq!(client.tool_names(), ["one"]);
    }
}
