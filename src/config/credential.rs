//! Static credentials of backends: what a configuration names, and what is sent.
//!
//! A configuration holds no secret, only where one is: a variable or a file of this host. So only
//! the local configuration file may name one: who writes to Redis must not read our environment.
//! Secrets are fetched off the shards when a document is loaded, and never printed.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::IgnoredAny};

use crate::{bridge::HEADER_PREFIX, settings::Secret};

use super::{
    document::{Document, EVERYONE},
    user_config::{BackendConfig, Finding, UserConfig, is_protected_header},
};

/// Bytes of a secret at the most: a header of more is refused everywhere.
const SECRET_BYTES_MAX: usize = 16 * 1024;

/// `auth` of a backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum BackendAuth {
    /// `Authorization: Bearer TOKEN` (RFC 6750 section 2.1).
    Bearer {
        /// Where the token is.
        token: Reference,
    },
    /// `Authorization: Basic ...` (RFC 7617).
    Basic {
        /// The user; not a secret.
        username: String,
        /// Where the password is.
        password: Reference,
    },
    /// A header of the backend's own, such as `X-Api-Key`.
    Header {
        /// Its name.
        name: String,
        /// Where its value is.
        value: Reference,
    },
    /// One that came from a store which may not name any; it was not looked at.
    #[serde(skip_deserializing)]
    Unread,
}

/// Where a secret is: `env:NAME` or `file:/path`. Anything else may be the secret itself, so it is
/// not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// A variable of the environment.
    Variable(String),
    /// A file, by its absolute path.
    File(PathBuf),
    /// Something else was written.
    Neither,
}

/// What is sent with every request to a backend. Its `Debug` masks the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// The header, in lower case.
    pub name: Box<str>,
    /// Its value.
    pub value: Secret,
}

impl Reference {
    fn parse(text: &str) -> Self {
        if let Some(name) = text.strip_prefix("env:").filter(|name| !name.is_empty()) {
            return Self::Variable(name.to_owned());
        }
        match text.strip_prefix("file:").map(Path::new) {
            Some(path) if path.is_absolute() => Self::File(path.to_owned()),
            _ => Self::Neither,
        }
    }

    /// The secret. The error names the variable or the file, never a value.
    fn read(&self, variable: &impl Fn(&str) -> Option<String>) -> Result<Secret, String> {
        let secret = match self {
            Self::Variable(name) => {
                let value = variable(name).filter(|value| !value.is_empty());
                Secret::new(value.ok_or_else(|| format!("the variable {name} is not set"))?)
            }
            Self::File(path) => Secret::from_file(path)?,
            Self::Neither => return Err(NO_REFERENCE.to_owned()),
        };
        if secret.bytes().len() > SECRET_BYTES_MAX {
            return Err(format!("the secret has more than {SECRET_BYTES_MAX} bytes"));
        }
        Ok(secret)
    }
}

const NO_REFERENCE: &str =
    "a secret is named as env:NAME or file:/absolute/path, and never written here itself";

impl Serialize for Reference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Variable(name) => serializer.collect_str(&format_args!("env:{name}")),
            Self::File(path) => serializer.collect_str(&format_args!("file:{}", path.display())),
            Self::Neither => serializer.serialize_str("***"),
        }
    }
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A fault would be told with the value, which may be the secret.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            Other(IgnoredAny),
        }
        Ok(match Written::deserialize(deserializer)? {
            Written::Text(text) => Self::parse(&text),
            Written::Other(IgnoredAny) => Self::Neither,
        })
    }
}

impl BackendAuth {
    /// The header it sets.
    #[must_use]
    pub fn header_name(&self) -> &str {
        match self {
            Self::Bearer { .. } | Self::Basic { .. } | Self::Unread => "authorization",
            Self::Header { name, .. } => name,
        }
    }

