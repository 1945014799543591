//! The TLS listener: which versions and protocols it speaks, whom it serves, what it does not wait
//! for.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use rustls::{ClientConfig, HandshakeKind};

use crate::{
    Trust,
    caller::{INITIALIZE, curl},
    certificates::{VERSIONS, client_session},
    open_session,
    support::{Ask, Backend, Gateway, McpClient, PATIENCE, Plan, eventually},
    text_of,
    tls::TlsClient,
};

fn tls_address(gateway: &Gateway) -> SocketAddr {
    gateway.inner().tls_address.unwrap()
}

/// The first bytes a client sends: its hello.
fn hello(config: &Arc<ClientConfig>) -> Vec<u8> {
    let mut bytes = Vec::new();
    client_session(config, "localhost")
        .write_tls(&mut bytes)
        .unwrap();
    bytes
}

fn connect_bare(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Everything until the other side closes, or resets.
fn read_to_end(socket: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match socket.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("not closed: {error}"),
    }
    bytes
}

#[test]
fn clients_of_both_versions_are_served_http_1_1() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let gateway = trust.listening(Plan::one(&backend)).start();
    for version in VERSIONS {
        let offers: [&[&[u8]]; 3] = [&[], &[b"http/1.1"], &[b"h2", b"http/1.1"]];
        for offered in offers {
            let mut config = trust.authority.client(&[version]);
            config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
            let mut client = open_session(&gateway, &Arc::new(config));
            assert_eq!(client.tool_names(), ["echo"]);
            assert_eq!(text_of(&client.call("1", "echo", "[1]")), "b echo [1]");
            let session = client.connection.tls();
            assert_eq!(session.protocol_version(), Some(version.version));
            let chosen = (!offered.is_empty()).then_some(b"http/1.1".as_slice());
            assert_eq!(session.alpn_protocol(), chosen);
            assert_eq!(client.delete().status, 200);
        }
    }
}

#[test]
fn a_client_that_speaks_h2_only_is_told_that_nobody_here_does() {
    let trust = Trust::new();
    let gateway = trust.listening(Plan::of(&[])).start();
    for version in VERSIONS {
        let mut config = trust.authority.client(&[version]);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let mut client = TlsClient::new(&Arc::new(config), tls_address(&gateway));
        let error = client.write_all(b"x").unwrap_err();
        // RFC 7301 section 3.2.
        let told = "received fatal alert: NoApplicationProtocol";
        assert_eq!(error.to_string(), told);
    }
}

#[test]
fn curl_is_served_too() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let gateway = trust.listening(Plan::one(&backend)).start();
    let roots = trust.folder.write("roots.pem", &trust.authority.pem());
    let url = format!(
        "https://localhost:{}/servers/main/mcp",
        tls_address(&gateway).port()
    );
    let accept = "Accept: application/json, text/event-stream";
    for version in ["1.2", "1.3"] {
        let answer = curl(&[
            "--cacert",
            &roots,
            "--resolve",
            &format!("localhost:{}:127.0.0.1", tls_address(&gateway).port()),
            "--tls-max",
            version,
            "--header",
            "Content-Type: application/json",
            "--header",
            accept,
            "--data",
            INITIALIZE,
            &url,
        ]);
        assert_eq!(answer.status, 200);
        assert!(answer.header("mcp-session-id").is_some());
        assert!(answer.json()["result"].is_object());
    }
}

#[test]
fn a_client_that_comes_back_resumes_on_any_shard() {
    for version in VERSIONS {
        let trust = Trust::new();
        let backend = Backend::start("b", &["echo"]);
        let gateway = trust.listening(Plan::one(&backend)).shards(4).start();
        let config = Arc::new(trust.authority.client(&[version]));
        let kinds: Vec<_> = (0..12)
            .map(|_| {
                let mut client = open_session(&gateway, &config);
                client.connection.tls().handshake_kind().unwrap()
            })
            .collect();
        assert_eq!(kinds[0], HandshakeKind::Full);
        assert!(
            kinds[1..]
                .iter()
                .all(|kind| *kind == HandshakeKind::Resumed),
            "{kinds:?}"
        );
    }
}

#[test]
fn what_is_no_tls_is_told_so_and_closed() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let gateway = trust.listening(Plan::one(&backend)).start();
    for bytes in [
        McpClient::initialize("/servers/main/mcp").bytes(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 64],
        vec![0xff; 64],
    ] {
        let mut socket = connect_bare(tls_address(&gateway));
        // It may be closed before all of it is taken.
        let _ = socket.write_all(&bytes);
        let answer = read_to_end(&mut socket);
        // 21: an alert (RFC 8446 section 6); a reset may have thrown it away.
        assert!(answer.is_empty() || answer[0] == 21, "{answer:?}");
    }
    assert_eq!(backend.seen().len(), 0);
    let mut client = open_session(&gateway, &trust.client());
    assert_eq!(text_of(&client.call("1", "echo", "[1]")), "b echo [1]");
}

