//! Examples, and one property: every call is answered once, whatever happens.

use proptest::prelude::*;

use super::*;

fn request(id: &str, method: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#).into_bytes()
}

fn answer(id: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).into_bytes()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn messages_of_the_gateway_are_told_apart() {
    let mut calls = Calls::default();
    let now = Instant::now();
    let mut kind = |message: &[u8]| calls.hear_gateway(message, now);
    let pass = FromGateway::Pass;
    assert_eq!(
        kind(&request("0", "initialize")),
        pass(Kind::Initialize(call_id(b"0")))
    );
    assert_eq!(
        kind(&request("\"a\"", "tools/call")),
        pass(Kind::Call(call_id(b"\"a\"")))
    );
    let notification = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{params}}}"#)
            .into_bytes()
    };
    assert_eq!(
        kind(&notification("initialized", "{}")),
        pass(Kind::Initialized)
    );
    assert_eq!(kind(&notification("progress", "{}")), pass(Kind::Other));
    assert_eq!(kind(&answer("7")), pass(Kind::Other));
    // Another spelling of the same id; then it is no call's any more.
    let cancelled = notification("cancelled", r#"{"requestId":"\u0061"}"#);
    assert_eq!(kind(&cancelled), pass(Kind::Cancelled(call_id(b"\"a\""))));
    assert_eq!(kind(&cancelled), pass(Kind::Other));
    for bad in [
        &b"{"[..],
        b"[]",
        b"{}",
        b"1",
        b"",
        br#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
        br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#,
        format!(r#"{{"id":"{}","method":"x"}}"#, "x".repeat(ID_BYTES_MAX)).as_bytes(),
    ] {
        assert_eq!(kind(bad), FromGateway::Malformed, "{}", text(bad));
    }
}

#[test]
fn an_answer_passes_once_and_only_to_a_call() {
    let mut calls = Calls::default();
    let now = Instant::now();
    calls.hear_gateway(&request("\"é\"", "a"), now);
    assert_eq!(calls.hear_local(&answer("1")), FromLocal::Stray);
    // As other programs spell it.
    assert_eq!(calls.hear_local(&answer("\"\\u00e9\"")), FromLocal::Pass);
    assert_eq!(calls.hear_local(&answer("\"é\"")), FromLocal::Stray);
    assert_eq!(
        calls.hear_local(&request("\"é\"", "sampling")),
        FromLocal::Pass
    );
    assert_eq!(calls.hear_local(br#"{"method":"n"}"#), FromLocal::Pass);
    for bad in [&b"hello"[..], b"{\"result\":\xff}", b"{}", b"[1]"] {
        assert_eq!(calls.hear_local(bad), FromLocal::Malformed);
    }
}

#[test]
fn a_failed_call_is_answered_with_its_own_id() {
    let mut calls = Calls::default();
    let now = Instant::now();
    calls.hear_gateway(&request(r#""a\"\n""#, "x"), now);
    let error = calls.fail(&call_id(br#""a\"\n""#), "the \"why\"").unwrap();
    assert_eq!(
        text(&error),
        r#"{"jsonrpc":"2.0","id":"a\"\n","error":{"code":-32603,"message":"the \"why\""}}"#
    );
    assert_eq!(calls.fail(&call_id(br#""a\"\n""#), "again"), None);
}

#[test]
fn calls_are_bounded_in_number_and_time() {
    let mut calls = Calls::default();
    let now = Instant::now();
    for id in 0..CALLS_MAX {
        let passed = calls.hear_gateway(&request(&id.to_string(), "x"), now);
        assert!(matches!(passed, FromGateway::Pass(Kind::Call(_))));
    }
    let refused = calls.hear_gateway(&request("\"more\"", "x"), now);
    let FromGateway::Answer(error) = refused else {
        panic!("{refused:?}");
    };
    assert!(text(&error).contains(r#""id":"more","error":{"code":-32603"#));
    assert_eq!(calls.hear_local(&answer("0")), FromLocal::Pass);
    assert_eq!(calls.expire(now + CALL_TIME_MAX / 2), [[0; 0]; 0]);
    let late = calls.expire(now + CALL_TIME_MAX);
    assert_eq!(late.len(), CALLS_MAX - 1);
    assert!(text(&late[0]).contains(r#""id":1,"#));
    assert_eq!(calls.next_due(), None);
}

#[test]
fn an_id_that_is_used_again_has_its_own_time() {
    let mut calls = Calls::default();
    let now = Instant::now();
    for step in 0..10_000 {
        calls.hear_gateway(&request("1", "x"), now + Duration::from_secs(step));
        assert_eq!(calls.hear_local(&answer("1")), FromLocal::Pass);
    }
    assert!(calls.order.len() <= 2 * CALLS_MAX + 1);
    let again = now + Duration::from_secs(10_000);
    calls.hear_gateway(&request("1", "x"), again);
    assert_eq!(calls.next_due(), Some(again + CALL_TIME_MAX));
    assert_eq!(calls.expire(now + CALL_TIME_MAX), [[0; 0]; 0]);
}

#[derive(Debug, Clone)]
enum Step {
    Call(u8),
    Answer(u8),
    Cancel(u8),
    Fail(u8),
    Expire(u16),
    FailAll,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = 0u8..6;
    let step = prop_oneof![
        4 => id.clone().prop_map(Step::Call),
        3 => id.clone().prop_map(Step::Answer),
        1 => id.clone().prop_map(Step::Cancel),
        1 => id.prop_map(Step::Fail),
        1 => (0u16..5000).prop_map(Step::Expire),
        1 => Just(Step::FailAll),
    ];
    proptest::collection::vec(step, 0..80)
}

proptest! {
    #[test]
    fn every_call_is_answered_once(steps in steps()) {
        let mut calls = Calls::default();
        let mut now = Instant::now();
        // A plain reader's table: id to the time it was asked.
        let mut open = HashMap::new();
        for step in steps {
            match step {
                Step::Call(id) if open.contains_key(&id) => {}
                Step::Call(id) => {
                    calls.hear_gateway(&request(&id.to_string(), "x"), now);
                    open.insert(id, now);
                }
                Step::Answer(id) => {
                    let passed = calls.hear_local(&answer(&id.to_string())) == FromLocal::Pass;
                    prop_assert_eq!(passed, open.remove(&id).is_some());
                }
                Step::Cancel(id) => {
                    let message = format!(
                        r#"{{"method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
                    );
                    let kind = calls.hear_gateway(message.as_bytes(), now);
                    let was_open = matches!(kind, FromGateway::Pass(Kind::Cancelled(_)));
                    prop_assert_eq!(was_open, open.remove(&id).is_some());
                }
                Step::Fail(id) => {
                    let failed = calls.fail(id.to_string().as_bytes(), "x");
                    prop_assert_eq!(failed.is_some(), open.remove(&id).is_some());
                }
                Step::Expire(seconds) => {
                    now += Duration::from_secs(seconds.into());
                    let expired = calls.expire(now).len();
                    let before = open.len();
                    open.retain(|_, since| now < *since + CALL_TIME_MAX);
                    prop_assert_eq!(expired, before - open.len());
                }
                Step::FailAll => {
                    prop_assert_eq!(calls.fail_all("x").len(), open.len());
                    open.clear();
                }
            }
            let earliest = open.values().min().map(|since| *since + CALL_TIME_MAX);
            // Never later than needed.
            if let Some(earliest) = earliest {
                prop_assert!(calls.next_due().is_some_and(|due| due <= earliest));
            }
        }
    }
}
