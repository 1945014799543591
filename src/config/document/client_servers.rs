//! The server list of MCP clients, `{"mcpServers": {name: {...}}}`, as one virtual host.
//!
//! Clients differ in the word for the address (`url`, `serverUrl`, `httpUrl`) and in those for the
//! transport. What only a client on the user's machine can do (prompted inputs) is left out with a
//! finding, never guessed; so are child processes unless the operator allows them. Fields of no
//! meaning here are ignored, as clients do.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{CLIENT_VIRTUAL_HOST, Finding, Parser, Places, VirtualHost};
use crate::config::user_config::{BackendConfig, Transport, UserConfig};

/// `${env:X}` and `${input:X}` are the client's; as they stand they would be nonsense.
const UNEXPANDED: &str = "placeholders `${...}` are not expanded; write the value";

#[derive(Deserialize)]
struct ClientServer {
    url: Option<String>,
    #[serde(rename = "serverUrl")]
    server_url: Option<String>,
    #[serde(rename = "httpUrl")]
    http_url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<IgnoredAny>,
    #[serde(default)]
    disabled: bool,
}

impl<'a> Parser<'a> {
    /// Reads the value of `form`, which is `mcpServers` or `servers`.
    pub(super) fn client_servers(&mut self, form: &str, part: &'a str) -> UserConfig {
        let mut host = VirtualHost::default();
        let mut places = Places::new();
        let host_path = format!("virtual_hosts.{CLIENT_VIRTUAL_HOST}");
        let members = self.members(form, part).unwrap_or_default();
        if members.len() > self.limits.backend_count_max {
            self.refuse(form, part, "too many servers");
            return UserConfig::default();
        }
        for member in members {
            let path = format!("{form}.{}", member.name);
            let Some(server) = self.read::<ClientServer>(&path, member.value) else {
                continue;
            };
            if let Some(backend) = self.backend_of(&path, &member.name, server, member.value) {
                places.insert(
                    format!("{host_path}.backends.{}", member.name),
                    member.value,
                );
                host.backends.insert(member.name, backend);
            }
        }
        let virtual_hosts = [(CLIENT_VIRTUAL_HOST.to_owned(), host)].into();
        let mut config = UserConfig { virtual_hosts };
        if self.is_refused {
            return config;
        }
        for finding in config.drop_unusable() {
            let path = written_path(&finding, &host_path, form);
            self.place(finding, path, &places, part);
        }
        config
    }

    fn backend_of(
        &mut self,
        path: &str,
        key: &str,
        server: ClientServer,
        part: &'a str,
    ) -> Option<BackendConfig> {
        if server.disabled {
            self.warn(path, part, "disabled; skipped");
            return None;
        }
        let kind = server.kind.unwrap_or_default();
        let plain_kind = kind.to_ascii_lowercase().replace(['-', '_'], "");
        let address = server.url.or(server.server_url).or(server.http_url);
        if plain_kind == "stdio" || (server.command.is_some() && address.is_none()) {
            return self.child_backend(path, key, server.command.is_some(), part);
        }
        let Some(url) = address else {
            self.refuse(path, part, "the key `url` is missing");
            return None;
        };
        let transport = match plain_kind.as_str() {
            "" | "http" | "streamablehttp" => Transport::StreamableHttp,
            "sse" => Transport::Sse,
            _ => {
                let message = format!("unknown type `{}`; use `http`", kind.escape_debug());
                self.refuse(path, part, &message);
                return None;
            }
        };
        if url.contains("${") || server.headers.values().any(|value| value.contains("${")) {
            self.warn(path, part, UNEXPANDED);
        }
        Some(BackendConfig {
            url,
            transport,
            add_headers: server.headers,
            ..Default::default()
        })
    }
}

impl<'a> Parser<'a> {
    fn child_backend(
        &mut self,
        path: &str,
        key: &str,
        has_command: bool,
        part: &'a str,
    ) -> Option<BackendConfig> {
        if !self.rules.allow_stdio {
            let message = "a child process (stdio) is started only with --allow-stdio; skipped";
            self.warn(path, part, message);
            return None;
        }
        if !has_command {
            self.refuse(path, part, "the key `command` is missing");
            return None;
        }
        if part.contains("${") {
            self.warn(path, part, UNEXPANDED);
        }
        let stdio = self.child(path, &format!("{CLIENT_VIRTUAL_HOST}.{key}"), part)?;
        Some(BackendConfig {
            transport: Transport::Stdio,
            stdio: Some(stdio),
            ..Default::default()
        })
    }
}

/// The path of a finding in the words of the document.
fn written_path(finding: &Finding, host_path: &str, form: &str) -> String {
    let inner = finding.path.strip_prefix(host_path).unwrap_or_default();
    let inner = inner.strip_prefix(".backends").unwrap_or(inner);
    format!("{form}{inner}").replace(".add_headers", ".headers")
}

