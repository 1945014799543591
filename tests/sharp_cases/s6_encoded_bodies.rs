//! S6: backends that code their bodies although we asked for `identity`.

use std::io::Write;

use flate2::{
    Compression,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};

use crate::{
    support::{Asked, Backend, LAYOUTS, Layout, McpClient, Plan},
    text_of,
};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn raw_deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// One stored meta-block (RFC 7932 section 9.2); at most 65,536 bytes.
fn brotli(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len() - 1).unwrap();
    let [low, high] = (length >> 1).to_le_bytes();
    let mut out = vec![0x0b | (length & 1).to_le_bytes()[0] << 7, low, high | 0x80];
    out.extend_from_slice(bytes);
    out.push(0x03);
    out
}

/// The JSON-RPC answer to any request of the usual backend, for coding.
fn document(asked: &Asked) -> Option<String> {
    let result = match asked.rpc_method()?.as_str() {
        "initialize" => {
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#
        }
        "tools/list" => r#"{"tools":[{"name":"one","inputSchema":{"type":"object"}}]}"#,
        "tools/call" => r#"{"content":[{"type":"text","text":"decoded \u00e9"}]}"#,
        _ => return None,
    };
    let id = asked.id();
    Some(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
    ))
}

#[test]
fn s6_coded_bodies_are_decoded() {
    type Encode = fn(&[u8]) -> Vec<u8>;
    let codings: [(&str, Encode); 8] = [
        ("gzip", gzip),
        ("GZIP", gzip),
        ("x-gzip", gzip),
        ("deflate", zlib),
        ("deflate", raw_deflate),
        ("br", brotli),
        ("identity", |bytes| bytes.to_vec()),
        ("gzip", |bytes| {
            let (a, b) = bytes.split_at(bytes.len() / 2);
            [gzip(a), gzip(b)].concat()
        }),
    ];
    for (coding, encode) in codings {
        for is_chunked in [false, true] {
            let backend = Backend::scripted("a", &["one"], move |asked, wire| {
                assert_eq!(asked.header("accept-encoding"), Some("identity"));
                if asked.is("notifications/initialized") {
                    wire.answer(202, "", "");
                    return Some(());
                }
                let body = encode(document(asked)?.as_bytes());
                let headers =
                    format!("content-type: application/json\r\ncontent-encoding: {coding}\r\n");
                if is_chunked {
                    wire.send(format!(
                        "HTTP/1.1 200 OK\r\n{headers}transfer-encoding: chunked\r\n\r\n"
                    ));
                    for piece in body.chunks(5) {
                        wire.send(
                            [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat(),
                        );
                    }
                    wire.send("0\r\n\r\n");
                } else {
                    wire.answer(200, &headers, body);
                }
                Some(())
            });
            let gateway = Plan::one(&backend).start();
            let mut client = McpClient::open(&gateway);
            let response = client.call("1", "one", "{}");
            assert_eq!(
                text_of(&response),
                "decoded \u{e9}",
                "{coding} {is_chunked}"
            );
            assert_eq!(response.header("content-encoding"), None);
            assert_eq!(response.header("transfer-encoding"), None);
            assert_eq!(client.tool_names(), ["one"], "{coding} {is_chunked}");
        }
    }
}

#[test]
fn s6_what_cannot_be_decoded_is_an_error_and_counted() {
    let good = |asked: &Asked| document(asked).unwrap().into_bytes();
    type Make = Box<dyn Fn(&Asked) -> Vec<u8> + Send + Sync>;
    let cases: Vec<(&str, &str, Make)> = vec![
        ("zstd", "application/json", Box::new(good)),
        ("compress", "application/json", Box::new(good)),
        (
            "gzip, br",
            "application/json",
            Box::new(move |asked| gzip(&good(asked))),
        ),
        ("gzip", "application/json", Box::new(good)),
        ("br", "application/json", Box::new(good)),
        ("deflate", "application/json", Box::new(good)),
        (
            "gzip",
            "application/json",
            Box::new(move |asked| {
                let mut body = gzip(&good(asked));
                body.truncate(body.len() - 9);
                body
            }),
        ),
        (
            "gzip",
            "text/event-stream",
            Box::new(move |asked| {
                gzip(format!("data: {}\n\n", document(asked).unwrap()).as_bytes())
            }),
        ),
    ];
    for (number, (coding, content_type, make)) in (1..).zip(cases) {
        let backend = Backend::scripted("a", &["one"], move |asked, wire| {
            asked.tool()?;
            let headers = format!("content-type: {content_type}\r\ncontent-encoding: {coding}\r\n");
            wire.answer(200, &headers, make(asked));
            Some(())
        });
        let gateway = Plan::one(&backend).layout(LAYOUTS[number % 3]).start();
        let mut client = McpClient::open(&gateway);
        let response = client.call("9", "one", "{}");
        assert_eq!(
            (response.status, response.error_code()),
            (200, -32603),
            "case {number}"
        );
        assert_eq!(response.message()["id"], 9);
        assert_eq!(response.header("content-encoding"), None);
        assert_eq!(
            gateway.metric("shardgate_calls_failed_total"),
            1,
            "case {number}"
        );
    }
}

/// Many gzip members in a row: 1 MiB on the wire, 1 GiB decoded.
#[test]
fn s6_a_bomb_is_stopped_at_the_limit() {
    const LIMIT: usize = 2 << 20;
    let member = gzip(&vec![b' '; 1 << 20]);
    let bomb = member.repeat(1024);
    assert!(bomb.len() < 2 << 20, "{}", bomb.len());
    let fits = LIMIT - 200;
    let backend = Backend::scripted("a", &["one", "bomb", "fits"], move |asked, wire| {
        let body = match asked.tool()?.as_str() {
            "bomb" => bomb.clone(),
            "fits" => gzip(format!("{}{}", " ".repeat(fits), document(asked)?).as_bytes()),
            _ => return None,
        };
        wire.answer(
            200,
            "content-type: application/json\r\ncontent-encoding: gzip\r\n",
            body,
        );
        Some(())
    });
    let gateway = Plan::one(&backend)
        .layout(Layout::Spread)
        .settings(|settings| settings.limits.response_bytes_max = LIMIT)
        .start();
    let mut client = McpClient::open(&gateway);
    let response = client.call("1", "bomb", "{}");
    assert_eq!((response.status, response.error_code()), (200, -32603));
    assert!(
        response.text().contains("over the configured limit"),
        "{}",
        response.text()
    );
    assert_eq!(text_of(&client.call("2", "fits", "{}")), "decoded \u{e9}");
    assert_eq!(text_of(&client.call("3", "one", "{}")), "a one {}");
}
