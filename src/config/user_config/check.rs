//! What may be wrong with a user's configuration, told in the operator's words.
//!
//! An error makes one backend unusable; a warning names something that will surprise. Messages hold
//! names and never header values, which may be credentials.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::declared::ToolFault;

use super::address::{UrlFault, check_url, reverse_source};
use super::stdio::STDIO_REFUSED;
use super::{BackendConfig, Transport, UserConfig, VirtualHost};

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// It works, but perhaps not as meant.
    Warning,
    /// The named part cannot be used.
    Error,
}

/// One remark about a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Dotted path of the part, such as `virtual_hosts.dev.backends.git.url`.
    pub path: String,
    /// What is wrong and what is allowed.
    pub message: String,
    /// The same for reports, when it is about a declared tool.
    pub tool: Option<Box<ToolFault>>,
}

impl Finding {
    /// An error about the part at `path`.
    pub fn error(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            path: path.into(),
            message: message.into(),
            tool: None,
        }
    }

    /// An error about the tools of the virtual host at `host_path`; `message` is the fault's text,
    /// with its place in a file or without.
    pub(in crate::config) fn of_tool(
        host_path: &str,
        fault: ToolFault,
        message: impl Into<String>,
    ) -> Self {
        let path = match &*fault.tool {
            "" => host_path.to_owned(),
            name => format!("{host_path}.tools.{name}"),
        };
        Self {
            tool: Some(Box::new(fault)),
            ..Self::error(path, message)
        }
    }

    pub(in crate::config) fn warning(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            path: path.into(),
            message: message.into(),
            tool: None,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(formatter, "{word}: ")?;
        if !self.path.is_empty() {
            write!(formatter, "{}: ", self.path)?;
        }
        formatter.write_str(&self.message)
    }
}

/// Longest tool name that the common LLM APIs take (market.md C3).
const LLM_NAME_BYTES_MAX: usize = 64;
/// A tool's own name seldom needs more; a prefix that leaves less is worth a warning.
const TOOL_NAME_BYTES_USUAL: usize = 24;

/// Every header of this family is protected, too.
const MCP_PARAM_PREFIX: &str = "mcp-param-";
/// Headers that configuration never touches (contextforge.md section 5.11).
const PROTECTED_HEADERS: [&str; 19] = [
    "host",
    "content-length",
    "content-type",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
    "mcp-session-id",
    "accept",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
];

impl UserConfig {
    /// Everything worth saying about this configuration, in the order of its parts.
    #[must_use]
    pub fn check(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (id, host) in &self.virtual_hosts {
            let path = format!("virtual_hosts.{id}");
            check_host_id(id, &path, &mut findings);
            host.check(&path, &mut findings);
        }
        findings
    }

    /// Removes the backends that cannot be used and returns the findings of
    /// [`check`](Self::check), those about the removed ones included.
    pub fn drop_unusable(&mut self) -> Vec<Finding> {
        let findings = self.check();
        for host in self.virtual_hosts.values_mut() {
            host.backends.retain(|_, backend| backend.is_usable());
        }
        findings
    }
}

impl VirtualHost {
    fn check(&self, path: &str, findings: &mut Vec<Finding>) {
        for fault in self.tool_faults() {
            let message = fault.to_string();
            findings.push(Finding::of_tool(path, fault, message));
        }
        if self.backends.is_empty() && self.tools.count() == 0 {
            findings.push(Finding::warning(
                path,
                "no backends: clients will see nothing",
            ));
        }
        let is_prefixed = self.backends.len() > 1;
        for (key, backend) in &self.backends {
            let path = format!("{path}.backends.{key}");
            backend.check(&path, findings);
            if is_prefixed {
                check_prefix(key, backend, &path, findings);
            }
        }
        self.check_prefix_pairs(path, findings);
        self.check_aliases(path, findings);
        self.check_exposed_names(path, findings);
        self.check_declared_names(path, findings);
    }

    /// A backend's tool that a declared one hides, as far as allow-lists and aliases tell.
    fn check_declared_names(&self, path: &str, findings: &mut Vec<Finding>) {
        let is_prefixed = self.backends.len() > 1;
        let exposed: BTreeSet<String> = self
            .backends
            .iter()
            .flat_map(|(key, backend)| {
                let tools = backend.allowed_tool_names.iter();
                let tools =
                    tools.map(move |tool| backend.exposed_tool_name(key, tool, is_prefixed));
                tools.chain(backend.tool_name_aliases.keys().cloned())
            })
            .collect();
        for tool in self.tools.tools() {
            if exposed.contains(&*tool.name) {
                let message = "a backend exposes a tool of the same name: it is hidden";
                let path = format!("{path}.tools.{}", tool.name);
                findings.push(Finding::warning(path, message));
            }
        }
    }

