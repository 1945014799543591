//! Documents in all forms, sound and faulty.

use super::*;

fn parse(text: &str) -> Document {
    parse_document(text, "f.json").unwrap()
}

fn refused(text: &str) -> Vec<String> {
    parse_document(text, "f.json")
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn lines(document: &Document) -> Vec<String> {
    document.findings.iter().map(ToString::to_string).collect()
}

#[test]
fn one_config_is_for_everyone() {
    let document = parse(r#"{"virtual_hosts":{"dev":{"backends":{"a":{"url":"http://a/mcp"}}}}}"#);
    assert!(document.users.is_empty());
    let config = document.of_subject("anyone").unwrap();
    assert_eq!(
        config.virtual_hosts["dev"].backends["a"].url,
        "http://a/mcp"
    );
    assert_eq!(lines(&document), Vec::<String>::new());
}

#[test]
fn users_have_their_own_and_the_star_is_the_rest() {
    let document = parse(
        r#"{"users":{
            "alice":{"virtual_hosts":{}},
            "*":{"virtual_hosts":{"dev":{"backends":{"a":{"url":"http://a/"}}}}}
        }}"#,
    );
    assert!(
        document
            .of_subject("alice")
            .unwrap()
            .virtual_hosts
            .is_empty()
    );
    assert_eq!(document.of_subject("bob").unwrap().virtual_hosts.len(), 1);
    let document = parse(r#"{"users":{"alice":{"virtual_hosts":{}}}}"#);
    assert!(document.of_subject("bob").is_none());
}

#[test]
fn faults_have_line_and_column() {
    assert_eq!(
        refused("{\n  nope"),
        ["error: f.json:2:3: key must be a string"]
    );
    let text = "{\"virtual_hosts\": {\n \"dev\": {\"backends\": {\n  \"a\": {\"url\": 7}}}}}";
    assert_eq!(
        refused(text),
        [
            "error: virtual_hosts.dev.backends.a: f.json:3:16: invalid type: integer `7`, \
          expected a string"
        ]
    );
    let text = r#"{"users":{"x":{"virtual_hosts":{"v":{"backends":{"a":{}, "b":[]}}}}}}"#;
    assert_eq!(
        refused(text),
        [
            "error: users.x.virtual_hosts.v.backends.a: f.json:1:55: missing field `url`",
            "error: users.x.virtual_hosts.v.backends.b: f.json:1:62: invalid type: sequence, \
             expected an object",
        ]
    );
}

#[test]
fn a_child_process_needs_a_command_and_leave() {
    let text = r#"{"virtual_hosts":{"v":{"backends":{
        "a":{"transport":"STDIO","command":"a","args":["x"],"allowed_tool_names":["t"]},
        "b":{"command":"b","cwd":"/","shared":true},
        "c":{"transport":"STDIO","url":"x"}}}}}"#;
    let refusal = "a child process is started only with --allow-stdio, and only for a backend \
                   of a local configuration file that has a `command`; this one is skipped";
    let told = |key: &str, place: &str| {
        format!("error: virtual_hosts.v.backends.{key}.transport: f.json:{place}: {refusal}")
    };
    let document = parse(text);
    assert_eq!(document.stdio_servers(), []);
    let expected = [told("a", "2:13"), told("b", "3:13"), told("c", "4:13")];
    assert_eq!(lines(&document)[..3], expected);

    let rules = DocumentRules {
        allow_stdio: true,
        ..DocumentRules::default()
    };
    let document = parse_document_under(rules, text, "f.json").unwrap();
    assert_eq!(lines(&document), [told("c", "4:13")]);
    let servers = document.stdio_servers();
    let labels: Vec<_> = servers.iter().map(|server| &*server.label).collect();
    assert_eq!(labels, ["v.a", "v.b"]);
    assert!(servers[1].is_shared && servers[1].cwd.as_deref() == Some("/"));
    let config = document.everyone.unwrap();
    assert_eq!(
        config.virtual_hosts["v"].backends["a"].allowed_tool_names,
        ["t"]
    );
}

