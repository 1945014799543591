//! How long finding the envelope of a message takes, by its size: requests, replies, and the head
//! they come with.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use shardgate::{
    http::head::{HeadLimits, parse_request},
    mcp::{envelope, reply_scan},
};

/// Bytes of JSON: a short call, a longer one, a document.
const SIZES: [usize; 3] = [220, 2 * 1024, 64 * 1024];
/// Depth the gateway allows by default.
const DEPTH_MAX: u16 = 128;

/// Fills the gap between `start` and `end` with an object of short members, up to `size`.
fn padded(start: &str, end: &str, size: usize) -> Vec<u8> {
    let mut text = format!("{start}{{\"text\":\"hello\"");
    let mut number = 0;
    while text.len() + end.len() + 40 < size {
        text.push_str(&format!(",\"member{number:05}\":[{number},\"value\"]"));
        number += 1;
    }
    text.push('}');
    text.push_str(end);
    text.into_bytes()
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scanner");
    for size in SIZES {
        let request = padded(
            concat!(
                r#"{"jsonrpc":"2.0","id":1000000,"method":"tools/call","#,
                r#""params":{"name":"echo","arguments":"#
            ),
            "}}",
            size,
        );
        let found = envelope::scan(&request, DEPTH_MAX).unwrap();
        assert!(found.id.is_some());
        group.throughput(Throughput::Bytes(request.len() as u64));
        group.bench_with_input(
            BenchmarkId::new("request", size),
            &request,
            |bencher, body| {
                bencher.iter(|| envelope::scan(black_box(body), DEPTH_MAX));
            },
        );
        let reply = padded(
            concat!(
                r#"{"jsonrpc":"2.0","id":1000000,"result":{"content":[{"type":"text","#,
                r#""text":"hello"}],"isError":false,"structuredContent":"#
            ),
            "}}",
            size,
        );
        reply_scan::scan_reply(&reply).unwrap();
        group.throughput(Throughput::Bytes(reply.len() as u64));
        group.bench_with_input(BenchmarkId::new("reply", size), &reply, |bencher, body| {
            bencher.iter(|| reply_scan::scan_reply(black_box(body)));
        });
    }
    let head = format!(
        "POST /servers/main/mcp HTTP/1.1\r\nhost: gateway.example.com\r\nuser-agent: client/1.0\r\n\
         accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
         authorization: Bearer {}\r\nmcp-session-id: {}\r\nmcp-protocol-version: 2025-11-25\r\n\
         content-length: 220\r\n\r\n",
        "t".repeat(400),
        "s".repeat(52)
    );
    let limits = HeadLimits::default();
    parse_request(head.as_bytes(), &limits).unwrap();
    group.throughput(Throughput::Bytes(head.len() as u64));
    group.bench_function("head", |bencher| {
        bencher.iter(|| parse_request(black_box(head.as_bytes()), &limits));
    });
    group.finish();
}
