//! JSON Schemas (draft 2020-12) of what an operator writes, for editors and `config schema`.
//!
//! Written by hand beside the types and compared with them in tests. As in contextforge.md section
//! 3.4 there is no `additionalProperties: false`: unknown keys are ignored by the readers, too.

mod tools;

use serde_json::{Value, json};

use crate::mcp::version::{STATELESS, Version, VersionSet};

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Schema of one user's configuration, `{"virtual_hosts": {...}}`.
#[must_use]
pub fn user_config_schema() -> Value {
    let mut schema = user_config();
    set(&mut schema, "$schema", json!(DIALECT));
    set(&mut schema, "title", json!("UserConfig"));
    set(&mut schema, "$defs", definitions());
    schema
}

/// Schema of a file of the file store, in any of its forms.
#[must_use]
pub fn document_schema() -> Value {
    let client_servers = json!({
        "description": "Servers as MCP clients list them: one virtual host named `default`.",
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/ClientServer"},
    });
    json!({
        "$schema": DIALECT,
        "title": "ConfigDocument",
        "type": "object",
        "anyOf": [
            {
                "oneOf": [
                    {"required": ["virtual_hosts"]},
                    {"required": ["users"]},
                    {"required": ["mcpServers"]},
                    {"required": ["servers"]},
                ],
            },
            {
                "required": ["revoked_tokens"],
                "not": {
                    "anyOf": [
                        {"required": ["virtual_hosts"]},
                        {"required": ["users"]},
                        {"required": ["mcpServers"]},
                        {"required": ["servers"]},
                    ],
                },
            },
        ],
        "properties": {
            "virtual_hosts": {"$ref": "#/$defs/VirtualHosts"},
            "users": {
                "description": "Configurations by the subject of the token; `*` is everyone else.",
                "type": "object",
                "additionalProperties": {"$ref": "#/$defs/UserConfig"},
            },
            "mcpServers": client_servers,
            "servers": client_servers,
            "revoked_tokens": texts("`jti` of tokens that are not taken any more."),
        },
        "$defs": document_definitions(),
    })
}

fn document_definitions() -> Value {
    let mut all = definitions();
    set(&mut all, "UserConfig", user_config());
    set(&mut all, "Backend", local_backend());
    set(&mut all, "ClientServer", client_server());
    all
}

fn user_config() -> Value {
    json!({
        "description": "Everything one user may reach.",
        "type": "object",
        "required": ["virtual_hosts"],
        "properties": {"virtual_hosts": {"$ref": "#/$defs/VirtualHosts"}},
    })
}

fn definitions() -> Value {
    json!({
        "VirtualHosts": {
            "description": "Virtual hosts by the id that stands in the request path.",
            "type": "object",
            "maxProperties": 1024,
            "additionalProperties": {"$ref": "#/$defs/VirtualHost"},
        },
        "VirtualHost": {
            "description": "A set of backends that clients see as one MCP server.",
            "type": "object",
            "required": ["backends"],
            "properties": {
                "backends": {
                    "description": "Backends by the key that prefixes their exposed names.",
                    "type": "object",
                    "maxProperties": 256,
                    "additionalProperties": {"$ref": "#/$defs/Backend"},
                },
                "failure_mode": {
                    "description": "When some backends fail: open serves the others, closed \
                                    refuses the request; as the settings say when absent.",
                    "enum": ["open", "closed"],
                },
                "teams": texts("Teams whose tokens may reach it, with --enforce-scopes; everyone's \
                                when empty."),
                "protocols": protocols(),
                "tools": {
                    "description": "Tools of its own, or a string with their list as JSON.",
                    "oneOf": [
                        {"type": "array", "maxItems": 1024, "items": {"$ref": "#/$defs/Tool"}},
                        {"type": "string"},
                    ],
                },
                "access_control": {"$ref": "#/$defs/AccessControl"},
                "rules": {"$ref": "#/$defs/AccessRules"},
            },
        },
        "Tool": tools::declaration(),
        "AccessControl": tools::access_control(),
        "AccessRules": tools::access_rules(),
        "Backend": backend(),
        "BackendAuth": backend_auth(),
        "SecretReference": {
            "description": "Where a secret is, never the secret: env:NAME or file:/path.",
            "type": "string",
            "pattern": "^(env:.+|file:/.+)$",
        },
    })
}

