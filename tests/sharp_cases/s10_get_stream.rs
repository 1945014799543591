//! S10: the GET stream: at once, alive, and each message once.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::{
    support::{
        Asked, Backend, EventStream, LAYOUTS, Layout, McpClient, Plan, Speaker, Wire, event,
        request,
    },
    text_of,
};

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const NOTE: &str = "notifications/message";
const UPDATED: &str = "notifications/resources/updated";

/// A backend that says on its own stream what the speaker says.
fn speaking(name: &'static str) -> (Backend, Arc<Speaker>) {
    let speaker = Arc::new(Speaker::default());
    let backend = Backend::scripted(name, &["one"], {
        let speaker = speaker.clone();
        move |asked: &Asked, wire: &mut Wire<'_>| {
            (asked.method == "GET")
                .then(|| speaker.speak(wire))
                .or_else(|| {
                    asked
                        .is("logging/setLevel")
                        .then(|| wire.result(asked, "{}"))
                })
        }
    });
    backend.set_capabilities(r#"{"tools":{"listChanged":true},"logging":{}}"#);
    (backend, speaker)
}

fn note(level: &str, data: &str) -> String {
    let params = format!(r#"{{"level":"{level}","data":"{data}"}}"#);
    event(None, &request(None, NOTE, &params))
}

/// The data of log messages up to the one that says `last`, and the methods of all else.
fn heard_until(stream: &mut EventStream, last: &str) -> (Vec<String>, Vec<String>) {
    let (mut notes, mut others) = (Vec::new(), Vec::new());
    loop {
        let message = stream.next_message();
        let method = message["method"].as_str().unwrap().to_owned();
        if method != NOTE {
            others.push(method);
            continue;
        }
        let data = message["params"]["data"].as_str().unwrap().to_owned();
        if data == last {
            return (notes, others);
        }
        notes.push(data);
    }
}

#[test]
fn s10_a_stream_begins_at_once_and_stays_alive() {
    for layout in LAYOUTS {
        // Without a stream of its own: 405.
        let backend = Backend::start("a", &["one"]);
        let gateway = Plan::one(&backend)
            .layout(layout)
            .settings(|settings| {
                settings.timeouts.heartbeat_interval = Duration::from_millis(100);
                settings.timeouts.idle = Duration::from_millis(200);
            })
            .start();
        for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
            let client = McpClient::open_with(&gateway, version, "{}");
            let mut stream = client.stream();
            assert_eq!(stream.head.header("cache-control"), Some("no-cache"));
            // Longer than a connection may be idle.
            let mut blocks: Vec<String> = (0..9).map(|_| stream.next_block().unwrap()).collect();
            let has_priming = blocks.iter().any(|block| !block.starts_with(':'));
            assert_eq!(
                has_priming,
                version == "2025-11-25",
                "{version}: {blocks:?}"
            );
            blocks.retain(|block| block.starts_with(':'));
            assert!(blocks.len() >= 8);
            let mut client = client.again();
            assert_eq!(text_of(&client.call("1", "one", "{}")), "a one {}");
            assert_eq!(client.delete().status, 200);
            assert_eq!(stream.next_event(), None, "it ends with its session");
        }
    }
}

/// mcp.md 1.2: where a client can resume is the first thing it hears, if it knows what that is.
#[test]
fn s10_the_first_event_says_where_to_resume() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).layout(Layout::Spread).start();
    let client = McpClient::open_with(&gateway, "2025-11-25", "{}");
    let mut ids = BTreeSet::new();
    for _ in 0..3 {
        let mut stream = client.stream();
        let first = stream.next_raw_event().unwrap();
        assert_eq!(first.data, "");
        assert!(first.retry_ms.is_some_and(|ms| ms > 0));
        assert!(
            ids.insert(first.id.unwrap()),
            "each stream has ids of its own"
        );
    }
}

#[test]
fn s10_a_stream_is_for_those_who_can_read_it() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).layout(Layout::Spread).start();
    let mut client = McpClient::open(&gateway);
    let ask = client.bare("GET").with("accept", "application/json");
    let response = client.connection.ask(&ask);
    assert_eq!((response.status, response.error_code()), (406, -32000));
}

#[test]
fn s10_of_several_streams_each_message_is_on_one() {
    for layout in LAYOUTS {
        let (a, speaker) = speaking("a");
        let (b, other) = speaking("b");
        let gateway = Plan::of(&[("a", &a.url()), ("b", &b.url())])
            .layout(layout)
            .start();
        let mut client = McpClient::open(&gateway);
        let mut streams: Vec<EventStream> = (0..3).map(|_| client.stream()).collect();
        for stream in &mut streams {
            assert!(stream.next_block().is_some());
        }
        speaker.await_listeners(1);
        other.await_listeners(1);
        for number in 0..20 {
            speaker.say(note("error", &format!("a{number}")));
            other.say(note("error", &format!("b{number}")));
        }
        // What is said on calls' streams is said there only.
        assert_eq!(text_of(&client.call("1", "a-one", "{}")), "a one {}");
        let mut heard = Vec::new();
        let newest = streams.last_mut().unwrap();
        while heard.len() < 40 {
            let message = newest.next_message();
            assert_eq!(message["method"], NOTE);
            heard.push(message["params"]["data"].as_str().unwrap().to_owned());
        }
        // In the order each backend said it.
        for backend in ["a", "b"] {
            let own: Vec<&String> = heard
                .iter()
                .filter(|data| data.starts_with(backend))
                .collect();
            let expected: Vec<String> = (0..20).map(|n| format!("{backend}{n}")).collect();
            assert_eq!(own, expected.iter().collect::<Vec<_>>());
        }
        assert_eq!(client.delete().status, 200);
        for stream in &mut streams {
            assert_eq!(stream.rest(), [""; 0], "nothing was said twice");
        }
    }
}