#[cfg(test)]
mod tests {
    use crate::config::document::{Document, parse_document, parse_document_under};
    use crate::config::user_config::{DocumentRules, Severity};

    fn parse(text: &str) -> Document {
        parse_document(text, "mcp.json").unwrap()
    }

    fn lines(document: &Document) -> Vec<String> {
        document.findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_clients_list_becomes_one_virtual_host() {
        for form in ["mcpServers", "servers"] {
            let document = parse(&format!(
                r#"{{"inputs":[],"{form}":{{
                    "git":{{"url":"http://a/mcp","type":"http","timeout":5}},
                    "web":{{"serverUrl":"https://b/mcp","headers":{{"x-key":"k"}}}},
                    "one":{{"httpUrl":"http://c/","type":"streamable-http"}}
                }}}}"#
            ));
            assert_eq!(lines(&document), Vec::<String>::new());
            let config = document.of_subject("anyone").unwrap();
            let backends = &config.virtual_hosts["default"].backends;
            assert_eq!(backends.keys().collect::<Vec<_>>(), ["git", "one", "web"]);
            assert_eq!(backends["web"].url, "https://b/mcp");
            assert_eq!(backends["web"].add_headers["x-key"], "k");
            assert!(backends["web"].is_unrestricted());
        }
    }

    #[test]
    fn what_cannot_be_used_is_skipped_and_said() {
        let document = parse(
            "{\"mcpServers\":{\n\"child\":{\"command\":\"npx\",\"args\":[\"x\"]},\n\
             \"kind\":{\"type\":\"stdio\",\"command\":\"x\"},\n\
             \"old\":{\"url\":\"http://a/sse\",\"type\":\"sse\"},\n\
             \"off\":{\"url\":\"http://a/\",\"disabled\":true},\n\
             \"bad\":{\"url\":\"a/b\"},\n\
             \"env\":{\"url\":\"http://e/\",\"headers\":{\"Host\":\"${env:SECRET}\"}}}}",
        );
        let backends = &document.everyone.as_ref().unwrap().virtual_hosts["default"].backends;
        assert_eq!(backends.keys().collect::<Vec<_>>(), ["env", "old"]);
        assert_eq!(
            lines(&document),
            [
                "warning: mcpServers.child: mcp.json:2:9: a child process (stdio) is started only \
                 with --allow-stdio; skipped",
                "warning: mcpServers.kind: mcp.json:3:8: a child process (stdio) is started only \
                 with --allow-stdio; skipped",
                "warning: mcpServers.off: mcp.json:5:7: disabled; skipped",
                "warning: mcpServers.env: mcp.json:7:7: placeholders `${...}` are not expanded; \
                 write the value",
                "error: mcpServers.bad.url: mcp.json:6:7: the URL is not absolute; write \
                 http://... or https://...",
                "warning: mcpServers.env.headers: mcp.json:7:7: `Host` belongs to the gateway; \
                 the entry is ignored",
            ]
        );
    }

    #[test]
    fn a_child_process_is_a_backend_when_it_is_allowed() {
        let rules = DocumentRules {
            allow_stdio: true,
            ..DocumentRules::default()
        };
        let text = r#"{"mcpServers":{
            "fs":{"command":"npx","args":["-y","x"],"env":{"A":"1"},"shared":true},
            "t":{"type":"stdio","command":"/bin/t"}}}"#;
        let document = parse_document_under(rules, text, "mcp.json").unwrap();
        assert_eq!(lines(&document), Vec::<String>::new());
        let servers = document.stdio_servers();
        assert_eq!(servers.len(), 2);
        assert_eq!(&*servers[0].label, "default.fs");
        assert_eq!(servers[0].command, "npx");
        assert_eq!(servers[0].args, ["-y", "x"]);
        assert_eq!(servers[0].env["A"], "1");
        assert!(servers[0].is_shared && !servers[1].is_shared);

        let text = r#"{"mcpServers":{"t":{"type":"stdio"}}}"#;
        let refused = parse_document_under(rules, text, "mcp.json").unwrap_err();
        assert!(refused[0].message.contains("the key `command` is missing"));
    }

    #[test]
    fn an_entry_without_sense_refuses_the_document() {
        for (entry, expected) in [
            (r#"{}"#, "the key `url` is missing"),
            (
                r#"{"url":"http://a/","type":"carrier-pigeon"}"#,
                "unknown type `carrier-pigeon`",
            ),
            (
                r#"{"url":"http://a/","headers":{"x":1}}"#,
                "expected a string",
            ),
            (r#""http://a/""#, "invalid type: string"),
        ] {
            let text = format!(r#"{{"mcpServers":{{"x":{entry}}}}}"#);
            let findings = parse_document(&text, "mcp.json").unwrap_err();
            assert!(
                findings
                    .iter()
                    .any(|finding| finding.severity == Severity::Error
                        && finding.path == "mcpServers.x"
                        && finding.message.contains(expected)),
                "{findings:?}"
            );
        }
    }
}
