//! All that `server-everything` can do, done once in the same order, and what was heard meanwhile.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use serde_json::Value;

use crate::{
    answers::{ONE_ROOT, Roots, TWO_ROOTS, answers},
    conversation::{Conversation, Heard, Kind},
    masks::Masks,
};

/// A revision and what a client of it can do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Revision {
    /// Its date.
    pub(crate) name: &'static str,
    /// The client's raw capabilities.
    capabilities: &'static str,
    can_elicit: bool,
    has_tasks: bool,
}

/// The legacy revisions, the oldest first.
pub(crate) const REVISIONS: [Revision; 4] = [
    Revision {
        name: "2024-11-05",
        capabilities: r#"{"roots":{"listChanged":true},"sampling":{}}"#,
        can_elicit: false,
        has_tasks: false,
    },
    Revision {
        name: "2025-03-26",
        capabilities: r#"{"roots":{"listChanged":true},"sampling":{}}"#,
        can_elicit: false,
        has_tasks: false,
    },
    Revision {
        name: "2025-06-18",
        capabilities: r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}"#,
        can_elicit: true,
        has_tasks: false,
    },
    Revision {
        name: "2025-11-25",
        capabilities: r#"{"roots":{"listChanged":true},"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}},"tasks":{"list":{},"cancel":{},"requests":{"sampling":{"createMessage":{}},"elicitation":{"create":{}}}}}"#,
        can_elicit: true,
        has_tasks: true,
    },
];

/// What a server lists: what it is called here, the member of the result, the member that names one.
const LISTS: [(&str, &str, &str); 4] = [
    ("tool", "tools", "name"),
    ("prompt", "prompts", "name"),
    ("resource", "resources", "uri"),
    ("template", "resourceTemplates", "uriTemplate"),
];

/// What one step brought, with all that differs each time put out of sight.
#[derive(Debug)]
pub(crate) struct Step {
    /// What was done.
    pub(crate) name: String,
    /// Each message heard, as its method and the bytes that count; the answer is the last.
    pub(crate) heard: Vec<(String, String)>,
}

/// A client on its way.
pub(crate) struct Walker {
    revision: Revision,
    conversation: Conversation,
    roots: Roots,
    steps: Vec<Step>,
    masks: Masks,
    /// What the server lists: tools, prompts, resources and templates.
    listed: Vec<String>,
    /// What was used of it.
    used: Vec<String>,
}

/// What a walk brought.
pub(crate) struct Walked {
    /// Its steps.
    pub(crate) steps: Vec<Step>,
    /// Whether each mask was needed, by its reason.
    pub(crate) masks: Vec<(&'static str, bool)>,
    /// What the server lists.
    pub(crate) listed: Vec<String>,
    /// What was used of it.
    pub(crate) used: Vec<String>,
}

/// Messages that come again and again while something is switched on, or once for several changes:
/// one is as good as many.
fn is_repeated(heard: &Heard) -> bool {
    let data = &heard.raw;
    match heard.method.as_str() {
        "notifications/tools/list_changed" | "notifications/resources/list_changed" => true,
        "notifications/resources/updated" | "roots/list" => true,
        "notifications/message" => {
            data.contains("level-message")
                || data.contains("level message")
                || data.contains("Roots updated")
        }
        _ => false,
    }
}

impl Walker {
    fn open(url: &str, revision: Revision) -> Self {
        let roots: Roots = Arc::new(Mutex::new(ONE_ROOT));
        let conversation =
            Conversation::open(url, revision.name, revision.capabilities, answers(&roots));
        Self {
            revision,
            conversation,
            roots,
            steps: Vec::new(),
            masks: Masks::new(),
            listed: Vec::new(),
            used: Vec::new(),
        }
    }

    /// Keeps what a step brought.
    fn keep(&mut self, name: &str, mut heard: Vec<Heard>) {
        // Which of several streams a message comes on, and so their order, is left to the server;
        // the order of messages of one kind is not. The answer has no method: it goes last.
        heard.sort_by_key(|heard| {
            let is_answer = matches!(heard.kind, Kind::Result | Kind::Error);
            (is_answer, heard.method.clone())
        });
        let heard = heard
            .into_iter()
            .map(|heard| {
                let method = match heard.kind {
                    Kind::Result => "result".to_owned(),
                    Kind::Error => "error".to_owned(),
                    Kind::Request => format!("{} (request)", heard.method),
                    Kind::Notification => heard.method,
                };
                (method, self.masks.lay(&heard.raw))
            })
            .collect();
        let name = self.masks.lay(name);
        self.steps.push(Step { name, heard });
    }