    /// Keys `a` and `a-b` both start the name `a-b-t` (contextforge.md section 5.3).
    fn check_prefix_pairs(&self, path: &str, findings: &mut Vec<Finding>) {
        for long in self.backends.keys() {
            // Every shorter key that ends where a dash of the longer one stands.
            for (dash, _) in long.match_indices('-') {
                let short = long.get(..dash).unwrap_or_default();
                if self.backends.contains_key(short) {
                    findings.push(Finding::warning(
                        format!("{path}.backends.{long}"),
                        format!(
                            "names that start with `{long}-` could also belong to the backend \
                             `{short}`; the longest key wins"
                        ),
                    ));
                }
            }
        }
    }

    /// An alias of two backends routes nowhere (contextforge.md section 5.3).
    fn check_aliases(&self, path: &str, findings: &mut Vec<Finding>) {
        let mut owners = BTreeMap::new();
        for (key, backend) in &self.backends {
            for alias in backend.tool_name_aliases.keys() {
                if let Some(first) = owners.insert(alias, key) {
                    findings.push(Finding::warning(
                        format!("{path}.backends.{key}.tool_name_aliases.{alias}"),
                        format!(
                            "the backend `{first}` has the same alias: calls of it reach neither"
                        ),
                    ));
                }
            }
        }
    }

    /// Two tools that clients would see under one name, as far as the allow-lists tell.
    fn check_exposed_names(&self, path: &str, findings: &mut Vec<Finding>) {
        let is_prefixed = self.backends.len() > 1;
        let mut seen: BTreeMap<String, (&str, &str)> = BTreeMap::new();
        for (key, backend) in &self.backends {
            let tools: BTreeSet<&String> = backend.allowed_tool_names.iter().collect();
            for tool in tools {
                let exposed = backend.exposed_tool_name(key, tool, is_prefixed);
                let Some((other_key, other_tool)) = seen.insert(exposed.clone(), (key, tool))
                else {
                    continue;
                };
                // The same alias in two backends has its own finding.
                if other_key == key || !backend.tool_name_aliases.contains_key(&exposed) {
                    findings.push(Finding::warning(
                        format!("{path}.backends.{key}.allowed_tool_names"),
                        format!(
                            "`{tool}` is exposed as `{exposed}`, as is `{other_tool}` of \
                             `{other_key}`: only one can be called"
                        ),
                    ));
                }
            }
        }
    }
}