#[test]
fn a_handshake_that_stops_is_closed_and_holds_nobody_up() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let plan = Plan::one(&backend).settings(|settings| {
        settings.timeouts.head = Duration::from_millis(200);
        settings.timeouts.idle = Duration::from_secs(3_600);
    });
    let gateway = trust.listening(plan).start();
    let config = trust.client();
    let hello = hello(&config);
    let mut stopped: Vec<TcpStream> = [0, 1, 5, 100, hello.len()]
        .iter()
        .map(|count| {
            let mut socket = connect_bare(tls_address(&gateway));
            socket.write_all(&hello[..*count]).unwrap();
            socket
        })
        .collect();
    let mut client = open_session(&gateway, &config);
    assert_eq!(text_of(&client.call("1", "echo", "[1]")), "b echo [1]");
    for socket in &mut stopped {
        read_to_end(socket);
    }
    assert_eq!(text_of(&client.call("2", "echo", "[2]")), "b echo [2]");
    eventually("only one is left", || {
        (gateway.metric("shardgate_connections") == 1).then_some(())
    });
}

#[test]
fn handshakes_count_toward_the_limit_of_connections() {
    let trust = Trust::new();
    let plan = Plan::of(&[]).shards(1);
    let plan = plan.settings(|settings| settings.limits.connections_max = 3);
    let gateway = trust.listening(plan).start();
    let waiting: Vec<TcpStream> = (0..3)
        .map(|_| connect_bare(tls_address(&gateway)))
        .collect();
    eventually("all are counted", || {
        (gateway.metric("shardgate_connections") == 3).then_some(())
    });
    let mut one_more = connect_bare(tls_address(&gateway));
    assert_eq!(read_to_end(&mut one_more), b"");
    drop(waiting);
    eventually("all are gone", || {
        (gateway.metric("shardgate_connections") == 0).then_some(())
    });
    let mut client = open_session(&gateway, &trust.client());
    assert_eq!(client.list().status, 200);
}

#[test]
fn a_drain_waits_neither_for_handshakes_nor_for_idle_connections() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let plan = Plan::one(&backend).settings(|settings| {
        settings.timeouts.head = Duration::from_secs(3_600);
        settings.timeouts.drain = Duration::from_secs(25);
    });
    let gateway = trust.listening(plan).start();
    let config = trust.client();
    let mut half = connect_bare(tls_address(&gateway));
    half.write_all(&hello(&config)[..50]).unwrap();
    let idle = open_session(&gateway, &config);
    eventually("all are accepted", || {
        (gateway.metric("shardgate_connections") == 2).then_some(())
    });
    let started = Instant::now();
    assert!(gateway.stop(), "nothing was cut off");
    assert!(started.elapsed() < Duration::from_secs(20));
    read_to_end(&mut half);
    drop(idle);
}

#[test]
fn a_plain_and_a_tls_connection_serve_the_same_session() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let gateway = trust.listening(Plan::one(&backend)).start();
    let mut over_tls = open_session(&gateway, &trust.client());
    let mut plain = over_tls.again_over(gateway.connect());
    for number in 0..5 {
        let arguments = format!("[{number}]");
        for client in [&mut over_tls, &mut plain] {
            let response = client.call("1", "echo", &arguments);
            assert_eq!(text_of(&response), format!("b echo {arguments}"));
        }
    }
    assert_eq!(backend.session_count(), 1);
    assert_eq!(plain.delete().status, 200);
    assert_eq!(over_tls.list().status, 404);
}

#[test]
fn an_answer_that_ends_the_connection_ends_it_in_tls_too() {
    let trust = Trust::new();
    let gateway = trust.listening(Plan::of(&[])).start();
    let config = trust.client();
    let last = Ask::new("POST", "/servers/main/mcp").header("connection", "close");
    let mut refused = last.clone().without("connection").bytes();
    refused.truncate(refused.len() - 2);
    refused.extend_from_slice(b"content-length: no number\r\n\r\n");
    for bytes in [last.bytes(), refused] {
        let mut connection = TlsClient::connect(&config, tls_address(&gateway));
        connection.send(bytes);
        assert!(connection.read_response().status >= 400);
        // An end that TLS has not said would be a panic (RFC 8446 section 6.1).
        assert!(connection.is_closed());
    }
}
