//! Replies of backends whose TLS ends, or goes on, where it should not.

use crate::{
    Trust,
    certificates::VERSIONS,
    support::{Asked, Backend, Gateway, McpClient, Plan, Response, Wire, find},
    text_of,
    tls::{Outlet, Terminator},
};

/// A gateway before one backend, `script` deciding what it says and `passing` how TLS carries it.
struct Stage {
    backend: Backend,
    terminator: Terminator,
    gateway: Gateway,
    _trust: Trust,
}

fn stage(
    version: &'static rustls::SupportedProtocolVersion,
    script: impl Fn(&Asked, &mut Wire<'_>) -> Option<()> + Send + Sync + 'static,
    passing: impl Fn(&[u8], &mut Outlet<'_>) -> bool + Send + Sync + 'static,
) -> Stage {
    let trust = Trust::new();
    let backend = Backend::scripted("b", &["echo", "odd"], script);
    let config = trust.identity.server(&[version]);
    let terminator = Terminator::passing(config, &backend.url(), passing);
    let plan = Plan::of(&[("a", &terminator.url())]).shards(1);
    let gateway = trust.toward_backends(plan).start();
    Stage {
        backend,
        terminator,
        gateway,
        _trust: trust,
    }
}

fn is_odd(asked: &Asked) -> Option<()> {
    (asked.tool()? == "odd").then_some(())
}

fn assert_cut(response: &Response, words: &str) {
    assert_eq!(response.error_code(), -32603);
    let message = response.message()["error"]["message"].to_string();
    assert!(message.contains(words), "{message}");
}

#[test]
fn an_end_inside_a_record_is_an_error_of_that_call_only() {
    // Inside the head, inside the body, in a late record of a long body.
    for (size, cut) in [(10, 8), (10, 60), (3_000, 2_000), (100_000, 70_000)] {
        for version in VERSIONS {
            let script = move |asked: &Asked, wire: &mut Wire<'_>| {
                is_odd(asked)?;
                wire.text(asked, &format!("cut here {}", "y".repeat(size)));
                Some(())
            };
            let stage = stage(version, script, move |bytes, outlet| {
                if find(bytes, b"cut here").is_none() {
                    outlet.send(bytes);
                    return true;
                }
                let records = outlet.seal(bytes);
                // The reply may have come in several reads; the first is long enough then.
                outlet.send_raw(&records[..cut.min(records.len() - 1)]);
                false
            });
            let mut client = McpClient::open(&stage.gateway);
            assert_cut(&client.call("1", "odd", "{}"), "closed the connection");
            assert_eq!(text_of(&client.call("2", "echo", "{}")), "b echo {}");
            assert_eq!(stage.terminator.seen().len(), 2, "a new connection");
        }
    }
}

#[test]
fn a_reply_that_ends_with_the_connection_needs_the_end_that_tls_says() {
    for version in VERSIONS {
        for is_said in [true, false] {
            let script = |asked: &Asked, wire: &mut Wire<'_>| {
                is_odd(asked)?;
                let id = asked.id();
                wire.send(format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n\
                     {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":\
                     [{{\"type\":\"text\",\"text\":\"to the end\"}}]}}}}"
                ));
                wire.close();
                Some(())
            };
            let stage = stage(version, script, move |bytes, outlet| {
                outlet.send(bytes);
                let is_last = find(bytes, b"to the end").is_some();
                if is_last && is_said {
                    outlet.say_end();
                }
                !is_last
            });
            let mut client = McpClient::open(&stage.gateway);
            let response = client.call("1", "odd", "{}");
            if is_said {
                assert_eq!(text_of(&response), "to the end");
            } else {
                // RFC 9112 section 9.8: it may have been cut by somebody in between.
                assert_cut(&response, "closed the connection");
            }
            assert_eq!(text_of(&client.call("2", "echo", "{}")), "b echo {}");
        }
    }
}

/// A whole reply with a text.
fn reply(id: u64, text: &str) -> String {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
    );
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Answers the odd tool with `total` bytes, and with an answer to the next call.
fn say_two(total: usize) -> impl Fn(&Asked, &mut Wire<'_>) -> Option<()> + Send + Sync {
    move |asked, wire| {
        is_odd(asked)?;
        let id: u64 = asked.id().parse().unwrap();
        let mut filler = String::new();
        while reply(id, &filler).len() < total {
            filler.push('z');
        }
        wire.send(reply(id, &filler) + &reply(id + 1, "smuggled"));
        Some(())
    }
}

/// Two calls, of which the second asks at once: a connection just kept is trusted most.
fn assert_not_smuggled(gateway: &Gateway, backend: &Backend, total: usize) {
    let mut client = McpClient::open(gateway);
    client.send_call("1", "odd", "{}");
    client.send_call("2", "echo", "{}");
    let first = client.connection.read_response();
    assert!(text_of(&first).starts_with('z'));
    let second = client.connection.read_response();
    assert_eq!(text_of(&second), "b echo {}", "{total}");
    assert_eq!(backend.connection_count(), 2, "{total}: a new connection");
}

/// Also as long as what is read at once: the rest is then left in the TLS session, or the kernel.
const TOTALS: [usize; 7] = [300, 4_096, 4_097, 8_192, 16_384, 20_000, 40_000];

#[test]
fn what_follows_a_reply_in_its_record_is_never_another_calls_reply() {
    for version in VERSIONS {
        for total in TOTALS {
            let stage = stage(version, say_two(total), |bytes, outlet| {
                outlet.send(bytes);
                true
            });
            assert_not_smuggled(&stage.gateway, &stage.backend, total);
        }
    }
}

#[test]
fn and_so_it_is_in_plain_text() {
    for total in TOTALS {
        let backend = Backend::scripted("b", &["echo", "odd"], say_two(total));
        let gateway = Plan::one(&backend).shards(1).start();
        assert_not_smuggled(&gateway, &backend, total);
    }
}

#[test]
fn a_backend_that_says_its_end_after_a_reply_is_not_asked_on_that_connection() {
    for version in VERSIONS {
        let stage = stage(
            version,
            |_, _| None,
            |bytes, outlet| {
                // The reply and the end in one write; the socket stays open.
                outlet.send_last(bytes);
                true
            },
        );
        let mut client = McpClient::open(&stage.gateway);
        for number in 0..5 {
            let response = client.call(&number.to_string(), "echo", "{}");
            assert_eq!(text_of(&response), "b echo {}");
        }
        let calls = stage.backend.seen_rpc("tools/call");
        assert_eq!(calls.len(), 5, "each sent once");
    }
}

#[test]
fn a_record_that_was_tampered_with_ends_the_call() {
    for version in VERSIONS {
        let script = |asked: &Asked, wire: &mut Wire<'_>| {
            is_odd(asked)?;
            wire.text(asked, "flip a bit");
            Some(())
        };
        let stage = stage(version, script, |bytes, outlet| {
            let mut records = outlet.seal(bytes);
            if find(bytes, b"flip a bit").is_some() {
                *records.last_mut().unwrap() ^= 1;
            }
            outlet.send_raw(&records);
            true
        });
        let mut client = McpClient::open(&stage.gateway);
        assert_cut(&client.call("1", "odd", "{}"), "closed the connection");
        assert_eq!(text_of(&client.call("2", "echo", "{}")), "b echo {}");
        let seen = stage.terminator.seen();
        assert_eq!(seen.len(), 2);
        // RFC 8446 section 5.2.
        let fault = seen[0].fault.as_deref();
        assert_eq!(fault, Some("received fatal alert: BadRecordMac"));
    }
}