impl BackendConfig {
    /// Whether the gateway can speak to this backend at all.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        let is_reachable = match self.transport {
            Transport::StreamableHttp => check_url(&self.url).is_ok(),
            Transport::Sse => check_url(&self.url).is_ok() && reverse_source(&self.url).is_none(),
            Transport::Stdio => self.stdio.is_some(),
        };
        is_reachable
            && self.check_credential_mode().is_ok()
            && self.auth.as_ref().is_none_or(|auth| auth.check().is_ok())
    }

    fn check(&self, path: &str, findings: &mut Vec<Finding>) {
        if self.transport == Transport::Stdio {
            if self.stdio.is_none() {
                findings.push(Finding::error(format!("{path}.transport"), STDIO_REFUSED));
            }
            if self.auth.is_some() {
                let message = "a child process gets no headers, so no credential either";
                findings.push(Finding::warning(format!("{path}.auth"), message));
            }
        } else if let Err(fault) = check_url(&self.url) {
            findings.push(Finding::error(format!("{path}.url"), fault.to_string()));
        } else if self.transport == Transport::Sse && reverse_source(&self.url).is_some() {
            let fault = UrlFault::Scheme;
            findings.push(Finding::error(format!("{path}.url"), fault.to_string()));
        } else if self.reverse_source().is_some() {
            self.check_reverse(path, findings);
        }
        for name in &self.passthrough_headers {
            check_header_name(name, &format!("{path}.passthrough_headers"), findings);
        }
        for (name, value) in &self.add_headers {
            let path = format!("{path}.add_headers");
            check_header_name(name, &path, findings);
            // RFC 9110 section 5.5, without the obsolete bytes above 0x7f.
            if !value
                .bytes()
                .all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
            {
                let message = format!("the value of `{name}` has bytes that no header may have");
                findings.push(Finding::warning(path, message));
            }
        }
        for name in &self.remove_headers {
            check_header_name(name, &format!("{path}.remove_headers"), findings);
        }
        if let Some(auth) = &self.auth {
            let names = self
                .passthrough_headers
                .iter()
                .chain(self.add_headers.keys());
            let named: Vec<&str> = names
                .chain(&self.remove_headers)
                .map(String::as_str)
                .collect();
            findings.extend(auth.findings(&format!("{path}.auth"), &named));
        }
        findings.extend(self.credential_mode_findings(path));
        self.check_alias_map(path, findings);
    }

    /// A server that connects itself gets JSON-RPC messages and nothing beside them.
    fn check_reverse(&self, path: &str, findings: &mut Vec<Finding>) {
        let mut warn = |name: &str, is_said: bool| {
            if is_said {
                let message =
                    "a reverse-connected server gets no headers and no credential: no effect";
                findings.push(Finding::warning(format!("{path}.{name}"), message));
            }
        };
        warn("passthrough_headers", !self.passthrough_headers.is_empty());
        warn("add_headers", !self.add_headers.is_empty());
        warn("remove_headers", !self.remove_headers.is_empty());
        warn("auth", self.auth.is_some());
        let is_said = self.backend_credential_mode.is_some();
        warn("backend_credential_mode", is_said);
    }

    fn check_alias_map(&self, path: &str, findings: &mut Vec<Finding>) {
        let mut kept: BTreeMap<&str, &str> = BTreeMap::new();
        for (alias, original) in &self.tool_name_aliases {
            let path = format!("{path}.tool_name_aliases.{alias}");
            if let Some(first) = kept.get(original.as_str()) {
                let message =
                    format!("`{original}` already has the alias `{first}`, which is the one shown");
                findings.push(Finding::warning(&path, message));
            } else {
                kept.insert(original, alias);
            }
            if !self.is_unrestricted() && !self.allowed_tool_names.contains(original) {
                let message = format!("`{original}` is not among allowed_tool_names");
                findings.push(Finding::warning(&path, message));
            }
            check_llm_name(alias, &path, findings);
        }
    }

    /// contextforge.md section 5.3, "Expose tool".
    fn exposed_tool_name(&self, key: &str, tool: &str, is_prefixed: bool) -> String {
        let aliases = &self.tool_name_aliases;
        match aliases.iter().find(|(_, original)| *original == tool) {
            Some((alias, _)) => alias.clone(),
            None if is_prefixed => format!("{key}-{tool}"),
            None => tool.to_owned(),
        }
    }
}

fn check_host_id(id: &str, path: &str, findings: &mut Vec<Finding>) {
    if id.is_empty()
        || id
            .bytes()
            .any(|byte| matches!(byte, b'/' | b'?' | b'#' | 0..=b' '))
    {
        let message = "the id cannot stand in a request path: nobody can reach this virtual host";
        findings.push(Finding::warning(path, message));
    }
}

fn check_prefix(key: &str, backend: &BackendConfig, path: &str, findings: &mut Vec<Finding>) {
    if !key.bytes().all(is_llm_name_byte) {
        let message = format!(
            "`{key}` prefixes tool names, and LLM APIs take only letters, digits, `_` and `-`"
        );
        findings.push(Finding::warning(path, message));
    }
    let prefixed = backend
        .allowed_tool_names
        .iter()
        .filter(|tool| backend.exposed_tool_name(key, tool, true) == format!("{key}-{tool}"));
    let longest = prefixed.map(String::len).max();
    let needed = key.len() + 1 + longest.unwrap_or(TOOL_NAME_BYTES_USUAL);
    let is_known = longest.is_some() || backend.is_unrestricted();
    if is_known && needed > LLM_NAME_BYTES_MAX {
        let message = format!(
            "prefixed tool names will likely be longer than the {LLM_NAME_BYTES_MAX} characters \
             that LLM APIs take; use a shorter key or tool_name_aliases"
        );
        findings.push(Finding::warning(path, message));
    }
}

fn check_llm_name(name: &str, path: &str, findings: &mut Vec<Finding>) {
    let length = name.len();
    if length == 0 || length > LLM_NAME_BYTES_MAX || !name.bytes().all(is_llm_name_byte) {
        let message = format!(
            "LLM APIs take tool names of 1 to {LLM_NAME_BYTES_MAX} letters, digits, `_` and `-`"
        );
        findings.push(Finding::warning(path, message));
    }
}

