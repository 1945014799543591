//! Writers of the two MessagePack encodings of a user configuration (contextforge.md section 3.2).
//!
//! The map form is what the control plane publishes; the array forms are what the two upstream
//! states write themselves. The output is deterministic: maps are in key order.

use std::collections::BTreeMap;

use rmp::encode::{
    ByteBuf, write_array_len, write_bool, write_f64, write_map_len, write_nil, write_sint,
    write_str, write_uint,
};
use serde_json::Value;

use super::user_config::{BackendConfig, UserConfig};

/// Positional layout of a backend in the array form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrayLayout {
    /// 9 fields, no transport.
    Head,
    /// 8 fields with the transport at index 2 and no header rules.
    Seed,
}

/// The control plane's shape: structs are maps with field names.
///
/// `capabilities` is written empty, as the published documents have the field and no reader of it
/// exists. Fields that the control plane does not know are written only when they say something.
#[must_use]
pub fn encode_map(config: &UserConfig) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.map(1);
    writer.text("virtual_hosts");
    writer.map(config.virtual_hosts.len());
    for (id, host) in &config.virtual_hosts {
        writer.text(id);
        let has_teams = !host.teams.is_empty();
        let protocols = host.protocols.as_ref();
        let protocols = protocols.and_then(|said| serde_json::to_value(said).ok());
        let said = [
            ("protocols", protocols.as_ref()),
            ("tools", host.tools.source()),
            ("access_control", host.access_control.as_ref()),
            ("rules", host.rules.as_ref()),
        ];
        let said = said
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        let optional = usize::from(host.failure_mode.is_some()) + usize::from(has_teams);
        writer.map(1 + optional + said.clone().count());
        if let Some(mode) = host.failure_mode {
            writer.text("failure_mode");
            writer.text(mode.name());
        }
        if has_teams {
            writer.text("teams");
            writer.texts(&host.teams);
        }
        writer.text("backends");
        writer.map(host.backends.len());
        for (key, backend) in &host.backends {
            writer.text(key);
            backend_map(&mut writer, backend);
        }
        for (name, value) in said {
            writer.text(name);
            writer.value(value);
        }
    }
    writer.0.into_vec()
}

/// The upstream's own shape: structs are positional arrays.
///
/// Each layout loses what it has no place for: `failure_mode`, `teams`, `protocols`, declared tools
/// with their rules, `allowed_resource_uris`, `protocol` with its kin and `backend_credential_mode`
/// with its resource in both, the transport in HEAD's, the header rules in SEED's.
#[must_use]
pub fn encode_array(config: &UserConfig, layout: ArrayLayout) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.array(1);
    writer.map(config.virtual_hosts.len());
    for (id, host) in &config.virtual_hosts {
        writer.text(id);
        writer.array(1);
        writer.map(host.backends.len());
        for (key, backend) in &host.backends {
            writer.text(key);
            backend_array(&mut writer, backend, layout);
        }
    }
    writer.0.into_vec()
}

fn backend_map(writer: &mut Writer, backend: &BackendConfig) {
    let has_aliases = !backend.tool_name_aliases.is_empty();
    let has_transport = backend.transport != Default::default();
    let optional = [
        backend.allowed_resource_uris.is_some(),
        has_aliases,
        has_transport,
        backend.protocol.is_some(),
        backend.bridge.is_some(),
        !backend.session_independent_tools.is_empty(),
        backend.backend_credential_mode.is_some(),
        backend.backend_resource.is_some(),
    ];
    writer.map(
        9 + optional
            .into_iter()
            .filter(|is_written| *is_written)
            .count(),
    );
    writer.text("name");
    writer.text(&backend.name);
    writer.text("url");
    writer.text(&backend.url);
    writer.text("passthrough_headers");
    writer.texts(&backend.passthrough_headers);
    writer.text("add_headers");
    writer.text_map(&backend.add_headers);
    writer.text("remove_headers");
    writer.texts(&backend.remove_headers);
    writer.text("capabilities");
    writer.map(0);
    writer.text("allowed_tool_names");
    writer.texts(&backend.allowed_tool_names);
    writer.text("allowed_resource_names");
    writer.texts(&backend.allowed_resource_names);
    if let Some(uris) = &backend.allowed_resource_uris {
        writer.text("allowed_resource_uris");
        writer.texts(uris);
    }
    writer.text("allowed_prompt_names");
    writer.texts(&backend.allowed_prompt_names);
    if has_aliases {
        writer.text("tool_name_aliases");
        writer.text_map(&backend.tool_name_aliases);
    }
    if has_transport {
        writer.text("transport");
        writer.text(backend.transport.name());
    }
    if let Some(protocol) = backend.protocol {
        writer.text("protocol");
        writer.text(protocol.name());
    }
    if let Some(bridge) = backend.bridge {
        writer.text("bridge");
        writer.text(bridge.name());
    }
    if !backend.session_independent_tools.is_empty() {
        writer.text("session_independent_tools");
        writer.texts(&backend.session_independent_tools);
    }
    if let Some(mode) = backend.backend_credential_mode {
        writer.text("backend_credential_mode");
        writer.text(mode.name());
    }
    if let Some(resource) = &backend.backend_resource {
        writer.text("backend_resource");
        writer.text(resource);
    }
}

