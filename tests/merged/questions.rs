//! Two servers that ask the client at once, with equal ids of their own: each gets its answer.

use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::{
    conversation::Heard,
    stage::Stage,
    support::{Gate, eventually},
};

/// What was asked, and a gate before the answers.
#[derive(Default)]
struct Questions {
    ids: Mutex<Vec<String>>,
    gate: Gate,
}

impl Questions {
    /// Waits until the gate is open and answers with what the question says.
    fn answer(&self, asked: &Heard) -> String {
        if asked.method == "roots/list" {
            return r#""result":{"roots":[{"uri":"file:///merged","name":"merged"}]}"#.to_owned();
        }
        self.ids.lock().unwrap().push(asked.id.clone().unwrap());
        self.gate.wait();
        let params = asked.json();
        let result = match asked.method.as_str() {
            "sampling/createMessage" => {
                let text = &params["messages"][0]["content"]["text"];
                format!(
                    r#"{{"role":"assistant","content":{{"type":"text","text":{text}}},"model":"echo"}}"#
                )
            }
            "elicitation/create" => format!(
                r#"{{"action":"accept","content":{{"of":{}}}}}"#,
                params["url"]
            ),
            other => panic!("nobody asks for {other}"),
        };
        format!(r#""result":{result}"#)
    }
}

fn text(result: &Value) -> String {
    let blocks = result["content"].as_array().unwrap();
    let texts = blocks.iter().filter_map(|block| block["text"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}

/// Calls a tool of both servers at once; each asks, and neither is answered before both have.
fn both_ask(tool: &str, arguments: fn(&str) -> String, is_its_own: fn(&str, &str) -> bool) {
    let questions: Arc<Questions> = Arc::default();
    let asked = questions.clone();
    let stage = Stage::open(move |heard| asked.answer(heard));
    // Both servers ask for the roots by themselves first, with the same id.
    let mut told = [false; 2];
    eventually("both were told the roots", || {
        for (told, recorder) in told.iter_mut().zip(&stage.recorders) {
            *told |= recorder.take().contains("file:///merged");
        }
        (told == [true; 2]).then_some(())
    });
    std::thread::scope(|scope| {
        let calls = ["a", "b"].map(|key| {
            let asker = stage.client.asker();
            let params = format!(
                r#"{{"name":"{key}-{tool}","arguments":{}}}"#,
                arguments(key)
            );
            scope.spawn(move || (key, asker.ask("tools/call", &params).result()))
        });
        questions.gate.await_arrivals(2);
        questions.gate.open();
        for call in calls {
            let (key, result) = call.join().unwrap();
            let text = text(&result);
            assert!(is_its_own(key, &text), "{key} got {text}");
        }
    });
    let ids = questions.ids.lock().unwrap();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1], "the client can tell them apart");
    // Toward each server the answer has that server's id, the same number for both.
    let answered: Vec<String> = stage.recorders[..2]
        .iter()
        .map(|recorder| recorder.take())
        .collect();
    for sent in answered {
        assert!(
            sent.contains(r#""id":1"#),
            "not the server's own id: {sent}"
        );
    }
    drop(ids);
    stage.end();
}

#[test]
fn two_samplings_at_once_are_told_apart() {
    both_ask(
        "trigger-sampling-request",
        |key| format!(r#"{{"prompt":"the question of {key}"}}"#),
        |key, text| text.contains(&format!("the question of {key}")),
    );
}

#[test]
fn two_elicitations_at_once_are_told_apart() {
    both_ask(
        "trigger-url-elicitation",
        |key| format!(r#"{{"url":"https://example.com/{key}"}}"#),
        |key, text| text.contains(&format!(r#""of": "https://example.com/{key}""#)),
    );
}

#[test]
fn both_servers_know_the_clients_roots() {
    let stage = Stage::open(|_| {
        r#""result":{"roots":[{"uri":"file:///merged","name":"merged"}]}"#.to_owned()
    });
    for key in ["a", "b"] {
        let params = format!(r#"{{"name":"{key}-get-roots-list","arguments":{{}}}}"#);
        let result = stage.client.ask("tools/call", &params).result();
        assert!(
            text(&result).contains("URI: file:///merged"),
            "{key}: {result}"
        );
    }
    stage.end();
}
