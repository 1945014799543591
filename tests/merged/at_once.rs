//! Lists in pages, many calls at once, a call that is cancelled, and streams that are cut.

use crate::{
    conversation::{Asker, Heard, Kind},
    reached::{answer, listed, open},
    stage::Stage,
    support::eventually,
};

/// The lists, each with its member and the member that names an item.
const LISTS: [(&str, &str, &str); 4] = [
    ("tools/list", "tools", "name"),
    ("resources/list", "resources", "uri"),
    (
        "resources/templates/list",
        "resourceTemplates",
        "uriTemplate",
    ),
    ("prompts/list", "prompts", "name"),
];

#[test]
fn small_pages_hold_what_one_page_holds() {
    let whole = open();
    for page_items_max in [1, 4] {
        let paged = Stage::open_with_pages(page_items_max, |asked| answer(&asked.method));
        for (method, list, member) in LISTS {
            let first = paged.client.ask(method, "").result();
            let items = first[list].as_array().unwrap().len();
            assert_eq!(items, page_items_max, "{method}");
            assert!(first["nextCursor"].is_string(), "{method}");
            let mut pages = listed(&paged, method, list, member);
            let mut page = listed(&whole, method, list, member);
            // Several backends are in one order on one page, and one after the other on many.
            pages.sort();
            page.sort();
            assert_eq!(pages, page, "{method} in pages of {page_items_max}");
        }
        paged.end();
    }
    whole.end();
}

#[test]
fn many_calls_at_once_stay_apart() {
    const CALLERS: usize = 8;
    const CALLS: usize = 24;
    let stage = open();
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let asker = stage.client.asker();
            scope.spawn(move || {
                for call in (caller..CALLS).step_by(CALLERS) {
                    progress(&asker, call);
                    echo(&asker, call);
                }
            });
        }
    });
    stage.end();
}

/// A call that tells its progress, to itself alone.
fn progress(asker: &Asker, call: usize) {
    let key = ["a", "b"][call % 2];
    let steps = 3 + call % 3;
    let params = format!(
        r#"{{"name":"{key}-trigger-long-running-operation","arguments":{{"duration":0.05,"steps":{steps}}},"_meta":{{"progressToken":"token {call}"}}}}"#
    );
    let outcome = asker.ask("tools/call", &params);
    let text = outcome.result()["content"][0]["text"].to_string();
    assert!(text.contains(&format!("Steps: {steps}.")), "{call}: {text}");
    let told: Vec<String> = outcome
        .before
        .iter()
        .map(|heard| heard.raw.clone())
        .collect();
    let expected: Vec<String> = (1..=steps)
        .map(|step| {
            format!(r#"{{"progress":{step},"total":{steps},"progressToken":"token {call}"}}"#)
        })
        .collect();
    assert_eq!(told, expected, "{call}");
}

fn echo(asker: &Asker, call: usize) {
    let (key, argument) = [("a", "message"), ("b", "message"), ("f", "text")][call % 3];
    let params =
        format!(r#"{{"name":"{key}-echo","arguments":{{"{argument}":"canary {call}."}}}}"#);
    let result = asker.ask("tools/call", &params).result();
    let text = result["content"][0]["text"].to_string();
    assert!(text.contains(&format!("canary {call}.")), "{call}: {text}");
}

#[test]
fn a_cancelled_call_is_cancelled_where_it_runs() {
    let stage = open();
    for recorder in &stage.recorders {
        recorder.take();
    }
    let mut call = stage.client.start(
        r#""to be cancelled""#,
        "tools/call",
        r#"{"name":"b-trigger-long-running-operation","arguments":{"duration":60,"steps":600},"_meta":{"progressToken":"p"}}"#,
    );
    // It runs.
    let heard: Heard = call.next().unwrap();
    assert_eq!(heard.method, "notifications/progress");
    let sent = stage.recorders[1].take();
    let (_, id) = sent.split_once(r#""id":"#).unwrap();
    let id = id.split([',', '}']).next().unwrap();
    stage.client.notify(
        "notifications/cancelled",
        r#"{"requestId":"to be cancelled","reason":"no need"}"#,
    );
    let mut told = String::new();
    eventually("the server was told", || {
        told += &stage.recorders[1].take();
        told.contains(r#""method":"notifications/cancelled""#)
            .then_some(())
    });
    eventually("with its own id and the client's reason", || {
        told += &stage.recorders[1].take();
        let is_whole = told.contains(&format!(r#""requestId":{id}"#)) && told.contains("no need");
        is_whole.then_some(())
    });
    let other = stage.recorders[0].take();
    assert!(!other.contains("notifications/cancelled"), "{other}");
    drop(call);
    stage.end();
}

#[test]
fn a_cut_stream_goes_on_where_it_ended() {
    let stage = open();
    let mut call = stage.client.start(
        "4711",
        "tools/call",
        r#"{"name":"a-trigger-long-running-operation","arguments":{"duration":0.6,"steps":12},"_meta":{"progressToken":"p"}}"#,
    );
    let told = |heard: &Heard| heard.json()["progress"].as_u64();
    for step in 1..=4 {
        assert_eq!(told(&call.next().unwrap()), Some(step));
    }
    let last_id = call.last_id.take().expect("events have ids");
    drop(call);
    let mut rest = stage.client.resume(&last_id);
    for step in 5..=12 {
        assert_eq!(told(&rest.next().unwrap()), Some(step));
    }
    let answer = rest.next().unwrap();
    assert_eq!(
        (answer.kind, answer.id.as_deref()),
        (Kind::Result, Some("4711"))
    );
    assert!(answer.raw.contains("Steps: 12."), "{}", answer.raw);
    stage.end();
}

#[test]
fn a_question_is_answered_after_its_stream_was_cut() {
    let stage = open();
    let mut call = stage.client.start(
        r#""asks""#,
        "tools/call",
        r#"{"name":"b-trigger-sampling-request","arguments":{"prompt":"cut"}}"#,
    );
    let asked = call.next().unwrap();
    assert_eq!(asked.method, "sampling/createMessage");
    let last_id = call.last_id.take().expect("events have ids");
    drop(call);
    let mut rest = stage.client.resume(&last_id);
    let result = r#""result":{"role":"assistant","content":{"type":"text","text":"after the cut"},"model":"m"}"#;
    stage.client.answer(&asked, result);
    let answer = rest.next().unwrap();
    assert_eq!(
        (answer.kind, answer.id.as_deref()),
        (Kind::Result, Some(r#""asks""#))
    );
    assert!(answer.raw.contains("after the cut"), "{}", answer.raw);
    stage.end();
}
