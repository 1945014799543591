//! What clients may do with their records: cut them anywhere, change keys between them, stop in the
//! middle of one, or not take any.

use std::{
    io::{ErrorKind, Read, Write},
    sync::Arc,
    time::Duration,
};

use crate::{
    Trust,
    certificates::VERSIONS,
    open_session,
    support::{
        Backend, Connection, Gateway, HOST, McpClient, Plan, Transport, call_body, eventually,
    },
    text_of,
    tls::TlsClient,
};

fn echo_gateway(trust: &Trust, backend: &Backend) -> Gateway {
    trust.listening(Plan::one(backend)).start()
}

#[test]
fn much_goes_both_ways_in_records_of_any_size() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let gateway = echo_gateway(&trust, &backend);
    for version in VERSIONS {
        for fragment in [None, Some(600)] {
            let mut config = trust.authority.client(&[version]);
            config.max_fragment_size = fragment;
            let mut client = open_session(&gateway, &Arc::new(config));
            for size in [1, 3_900, 4_096, 16_384 - 400, 16_384, 70_000, 1 << 20] {
                let arguments = format!(r#"{{"data":"{}"}}"#, "x".repeat(size));
                let text = text_of(&client.call("1", "echo", &arguments));
                assert!(text == format!("b echo {arguments}"), "{size} {fragment:?}");
            }
        }
    }
}

/// TLS whose ciphertext goes out byte by byte.
struct Dribbling(TlsClient);

impl Read for Dribbling {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Dribbling {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let tls = &mut self.0.0;
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        let count = tls.conn.writer().write(bytes)?;
        let mut records = Vec::new();
        while tls.conn.wants_write() {
            tls.conn.write_tls(&mut records)?;
        }
        for byte in records {
            tls.sock.write_all(&[byte])?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Transport for Dribbling {
    fn socket(&self) -> &std::net::TcpStream {
        self.0.socket()
    }
}

#[test]
fn requests_arrive_whole_however_they_are_cut() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let gateway = echo_gateway(&trust, &backend);
    let address = gateway.inner().tls_address.unwrap();
    for version in VERSIONS {
        let mut config = trust.authority.client(&[version]);
        // The smallest records rustls makes, each cut into single bytes.
        config.max_fragment_size = Some(32);
        let client = TlsClient::new(&Arc::new(config), address);
        let connection = Connection::over(Dribbling(client));
        let mut client = McpClient::open_over(connection, address, HOST, None);
        assert_eq!(text_of(&client.call("1", "echo", "[1]")), "b echo [1]");
        // Two requests, the cut inside the second.
        let mut bytes = Vec::new();
        for id in ["2", "3"] {
            bytes.extend(client.request(call_body(id, "echo", "[]")).bytes());
        }
        let late = bytes.split_off(bytes.len() - 20);
        client.connection.send(bytes);
        assert_eq!(client.connection.read_response().message()["id"], 2);
        client.connection.send(late);
        assert_eq!(client.connection.read_response().message()["id"], 3);
    }
}

#[test]
fn new_keys_are_taken_at_any_time() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let gateway = echo_gateway(&trust, &backend);
    let config = Arc::new(trust.authority.client(&[&rustls::version::TLS13]));
    let mut client = open_session(&gateway, &config);
    for number in 0..10 {
        let arguments = format!("[{number}]");
        let bytes = client.request(call_body("1", "echo", &arguments)).bytes();
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        client.connection.tls().refresh_traffic_keys().unwrap();
        client.connection.send(first);
        client.connection.tls().refresh_traffic_keys().unwrap();
        client.connection.send(rest);
        let response = client.connection.read_response();
        assert_eq!(text_of(&response), format!("b echo {arguments}"));
    }
}

#[test]
fn new_keys_do_not_end_an_open_stream_and_the_clients_end_does() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let plan = Plan::one(&backend).settings(|settings| {
        settings.timeouts.heartbeat_interval = Duration::from_millis(50);
    });
    let gateway = trust.listening(plan).start();
    let config = Arc::new(trust.authority.client(&[&rustls::version::TLS13]));
    let client = open_session(&gateway, &config);
    for is_said in [true, false] {
        let address = gateway.inner().tls_address.unwrap();
        let mut connection = TlsClient::connect(&config, address);
        connection.send(client.bare("GET").bytes());
        assert_eq!(connection.read_head().status, 200);
        for _ in 0..3 {
            connection.tls().refresh_traffic_keys().unwrap();
            // A stream's connection has nothing else to say.
            connection.flush();
            for _ in 0..2 {
                assert_eq!(connection.read_chunk().unwrap().first(), Some(&b':'));
            }
        }
        if is_said {
            connection.tls().send_close_notify();
            connection.flush();
        }
        let kept = is_said.then_some(connection);
        eventually("it is over", || {
            (gateway.metric("shardgate_connections") == 1).then_some(())
        });
        drop(kept);
    }
}