#[test]
fn s10_backends_are_listened_to_again_when_a_client_comes_back() {
    for layout in LAYOUTS {
        let (backend, speaker) = speaking("a");
        let gateway = Plan::one(&backend).layout(layout).start();
        let client = McpClient::open(&gateway);
        let mut stream = client.stream();
        speaker.await_listeners(1);
        speaker.say(note("error", "first"));
        assert_eq!(heard_until(&mut stream, "first"), (vec![], vec![]));
        drop(stream);
        let mut stream = client.stream();
        let second = note("error", "second");
        let heard = speaker.say_until(&second, || heard_until(&mut stream, "second"));
        assert_eq!(heard, (vec![], vec![]));
    }
}

#[test]
fn s10_changes_of_lists_are_said_once_for_many() {
    for layout in LAYOUTS {
        let (a, first) = speaking("a");
        let (b, second) = speaking("b");
        let gateway = Plan::of(&[("a", &a.url()), ("b", &b.url())])
            .layout(layout)
            .start();
        let client = McpClient::open(&gateway);
        let mut stream = client.stream();
        for speaker in [&first, &second] {
            speaker.await_listeners(1);
            let changed = event(None, &request(None, TOOLS_CHANGED, r#"{"x":1}"#));
            speaker.say(changed.repeat(100));
        }
        for speaker in [&first, &second] {
            speaker.say(note("error", "said"));
        }
        let mut changes = 0;
        for _ in 0..2 {
            let (_, others) = heard_until(&mut stream, "said");
            assert!(others.iter().all(|method| method == TOOLS_CHANGED));
            changes += others.len();
        }
        assert!((1..=40).contains(&changes), "{changes} of 200");
    }
}

#[test]
fn s10_updates_are_for_subscribers() {
    for layout in LAYOUTS {
        let speakers: Arc<[Speaker; 2]> = Arc::default();
        let backend = Backend::scripted("a", &["one"], {
            let speakers = speakers.clone();
            move |asked, wire| {
                if asked.method == "GET" {
                    let is_first = asked.header("mcp-session-id") == Some("a-session-1");
                    speakers[usize::from(!is_first)].speak(wire);
                    return Some(());
                }
                asked
                    .rpc_method()?
                    .contains("subscribe")
                    .then(|| wire.result(asked, "{}"))
            }
        });
        backend.set_capabilities(r#"{"tools":{},"resources":{"subscribe":true}}"#);
        let gateway = Plan::one(&backend).layout(layout).start();
        let mut subscriber = McpClient::open(&gateway);
        let other = McpClient::open(&gateway);
        let subscriber_stream = subscriber.stream();
        let mut tell = |method: &str| {
            let response = subscriber.post(request(Some("1"), method, r#"{"uri":"a://x"}"#));
            assert_eq!(response.result(), serde_json::json!({}));
        };
        tell("resources/subscribe");
        let mut streams = [subscriber_stream, other.stream()];
        let update = |uri: &str| {
            let params = format!(r#"{{"uri":"{uri}"}}"#);
            event(None, &request(None, UPDATED, &params))
        };
        for speaker in &*speakers {
            speaker.await_listeners(1);
            speaker.say([update("a://x"), update("a://y"), note("error", "said")].concat());
        }
        let heard = streams
            .each_mut()
            .map(|stream| heard_until(stream, "said").1);
        assert_eq!(heard, [vec![UPDATED.to_owned()], vec![]]);
        tell("resources/unsubscribe");
        speakers[0].say([update("a://x"), note("error", "over")].concat());
        assert!(heard_until(&mut streams[0], "over").1.is_empty());
    }
}

#[test]
fn s10_log_messages_below_the_level_are_dropped() {
    for layout in LAYOUTS {
        let (backend, speaker) = speaking("a");
        let gateway = Plan::one(&backend).layout(layout).start();
        let mut client = McpClient::open(&gateway);
        let mut stream = client.stream();
        speaker.await_listeners(1);
        let levels = [
            "debug",
            "info",
            "notice",
            "warning",
            "error",
            "critical",
            "alert",
            "emergency",
        ];
        for (least, level) in levels.iter().enumerate() {
            let set = request(
                Some("1"),
                "logging/setLevel",
                &format!(r#"{{"level":"{level}"}}"#),
            );
            assert_eq!(client.post(set).result(), serde_json::json!({}));
            for level in levels {
                speaker.say(note(level, level));
            }
            speaker.say(note("emergency", "over"));
            let (heard, _) = heard_until(&mut stream, "over");
            assert_eq!(heard, levels[least..]);
        }
    }
}
