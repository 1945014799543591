//! Documents before and after, and that everything else stays.

use std::rc::Rc;

use proptest::prelude::*;

use super::*;
use crate::{
    config::compiled::CompiledUser,
    mcp::{envelope, json::DEPTH_MAX, reply_scan::scan_reply},
    route::{
        family::Family,
        learned::Learned,
        names::{Route, route_prompt, route_task, route_tool, route_uri},
    },
    upstream::target::Targets,
};

fn host(json: serde_json::Value) -> Rc<VirtualHost> {
    let config =
        serde_json::from_value(serde_json::json!({"virtual_hosts": {"v": {"backends": json}}}))
            .unwrap();
    let user = CompiledUser::new(&config, &Targets::default());
    user.host("v").unwrap().clone()
}

fn two() -> Rc<VirtualHost> {
    host(serde_json::json!({
        "a": {"url": "http://a/mcp"},
        "b": {"url": "http://b/mcp", "tool_name_aliases": {"go": "t"}}
    }))
}

fn one() -> Rc<VirtualHost> {
    host(serde_json::json!({"b": {"url": "http://b/mcp", "tool_name_aliases": {"go": "t"}}}))
}

fn applied(document: &str, edits: &Edits) -> String {
    let mut out = Vec::new();
    edits.apply(&mut out, document.as_bytes());
    String::from_utf8(out).unwrap()
}

/// The document of backend `b` as the client gets it.
fn exposed(host: &VirtualHost, method: &str, document: &str) -> String {
    let scan = scan_reply(document.as_bytes()).unwrap();
    let mut edits = Edits::default();
    let backend = host.backends.len() - 1;
    let bytes = document.as_bytes();
    match scan.kind {
        ReplyKind::Request => expose_request(host, backend, bytes, &scan, &mut edits),
        ReplyKind::Notification => expose_notification(host, backend, bytes, &scan, &mut edits),
        _ => expose_response(host, backend, method, bytes, &scan, &mut edits),
    }
    applied(document, &edits)
}

/// Each `<`…`>` of the pattern is a value: before, the text in it; after, with `mark` in front.
/// `[ui]` values start with `ui://`, which stays in front of the mark.
#[track_caller]
fn assert_exposed(method: &str, pattern: &str) {
    let mut before = String::new();
    let mut after = String::new();
    for (index, part) in pattern.split(['<', '>']).enumerate() {
        before.push_str(part.trim_start_matches(['@', '#']));
        if index % 2 == 0 {
            after.push_str(part);
            continue;
        }
        if let Some(id) = part.strip_prefix('#') {
            after.push_str("1.b.");
            after.push_str(id);
        } else if let Some(rest) = part.strip_prefix("ui://") {
            after.push_str("ui://b-");
            after.push_str(rest);
        } else {
            after.push_str("b-");
            after.push_str(part);
        }
    }
    assert_eq!(exposed(&two(), method, &before), after);
    assert_eq!(exposed(&one(), method, &before), before, "one backend");
}

#[test]
fn tool_results() {
    let result = r##"{"id":1,"result":{"content":[
        {"type":"text","text":"see x://1","uri":"x://1"},
        {"uri" : "<x://1>","type":"resource_link","name":"x://1","_meta":{"uri":"x"}},
        {"type":"resource","resource":{"text":"x","uri":"<ui://app>"},"uri":"x"},
        {"type":"image","data":"AA","mimeType":"image/png"}],
        "structuredContent":{"uri":"x://1","taskId":"1"},
        "_meta":{"io.modelcontextprotocol/related-task":{"taskId":"<#t>"},"uri":"x"}}}"##;
    assert_exposed("tools/call", result);
    assert_exposed("tasks/result", result);
    // The same members mean nothing in the answers to other methods.
    let other = r##"{"id":1,"result":{"content":[{"type":"resource_link","uri":"x"}],
        "contents":[{"uri":"x"}],"taskId":"1","uri":"x","messages":[]}}"##;
    assert_exposed("completion/complete", other);
}

