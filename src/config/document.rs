//! Configuration documents in JSON, as people and MCP clients write them.
//!
//! Three forms: one config for everyone (`virtual_hosts`), configs by subject (`users`, where `*`
//! is everyone else), and the server list of MCP clients (`mcpServers`, or `servers`). A document
//! is refused whole when its text or a type is wrong, with line and column. A backend that cannot
//! be used is left out and reported. Reads no files: text in, model and findings out.

mod client_servers;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::decode::DecodeLimits;
use super::user_config::{
    BACKEND_FIELDS, BACKEND_FIELDS_ALIASED, BackendConfig, DocumentRules, Finding, HOST_FIELDS,
    STDIO_FIELDS, Severity, StdioFields, StdioServer, Transport, UserConfig, VirtualHost,
    stdio_servers_of,
};
use crate::declared::Tools;
use crate::settings::FailMode;
use serde_json::{Value, value::RawValue};
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
    /// `jti` of tokens that are not taken any more.
    pub revoked_tokens: BTreeSet<Box<str>>,
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

    /// Whether a backend of anybody's is a server that connects to the gateway itself.
    #[must_use]
    pub fn has_reverse(&self) -> bool {
        let mut users = self.users.values().chain(&self.everyone);
        users.any(|config| config.has_reverse())
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
            merged.revoked_tokens.extend(file.revoked_tokens);
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
    parse_counted(rules, text, file_label).0
}

/// The same, with the number of declared tools that were looked at, sound or not.
pub fn parse_counted(
    rules: DocumentRules,
    text: &str,
    file_label: &str,
) -> (Result<Document, Vec<Finding>>, usize) {
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
        tools_checked: 0,
    };
    let mut document = parser.document(text);
    if parser.is_refused {
        return (Err(parser.findings), parser.tools_checked);
    }
    document.findings = parser.findings;
    (Ok(document), parser.tools_checked)
}

/// The keys that make a document, one of which it must have, unless it only revokes tokens.
const FORMS: [&str; 4] = ["virtual_hosts", "users", "mcpServers", "servers"];
/// A key that may stand beside them, or alone.
const REVOKED: &str = "revoked_tokens";
/// What a document may have at its top.
const TOP: [&str; 5] = ["virtual_hosts", "users", "mcpServers", "servers", REVOKED];
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
    tools_checked: usize,
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
        let revokes = members.iter().any(|member| member.name == REVOKED);
        match forms.as_slice() {
            [_] => {}
            [] if revokes => {}
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
                REVOKED => {
                    let ids = self.read::<Vec<Box<str>>>(REVOKED, member.value);
                    document.revoked_tokens.extend(ids.unwrap_or_default());
                }
                other => self.check_key("", member, other, &TOP, &TOLERATED),
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
        if let Some(teams) = fields.iter().find(|field| field.name == "teams") {
            let path = format!("{full_path}.teams");
            host.teams = self.read(&path, teams.value).unwrap_or_default();
        }
        if let Some(protocols) = fields.iter().find(|field| field.name == "protocols") {
            let path = format!("{full_path}.protocols");
            host.protocols = self.read(&path, protocols.value);
        }
        let value = |parser: &mut Self, name: &str| {
            let field = fields.iter().find(|field| field.name == name)?;
            let path = format!("{full_path}.{name}");
            parser.read::<Value>(&path, field.value)
        };
        host.access_control = value(self, "access_control");
        host.rules = value(self, "rules");
        let tools = value(self, "tools");
        let tools = tools.map(|tools| Tools::read(tools, &self.rules.schema));
        let tools = tools.transpose();
        let tools_part = fields.iter().find(|field| field.name == "tools");
        let tools_part = tools_part.map_or(part, |field| field.value);
        match tools {
            Ok(tools) => {
                host.tools = tools.unwrap_or_default();
                self.tools_checked += host.tools.count();
            }
            Err(fault) => self.refuse(&format!("{full_path}.tools"), tools_part, fault),
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
            let aliases = BACKEND_FIELDS_ALIASED.map(|(alias, _)| alias);
            let tolerated = [&BACKEND_FIELDS_IGNORED, beside, &aliases].concat();
            for field in &fields {
                self.check_key(&full_path, field, &field.name, &BACKEND_FIELDS, &tolerated);
            }
            host.backends.insert(member.name, backend);
        }
        self.refuse_tools(&full_path, &host, tools_part);
        host
    }

    /// Refuses the document for what is wrong with a virtual host's declared tools and the rules
    /// about them; each fault with the place of its tool.
    fn refuse_tools(&mut self, path: &str, host: &VirtualHost, part: &'a str) {
        let faults = host.tool_faults();
        if faults.is_empty() {
            return;
        }
        self.is_refused = true;
        let elements: Vec<&RawValue> = serde_json::from_str(part).unwrap_or_default();
        for fault in faults {
            let element = fault.index.and_then(|index| elements.get(index));
            let place = element.map_or(part, |element| element.get());
            let message = self.source.placed(place, &fault.to_string());
            self.findings.push(Finding::of_tool(path, fault, message));
        }
    }

    /// A child process has no address, which the model of a backend wants all the same.
    fn backend_without_url(&mut self, path: &str, part: &'a str) -> Option<BackendConfig> {
        let mut fields = self.read::<serde_json::Map<String, Value>>(path, part)?;
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
                self.findings.push(Finding {
                    tool: finding.tool,
                    ..Finding::error(full_path, message)
                });
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
mod tests;
