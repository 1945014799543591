//! Whose message is whose.

use proptest::prelude::*;

use super::*;
use crate::mcp::envelope::scan;
use crate::mcp::json::DEPTH_MAX;

fn enter(ledger: &mut Ledger<u32>, session: u64, body: &str, sink: u32) -> (Ticket, String) {
    let message = scan(body.as_bytes(), DEPTH_MAX).unwrap();
    let (ticket, line) = ledger
        .request(session, body.as_bytes(), &message, sink)
        .unwrap();
    (ticket, String::from_utf8(line).unwrap())
}

fn call(id: &str, token: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","params":{{"_meta":{{"progressToken":{token}}}}},"id":{id},"method":"tools/call"}}"#
    )
}

fn answer(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

fn progress(token: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
    )
}

#[test]
fn one_session_is_passed_through_as_it_is() {
    let mut ledger = Ledger::new(false);
    let body = call("\"a\"", "\"t\"");
    let (_, line) = enter(&mut ledger, 7, &body, 1);
    assert_eq!(line, body);
    let message = scan(body.as_bytes(), DEPTH_MAX).unwrap();
    let again = ledger.request(7, body.as_bytes(), &message, 2);
    assert_eq!(again.unwrap_err(), Refused::Duplicate);
    let told = progress("\"t\"");
    assert_eq!(
        ledger.incoming(told.as_bytes()),
        Incoming::Progress(1, told.clone().into())
    );
    let said = answer("\"a\"");
    assert_eq!(
        ledger.incoming(said.as_bytes()),
        Incoming::Answer(1, said.clone().into())
    );
    // The call is over: its second answer is nobody's, and its progress is the session's.
    assert_eq!(ledger.incoming(said.as_bytes()), Incoming::Nothing);
    assert_eq!(
        ledger.incoming(told.as_bytes()),
        Incoming::Notification(false)
    );
}

#[test]
fn equal_ids_of_two_sessions_are_told_apart() {
    let mut ledger = Ledger::new(true);
    let body = call("0", "0");
    let (_, first) = enter(&mut ledger, 1, &body, 10);
    let (_, second) = enter(&mut ledger, 2, &body, 20);
    assert_eq!((first, second), (call("1", "1"), call("2", "2")));
    let told = ledger.incoming(progress("2").as_bytes());
    assert_eq!(told, Incoming::Progress(20, progress("0").into()));
    let said = ledger.incoming(answer("2").as_bytes());
    assert_eq!(said, Incoming::Answer(20, answer("0").into()));
    let said = ledger.incoming(answer("1").as_bytes());
    assert_eq!(said, Incoming::Answer(10, answer("0").into()));
}

#[test]
fn a_cancellation_names_the_call_of_its_own_session() {
    let mut ledger = Ledger::new(true);
    enter(&mut ledger, 1, &call("5", "5"), 0);
    enter(&mut ledger, 2, &call("6", "6"), 0);
    let cancel = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        )
    };
    let told = |ledger: &mut Ledger<u32>, session, body: &str| {
        let message = scan(body.as_bytes(), DEPTH_MAX).unwrap();
        let line = ledger.other(session, body.as_bytes(), &message);
        line.map(|line| String::from_utf8(line).unwrap())
    };
    assert_eq!(told(&mut ledger, 2, &cancel("6")), Some(cancel("2")));
    assert_eq!(told(&mut ledger, 1, &cancel("6")), None);
    assert_eq!(
        told(&mut ledger, 1, &answer("1")),
        None,
        "a shared one asks nobody"
    );
}

#[test]
fn what_is_forgotten_is_only_what_was_meant() {
    let mut ledger = Ledger::new(false);
    let (old, _) = enter(&mut ledger, 1, &call("1", "1"), 1);
    ledger.incoming(answer("1").as_bytes());
    enter(&mut ledger, 1, &call("1", "1"), 2);
    ledger.forget(&old);
    assert_eq!(ledger.newest(), Some(2));
    ledger.forget_session(1);
    assert_eq!(ledger.newest(), None);
}

