//! What clients may send as a JSON-RPC body, and that relayed bytes stay the same bytes.
//!
//! The tables here hold one case for each input the promises name; `generated.rs` compares the
//! scanners with a slow reader over generated documents and broken ones.

#[path = "fuzz/src/slow_reader.rs"]
#[allow(unreachable_pub, reason = "shared with a crate of its own")]
mod slow_reader;

#[path = "envelope/documents.rs"]
mod documents;
#[path = "envelope/generated.rs"]
mod generated;

use shardgate::http::head::Span;
use shardgate::mcp::envelope::{Envelope, EnvelopeFault, Kind, readable_id, scan};
use shardgate::mcp::json::{self, DEPTH_MAX};
use shardgate::mcp::reply_scan::{ReplyKind, scan_reply};

const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_TASK: &str = "io.modelcontextprotocol/related-task";

/// A request whose members after `jsonrpc` are given.
fn message(members: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0",{members}}}"#)
}

/// A `tools/call` with the members of its `params` given.
fn call(params: &str) -> String {
    message(&format!(
        r#""id":1,"method":"tools/call","params":{{{params}}}"#
    ))
}

/// A request with this lexeme as its id.
fn with_id(id: &str) -> String {
    message(&format!(r#""id":{id},"method":"ping""#))
}

fn fault(body: impl AsRef<[u8]>) -> Option<EnvelopeFault> {
    scan(body.as_ref(), DEPTH_MAX).err()
}

#[track_caller]
fn assert_fault(body: impl AsRef<[u8]>, expected: EnvelopeFault) {
    let shown = String::from_utf8_lossy(body.as_ref()).into_owned();
    assert_eq!(fault(body), Some(expected), "{shown:.200}");
}

#[track_caller]
fn accepted(body: &str) -> Envelope {
    scan(body.as_bytes(), DEPTH_MAX).unwrap_or_else(|fault| panic!("{fault:?}: {body:.200}"))
}

#[test]
fn every_key_the_gateway_reads_may_stand_once() {
    for (key, value) in [
        ("jsonrpc", r#""2.0""#),
        ("id", "1"),
        ("method", r#""ping""#),
        ("params", "{}"),
        ("result", "{}"),
        ("error", "{}"),
    ] {
        let twice = format!(r#"{{"{key}":{value},"x":0,"{key}":{value}}}"#);
        assert_fault(twice, EnvelopeFault::DuplicateKey);
    }
    let keys = [
        "name",
        "uri",
        "cursor",
        "arguments",
        "requestId",
        "protocolVersion",
        "capabilities",
        "clientInfo",
        "taskId",
        "ref",
    ];
    for key in keys {
        assert_fault(
            call(&format!(r#""{key}":"a","{key}":"a""#)),
            EnvelopeFault::DuplicateKey,
        );
    }
    assert_fault(
        call(r#""_meta":{},"_meta":{}"#),
        EnvelopeFault::DuplicateKey,
    );
    for key in ["type", "name", "uri"] {
        let twice = call(&format!(r#""ref":{{"{key}":"a","{key}":"a"}}"#));
        assert_fault(twice, EnvelopeFault::DuplicateKey);
    }
    for key in ["progressToken", META_VERSION, META_TASK] {
        let twice = call(&format!(r#""_meta":{{"{key}":"a","{key}":"b"}}"#));
        assert_fault(twice, EnvelopeFault::DuplicateKey);
    }
}

#[test]
fn keys_that_are_equal_after_folding_are_refused() {
    for key in [
        "Method",
        "METHOD",
        "Id",
        "ID",
        "PARAMS",
        "param\u{17f}",
        "j\u{17f}onrpc",
        "Error",
    ] {
        let body = message(&format!(r#""id":1,"method":"ping","{key}":{{}}"#));
        assert_fault(body, EnvelopeFault::FoldedKey);
    }
    for key in [
        "Name",
        "NAME",
        "URI",
        "Uri",
        "_Meta",
        "_META",
        "Arguments",
        "argument\u{17f}",
        "Ref",
        "taskid",
        "ta\u{17f}kId",
    ] {
        assert_fault(
            call(&format!(r#""name":"a","{key}":{{}}"#)),
            EnvelopeFault::FoldedKey,
        );
    }
    for key in ["Type", "NAME", "Uri"] {
        assert_fault(
            call(&format!(r#""ref":{{"{key}":"a"}}"#)),
            EnvelopeFault::FoldedKey,
        );
    }
    // The Kelvin sign and dotless i fold into no key the gateway reads.
    accepted(&message(
        "\"id\":1,\"method\":\"ping\",\"\u{212a}\":1,\"\u{131}d\":1",
    ));
    assert_fault(
        message(r#""\u0049d":1,"method":"ping""#),
        EnvelopeFault::FoldedKey,
    );
}

#[test]
fn references_and_task_ids_are_found() {
    let body = call(&format!(
        r#""ref":{{"type":"ref/prompt","name":"p","x":[]}},"taskId":"t","_meta":{{"{META_TASK}":{{}}}}"#
    ));
    let envelope = accepted(&body);
    let text = |at: Option<Span>| at.map(|at| &body[at.start as usize..at.end as usize]);
    assert_eq!(
        text(envelope.reference),
        Some(r#"{"type":"ref/prompt","name":"p","x":[]}"#)
    );
    assert_eq!(text(envelope.reference_type), Some(r#""ref/prompt""#));
    assert_eq!(text(envelope.reference_name), Some(r#""p""#));
    assert_eq!(envelope.reference_uri, None);
    assert_eq!(text(envelope.task_id), Some(r#""t""#));
    assert_eq!(text(envelope.related_task), Some("{}"));
    // No object: for the backend to refuse.
    let body = call(r#""ref":["name"]"#);
    assert!(accepted(&body).reference.is_some());
    assert_fault(call(r#""taskId":"\ud800""#), EnvelopeFault::LoneSurrogate);
}

#[test]
fn escaped_keys_are_the_keys_they_decode_to() {
    let body = message(r#""id":1,"meth\u006fd":"ping""#);
    let method = accepted(&body).method.expect("decodes to method");
    assert_eq!(method.slice(body.as_bytes()), b"ping");
    assert_fault(
        message(r#""id":1,"method":"ping","meth\u006fd":"tools/call""#),
        EnvelopeFault::DuplicateKey,
    );
    assert_fault(
        call(r#""name":"a","n\u0061me":"b""#),
        EnvelopeFault::DuplicateKey,
    );
    assert_fault(
        call(&format!(
            r#""_meta":{{"{META_VERSION}":"a","io.modelcontextprotocol\/protocolVersion":"b"}}"#
        )),
        EnvelopeFault::DuplicateKey,
    );
}

#[test]
fn only_one_json_document_in_utf_8_is_read() {
    let ping = message(r#""id":1,"method":"ping""#);
    assert_fault(format!("\u{feff}{ping}"), EnvelopeFault::NotJson);
    assert_fault(format!("{ping}{ping}"), EnvelopeFault::NotJson);
    assert_fault(format!("{ping}\n{ping}"), EnvelopeFault::NotJson);
    assert_fault(format!("{ping}x"), EnvelopeFault::NotJson);
    assert_fault(format!("{ping}\0"), EnvelopeFault::NotJson);
    assert_fault(&ping[..ping.len() - 1], EnvelopeFault::NotJson);
    assert_fault("", EnvelopeFault::NotJson);
    assert_fault(
        b"{\"jsonrpc\":\"2.0\",\"method\":\"a\xff\"}",
        EnvelopeFault::NotJson,
    );
    assert_fault(
        b"{\"jsonrpc\":\"2.0\",\"method\":\"a\xed\xa0\x80\"}",
        EnvelopeFault::NotJson,
    );
    assert_fault(
        "{\"jsonrpc\":\"2.0\",\"method\":\"a\nb\"}",
        EnvelopeFault::NotJson,
    );
    assert_fault(format!("[{ping}]"), EnvelopeFault::Batch);
    assert_fault("[]", EnvelopeFault::Batch);
    assert_fault("[1,]", EnvelopeFault::NotJson);
    assert_fault("null", EnvelopeFault::NotAnObject);
    assert_fault("\"a\" ", EnvelopeFault::NotAnObject);
    accepted(&format!(" \r\n\t{ping} \r\n\t"));
}

#[test]
fn nesting_stops_at_the_bound() {
    // The message, `params` and `arguments` are three levels.
    let nested = |levels: usize| {
        call(&format!(
            r#""arguments":{{"a":{}{}}}"#,
            "[".repeat(levels - 3),
            "]".repeat(levels - 3)
        ))
    };
    accepted(&nested(128));
    assert_fault(nested(129), EnvelopeFault::TooDeep);
    assert_eq!(scan(nested(8).as_bytes(), 8).err(), None);
    assert_eq!(
        scan(nested(9).as_bytes(), 8).err(),
        Some(EnvelopeFault::TooDeep)
    );
    assert_fault(nested(100_000), EnvelopeFault::TooDeep);
    let unknown = message(&format!(
        r#""method":"a","x":{}"#,
        "{\"a\":".repeat(100_000)
    ));
    assert_fault(unknown, EnvelopeFault::TooDeep);
}

#[test]
fn ids_are_strings_or_integers_and_kept_as_spelt() {
    let long = format!("\"{}\"", "x".repeat(1 << 20));
    for id in [
        "0",
        "-1",
        "1",
        "9007199254740991",
        "9007199254740993",
        "18446744073709551616",
        "\"\"",
        "\"1\"",
        "\"a\\u00e9\\/\"",
        "\"\\ud83d\\ude00\"",
        &long,
    ] {
        let body = with_id(id);
        let envelope = accepted(&body);
        assert_eq!(envelope.kind, Kind::Request);
        assert_eq!(
            envelope.id.expect("id").slice(body.as_bytes()),
            id.as_bytes()
        );
    }
    for id in [
        "null", "1.0", "-0", "1e400", "1E2", "-0.0", "true", "false", "{}", "[1]",
    ] {
        assert_fault(with_id(id), EnvelopeFault::BadId);
    }
    assert_fault(with_id("01"), EnvelopeFault::NotJson);
    assert_fault(with_id("\"\\udc00\""), EnvelopeFault::LoneSurrogate);
}

#[test]
fn escapes_that_are_no_character_are_refused_where_they_are_read() {
    assert_fault(call(r#""name":"\ud800""#), EnvelopeFault::LoneSurrogate);
    assert_fault(
        call(r#""uri":"\udc00\ud800""#),
        EnvelopeFault::LoneSurrogate,
    );
    assert_fault(call(r#""cursor":"\ud800x""#), EnvelopeFault::LoneSurrogate);
    assert_fault(call(r#""\ud800":1"#), EnvelopeFault::LoneSurrogate);
    accepted(&call(
        r#""name":"\ud83d\ude00","arguments":{"a":"\ud800","\udc00":1}"#,
    ));
    assert_fault(call(r#""name":"\u12""#), EnvelopeFault::NotJson);
    assert_fault(call(r#""arguments":{"a":"\x"}"#), EnvelopeFault::NotJson);
}

#[test]
fn a_name_may_spell_nul_which_equals_no_configured_name() {
    let body = call(r#""name":"a\u0000b""#);
    let name = accepted(&body).name.expect("name");
    let text = json::unescape(name.slice(body.as_bytes())).expect("a string");
    assert_eq!(text, "a\0b");
    assert_fault(call("\"name\":\"a\0b\""), EnvelopeFault::NotJson);
}

#[test]
fn the_version_is_the_string_two_point_zero() {
    assert_fault(r#"{"id":1,"method":"ping"}"#, EnvelopeFault::BadVersion);
    for version in [r#""1.0""#, "2", "2.0", "null", r#""2\u002e0""#, r#""2.0 ""#] {
        let body = format!(r#"{{"jsonrpc":{version},"id":1,"method":"ping"}}"#);
        assert_fault(body, EnvelopeFault::BadVersion);
    }
}

#[test]
fn the_members_decide_the_kind() {
    let kind = |members: &str| accepted(&message(members)).kind;
    assert_eq!(kind(r#""id":0,"method":"ping""#), Kind::Request);
    assert_eq!(
        kind(r#""method":"notifications/initialized""#),
        Kind::Notification
    );
    // Its shape is a request's; that the method wants no answer is for the method table.
    assert_eq!(
        kind(r#""id":1,"method":"notifications/initialized""#),
        Kind::Request
    );
    assert_eq!(kind(r#""id":0,"result":{}"#), Kind::Response);
    assert_eq!(
        kind(r#""id":0,"error":{"code":-1,"message":"no"}"#),
        Kind::Response
    );
    assert_eq!(
        kind(r#""error":{"code":-1,"message":"no"}"#),
        Kind::Response
    );
    assert_fault(message(r#""result":{}"#), EnvelopeFault::BadId);
    assert_fault(message(r#""id":null,"error":{}"#), EnvelopeFault::BadId);
    assert_fault(message(r#""id":1"#), EnvelopeFault::NoMethod);
    assert_fault(
        message(r#""id":1,"method":"a","result":{}"#),
        EnvelopeFault::Ambiguous,
    );
    assert_fault(
        message(r#""id":1,"result":{},"error":{}"#),
        EnvelopeFault::Ambiguous,
    );
    assert_fault(message(r#""id":1,"method":5"#), EnvelopeFault::BadMethod);
    assert_fault(message(r#""id":1,"method":null"#), EnvelopeFault::BadMethod);
    assert_fault(
        message(r#""id":1,"method":"tools\/call""#),
        EnvelopeFault::EscapedMethod,
    );
}

#[test]
fn params_and_meta_are_objects() {
    for params in ["[]", "null", "1", r#""a""#] {
        let body = message(&format!(r#""id":1,"method":"a","params":{params}"#));
        assert_fault(body, EnvelopeFault::BadParams);
        assert_fault(
            call(&format!(r#""_meta":{params}"#)),
            EnvelopeFault::BadParams,
        );
    }
    assert_fault(
        message(r#""id":1,"method":"a","params":[1,"#),
        EnvelopeFault::NotJson,
    );
}

#[test]
fn the_members_are_found_wherever_they_stand() {
    let members = [
        r#""x":[{"name":"no"}], "_meta":{"progressToken": 0,"y":{} ,"#,
        r#""io.modelcontextprotocol/protocolVersion" : "2026-07-28"},"#,
        r#""arguments":{"uri":"no"},"cursor":"","requestId":"r","clientInfo":{"name":"c"},"#,
        r#""capabilities":{},"protocolVersion":"2025-11-25","uri":"u\/v","name":"n""#,
    ];
    let around = r#""method":"tools/call","extra":null,"id":"7","jsonrpc":"2.0""#;
    let body = format!("{{\"params\" : {{ {}}},{around}}}", members.join("\n"));
    let envelope = accepted(&body);
    let text = |span: Option<Span>| {
        std::str::from_utf8(span.expect("found").slice(body.as_bytes())).expect("utf-8")
    };
    assert_eq!(text(envelope.id), r#""7""#);
    assert_eq!(text(envelope.method), "tools/call");
    assert_eq!(text(envelope.name), r#""n""#);
    assert_eq!(text(envelope.uri), r#""u\/v""#);
    assert_eq!(text(envelope.cursor), r#""""#);
    assert_eq!(text(envelope.arguments), r#"{"uri":"no"}"#);
    assert_eq!(text(envelope.request_id), r#""r""#);
    assert_eq!(text(envelope.protocol_version), r#""2025-11-25""#);
    assert_eq!(text(envelope.capabilities), "{}");
    assert_eq!(text(envelope.client_info), r#"{"name":"c"}"#);
    assert_eq!(text(envelope.progress_token), "0");
    assert_eq!(text(envelope.meta_protocol_version), r#""2026-07-28""#);
    assert!(text(envelope.meta).starts_with(r#"{"progressToken""#));
    assert!(text(envelope.params).ends_with(r#""name":"n"}"#));
}

#[test]
fn a_refusal_can_echo_the_id_only_when_every_parser_finds_it() {
    let echoed = |body: &str| {
        let id = readable_id(body.as_bytes(), DEPTH_MAX)?;
        Some(String::from_utf8_lossy(id.slice(body.as_bytes())).into_owned())
    };
    assert_eq!(echoed(r#"{"id":7,"method":5}"#).as_deref(), Some("7"));
    assert_eq!(
        echoed(r#"{"jsonrpc":"1.0","id":"a","params":[]}"#).as_deref(),
        Some(r#""a""#)
    );
    for body in [
        r#"{"id":7,"id":7}"#,
        r#"{"id":7,"ID":8}"#,
        r#"{"id":null}"#,
        r#"{"id":1.0}"#,
        r#"{"id":7"#,
        r#"{"id":7}{}"#,
        r#"[{"id":7}]"#,
        r#"{"id":7,"i\u0064":8}"#,
        "{}",
    ] {
        assert_eq!(echoed(body), None, "{body}");
    }
}

#[test]
fn refusals_have_their_json_rpc_code() {
    assert_eq!(EnvelopeFault::NotJson.code(), -32700);
    assert_eq!(EnvelopeFault::BadParams.code(), -32602);
    assert_eq!(EnvelopeFault::DuplicateKey.code(), -32600);
    assert_eq!(EnvelopeFault::EscapedMethod.code(), -32600);
    assert!(EnvelopeFault::NotJson.message().starts_with("Parse error"));
}

#[test]
fn arguments_travel_lexeme_for_lexeme() {
    let arguments =
        r#"{"id64":9007199254740993,"dup":1,"dup":2,"d":0.10,"e":1e400,"Name":"\u00e9\/"}"#;
    let body = call(&format!(
        r#" "name" : "gateway-increment", "_meta":{{"progressToken":"p"}},"arguments":{arguments}"#
    ));
    let found = accepted(&body);
    let edits: [(Span, &[u8]); 3] = [
        (found.id.expect("id"), b"18446744073709551616"),
        (found.name.expect("name"), b"\"increment\""),
        (found.progress_token.expect("token"), b"3"),
    ];
    let mut out = Vec::new();
    json::splice(&mut out, body.as_bytes(), &edits);
    let expected = body
        .replacen("\"id\":1,", "\"id\":18446744073709551616,", 1)
        .replacen("\"gateway-increment\"", "\"increment\"", 1)
        .replacen("\"p\"", "3", 1);
    assert_eq!(String::from_utf8_lossy(&out), expected);
    let relayed = scan(&out, DEPTH_MAX).expect("still one message");
    assert_eq!(
        relayed.arguments.expect("arguments").slice(&out),
        arguments.as_bytes()
    );
}

#[test]
fn results_travel_lexeme_for_lexeme() {
    let result = [
        r#"{"content":[],"structuredContent":{"n":12345678901234567890,"d":0.10,"e":1e400,"#,
        r#""u":"\u00e9\/"},"_meta":{"x/y":{"z":null}},"futureField":[1]}"#,
    ]
    .concat();
    let body = format!(r#"{{"result":{result},"id":17,"jsonrpc":"2.0"}}"#);
    let found = scan_reply(body.as_bytes()).expect("a reply");
    assert_eq!(found.kind, ReplyKind::Result);
    assert_eq!(
        found.result.expect("result").slice(body.as_bytes()),
        result.as_bytes()
    );
    let mut out = Vec::new();
    json::splice(
        &mut out,
        body.as_bytes(),
        &[(found.id.expect("id"), b"\"c-1\"")],
    );
    assert_eq!(
        String::from_utf8_lossy(&out),
        body.replacen("\"id\":17", "\"id\":\"c-1\"", 1)
    );
}
