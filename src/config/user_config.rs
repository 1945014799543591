//! The routing model of one user: virtual hosts, their backends, and what may be wrong with them.
//!
//! Owns the types that every reader (MessagePack, JSON documents) ends in, and the judgement of
//! their content. The names are the wire names of contextforge.md section 3.2. Reads no files and
//! opens no sockets; a config that cannot be used in part is used in the other parts.

mod address;
mod check;
mod stdio;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use address::{UrlFault, check_url, reverse_source};
pub use check::{Finding, Severity, is_protected_header};
pub use stdio::{DocumentRules, StdioServer};
pub(super) use stdio::{STDIO_FIELDS, StdioFields, of_user as stdio_servers_of};

use super::credential::{BackendAuth, Credential};
use super::credential_mode::CredentialMode;
use super::host_protocols::HostProtocols;
use crate::{
    declared::{ToolFault, Tools},
    policy::Policy,
    schema::{Reason, SchemaFault, SchemaLimits},
    settings::FailMode,
};

/// Everything one user may reach (contextforge.md section 3.2).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserConfig {
    /// Virtual hosts by the id that stands in the request path.
    pub virtual_hosts: BTreeMap<String, VirtualHost>,
}

/// A named set of backends that clients see as one MCP server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualHost {
    /// Backends by the key that prefixes their exposed names (contextforge.md section 5.3).
    pub backends: BTreeMap<String, BackendConfig>,
    /// What happens when some of them fail; our extension, absent = as the settings say.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub failure_mode: Option<FailMode>,
    /// Teams it belongs to; our extension, none = it is everyone's. Counts with `--enforce-scopes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<String>,
    /// Which protocol profiles it serves, as far as the settings allow; our extension, with
    /// light-gateway's names.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub protocols: Option<HostProtocols>,
    /// Tools of its own; our extension.
    #[serde(default, skip_serializing_if = "Tools::is_unsaid")]
    pub tools: Tools,
    /// Whether and how access to them is controlled; our extension ([`crate::policy`]).
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub access_control: Option<Value>,
    /// The rules for that; our extension.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub rules: Option<Value>,
    /// What the tools' `auth` name, once it was fetched, by tool.
    #[serde(skip)]
    pub tool_credentials: BTreeMap<String, Credential>,
}

/// The wire names of a virtual host's fields.
pub(super) const HOST_FIELDS: [&str; 7] = [
    "backends",
    "failure_mode",
    "teams",
    "protocols",
    "tools",
    "access_control",
    "rules",
];

/// The wire names of a backend's fields. Each may stand once; the first one must stand.
pub(super) const BACKEND_FIELDS: [&str; 17] = [
    "url",
    "name",
    "passthrough_headers",
    "add_headers",
    "remove_headers",
    "allowed_tool_names",
    "tool_name_aliases",
    "allowed_resource_names",
    "allowed_prompt_names",
    "allowed_resource_uris",
    "transport",
    "protocol",
    "bridge",
    "session_independent_tools",
    "auth",
    "backend_credential_mode",
    "backend_resource",
];
/// Other spellings of two of them, as dual-profile.md section 2.5 has them.
pub(super) const BACKEND_FIELDS_ALIASED: [(&str, &str); 2] = [
    ("backendCredentialMode", "backend_credential_mode"),
    ("backendResource", "backend_resource"),
];

