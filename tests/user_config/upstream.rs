//! The upstream's own structures, for an encoder that is not ours.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shardgate::config::user_config::{BackendConfig, UserConfig};

/// Upstream SEED, in declaration order.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SeedBackend {
    name: String,
    url: String,
    transport: String,
    passthrough_headers: Vec<String>,
    allowed_tool_names: Vec<String>,
    #[serde(default)]
    tool_name_aliases: BTreeMap<String, String>,
    allowed_resource_names: Vec<String>,
    allowed_prompt_names: Vec<String>,
}

/// Upstream HEAD, in declaration order.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HeadBackend {
    name: String,
    url: String,
    passthrough_headers: Vec<String>,
    #[serde(default)]
    add_headers: BTreeMap<String, String>,
    #[serde(default)]
    remove_headers: Vec<String>,
    allowed_tool_names: Vec<String>,
    #[serde(default)]
    tool_name_aliases: BTreeMap<String, String>,
    allowed_resource_names: Vec<String>,
    allowed_prompt_names: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hosts<B> {
    virtual_hosts: BTreeMap<String, Host<B>>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Host<B> {
    backends: BTreeMap<String, B>,
}

pub(crate) fn upstream<B>(config: &UserConfig, convert: impl Fn(&BackendConfig) -> B) -> Hosts<B> {
    let hosts = config.virtual_hosts.iter().map(|(id, host)| {
        let backends = host
            .backends
            .iter()
            .map(|(key, backend)| (key.clone(), convert(backend)))
            .collect();
        (id.clone(), Host { backends })
    });
    Hosts {
        virtual_hosts: hosts.collect(),
    }
}

pub(crate) fn seed_backend(backend: &BackendConfig) -> SeedBackend {
    SeedBackend {
        name: backend.name.clone(),
        url: backend.url.clone(),
        transport: backend.transport.name().to_owned(),
        passthrough_headers: backend.passthrough_headers.clone(),
        allowed_tool_names: backend.allowed_tool_names.clone(),
        tool_name_aliases: backend.tool_name_aliases.clone(),
        allowed_resource_names: backend.allowed_resource_names.clone(),
        allowed_prompt_names: backend.allowed_prompt_names.clone(),
    }
}

pub(crate) fn head_backend(backend: &BackendConfig) -> HeadBackend {
    HeadBackend {
        name: backend.name.clone(),
        url: backend.url.clone(),
        passthrough_headers: backend.passthrough_headers.clone(),
        add_headers: backend.add_headers.clone(),
        remove_headers: backend.remove_headers.clone(),
        allowed_tool_names: backend.allowed_tool_names.clone(),
        tool_name_aliases: backend.tool_name_aliases.clone(),
        allowed_resource_names: backend.allowed_resource_names.clone(),
        allowed_prompt_names: backend.allowed_prompt_names.clone(),
    }
}
