//! Configuration documents in JSON, as people and MCP clients write them.
//!
//! Three forms: one config for everyone (`virtual_hosts`), configs by subject (`users`, where `*`
//! is everyone else), and the server list of MCP clients (`mcpServers`, or `servers`). A document
//! is refused whole when its text or a type is wrong, with line and column. A backend that cannot
//! be used is left out and reported. Reads no files: text in, model and findings out.

mod client_servers;
mod source;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::decode::DecodeLimits;
use super::user_config::{
    BACKEND_FIELDS, BackendConfig, DocumentRules, Finding, HOST_FIELDS, STDIO_FIELDS, Severity,
    StdioFields, StdioServer, Transport, UserConfig, VirtualHost, stdio_servers_of,
};
use crate::settings::FailMode;
use source::{Member, Source, did_you_mean};

/// The virtual host that the server list of a client becomes.
pub const CLIENT_VIRTUAL_HOST: &str = "default";
/// The name that stands for every subject without an entry of its own.
pub const EVERYONE: &str = "*";

/// What one or several documents say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Document {
    /// Configs by the `sub` of the token.
    pub users: BTreeMap<String, Arc<UserConfig>>,
    /// The config of every other subject.
    pub everyone: Option<Arc<UserConfig>>,
    /// Remarks that did not stop the document from being used; errors are about left-out backends.
    pub findings: Vec<Finding>,
}

impl Document {
    /// The config of a subject: its own, or everyone's.
    #[must_use]
    pub fn of_subject(&self, subject: &str) -> Option<&Arc<UserConfig>> {
        self.users.get(subject).or(self.everyone.as_ref())
    }

    /// The child processes that stand behind its backends.
    #[must_use]
    pub fn stdio_servers(&self) -> Vec<Arc<StdioServer>> {
        let users = self.users.values().chain(&self.everyone);
        users.flat_map(|config| stdio_servers_of(config)).collect()
    }

    /// Joins the documents of a folder, given in the order of their names.
    ///
    /// A subject's config is never mixed from two files: the later one replaces the earlier one,
    /// and a finding says so.
    #[must_use]
    pub fn merge(files: impl IntoIterator<Item = (String, Self)>) -> Self {
        let mut merged = Self::default();
        let mut origins: BTreeMap<String, String> = BTreeMap::new();
        for (label, file) in files {
            merged.findings.extend(file.findings);
            let everyone = file.everyone.map(|config| (EVERYONE.to_owned(), config));
            for (subject, config) in file.users.into_iter().chain(everyone) {
                if let Some(earlier) = origins.insert(subject.clone(), label.clone()) {
                    let message = format!("{label}: replaces the entry of {earlier}");
                    merged
                        .findings
                        .push(Finding::warning(format!("users.{subject}"), message));
                }
                if subject == EVERYONE {
                    merged.everyone = Some(config);
                } else {
                    merged.users.insert(subject, config);
                }
            }
        }
        merged
    }
}

/// Reads one document under the default rules. `file_label` names it in findings.
///
/// # Errors
/// As [`parse_document_under`].
pub fn parse_document(text: &str, file_label: &str) -> Result<Document, Vec<Finding>> {
    parse_document_under(DocumentRules::default(), text, file_label)
}

/// Reads one document. `file_label` names it in findings.
///
/// # Errors
/// All that is wrong, when the text is not JSON, has none of the known forms, or has a value of
/// a wrong type; warnings met on the way are included.
pub fn parse_document_under(
    rules: DocumentRules,
    text: &str,
    file_label: &str,
) -> Result<Document, Vec<Finding>> {
    // Some editors write a byte order mark; RFC 8259 section 8.1 lets a reader ignore it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parser = Parser {
        source: Source {
            text,
            label: file_label,
        },
        limits: DecodeLimits::default(),
        rules,
        findings: Vec::new(),
        is_refused: false,
    };
    let mut document = parser.document(text);
    if parser.is_refused {
        return Err(parser.findings);
    }
    document.findings = parser.findings;
    Ok(document)
}

/// The keys that make a document, one of which it must have.
const FORMS: [&str; 4] = ["virtual_hosts", "users", "mcpServers", "servers"];
/// Keys that other readers of the same file want.
const TOLERATED: [&str; 2] = ["$schema", "inputs"];
/// Published by the control plane; nothing reads it (contextforge.md section 3.3).
const BACKEND_FIELDS_IGNORED: [&str; 1] = ["capabilities"];

