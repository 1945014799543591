//! S5: every way a backend may write an event stream, and where its writes are cut.

use std::sync::Arc;

use crate::{
    sse_script::{Framed, ID, response, say, with_id},
    support::{Backend, EventStream, Gate, LAYOUTS, Layout, McpClient, Plan},
    text_of,
};

/// A gateway before a backend that answers call number n of the stream list with `streams[n]`,
/// framed and cut as the arguments say.
fn served(streams: Vec<Vec<u8>>) -> (Backend, crate::support::Gateway) {
    let backend = Backend::scripted("a", &["say"], move |asked, wire| {
        asked.tool()?;
        let json = asked.json();
        let number = |name: &str| json["params"]["arguments"][name].as_u64();
        let framed = [Framed::Close, Framed::Length, Framed::Chunked];
        let framed = framed[usize::try_from(number("framed")?).unwrap()];
        let stream = &streams[usize::try_from(number("stream")?).unwrap()];
        let piece_bytes = usize::try_from(number("piece_bytes")?).unwrap();
        say(wire, asked, stream, framed, piece_bytes);
        Some(())
    });
    let gateway = Plan::one(&backend).start();
    (backend, gateway)
}

fn call(
    client: &mut McpClient,
    stream: usize,
    framed: usize,
    piece: usize,
) -> crate::support::Response {
    let arguments = format!(r#"{{"stream":{stream},"framed":{framed},"piece_bytes":{piece}}}"#);
    client.call("77", "say", &arguments)
}

/// Streams that all hold the one message with the text `é`.
fn dialects() -> Vec<(&'static str, Vec<u8>)> {
    let e = response("\u{e9}");
    let split_data = e.replacen(",\"id\"", ",\r\ndata: \"id\"", 1);
    let decoy = response("decoy");
    let mut all: Vec<(&str, String)> = vec![
        (
            "the card's own: BOM, comment, CRLF, two data lines",
            format!("\u{feff}: hi\r\n\r\nevent:message\r\nid:9\r\ndata:{split_data}\r\n\r\n"),
        ),
        ("LF", format!("data: {e}\n\n")),
        ("lone CR", format!("event: message\rid: 1\rdata: {e}\r\r")),
        (
            "mixed line ends",
            format!("event: message\r\nid: 1\rdata: {e}\n\r\n"),
        ),
        (
            "no space after the colon",
            format!("event:message\ndata:{e}\n\n"),
        ),
        (
            "data before id",
            format!("data: {e}\nid: 4\nretry: 3000\n\n"),
        ),
        (
            "a retry line",
            format!("retry: 3000\n\nretry: x\ndata: {e}\n\n"),
        ),
        (
            "priming: id, empty data, retry",
            format!("id: 0\nretry: 10\ndata: \n\ndata: {e}\n\n"),
        ),
        ("empty data without colon", format!("data\n\ndata: {e}\n\n")),
        (
            "unknown fields",
            format!("foo: bar\nfoo\n: c\nDATA: {decoy}\ndata: {e}\n\n"),
        ),
        (
            "an event of another name",
            format!("event: ping\ndata: {decoy}\n\ndata: {e}\n\n"),
        ),
        (
            "a ping without data",
            format!("event: ping\n\ndata: {e}\n\n"),
        ),
        (
            "not JSON first",
            format!("data: hello\n\ndata: {{}}\n\ndata: {e}\n\n"),
        ),
        (
            "somebody else's response first",
            format!("data: {}\n\ndata: {e}\n\n", decoy.replace(ID, "\"nobody\"")),
        ),
        (
            "the response twice",
            format!("data: {e}\n\ndata: {decoy}\n\n"),
        ),
        (
            "a comment of keep-alive",
            format!(":\n\n: ping\n\ndata: {e}\n\n:\n\n"),
        ),
        ("an id with a NUL", format!("id: a\0b\ndata: {e}\n\n")),
    ];
    let spread = e.replace(",\"", ",\ndata: \"");
    all.push((
        "each member on a line of its own",
        format!("data: {spread}\n\n"),
    ));
    all.into_iter()
        .map(|(name, text)| (name, text.into_bytes()))
        .collect()
}

#[test]
fn s5_every_dialect_is_one_message() {
    let dialects = dialects();
    let streams = dialects.iter().map(|(_, bytes)| bytes.clone()).collect();
    let (_backend, gateway) = served(streams);
    let mut client = McpClient::open(&gateway);
    for (index, (name, _)) in dialects.iter().enumerate() {
        for framed in 0..3 {
            for piece_bytes in [usize::MAX >> 1, 7, 1] {
                let response = call(&mut client, index, framed, piece_bytes);
                let context = format!("{name}, framing {framed}, pieces of {piece_bytes}");
                assert_eq!(response.status, 200, "{context}");
                assert_eq!(response.messages().len(), 1, "{context}");
                assert_eq!(text_of(&response), "\u{e9}", "{context}");
                assert_eq!(response.message()["id"], 77, "{context}");
            }
        }
    }
}

#[test]
fn s5_the_cases_own_bytes_with_its_own_cuts() {
    let backend = Backend::scripted("a", &["say"], |asked, wire| {
        asked.tool()?;
        wire.stream_head();
        wire.send(b"\xef\xbb\xbf: hi\r\n\r\nevent:message\r\nid:9\r");
        let text = format!(
            "\ndata:{{\"jsonrpc\":\"2.0\",\r\ndata: \"id\":{},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"",
            asked.id()
        );
        wire.send([text.as_bytes(), b"\xc3"].concat());
        wire.send(b"\xa9\"}]}}\r\n\r\n");
        Some(())
    });
    let gateway = Plan::one(&backend).start();
    let mut client = McpClient::open(&gateway);
    let response = client.call("1", "say", "{}");
    assert_eq!(text_of(&response), "\u{e9}");
    assert_eq!(response.messages().len(), 1);
}

#[test]
fn s5_a_stream_without_the_response_is_an_error_not_silence() {
    let e = response("late");
    let streams: Vec<String> = vec![
        String::new(),
        format!("data: {e}\n"),
        format!("data: {e}\r\n"),
        format!("data: {e}"),
        ": hi\n\nevent: ping\ndata: {}\n\n".to_owned(),
        format!("event: ping\ndata: {e}\n\n"),
        format!("data: {}\n\n", e.replace(ID, "null")),
        "data: {\"jsonrpc\":\"2.0\",\n\n".to_owned(),
    ];
    let (backend, gateway) = served(
        streams
            .iter()
            .map(|text| text.clone().into_bytes())
            .collect(),
    );
    let mut client = McpClient::open(&gateway);
    let mut call_count = 0;
    for index in 0..streams.len() {
        for framed in 0..3 {
            for piece_bytes in [usize::MAX >> 1, 1] {
                let response = call(&mut client, index, framed, piece_bytes);
                assert_eq!(response.status, 200, "stream {index}, framing {framed}");
                assert_eq!(
                    response.error_code(),
                    -32603,
                    "stream {index}, framing {framed}"
                );
                assert_eq!(response.message()["id"], 77);
                call_count += 1;
            }
        }
    }
    assert_eq!(
        backend.seen_rpc("tools/call").len(),
        call_count,
        "nothing is repeated"
    );
}

#[test]
fn s5_a_chunked_stream_cut_short_is_an_error() {
    let backend = Backend::scripted("a", &["say"], |asked, wire| {
        asked.tool()?;
        wire.send(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n\
             40\r\n: half a chunk",
        );
        wire.close();
        Some(())
    });
    let gateway = Plan::one(&backend).start();
    let mut client = McpClient::open(&gateway);
    let response = client.call("1", "say", "{}");
    assert_eq!((response.status, response.error_code()), (200, -32603));
}

#[test]
fn s5_a_line_of_one_mebibyte_passes_and_one_over_the_limit_does_not() {
    const LIMIT: usize = 2 << 20;
    let (fits, over) = ("x".repeat(1 << 20), "x".repeat(LIMIT + 1));
    let streams = [&fits, &over].map(|text| format!("data: {}\n\n", response(text)).into_bytes());
    let backend = Backend::scripted("a", &["say"], move |asked, wire| {
        let which = usize::from(asked.json()["params"]["arguments"]["over"].as_bool()?);
        say(wire, asked, &streams[which], Framed::Chunked, 10_007);
        Some(())
    });
    let gateway = Plan::one(&backend)
        .settings(|settings| settings.limits.sse_event_bytes_max = LIMIT)
        .start();
    let mut client = McpClient::open(&gateway);
    assert!(text_of(&client.call("1", "say", r#"{"over":false}"#)) == fits);
    let response = client.call("2", "say", r#"{"over":true}"#);
    assert_eq!((response.status, response.error_code()), (200, -32603));
    assert!(text_of(&client.call("3", "say", r#"{"over":false}"#)) == fits);
}

/// What comes before the response is not held back until it comes.
#[test]
fn s5_notifications_are_relayed_as_they_come_and_in_order() {
    let gate = Arc::new(Gate::default());
    let backend = Backend::scripted("a", &["say"], {
        let gate = gate.clone();
        move |asked, wire| {
            asked.tool()?;
            wire.stream_head();
            for step in 0..3 {
                // The gateway may have its own token toward a backend.
                let message = asked.json();
                let token = message["params"]["_meta"]["progressToken"].to_string();
                wire.send(format!(
                    "event: message\r\nid: {step}\r\ndata: {}\r\n\r\n",
                    progress(step, &token)
                ));
            }
            gate.wait();
            let response = with_id(response("done").as_bytes(), &asked.id());
            wire.send([b"data: ", &response[..], b"\r\r"].concat());
            Some(())
        }
    });
    for layout in LAYOUTS {
        let gateway = Plan::one(&backend).layout(layout).start();
        let client = McpClient::open(&gateway);
        let mut connection = gateway.connect();
        let body = r#"{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{"_meta":{"progressToken":"t"},"name":"say","arguments":{}}}"#;
        connection.send(client.request(body).bytes());
        let head = connection.read_head();
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        assert_eq!(head.header("cache-control"), Some("no-cache"));
        let mut stream = EventStream::new(connection, head);
        for step in 0..3 {
            assert_eq!(stream.next_event().unwrap().data, progress(step, r#""t""#));
        }
        assert_eq!(
            gate.is_open(),
            layout != Layout::One,
            "the first round waits for the gate"
        );
        gate.open();
        let last: serde_json::Value =
            serde_json::from_str(&stream.next_event().unwrap().data).unwrap();
        assert_eq!(
            (&last["id"], &last["result"]["content"][0]["text"]),
            (&"q".into(), &"done".into())
        );
        assert_eq!(stream.next_block(), None);
    }
}

fn progress(step: usize, token: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{step}}}}}"#
    )
}

/// A response that ends in a lone CR is complete: waiting for an LF would wait for ever.
#[test]
fn s5_the_last_event_is_not_held_until_the_stream_ends() {
    for line_end in ["\n", "\r\n", "\r"] {
        let gate = Arc::new(Gate::default());
        let backend = Backend::scripted("a", &["say"], {
            let gate = gate.clone();
            move |asked, wire| {
                asked.tool()?;
                wire.stream_head();
                let response = with_id(response("now").as_bytes(), &asked.id());
                wire.send(
                    [
                        b"data: ",
                        &response[..],
                        line_end.as_bytes(),
                        line_end.as_bytes(),
                    ]
                    .concat(),
                );
                gate.wait();
                Some(())
            }
        });
        let gateway = Plan::one(&backend).layout(Layout::Spread).start();
        let mut client = McpClient::open(&gateway);
        assert_eq!(
            text_of(&client.call("1", "say", "{}")),
            "now",
            "{line_end:?}"
        );
        assert!(!gate.is_open());
        gate.open();
    }
}

#[test]
fn s5_initialize_and_lists_may_be_streams_too() {
    let backend = Backend::scripted("a", &["one"], |asked, wire| {
        let result = if asked.is("initialize") {
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#
        } else if asked.is("tools/list") {
            r#"{"tools":[{"name":"one","inputSchema":{"type":"object"}}]}"#
        } else {
            return asked
                .is("notifications/initialized")
                .then(|| wire.answer(202, "", ""));
        };
        let stream = format!(
            "id: 0\r\ndata: \r\nretry: 3000\r\n\r\nevent: message\r\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{ID},\"result\":{result}}}\r\n\r\n"
        );
        say(wire, asked, stream.as_bytes(), Framed::Chunked, 11);
        Some(())
    });
    let gateway = Plan::one(&backend).start();
    let mut client = McpClient::open(&gateway);
    assert_eq!(client.tool_names(), ["one"]);
}

/// Who names event streams first gets one, also where the gateway itself answers.
#[test]
fn s5_a_client_that_prefers_event_streams_gets_them() {
    let backend = Backend::start("a", &["say"]);
    let gateway = Plan::one(&backend).start();
    let mut client = McpClient::open(&gateway);
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    for (accept, form) in [
        ("application/json, text/event-stream", "application/json"),
        ("text/event-stream, application/json", "text/event-stream"),
    ] {
        let ask = client.request(list).with("accept", accept);
        let response = client.connection.ask(&ask);
        assert_eq!(response.header("content-type"), Some(form));
        assert_eq!(response.message()["id"], 7);
        assert!(response.result()["tools"].is_array());
        assert_eq!(response.messages().len(), 1);
    }
}
