//! The JSON that was authorised is the JSON that is forwarded (reliability contract, section 8,
//! promise 3), through sockets: generated calls and mutations of them, each judged by the slow
//! reader. A call that is taken arrives once and differs in its id, and in its name when the
//! backend has another; what is refused never arrives.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "support/mutate.rs"]
mod mutate;
#[path = "fuzz/src/slow_reader.rs"]
#[allow(unreachable_pub, reason = "shared with a crate of its own")]
mod slow_reader;
#[path = "support/support.rs"]
mod support;

use mutate::Mutator;
use shardgate::{
    http::{LAST_CHUNK, encode_chunk},
    mcp::{
        envelope::{Envelope, Kind},
        json::DEPTH_MAX,
    },
};
use slow_reader::reference;
use support::{Asked, Backend, McpClient, Plan};

/// Bodies that are made, and how many mutants each has.
const BODY_COUNT: usize = 300;
const MUTANTS_PER_BODY: usize = 6;

/// What must be at a backend: the body as it was sent, and the tool's own name.
struct Expected {
    body: Vec<u8>,
    envelope: Envelope,
    original: String,
    is_renamed: bool,
}

/// Keys and names as they can be spelt, the first half of them plainly.
const NAMES: [&str; 8] = [
    "echo",
    "one",
    "a b",
    "",
    "\\u0065cho",
    "x\\/y",
    "\u{1f980}",
    "a-a-echo",
];
const ARGUMENTS: [&str; 8] = [
    "{}",
    r#"{"n":12345678901234567890,"d":0.10,"e":1e400,"z":-0.0}"#,
    r#"{ "id" : 1 ,"jsonrpc":"x","name":"other","params":{"name":"deep"}}"#,
    r#"{"dup":1,"dup":2,"DUP":3}"#,
    "{\"s\":\"\u{e9}\\u00e9\\/\\\"}]\\ud83e\\udd80\\u0000\"}",
    "[[[[[[[{}]]]]]],\t\"x\"]",
    "null",
    r#"{"t":"a long text, longer than the blocks that a scanner may take at a time, to be sure"}"#,
];
const EXTRAS: [&str; 6] = [
    r#""_meta":{"progressToken":"p-1"}"#,
    r#""_meta":{"x/y":[1e-400],"progressToken":7}"#,
    "\"\u{1f980}\":{\"name\":\"n\"}",
    r#""f":[ 1 , 2 ]"#,
    r#""task":{"ttl":60000}"#,
    r#""nam\u00e9":0"#,
];
const SPACES: [&str; 5] = ["", "", " ", "\r\n\t", "  "];
const IDS: [&str; 6] = [
    "1",
    "-7",
    "18446744073709551616",
    r#""""#,
    r#""\u00e9\/""#,
    r#""tools/call""#,
];

