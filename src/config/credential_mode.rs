//! Whose credential a backend gets: nobody's, the gateway's own, or the caller's if its token is
//! meant for the backend.

use serde::{Deserialize, Serialize};
use url::Url;

use super::user_config::{BackendConfig, Finding, Transport};

/// Whose credential a backend gets (dual-profile.md section 2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CredentialMode {
    /// Nobody's.
    #[serde(alias = "anonymous")]
    None,
    /// The gateway's own, which `auth` names.
    Service,
    /// The caller's token, if it is meant for the backend.
    Caller,
    /// A token made for the backend from the caller's: not supported, and never ignored.
    Exchange,
}

impl CredentialMode {
    /// The word in configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Service => "service",
            Self::Caller => "caller",
            Self::Exchange => "exchange",
        }
    }

    /// Reads the word in configuration.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::None, Self::Service, Self::Caller, Self::Exchange];
        let name = if name == "anonymous" { "none" } else { name };
        all.into_iter().find(|one| one.name() == name)
    }
}

impl BackendConfig {
    /// What is wrong with how the mode, the resource and `auth` go together.
    ///
    /// # Errors
    /// When the backend cannot be used; the text holds no secret.
    pub fn check_credential_mode(&self) -> Result<(), &'static str> {
        match self.backend_credential_mode {
            Some(CredentialMode::Exchange) => Err(
                "is not supported: `exchange` makes tokens for a backend, which this gateway \
                     does not; use `none`, `service` or `caller`",
            ),
            Some(CredentialMode::Service) if self.auth.is_none() => {
                Err("`service` sends what `auth` names, which is missing")
            }
            Some(CredentialMode::None | CredentialMode::Caller) if self.auth.is_some() => {
                Err("`auth` is a credential of the gateway's own: it goes with `service` only")
            }
            Some(CredentialMode::Caller) if self.transport != Transport::StreamableHttp => {
                Err("`caller` needs Streamable HTTP, where each request carries its own token")
            }
            Some(CredentialMode::Caller) if self.resource().is_none() => Err(
                "`caller` needs `backend_resource`, the absolute URL that the caller's token \
                     must name as its audience",
            ),
            _ => Ok(()),
        }
    }

    /// What the caller's token must be meant for to be passed on, as tokens spell it: without a
    /// fragment and without slashes at its end. `None`: no token is passed on.
    #[must_use]
    pub fn resource(&self) -> Option<Box<str>> {
        if self.backend_credential_mode != Some(CredentialMode::Caller) {
            return None;
        }
        let mut resource = Url::parse(self.backend_resource.as_deref()?).ok()?;
        resource.set_fragment(None);
        Some(resource.as_str().trim_end_matches('/').into())
    }

    /// What is worth saying about the mode.
    pub(in crate::config) fn credential_mode_findings(&self, path: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mode_path = || format!("{path}.backend_credential_mode");
        if let Err(fault) = self.check_credential_mode() {
            findings.push(Finding::error(mode_path(), fault));
        }
        let passes = |name: &String| name.eq_ignore_ascii_case("authorization");
        if self.passthrough_headers.iter().any(passes) {
            let message = match self.backend_credential_mode {
                None if self.auth.is_some() => "",
                None => {
                    "passes every caller's token on, whoever it was made for; \
                     backend_credential_mode `caller` passes on what is meant for the backend"
                }
                Some(_) => {
                    "backend_credential_mode decides about `authorization`; the entry is ignored"
                }
            };
            if !message.is_empty() {
                let path = format!("{path}.passthrough_headers");
                findings.push(Finding::warning(path, message));
            }
        }
        if self.backend_resource.is_some()
            && self.backend_credential_mode != Some(CredentialMode::Caller)
        {
            let message = "no effect without backend_credential_mode `caller`";
            findings.push(Finding::warning(
                format!("{path}.backend_resource"),
                message,
            ));
        }
        let origin = |text: &str| Url::parse(text).ok().map(|url| url.origin());
        if let Some(resource) = self.resource()
            && origin(&resource) != origin(&self.url)
        {
            let message = "is not at the backend's own address: a token for somebody else is \
                           passed on to it";
            findings.push(Finding::warning(
                format!("{path}.backend_resource"),
                message,
            ));
        }
        findings
    }
}
