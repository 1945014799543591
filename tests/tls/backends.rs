//! Backends over https: trusted, asked by their name, kept, streamed from, in both directions.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::{
    NAMES, Trust,
    certificates::VERSIONS,
    support::{Asked, Backend, EventStream, Gate, McpClient, Plan, Wire, call_body},
    text_of,
    tls::Terminator,
};

#[test]
fn a_backend_of_a_trusted_authority_is_served_over_one_kept_connection() {
    for version in VERSIONS {
        let trust = Trust::new();
        let backend = Backend::start("b", &["echo"]);
        let terminator = Terminator::start(trust.identity.server(&[version]), &backend.url());
        let plan = Plan::of(&[("a", &terminator.url())]).shards(1);
        let gateway = trust.toward_backends(plan).start();
        let mut client = McpClient::open(&gateway);
        assert_eq!(client.tool_names(), ["echo"]);
        for number in 0..20 {
            let response = client.call(&number.to_string(), "echo", "{}");
            assert_eq!(text_of(&response), "b echo {}");
        }
        let seen = terminator.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert_eq!(seen[0].server_name.as_deref(), Some("localhost"));
        assert_eq!(seen[0].version, Some(version.version));
        assert_eq!(seen[0].client_chain_length, 0, "no certificate to show");
        let host = format!("localhost:{}", terminator.port());
        for asked in backend.seen() {
            assert_eq!(asked.header("host"), Some(&*host));
        }
    }
}

#[test]
fn an_address_is_a_name_too_but_none_that_is_asked_for() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let terminator = Terminator::start(trust.identity.server(&VERSIONS), &backend.url());
    let url = format!("https://127.0.0.1:{}/mcp", terminator.port());
    let gateway = trust.toward_backends(Plan::of(&[("a", &url)])).start();
    let mut client = McpClient::open(&gateway);
    assert_eq!(text_of(&client.call("1", "echo", "{}")), "b echo {}");
    for seen in terminator.seen() {
        // RFC 6066 section 3: literal addresses are not permitted.
        assert_eq!((seen.server_name, seen.fault), (None, None));
    }
    let host = format!("127.0.0.1:{}", terminator.port());
    assert_eq!(backend.seen()[0].header("host"), Some(&*host));
}

#[test]
fn a_session_is_resumed_by_the_next_connection() {
    for version in VERSIONS {
        let trust = Trust::new();
        let backend = Backend::start("b", &["echo"]);
        let terminator = Terminator::start(trust.identity.server(&[version]), &backend.url());
        let plan = Plan::of(&[("a", &terminator.url())]).shards(1);
        let gateway = trust.toward_backends(plan).start();
        let mut client = McpClient::open(&gateway);
        backend.cut_connections();
        assert_eq!(client.tool_names(), ["echo"]);
        let resumed: Vec<bool> = terminator.seen().iter().map(|s| s.is_resumed).collect();
        assert_eq!(resumed, [false, true], "{version:?}");
    }
}

#[test]
fn much_goes_both_ways_in_records_of_any_size() {
    for version in VERSIONS {
        for fragment in [None, Some(700)] {
            let trust = Trust::new();
            let backend = Backend::start("b", &["echo"]);
            let mut config = trust.identity.server(&[version]);
            config.max_fragment_size = fragment;
            let terminator = Terminator::start(config, &backend.url());
            let plan = Plan::of(&[("a", &terminator.url())]).shards(1);
            let gateway = trust.toward_backends(plan).start();
            let mut client = McpClient::open(&gateway);
            // Sizes around those of records, and far above.
            for size in [1, 3_900, 4_096, 16_384 - 300, 16_384, 70_000, 1 << 20] {
                let arguments = format!(r#"{{"data":"{}"}}"#, "x".repeat(size));
                let text = text_of(&client.call("1", "echo", &arguments));
                assert!(text == format!("b echo {arguments}"), "{size} {fragment:?}");
            }
            assert_eq!(terminator.seen().len(), 1, "kept through all of it");
        }
    }
}

const NOTE: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;

/// Answers a call with a note at once, and with its response when the gate is open.
fn slow_stream(gate: Arc<Gate>) -> impl Fn(&Asked, &mut Wire<'_>) -> Option<()> + Send + Sync {
    move |asked, wire| {
        asked.tool()?;
        wire.stream_head();
        wire.send(format!("data: {NOTE}\n\n"));
        gate.wait();
        wire.send(response_event(asked));
        Some(())
    }
}

fn response_event(asked: &Asked) -> String {
    let id = asked.id();
    format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[]}}}}\n\n")
}