fn is_llm_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Whether the gateway alone decides about this header, so that configuration never passes, adds or
/// removes it (contextforge.md section 5.11). Names are compared without case.
#[must_use]
pub fn is_protected_header(name: &str) -> bool {
    let prefix = name.get(..MCP_PARAM_PREFIX.len()).unwrap_or_default();
    prefix.eq_ignore_ascii_case(MCP_PARAM_PREFIX)
        || PROTECTED_HEADERS
            .iter()
            .any(|header| header.eq_ignore_ascii_case(name))
}

fn check_header_name(name: &str, path: &str, findings: &mut Vec<Finding>) {
    // RFC 9110 section 5.6.2: token.
    let is_token_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token_byte) {
        let message = format!(
            "`{}` is not a header name; it is ignored",
            name.escape_debug()
        );
        findings.push(Finding::warning(path, message));
    } else if is_protected_header(name) {
        let message = format!("`{name}` belongs to the gateway; the entry is ignored");
        findings.push(Finding::warning(path, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(backends: &[(&str, &str)]) -> UserConfig {
        let backends = backends
            .iter()
            .map(|(key, json)| ((*key).to_owned(), serde_json::from_str(json).unwrap()))
            .collect();
        let host = VirtualHost {
            backends,
            ..VirtualHost::default()
        };
        let virtual_hosts = [("v".to_owned(), host)].into();
        UserConfig { virtual_hosts }
    }

    fn lines(config: &UserConfig) -> Vec<String> {
        config.check().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_clean_config_has_no_findings() {
        let config = host(&[
            (
                "git",
                r#"{"url":"http://a/mcp","allowed_tool_names":["log"]}"#,
            ),
            (
                "web",
                r#"{"url":"https://b/mcp","add_headers":{"authorization":"Bearer x"}}"#,
            ),
        ]);
        assert_eq!(lines(&config), Vec::<String>::new());
    }

    #[test]
    fn an_unusable_backend_is_an_error_and_the_rest_stays() {
        let mut config = host(&[
            ("bad", r#"{"url":"nowhere"}"#),
            ("child", r#"{"url":"x","transport":"STDIO"}"#),
            ("good", r#"{"url":"http://a/"}"#),
            ("old", r#"{"url":"http://a/sse","transport":"SSE"}"#),
            ("older", r#"{"url":"a/sse","transport":"SSE"}"#),
        ]);
        let findings = config.drop_unusable();
        let errors: Vec<_> = findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .map(|finding| finding.path.as_str())
            .collect();
        assert_eq!(
            errors,
            [
                "virtual_hosts.v.backends.bad.url",
                "virtual_hosts.v.backends.child.transport",
                "virtual_hosts.v.backends.older.url",
            ]
        );
        assert_eq!(
            config.virtual_hosts["v"]
                .backends
                .keys()
                .collect::<Vec<_>>(),
            ["good", "old"]
        );
        assert_eq!(config.check(), []);
    }

    #[test]
    fn a_server_that_connects_itself_needs_a_source_and_gets_no_headers() {
        let config = host(&[
            ("a", r#"{"url":"reverse:mcp:alice:files"}"#),
            ("b", r#"{"url":"reverse:"}"#),
            ("c", r#"{"url":"reverse:x","transport":"SSE"}"#),
            (
                "d",
                r#"{"url":"reverse:x","add_headers":{"x":"y"},"remove_headers":["z"]}"#,
            ),
        ]);
        let ignored = "a reverse-connected server gets no headers and no credential: no effect";
        let path = "virtual_hosts.v.backends";
        assert_eq!(
            lines(&config),
            [
                format!("error: {path}.b.url: the URL names no source; write reverse:SOURCE"),
                format!("error: {path}.c.url: the URL's scheme is neither http nor https"),
                format!("warning: {path}.d.add_headers: {ignored}"),
                format!("warning: {path}.d.remove_headers: {ignored}"),
            ]
        );
        assert!(config.has_reverse());
    }

    #[test]
    fn header_faults_are_warnings_and_values_stay_secret() {
        let config = host(&[(
            "b",
            r#"{"url":"http://a/","passthrough_headers":["x y","Host"],
                "add_headers":{"":"v","x":"se\ncret"},"remove_headers":["Mcp-Param-Q","ok"]}"#,
        )]);
        let lines = lines(&config);
        assert_eq!(
            lines,
            [
                "warning: virtual_hosts.v.backends.b.passthrough_headers: `x y` is not a header \
                 name; it is ignored",
                "warning: virtual_hosts.v.backends.b.passthrough_headers: `Host` belongs to the \
                 gateway; the entry is ignored",
                "warning: virtual_hosts.v.backends.b.add_headers: `` is not a header name; it is \
                 ignored",
                "warning: virtual_hosts.v.backends.b.add_headers: the value of `x` has bytes that \
                 no header may have",
                "warning: virtual_hosts.v.backends.b.remove_headers: `Mcp-Param-Q` belongs to the \
                 gateway; the entry is ignored",
            ]
        );
    }

    #[test]
    fn protected_headers_are_known_in_any_case() {
        for name in [
            "host",
            "HOST",
            "Mcp-Param-X",
            "mcp-param-",
            "TE",
            "Mcp-Session-Id",
        ] {
            assert!(is_protected_header(name), "{name}");
        }
        for name in [
            "authorization",
            "cookie",
            "mcp-para",
            "mcp-params",
            "x",
            "",
            "é",
            "hosts",
        ] {
            assert!(!is_protected_header(name), "{name}");
        }
    }

    #[test]
    fn prefixes_and_aliases_that_collide_are_named() {
        let config = host(&[
            (
                "a",
                r#"{"url":"http://a/","tool_name_aliases":{"go":"x","run":"x"}}"#,
            ),
            (
                "a-b",
                r#"{"url":"http://b/","tool_name_aliases":{"go":"y"}}"#,
            ),
            ("ab", r#"{"url":"http://c/"}"#),
        ]);
        let lines = lines(&config);
        assert_eq!(
            lines,
            [
                "warning: virtual_hosts.v.backends.a.tool_name_aliases.run: `x` already has the \
                 alias `go`, which is the one shown",
                "warning: virtual_hosts.v.backends.a-b: names that start with `a-b-` could also \
                 belong to the backend `a`; the longest key wins",
                "warning: virtual_hosts.v.backends.a-b.tool_name_aliases.go: the backend `a` has \
                 the same alias: calls of it reach neither",
            ]
        );
    }

    #[test]
    fn exposed_names_that_meet_are_named() {
        let config = host(&[
            ("a", r#"{"url":"http://a/","allowed_tool_names":["b-t"]}"#),
            ("a-b", r#"{"url":"http://b/","allowed_tool_names":["t"]}"#),
        ]);
        let expected = "warning: virtual_hosts.v.backends.a-b.allowed_tool_names: `t` is exposed \
                        as `a-b-t`, as is `b-t` of `a`: only one can be called";
        assert!(
            lines(&config).contains(&expected.to_owned()),
            "{:?}",
            lines(&config)
        );
    }

    #[test]
    fn names_too_long_for_an_llm_are_named() {
        let id = "0123456789abcdef0123456789abcdef";
        let long = format!(
            r#"{{"url":"http://a/","allowed_tool_names":["{}"]}}"#,
            "t".repeat(32)
        );
        let fits = format!(
            r#"{{"url":"http://a/","allowed_tool_names":["{}"]}}"#,
            "t".repeat(31)
        );
        let warned = |key: &str, json: &str| {
            let config = host(&[(key, json), ("z", r#"{"url":"http://z/"}"#)]);
            lines(&config)
                .iter()
                .any(|line| line.contains("64 characters"))
        };
        assert!(warned(id, &long));
        assert!(!warned(id, &fits));
        let any = r#"{"url":"http://a/"}"#;
        assert!(warned(&"k".repeat(40), any));
        assert!(!warned(&"k".repeat(39), any));
        // A backend that stands alone is not prefixed.
        assert_eq!(lines(&host(&[(id, &long)])), Vec::<String>::new());
        // An alias replaces the prefixed name.
        let alias = format!(
            r#"{{"url":"http://a/","allowed_tool_names":["{0}"],
                "tool_name_aliases":{{"t":"{0}"}}}}"#,
            "t".repeat(32)
        );
        assert!(!warned(id, &alias));
    }

    #[test]
    fn ids_and_keys_that_cannot_work_are_named() {
        let mut config = host(&[
            ("has space", r#"{"url":"http://a/"}"#),
            (
                "b",
                r#"{"url":"http://b/","tool_name_aliases":{"é":"t"},"allowed_tool_names":["u"]}"#,
            ),
        ]);
        let v = config.virtual_hosts["v"].clone();
        config.virtual_hosts.insert("a/b".into(), v);
        config
            .virtual_hosts
            .insert("empty".into(), VirtualHost::default());
        let text = lines(&config).join("\n");
        for expected in [
            "virtual_hosts.a/b: the id cannot stand in a request path",
            "virtual_hosts.empty: no backends",
            "backends.has space: `has space` prefixes tool names",
            "tool_name_aliases.é: `t` is not among allowed_tool_names",
            "tool_name_aliases.é: LLM APIs take tool names of 1 to 64",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }
}
