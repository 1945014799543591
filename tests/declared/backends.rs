//! Declared tools beside and in front of backends: one list, one name space, their own schema.

use serde_json::{Value, json};

use crate::{
    McpClient, Plan, api_of, error_of,
    support::{Backend, Gateway, HOST, LAYOUTS, call_body, eventually},
    text_of, tool,
};

fn gateway(backends: Value, tools: Value) -> Gateway {
    let host = json!({"backends": backends, "tools": tools});
    Plan::document(json!({"virtual_hosts": {HOST: host}})).start()
}

#[test]
fn declared_tools_stand_in_the_merged_list_without_a_prefix() {
    let api = api_of("{}");
    let [a, b] = ["a", "b"].map(|name| Backend::start(name, &["echo", "z"]));
    let tools = json!(["alpha", "b-echo", "zulu"].map(|name| tool(name, &api, json!({}))));
    let two = json!({"a": {"url": a.url()}, "b": {"url": b.url()}});
    let gateway = gateway(two, tools.clone());
    let mut client = McpClient::open(&gateway);
    assert_eq!(
        client.tool_names(),
        ["a-echo", "a-z", "alpha", "b-echo", "b-z", "zulu"]
    );
    assert_eq!(
        text_of(&client.call("1", "a-echo", "{}"), false),
        "a echo {}"
    );
    assert_eq!(
        text_of(&client.call("1", "b-echo", "{}"), false),
        "{}",
        "the declared one"
    );
    assert_eq!(b.seen_rpc("tools/call").len(), 0);

    let one = json!({"a": {"url": a.url()}});
    let single = crate::backends::gateway(one, tools);
    let mut client = McpClient::open(&single);
    assert_eq!(
        client.tool_names(),
        ["alpha", "b-echo", "echo", "z", "zulu"]
    );
    assert_eq!(text_of(&client.call("1", "z", "{}"), false), "a z {}");
}

#[test]
fn pages_of_a_list_have_the_declared_tools_once() {
    let api = api_of("{}");
    let backend = Backend::start("a", &["m1", "m2", "m3"]);
    let tools = json!([tool("m2", &api, json!({})), tool("z", &api, json!({}))]);
    let host = json!({"backends": {"a": {"url": backend.url()}}, "tools": tools});
    let gateway = Plan::document(json!({"virtual_hosts": {HOST: host}}))
        .settings(|settings| settings.limits.page_items_max = 1)
        .start();
    let mut client = McpClient::open(&gateway);
    let mut names = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let params = match cursor.as_str() {
            None => json!({}),
            Some(cursor) => json!({"cursor": cursor}),
        };
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params});
        let result = client.post(list.to_string()).result();
        for tool in result["tools"].as_array().unwrap() {
            names.push(tool["name"].as_str().unwrap().to_owned());
        }
        cursor = result["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(names, ["m1", "m2", "z", "m3"]);
}