/// One MCP server behind a virtual host.
///
/// The fields of HEAD in wire order, then what only some writers know. A missing optional field is
/// its default; `null` is not a missing field and is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendConfig {
    /// Name for people; when empty, the backend's key is its name.
    #[serde(default)]
    pub name: String,
    /// Absolute `http` or `https` address, or `reverse:SOURCE` for a server that connects to the
    /// gateway itself; of no meaning when the transport is stdio.
    pub url: String,
    /// Headers copied from the caller's request.
    #[serde(default)]
    pub passthrough_headers: Vec<String>,
    /// Headers set on every upstream request; they override copied ones.
    #[serde(default)]
    pub add_headers: BTreeMap<String, String>,
    /// Headers removed last.
    #[serde(default)]
    pub remove_headers: Vec<String>,
    /// Upstream original tool names; see [`BackendConfig::is_unrestricted`] for empty lists.
    #[serde(default)]
    pub allowed_tool_names: Vec<String>,
    /// Exposed alias to upstream original tool name.
    #[serde(default)]
    pub tool_name_aliases: BTreeMap<String, String>,
    /// Upstream original resource names.
    #[serde(default)]
    pub allowed_resource_names: Vec<String>,
    /// Upstream original prompt names.
    #[serde(default)]
    pub allowed_prompt_names: Vec<String>,
    /// Upstream resource URIs; published since HEAD, unknown to older writers.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub allowed_resource_uris: Option<Vec<String>>,
    /// How the backend is spoken to; written by SEED only.
    #[serde(default, skip_serializing_if = "Transport::is_default")]
    pub transport: Transport,
    /// Which revision family the backend speaks; our extension, absent = find out.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub protocol: Option<BackendProtocol>,
    /// How clients without sessions are served although it has them; our extension, absent = not.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub bridge: Option<BridgeMode>,
    /// Tools that need nothing said before, by the backend's own names; `*`: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub session_independent_tools: Vec<String>,
    /// A credential of the gateway's own for the backend; our extension, of local files only.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub auth: Option<BackendAuth>,
    /// Whose credential the backend gets; our extension, absent = the one of `auth`, if any.
    #[serde(
        default,
        alias = "backendCredentialMode",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub backend_credential_mode: Option<CredentialMode>,
    /// What the caller's token must be meant for, if it is passed on to the backend.
    #[serde(
        default,
        alias = "backendResource",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub backend_resource: Option<String>,
    /// What `auth` names, once it was fetched.
    #[serde(skip)]
    pub credential: Option<Credential>,
    /// The child process behind it; only a document of the file store has one.
    #[serde(skip)]
    pub stdio: Option<Arc<StdioServer>>,
}

// An optional field may be left out, but contextforge.md section 3.2 makes no field nullable.
fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

impl UserConfig {
    /// Whether a backend is to be a child process that may not be started.
    #[must_use]
    pub fn has_unusable_child(&self) -> bool {
        let hosts = self.virtual_hosts.values();
        hosts
            .flat_map(|host| host.backends.values())
            .any(|backend| backend.transport == Transport::Stdio && backend.stdio.is_none())
    }
}

/// Said where backends at `reverse:SOURCE` cannot work.
pub const REVERSE_IS_OFF: &str = "backends at reverse:SOURCE are left out: servers connect \
     themselves only where the connection gateway is on; set CONNECTION_GATEWAY_WS_PORT";

impl UserConfig {
    /// Whether a backend is a server that connects to the gateway itself.
    #[must_use]
    pub fn has_reverse(&self) -> bool {
        let hosts = self.virtual_hosts.values();
        hosts
            .flat_map(|host| host.backends.values())
            .any(|backend| backend.reverse_source().is_some())
    }
}

impl UserConfig {
    /// Holds the schemas of declared tools to these bounds instead of the usual ones.
    pub fn judge_tools(&mut self, limits: &SchemaLimits) {
        for host in self.virtual_hosts.values_mut() {
            host.tools = std::mem::take(&mut host.tools).judged(limits);
        }
    }
}

impl VirtualHost {
    /// What is wrong with its declared tools and with the rules about them. Then no part of the
    /// configuration is used (dual-profile.md 3.1).
    #[must_use]
    pub fn tool_faults(&self) -> Vec<ToolFault> {
        let mut faults = self.tools.faults().to_vec();
        for tool in self.tools.tools() {
            if let Some(route) = tool.mcp()
                && !self.backends.contains_key(&*route.backend)
            {
                let text = format!("the virtual host has no backend {}", route.backend);
                let reason = Reason::RoutingContract;
                let fault = ToolFault::configuration(&tool.name, reason, "/serviceId", text);
                faults.push(fault);
            }
        }
        if let Err(found) = Policy::read(self.access_control.as_ref(), self.rules.as_ref()) {
            faults.extend(found.into_iter().map(|fault: SchemaFault| {
                ToolFault::configuration("", fault.reason, &fault.pointer, fault.text)
            }));
        }
        faults
    }
}

impl BackendConfig {
    /// The source under which the server connects to the gateway itself, if it does.
    #[must_use]
    pub fn reverse_source(&self) -> Option<&str> {
        let is_http = self.transport == Transport::StreamableHttp;
        reverse_source(&self.url).filter(|source| is_http && !source.is_empty())
    }