#[test]
fn tasks() {
    assert_exposed(
        "tools/call",
        r##"{"id":1,"result":{"task":{"taskId":"<#7>","status":"working"},"taskId":"7"}}"##,
    );
    for method in ["tasks/get", "tasks/cancel"] {
        let result = r##"{"id":1,"result":{"status":"working","taskId":"<#7>","ttl":1}}"##;
        assert_exposed(method, result);
    }
    assert_exposed(
        "",
        r##"{"method":"notifications/tasks/status","params":{"taskId":"<#7>","status":"x"}}"##,
    );
    assert_exposed(
        "",
        r##"{"method":"notifications/progress","params":{"progressToken":1,"taskId":"7",
        "_meta":{"io.modelcontextprotocol/related-task":{"taskId":"<#7>"}}}}"##,
    );
    // The client's own tasks keep the client's ids.
    assert_exposed(
        "",
        r##"{"id":1,"method":"tasks/get","params":{"taskId":"7"}}"##,
    );
}

#[test]
fn prompts_and_resources() {
    assert_exposed(
        "prompts/get",
        r##"{"id":1,"result":{"description":"d","messages":[
        {"role":"user","content":{"type":"resource","resource":{"uri":"<x:1>","blob":"AA"}}},
        {"role":"user","content":[{"type":"resource_link","uri":"<>"},{"type":"text"}]}]}}"##,
    );
    assert_exposed(
        "resources/read",
        r##"{"id":1,"result":{"contents":[{"uri":"<x:1>","text":"x:1"},{"blob":"","uri":"<ui://a/b>"}]}}"##,
    );
    assert_exposed(
        "",
        r##"{"method":"notifications/resources/updated","params":{"uri":"<x:1/part>","title":"x:1"}}"##,
    );
    assert_exposed(
        "",
        r##"{"method":"notifications/message","params":{"uri":"x:1","data":{"uri":"x:1"}}}"##,
    );
}

#[test]
fn conversations() {
    assert_exposed(
        "",
        r##"{"id":1,"method":"sampling/createMessage","params":{"messages":[
        {"role":"user","content":{"type":"text","text":"x:1"}},
        {"role":"user","content":[{"type":"tool_result","toolUseId":"x:1","content":[
            {"type":"resource_link","uri":"<x:1>"},
            {"type":"resource","resource":{"uri":"<x:2>"}}]},
            {"type":"tool_use","id":"i","name":"n","input":{"uri":"x:1"}}]}],
        "tools":[{"name":"n"}],"maxTokens":1,
        "_meta":{"io.modelcontextprotocol/related-task":{"taskId":"<#7>"}}}}"##,
    );
}

#[test]
fn elicitations() {
    assert_exposed(
        "",
        r##"{"id":1,"method":"elicitation/create","params":{"mode":"url","url":"http://u/",
        "elicitationId":"<#e>","message":"m"}}"##,
    );
    assert_exposed(
        "",
        r##"{"method":"notifications/elicitation/complete","params":{"elicitationId":"<#e>"}}"##,
    );
    assert_exposed(
        "tools/call",
        r##"{"id":1,"error":{"code":-32042,"message":"m","data":{"elicitations":[
        {"mode":"url","elicitationId":"<#e>","url":"http://u/"},{"elicitationId":"<#f>"}]}}}"##,
    );
    assert_exposed(
        "tools/call",
        r##"{"id":1,"error":{"code":-32000,"data":{"elicitations":[{"elicitationId":"e"}]}}}"##,
    );
}

#[test]
fn errors() {
    assert_exposed(
        "resources/read",
        r##"{"id":1,"error":{"code":-32002,"message":"no x:1","data":{"uri":"<x:1>"}}}"##,
    );
    assert_exposed(
        "resources/read",
        r##"{"id":1,"error":{"code":-32002,"data":"x:1"}}"##,
    );
}

#[test]
fn what_is_malformed_stays() {
    for document in [
        r#"{"id":1,"result":null}"#,
        r#"{"id":1,"result":[]}"#,
        r#"{"id":1,"result":{"content":7,"task":"x","_meta":[]}}"#,
        r#"{"id":1,"result":{"content":{},"task":{"taskId":7}}}"#,
        r#"{"id":1,"result":{"content":[{"type":"resource_link","uri":7},{"type":"resource"}]}}"#,
        r#"{"id":1,"result":{"content":[{"type":"resource_link","uri":"\ud800"}]}}"#,
        r#"{"id":1,"result":{"content":[{"type":"resource","resource":"uri"}]}}"#,
        r#"{"id":1,"error":{"data":{"uri":{}}}}"#,
        r#"{"id":1,"error":7}"#,
        r#"{"method":"notifications/resources/updated"}"#,
        r#"{"method":"notifications/resources/updated","params":[]}"#,
    ] {
        assert_eq!(exposed(&two(), "tools/call", document), document);
    }
}