#[test]
fn an_event_is_passed_on_while_the_stream_is_open() {
    for version in VERSIONS {
        let trust = Trust::new();
        let gate = Arc::new(Gate::default());
        let backend = Backend::scripted("b", &["slow"], slow_stream(gate.clone()));
        let terminator = Terminator::start(trust.identity.server(&[version]), &backend.url());
        let plan = Plan::of(&[("a", &terminator.url())]);
        let gateway = trust.toward_backends(plan).start();
        let mut client = McpClient::open(&gateway);
        client.send_call("9", "slow", "{}");
        let head = client.connection.read_head();
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        let chunk = client.connection.read_chunk().unwrap();
        assert!(String::from_utf8(chunk).unwrap().contains(NOTE));
        gate.open();
        let chunk = client.connection.read_chunk().unwrap();
        assert!(String::from_utf8(chunk).unwrap().contains(r#""id":9"#));
        assert_eq!(client.connection.read_chunk(), None);
    }
}

#[test]
fn what_tls_says_to_itself_is_no_event_and_stops_no_heartbeat() {
    let trust = Trust::new();
    let [heard, said, gate] = std::array::from_fn(|_| Arc::new(Gate::default()));
    let backend = Backend::scripted("b", &["slow"], {
        let (heard, gate) = (heard.clone(), gate.clone());
        move |asked, wire| {
            asked.tool()?;
            wire.stream_head();
            wire.send(format!("data: {NOTE}\n\n"));
            heard.wait();
            wire.send(": a comment\n\n");
            gate.wait();
            wire.send(response_event(asked));
            Some(())
        }
    });
    let config = trust.identity.server(&[&rustls::version::TLS13]);
    // The comment comes as new keys and a part of a record, whose rest comes with the response.
    let held = Mutex::new(Vec::new());
    let terminator = Terminator::passing(config, &backend.url(), {
        let said = said.clone();
        move |bytes, outlet| {
            let mut held = held.lock().unwrap();
            outlet.send_raw(&std::mem::take(&mut *held));
            if bytes.starts_with(b": a comment") {
                outlet.update_keys();
                let mut record = outlet.seal(bytes);
                *held = record.split_off(9);
                outlet.send_raw(&record);
                said.open();
            } else {
                outlet.send(bytes);
            }
            true
        }
    });
    let plan = Plan::of(&[("a", &terminator.url())]).settings(|settings| {
        settings.timeouts.heartbeat_interval = Duration::from_millis(50);
    });
    let gateway = trust.toward_backends(plan).start();
    let mut client = McpClient::open(&gateway);
    client.send_call("9", "slow", "{}");
    let head = client.connection.read_head();
    let mut stream = EventStream::new(client.connection, head);
    assert_eq!(stream.next_event().unwrap().data, NOTE);
    heard.open();
    said.wait();
    // More than can have gone out before.
    for _ in 0..12 {
        assert_eq!(stream.next_block().unwrap(), ": ");
    }
    gate.open();
    assert!(stream.next_event().unwrap().data.contains(r#""id":9"#));
    assert_eq!(stream.next_event(), None);
}

#[test]
fn new_keys_between_replies_do_not_cost_the_connection() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let config = trust.identity.server(&[&rustls::version::TLS13]);
    let terminator = Terminator::passing(config, &backend.url(), |bytes, outlet| {
        outlet.update_keys();
        outlet.send(bytes);
        outlet.update_keys();
        true
    });
    let plan = Plan::of(&[("a", &terminator.url())]).shards(1);
    let gateway = trust.toward_backends(plan).start();
    let mut client = McpClient::open(&gateway);
    for number in 0..10 {
        let response = client.call(&number.to_string(), "echo", "{}");
        assert_eq!(text_of(&response), "b echo {}");
    }
    let seen = terminator.seen();
    assert_eq!((seen.len(), &seen[0].fault), (1, &None));
}

#[test]
fn pipelined_calls_share_a_tls_connection_one_after_the_other() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let terminator = Terminator::start(trust.identity.server(&VERSIONS), &backend.url());
    let plan = Plan::of(&[("a", &terminator.url())]).shards(1);
    let gateway = trust.toward_backends(plan).start();
    let mut client = McpClient::open(&gateway);
    let mut bytes = Vec::new();
    for id in 0..8 {
        let body = call_body(&id.to_string(), "echo", &format!("[{id}]"));
        bytes.extend_from_slice(&client.request(body).bytes());
    }
    client.connection.send(bytes);
    for id in 0..8 {
        let response = client.connection.read_response();
        assert_eq!(response.message()["id"], id);
        assert_eq!(text_of(&response), format!("b echo [{id}]"));
    }
    assert_eq!(terminator.seen().len(), 1);
    assert!(NAMES.contains(&terminator.seen()[0].server_name.as_deref().unwrap()));
}
