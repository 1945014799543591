//! Declarations at load: every fault at once, with tool, JSON pointer and reason code
//! (dual-profile.md 3.1, 4.2 and 7), from files and from the map form in Redis.

use serde_json::{Value, json};
use shardgate::{
    config::{
        decode::{DecodeFault, DecodeLimits, decode},
        encode::encode_map,
        user_config::UserConfig,
    },
    declared::Tools,
    schema::SchemaLimits,
};

use crate::{
    merge,
    process::{Folder, run},
};

fn sound(members: Value) -> Value {
    let mut tool = json!({"name": "t", "targetHost": "https://api.example.com/v1", "path": "/t"});
    merge(&mut tool, members);
    tool
}

/// Reason codes and places of what is wrong with one declaration.
fn faults(tool: &Value) -> Vec<(String, String)> {
    let tools = Tools::read(json!([tool]), &SchemaLimits::default()).unwrap();
    let faults = tools.faults().iter();
    faults
        .map(|fault| {
            (
                fault.fault.reason.code().to_owned(),
                fault.fault.pointer.clone(),
            )
        })
        .collect()
}

fn routing(members: Value) -> Value {
    sound(json!({"toolMetadata": {"routing": members}}))
}

#[test]
fn sound_declarations_in_every_spelling() {
    let schema = json!({"type": "object", "properties": {"id": {}},
        "additionalProperties": false});
    for tool in [
        sound(json!({})),
        sound(json!({"apiType": "rest", "method": "patch", "description": "d", "title": "T"})),
        sound(json!({"inputSchema": schema.to_string(), "toolMetadata": "{}"})),
        sound(json!({"$comment": "anything", "toolMetadata": {"routing": {"domain": "x"}}})),
        sound(json!({"inputSchema": schema, "toolMetadata": {"routing": {
            "parameters": {"id": "query"}, "unmappedArguments": "reject",
            "requireCompleteParameterMappings": true}}})),
        json!({"name": "m", "apiType": "mcp", "serviceId": "b", "sessionIndependent": true}),
        sound(
            json!({"targetHost": "http://127.0.0.1:1", "toolMetadata": {"runtime": {
            "allowPrivateTargetHost": true}}}),
        ),
    ] {
        assert_eq!(faults(&tool), [], "{tool}");
    }
    let usual = SchemaLimits::default();
    let quoted = Tools::read(json!([sound(json!({}))]).to_string().into(), &usual).unwrap();
    assert_eq!(quoted.tools().len(), 1);
    for neither in [json!({}), json!("x"), Value::Null, json!(1)] {
        assert!(Tools::read(neither, &usual).is_err());
    }
}