#[test]
fn a_document_has_exactly_one_form() {
    assert_eq!(
        refused(r#"{"mcpserver":{}}"#),
        [
            "error: f.json:1:1: has none of `virtual_hosts`, `users`, `mcpServers`",
            "warning: f.json:1:14: unknown key `mcpserver` is ignored (did you mean \
             `mcpServers`?)",
        ]
    );
    let both = refused(r#"{"users":{},"servers":{}}"#);
    assert_eq!(both.len(), 1);
    assert!(both[0].contains("both `users` and `servers`"), "{both:?}");
    assert_eq!(refused("[]").len(), 1);
    assert_eq!(refused(r#"{"users":{},"users":{}}"#).len(), 1);
    assert_eq!(refused(r#"{"users":{"a":{}}}"#).len(), 1);
    assert_eq!(
        refused(r#"{"users":{"a":{"virtual_hosts":{"v":{}}}}}"#).len(),
        1
    );
    assert_eq!(refused(r#"{"users":null}"#).len(), 1);
}

#[test]
fn keys_that_look_wrong_are_remarked_upon() {
    let document = parse(
        "{\"$schema\":\"x\",\"virtual_hosts\":{\"v\":{\"backends\":{\n\
         \"a\":{\"url\":\"http://a/\",\"allowed_tools\":[],\"capabilities\":{},\n\"addHeaders\":{}}}}},\"color\":1}",
    );
    assert_eq!(
        lines(&document),
        [
            "warning: virtual_hosts.v.backends.a: f.json:2:40: unknown key `allowed_tools` is \
             ignored",
            "warning: virtual_hosts.v.backends.a: f.json:3:14: unknown key `addHeaders` is \
             ignored (did you mean `add_headers`?)",
            "warning: f.json:3:29: unknown key `color` is ignored",
        ]
    );
}

#[test]
fn an_unusable_backend_is_left_out_and_placed() {
    let document = parse(
        "{\"virtual_hosts\":{\"v\":{\"backends\":{\n \"a\":{\"url\":\"nowhere\"},\n \
         \"b\":{\"url\":\"http://b/\"}}}}}",
    );
    let config = document.everyone.as_ref().unwrap();
    assert_eq!(
        config.virtual_hosts["v"]
            .backends
            .keys()
            .collect::<Vec<_>>(),
        ["b"]
    );
    assert_eq!(
        lines(&document),
        [
            "error: virtual_hosts.v.backends.a.url: f.json:2:6: the URL is not absolute; write \
          http://... or https://..."
        ]
    );
}

#[test]
fn limits_refuse_the_document() {
    let backends: Vec<String> = (0..257)
        .map(|number| format!(r#""b{number}":{{"url":"http://a/"}}"#))
        .collect();
    let text = format!(
        r#"{{"virtual_hosts":{{"v":{{"backends":{{{}}}}}}}}}"#,
        backends.join(",")
    );
    assert!(refused(&text)[0].contains("too many backends"));
    let long = format!(r#"{{"users":{{}}{}}}"#, " ".repeat(4 * 1024 * 1024));
    assert!(refused(&long)[0].contains("more than 4194304 bytes"));
}

#[test]
fn later_files_replace_and_it_is_said() {
    let first = parse(r#"{"users":{"a":{"virtual_hosts":{}},"*":{"virtual_hosts":{}}}}"#);
    let second = parse(
        r#"{"users":{"a":{"virtual_hosts":{"v":{"backends":{"x":{"url":"http://x/"}}}}},
            "b":{"virtual_hosts":{}}}}"#,
    );
    let third = parse(r#"{"mcpServers":{"x":{"url":"http://x/"}}}"#);
    let files = [("1.json", first), ("2.json", second), ("3.json", third)];
    let merged = Document::merge(files.map(|(label, document)| (label.to_owned(), document)));
    assert_eq!(merged.users.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(merged.users["a"].virtual_hosts.len(), 1);
    assert!(
        merged
            .everyone
            .as_ref()
            .unwrap()
            .virtual_hosts
            .contains_key("default")
    );
    assert_eq!(
        lines(&merged),
        [
            "warning: users.a: 2.json: replaces the entry of 1.json",
            "warning: users.*: 3.json: replaces the entry of 1.json",
        ]
    );
}

#[test]
fn a_byte_order_mark_is_ignored() {
    assert_eq!(parse("\u{feff}{\"users\":{}}"), Document::default());
}

#[test]
fn tokens_are_revoked_beside_configurations_or_alone() {
    let revoked = |document: &Document| -> Vec<String> {
        let ids = document.revoked_tokens.iter();
        ids.map(ToString::to_string).collect()
    };
    let alone = parse(r#"{"revoked_tokens":["b","a","b"]}"#);
    assert_eq!(revoked(&alone), ["a", "b"]);
    assert_eq!(lines(&alone), [] as [&str; 0]);
    let beside = parse(r#"{"mcpServers":{},"revoked_tokens":["c"]}"#);
    assert!(beside.everyone.is_some());
    let files = [("a.json", alone), ("b.json", beside)];
    let merged = Document::merge(files.map(|(label, file)| (label.to_owned(), file)));
    assert_eq!(revoked(&merged), ["a", "b", "c"]);
    // What is no list of ids must not pass for an empty one.
    for bad in [r#""a""#, "[1]", "null", r#"{"a":1}"#] {
        let faults = refused(&format!(
            r#"{{"virtual_hosts":{{}},"revoked_tokens":{bad}}}"#
        ));
        assert!(
            faults[0].starts_with("error: revoked_tokens: f.json:1:"),
            "{faults:?}"
        );
    }
    let mistyped = parse(r#"{"virtual_hosts":{},"revoked_token":["a"]}"#);
    assert!(lines(&mistyped)[0].contains("did you mean `revoked_tokens`?"));
}