#[test]
fn a_backends_tool_gets_a_schema_a_name_and_masks_of_its_own() {
    for layout in LAYOUTS {
        let backend = Backend::start("a", &["lookup"]);
        let schema = json!({"type": "object", "properties": {
            "who": {"type": "string"}, "pin": {"type": "string", "x-mask": true}},
            "required": ["who"], "additionalProperties": false});
        let declared = json!({"name": "find_person", "title": "Find", "description": "Finds.",
            "apiType": "mcp", "serviceId": "a", "endpointName": "lookup", "inputSchema": schema,
            "toolMetadata": {"safety": {"read_only": true}}});
        let host = json!({"backends": {"a": {"url": backend.url(),
            "allowed_tool_names": ["other"]}}, "tools": [declared]});
        let hosts = json!({"virtual_hosts": {HOST: host}});
        let gateway = Plan::document(hosts).layout(layout).start();
        let mut client = McpClient::open(&gateway);
        let list = client.list().result();
        let listed = &list["tools"][0];
        assert_eq!(list["tools"].as_array().unwrap().len(), 1, "{list}");
        assert_eq!(
            (&listed["title"], &listed["description"]),
            (&json!("Find"), &json!("Finds."))
        );
        assert_eq!(listed["annotations"], json!({"readOnlyHint": true}));
        assert_eq!(listed["inputSchema"]["required"], json!(["who"]));

        let sound = client.call("1", "find_person", r#"{"who":"x","pin":"1234"}"#);
        assert_eq!(
            text_of(&sound, false),
            r#"a lookup {"pin":"******","who":"x"}"#
        );
        let bad = client.call("1", "find_person", r#"{"pin":"canary"}"#);
        let expected = "Tool arguments did not conform to inputSchema: /who: required";
        assert_eq!(text_of(&bad, true), expected);
        assert_eq!(backend.seen_rpc("tools/call").len(), 1);
        assert_eq!(
            client.call("1", "lookup", "{}").error_code(),
            -32602,
            "not allowed as itself"
        );
        backend.lose_sessions();
        let again = client.call("1", "find_person", r#"{"who":"y"}"#);
        assert_eq!(text_of(&again, false), r#"a lookup {"who":"y"}"#);
        let mut old = McpClient::open_with(&gateway, "2025-03-26", "{}");
        let calls = ["z", "q"].map(|who| {
            let arguments = format!(r#"{{"who":"{who}"}}"#);
            call_body("7", "find_person", &arguments)
        });
        let answers = old.post(format!("[{}]", calls.join(","))).json();
        for (answer, who) in answers.as_array().unwrap().iter().zip(["z", "q"]) {
            let text = format!(r#"a lookup {{"who":"{who}"}}"#);
            assert_eq!(answer["result"]["content"][0]["text"], text, "{answers}");
        }
    }
}

#[test]
fn errors_of_the_backend_behind_are_told_in_our_words() {
    let backend = Backend::scripted("a", &["t"], |asked, wire| {
        match asked.tool()?.as_str() {
            "params" => wire.error(asked, -32602, "canary"),
            "other" => wire.error(asked, -31000, "canary"),
            _ => wire.answer(500, "", "canary"),
        }
        Some(())
    });
    let declared = ["params", "other", "broken"]
        .map(|name| json!({"name": name, "apiType": "mcp", "serviceId": "a"}));
    let gateway = gateway(json!({"a": {"url": backend.url()}}), json!(declared));
    let mut client = McpClient::open(&gateway);
    let refused = "the backend of the tool refused the call".to_owned();
    assert_eq!(
        error_of(&client.call("1", "params", "{}")),
        (-32602, refused.clone())
    );
    assert_eq!(
        error_of(&client.call("1", "other", "{}")),
        (-32603, refused)
    );
    let text = text_of(&client.call("1", "broken", "{}"), true);
    assert_eq!(
        text,
        "upstream failed: the backend answered with HTTP status 500"
    );
}

#[test]
fn a_reload_swaps_tools_and_a_faulty_one_keeps_the_last_good() {
    let api = api_of("{}");
    let document = |tools: Value| {
        json!({"virtual_hosts": {HOST: {"backends": {}, "tools": tools}}}).to_string()
    };
    let one = |name: &str| json!([tool(name, &api, json!({}))]);
    let gateway = crate::plan_of(one("first")).start();
    let mut client = McpClient::open(&gateway);
    assert_eq!(client.tool_names(), ["first"]);
    let write = |text: String| {
        let path = gateway.config_path();
        let next = path.with_extension("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, path).unwrap();
    };
    write(document(one("second")));
    eventually("the second tool", || {
        (client.tool_names() == ["second"]).then_some(())
    });
    let faulty = json!([tool(
        "third",
        &api,
        json!({"inputSchema": {"type": "array"}})
    )]);
    write(document(faulty));
    write(document(one("fourth")));
    eventually("the fourth tool", || {
        let names = client.tool_names();
        assert_ne!(names, ["third"]);
        (names == ["fourth"]).then_some(())
    });
}
