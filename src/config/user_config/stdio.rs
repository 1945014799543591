//! A backend that is a child process (stdio transport): what to start, and its name in the bridge.
//!
//! Only a document of the local file store makes one. Nothing writes it out again and `Debug` shows
//! neither arguments nor environment: both may hold credentials.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ring::digest::{Context, SHA256};
use serde::Deserialize;

use crate::schema::SchemaLimits;

/// The fields of a local document that describe a child process.
pub(in crate::config) const STDIO_FIELDS: [&str; 5] = ["command", "args", "env", "cwd", "shared"];

/// A child process as a document spells it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub(in crate::config) struct StdioFields {
    command: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    shared: bool,
}

/// A child process to start for a backend.
#[derive(Clone, PartialEq, Eq)]
pub struct StdioServer {
    /// Its name in the bridge: a digest of its place and of everything below, so that a changed
    /// entry is another server.
    pub id: Box<str>,
    /// Its name in the log: virtual host and key.
    pub label: Box<str>,
    /// The program, looked up in `PATH` when it has no slash.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables beside the few every child gets.
    pub env: BTreeMap<String, String>,
    /// Its working directory; that of the gateway when absent.
    pub cwd: Option<String>,
    /// One child for all sessions.
    pub is_shared: bool,
}

impl StdioServer {
    /// The server that `fields` describe at `place`, which tells it from equal ones of other users.
    pub(in crate::config) fn new(place: &str, label: &str, fields: StdioFields) -> Self {
        let mut server = Self {
            id: Box::default(),
            label: label.into(),
            command: fields.command,
            args: fields.args,
            env: fields.env,
            cwd: fields.cwd,
            is_shared: fields.shared,
        };
        server.id = server.digest(place);
        server
    }

    fn digest(&self, place: &str) -> Box<str> {
        let mut context = Context::new(&SHA256);
        // Each part with its length: no two lists of parts are one text.
        let mut part = |text: &str| {
            context.update(&(text.len() as u64).to_le_bytes());
            context.update(text.as_bytes());
        };
        part(place);
        part(&self.command);
        part(if self.is_shared { "shared" } else { "own" });
        part(self.cwd.as_deref().unwrap_or_default());
        part(&self.args.len().to_string());
        self.args.iter().for_each(|text| part(text));
        for (name, value) in &self.env {
            part(name);
            part(value);
        }
        let digest = context.finish();
        digest.as_ref()[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
            .into()
    }
}

impl fmt::Debug for StdioServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdioServer")
            .field("id", &self.id)
            .field("label", &self.label)
            .field("is_shared", &self.is_shared)
            .finish_non_exhaustive()
    }
}

/// What a document may ask for, beside what every document may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DocumentRules {
    /// Backends may be child processes (`--allow-stdio`).
    pub allow_stdio: bool,
    /// Bounds of the schemas of declared tools.
    pub schema: SchemaLimits,
}

/// Why a backend with the stdio transport cannot be used.
pub(in crate::config) const STDIO_REFUSED: &str = "a child process is started only with \
     --allow-stdio, and only for a backend of a local configuration file that has a `command`; \
     this one is skipped";

/// All child processes of these backends' configurations.
pub(in crate::config) fn of_user(config: &super::UserConfig) -> Vec<Arc<StdioServer>> {
    let hosts = config.virtual_hosts.values();
    hosts
        .flat_map(|host| host.backends.values())
        .filter_map(|backend| backend.stdio.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(place: &str, json: &str) -> StdioServer {
        StdioServer::new(place, "v.k", serde_json::from_str(json).unwrap())
    }

    #[test]
    fn every_difference_is_another_server() {
        let texts = [
            r#"{"command":"a"}"#,
            r#"{"command":"a","args":["b"]}"#,
            r#"{"command":"a","args":["b",""]}"#,
            r#"{"command":"a","args":[],"env":{"b":""}}"#,
            r#"{"command":"a","cwd":"b"}"#,
            r#"{"command":"a","shared":true}"#,
        ];
        let mut ids: Vec<_> = texts.iter().map(|text| server("p", text).id).collect();
        ids.push(server("q", texts[0]).id);
        let again = server("p", texts[0]).id;
        assert_eq!(again, ids[0]);
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), texts.len() + 1);
    }

    #[test]
    fn debug_shows_no_argument_and_no_variable() {
        let text = r#"{"command":"prog","args":["--token=hush"],"env":{"KEY":"hush"}}"#;
        let shown = format!("{:?}", server("p", text));
        assert!(shown.contains("v.k") && !shown.contains("hush") && !shown.contains("KEY"));
    }
}