    /// The file the secret is in, if it is in one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self.reference() {
            Some(Reference::File(path)) => Some(path),
            _ => None,
        }
    }

    fn reference(&self) -> Option<&Reference> {
        match self {
            Self::Bearer { token: reference }
            | Self::Basic {
                password: reference,
                ..
            }
            | Self::Header {
                value: reference, ..
            } => Some(reference),
            Self::Unread => None,
        }
    }

    /// What is wrong with it, whatever the secret is.
    ///
    /// # Errors
    /// When it cannot be used; the text holds no secret.
    pub fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Unread => {
                return Err(
                    "credentials are only taken from the local configuration file, because \
                            whoever writes to the store must not read this host's secrets",
                );
            }
            Self::Basic { username, .. } if username.contains(':') || !is_visible(username) => {
                // RFC 7617 section 2.
                return Err("the user name holds a colon or what is not visible ASCII");
            }
            Self::Header { name, .. } if !is_token(name) => {
                return Err("the name is not a header name");
            }
            Self::Header { name, .. } if is_protected_header(name) || is_ours(name) => {
                return Err("the header belongs to the gateway");
            }
            _ => {}
        }
        match self.reference() {
            Some(Reference::Neither) => Err(NO_REFERENCE),
            _ => Ok(()),
        }
    }

    /// Fetches the secret. Reads a file: not on a shard.
    ///
    /// # Errors
    /// When there is no secret to be had; the text names the variable or the file, never a value.
    pub fn resolve(
        &self,
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Result<Credential, String> {
        self.check()?;
        let secret = match self.reference() {
            Some(reference) => reference.read(variable)?,
            None => return Err(NO_REFERENCE.to_owned()),
        };
        let value = match self {
            Self::Bearer { .. } => [b"Bearer ", secret.bytes()].concat(),
            Self::Basic { username, .. } => {
                let pair = [username.as_bytes(), b":", secret.bytes()].concat();
                format!("Basic {}", STANDARD.encode(pair)).into_bytes()
            }
            Self::Header { .. } | Self::Unread => secret.bytes().to_vec(),
        };
        // RFC 9110 section 5.5, ASCII only.
        if !value.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
            return Err("the secret has bytes that no header may have".to_owned());
        }
        Ok(Credential {
            name: self.header_name().to_ascii_lowercase().into(),
            value: Secret::new(value),
        })
    }

    /// What is worth saying about it beside the backend's own header rules.
    pub(in crate::config) fn findings(&self, path: &str, named: &[&str]) -> Vec<Finding> {
        if let Err(fault) = self.check() {
            return vec![Finding::error(path, fault)];
        }
        let header = self.header_name();
        let rivals = named
            .iter()
            .filter(|name| name.eq_ignore_ascii_case(header));
        rivals
            .take(1)
            .map(|_| {
                let message =
                    format!("sets `{header}` itself: the header rules for it are ignored");
                Finding::warning(path, message)
            })
            .collect()
    }
}

impl UserConfig {
    fn backends(&self) -> impl Iterator<Item = &BackendConfig> {
        let hosts = self.virtual_hosts.values();
        hosts.flat_map(|host| host.backends.values())
    }

    /// The credentials that its backends and declared tools name.
    fn auths(&self) -> impl Iterator<Item = &BackendAuth> {
        let of_backends = self.backends().filter_map(|backend| backend.auth.as_ref());
        let hosts = self.virtual_hosts.values();
        let tools = hosts.flat_map(|host| host.tools.tools());
        of_backends.chain(tools.filter_map(|tool| tool.auth.as_ref()))
    }

    /// Whether a backend or a declared tool of it names a credential.
    #[must_use]
    pub fn names_credentials(&self) -> bool {
        self.auths().next().is_some()
    }

    /// Fetches what its backends and declared tools name. A backend whose credential is not to be
    /// had keeps its place and is not asked; a tool is not shown.
    fn resolve_credentials(
        &mut self,
        variable: &impl Fn(&str) -> Option<String>,
        user_path: &str,
        findings: &mut Vec<Finding>,
    ) {
        for (id, host) in &mut self.virtual_hosts {
            for (key, backend) in &mut host.backends {
                let Some(auth) = &backend.auth else { continue };
                match auth.resolve(variable) {
                    Ok(credential) => backend.credential = Some(credential),
                    Err(fault) => {
                        let path = format!("{user_path}virtual_hosts.{id}.backends.{key}.auth");
                        findings.push(Finding::error(path, fault));
                    }
                }
            }
            for tool in host.tools.tools() {
                let Some(auth) = &tool.auth else { continue };
                match auth.resolve(variable) {
                    Ok(credential) => {
                        let name = tool.name.to_string();
                        host.tool_credentials.insert(name, credential);
                    }
                    Err(fault) => {
                        let name = &tool.name;
                        let path = format!("{user_path}virtual_hosts.{id}.tools.{name}.auth");
                        findings.push(Finding::error(path, fault));
                    }
                }
            }
        }
    }
}

impl Document {
    fn configs(&self) -> impl Iterator<Item = &Arc<UserConfig>> {
        self.users.values().chain(&self.everyone)
    }

    /// Fetches every secret the document names; what is not to be had becomes a finding. Reads
    /// files: not on a shard.
    pub fn resolve_credentials(&mut self, variable: impl Fn(&str) -> Option<String>) {
        let users = self.users.iter_mut();
        let users = users.map(|(subject, config)| (subject.as_str(), config));
        let everyone = self.everyone.iter_mut().map(|config| (EVERYONE, config));
        for (subject, config) in users.chain(everyone) {
            if config.names_credentials() {
                let path = format!("users.{subject}.");
                let config = Arc::make_mut(config);
                config.resolve_credentials(&variable, &path, &mut self.findings);
            }
        }
    }