fn backend_array(writer: &mut Writer, backend: &BackendConfig, layout: ArrayLayout) {
    match layout {
        ArrayLayout::Head => writer.array(9),
        ArrayLayout::Seed => writer.array(8),
    }
    writer.text(&backend.name);
    writer.text(&backend.url);
    if layout == ArrayLayout::Seed {
        writer.text(backend.transport.name());
    }
    writer.texts(&backend.passthrough_headers);
    if layout == ArrayLayout::Head {
        writer.text_map(&backend.add_headers);
        writer.texts(&backend.remove_headers);
    }
    writer.texts(&backend.allowed_tool_names);
    writer.text_map(&backend.tool_name_aliases);
    writer.texts(&backend.allowed_resource_names);
    writer.texts(&backend.allowed_prompt_names);
}

/// MessagePack into memory, which cannot fail: the empty error types prove it.
#[derive(Default)]
struct Writer(ByteBuf);

impl Writer {
    fn map(&mut self, length: usize) {
        // A config in memory cannot have 2^32 entries: each takes more than one byte.
        let Ok(_) = write_map_len(&mut self.0, length as u32);
    }

    fn array(&mut self, length: usize) {
        let Ok(_) = write_array_len(&mut self.0, length as u32);
    }

    fn text(&mut self, text: &str) {
        let Ok(()) = write_str(&mut self.0, text);
    }

    fn texts(&mut self, texts: &[String]) {
        self.array(texts.len());
        for text in texts {
            self.text(text);
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => {
                let Ok(()) = write_nil(&mut self.0);
            }
            Value::Bool(value) => {
                let Ok(()) = write_bool(&mut self.0, *value);
            }
            Value::Number(number) => self.number(number),
            Value::String(text) => self.text(text),
            Value::Array(elements) => {
                self.array(elements.len());
                elements.iter().for_each(|element| self.value(element));
            }
            Value::Object(members) => {
                self.map(members.len());
                for (name, value) in members {
                    self.text(name);
                    self.value(value);
                }
            }
        }
    }

    fn number(&mut self, number: &serde_json::Number) {
        if let Some(number) = number.as_u64() {
            let Ok(_) = write_uint(&mut self.0, number);
        } else if let Some(number) = number.as_i64() {
            let Ok(_) = write_sint(&mut self.0, number);
        } else {
            let Ok(()) = write_f64(&mut self.0, number.as_f64().unwrap_or_default());
        }
    }

    fn text_map(&mut self, texts: &BTreeMap<String, String>) {
        self.map(texts.len());
        for (key, value) in texts {
            self.text(key);
            self.text(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::decode::{DecodeFault, DecodeLimits, decode};

    #[test]
    fn what_only_maps_can_say_is_read_back() {
        let config: UserConfig = serde_json::from_str(
            r#"{"virtual_hosts":{"v":{"teams":["a","b"],"backends":{
                "one":{"url":"https://a/","backend_credential_mode":"caller",
                    "backend_resource":"https://a"},
                "two":{"url":"https://b/","backendCredentialMode":"anonymous"},
                "three":{"url":"https://c/","backend_credential_mode":"exchange"}}}}}"#,
        )
        .unwrap();
        let read = decode(&encode_map(&config), &DecodeLimits::default());
        assert_eq!(read.as_ref(), Ok(&config));
        let array = encode_array(&config, ArrayLayout::Head);
        let read = decode(&array, &DecodeLimits::default()).unwrap();
        let host = &read.virtual_hosts["v"];
        assert_eq!(host.teams, [] as [&str; 0]);
        assert_eq!(host.backends["one"].backend_resource, None);
    }

    #[test]
    fn what_keeps_somebody_out_is_never_ignored() {
        let encode = |host: Value| {
            let value = serde_json::json!({"virtual_hosts": {"v": host}});
            rmp_serde::to_vec_named(&value).unwrap()
        };
        let limits = DecodeLimits::default();
        for teams in [
            serde_json::json!(null),
            serde_json::json!("a"),
            serde_json::json!([1]),
        ] {
            let bytes = encode(serde_json::json!({"teams": teams, "backends": {}}));
            let fault = decode(&bytes, &limits).unwrap_err();
            assert!(
                matches!(fault, DecodeFault::UnexpectedType { .. }),
                "{fault}"
            );
        }
        for mode in [
            serde_json::json!("later"),
            serde_json::json!(7),
            serde_json::json!(null),
        ] {
            let backend = serde_json::json!({"url": "http://a/", "backendCredentialMode": mode});
            let bytes = encode(serde_json::json!({"backends": {"a": backend}}));
            let config = decode(&bytes, &limits).unwrap();
            assert!(
                !config.virtual_hosts["v"].backends["a"].is_usable(),
                "{mode}"
            );
        }
        let twice = serde_json::json!({
            "url": "http://a/", "backendResource": "http://a", "backend_resource": "http://b",
        });
        let bytes = encode(serde_json::json!({"backends": {"a": twice}}));
        let fault = decode(&bytes, &limits).unwrap_err();
        assert!(
            matches!(fault, DecodeFault::DuplicateField { .. }),
            "{fault}"
        );
    }
}