fn protocols() -> Value {
    let number =
        |description: &str| json!({"description": description, "type": "integer", "minimum": 1});
    json!({
        "description": "Which protocol profiles it serves; it narrows what the settings say.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "legacy": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "enabled": {"type": "boolean"},
                    "versions": {
                        "description": "Revisions with sessions.",
                        "type": "array",
                        "minItems": 1,
                        "uniqueItems": true,
                        "items": {"enum": VersionSet::ALL.newest_first().map(Version::name)
                            .collect::<Vec<_>>()},
                    },
                },
            },
            "stateless": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "enabled": {"type": "boolean"},
                    "versions": {"type": "array", "maxItems": 1, "items": {"const": STATELESS}},
                    "discoverTtlMs": number("How long clients may keep server/discover."),
                    "toolsListTtlMs": number("How long clients may keep a list."),
                    "discoverCacheScope": {"const": "private"},
                    "toolsListCacheScope": {"const": "private"},
                    "maxToolsListItems": number("Items of one list."),
                },
            },
        },
    })
}

fn backend() -> Value {
    json!({
        "description": "One MCP server. When no allow-list has an entry, all may be reached; \
                        otherwise each list is exact.",
        "type": "object",
        "required": ["url"],
        "properties": {
            "name": text("Name for people; the key when empty."),
            "url": {
                "description": "Absolute address of the server, or reverse:SOURCE for one that \
                                connects to the gateway itself.",
                "type": "string",
                "pattern": "^([Hh][Tt][Tt][Pp][Ss]?://[^/?#@]+([/?#].*)?|reverse:.+)$",
            },
            "passthrough_headers": texts("Headers copied from the caller's request."),
            "add_headers": text_map("Headers set on every request to the server."),
            "remove_headers": texts("Headers removed last."),
            "allowed_tool_names": texts("Tools that may be called, by the server's own names."),
            "tool_name_aliases": text_map("Exposed alias to the server's own tool name."),
            "allowed_resource_names": texts("Resources that may be read, by name."),
            "allowed_prompt_names": texts("Prompts that may be used."),
            "allowed_resource_uris": texts("Resources that may be read, by URI."),
            "transport": {
                "description": "How the server is spoken to; STDIO in local files only.",
                "enum": [
                    "STREAMABLEHTTP", "SSE", "STDIO", "streamable-http", "http", "sse", "stdio"
                ],
                "default": "STREAMABLEHTTP",
            },
            "protocol": {
                "description": "Revision family of the server; found out when absent.",
                "enum": ["auto", "legacy", "stateless"],
            },
            "bridge": {
                "description": "How clients without sessions reach a server that has them.",
                "enum": ["per-request", "perRequest"],
            },
            "session_independent_tools": texts(
                "Tools that need nothing said before, so that `bridge` may reach them; * is all.",
            ),
            "auth": {"$ref": "#/$defs/BackendAuth"},
            "backend_credential_mode": {
                "description": "Whose credential the server gets: none, the gateway's own of \
                                `auth`, or the caller's token if it is meant for the server.",
                "enum": ["none", "anonymous", "service", "caller"],
            },
            "backend_resource": text("The audience a caller's token must have to be passed on."),
        },
    })
}

fn backend_auth() -> Value {
    let kind = |name: &str, member: &str, more: &[&str]| {
        let mut properties = json!({"type": {"const": name}});
        set(
            &mut properties,
            member,
            json!({"$ref": "#/$defs/SecretReference"}),
        );
        let mut required = vec!["type", member];
        for other in more {
            set(&mut properties, other, json!({"type": "string"}));
            required.push(other);
        }
        json!({"properties": properties, "required": required})
    };
    json!({
        "description": "A credential of the gateway's own for the server; in local files only.",
        "type": "object",
        "oneOf": [
            kind("bearer", "token", &[]),
            kind("basic", "password", &["username"]),
            kind("header", "value", &["name"]),
        ],
    })
}

fn client_server() -> Value {
    let mut server = json!({
        "description": "A server entry of an MCP client.",
        "type": "object",
        "anyOf": [
            {"required": ["url"]},
            {"required": ["serverUrl"]},
            {"required": ["httpUrl"]},
            {"required": ["command"]},
            {"properties": {"disabled": {"const": true}}, "required": ["disabled"]},
        ],
        "properties": {
            "url": text("Address of the server."),
            "serverUrl": text("Another word for `url`."),
            "httpUrl": text("Another word for `url`."),
            "headers": text_map("Headers set on every request to the server."),
            "type": text("`http`, `streamable-http`, `sse` or `stdio`."),
            "disabled": {"description": "The entry is skipped.", "type": "boolean"},
        },
    });
    add_child(&mut server);
    server
}

/// A backend of a local file, which may be a child process instead of an address.
fn local_backend() -> Value {
    let mut backend = backend();
    set(
        &mut backend,
        "anyOf",
        json!([{"required": ["url"]}, {"required": ["command"]}]),
    );
    if let Some(members) = backend.as_object_mut() {
        members.remove("required");
    }
    add_child(&mut backend);
    backend
}