    /// The files its credentials are in.
    #[must_use]
    pub fn credential_files(&self) -> Vec<PathBuf> {
        let auths = self.configs().flat_map(|config| config.auths());
        let files = auths.filter_map(BackendAuth::file);
        files.map(Path::to_owned).collect()
    }
}

/// Headers the gateway sets that are not on the contract's list.
fn is_ours(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "accept-encoding" || name == "user-agent" || name.starts_with(HEADER_PREFIX)
}

fn is_visible(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

fn is_token(name: &str) -> bool {
    // RFC 9110 section 5.6.2.
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{
            compiled::CompiledUser,
            decode::{DecodeLimits, decode},
        },
        upstream::target::Targets,
    };

    fn auth(json: &str) -> BackendAuth {
        serde_json::from_str(json).unwrap()
    }

    fn variable(name: &str) -> Option<String> {
        match name {
            "TOKEN" => Some("t0k".to_owned()),
            "BROKEN" => Some("a\r\nb".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn each_kind_becomes_one_header() {
        for (json, name, value) in [
            (
                r#"{"type":"bearer","token":"env:TOKEN"}"#,
                "authorization",
                "Bearer t0k",
            ),
            (
                r#"{"type":"basic","username":"me","password":"env:TOKEN"}"#,
                "authorization",
                "Basic bWU6dDBr",
            ),
            (
                r#"{"type":"header","name":"X-Key","value":"env:TOKEN"}"#,
                "x-key",
                "t0k",
            ),
        ] {
            let credential = auth(json).resolve(&variable).unwrap();
            assert_eq!(
                (&*credential.name, credential.value.bytes()),
                (name, value.as_bytes())
            );
            assert!(!format!("{credential:?}").contains(value));
        }
    }

    #[test]
    fn what_is_written_instead_of_a_reference_is_not_kept() {
        for token in [
            r#""hunter2""#,
            r#""env:""#,
            r#""file:hunter2""#,
            "12345",
            r#"{"a":"hunter2"}"#,
        ] {
            let auth = auth(&format!(r#"{{"type":"bearer","token":{token}}}"#));
            let shown = format!(
                "{auth:?} {} {:?}",
                serde_json::to_string(&auth).unwrap(),
                auth.check()
            );
            assert!(
                !shown.contains("hunter2") && !shown.contains("12345"),
                "{shown}"
            );
            assert!(auth.resolve(&variable).is_err(), "{token}");
        }
    }

    #[test]
    fn what_cannot_be_sent_is_refused_without_saying_it() {
        for json in [
            r#"{"type":"bearer","token":"env:MISSING"}"#,
            r#"{"type":"bearer","token":"env:EMPTY"}"#,
            r#"{"type":"bearer","token":"env:BROKEN"}"#,
            r#"{"type":"bearer","token":"file:/nonexistent/secret"}"#,
            r#"{"type":"basic","username":"a:b","password":"env:TOKEN"}"#,
            r#"{"type":"header","name":"Host","value":"env:TOKEN"}"#,
            r#"{"type":"header","name":"mcp-session-id","value":"env:TOKEN"}"#,
            r#"{"type":"header","name":"a b","value":"env:TOKEN"}"#,
        ] {
            let fault = auth(json).resolve(&variable).unwrap_err();
            assert!(!fault.contains("t0k") && !fault.contains('\r'), "{fault}");
        }
        assert!(serde_json::from_str::<BackendAuth>(r#"{"type":"unread"}"#).is_err());
    }

    #[test]
    fn a_store_may_not_name_credentials() {
        let auth = serde_json::json!({"type": "bearer", "token": "env:TOKEN"});
        let backends = serde_json::json!({
            "a": {"url": "http://a/", "auth": auth},
            "b": {"url": "http://b/"},
        });
        let value = serde_json::json!({"virtual_hosts": {"v": {"backends": backends}}});
        let bytes = rmp_serde::to_vec_named(&value).unwrap();
        let config = decode(&bytes, &DecodeLimits::default()).unwrap();
        assert!(config.names_credentials());
        assert!(
            config
                .check()
                .iter()
                .any(|finding| finding.path.ends_with("a.auth"))
        );
        let user = CompiledUser::new(&config, &Targets::default());
        let host = user.host("v").unwrap();
        let keys: Vec<&str> = host.backends.iter().map(|backend| &*backend.key).collect();
        assert_eq!((keys, host.is_single), (vec!["b"], false));
        // A file with the same text, whose secrets nobody has fetched.
        let config: UserConfig = serde_json::from_value(value).unwrap();
        let user = CompiledUser::new(&config, &Targets::default());
        assert_eq!(user.host("v").unwrap().backends.len(), 1);
    }
}