    /// Asks, and waits until each of `expected` has come too, on whatever stream: a method, and
    /// behind a space a part of what it says.
    fn step(&mut self, name: &str, method: &str, params: &str, expected: &[&str]) -> Value {
        let outcome = self.conversation.ask(method, params);
        let mut heard = outcome.before;
        let is = |heard: &Heard, expected: &str| match expected.split_once(' ') {
            Some((method, part)) => heard.method == method && heard.raw.contains(part),
            None => heard.method == expected,
        };
        let mut missing: Vec<&str> = expected.to_vec();
        for message in &heard {
            if let Some(at) = missing.iter().position(|expected| is(message, expected)) {
                missing.remove(at);
            }
        }
        for expected in missing {
            match self.conversation.next_heard(|heard| is(heard, expected)) {
                Some(message) => heard.push(message),
                None => heard.push(Heard {
                    kind: Kind::Notification,
                    method: format!("{expected} did not come"),
                    id: None,
                    raw: String::new(),
                }),
            }
        }
        let answer = outcome.reply.json();
        heard.push(outcome.reply);
        self.keep(name, heard);
        for (kind, list, member) in LISTS {
            for item in answer[list].as_array().into_iter().flatten() {
                self.listed
                    .push(format!("{kind} {}", item[member].as_str().unwrap()));
            }
        }
        answer
    }

    /// Calls a tool with raw arguments.
    fn call(&mut self, tool: &str, arguments: &str, expected: &[&str]) -> Value {
        self.call_with(tool, arguments, "", expected)
    }

    /// The same with more raw members of the params, behind a comma.
    fn call_with(&mut self, tool: &str, arguments: &str, more: &str, expected: &[&str]) -> Value {
        self.used.push(format!("tool {tool}"));
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments}{more}}}"#);
        let name = format!("{tool} {arguments}{more}");
        self.step(&name, "tools/call", &params, expected)
    }

    fn read(&mut self, uri: &str) -> Value {
        self.used.push(format!("resource {uri}"));
        let params = format!(r#"{{"uri":"{uri}"}}"#);
        self.step(&format!("read {uri}"), "resources/read", &params, &[])
    }

    fn prompt(&mut self, name: &str, arguments: &str) {
        self.used.push(format!("prompt {name}"));
        let params = match arguments {
            "" => format!(r#"{{"name":"{name}"}}"#),
            arguments => format!(r#"{{"name":"{name}","arguments":{arguments}}}"#),
        };
        self.step(
            &format!("prompt {name} {arguments}"),
            "prompts/get",
            &params,
            &[],
        );
    }

    fn complete(&mut self, reference: &str, argument: &str, more: &str) {
        let params = format!(r#"{{"ref":{reference},"argument":{argument}{more}}}"#);
        self.step(
            &format!("complete {params}"),
            "completion/complete",
            &params,
            &[],
        );
    }

    /// Ends the walk.
    fn end(mut self) -> Walked {
        let mut unasked = self.conversation.close();
        unasked.retain(|heard| !is_repeated(heard));
        let heard = unasked
            .into_iter()
            .map(|heard| (heard.method, self.masks.lay(&heard.raw)));
        self.steps.push(Step {
            name: "what nobody waited for".to_owned(),
            heard: heard.collect(),
        });
        Walked {
            masks: self.masks.needed().collect(),
            steps: self.steps,
            listed: self.listed,
            used: self.used,
        }
    }
}

/// A file name of this walk's own, always of the same length.
fn own_file() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1000);
    format!("walk-{}.gz", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// One part of the whole walk, in a session of its own.
type Part = fn(&mut Walker);

fn parts(revision: Revision) -> Vec<Part> {
    if revision.has_tasks {
        vec![all_but_tasks, a_task, a_task_that_asks, tasks_of_the_client]
    } else {
        vec![all_but_tasks]
    }
}

/// Walks all parts of a revision at once.
pub(crate) fn walk(url: &str, revision: Revision) -> Vec<Walked> {
    let walk_one = |part: Part| {
        let mut walker = Walker::open(url, revision);
        part(&mut walker);
        walker.end()
    };
    thread::scope(|scope| {
        let walks: Vec<_> = parts(revision)
            .into_iter()
            .map(|part| scope.spawn(move || walk_one(part)))
            .collect();
        walks.into_iter().map(|walk| walk.join().unwrap()).collect()
    })
}

fn all_but_tasks(walker: &mut Walker) {
    greeting(walker);
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
}

/// What the server says of itself, but for its name: a gateway has its own.
fn greeting(walker: &mut Walker) {
    let greeting = walker.conversation.greeting.json();
    for member in ["protocolVersion", "capabilities", "instructions"] {
        let text = serde_json::to_string(&greeting[member]).unwrap();
        walker.steps.push(Step {
            name: format!("initialize: {member}"),
            heard: vec![("result".to_owned(), walker.masks.lay(&text))],
        });
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
