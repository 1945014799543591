//! Resources and prompts, when there are to be any.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::answer::{Asked, write_error};
use crate::era::Era;

/// The code of a resource that is not there (mcp.md 3).
const RESOURCE_NOT_FOUND: i32 = -32002;
const INVALID_PARAMS: i32 = -32602;

#[derive(Deserialize)]
struct ReadParams<'a> {
    #[serde(borrow)]
    uri: Cow<'a, str>,
}

#[derive(Deserialize)]
struct GetParams<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

/// What a shard offers beside tools.
pub(super) struct Extras {
    resource_count: u32,
    prompt_count: u32,
    resources: String,
    prompts: String,
}

impl Extras {
    pub(super) fn new(resource_count: u32, prompt_count: u32) -> Self {
        let list = |count, member: &dyn Fn(u32) -> Value| {
            Value::Array((1..=count).map(member).collect()).to_string()
        };
        Self {
            resource_count,
            prompt_count,
            resources: list(resource_count, &|number| {
                json!({"uri": uri(number), "name": format!("resource {number}"),
                       "mimeType": "text/plain"})
            }),
            prompts: list(
                prompt_count,
                &|number| json!({"name": prompt_name(number), "description": "Says its own name."}),
            ),
        }
    }

    /// Adds what is offered to the capabilities.
    pub(super) fn declare(&self, capabilities: &mut Value) {
        for (name, count) in [
            ("resources", self.resource_count),
            ("prompts", self.prompt_count),
        ] {
            if count > 0 {
                capabilities[name] = json!({"listChanged": false});
            }
        }
    }

    /// Appends the reply to a method of resources or prompts; false: it is none, or they are off.
    pub(super) fn answer(
        &self,
        asked: Asked<'_>,
        method: &str,
        params: Option<&RawValue>,
        body: &mut Vec<u8>,
    ) -> bool {
        let params = params.map_or("{}", RawValue::get);
        let is_known = |name: &str, known: fn(u32) -> String, count| {
            let digits = name.rsplit(['_', '/']).next().unwrap_or_default();
            let number = digits.parse().unwrap_or(0);
            (1..=count).contains(&number) && known(number) == name
        };
        let result = match method {
            "resources/list" if self.resource_count > 0 => {
                format!(r#""resources":{}"#, self.resources)
            }
            "resources/templates/list" if self.resource_count > 0 => {
                r#""resourceTemplates":[]"#.to_owned()
            }
            "resources/read" if self.resource_count > 0 => match serde_json::from_str(params) {
                Ok(ReadParams { uri: named }) if is_known(&named, uri, self.resource_count) => {
                    let text = format!("text of {named}");
                    let contents = json!([{"uri": named, "mimeType": "text/plain", "text": text}]);
                    format!(r#""contents":{contents}"#)
                }
                _ => {
                    let code = match asked.era {
                        Era::Legacy => RESOURCE_NOT_FOUND,
                        Era::Stateless => INVALID_PARAMS,
                    };
                    write_error(body, asked.id, code, "Resource not found");
                    return true;
                }
            },
            "prompts/list" if self.prompt_count > 0 => {
                format!(r#""prompts":{}"#, self.prompts)
            }
            "prompts/get" if self.prompt_count > 0 => match serde_json::from_str(params) {
                Ok(GetParams { name }) if is_known(&name, prompt_name, self.prompt_count) => {
                    let content = json!({"type": "text", "text": name});
                    let messages = json!([{"role": "user", "content": content}]);
                    format!(r#""messages":{messages}"#)
                }
                _ => {
                    write_error(body, asked.id, INVALID_PARAMS, "Unknown prompt");
                    return true;
                }
            },
            _ => return false,
        };
        if method == "prompts/get" {
            asked.open_result(body);
        } else {
            asked.open_kept_result(body);
        }
        body.extend_from_slice(result.as_bytes());
        body.extend_from_slice(b"}}");
        true
    }
}

fn uri(number: u32) -> String {
    format!("sample:///resource/{number}")
}

fn prompt_name(number: u32) -> String {
    format!("prompt_{number:03}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked<'_> = Asked {
        id: "7",
        era: Era::Legacy,
    };

    fn ask(extras: &Extras, method: &str, params: &str) -> Option<Value> {
        let params = serde_json::from_str::<Box<RawValue>>(params).unwrap();
        let mut body = Vec::new();
        extras
            .answer(ASKED, method, Some(&params), &mut body)
            .then(|| serde_json::from_slice(&body).unwrap())
    }

    #[test]
    fn what_is_listed_can_be_had() {
        let extras = Extras::new(2, 1);
        let resources = ask(&extras, "resources/list", "{}").unwrap();
        let resources = resources["result"]["resources"].as_array().unwrap();
        assert_eq!(resources.len(), 2);
        for resource in resources {
            let params = json!({"uri": resource["uri"]}).to_string();
            let read = ask(&extras, "resources/read", &params).unwrap();
            assert_eq!(read["result"]["contents"][0]["uri"], resource["uri"]);
        }
        let got = ask(&extras, "prompts/get", r#"{"name":"prompt_001"}"#).unwrap();
        assert_eq!(
            got["result"]["messages"][0]["content"]["text"],
            "prompt_001"
        );
        let unknown = ask(
            &extras,
            "resources/read",
            r#"{"uri":"sample:///resource/3"}"#,
        );
        assert_eq!(unknown.unwrap()["error"]["code"], RESOURCE_NOT_FOUND);
        let unknown = ask(&extras, "prompts/get", r#"{"name":"prompt_1"}"#);
        assert_eq!(unknown.unwrap()["error"]["code"], INVALID_PARAMS);
    }

    #[test]
    fn what_is_off_is_not_there() {
        let extras = Extras::new(0, 0);
        assert!(ask(&extras, "resources/list", "{}").is_none());
        assert!(ask(&extras, "prompts/get", "{}").is_none());
        let mut capabilities = json!({});
        extras.declare(&mut capabilities);
        assert_eq!(capabilities, json!({}));
    }
}