#[test]
fn other_messages_are_sorted() {
    let mut ledger = Ledger::<u32>::new(false);
    let mut sorted = |text: &str| ledger.incoming(text.as_bytes());
    assert_eq!(
        sorted(r#"{"jsonrpc":"2.0","id":"x","method":"ping"}"#),
        Incoming::Request(true, b"\"x\"".to_vec())
    );
    assert_eq!(
        sorted(r#"{"method":"roots/list","id":0}"#),
        Incoming::Request(false, b"0".to_vec())
    );
    assert_eq!(
        sorted(r#"{"method":"notifications/tools/list_changed"}"#),
        Incoming::Notification(true)
    );
    assert_eq!(
        sorted(r#"{"method":"notifications/message"}"#),
        Incoming::Notification(false)
    );
    for junk in ["", "Server started", "[]", "{}", "{\"id\":1}"] {
        assert_eq!(sorted(junk), Incoming::Nothing, "{junk}");
    }
}

fn asks(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"sampling/createMessage","params":{{}}}}"#)
}

#[test]
fn a_shared_server_asks_the_one_client_it_can_mean() {
    let mut ledger = Ledger::new(true);
    assert_eq!(ledger.ask(asks("1").as_bytes()), None, "nobody has called");
    let (first, line) = enter(&mut ledger, 1, &call("1", "1"), 10);
    assert_eq!(
        line,
        call("1", "1"),
        "the server's ids and ours may be equal"
    );
    let (sink, question) = ledger.ask(asks("1").as_bytes()).unwrap();
    let question = String::from_utf8(question).unwrap();
    assert_eq!((sink, &*question), (10, &*asks("\"s2\"")));
    let answer_of = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"a":1}}}}"#);
    let told = |ledger: &mut Ledger<u32>, session, body: &str| {
        let message = scan(body.as_bytes(), DEPTH_MAX).unwrap();
        let line = ledger.other(session, body.as_bytes(), &message);
        line.map(|line| String::from_utf8(line).unwrap())
    };
    let said = answer_of("\"s2\"");
    assert_eq!(told(&mut ledger, 2, &said), None, "another session's");
    assert_eq!(told(&mut ledger, 1, &said), Some(answer_of("1")));
    assert_eq!(told(&mut ledger, 1, &said), None, "once");
    // A second session's call makes it a guess, a list of one does not.
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    enter(&mut ledger, 2, list, 20);
    assert!(ledger.ask(asks("2").as_bytes()).is_some());
    let (second, _) = enter(&mut ledger, 2, &call("1", "1"), 20);
    assert_eq!(ledger.ask(asks("3").as_bytes()), None);
    let left = ledger.abandon(&first).unwrap();
    assert_eq!(left.unanswered, [b"2".as_slice().into()]);
    let text = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(left.cancellation, Some(text.into()));
    assert_eq!(ledger.abandon(&first), None);
    let (sink, _) = ledger.ask(asks("4").as_bytes()).unwrap();
    assert_eq!(sink, 20);
    let withdrawal = r#"{"method":"notifications/cancelled","params":{"requestId":4}}"#;
    assert_eq!(ledger.incoming(withdrawal.as_bytes()), Incoming::Withdrawal);
    let (sink, told) = ledger.withdrawn(withdrawal.as_bytes()).unwrap();
    assert!(sink == 20 && String::from_utf8(told).unwrap().contains("\"s"));
    assert_eq!(ledger.withdrawn(withdrawal.as_bytes()), None);
    assert_eq!(ledger.tickets_of(2).len(), 2);
    assert!(ledger.tickets_of(2).contains(&second));
    let failed = ledger.fail_all();
    assert!(failed.len() == 2 && ledger.len() == 0);
}

#[test]
fn a_client_that_cannot_be_asked_is_not() {
    let mut ledger = Ledger::new(true);
    let body = call("1", "1");
    let message = scan(body.as_bytes(), DEPTH_MAX).unwrap();
    let caller = Caller {
        session: 1,
        can_be_asked: false,
    };
    ledger
        .request(caller, body.as_bytes(), &message, 1u32)
        .unwrap();
    assert_eq!(ledger.ask(asks("1").as_bytes()), None);
}

proptest! {
    #[test]
    fn every_answer_finds_its_call(
        calls in prop::collection::vec((0u64..4, 0u32..6, any::<bool>()), 1..40)
    ) {
        let mut ledger = Ledger::new(true);
        let mut lines = Vec::new();
        for (index, (session, id, is_text)) in (0u32..).zip(&calls) {
            let id = if *is_text { format!("\"{id}\"") } else { id.to_string() };
            let (_, line) = enter(&mut ledger, *session, &call(&id, &id), index);
            lines.push((index, id, line));
        }
        // Answered in the other order.
        for (index, id, line) in lines.iter().rev() {
            let message = scan(line.as_bytes(), DEPTH_MAX).unwrap();
            let wire = |at: Span| std::str::from_utf8(at.slice(line.as_bytes())).unwrap();
            let token = wire(message.progress_token.unwrap());
            let told = ledger.incoming(progress(token).as_bytes());
            prop_assert_eq!(told, Incoming::Progress(*index, progress(id).into()));
            let said = ledger.incoming(answer(wire(message.id.unwrap())).as_bytes());
            prop_assert_eq!(said, Incoming::Answer(*index, answer(id).into()));
        }
        prop_assert_eq!(ledger.newest(), None);
    }

    #[test]
    fn no_bytes_of_a_server_are_too_strange(data in prop::collection::vec(any::<u8>(), 0..200)) {
        Ledger::<u32>::new(true).incoming(&data);
    }
}