struct Parser<'a> {
    source: Source<'a>,
    limits: DecodeLimits,
    rules: DocumentRules,
    findings: Vec<Finding>,
    is_refused: bool,
}

/// Where the parts of a config start in the text, by their path in it.
type Places<'a> = BTreeMap<String, &'a str>;

impl<'a> Parser<'a> {
    fn refuse(&mut self, path: &str, part: &str, message: &str) {
        self.is_refused = true;
        self.findings
            .push(Finding::error(path, self.source.placed(part, message)));
    }

    fn warn(&mut self, path: &str, part: &str, message: &str) {
        self.findings
            .push(Finding::warning(path, self.source.placed(part, message)));
    }

    /// Reads `part` as `T`; a fault refuses the document.
    fn read<T: serde::Deserialize<'a>>(&mut self, path: &str, part: &'a str) -> Option<T> {
        match serde_json::from_str(part) {
            Ok(value) => Some(value),
            Err(error) => {
                self.is_refused = true;
                self.findings
                    .push(Finding::error(path, self.source.fault(part, &error)));
                None
            }
        }
    }

    fn members(&mut self, path: &str, part: &'a str) -> Option<Vec<Member<'a>>> {
        self.read::<source::Members<'a>>(path, part)
            .map(|members| members.0)
    }

    fn document(&mut self, text: &'a str) -> Document {
        let mut document = Document::default();
        if text.len() > self.limits.bytes_max {
            let message = format!("more than {} bytes", self.limits.bytes_max);
            self.refuse("", text, &message);
            return document;
        }
        let Some(members) = self.members("", text) else {
            return document;
        };
        let forms: Vec<&str> = members
            .iter()
            .map(|member| member.name.as_str())
            .filter(|name| FORMS.contains(name))
            .collect();
        match forms.as_slice() {
            [_] => {}
            [] => {
                self.refuse(
                    "",
                    text,
                    "has none of `virtual_hosts`, `users`, `mcpServers`",
                );
            }
            [first, second, ..] => {
                let message = format!("has both `{first}` and `{second}`; use one file for each");
                self.refuse("", text, &message);
            }
        }
        for member in &members {
            match member.name.as_str() {
                "virtual_hosts" => document.everyone = self.user_config("", text),
                "users" => self.users(member.value, &mut document),
                form @ ("mcpServers" | "servers") => {
                    document.everyone = Some(Arc::new(self.client_servers(form, member.value)));
                }
                other => self.check_key("", member, other, &FORMS, &TOLERATED),
            }
        }
        document
    }

    fn check_key(
        &mut self,
        path: &str,
        member: &Member<'a>,
        name: &str,
        known: &[&str],
        tolerated: &[&str],
    ) {
        if known.contains(&name) || tolerated.contains(&name) {
            return;
        }
        let hint = did_you_mean(name, known)
            .map(|word| format!(" (did you mean `{word}`?)"))
            .unwrap_or_default();
        self.warn(
            path,
            member.value,
            &format!("unknown key `{name}` is ignored{hint}"),
        );
    }

    fn users(&mut self, part: &'a str, document: &mut Document) {
        for member in self.members("users", part).unwrap_or_default() {
            let path = format!("users.{}", member.name);
            let Some(config) = self.user_config(&path, member.value) else {
                continue;
            };
            if member.name == EVERYONE {
                document.everyone = Some(config);
            } else {
                document.users.insert(member.name, config);
            }
        }
    }

    fn user_config(&mut self, path: &str, part: &'a str) -> Option<Arc<UserConfig>> {
        let mut config = UserConfig::default();
        let mut places = Places::new();
        let hosts = self.needed_member(path, part, &["virtual_hosts"])?;
        let members = self.members(path, hosts)?;
        if members.len() > self.limits.virtual_host_count_max {
            self.refuse(path, hosts, "too many virtual hosts");
            return None;
        }
        for member in members {
            let host_path = format!("virtual_hosts.{}", member.name);
            places.insert(host_path.clone(), member.value);
            let host = self.virtual_host(path, &host_path, member.value, &mut places);
            config.virtual_hosts.insert(member.name, host);
        }
        // Half a model would be judged wrongly.
        if self.is_refused {
            return None;
        }
        for finding in config.drop_unusable() {
            let full_path = join(path, &finding.path);
            self.place(finding, full_path, &places, part);
        }
        Some(Arc::new(config))
    }

    fn virtual_host(
        &mut self,
        user_path: &str,
        host_path: &str,
        part: &'a str,
        places: &mut Places<'a>,
    ) -> VirtualHost {
        let mut host = VirtualHost::default();
        let full_path = join(user_path, host_path);
        let Some(backends) = self.needed_member(&full_path, part, &HOST_FIELDS) else {
            return host;
        };
        let fields = self.members(&full_path, part).unwrap_or_default();
        if let Some(mode) = fields.iter().find(|field| field.name == "failure_mode") {
            let path = format!("{full_path}.failure_mode");
            host.failure_mode = self.read::<FailMode>(&path, mode.value);
        }
        let members = self.members(&full_path, backends).unwrap_or_default();
        if members.len() > self.limits.backend_count_max {
            self.refuse(&full_path, backends, "too many backends");
            return host;
        }
        for member in members {
            let backend_path = format!("{host_path}.backends.{}", member.name);
            let full_path = join(user_path, &backend_path);
            places.insert(backend_path, member.value);
            let Some(fields) = self.members(&full_path, member.value) else {
                continue;
            };
            let has = |name: &str| fields.iter().any(|field| field.name == name);
            let read = if has("command") && !has("url") {
                self.backend_without_url(&full_path, member.value)
            } else {
                self.read::<BackendConfig>(&full_path, member.value)
            };
            let Some(mut backend) = read else {
                continue;
            };
            let is_child = backend.transport == Transport::Stdio;
            if is_child && has("command") {
                let label = format!("{}.{}", &host_path["virtual_hosts.".len()..], member.name);
                backend.stdio = self.child(&full_path, &label, member.value);
            }
            let beside: &[&str] = if is_child { &STDIO_FIELDS } else { &[] };
            let tolerated = [&BACKEND_FIELDS_IGNORED, beside].concat();
            for field in &fields {
                self.check_key(&full_path, field, &field.name, &BACKEND_FIELDS, &tolerated);
            }
            host.backends.insert(member.name, backend);
        }
        host
    }

    /// A child process has no address, which the model of a backend wants all the same.
    fn backend_without_url(&mut self, path: &str, part: &'a str) -> Option<BackendConfig> {
        let mut fields = self.read::<serde_json::Map<String, serde_json::Value>>(path, part)?;
        fields.insert("url".to_owned(), "".into());
        fields
            .entry("transport")
            .or_insert_with(|| Transport::Stdio.name().into());
        match serde_json::from_value(fields.into()) {
            Ok(backend) => Some(backend),
            Err(error) => {
                self.refuse(path, part, &error.to_string());
                None
            }
        }
    }

    /// The child process an entry describes; `None` when it is faulty, or none may be started.
    fn child(&mut self, path: &str, label: &str, part: &'a str) -> Option<Arc<StdioServer>> {
        let fields = self.read::<StdioFields>(path, part)?;
        self.rules
            .allow_stdio
            .then(|| Arc::new(StdioServer::new(path, label, fields)))
    }

    /// The value of the one key that an object must have, the first of `known`; others than these
    /// are remarked upon, except at the top, where the caller has seen to them.
    fn needed_member(&mut self, path: &str, part: &'a str, known: &[&str]) -> Option<&'a str> {
        let name = *known.first()?;
        let members = self.members(path, part)?;
        if !path.is_empty() {
            for member in &members {
                self.check_key(path, member, &member.name, known, &[]);
            }
        }
        let found = members.into_iter().find(|member| member.name == name);
        if found.is_none() {
            self.refuse(path, part, &format!("the key `{name}` is missing"));
        }
        found.map(|member| member.value)
    }

    /// Adds a finding of the model with the place of the innermost part that it is about.
    fn place(&mut self, finding: Finding, full_path: String, places: &Places<'a>, whole: &str) {
        let is_about = |path: &str| {
            finding
                .path
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let innermost = places
            .iter()
            .filter(|(path, _)| is_about(path))
            .max_by_key(|(path, _)| path.len())
            .map_or(whole, |(_, part)| part);
        match finding.severity {
            Severity::Warning => self.warn(&full_path, innermost, &finding.message),
            Severity::Error => {
                let message = self.source.placed(innermost, &finding.message);
                self.findings.push(Finding::error(full_path, message));
            }
        }
    }
}

fn join(left: &str, right: &str) -> String {
    if left.is_empty() {
        right.to_owned()
    } else {
        format!("{left}.{right}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Document {
        parse_document(text, "f.json").unwrap()
    }

    fn refused(text: &str) -> Vec<String> {
        parse_document(text, "f.json")
            .unwrap_err()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn lines(document: &Document) -> Vec<String> {
        document.findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn one_config_is_for_everyone() {
        let document =
            parse(r#"{"virtual_hosts":{"dev":{"backends":{"a":{"url":"http://a/mcp"}}}}}"#);
        assert!(document.users.is_empty());
        let config = document.of_subject("anyone").unwrap();
        assert_eq!(
            config.virtual_hosts["dev"].backends["a"].url,
            "http://a/mcp"
        );
        assert_eq!(lines(&document), Vec::<String>::new());
    }

    #[test]
    fn users_have_their_own_and_the_star_is_the_rest() {
        let document = parse(
            r#"{"users":{
                "alice":{"virtual_hosts":{}},
                "*":{"virtual_hosts":{"dev":{"backends":{"a":{"url":"http://a/"}}}}}
            }}"#,
        );
        assert!(
            document
                .of_subject("alice")
                .unwrap()
                .virtual_hosts
                .is_empty()
        );
        assert_eq!(document.of_subject("bob").unwrap().virtual_hosts.len(), 1);
        let document = parse(r#"{"users":{"alice":{"virtual_hosts":{}}}}"#);
        assert!(document.of_subject("bob").is_none());
    }

    #[test]
    fn faults_have_line_and_column() {
        assert_eq!(
            refused("{\n  nope"),
            ["error: f.json:2:3: key must be a string"]
        );
        let text = "{\"virtual_hosts\": {\n \"dev\": {\"backends\": {\n  \"a\": {\"url\": 7}}}}}";
        assert_eq!(
            refused(text),
            [
                "error: virtual_hosts.dev.backends.a: f.json:3:16: invalid type: integer `7`, \
              expected a string"
            ]
        );
        let text = r#"{"users":{"x":{"virtual_hosts":{"v":{"backends":{"a":{}, "b":[]}}}}}}"#;
        assert_eq!(
            refused(text),
            [
                "error: users.x.virtual_hosts.v.backends.a: f.json:1:55: missing field `url`",
                "error: users.x.virtual_hosts.v.backends.b: f.json:1:62: invalid type: sequence, \
                 expected an object",
            ]
        );
    }

    #[test]
    fn a_child_process_needs_a_command_and_leave() {
        let text = r#"{"virtual_hosts":{"v":{"backends":{
            "a":{"transport":"STDIO","command":"a","args":["x"],"allowed_tool_names":["t"]},
            "b":{"command":"b","cwd":"/","shared":true},
            "c":{"transport":"STDIO","url":"x"}}}}}"#;
        let refusal = "a child process is started only with --allow-stdio, and only for a backend \
                       of a local configuration file that has a `command`; this one is skipped";
        let told = |key: &str, place: &str| {
            format!("error: virtual_hosts.v.backends.{key}.transport: f.json:{place}: {refusal}")
        };
        let document = parse(text);
        assert_eq!(document.stdio_servers(), []);
        let expected = [told("a", "2:17"), told("b", "3:17"), told("c", "4:17")];
        assert_eq!(lines(&document)[..3], expected);

        let rules = DocumentRules { allow_stdio: true };
        let document = parse_document_under(rules, text, "f.json").unwrap();
        assert_eq!(lines(&document), [told("c", "4:17")]);
        let servers = document.stdio_servers();
        let labels: Vec<_> = servers.iter().map(|server| &*server.label).collect();
        assert_eq!(labels, ["v.a", "v.b"]);
        assert!(servers[1].is_shared && servers[1].cwd.as_deref() == Some("/"));
        let config = document.everyone.unwrap();
        assert_eq!(
            config.virtual_hosts["v"].backends["a"].allowed_tool_names,
            ["t"]
        );
    }

    #[test]
    fn a_document_has_exactly_one_form() {
        assert_eq!(
            refused(r#"{"mcpserver":{}}"#),
            [
                "error: f.json:1:1: has none of `virtual_hosts`, `users`, `mcpServers`",
                "warning: f.json:1:14: unknown key `mcpserver` is ignored (did you mean \
                 `mcpServers`?)",
            ]
        );
        let both = refused(r#"{"users":{},"servers":{}}"#);
        assert_eq!(both.len(), 1);
        assert!(both[0].contains("both `users` and `servers`"), "{both:?}");
        assert_eq!(refused("[]").len(), 1);
        assert_eq!(refused(r#"{"users":{},"users":{}}"#).len(), 1);
        assert_eq!(refused(r#"{"users":{"a":{}}}"#).len(), 1);
        assert_eq!(
            refused(r#"{"users":{"a":{"virtual_hosts":{"v":{}}}}}"#).len(),
            1
        );
        assert_eq!(refused(r#"{"users":null}"#).len(), 1);
    }

    #[test]
    fn keys_that_look_wrong_are_remarked_upon() {
        let document = parse(
            "{\"$schema\":\"x\",\"virtual_hosts\":{\"v\":{\"backends\":{\n\
             \"a\":{\"url\":\"http://a/\",\"allowed_tools\":[],\"capabilities\":{},\n\"addHeaders\":{}}}}},\"color\":1}",
        );
        assert_eq!(
            lines(&document),
            [
                "warning: virtual_hosts.v.backends.a: f.json:2:40: unknown key `allowed_tools` is \
                 ignored",
                "warning: virtual_hosts.v.backends.a: f.json:3:14: unknown key `addHeaders` is \
                 ignored (did you mean `add_headers`?)",
                "warning: f.json:3:29: unknown key `color` is ignored",
            ]
        );
    }

    #[test]
    fn an_unusable_backend_is_left_out_and_placed() {
        let document = parse(
            "{\"virtual_hosts\":{\"v\":{\"backends\":{\n \"a\":{\"url\":\"nowhere\"},\n \
             \"b\":{\"url\":\"http://b/\"}}}}}",
        );
        let config = document.everyone.as_ref().unwrap();
        assert_eq!(
            config.virtual_hosts["v"]
                .backends
                .keys()
                .collect::<Vec<_>>(),
            ["b"]
        );
        assert_eq!(
            lines(&document),
            [
                "error: virtual_hosts.v.backends.a.url: f.json:2:6: the URL is not absolute; write \
              http://... or https://..."
            ]
        );
    }

    #[test]
    fn limits_refuse_the_document() {
        let backends: Vec<String> = (0..257)
            .map(|number| format!(r#""b{number}":{{"url":"http://a/"}}"#))
            .collect();
        let text = format!(
            r#"{{"virtual_hosts":{{"v":{{"backends":{{{}}}}}}}}}"#,
            backends.join(",")
        );
        assert!(refused(&text)[0].contains("too many backends"));
        let long = format!(r#"{{"users":{{}}{}}}"#, " ".repeat(4 * 1024 * 1024));
        assert!(refused(&long)[0].contains("more than 4194304 bytes"));
    }

    #[test]
    fn later_files_replace_and_it_is_said() {
        let first = parse(r#"{"users":{"a":{"virtual_hosts":{}},"*":{"virtual_hosts":{}}}}"#);
        let second = parse(
            r#"{"users":{"a":{"virtual_hosts":{"v":{"backends":{"x":{"url":"http://x/"}}}}},
                "b":{"virtual_hosts":{}}}}"#,
        );
        let third = parse(r#"{"mcpServers":{"x":{"url":"http://x/"}}}"#);
        let files = [("1.json", first), ("2.json", second), ("3.json", third)];
        let merged = Document::merge(files.map(|(label, document)| (label.to_owned(), document)));
        assert_eq!(merged.users.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(merged.users["a"].virtual_hosts.len(), 1);
        assert!(
            merged
                .everyone
                .as_ref()
                .unwrap()
                .virtual_hosts
                .contains_key("default")
        );
        assert_eq!(
            lines(&merged),
            [
                "warning: users.a: 2.json: replaces the entry of 1.json",
                "warning: users.*: 3.json: replaces the entry of 1.json",
            ]
        );
    }

    #[test]
    fn a_byte_order_mark_is_ignored() {
        assert_eq!(parse("\u{feff}{\"users\":{}}"), Document::default());
    }
}
