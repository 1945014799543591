//! A declaration, from JSON to a [`Tool`]: everything that is wrong with it is told at once.

use serde::Deserialize;
use serde_json::Value;

use super::{
    fault::ToolFault,
    list::Descriptors,
    metadata::Metadata,
    routing::{self, Routing},
    tool::{HttpRoute, Kind, McpRoute, Tool},
};
use crate::{
    config::credential::BackendAuth,
    schema::{InputSchema, OutputSchema, Reason, SchemaFault, SchemaKind, SchemaLimits},
    upstream::guard::is_forbidden_host,
};

/// Characters of a tool's name at the most (mcp.md 2.9, SEP-986).
const NAME_BYTES_MAX: usize = 128;

/// A declaration as written, with the names of dual-profile.md 7. `title` and `auth` are ours.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Written {
    name: String,
    endpoint_name: Option<String>,
    title: Option<String>,
    #[serde(default)]
    description: String,
    protocol: Option<String>,
    service_id: Option<String>,
    env_tag: Option<String>,
    target_host: Option<String>,
    path: Option<String>,
    method: Option<String>,
    endpoint: Option<String>,
    #[serde(default)]
    api_type: String,
    execution_placement: Option<String>,
    workflow_binding: Option<Value>,
    backend_mcp_protocol: Option<String>,
    session_independent: Option<bool>,
    backend_credential_mode: Option<String>,
    backend_resource: Option<String>,
    #[serde(default, deserialize_with = "said")]
    input_schema: Option<Value>,
    #[serde(default, deserialize_with = "said")]
    output_schema: Option<Value>,
    #[serde(default)]
    tool_metadata: Value,
    auth: Option<BackendAuth>,
}

// `null` is said, and is not a schema.
fn said<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The names of all fields of a declaration.
#[cfg(test)]
pub(crate) const TOOL_FIELDS: [&str; 23] = [
    "name",
    "endpointName",
    "title",
    "description",
    "protocol",
    "serviceId",
    "envTag",
    "targetHost",
    "path",
    "method",
    "endpoint",
    "apiType",
    "executionPlacement",
    "workflowBinding",
    "backendMcpProtocol",
    "sessionIndependent",
    "backendCredentialMode",
    "backendResource",
    "inputSchema",
    "outputSchema",
    "toolMetadata",
    "auth",
    // A remark of the author's, as in documents.
    "$comment",
];

/// Judges and compiles the declaration at `index` of a list.
///
/// # Errors
/// Everything that is wrong with it.
pub(super) fn tool(
    declaration: &Value,
    index: usize,
    limits: &SchemaLimits,
) -> Result<Tool, Vec<ToolFault>> {
    let name = declaration.get("name").and_then(Value::as_str);
    let mut loader = Loader {
        name: name.map_or_else(|| format!("#{index}"), str::to_owned),
        index,
        faults: Vec::new(),
    };
    let tool = loader.tool(declaration, limits);
    match tool {
        Some(tool) if loader.faults.is_empty() => Ok(tool),
        _ => Err(loader.faults),
    }
}

struct Loader {
    name: String,
    index: usize,
    faults: Vec<ToolFault>,
}

impl Loader {
    fn take(&mut self, kind: SchemaKind, faults: impl IntoIterator<Item = SchemaFault>) {
        let (tool, index) = (&self.name, self.index);
        self.faults
            .extend(faults.into_iter().map(|fault| ToolFault {
                tool: tool.clone(),
                index: Some(index),
                kind,
                fault,
            }));
    }

    fn refuse(&mut self, reason: Reason, pointer: &str, text: impl Into<String>) {
        let fault = SchemaFault::new(reason, pointer, text);
        self.take(SchemaKind::Configuration, [fault]);
    }