/// What the backend gets for a client's body, and where it is routed.
fn original(host: &VirtualHost, body: &str) -> Option<(String, String)> {
    let bytes = body.as_bytes();
    let envelope = envelope::scan(bytes, DEPTH_MAX).unwrap();
    let method = envelope.method.unwrap().slice(bytes);
    let text = |at: Option<Span>| {
        json::unescape(at.unwrap().slice(bytes))
            .unwrap()
            .into_owned()
    };
    let none = Learned::default();
    let named;
    let route: Route<'_> = match method {
        b"tools/call" => {
            named = text(envelope.name);
            route_tool(host, &none, &named)
        }
        b"prompts/get" => {
            named = text(envelope.name);
            route_prompt(host, &none, &named)
        }
        b"completion/complete" => {
            let (family, at) = reference(bytes, &envelope)?;
            named = text(Some(at));
            if family == Family::Prompts {
                route_prompt(host, &none, &named)
            } else {
                route_uri(host, &none, &named)
            }
        }
        b"tasks/get" | b"tasks/result" | b"tasks/cancel" => {
            named = text(envelope.task_id);
            route_task(host, &named)
        }
        _ => {
            named = text(envelope.uri);
            route_uri(host, &none, &named)
        }
    }?;
    let mut edits = Edits::default();
    original_params(host, &route, method, bytes, &envelope, &mut edits);
    let key = host.backends[route.backend].key.to_string();
    Some((key, applied(body, &edits)))
}

#[track_caller]
fn assert_original(host: &VirtualHost, method: &str, params: [&str; 2]) {
    let body = |params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1, "method":"{method}","params":{{{params}}}}}"#)
    };
    let expected = ("b".to_owned(), body(params[1]));
    assert_eq!(original(host, &body(params[0])), Some(expected));
}