    /// True when no allow-list says anything, which means that all may be reached
    /// (contextforge.md section 5.5). Otherwise each list is exact; an empty one allows nothing.
    #[must_use]
    pub fn is_unrestricted(&self) -> bool {
        self.allowed_tool_names.is_empty()
            && self.allowed_resource_names.is_empty()
            && self.allowed_prompt_names.is_empty()
            && self
                .allowed_resource_uris
                .as_ref()
                .is_none_or(Vec::is_empty)
    }
}

/// `transport` of SEED's layout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// MCP streamable HTTP; what every backend without the field has.
    #[default]
    #[serde(rename = "STREAMABLEHTTP", alias = "streamable-http", alias = "http")]
    StreamableHttp,
    /// The HTTP+SSE transport of revision 2024-11-05.
    #[serde(rename = "SSE", alias = "sse")]
    Sse,
    /// A child process.
    #[serde(rename = "STDIO", alias = "stdio")]
    Stdio,
}

impl Transport {
    /// The word on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::StreamableHttp => "STREAMABLEHTTP",
            Self::Sse => "SSE",
            Self::Stdio => "STDIO",
        }
    }

    /// Reads the word on the wire.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::StreamableHttp, Self::Sse, Self::Stdio]
            .into_iter()
            .find(|one| one.name() == name)
    }

    fn is_default(&self) -> bool {
        *self == Self::StreamableHttp
    }
}

/// How a client without sessions reaches a backend that has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BridgeMode {
    /// Each request in a backend session of its own (dual-profile.md 2.8).
    #[serde(rename = "per-request", alias = "perRequest")]
    PerRequest,
}

impl BridgeMode {
    /// The word in configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PerRequest => "per-request",
        }
    }

    /// Reads the word in configuration.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        matches!(name, "per-request" | "perRequest").then_some(Self::PerRequest)
    }
}

/// Which protocol profile a backend speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendProtocol {
    /// Found out by asking.
    Auto,
    /// The revisions with `initialize` and sessions.
    Legacy,
    /// Revision 2026-07-28.
    Stateless,
}

impl BackendProtocol {
    /// The word in configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Legacy => "legacy",
            Self::Stateless => "stateless",
        }
    }

    /// Reads the word in configuration.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Auto, Self::Legacy, Self::Stateless]
            .into_iter()
            .find(|one| one.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_backend_is_a_url() {
        let backend: BackendConfig = serde_json::from_str(r#"{"url":"http://a/"}"#).unwrap();
        assert_eq!(
            backend,
            BackendConfig {
                url: "http://a/".into(),
                ..BackendConfig::default()
            }
        );
        assert!(backend.is_unrestricted());
        assert!(serde_json::from_str::<BackendConfig>("{}").is_err());
    }

    #[test]
    fn null_is_not_a_missing_field() {
        for field in [
            "name",
            "passthrough_headers",
            "add_headers",
            "allowed_tool_names",
            "allowed_resource_uris",
            "transport",
            "protocol",
            "auth",
            "backend_credential_mode",
            "backend_resource",
        ] {
            let text = format!(r#"{{"url":"http://a/","{field}":null}}"#);
            assert!(
                serde_json::from_str::<BackendConfig>(&text).is_err(),
                "{field}"
            );
        }
    }

    #[test]
    fn one_list_makes_the_backend_restricted() {
        let allowed_resource_uris = Some(Vec::new());
        let mut backend = BackendConfig {
            allowed_resource_uris,
            ..BackendConfig::default()
        };
        assert!(backend.is_unrestricted());
        backend.allowed_prompt_names.push("p".into());
        assert!(!backend.is_unrestricted());
    }

    #[test]
    fn words_round_trip() {
        for transport in [Transport::StreamableHttp, Transport::Sse, Transport::Stdio] {
            assert_eq!(Transport::from_name(transport.name()), Some(transport));
            let json = format!("\"{}\"", transport.name());
            assert_eq!(serde_json::from_str::<Transport>(&json).unwrap(), transport);
        }
        for protocol in [
            BackendProtocol::Auto,
            BackendProtocol::Legacy,
            BackendProtocol::Stateless,
        ] {
            assert_eq!(BackendProtocol::from_name(protocol.name()), Some(protocol));
            let json = format!("\"{}\"", protocol.name());
            assert_eq!(
                serde_json::from_str::<BackendProtocol>(&json).unwrap(),
                protocol
            );
        }
    }
}