    fn tool(&mut self, declaration: &Value, limits: &SchemaLimits) -> Option<Tool> {
        let mut declaration = declaration.clone();
        if let Some(members) = declaration.as_object_mut() {
            members.remove("$comment");
        }
        let mut written: Written = match serde_json::from_value(declaration) {
            Ok(written) => written,
            Err(error) => {
                self.refuse(Reason::ConfigInvalid, "", error.to_string());
                return None;
            }
        };
        self.check_name(&written.name);
        let is_http = match written.api_type.as_str() {
            "" | "http" | "rest" | "openapi" => true,
            "mcp" => false,
            _ => {
                let text = "it is none of http, rest, openapi and mcp";
                self.refuse(Reason::ConfigInvalid, "/apiType", text);
                return None;
            }
        };
        for (field, value) in [
            ("inputSchema", &mut written.input_schema),
            ("outputSchema", &mut written.output_schema),
        ] {
            if let Some(document) = value {
                self.unquote(field, document);
            }
        }
        self.unquote("toolMetadata", &mut written.tool_metadata);
        let input = InputSchema::new(written.input_schema.as_ref(), limits);
        let input = input
            .map_err(|faults| self.take(SchemaKind::Input, faults))
            .ok();
        let output = match &written.output_schema {
            None => Some(None),
            Some(document) => OutputSchema::new(document, limits)
                .map_err(|faults| self.take(SchemaKind::Output, faults))
                .ok()
                .map(Some),
        };
        let metadata = Metadata::read(&written.tool_metadata);
        let metadata = metadata.unwrap_or_else(|faults| {
            for (pointer, text) in faults {
                let at = format!("/toolMetadata{pointer}");
                self.refuse(Reason::ConfigInvalid, &at, text);
            }
            Metadata::default()
        });
        self.check_unsupported(&written);
        let has_input = written.input_schema.is_some();
        let method = routing::method(written.method.as_deref(), has_input);
        let method = method
            .map_err(|fault| self.take(SchemaKind::Configuration, [fault]))
            .unwrap_or("GET");
        let kind = if is_http {
            self.http(&written, method, &metadata, input.as_ref())
                .map(|route| Kind::Http(Box::new(route)))
        } else {
            self.mcp(&written).map(Kind::Mcp)
        };
        if let Some(auth) = &written.auth {
            if let Err(fault) = auth.check() {
                self.refuse(Reason::ConfigInvalid, "/auth", fault);
            }
            let sets = |name: &str| name.eq_ignore_ascii_case(auth.header_name());
            let parameters = metadata.parameters.iter().flatten();
            if parameters
                .clone()
                .any(|(name, place)| place == "header" && sets(name))
            {
                let text = "an argument is mapped to the header of the credential";
                self.refuse(Reason::RoutingContract, "/auth", text);
            }
        }
        let (input, output, kind) = (input?, output?, kind?);
        let mut tool = Tool {
            endpoint: self.endpoint(&written, method).into(),
            name: written.name.into(),
            title: written.title.map(String::into_boxed_str),
            description: written.description.into(),
            input,
            output,
            kind,
            safety: metadata.safety,
            timeout: metadata.timeout,
            retry: metadata.retry,
            auth: written.auth,
            descriptors: Descriptors::default(),
        };
        tool.descriptors = Descriptors::new(&tool);
        Some(tool)
    }