/// Adds what describes a child process.
fn add_child(entry: &mut Value) {
    let properties = &mut entry["properties"];
    let command = text("A program to start as a child process; needs --allow-stdio.");
    set(properties, "command", command);
    set(properties, "args", texts("Arguments of the program."));
    set(properties, "env", text_map("Variables of the program."));
    set(properties, "cwd", text("Working directory of the program."));
    set(
        properties,
        "shared",
        json!({"description": "One child for all sessions.", "type": "boolean"}),
    );
}

fn text(description: &str) -> Value {
    json!({"description": description, "type": "string"})
}

fn texts(description: &str) -> Value {
    json!({"description": description, "type": "array", "items": {"type": "string"}, "default": []})
}

fn text_map(description: &str) -> Value {
    json!({
        "description": description,
        "type": "object",
        "additionalProperties": {"type": "string"},
        "default": {},
    })
}

fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::credential::BackendAuth;
    use crate::config::credential_mode::CredentialMode;
    use crate::config::user_config::{
        BackendConfig, BackendProtocol, BridgeMode, STDIO_FIELDS, Transport,
    };
    use std::collections::BTreeSet;

    fn names(object: &Value) -> BTreeSet<&str> {
        object
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect()
    }

    #[test]
    fn the_schema_has_exactly_the_fields_of_the_type() {
        let backend = BackendConfig {
            allowed_resource_uris: Some(Vec::new()),
            transport: Transport::Sse,
            protocol: Some(BackendProtocol::Auto),
            bridge: Some(BridgeMode::PerRequest),
            session_independent_tools: vec!["*".into()],
            auth: Some(BackendAuth::Unread),
            backend_credential_mode: Some(CredentialMode::Caller),
            backend_resource: Some(String::new()),
            ..BackendConfig::default()
        };
        let written = serde_json::to_value(backend).unwrap();
        let schema = user_config_schema();
        assert_eq!(
            names(&schema["$defs"]["Backend"]["properties"]),
            names(&written)
        );
    }

    #[test]
    fn types_and_words_are_those_of_the_reader() {
        let schema = user_config_schema();
        let properties = schema["$defs"]["Backend"]["properties"]
            .as_object()
            .unwrap();
        let read = |field: &str, value: &Value| {
            let text = json!({"url": "http://a/", field: value}).to_string();
            // The sample may itself be the URL; then it stands alone.
            let text = if field == "url" {
                json!({"url": value}).to_string()
            } else {
                text
            };
            serde_json::from_str::<BackendConfig>(&text).is_ok()
        };
        for (field, property) in properties {
            if field == "auth" {
                assert!(read(field, &json!({"type": "bearer", "token": "env:X"})));
                assert!(!read(field, &json!({"type": "bearer"})));
                assert!(!read(field, &Value::Null));
                continue;
            }
            let (good, bad) = match property["type"].as_str() {
                Some("string") => (json!("http://a/"), json!([])),
                Some("array") => (json!(["x"]), json!([1])),
                Some("object") => (json!({"x": "y"}), json!({"x": 1})),
                None => {
                    for word in property["enum"].as_array().unwrap() {
                        assert!(read(field, word), "{field} {word}");
                    }
                    (property["enum"][0].clone(), json!("nonsense"))
                }
                other => panic!("{field} has the type {other:?}"),
            };
            assert!(read(field, &good), "{field} {good}");
            assert!(!read(field, &bad), "{field} {bad}");
            assert!(!read(field, &Value::Null), "{field} null");
        }
        for field in schema["$defs"]["Backend"]["required"].as_array().unwrap() {
            let mut least = json!({"url": "http://a/"});
            assert!(
                least
                    .as_object_mut()
                    .unwrap()
                    .remove(field.as_str().unwrap())
                    .is_some()
            );
            assert!(serde_json::from_value::<BackendConfig>(least).is_err());
        }
    }

    #[test]
    fn what_describes_a_child_is_what_its_reader_takes() {
        let schema = document_schema();
        for entry in ["Backend", "ClientServer"] {
            let properties = names(&schema["$defs"][entry]["properties"]);
            for field in STDIO_FIELDS {
                assert!(properties.contains(field), "{entry} {field}");
            }
        }
    }

    #[test]
    fn every_reference_resolves() {
        fn references(value: &Value, found: &mut BTreeSet<String>) {
            match value {
                Value::Object(members) => {
                    if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                        found.insert(reference.to_owned());
                    }
                    members
                        .values()
                        .for_each(|member| references(member, found));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                _ => {}
            }
        }
        for schema in [user_config_schema(), document_schema()] {
            let mut found = BTreeSet::new();
            references(&schema, &mut found);
            assert!(found.len() >= 3);
            for reference in found {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(schema.pointer(pointer).is_some(), "{reference}");
            }
        }
    }
}