#[test]
fn requests_reach_the_backend_in_its_own_words() {
    let host = two();
    let both = |method: &str, params| assert_original(&host, method, params);
    both(
        "tools/call",
        [
            r#""arguments":{"name":"b-x"},"name":"b-x""#,
            r#""arguments":{"name":"b-x"},"name":"x""#,
        ],
    );
    both("tools/call", [r#""name":"go""#, r#""name":"t""#]);
    both("prompts/get", [r#""name":"b-p\"""#, r#""name":"p\"""#]);
    for method in [
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
    ] {
        both(method, [r#""uri":"b-x:1""#, r#""uri":"x:1""#]);
        both(method, [r#""uri":"ui:\/\/b-x""#, r#""uri":"ui://x""#]);
    }
    both(
        "completion/complete",
        [
            r#""ref":{"type":"ref/prompt","name":"b-p","uri":"b-p"},"argument":{"name":"b-p"}"#,
            r#""ref":{"type":"ref/prompt","name":"p","uri":"b-p"},"argument":{"name":"b-p"}"#,
        ],
    );
    both(
        "completion/complete",
        [
            r#""ref":{"uri":"b-x:{y}","type":"ref/resource","name":"b-p"}"#,
            r#""ref":{"uri":"x:{y}","type":"ref/resource","name":"b-p"}"#,
        ],
    );
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        both(method, [r#""taskId":"1.b.7""#, r#""taskId":"7""#]);
    }
}

#[test]
fn a_related_task_is_the_backends_or_stays() {
    let host = two();
    let meta = |id: &str| {
        format!(
            r#""name":"b-x","_meta":{{"io.modelcontextprotocol/related-task":{{"taskId":{id}}}}}"#
        )
    };
    for (given, expected) in [
        (r#""1.b.7""#, r#""7""#),
        (r#""1.a.7""#, r#""1.a.7""#),
        (r#""own""#, r#""own""#),
        ("7", "7"),
    ] {
        let expected = meta(expected).replace("b-x", "x");
        assert_original(&host, "tools/call", [&meta(given), &expected]);
    }
}

#[test]
fn a_clients_answer_may_be_tied_to_a_task() {
    let answered = |id: &str, backend: usize| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"action":"accept","content":{{"taskId":{id}}},
            "_meta":{{"io.modelcontextprotocol/related-task":{{"taskId":{id}}}}}}}}}"#
        );
        let envelope = envelope::scan(body.as_bytes(), DEPTH_MAX).unwrap();
        let mut edits = Edits::default();
        original_related_task(&two(), backend, body.as_bytes(), &envelope, &mut edits);
        (edits.is_empty(), applied(&body, &edits))
    };
    let (_, changed) = answered(r#""1.b.7""#, 1);
    assert!(
        changed.contains(r#""content":{"taskId":"1.b.7"}"#),
        "{changed}"
    );
    assert!(
        changed.ends_with(r#"related-task":{"taskId":"7"}}}}"#),
        "{changed}"
    );
    assert!(answered(r#""1.b.7""#, 0).0);
    assert!(answered(r#""own""#, 1).0);
    assert!(answered("{}", 1).0);
}

#[test]
fn with_one_backend_only_aliases_differ() {
    let host = one();
    for (method, params) in [
        ("tools/call", r#""name":"b-\u0078""#),
        ("resources/read", r#""uri":"ui:\/\/x""#),
        ("tasks/get", r#""taskId":"1.b.7""#),
        (
            "completion/complete",
            r#""ref":{"type":"ref/prompt","name":"b-p"}"#,
        ),
    ] {
        assert_original(&host, method, [params, params]);
    }
    assert_original(&host, "tools/call", [r#""name":"go""#, r#""name":"t""#]);
}

#[test]
fn references_of_other_types_lead_nowhere() {
    for reference in [
        r#"{"type":"ref/other","name":"b-p"}"#,
        r#"{"name":"b-p"}"#,
        r#"{"type":"ref/prompt","uri":"b-p"}"#,
        r#""b-p""#,
    ] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{{"ref":{reference}}}}}"#
        );
        assert_eq!(original(&two(), &body), None, "{reference}");
    }
}

proptest! {
    /// A URI handed out in a result, asked for again, reaches the backend as it handed it out, and
    /// the bytes around it are the same.
    #[test]
    fn what_is_handed_out_leads_back(uri in "(ui://)?\\PC{0,12}", text in "\\PC{0,12}") {
        let quoted = serde_json::to_string(&uri).unwrap();
        let text = serde_json::to_string(&text).unwrap();
        let (before, after) = (
            format!(r#"{{"id":1,"result":{{"content":[{{"type":"text","text":{text}}},{{"type":"resource_link","uri":"#),
            format!(r#","name":{text}}}],"x":{text}}}}}"#),
        );
        let shown = exposed(&two(), "tools/call", &format!("{before}{quoted}{after}"));
        let shown = shown.strip_prefix(&before).and_then(|rest| rest.strip_suffix(&after));
        prop_assert!(shown.is_some());
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{{"uri":{}}}}}"#,
            shown.unwrap()
        );
        let (key, asked) = original(&two(), &body).unwrap();
        prop_assert_eq!(key, "b");
        let asked: serde_json::Value = serde_json::from_str(&asked).unwrap();
        prop_assert_eq!(&asked["params"]["uri"], &serde_json::Value::from(uri));
    }

    /// Whatever a backend sends, the outcome is a document again and differs in the URIs alone.
    #[test]
    fn any_structure_stays(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                r#"{"type":"resource_link","uri":"u"}"#, r#"{"type":"resource","resource":{"uri":"u"}}"#,
                "7", "null", "[]", r#"{"type":"tool_result","content":[{"type":"resource_link","uri":"u"}]}"#,
                r#"{"type":"text","text":"u"}"#, r#""u""#, "{}",
            ]), 0..6),
        method in prop::sample::select(vec!["tools/call", "tasks/result", "prompts/get", "resources/read"]),
    ) {
        let list = parts.join(",");
        let document = format!(
            r#"{{"id":1,"result":{{"content":[{list}],"contents":[{list}],"messages":[{{"content":[{list}]}}]}}}}"#
        );
        let shown = exposed(&two(), method, &document);
        prop_assert!(serde_json::from_str::<serde_json::Value>(&shown).is_ok());
        prop_assert_eq!(shown.replace("b-u", "u"), document);
        let has_blocks = parts.iter().any(|part| part.contains(r#""uri""#));
        prop_assert_eq!(shown.contains("b-u"), has_blocks && method != "resources/read"
            || method == "resources/read" && parts.iter().any(|part| part.ends_with(r#","uri":"u"}"#)));
    }
}
