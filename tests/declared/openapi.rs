//! OpenAPI documents of public APIs, written by others, become tools that make the requests those
//! documents describe.

use std::{path::PathBuf, process::Command};

use serde_json::{Value, json};
use shardgate::{
    declared::Tools,
    openapi::{Options, convert, parse},
};

use crate::{
    McpClient, api, plan_of,
    process::{Folder, run},
    support::{Asked, Backend},
    text_of,
};

/// A document of the package `@readme/oas-examples`, which `scripts/peers` installs.
fn example(name: &str) -> PathBuf {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts/peers");
    let output = Command::new(script).arg("--path").output().unwrap();
    let path = String::from_utf8(output.stdout).unwrap();
    let folder = path
        .trim()
        .split(':')
        .find_map(|folder| folder.strip_suffix("/.bin"));
    let modules = PathBuf::from(folder.unwrap());
    let document = modules.join("@readme/oas-examples").join(name);
    assert!(
        document.is_file(),
        "the example documents are not installed: run scripts/peers first"
    );
    document
}

/// A server that records what it is asked and says what such an API would.
fn store() -> Backend {
    api(
        |asked, wire| match (&*asked.method, asked.target.split('?').next().unwrap()) {
            ("GET", "/v3/pet/7") => {
                wire.json(r#"{"id":7,"name":"Rex","photoUrls":[],"status":"sold"}"#);
            }
            ("GET", "/v3/pet/8") => wire.json(r#"{"id":8,"name":"No photos"}"#),
            ("GET", "/v3/pet/findByStatus" | "/v3/pet/findByTags") => {
                wire.json(r#"[{"name":"Rex","photoUrls":["u"]}]"#);
            }
            ("GET", "/v3/store/inventory") => wire.json(r#"{"sold":3}"#),
            ("GET", "/v3/user/login") => wire.json(r#""token""#),
            ("DELETE", _) => wire.answer(404, "", ""),
            _ => wire.answer(200, "", ""),
        },
    )
}

/// The tools that `tools from-openapi` writes, and what it warns of.
fn tools_from(file: &str, more: &[&str]) -> (Value, String) {
    let folder = Folder::new();
    let path = example(file);
    let mut command = vec!["tools", "from-openapi", path.to_str().unwrap()];
    command.extend(more);
    let output = run(&folder, &command, "");
    assert_eq!(output.code, 0, "{}", output.stderr);
    (serde_json::from_str(&output.stdout).unwrap(), output.stderr)
}

#[test]
fn the_pet_store_becomes_tools_that_ask_it_right() {
    for file in [
        "3.0/json/petstore.json",
        "3.0/yaml/petstore.yaml",
        "3.1/json/petstore.json",
    ] {
        let store = store();
        let server = format!("http://{}/v3", store.address());
        let (tools, warnings) = tools_from(file, &["--server", &server, "--allow-private"]);
        assert!(
            warnings.contains("/pet/{petId}/uploadImage: the body is not JSON"),
            "{warnings}"
        );
        assert!(warnings.contains("petstore_auth: oauth2"), "{warnings}");
        let gateway = plan_of(tools.clone()).start();
        let mut client = McpClient::open(&gateway);
        let names = client.tool_names();
        assert_eq!(names.len(), tools.as_array().unwrap().len());
        assert!(names.len() >= 18, "{file}: {names:?}");
        let pet = json!({"id": 9, "name": "Rex", "photoUrls": ["http://p/1"],
            "category": {"id": 1, "name": "dogs"}, "status": "available"});
        let order = json!({"petId": 7, "quantity": 2, "status": "placed"});
        let mut ask = |name: &str, arguments: Value| -> (String, Asked) {
            let before = store.seen().len();
            let response = client.call("1", name, &arguments.to_string());
            let result = response.result();
            let seen = store.seen();
            assert_eq!(seen.len(), before + 1, "{file} {name}: {result}");
            (
                result["content"][0]["text"].as_str().unwrap().to_owned(),
                seen[before].clone(),
            )
        };
        for (name, arguments, method, target, body) in [
            ("getPetById", json!({"petId": 7}), "GET", "/v3/pet/7", ""),
            (
                "findPetsByStatus",
                json!({"status": ["sold", "pending"]}),
                "GET",
                "/v3/pet/findByStatus?status=sold&status=pending",
                "",
            ),
            (
                "findPetsByTags",
                json!({"tags": ["a b"]}),
                "GET",
                "/v3/pet/findByTags?tags=a+b",
                "",
            ),
            (
                "addPet",
                json!({"body": pet}),
                "POST",
                "/v3/pet",
                &pet.to_string(),
            ),
            (
                "updatePet",
                json!({"body": pet}),
                "PUT",
                "/v3/pet",
                &pet.to_string(),
            ),
            (
                "placeOrder",
                json!({"body": order}),
                "POST",
                "/v3/store/order",
                &order.to_string(),
            ),
            ("getInventory", json!({}), "GET", "/v3/store/inventory", ""),
            (
                "loginUser",
                json!({"username": "me", "password": "a&b"}),
                "GET",
                "/v3/user/login?password=a%26b&username=me",
                "",
            ),
            (
                "getUserByName",
                json!({"username": "a/b"}),
                "GET",
                "/v3/user/a%2Fb",
                "",
            ),
            (
                "deleteOrder",
                json!({"orderId": 3}),
                "DELETE",
                "/v3/store/order/3",
                "",
            ),
        ] {
            let (text, asked) = ask(name, arguments);
            let request = (&*asked.method, &*asked.target, asked.text());
            assert_eq!(request, (method, target, body), "{file} {name}: {text}");
        }
        let (text, asked) = ask("deletePet", json!({"petId": 1, "api_key": "k"}));
        assert_eq!(asked.header("api_key"), Some("k"));
        assert_eq!(text, "upstream returned HTTP 404");

        let bad = client.call("1", "getPetById", r#"{"petId":"seven"}"#);
        let expected = "Tool arguments did not conform to inputSchema: /petId: type";
        assert_eq!(text_of(&bad, true), expected);
        let bad = client.call("1", "addPet", r#"{"body":{"name":"x"}}"#);
        let expected = "Tool arguments did not conform to inputSchema: /body/photoUrls: required";
        assert_eq!(text_of(&bad, true), expected);
        let bad = client.call("1", "getPetById", r#"{"petId":8}"#);
        let expected = "Tool output did not conform to outputSchema: /photoUrls: required";
        assert_eq!(text_of(&bad, true), expected);
    }
}

#[test]
fn what_is_written_is_accepted_and_chosen_by_tag() {
    let folder = Folder::new();
    let path = example("3.1/json/train-travel.json");
    let written = folder.write("tools.json", "");
    let command = [
        "tools",
        "from-openapi",
        path.to_str().unwrap(),
        "--tag",
        "Bookings",
        "-o",
        &written,
    ];
    let output = run(&folder, &command, "");
    assert_eq!((output.code, &*output.stdout), (0, ""), "{}", output.stderr);
    let tools: Value = serde_json::from_str(&std::fs::read_to_string(&written).unwrap()).unwrap();
    let names: Vec<&str> = tools
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "get-bookings",
            "create-booking",
            "delete-booking",
            "get-booking"
        ]
    );
    let document = json!({"virtual_hosts": {"v": {"backends": {}, "tools": tools}}});
    let config = folder.write("config.json", &document.to_string());
    let output = run(&folder, &["config", "check", "--json", &config], "");
    assert_eq!(output.code, 0, "{}", output.stdout);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(report["toolsChecked"], 4);
    let delete = &tools[2]["toolMetadata"]["safety"];
    assert_eq!(
        (&delete["destructive"], &delete["idempotent"]),
        (&json!(true), &json!(true))
    );
}

#[test]
fn every_document_of_the_collection_is_converted_to_sound_tools_or_refused_in_words() {
    let root = example("3.0/json/petstore.json");
    let root = root.ancestors().nth(3).unwrap();
    let mut tools_made = 0;
    let mut documents = 0;
    for version in ["2.0", "3.0", "3.1"] {
        for kind in ["json", "yaml"] {
            let folder = root.join(version).join(kind);
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if !path.is_file() {
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                let document = parse(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
                let options = Options {
                    server: Some("https://api.example.com".to_owned()),
                    ..Options::default()
                };
                documents += 1;
                match convert(&document, &options) {
                    Ok(converted) => {
                        tools_made += converted.tools.len();
                        let read = Tools::read(Value::Array(converted.tools), &Default::default())
                            .unwrap();
                        assert_eq!(read.faults(), [], "{path:?}");
                    }
                    Err(fault) => assert_eq!(version, "2.0", "{path:?}: {fault}"),
                }
            }
        }
    }
    assert!(
        documents > 50 && tools_made > 300,
        "{documents} documents, {tools_made} tools"
    );
}

fn converted(document: Value) -> (Vec<Value>, Vec<String>) {
    let options = Options {
        server: Some("https://api.example.com".to_owned()),
        ..Options::default()
    };
    let converted = convert(&document, &options).unwrap();
    (converted.tools, converted.warnings)
}

/// A document of version 3.0 with one operation, `GET /a`.
fn one(operation: Value) -> Value {
    json!({"openapi": "3.0.3", "paths": {"/a": {"get": operation}}})
}

#[test]
fn the_dialect_of_version_3_0_is_translated() {
    let schema = json!({"type": "object", "required": ["id", "secret"], "properties": {
        "id": {"type": "integer", "readOnly": true, "minimum": 0, "exclusiveMinimum": true},
        "secret": {"type": "string", "writeOnly": true, "pattern": "(?=x)", "example": "e"},
        "kind": {"type": "string", "enum": ["a"], "nullable": true},
        "next": {"$ref": "#/components/schemas/Thing", "description": "ignored"},
        "any": {"allOf": [{"$ref": "#/components/schemas/Thing"}], "nullable": true},
    }});
    let reply = json!({"content": {"application/json": {"schema": {
        "$ref": "#/components/schemas/Thing"}}}});
    let operation = json!({"operationId": "put thing!", "requestBody": {"required": true,
        "content": {"application/vnd.x+json": {"schema": {"$ref": "#/components/schemas/Thing"}}}},
        "responses": {"201": reply}});
    let document = json!({"openapi": "3.0.0", "paths": {"/a": {"put": operation}},
        "components": {"schemas": {"Thing": schema}}});
    let (tools, warnings) = converted(document);
    assert_eq!(tools.len(), 1, "{warnings:?}");
    assert_eq!(tools[0]["name"], "put_thing");
    assert!(warnings[0].contains("patterns left out"), "{warnings:?}");
    let input = &tools[0]["inputSchema"];
    assert_eq!(input["properties"]["body"]["$ref"], "#/$defs/Thing");
    assert_eq!(
        input["$defs"]["Thing"],
        json!({"type": "object", "required": ["secret"], "properties": {
            "id": {"type": "integer", "readOnly": true, "exclusiveMinimum": 0},
            "secret": {"type": "string", "writeOnly": true},
            "kind": {"type": ["string", "null"], "enum": ["a", null]},
            "next": {"$ref": "#/$defs/Thing"},
            "any": {"anyOf": [{"allOf": [{"$ref": "#/$defs/Thing"}]}, {"type": "null"}]},
        }})
    );
    assert_eq!(
        tools[0]["outputSchema"]["$defs"]["Thing"]["required"],
        json!(["id"])
    );
}

#[test]
fn what_cannot_be_called_is_left_out_in_words() {
    let parameter = |members: Value| {
        let mut parameter = json!({"name": "p", "in": "query", "schema": {"type": "array"}});
        crate::merge(&mut parameter, members);
        one(json!({"parameters": [parameter]}))
    };
    for (document, expected) in [
        (
            parameter(json!({"style": "pipeDelimited"})),
            "has the style pipeDelimited, and is left",
        ),
        (
            parameter(json!({"style": "pipeDelimited", "required": true})),
            "left out: the parameter",
        ),
        (
            parameter(json!({"schema": {"type": "object"}})),
            "is an object, and is left out",
        ),
        (
            parameter(json!({"in": "header", "name": "Host", "required": true})),
            "left out:",
        ),
        (
            parameter(json!({"schema": {"$ref": "other.json#/a"}})),
            "refers to another document",
        ),
        (
            parameter(json!({"schema": {"$ref": "#/nowhere"}})),
            "leads nowhere",
        ),
        (
            one(json!({"parameters": [{"$ref": "#/nowhere"}]})),
            "leads nowhere",
        ),
        (
            json!({"openapi": "3.1.0", "paths": {"/a/{id}": {"get": {}}}}),
            "left out: configuration MCP_ROUTING_CONTRACT_INVALID",
        ),
        (
            json!({"openapi": "3.1.0", "paths": {"/a": {"post": {"requestBody": {
                "required": true, "content": {"text/plain": {}}}}}}}),
            "left out: its body is not JSON",
        ),
        (
            json!({"openapi": "3.1.0", "paths": {"/a": {"get": {"operationId": "x"},
                "put": {"operationId": "x"}}}}),
            "named x_2: x is taken",
        ),
    ] {
        let (_, warnings) = converted(document.clone());
        let is_told = warnings.iter().any(|warning| warning.contains(expected));
        assert!(is_told, "{document}: {warnings:?}");
    }
    let (tools, _) = converted(parameter(json!({"explode": false})));
    assert_eq!(
        tools[0]["toolMetadata"]["routing"]["parameters"]["p"],
        "queryJoined"
    );
    let (tools, _) = converted(parameter(json!({"in": "header", "name": "Authorization"})));
    assert_eq!(tools[0]["inputSchema"]["properties"], json!({}));
}

#[test]
fn documents_of_no_use_end_with_a_reason() {
    let folder = Folder::new();
    let sound = json!({"openapi": "3.0.0", "paths": {"/a": {"get": {}}}});
    let with = |servers: Value| {
        let mut document = sound.clone();
        document["servers"] = servers;
        document.to_string()
    };
    for (text, more, expected) in [
        ("{".to_owned(), &[][..], "neither JSON nor YAML"),
        ("a: [".to_owned(), &[], "neither JSON nor YAML"),
        (
            r#"{"swagger":"2.0"}"#.to_owned(),
            &[],
            "not an OpenAPI document of version 3.0 or 3.1",
        ),
        (sound.to_string(), &[], "give one with --server"),
        (with(json!([{"url": "/v1"}])), &[], "give one with --server"),
        (
            with(json!([{"url": "ftp://x"}])),
            &[],
            "only http and https",
        ),
        (
            with(json!([{"url": "http://10.0.0.1"}])),
            &[],
            "--allow-private",
        ),
        (
            with(json!([{"url": "https://a.example"}])),
            &["--tag", "no"],
            "no operation became",
        ),
    ] {
        let file = folder.write("api", &text);
        let mut command = vec!["tools", "from-openapi", &file];
        command.extend(more);
        let output = run(&folder, &command, "");
        assert_eq!(output.code, 2, "{text}");
        assert!(
            output.stderr.contains(expected),
            "{text}: {}",
            output.stderr
        );
    }
    let variables = json!([{"url": "{scheme}://a.example/{base}", "variables": {
        "scheme": {"default": "https"}, "base": {"default": "v1"}}}]);
    let output = run(&folder, &["tools", "from-openapi", "-"], &with(variables));
    let tools: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(tools[0]["targetHost"], "https://a.example/v1");
}

#[test]
fn aliases_in_yaml_do_not_multiply() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = level - 1;
        let uses = vec![format!("*a{below}"); 8].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{uses}]\n"));
    }
    assert!(parse(&text).is_err());
}
