//! `shardgate connect` and `shardgate serve` as the processes operators run.

use std::net::SocketAddr;

use serde_json::json;

use crate::{
    process::{Folder, Process},
    stage::{Client, authorized, sign},
    support::{Ask, Connection},
};

/// Two ports that nobody has now.
pub(crate) fn free_ports() -> [String; 2] {
    let listeners = [(), ()].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port().to_string())
}

pub(crate) fn variables(ports: &[String; 2]) -> [(&str, &str); 6] {
    [
        ("CONNECTION_GATEWAY_HOST", "127.0.0.1"),
        ("CONNECTION_GATEWAY_PORT", &ports[0]),
        ("CONNECTION_GATEWAY_WS_PORT", &ports[1]),
        ("CONNECTION_GATEWAY_WS_PATH", "/connection-gateway/v1"),
        ("JWT_SECRET", "secret"),
        ("AUTH_TOKEN", " token "),
    ]
}

/// Binds, asks for the status, and ends.
fn works(ports: &[String; 2]) {
    let [http, websocket] = ports
        .each_ref()
        .map(|port| SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap())));
    let mut client = Client::open(websocket);
    let session = client.bind(&sign(&crate::stage::claims_of("tmb_1")), &json!({}));
    let target = format!("/internal/sessions/{}/status", session.id());
    let response = Connection::open(http).ask(&authorized("GET", &target));
    assert_eq!(response.json()["data"]["ownerAlive"], true);
    assert_eq!(
        Connection::open(http)
            .ask(&Ask::new("GET", "/health"))
            .status,
        200
    );
}

#[test]
fn connect_serves_the_connection_gateway_alone() {
    let home = Folder::new();
    let ports = free_ports();
    let arguments = [
        "connect",
        "--admin-address",
        "127.0.0.1:0",
        "--shards",
        "2",
        "--no-pin",
    ];
    let mut process = Process::start_with(&home, &variables(&ports), &arguments);
    let line = process.printed("connection gateway on ws://");
    assert!(
        line.contains(&format!(
            "ws://127.0.0.1:{}/connection-gateway/v1",
            ports[1]
        )),
        "{line}"
    );
    assert!(
        line.contains(&format!("internal API on http://127.0.0.1:{}", ports[0])),
        "{line}"
    );
    works(&ports);
    assert!(
        !process.stdout().contains("listening on"),
        "{}",
        process.stdout()
    );
    assert!(
        Connection::open(process.admin_address())
            .ask(&Ask::new("GET", "/readyz"))
            .status
            == 200
    );
    process.signal("TERM");
    assert_eq!(process.exit_code(), 0);
}

#[test]
fn serve_has_it_beside_mcp_when_a_port_of_it_is_named() {
    let home = Folder::new();
    let ports = free_ports();
    let document = home.write("users.json", r#"{"users":{}}"#);
    let more = ["--allow-anonymous", "--config-file", &document];
    let mut process = Process::serve_with(&home, &variables(&ports), &more);
    process.printed("connection gateway on ws://");
    works(&ports);
    assert_eq!(
        Connection::open(process.address())
            .ask(&Ask::new("GET", "/nothing"))
            .status,
        404
    );
    process.signal("TERM");
    assert_eq!(process.exit_code(), 0);
}
