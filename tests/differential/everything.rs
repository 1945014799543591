//! All that `server-everything` can do, in parts that may run at once.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{
    answers::TWO_ROOTS,
    conversation::Heard,
    walk::{Part, Revision, Walker},
};

/// The parts for a client of a revision.
pub(crate) fn parts(revision: Revision) -> &'static [Part] {
    if revision.has_tasks {
        &[all_but_tasks, a_task, a_task_that_asks, tasks_of_the_client]
    } else {
        &[all_but_tasks]
    }
}

/// A file name of this walk's own, always of the same length.
fn own_file() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1000);
    format!("walk-{}.gz", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn all_but_tasks(walker: &mut Walker) {
    walker.greeting();
    roots(walker);
    tools(walker);
    resources(walker);
    subscriptions(walker);
    prompts(walker);
    completions(walker);
    questions(walker);
    log(walker);
    what_is_wrong(walker);
    walker.step("ping", "ping", "", &[]);
    if walker.revision.has_batches {
        walker.batch(
            &[
                ("ping", ""),
                (
                    "tools/call",
                    r#"{"name":"echo","arguments":{"message":"one of many"}}"#,
                ),
                ("prompts/get", r#"{"name":"nonesuch"}"#),
                (
                    "resources/read",
                    r#"{"uri":"demo://resource/dynamic/text/3"}"#,
                ),
                (
                    "tools/call",
                    r#"{"name":"trigger-sampling-request","arguments":{"prompt":"in a batch"}}"#,
                ),
                ("tools/list", ""),
            ],
            &["sampling/createMessage"],
        );
    }
}

/// The server asks for the roots by itself a moment after `initialize`, or when the tool is called
/// before that.
fn roots(walker: &mut Walker) {
    let updated = "notifications/message Roots updated: 1 root";
    walker.call("get-roots-list", "{}", &["roots/list", updated]);
    *walker.roots.lock().unwrap() = TWO_ROOTS;
    walker
        .conversation
        .notify("notifications/roots/list_changed", "");
    let wait = |walker: &mut Walker, text: &'static str| {
        let heard = walker
            .conversation
            .next_heard(|heard| heard.raw.contains(text));
        walker.keep("roots changed", heard.into_iter().collect());
    };
    wait(walker, "Roots updated: 2 root");
    walker.call("get-roots-list", "{}", &[]);
}

fn tools(walker: &mut Walker) {
    walker.step("tools/list", "tools/list", "", &[]);
    walker.step("tools/list with params", "tools/list", "{}", &[]);
    walker.call(
        "echo",
        r#"{"message":"h\u00e9llo \ud83d\ude00 \\ \" / \u0000 <&>"}"#,
        &[],
    );
    walker.call("get-sum", r#"{"a":1e2,"b":-0.5}"#, &[]);
    walker.call("get-tiny-image", "{}", &[]);
    for kind in ["error", "success", "debug"] {
        let arguments = format!(r#"{{"messageType":"{kind}","includeImage":true}}"#);
        walker.call("get-annotated-message", &arguments, &[]);
    }
    walker.call("get-env", "{}", &[]);
    for city in ["New York", "Chicago", "Los Angeles"] {
        let arguments = format!(r#"{{"location":"{city}"}}"#);
        walker.call("get-structured-content", &arguments, &[]);
    }
    for token in [r#""a token""#, "7", "0", r#""7""#] {
        let steps = ["notifications/progress"; 4];
        let meta = format!(r#","_meta":{{"progressToken":{token}}}"#);
        let arguments = r#"{"duration":0.2,"steps":4}"#;
        walker.call_with("trigger-long-running-operation", arguments, &meta, &steps);
    }
    walker.call(
        "trigger-long-running-operation",
        r#"{"duration":0.1,"steps":2}"#,
        &[],
    );
}

fn resources(walker: &mut Walker) {
    let list = walker.step("resources/list", "resources/list", "", &[]);
    for resource in list["resources"].as_array().into_iter().flatten() {
        let uri = resource["uri"].as_str().unwrap().to_owned();
        walker.read(&uri);
    }
    walker.step("templates", "resources/templates/list", "", &[]);
    for uri in [
        "demo://resource/dynamic/text/17",
        "demo://resource/dynamic/blob/18",
    ] {
        walker.read(uri);
    }
    // Links and embedded resources are read back, the links not listed among them.
    walker.call("get-resource-links", r#"{"count":2}"#, &[]);
    walker.read("demo://resource/dynamic/blob/1");
    walker.read("demo://resource/dynamic/text/2");
    for kind in ["Text", "Blob"] {
        let arguments = format!(r#"{{"resourceType":"{kind}","resourceId":5}}"#);
        walker.call("get-resource-reference", &arguments, &[]);
        let kind = kind.to_ascii_lowercase();
        walker.read(&format!("demo://resource/dynamic/{kind}/5"));
    }
    let changed = ["notifications/resources/list_changed"];
    for kind in ["resourceLink", "resource"] {
        let file = own_file();
        let data = "data:text/plain,compress%20me%20please";
        let arguments = format!(r#"{{"outputType":"{kind}","name":"{file}","data":"{data}"}}"#);
        walker.call("gzip-file-as-resource", &arguments, &changed);
        walker.read(&format!("demo://resource/session/{file}"));
    }
    walker.step("resources/list with files", "resources/list", "", &[]);
}

fn subscriptions(walker: &mut Walker) {
    let uri = r#"{"uri":"demo://resource/static/document/features.md"}"#;
    let logged = ["notifications/message Received Subscribe"];
    walker.step("subscribe", "resources/subscribe", uri, &logged);
    let updated = ["notifications/resources/updated"];
    walker.call("toggle-subscriber-updates", "{}", &updated);
    walker.call("toggle-subscriber-updates", "{}", &[]);
    let logged = ["notifications/message Received Unsubscribe"];
    walker.step("unsubscribe", "resources/unsubscribe", uri, &logged);
}

fn prompts(walker: &mut Walker) {
    walker.step("prompts/list", "prompts/list", "", &[]);
    walker.prompt("simple-prompt", "");
    walker.prompt("args-prompt", r#"{"city":"Z\u00fcrich"}"#);
    walker.prompt("args-prompt", r#"{"city":"Paris","state":"Texas"}"#);
    walker.prompt(
        "completable-prompt",
        r#"{"department":"Sales","name":"Eve"}"#,
    );
    walker.prompt(
        "resource-prompt",
        r#"{"resourceType":"Text","resourceId":"3"}"#,
    );
    walker.prompt(
        "resource-prompt",
        r#"{"resourceType":"Blob","resourceId":"4"}"#,
    );
}

fn completions(walker: &mut Walker) {
    let prompt = r#"{"type":"ref/prompt","name":"completable-prompt"}"#;
    walker.complete(prompt, r#"{"name":"department","value":"S"}"#, "");
    let context = r#","context":{"arguments":{"department":"Engineering"}}"#;
    walker.complete(prompt, r#"{"name":"name","value":""}"#, context);
    let prompt = r#"{"type":"ref/prompt","name":"resource-prompt"}"#;
    walker.complete(prompt, r#"{"name":"resourceType","value":"B"}"#, "");
    for kind in ["text", "blob"] {
        let uri = format!("demo://resource/dynamic/{kind}/{{resourceId}}");
        let template = format!(r#"{{"type":"ref/resource","uri":"{uri}"}}"#);
        walker.used.push(format!("template {uri}"));
        walker.complete(&template, r#"{"name":"resourceId","value":"12"}"#, "");
    }
}

/// The tools that ask the client.
fn questions(walker: &mut Walker) {
    walker.call(
        "trigger-sampling-request",
        r#"{"prompt":"why \u00e9 \"so\"?","maxTokens":7}"#,
        &["sampling/createMessage"],
    );
    walker.call(
        "trigger-sampling-request",
        r#"{"prompt":"this will be refused"}"#,
        &["sampling/createMessage"],
    );
    if !walker.revision.can_elicit {
        return;
    }
    let asked = ["elicitation/create"];
    walker.call("trigger-elicitation-request", "{}", &asked);
    if !walker.revision.has_tasks {
        return;
    }
    let url = r#"{"url":"https://example.com/a?b=c","message":"go","elicitationId":"chosen-id-1"}"#;
    walker.call("trigger-url-elicitation", url, &asked);
    let url = r#"{"url":"https://example.com/d"}"#;
    walker.call("trigger-url-elicitation", url, &asked);
    let url = r#"{"url":"https://example.com/e","errorPath":true}"#;
    walker.call("trigger-url-elicitation", url, &[]);
    walker.call("trigger-url-elicitation", url, &asked);
}

fn log(walker: &mut Walker) {
    for level in ["emergency", "debug"] {
        let params = format!(r#"{{"level":"{level}"}}"#);
        walker.step(&format!("level {level}"), "logging/setLevel", &params, &[]);
    }
    let logged = ["notifications/message message"];
    walker.call("toggle-simulated-logging", "{}", &logged);
    walker.call("toggle-simulated-logging", "{}", &[]);
}

/// Errors, and results that are errors.
fn what_is_wrong(walker: &mut Walker) {
    walker.step(
        "no such tool",
        "tools/call",
        r#"{"name":"nonesuch","arguments":{}}"#,
        &[],
    );
    walker.call("get-sum", r#"{"a":"one","b":2}"#, &[]);
    walker.call("get-resource-links", r#"{"count":11}"#, &[]);
    walker.step(
        "no such prompt",
        "prompts/get",
        r#"{"name":"nonesuch"}"#,
        &[],
    );
    walker.step(
        "no argument",
        "prompts/get",
        r#"{"name":"args-prompt","arguments":{}}"#,
        &[],
    );
    walker.read("demo://resource/dynamic/text/none");
    walker.read("demo://nonesuch/1");
    walker.complete(
        r#"{"type":"ref/prompt","name":"nonesuch"}"#,
        r#"{"name":"a","value":""}"#,
        "",
    );
    walker.step(
        "no such level",
        "logging/setLevel",
        r#"{"level":"loud"}"#,
        &[],
    );
    walker.step("no such method", "nonesuch/method", "{}", &[]);
    walker.call(
        "simulate-research-query",
        r#"{"topic":"not as a task"}"#,
        &[],
    );
}

/// Waits for a message of a task's that has this status.
fn await_status(walker: &mut Walker, status: &str) {
    let status = format!(r#""status":"{status}""#);
    let mut all = Vec::new();
    loop {
        let is_task = |heard: &Heard| heard.method == "notifications/tasks/status";
        let Some(heard) = walker.conversation.next_heard(is_task) else {
            break;
        };
        let is_last = heard.raw.contains(&status);
        all.push(heard);
        if is_last {
            break;
        }
    }
    walker.keep("states of the task", all);
}

fn start_task(walker: &mut Walker, arguments: &str) -> String {
    let more = r#","task":{"ttl":60000}"#;
    let result = walker.call_with("simulate-research-query", arguments, more, &[]);
    result["task"]["taskId"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn a_task(walker: &mut Walker) {
    let id = start_task(walker, r#"{"topic":"g\u00e4teways"}"#);
    let params = format!(r#"{{"taskId":"{id}"}}"#);
    await_status(walker, "completed");
    walker.step("tasks/get", "tasks/get", &params, &[]);
    walker.step("tasks/result", "tasks/result", &params, &[]);
    walker.step("tasks/list", "tasks/list", "", &[]);
    walker.step("cancel what has ended", "tasks/cancel", &params, &[]);
    let other = start_task(walker, r#"{"topic":"to be cancelled"}"#);
    let params = format!(r#"{{"taskId":"{other}"}}"#);
    await_status(walker, "working");
    walker.step("tasks/cancel", "tasks/cancel", &params, &[]);
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let name = format!("{method} of no task");
        walker.step(&name, method, r#"{"taskId":"nonesuch"}"#, &[]);
    }
}

fn a_task_that_asks(walker: &mut Walker) {
    let id = start_task(walker, r#"{"topic":"python","ambiguous":true}"#);
    await_status(walker, "input_required");
    let params = format!(r#"{{"taskId":"{id}"}}"#);
    // The question comes on the stream of this request, which ends with the task.
    walker.step(
        "tasks/result",
        "tasks/result",
        &params,
        &["elicitation/create"],
    );
    await_status(walker, "completed");
    walker.step("tasks/get", "tasks/get", &params, &[]);
}

fn tasks_of_the_client(walker: &mut Walker) {
    let asked = ["sampling/createMessage", "tasks/get", "tasks/result"];
    walker.call(
        "trigger-sampling-request-async",
        r#"{"prompt":"later"}"#,
        &asked,
    );
    let asked = ["elicitation/create", "tasks/get", "tasks/result"];
    walker.call("trigger-elicitation-request-async", "{}", &asked);
}