#[test]
fn each_rule_has_its_code_and_place() {
    let parameters = "/toolMetadata/routing/parameters";
    for (tool, code, pointer) in [
        (sound(json!({"name": ""})), "TOOL_NAME_INVALID", "/name"),
        (sound(json!({"name": "a b"})), "TOOL_NAME_INVALID", "/name"),
        (
            sound(json!({"name": "x".repeat(129)})),
            "TOOL_NAME_INVALID",
            "/name",
        ),
        (json!(7), "MCP_CONFIG_INVALID", ""),
        (sound(json!({"nmae": 1})), "MCP_CONFIG_INVALID", ""),
        (
            sound(json!({"apiType": "grpc"})),
            "MCP_CONFIG_INVALID",
            "/apiType",
        ),
        (
            sound(json!({"method": "TRACE"})),
            "MCP_CONFIG_INVALID",
            "/method",
        ),
        (
            sound(json!({"inputSchema": "{"})),
            "INPUT_SCHEMA_NOT_OBJECT_DOCUMENT",
            "",
        ),
        (
            sound(json!({"inputSchema": null})),
            "INPUT_SCHEMA_NOT_OBJECT_DOCUMENT",
            "",
        ),
        (
            sound(json!({"inputSchema": true})),
            "INPUT_SCHEMA_BOOLEAN_ROOT",
            "",
        ),
        (
            sound(json!({"outputSchema": {"type": "x"}})),
            "SCHEMA_COMPILATION_FAILED",
            "/type",
        ),
        (
            sound(json!({"path": "t"})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/path",
        ),
        (
            sound(json!({"path": "/a{"})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/path",
        ),
        (
            sound(json!({"path": "/a}b"})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/path",
        ),
        (
            sound(json!({"path": "/{a b}"})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/path",
        ),
        (
            sound(json!({"path": "/a?b=1"})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/path",
        ),
        (
            sound(json!({"path": "/a/../b"})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/path",
        ),
        (
            sound(json!({"path": "/a/%2e%2E"})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/path",
        ),
        (
            sound(json!({"path": "/{id}"})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/path",
        ),
        (
            routing(json!({"parameters": {"id": "path"}})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/path",
        ),
        (
            sound(json!({"targetHost": "x"})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/targetHost",
        ),
        (
            sound(json!({"targetHost": "ftp://x"})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/targetHost",
        ),
        (
            sound(json!({"targetHost": "https://u:p@x"})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/targetHost",
        ),
        (
            sound(json!({"targetHost": "https://x/?a"})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/targetHost",
        ),
        (
            json!({"name": "t", "path": "/t"}),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/targetHost",
        ),
        (
            sound(json!({"serviceId": "s"})),
            "MCP_CONFIG_INVALID",
            "/serviceId",
        ),
        (
            sound(json!({"envTag": "s"})),
            "MCP_CONFIG_INVALID",
            "/envTag",
        ),
        (
            sound(json!({"workflowBinding": {}})),
            "MCP_CONFIG_INVALID",
            "/workflowBinding",
        ),
        (
            sound(json!({"executionPlacement": "workflow"})),
            "MCP_CONFIG_INVALID",
            "/executionPlacement",
        ),
        (
            sound(json!({"backendMcpProtocol": "legacy"})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/backendMcpProtocol",
        ),
        (
            sound(json!({"sessionIndependent": true})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/sessionIndependent",
        ),
        (
            routing(json!({"unmappedArguments": "x"})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/toolMetadata/routing/unmappedArguments",
        ),
        (
            routing(json!({"unmappedArguments": "body"})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/toolMetadata/routing/unmappedArguments",
        ),
        (
            routing(json!({"unmappedArguments": "reject"})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/toolMetadata/routing/unmappedArguments",
        ),
        (
            routing(json!({"bodyMappingMode": "x"})),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/toolMetadata/routing/bodyMappingMode",
        ),
        (
            routing(json!({"parameters": []})),
            "MCP_CONFIG_INVALID",
            parameters,
        ),
        (
            sound(
                json!({"inputSchema": {"type": "object", "allOf": [{"properties": {"a": {}}}]},
                "toolMetadata": {"routing": {"requireCompleteParameterMappings": true}}}),
            ),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/toolMetadata/routing/requireCompleteParameterMappings",
        ),
        (
            sound(
                json!({"inputSchema": {"type": "object", "patternProperties": {"^x": {}}},
                "toolMetadata": {"routing": {"requireCompleteParameterMappings": true}}}),
            ),
            "SCHEMA_ROUTING_ANALYSIS_FAILED",
            "/toolMetadata/routing/requireCompleteParameterMappings",
        ),
        (
            sound(json!({"toolMetadata": {"runtime": {"timeoutMs": 0}}})),
            "MCP_CONFIG_INVALID",
            "/toolMetadata/runtime/timeoutMs",
        ),
        (
            sound(json!({"auth": {"type": "bearer", "token": "hunter2"}})),
            "MCP_CONFIG_INVALID",
            "/auth",
        ),
        (
            sound(
                json!({"auth": {"type": "header", "name": "X-Key", "value": "env:A"},
                "toolMetadata": {"routing": {"parameters": {"x-key": "header"}}}}),
            ),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/auth",
        ),
        (
            json!({"name": "m", "apiType": "mcp"}),
            "MCP_ROUTING_CONTRACT_INVALID",
            "/serviceId",
        ),
        (
            json!({"name": "m", "apiType": "mcp", "serviceId": "b", "path": "/x"}),
            "MCP_CONFIG_INVALID",
            "/path",
        ),
    ] {
        let found = faults(&tool);
        assert!(
            found.contains(&(code.to_owned(), pointer.to_owned())),
            "{tool}: {found:?}"
        );
    }
    for (name, location) in [
        ("a b", "header"),
        ("Authorization", "header"),
        ("Cookie", "header"),
        ("Content-Length", "header"),
        ("Mcp-Session-Id", "header"),
        ("Mcp-Param-X", "header"),
        ("$a", "cookie"),
        ("a;b", "cookie"),
        ("a", "nowhere"),
    ] {
        let tool = routing(json!({"parameters": {name: location}}));
        let expected = (
            "MCP_ROUTING_CONTRACT_INVALID".to_owned(),
            format!("{parameters}/{name}"),
        );
        assert_eq!(faults(&tool), [expected]);
    }
}

#[test]
fn the_report_tells_all_faults_of_all_tools_at_once() {
    let folder = Folder::new();
    let tools = json!([
        sound(json!({"name": "first", "inputSchema": {"type": "object", "properties": {
            "a": {"$ref": "https://example.com/"}, "b": {"$id": "x"}}}})),
        sound(json!({"name": "good"})),
        sound(json!({"name": "good"})),
        {"apiType": "mcp", "name": "lost", "serviceId": "nobody"},
    ]);
    let rules = json!({"endpointRules": {"/t@get": {"req-acc": "gone"}},
        "ruleBodies": {"cel": {"conditionLanguage": "cel", "expression": "role == 'a'"}}});
    let host = json!({"backends": {}, "tools": tools, "rules": rules});
    let document = json!({"virtual_hosts": {"v": host}});
    let path = folder.write("bad.json", &document.to_string());
    let output = run(&folder, &["config", "check", "--json", &path], "");
    assert_eq!(output.code, 2, "{}", output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        (&report["valid"], &report["toolsChecked"]),
        (&json!(false), &json!(4))
    );
    let errors = report["errors"].as_array().unwrap();
    let told: Vec<[&str; 4]> = errors
        .iter()
        .map(|error| {
            ["toolName", "schemaKind", "jsonPointer", "reasonCode"]
                .map(|member| error[member].as_str().unwrap())
        })
        .collect();
    let configuration = "configuration";
    assert_eq!(
        told,
        [
            [
                "first",
                "inputSchema",
                "/properties/a/$ref",
                "EXTERNAL_REFERENCE_DISABLED"
            ],
            [
                "first",
                "inputSchema",
                "/properties/b/$id",
                "NESTED_ID_UNSUPPORTED"
            ],
            ["good", configuration, "/name", "DUPLICATE_TOOL_NAME"],
            [
                "lost",
                configuration,
                "/serviceId",
                "MCP_ROUTING_CONTRACT_INVALID"
            ],
            [
                "",
                configuration,
                "/rules/ruleBodies/cel",
                "MCP_CONFIG_INVALID"
            ],
            [
                "",
                configuration,
                "/rules/endpointRules/~1t@get/req-acc",
                "MCP_CONFIG_INVALID"
            ],
        ]
    );
    assert!(
        errors[4]["reason"]
            .as_str()
            .unwrap()
            .contains("CEL is not supported")
    );

    let output = run(&folder, &["config", "check", &path], "");
    assert_eq!(output.code, 2);
    for [tool, _, pointer, code] in told {
        let of_tool = format!("virtual_hosts.v.tools.{tool}");
        let place = if tool.is_empty() {
            "virtual_hosts.v"
        } else {
            &of_tool
        };
        let is_told = |line: &str| {
            line.starts_with(&format!("error: {place}"))
                && line.contains(code)
                && line.contains(&format!("\"{pointer}\""))
        };
        assert!(
            output.stderr.lines().any(is_told),
            "{tool} {pointer}: {}",
            output.stderr
        );
    }
    let good = json!({"virtual_hosts": {"v": {"backends": {}, "tools": [sound(json!({}))]}}});
    let path = folder.write("good.json", &good.to_string());
    let output = run(&folder, &["config", "check", "--json", &path], "");
    assert_eq!(output.code, 0, "{}", output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        report,
        json!({"valid": true, "toolsChecked": 1, "errors": []})
    );
}

/// Each bound of a schema is a setting: the same tool is sound under one and refused under another.
#[test]
fn bounds_of_schemas_are_settings() {
    let folder = Folder::new();
    let write = |name: &str, schema: &Value| {
        let tools = json!([sound(json!({"inputSchema": schema}))]);
        let document = json!({"virtual_hosts": {"v": {"backends": {}, "tools": tools}}});
        folder.write(name, &document.to_string())
    };
    let schema = json!({"type": "object", "properties": {
        "a": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "b": {"$ref": "#/properties/a"}}});
    let path = write("some.json", &schema);
    // Root, a, b, and two branches at each of the two ways to them.
    let bytes = schema.to_string().len();
    for (flag, enough, code) in [
        ("max-schema-bytes", bytes, "SCHEMA_BUDGET_EXCEEDED"),
        ("max-schema-depth", 6, "SCHEMA_BUDGET_EXCEEDED"),
        ("max-subschemas", 5, "SCHEMA_BUDGET_EXCEEDED"),
        (
            "max-composition-branches",
            4,
            "COMPOSITION_BRANCH_LIMIT_EXCEEDED",
        ),
        (
            "max-schema-graph-visits",
            8,
            "SCHEMA_GRAPH_VISIT_LIMIT_EXCEEDED",
        ),
    ] {
        let check = |bound: usize| {
            let flag = format!("--{flag}={bound}");
            run(&folder, &["config", "check", &flag, "--json", &path], "")
        };
        let report = check(enough);
        assert_eq!(report.code, 0, "{flag}: {}", report.stdout);
        let report = check(enough - 1);
        assert_eq!(report.code, 2, "{flag}");
        let said: Value = serde_json::from_str(&report.stdout).unwrap();
        assert_eq!(said["errors"][0]["reasonCode"], code, "{flag}");
    }
    let deep = (0..70).fold(json!(1), |below, _| json!([below]));
    let deep = json!({"type": "object", "examples": [deep]});
    let path = write("deep.json", &deep);
    let usual = run(&folder, &["config", "check", "--json", &path], "");
    assert_eq!(usual.code, 2);
    let deeper = ["config", "check", "--max-schema-depth=80", "--json", &path];
    let report = run(&folder, &deeper, "");
    assert_eq!(report.code, 0, "{}", report.stdout);
}

#[test]
fn the_map_form_carries_tools_and_rules() {
    let text = json!({"virtual_hosts": {"v": {
        "backends": {"b": {"url": "http://b/"}},
        "tools": [sound(json!({"inputSchema": {"type": "object", "properties": {
            "n": {"minimum": -1.5, "maximum": 9_007_199_254_740_993i64, "default": null,
                "enum": [true, false, -7]}}}}))],
        "access_control": {"enabled": true}, "rules": {"endpointRules": {}},
    }}});
    let config: UserConfig = serde_json::from_value(text.clone()).unwrap();
    let bytes = encode_map(&config);
    let read = decode(&bytes, &DecodeLimits::default()).unwrap();
    assert_eq!(read, config);
    assert_eq!(
        serde_json::to_value(&read).unwrap()["virtual_hosts"]["v"]["tools"],
        text["virtual_hosts"]["v"]["tools"]
    );

    let mut bad = text;
    bad["virtual_hosts"]["v"]["tools"][0]["inputSchema"] = json!({"type": "array"});
    let config: UserConfig = serde_json::from_value(bad).unwrap();
    assert_eq!(config.check().len(), 1);
    let reason = "INPUT_SCHEMA_MISSING_OBJECT_ROOT";
    let fault = decode(&encode_map(&config), &DecodeLimits::default());
    assert_eq!(fault, Err(DecodeFault::UnsoundTool { reason }));

    let strict = DecodeLimits {
        schema: SchemaLimits {
            depth_max: 2,
            ..SchemaLimits::default()
        },
        ..DecodeLimits::default()
    };
    let reason = "SCHEMA_BUDGET_EXCEEDED";
    let fault = decode(&bytes, &strict);
    assert_eq!(fault, Err(DecodeFault::UnsoundTool { reason }));

    let small = DecodeLimits {
        item_count_max: 10,
        ..DecodeLimits::default()
    };
    assert_eq!(decode(&bytes, &small), Err(DecodeFault::TooManyItems));
    let mut deep = b"\x81\xadvirtual_hosts\x81\xa1v\x82\xa8backends\x80\xa5tools".to_vec();
    deep.extend(std::iter::repeat_n(0x91, 1 << 20));
    let fault = decode(&deep, &DecodeLimits::default());
    assert!(
        matches!(fault, Err(DecodeFault::TooDeep { .. })),
        "{fault:?}"
    );
}

#[test]
fn redis_gets_no_credentials_of_tools() {
    let folder = Folder::new();
    let auth = json!({"auth": {"type": "bearer", "token": "env:X"}});
    let config = json!({"virtual_hosts": {"v": {"backends": {}, "tools": [sound(auth)]}}});
    let input = folder.write("user.json", &config.to_string());
    let command = [
        "config",
        "put",
        "--subject",
        "s",
        "--input",
        &input,
        "--redis-address",
        "127.0.0.1",
        "--redis-port",
        "1",
        "--redis-mode",
        "plain-text",
    ];
    let output = run(&folder, &command, "");
    assert_eq!(output.code, 2);
    assert!(
        output.stderr.contains("Redis holds no credentials"),
        "{}",
        output.stderr
    );
}
