//! JSON Schemas of declared tools and of the rules about them.

use serde_json::{Value, json};

use super::{text, texts};

/// One declared tool.
pub(super) fn declaration() -> Value {
    let schema = |description: &str| {
        json!({
            "description": description,
            "type": ["object", "boolean", "string"],
        })
    };
    json!({
        "description": "A tool of the virtual host's own: an HTTP API, or a backend's tool under \
                        another name and schema.",
        "type": "object",
        "required": ["name"],
        "additionalProperties": false,
        "properties": {
            "$comment": {"description": "A remark."},
            "name": {
                "description": "As clients see it.",
                "type": "string",
                "pattern": "^[A-Za-z0-9_.-]{1,128}$",
            },
            "title": text("For people."),
            "description": text("For models."),
            "apiType": {
                "description": "What is behind it; the empty word, rest and openapi mean http.",
                "enum": ["", "http", "rest", "openapi", "mcp"],
                "default": "http",
            },
            "targetHost": text("HTTP: absolute address of the server, with a path before all paths."),
            "path": text("HTTP: path with {placeholders}."),
            "method": {
                "description": "HTTP: CALL is POST with an inputSchema and GET without.",
                "type": "string",
                "pattern": "^(?i:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS|CALL)$",
                "default": "GET",
            },
            "endpoint": text("What rules know it by; PATH@METHOD, or /NAME@call for mcp."),
            "serviceId": text("mcp: key of the backend."),
            "endpointName": text("mcp: the tool's name there; its own name when absent."),
            "sessionIndependent": {
                "description": "mcp: it needs no state of an earlier call.",
                "type": "boolean",
                "default": false,
            },
            "inputSchema": schema("Of the arguments: JSON Schema 2020-12, or a string with it."),
            "outputSchema": schema("Of the structured result, likewise."),
            "toolMetadata": tool_metadata(),
            "auth": {"$ref": "#/$defs/BackendAuth"},
            "executionPlacement": {"enum": ["backend"], "default": "backend"},
            "protocol": false,
            "envTag": false,
            "workflowBinding": false,
            "backendMcpProtocol": false,
            "backendCredentialMode": false,
            "backendResource": false,
        },
    })
}

fn tool_metadata() -> Value {
    let flag = |description: &str| json!({"description": description, "type": "boolean"});
    json!({
        "description": "How it is called; other members describe it to catalogs.",
        "type": ["object", "string"],
        "properties": {
            "routing": {
                "type": "object",
                "properties": {
                    "parameters": {
                        "description": "Where each argument goes.",
                        "type": "object",
                        "additionalProperties": {
                            "enum": [
                                "path", "query", "queryEach", "queryJoined", "header", "cookie",
                                "body",
                            ],
                        },
                    },
                    "unmappedArguments": {
                        "description": "Where the others go.",
                        "enum": ["methodDefault", "query", "body", "reject"],
                        "default": "methodDefault",
                    },
                    "bodyMappingMode": {
                        "description": "One argument is the body, or the body has one member each.",
                        "enum": ["legacyWhole", "fields"],
                        "default": "legacyWhole",
                    },
                    "requireCompleteParameterMappings": flag("Every argument has a place."),
                },
            },
            "runtime": {
                "type": "object",
                "properties": {
                    "allowPrivateTargetHost": flag("It may lead to this host and its networks."),
                    "timeoutMs": {
                        "description": "Time for one attempt, ms.",
                        "type": "integer",
                        "minimum": 1,
                        "maximum": 600_000,
                    },
                    "retry": {
                        "description": "When a call is sent again; only with safety.idempotent.",
                        "type": "object",
                        "properties": {
                            "enabled": {"type": "boolean"},
                            "maxAttempts": {"type": "integer", "minimum": 2, "maximum": 5},
                            "backoffMs": {"type": "integer", "minimum": 0, "maximum": 1000},
                            "retryStatusCodes": {
                                "type": "array",
                                "items": {"enum": [408, 425, 429, 500, 502, 503, 504]},
                            },
                            "retryOn": {"type": "array", "items": {"enum": [
                                "timeout", "connect", "connection",
                            ]}},
                        },
                    },
                },
            },
            "safety": {
                "type": "object",
                "properties": {
                    "read_only": flag("It changes nothing."),
                    "destructive": flag("It may destroy something."),
                    "idempotent": flag("Twice is as once."),
                },
            },
        },
    })
}

/// `access_control` of a virtual host.
pub(super) fn access_control() -> Value {
    json!({
        "description": "Access to declared tools, by the claims of the caller's token.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "enabled": {"type": "boolean", "default": true},
            "accessRuleLogic": {"enum": ["any", "all"], "default": "any"},
            "defaultDeny": {
                "description": "Without a rule a call is denied.",
                "type": "boolean",
                "default": true,
            },
            "defaultInclude": {
                "description": "A caller no row filter is about gets all rows.",
                "type": "boolean",
                "default": false,
            },
            "skipPathPrefixes": texts("Names and endpoints that are not asked about."),
            "claimMappings": {
                "description": "More claims for a dimension.",
                "type": "object",
                "additionalProperties": {"type": "array", "items": {"type": "string"}},
            },
            "toolsListAccessControl": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "mode": {
                        "description": "permission hides what may not be called.",
                        "enum": ["none", "permission"],
                        "default": "none",
                    },
                    "unknownRuleFallback": {"enum": ["hidden", "visible"]},
                    "maxCelEvaluations": {"type": "integer"},
                    "maxCacheEntries": {"type": "integer"},
                },
            },
        },
    })
}