    fn check_name(&mut self, name: &str) {
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_name_byte) {
            let text = format!("a name is 1 to {NAME_BYTES_MAX} letters, digits, `_`, `.` and `-`");
            self.refuse(Reason::ToolNameInvalid, "/name", text);
        }
    }

    /// A part may also be JSON in a string (dual-profile.md 4.1). What is a string and no JSON
    /// stays one, to be refused as what it is.
    fn unquote(&mut self, field: &str, document: &mut Value) {
        if let Value::String(text) = document
            && !text.trim().is_empty()
        {
            match serde_json::from_str(text) {
                Ok(inner) => *document = inner,
                Err(_) => {
                    let at = format!("/{field}");
                    self.refuse(Reason::ConfigInvalid, &at, "the string in it is not JSON");
                }
            }
        }
    }

    /// What other gateways have and this one has in another place, or not.
    fn check_unsupported(&mut self, written: &Written) {
        let refused = [
            (
                written.protocol.is_some(),
                "/protocol",
                "there is no service registry: targetHost has the scheme",
            ),
            (
                written.env_tag.is_some(),
                "/envTag",
                "there is no service registry: use targetHost",
            ),
            (
                written.workflow_binding.is_some(),
                "/workflowBinding",
                "there are no workflows here",
            ),
            (
                written
                    .execution_placement
                    .as_deref()
                    .is_some_and(|placement| placement != "backend"),
                "/executionPlacement",
                "only backend is supported",
            ),
        ];
        for (_, pointer, text) in refused.into_iter().filter(|(is_said, ..)| *is_said) {
            self.refuse(Reason::ConfigInvalid, pointer, text);
        }
        let of_mcp = [
            (
                "/backendMcpProtocol",
                written.backend_mcp_protocol.is_some(),
            ),
            (
                "/backendCredentialMode",
                written.backend_credential_mode.is_some(),
            ),
            ("/backendResource", written.backend_resource.is_some()),
        ];
        let is_http = written.api_type != "mcp";
        for (pointer, _) in of_mcp.into_iter().filter(|(_, is_said)| *is_said) {
            if is_http {
                let text = "an HTTP tool has none";
                self.refuse(Reason::RoutingContract, pointer, text);
            } else {
                let text = "the backend's own entry says it for all its tools";
                self.refuse(Reason::ConfigInvalid, pointer, text);
            }
        }
        if is_http && written.session_independent.is_some() {
            let text = "an HTTP tool has none";
            self.refuse(Reason::RoutingContract, "/sessionIndependent", text);
        }
    }

    fn http(
        &mut self,
        written: &Written,
        method: &'static str,
        metadata: &Metadata,
        input: Option<&InputSchema>,
    ) -> Option<HttpRoute> {
        if written.endpoint_name.is_some() {
            let text = "only a tool of a backend has a name there";
            self.refuse(Reason::ConfigInvalid, "/endpointName", text);
        }
        if written.service_id.is_some() {
            let text = "there is no service registry: use targetHost";
            self.refuse(Reason::ConfigInvalid, "/serviceId", text);
        }
        let base = match written.target_host.as_deref().map(target) {
            None => {
                self.refuse(Reason::RoutingContract, "/targetHost", "it is missing");
                None
            }
            Some(Err(text)) => {
                self.refuse(Reason::RoutingContract, "/targetHost", text);
                None
            }
            Some(Ok(base)) => Some(base),
        };
        if let Some(base) = &base
            && !metadata.allows_private
            && is_forbidden_host(host_of(base))
        {
            let text = "it is this host, a private network or a metadata service; \
                        toolMetadata.runtime.allowPrivateTargetHost allows that";
            self.refuse(Reason::RoutingContract, "/targetHost", text);
        }
        let Some(path) = written.path.as_deref() else {
            self.refuse(Reason::ConfigInvalid, "/path", "it is missing");
            return None;
        };
        let routing = Routing::new(path, method, metadata, input);
        let routing = routing
            .map_err(|faults| self.take(SchemaKind::Configuration, faults))
            .ok();
        Some(HttpRoute {
            base: base?,
            method,
            allows_private: metadata.allows_private,
            routing: routing?,
        })
    }

    fn mcp(&mut self, written: &Written) -> Option<McpRoute> {
        for (pointer, is_said) in [
            ("/targetHost", written.target_host.is_some()),
            ("/path", written.path.is_some()),
            ("/method", written.method.is_some()),
            ("/auth", written.auth.is_some()),
        ] {
            if is_said {
                let text = "the backend's own entry says where it is and who calls it";
                self.refuse(Reason::ConfigInvalid, pointer, text);
            }
        }
        let Some(backend) = &written.service_id else {
            let text = "it is missing: the key of a backend of this virtual host";
            self.refuse(Reason::RoutingContract, "/serviceId", text);
            return None;
        };
        let tool = written.endpoint_name.as_ref().unwrap_or(&written.name);
        Some(McpRoute {
            backend: backend.as_str().into(),
            tool: tool.as_str().into(),
            is_session_independent: written.session_independent == Some(true),
        })
    }

    fn endpoint(&self, written: &Written, method: &str) -> String {
        match (&written.endpoint, &written.path) {
            (Some(endpoint), _) => endpoint.clone(),
            (None, Some(path)) => format!("{path}@{}", method.to_ascii_lowercase()),
            (None, None) => format!("/{}@call", written.name),
        }
    }
}

/// The host of an address, no brackets.
pub(super) fn host_of(base: &url::Url) -> &str {
    let host = base.host_str().unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']')
}

fn target(text: &str) -> Result<url::Url, &'static str> {
    let base = url::Url::parse(text).map_err(|_| "it is not an absolute address")?;
    if !matches!(base.scheme(), "http" | "https") {
        return Err("only http and https are spoken");
    }
    if base.host_str().is_none_or(str::is_empty) {
        return Err("it has no host");
    }
    if !base.username().is_empty() || base.password().is_some() {
        return Err("an address has no user and no password; use auth");
    }
    if base.query().is_some() || base.fragment().is_some() {
        return Err("it has no query and no fragment");
    }
    Ok(base)
}
