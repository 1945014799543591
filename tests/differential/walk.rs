//! A client that does the same things in the same order each time, and keeps what it heard.

use std::{
    sync::{Arc, Mutex},
    thread,
};

use serde_json::Value;

use crate::{
    answers::{ONE_ROOT, Roots, answers},
    conversation::{Conversation, Heard, Kind},
    masks::Masks,
};

/// A revision and what a client of it can do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Revision {
    /// Its date.
    pub(crate) name: &'static str,
    /// Its clients may send several messages at once.
    pub(crate) has_batches: bool,
    /// The client's raw capabilities.
    capabilities: &'static str,
    pub(crate) can_elicit: bool,
    pub(crate) has_tasks: bool,
}

/// The legacy revisions, the oldest first.
pub(crate) const REVISIONS: [Revision; 4] = [
    Revision {
        name: "2024-11-05",
        has_batches: false,
        capabilities: r#"{"roots":{"listChanged":true},"sampling":{}}"#,
        can_elicit: false,
        has_tasks: false,
    },
    Revision {
        name: "2025-03-26",
        has_batches: true,
        capabilities: r#"{"roots":{"listChanged":true},"sampling":{}}"#,
        can_elicit: false,
        has_tasks: false,
    },
    Revision {
        name: "2025-06-18",
        has_batches: false,
        capabilities: r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}"#,
        can_elicit: true,
        has_tasks: false,
    },
    Revision {
        name: "2025-11-25",
        has_batches: false,
        capabilities: r#"{"roots":{"listChanged":true},"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}},"tasks":{"list":{},"cancel":{},"requests":{"sampling":{"createMessage":{}},"elicitation":{"create":{}}}}}"#,
        can_elicit: true,
        has_tasks: true,
    },
];

/// What a server lists: its name here, the member of the result, the member that names one.
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
    pub(crate) revision: Revision,
    pub(crate) conversation: Conversation,
    pub(crate) roots: Roots,
    steps: Vec<Step>,
    pub(crate) masks: Masks,
    /// What the server lists: tools, prompts, resources and templates.
    listed: Vec<String>,
    /// What was used of it.
    pub(crate) used: Vec<String>,
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

    /// What the server says of itself, but for its name: a gateway has its own.
    pub(crate) fn greeting(&mut self) {
        let mut greeting = self.conversation.greeting.json();
        // What is false may as well be left out.
        for capability in greeting["capabilities"]
            .as_object_mut()
            .unwrap()
            .values_mut()
        {
            if let Some(members) = capability.as_object_mut() {
                members.retain(|_, value| *value != false);
            }
        }
        for member in ["protocolVersion", "capabilities", "instructions"] {
            let text = serde_json::to_string(&greeting[member]).unwrap();
            self.steps.push(Step {
                name: format!("initialize: {member}"),
                heard: vec![("result".to_owned(), self.masks.lay(&text))],
            });
        }
    }

    /// Keeps what a step brought.
    pub(crate) fn keep(&mut self, name: &str, mut heard: Vec<Heard>) {
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
    pub(crate) fn step(
        &mut self,
        name: &str,
        method: &str,
        params: &str,
        expected: &[&str],
    ) -> Value {
        let outcome = self.conversation.ask(method, params);
        let mut heard = outcome.before;
        self.await_all(&mut heard, expected);
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

    /// Waits for what is expected and has not come.
    fn await_all(&mut self, heard: &mut Vec<Heard>, expected: &[&str]) {
        let is = |heard: &Heard, expected: &str| match expected.split_once(' ') {
            Some((method, part)) => heard.method == method && heard.raw.contains(part),
            None => heard.method == expected,
        };
        let mut missing: Vec<&str> = expected.to_vec();
        for message in &*heard {
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
    }

    /// Asks several things at once.
    pub(crate) fn batch(&mut self, requests: &[(&str, &str)], expected: &[&str]) {
        let (answers, mut heard) = self.conversation.ask_batch(requests);
        self.await_all(&mut heard, expected);
        heard.extend(answers);
        self.keep("a batch", heard);
    }

    /// Calls a tool with raw arguments.
    pub(crate) fn call(&mut self, tool: &str, arguments: &str, expected: &[&str]) -> Value {
        self.call_with(tool, arguments, "", expected)
    }

    /// The same with more raw members of the params, behind a comma.
    pub(crate) fn call_with(
        &mut self,
        tool: &str,
        arguments: &str,
        more: &str,
        expected: &[&str],
    ) -> Value {
        self.used.push(format!("tool {tool}"));
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments}{more}}}"#);
        let name = format!("{tool} {arguments}{more}");
        self.step(&name, "tools/call", &params, expected)
    }

    pub(crate) fn read(&mut self, uri: &str) -> Value {
        self.used.push(format!("resource {uri}"));
        let params = format!(r#"{{"uri":"{uri}"}}"#);
        self.step(&format!("read {uri}"), "resources/read", &params, &[])
    }

    pub(crate) fn prompt(&mut self, name: &str, arguments: &str) {
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

    pub(crate) fn complete(&mut self, reference: &str, argument: &str, more: &str) {
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

/// One part of a whole walk, in a session of its own.
pub(crate) type Part = fn(&mut Walker);

/// Walks some parts at once.
pub(crate) fn walk(url: &str, revision: Revision, parts: &[Part]) -> Vec<Walked> {
    let walk_one = |part: Part| {
        let mut walker = Walker::open(url, revision);
        part(&mut walker);
        walker.end()
    };
    thread::scope(|scope| {
        let walks: Vec<_> = parts
            .iter()
            .map(|part| scope.spawn(move || walk_one(*part)))
            .collect();
        walks.into_iter().map(|walk| walk.join().unwrap()).collect()
    })
}