/// `rules` of a virtual host.
pub(super) fn access_rules() -> Value {
    let list = json!({
        "description": "A list, or a string with words or with a JSON list.",
        "type": ["array", "string"],
    });
    let dimensions = json!({"type": "object", "additionalProperties": list});
    let by_value = |filter: Value| {
        json!({
            "description": "Filters by dimension and value.",
            "type": "object",
            "additionalProperties": {"type": "object", "additionalProperties": filter},
        })
    };
    let row = json!({"type": "array", "items": {
        "type": "object",
        "required": ["colName", "colValue"],
        "properties": {
            "colName": {"type": "string"},
            "operator": {"enum": ["=", "!=", "<", ">", "<=", ">=", "in", "not in", "range"]},
            "colValue": {},
        },
    }});
    json!({
        "description": "The rules that access_control asks.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "endpointRules": {
                "description": "Rules by PATH@METHOD.",
                "type": "object",
                "additionalProperties": {
                    "type": "object",
                    "additionalProperties": false,
                    "properties": {
                        "req-acc": list,
                        "res-fil": list,
                        "visibility": dimensions,
                        "permission": {
                            "type": "object",
                            "properties": {
                                "roles": list,
                                "row": by_value(row),
                                "col": by_value(json!({"type": "string"})),
                            },
                        },
                    },
                },
            },
            "ruleBodies": {
                "description": "What rules do, by id.",
                "type": "object",
                "additionalProperties": {
                    "type": "object",
                    "required": ["actions"],
                    "properties": {
                        "actions": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "required": ["actionClassName"],
                                "properties": {"actionClassName": {
                                    "description": "With any package before it.",
                                    "type": "string",
                                    "pattern": "(RoleBasedAccessControlAction|\
                                                ResponseRowFilterAction|\
                                                ResponseColumnFilterAction)$",
                                }},
                            },
                        },
                    },
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::declared::TOOL_FIELDS;

    #[test]
    fn the_schema_has_exactly_the_fields_of_the_reader() {
        let schema = declaration();
        let written: BTreeSet<&str> = schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(written, TOOL_FIELDS.into_iter().collect());
        for field in TOOL_FIELDS {
            let mut tool = json!({"name": "t"});
            tool[field] = json!({});
            let read = crate::declared::Tools::read(json!([tool]), &Default::default()).unwrap();
            let is_unknown = |text: &str| text.contains("unknown field");
            let faults = read.faults();
            assert!(
                !faults.iter().any(|fault| is_unknown(&fault.fault.text)),
                "{field}"
            );
        }
        let unknown =
            crate::declared::Tools::read(json!([{"name": "t", "nmae": 1}]), &Default::default())
                .unwrap();
        assert!(unknown.faults()[0].fault.text.contains("unknown field"));
    }

    #[test]
    fn what_the_schema_takes_is_taken() {
        let validator = |schema: Value| {
            let mut schema = schema;
            schema["$defs"] = json!({"BackendAuth": true});
            jsonschema::options().offline().build(&schema).unwrap()
        };
        let sound = json!({"name": "t", "targetHost": "https://a.example", "path": "/t",
            "method": "post", "toolMetadata": {"routing": {"parameters": {"a": "queryEach"}},
                "runtime": {"timeoutMs": 5}}});
        assert!(validator(declaration()).is_valid(&sound));
        let read = crate::declared::Tools::read(json!([sound]), &Default::default()).unwrap();
        assert_eq!(read.faults(), []);
        for bad in [
            json!({"name": "a b"}),
            json!({"name": "t", "envTag": "x"}),
            json!({}),
        ] {
            assert!(!validator(declaration()).is_valid(&bad), "{bad}");
            let read = crate::declared::Tools::read(json!([bad]), &Default::default()).unwrap();
            assert!(!read.faults().is_empty(), "{bad}");
        }
        let (access, rules) = (
            json!({"toolsListAccessControl": {"mode": "permission"}, "skipPathPrefixes": ["/a"]}),
            json!({"endpointRules": {"/a@get": {"req-acc": ["r"], "visibility": {"groups": "g"},
                "permission": {"roles": "x", "col": {"role": {"x": "!a"}}, "row": {"role": {
                    "x": [{"colName": "a", "operator": "<", "colValue": 1}]}}}}},
                "ruleBodies": {"r": {"actions": [{"actionClassName":
                    "com.networknt.rule.RoleBasedAccessControlAction"}]}}}),
        );
        assert!(validator(access_control()).is_valid(&access));
        assert!(validator(access_rules()).is_valid(&rules));
        let policy = crate::policy::Policy::read(Some(&access), Some(&rules));
        assert!(policy.unwrap().is_some());
        let cel = json!({"toolsListAccessControl": {"mode": "cel"}});
        assert!(!validator(access_control()).is_valid(&cel));
        assert!(crate::policy::Policy::read(Some(&cel), None).is_err());
    }
}
