//! Every tool, prompt, resource, template, completion, subscription and task reaches the server
//! that listed it, and no other.

use serde_json::Value;

use crate::{
    conversation::Kind,
    stage::{KEYS, Stage, split, split_uri},
};

/// Arguments of tools that take some; most others refuse these and have been reached all the same.
fn arguments(tool: &str) -> &'static str {
    match tool {
        "trigger-long-running-operation" => r#"{"duration":0.01,"steps":1}"#,
        "gzip-file-as-resource" => r#"{"name":"merged.gz","data":"data:text/plain,some"}"#,
        "trigger-url-elicitation" => r#"{"url":"https://example.com/"}"#,
        "trigger-sampling-request" => r#"{"prompt":"merged"}"#,
        "get-resource-links" => r#"{"count":2}"#,
        _ => "{}",
    }
}

/// Answers that let every tool end.
pub(crate) fn answer(method: &str) -> String {
    let result = match method {
        "roots/list" => r#"{"roots":[]}"#,
        "sampling/createMessage" => {
            r#"{"role":"assistant","content":{"type":"text","text":"so"},"model":"m"}"#
        }
        "elicitation/create" => r#"{"action":"decline"}"#,
        _ => "{}",
    };
    format!(r#""result":{result}"#)
}

pub(crate) fn open() -> Stage {
    Stage::open(|asked| answer(&asked.method))
}

/// The member of each item of a whole list.
pub(crate) fn listed(stage: &Stage, method: &str, list: &str, member: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut cursor = String::new();
    loop {
        let result = stage.client.ask(method, &cursor).result();
        for item in result[list].as_array().unwrap() {
            names.push(item[member].as_str().unwrap().to_owned());
        }
        match result.get("nextCursor") {
            Some(next) => cursor = format!(r#"{{"cursor":{next}}}"#),
            None => return names,
        }
    }
}

/// How many of the names belong to each server; each belongs to one, and none stands twice.
fn counts(stage: &mut Stage, what: &str, names: &[String]) -> [usize; 3] {
    let mut counts = [0; 3];
    for name in names {
        match split_uri(name) {
            Some((key, _)) => {
                let index = KEYS.iter().position(|known| *known == key).unwrap();
                counts[index] += 1;
            }
            None => stage.findings.push(format!("{what} of no server: {name}")),
        }
    }
    let mut unique = names.to_vec();
    unique.sort();
    unique.dedup();
    stage.check(unique.len() == names.len(), || {
        format!("a {what} stands twice")
    });
    counts
}

#[test]
fn every_tool_reaches_the_server_that_listed_it() {
    let mut stage = open();
    let names = listed(&stage, "tools/list", "tools", "name");
    let counts = counts(&mut stage, "tool", &names);
    // All but those that need tasks of the client.
    assert_eq!(counts, [17, 17, 4], "{names:?}");
    for name in names {
        let Some((key, original)) = split(&name) else {
            continue;
        };
        let params = format!(
            r#"{{"name":"{name}","arguments":{}}}"#,
            arguments(&original)
        );
        let part = format!(r#""name":"{original}""#);
        let reply = stage.ask_one(key, "tools/call", &params, &part);
        stage.check(reply.kind == Kind::Result, || {
            format!("{name}: {}", reply.raw)
        });
    }
    stage.end();
}

#[test]
fn every_prompt_and_its_completion_reach_the_server_that_listed_it() {
    let mut stage = open();
    let names = listed(&stage, "prompts/list", "prompts", "name");
    assert_eq!(counts(&mut stage, "prompt", &names), [4, 4, 1], "{names:?}");
    for name in names {
        let Some((key, original)) = split(&name) else {
            continue;
        };
        let arguments = r#"{"city":"Rome","department":"Sales","name":"Eve","resourceType":"Text","resourceId":"3"}"#;
        let params = format!(r#"{{"name":"{name}","arguments":{arguments}}}"#);
        let part = format!(r#""name":"{original}""#);
        let reply = stage.ask_one(key, "prompts/get", &params, &part);
        stage.check(reply.kind == Kind::Result, || {
            format!("{name}: {}", reply.raw)
        });
        for uri in uris(&reply.json()["messages"]) {
            read(&mut stage, key, &uri);
        }
        if original == "completable-prompt" {
            let reference = format!(r#"{{"type":"ref/prompt","name":"{name}"}}"#);
            let values = complete(&mut stage, key, &reference, &part, "department");
            stage.check(values == ["Sales", "Support"], || {
                format!("{name}: {values:?}")
            });
        }
    }
    stage.end();
}

/// Completes an argument that begins with `S`.
fn complete(
    stage: &mut Stage,
    key: &str,
    reference: &str,
    part: &str,
    argument: &str,
) -> Vec<String> {
    let params = format!(r#"{{"ref":{reference},"argument":{{"name":"{argument}","value":"S"}}}}"#);
    let reply = stage.ask_one(key, "completion/complete", &params, part);
    let values = reply.json()["completion"]["values"].clone();
    serde_json::from_value(values).unwrap_or_default()
}

/// Reads a URI, which must be the server's; the answer's contents have the same URI.
fn read(stage: &mut Stage, key: &str, uri: &str) {
    let Some((owner, original)) = split_uri(uri) else {
        stage.findings.push(format!("a URI of no server: {uri}"));
        return;
    };
    stage.check(owner == key, || format!("{uri} comes from {key}"));
    let params = format!(r#"{{"uri":"{uri}"}}"#);
    let part = format!(r#""uri":"{original}""#);
    let reply = stage.ask_one(key, "resources/read", &params, &part);
    let contents = reply.json()["contents"][0]["uri"].clone();
    stage.check(contents == uri, || {
        format!("{uri} is answered as {contents}: {}", reply.raw)
    });
}

/// The URIs that a content block, or one of many, names: links and embedded resources.
fn uris(content: &Value) -> Vec<String> {
    match content {
        Value::Array(blocks) => blocks.iter().flat_map(uris).collect(),
        Value::Object(block) => {
            let inner = block.get("content").map(uris).unwrap_or_default();
            let own = [&content["uri"], &content["resource"]["uri"]];
            let own = own.into_iter().filter_map(Value::as_str).map(str::to_owned);
            own.chain(inner).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn every_resource_and_template_reaches_the_server_that_listed_it() {
    let mut stage = open();
    let resources = listed(&stage, "resources/list", "resources", "uri");
    assert_eq!(
        counts(&mut stage, "resource", &resources),
        [7, 7, 2],
        "{resources:?}"
    );
    assert!(
        resources.iter().any(|uri| uri == "ui://f-panel/main"),
        "{resources:?}"
    );
    for uri in resources {
        if let Some((key, _)) = split_uri(&uri) {
            read(&mut stage, key, &uri);
        }
    }
    let method = "resources/templates/list";
    let templates = listed(&stage, method, "resourceTemplates", "uriTemplate");
    assert_eq!(
        counts(&mut stage, "template", &templates),
        [2, 2, 1],
        "{templates:?}"
    );
    for template in templates {
        let Some((key, original)) = split_uri(&template) else {
            continue;
        };
        let (start, _) = template.split_once('{').unwrap();
        read(&mut stage, key, &format!("{start}12"));
        let reference = format!(r#"{{"type":"ref/resource","uri":"{template}"}}"#);
        if key != "f" {
            let part = format!(r#""uri":"{original}""#);
            complete(&mut stage, key, &reference, &part, "resourceId");
        }
    }
    stage.end();
}

#[test]
fn what_a_result_names_can_be_read_back() {
    let mut stage = open();
    for (key, tool, arguments, count) in [
        ("a", "get-resource-links", r#"{"count":4}"#, 4),
        ("b", "get-resource-links", r#"{"count":2}"#, 2),
        (
            "a",
            "get-resource-reference",
            r#"{"resourceType":"Text","resourceId":9}"#,
            1,
        ),
        (
            "b",
            "get-resource-reference",
            r#"{"resourceType":"Blob","resourceId":8}"#,
            1,
        ),
        (
            "b",
            "gzip-file-as-resource",
            r#"{"name":"b.gz","data":"data:text/plain,b"}"#,
            1,
        ),
        ("f", "links", "{}", 3),
    ] {
        let params = format!(r#"{{"name":"{key}-{tool}","arguments":{arguments}}}"#);
        let part = format!(r#""name":"{tool}""#);
        let reply = stage.ask_one(key, "tools/call", &params, &part);
        let uris = uris(&reply.json()["content"]);
        stage.check(uris.len() == count, || format!("{params}: {}", reply.raw));
        for uri in uris {
            read(&mut stage, key, &uri);
        }
    }
    // The file that a tool of `b` made is listed now, and the client was told.
    let told = |stage: &mut Stage, method: &str| {
        let heard = stage.client.next_heard(|heard| heard.method == method);
        stage.check(heard.is_some(), || format!("{method} did not come"));
        heard
    };
    told(&mut stage, "notifications/resources/list_changed");
    let resources = listed(&stage, "resources/list", "resources", "uri");
    let file = "b-demo://resource/session/b.gz";
    stage.check(resources.iter().any(|uri| uri == file), || {
        format!("{resources:?}")
    });
    // Texts stay as they are: what a model reads was written by the server.
    let reply = stage
        .client
        .ask("tools/call", r#"{"name":"f-links","arguments":{}}"#)
        .reply;
    stage.check(reply.raw.contains("note://fixed in a text stays"), || {
        reply.raw.clone()
    });
    // A tool's user interface is named as it is listed.
    let tools = stage.client.ask("tools/list", "").reply;
    let names_panel = tools.raw.contains(r#""resourceUri":"ui://f-panel/main""#);
    stage.check(names_panel, || {
        "the user interface of f-links has another name".to_owned()
    });
    stage.end();
}

#[test]
fn a_subscription_is_the_servers_and_its_updates_are_the_clients() {
    let mut stage = open();
    let original = "demo://resource/static/document/startup.md";
    for key in ["a", "b"] {
        let uri = format!("{key}-{original}");
        let params = format!(r#"{{"uri":"{uri}"}}"#);
        let part = format!(r#""uri":"{original}""#);
        let reply = stage.ask_one(key, "resources/subscribe", &params, &part);
        stage.check(reply.kind == Kind::Result, || {
            format!("{uri}: {}", reply.raw)
        });
        let toggle = format!(r#"{{"name":"{key}-toggle-subscriber-updates","arguments":{{}}}}"#);
        stage.client.ask("tools/call", &toggle);
        let updated = |heard: &crate::conversation::Heard| {
            heard.method == "notifications/resources/updated" && heard.json()["uri"] == *uri
        };
        let heard = stage.client.next_heard(updated);
        stage.check(heard.is_some(), || format!("no update of {uri}"));
        stage.client.ask("tools/call", &toggle);
        let reply = stage.ask_one(key, "resources/unsubscribe", &params, &part);
        stage.check(reply.kind == Kind::Result, || {
            format!("{uri}: {}", reply.raw)
        });
    }
    stage.end();
}

#[test]
fn a_log_level_reaches_all_servers() {
    let mut stage = open();
    for recorder in &stage.recorders {
        recorder.take();
    }
    stage
        .client
        .ask("logging/setLevel", r#"{"level":"warning"}"#)
        .result();
    let sent: Vec<String> = stage
        .recorders
        .iter()
        .map(|recorder| recorder.take())
        .collect();
    for (key, sent) in KEYS.iter().zip(sent) {
        let is_told = sent.contains(r#""method":"logging/setLevel""#) && sent.contains("warning");
        stage.check(is_told, || format!("{key} was not told"));
    }
    stage.end();
}

#[test]
fn a_task_is_asked_for_where_it_runs() {
    let mut stage = open();
    let mut tasks = Vec::new();
    for key in ["a", "b"] {
        let params = format!(
            r#"{{"name":"{key}-simulate-research-query","arguments":{{"topic":"of {key}"}},"task":{{"ttl":60000}}}}"#
        );
        let result = stage.client.ask("tools/call", &params).result();
        let id = result["task"]["taskId"].as_str().unwrap().to_owned();
        tasks.push((key, id));
    }
    assert_ne!(tasks[0].1, tasks[1].1);
    let list = listed(&stage, "tasks/list", "tasks", "taskId");
    for (key, id) in &tasks {
        stage.check(list.contains(id), || {
            format!("the task of {key} is not in {list:?}")
        });
        let params = format!(r#"{{"taskId":"{id}"}}"#);
        for method in ["tasks/get", "tasks/cancel", "tasks/get"] {
            let reply = stage.ask_one(key, method, &params, "");
            let state = reply.json();
            stage.check(state["taskId"] == **id, || {
                format!("{method}: {}", reply.raw)
            });
        }
        let reply = stage.ask_one(key, "tasks/get", &params, "");
        let status = reply.json()["status"].clone();
        stage.check(status == "cancelled", || format!("{key}: {status}"));
    }
    let reply = stage.client.ask("tasks/get", r#"{"taskId":"nonesuch"}"#);
    stage.check(reply.error_code() == -32602, || reply.reply.raw.clone());
    stage.end();
}

#[test]
fn a_request_to_the_wrong_server_is_noticed() {
    let mut stage = open();
    let params = r#"{"name":"a-echo","arguments":{"message":"x"}}"#;
    stage.ask_one("b", "tools/call", params, r#""name":"echo""#);
    let findings = std::mem::take(&mut stage.findings);
    // `a` was asked, `b` was not, and `b` did not get the name.
    assert_eq!(findings.len(), 3, "{findings:?}");
    stage.end();
}