#[test]
fn half_a_record_is_no_request_and_its_client_is_told_so_in_time() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let plan = Plan::one(&backend).settings(|settings| {
        settings.timeouts.head = Duration::from_millis(200);
        settings.timeouts.body = Duration::from_millis(200);
        settings.timeouts.idle = Duration::from_secs(3_600);
    });
    let gateway = trust.listening(plan).start();
    let address = gateway.inner().tls_address.unwrap();
    for version in VERSIONS {
        let config = Arc::new(trust.authority.client(&[version]));
        let client = open_session(&gateway, &config);
        let ask = client
            .request(call_body("1", "echo", "[]"))
            .header("expect", "100-continue");
        let bytes = ask.bytes();
        let (head, body) = bytes.split_at(bytes.len() - ask.body.unwrap().len());
        // Cut inside the head; and inside the body, when the gateway surely waits for it.
        for (whole, part) in [head.split_at(30), (head, body)] {
            let mut slow = TlsClient::new(&config, address);
            slow.write_all(whole).unwrap();
            if part == body {
                let mut interim = [0; 25];
                slow.read_exact(&mut interim).unwrap();
                assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
            }
            slow.0.conn.writer().write_all(part).unwrap();
            let mut record = Vec::new();
            while slow.0.conn.wants_write() {
                slow.0.conn.write_tls(&mut record).unwrap();
            }
            slow.0.sock.write_all(&record[..record.len() / 2]).unwrap();
            let answer = Connection::over(slow).read_response();
            assert_eq!(answer.status, 408, "{version:?}");
        }
    }
    assert_eq!(backend.seen_rpc("tools/call").len(), 0);
}

#[test]
fn a_client_that_does_not_read_loses_its_connection_and_nobody_else_does() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let plan = Plan::one(&backend).shards(1).settings(|settings| {
        settings.timeouts.write = Duration::from_millis(200);
    });
    let gateway = trust.listening(plan).start();
    let config = trust.client();
    let mut other = open_session(&gateway, &config);
    let mut client = open_session(&gateway, &config);
    let arguments = format!(r#"["{}"]"#, "x".repeat(1 << 20));
    let address = gateway.inner().tls_address.unwrap();
    let mut slow = TlsClient::new(&config, address);
    let bytes = client.request(call_body("1", "echo", &arguments)).bytes();
    // More replies than the kernel's buffers hold. When the gateway takes no more requests the
    // writing waits here, until the connection is cut.
    let count = 64;
    let mut sent = 0;
    while sent < count && slow.write_all(&bytes).is_ok() {
        sent += 1;
    }
    eventually("a deadline has passed", || {
        (gateway.metric("shardgate_deadlines_passed_total") > 0).then_some(())
    });
    assert_eq!(text_of(&other.call("1", "echo", "[1]")), "b echo [1]");
    let mut read = 0;
    let mut piece = vec![0; 1 << 16];
    loop {
        match slow.read(&mut piece) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) => {
                let kinds = [
                    ErrorKind::UnexpectedEof,
                    ErrorKind::ConnectionReset,
                    ErrorKind::BrokenPipe,
                ];
                assert!(kinds.contains(&error.kind()), "{error}");
                break;
            }
        }
    }
    assert!(read < count << 20, "it was cut");
    assert_eq!(text_of(&client.call("1", "echo", "[1]")), "b echo [1]");
}

#[test]
fn a_record_that_was_tampered_with_ends_the_connection() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let gateway = echo_gateway(&trust, &backend);
    for version in VERSIONS {
        let config = Arc::new(trust.authority.client(&[version]));
        let client = open_session(&gateway, &config);
        let mut bad = TlsClient::new(&config, gateway.inner().tls_address.unwrap());
        let tls = &mut bad.0;
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock).unwrap();
        }
        let bytes = client.request(call_body("1", "echo", "[]")).bytes();
        tls.conn.writer().write_all(&bytes).unwrap();
        let mut record = Vec::new();
        tls.conn.write_tls(&mut record).unwrap();
        *record.last_mut().unwrap() ^= 1;
        tls.sock.write_all(&record).unwrap();
        let error = bad.read(&mut [0; 100]).unwrap_err();
        assert_eq!(error.to_string(), "received fatal alert: BadRecordMac");
    }
    assert_eq!(backend.seen_rpc("tools/call").len(), 0);
}
