//! What the walking client answers when a server asks it something: always the same.

use std::sync::{Arc, Mutex};

use crate::conversation::{Answers, Heard};

/// The client's roots, as raw JSON; a walk changes them.
pub(crate) type Roots = Arc<Mutex<&'static str>>;

/// One root.
pub(crate) const ONE_ROOT: &str = r#"[{"uri":"file:///tmp/walk","name":"walk \u00e9"}]"#;
/// Another set of roots.
pub(crate) const TWO_ROOTS: &str = r#"[{"uri":"file:///one"},{"uri":"file:///two","name":"two"}]"#;

const SAMPLE: &str = r#"{"role":"assistant","content":{"type":"text","text":"a \"sampled\" text \ud83d\ude00"},"model":"walker-1","stopReason":"endTurn","_meta":{"big":12345678901234567890,"float":1.0}}"#;
const REFUSAL: &str =
    r#""error":{"code":-1,"message":"the user \u00e9 refused","data":{"n":1.50,"why":[null,{}]}}"#;
const FORM: &str = r#"{"action":"accept","content":{"name":"Ann \u00d8","check":true,"email":"ann@example.com","homepage":"https://example.com/~ann","birthdate":"1990-01-02","integer":42,"number":3.50,"untitledSingleSelectEnum":"Ross","untitledMultipleSelectEnum":["Piano","Bass"],"titledSingleSelectEnum":"hero-2","titledMultipleSelectEnum":["fish-1"],"legacyTitledEnum":"pet-2","favoriteColor":"Blue","agreeToTerms":true}}"#;

/// Answers everything a server may ask.
pub(crate) fn answers(roots: &Roots) -> Answers {
    let roots = roots.clone();
    Arc::new(move |asked: &Heard| answer(asked, *roots.lock().unwrap()))
}

fn answer(asked: &Heard, roots: &str) -> String {
    let params = asked.json();
    let is_task = params.get("task").is_some();
    match asked.method.as_str() {
        "ping" => result("{}"),
        "roots/list" => result(&format!(r#"{{"roots":{roots}}}"#)),
        "sampling/createMessage" if is_task => task("sampling-task", "working"),
        "sampling/createMessage" if asked.raw.contains("refused") => REFUSAL.to_owned(),
        "sampling/createMessage" => result(SAMPLE),
        "elicitation/create" if is_task => task("elicitation-task", "input_required"),
        "elicitation/create" if params["mode"] == "url" => result(r#"{"action":"accept"}"#),
        "elicitation/create" => {
            let asks_for = |name| params["requestedSchema"]["properties"].get(name).is_some();
            if asks_for("interpretation") {
                result(r#"{"action":"accept","content":{"interpretation":"historical"}}"#)
            } else {
                result(FORM)
            }
        }
        "tasks/get" => match params["taskId"].as_str() {
            Some(id @ ("sampling-task" | "elicitation-task")) => result(&state(id, "completed")),
            _ => unknown_task(),
        },
        "tasks/result" => match params["taskId"].as_str() {
            Some("sampling-task") => result(SAMPLE),
            Some("elicitation-task") => result(FORM),
            _ => unknown_task(),
        },
        _ => r#""error":{"code":-32601,"message":"Method not found"}"#.to_owned(),
    }
}

fn result(raw: &str) -> String {
    format!(r#""result":{raw}"#)
}

/// A task of the client's, in place of an answer.
fn task(id: &str, status: &str) -> String {
    result(&format!(r#"{{"task":{}}}"#, state(id, status)))
}

fn state(id: &str, status: &str) -> String {
    format!(
        r#"{{"taskId":"{id}","status":"{status}","ttl":60000,"createdAt":"2026-01-02T03:04:05.000Z","lastUpdatedAt":"2026-01-02T03:04:05.000Z","pollInterval":1000}}"#
    )
}

fn unknown_task() -> String {
    r#""error":{"code":-32602,"message":"Unknown task"}"#.to_owned()
}