/// A call whose members stand in a chosen order with chosen white space.
fn body(choices: &mut Mutator, prefixes: &[&str]) -> Vec<u8> {
    let name = format!("{}{}", choices.pick(prefixes), choices.pick(&NAMES));
    let mut params = vec![
        format!(r#""name"{}:"{name}""#, choices.pick(&SPACES)),
        format!(
            r#""arguments":{}{}"#,
            choices.pick(&SPACES),
            choices.pick(&ARGUMENTS)
        ),
    ];
    if choices.below(2) == 0 {
        params.push((*choices.pick(&EXTRAS)).to_owned());
    }
    let params = joined(choices, params);
    let mut members = vec![
        r#""jsonrpc":"2.0""#.to_owned(),
        format!(r#""id":{}{}"#, choices.pick(&SPACES), choices.pick(&IDS)),
        r#""method":"tools/call""#.to_owned(),
        format!(r#""params":{params}"#),
    ];
    if choices.below(4) == 0 {
        members.push(r#""q":0.10"#.to_owned());
    }
    let object = joined(choices, members);
    format!("{}{object}{}", choices.pick(&SPACES), choices.pick(&SPACES)).into_bytes()
}

fn joined(choices: &mut Mutator, mut members: Vec<String>) -> String {
    for last in (1..members.len()).rev() {
        members.swap(last, choices.below(last + 1));
    }
    let space = *choices.pick(&SPACES);
    format!(
        "{{{space}{}{space}}}",
        members.join(&format!("{space},{space}"))
    )
}

/// Which backend a body has to arrive at, if any, by the slow reader and the naming contract.
fn judge(body: &[u8], is_single: bool) -> Option<(usize, Expected)> {
    let envelope = reference(body, DEPTH_MAX).ok()?;
    let is_call = envelope.kind == Kind::Request
        && envelope.method?.slice(body) == b"tools/call"
        && envelope.meta_protocol_version.is_none();
    let name: String = serde_json::from_slice(envelope.name?.slice(body)).ok()?;
    let (backend, original) = match (is_single, name.split_once('-')) {
        (true, _) => (0, name.clone()),
        (false, Some(("a", original))) => (0, original.to_owned()),
        (false, Some(("b", original))) => (1, original.to_owned()),
        _ => return None,
    };
    let expected = Expected {
        body: body.to_vec(),
        is_renamed: !is_single,
        envelope,
        original,
    };
    is_call.then_some((backend, expected))
}

/// What stands around the values that may be exchanged: id, name, progress token.
fn parts<'a>(body: &'a [u8], envelope: &Envelope) -> Vec<&'a [u8]> {
    let mut spans = vec![envelope.id.unwrap(), envelope.name.unwrap()];
    spans.extend(envelope.progress_token);
    spans.sort_by_key(|span| span.start);
    let mut kept = Vec::new();
    let mut from = 0;
    for span in spans {
        kept.push(&body[from..span.start as usize]);
        from = span.end as usize;
    }
    kept.push(&body[from..]);
    kept
}

fn compare(asked: &Asked, expected: &Expected) {
    let sent = String::from_utf8_lossy(&expected.body);
    let arrived = reference(&asked.body, DEPTH_MAX).expect("a message");
    let before = parts(&expected.body, &expected.envelope);
    let after = parts(&asked.body, &arrived);
    assert_eq!(after, before, "{sent}");
    // A progress token is ours toward the backend: the request's id there.
    if let Some(token) = arrived.progress_token {
        let id = arrived.id.unwrap();
        assert_eq!(token.slice(&asked.body), id.slice(&asked.body), "{sent}");
    }
    let name = arrived.name.unwrap().slice(&asked.body);
    let decoded: String = serde_json::from_slice(name).unwrap();
    assert_eq!(decoded, expected.original, "{sent}");
    if !expected.is_renamed && arrived.progress_token.is_none() {
        let params = |envelope: &Envelope| envelope.params.unwrap();
        let authorised = params(&expected.envelope).slice(&expected.body);
        assert_eq!(params(&arrived).slice(&asked.body), authorised, "{sent}");
    }
}

/// Sends bodies to a gateway with these backends, and compares what came with what had to.
fn relay(backends: &[Backend], keys: &[&str], prefixes: &[&str], seed: u64) {
    let factor: usize =
        std::env::var("SHARDGATE_TEST_LONG").map_or(1, |factor| factor.parse().expect("a factor"));
    let urls: Vec<String> = backends.iter().map(Backend::url).collect();
    let pairs: Vec<(&str, &str)> = keys
        .iter()
        .zip(&urls)
        .map(|(key, url)| (*key, url.as_str()))
        .collect();
    let gateway = Plan::of(&pairs).start();
    let mut client = McpClient::open(&gateway);
    let mut choices = Mutator::new(seed);
    let bodies: Vec<Vec<u8>> = (0..BODY_COUNT / 2)
        .map(|_| body(&mut choices, prefixes))
        .collect();
    let mutant_count = bodies.len() * MUTANTS_PER_BODY * factor;
    let mut expected: Vec<Vec<Expected>> = backends.iter().map(|_| Vec::new()).collect();
    let mut refused = 0;
    for number in 0..bodies.len() + mutant_count {
        let body = match bodies.get(number) {
            Some(body) => body.clone(),
            None if choices.below(2) == 0 => choices.mutant(&bodies),
            None => choices.near_mutant(&bodies),
        };
        let mut ask = client.request(&body);
        if choices.below(4) == 0 {
            let mut chunks = Vec::new();
            for piece in body.chunks(1 + choices.below(200)) {
                encode_chunk(&mut chunks, piece);
            }
            chunks.extend_from_slice(LAST_CHUNK);
            ask = ask.header("transfer-encoding", "chunked");
            ask.body = Some(chunks);
        }
        let response = client.connection.ask(&ask);
        let shown = String::from_utf8_lossy(&body).into_owned();
        match judge(&body, keys.len() == 1) {
            Some((backend, one)) => {
                assert_eq!(response.status, 200, "{shown}");
                let id = one.envelope.id.unwrap().slice(&body).to_vec();
                let told = [b"\"id\":", &id[..], b","].concat();
                let message = response.raw_message();
                assert!(
                    memchr::memmem::find(message.as_bytes(), &told).is_some(),
                    "{shown}"
                );
                expected[backend].push(one);
            }
            None => {
                assert!(number >= bodies.len(), "refused: {shown}");
                refused += 1;
            }
        }
        if response.header("connection") == Some("close") {
            client = client.again();
        }
    }
    drop(client);
    assert!(gateway.stop());
    for (backend, expected) in backends.iter().zip(&expected) {
        let seen = backend.seen_rpc("tools/call");
        assert_eq!(seen.len(), expected.len());
        for (asked, expected) in seen.iter().zip(expected) {
            compare(asked, expected);
        }
    }
    let arrived: usize = expected.iter().map(Vec::len).sum();
    println!("{keys:?}: {arrived} bodies arrived as they were, {refused} refused never did");
    assert!(
        arrived > bodies.len() && refused > bodies.len(),
        "{arrived}, {refused}"
    );
}

#[test]
fn what_one_backend_gets_is_what_was_authorised() {
    relay(&[Backend::start("a", &[])], &["a"], &[""], 1);
}

#[test]
fn what_renamed_backends_get_differs_in_the_name_alone() {
    let backends = [Backend::start("a", &[]), Backend::start("b", &[])];
    relay(
        &backends,
        &["a", "b"],
        &["a-", "b-", "\\u0061-", "b\\u002d"],
        2,
    );
}
