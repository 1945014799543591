//! What `shardgate tune` asks of the gateway: user configurations with their backends, findings
//! and files, and what a gateway for measurements needs.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt, path::Path};

use shards::clock::unix_s;
use tuning::{Documents, cli::Prepared};

use crate::{
    auth::{MintRequest, SignatureAlgorithm, SigningKey, load_or_create_secret, mint},
    command::token::GENERATED_SECRET,
    config::user_config::DocumentRules,
    prepare::read_documents,
};

/// The only user of a gateway for measurements, and the virtual host.
const SUBJECT: &str = "measurement@example.com";
const HOST: &str = "measurement";
/// Longer than any measurement.
const TOKEN_LIFETIME_S: u64 = 24 * 3600;

/// Writes secret and document for a gateway in front of one backend. Tokens are checked as they are
/// in service: leaving that out would flatter the figures.
pub(crate) fn prepare(folder: &Path, backend_url: &str) -> Result<Prepared, String> {
    let fault = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.display());
    let document = serde_json::json!({"users": {SUBJECT: {"virtual_hosts": {HOST: {"backends": {
        "a": {"url": backend_url},
    }}}}}});
    let config = folder.join("users.json");
    fs::write(&config, document.to_string()).map_err(|error| fault(&error))?;
    let secret_file = folder.join(GENERATED_SECRET);
    let secret = load_or_create_secret(&secret_file).map_err(|error| fault(&error))?;
    let key = SigningKey::from_secret(&secret).map_err(|error| fault(&error))?;
    let request = MintRequest {
        lifetime_s: TOKEN_LIFETIME_S,
        ..MintRequest::bootstrap(SUBJECT, SUBJECT, SignatureAlgorithm::Hs256, &key)
    };
    let token = mint(&request, unix_s()).map_err(|error| fault(&error))?;
    let arguments = [
        ("--config-file", config.display().to_string()),
        ("--state-dir", folder.display().to_string()),
        (
            "--token-verification-secret",
            format!("file:{}", secret_file.display()),
        ),
        ("--upstream-connection-mode", "plain-text-or-tls".to_owned()),
    ];
    Ok(Prepared {
        arguments: arguments
            .into_iter()
            .flat_map(|(flag, value)| [flag.into(), value.into()])
            .collect(),
        token,
        path: format!("/servers/{HOST}/mcp"),
    })
}

/// Bits of a mode that let everyone on the host read.
const READABLE_BY_OTHERS: u32 = 0o004;

/// Reads the documents at `path` for the checks of the host.
pub(crate) fn documents(path: &Path) -> Documents {
    // Nothing is started here: whether child processes are allowed is the gateway's question.
    let rules = DocumentRules {
        allow_stdio: true,
        ..DocumentRules::default()
    };
    let document = match read_documents(path, rules) {
        Ok(document) => document,
        Err(faults) => {
            return Documents {
                faults,
                ..Documents::default()
            };
        }
    };
    // A backend that stands in several places is asked once.
    let mut backends = BTreeMap::new();
    let mut has_secrets = false;
    for user in document.users.values().chain(&document.everyone) {
        for host in user.virtual_hosts.values() {
            for (key, backend) in &host.backends {
                if backend.url.starts_with("http") {
                    backends.insert(backend.url.clone(), key.clone());
                }
                has_secrets |= !backend.add_headers.is_empty();
            }
        }
    }
    let mode = fs::metadata(path).map(|file| file.permissions().mode());
    let is_open = mode.is_ok_and(|mode| mode & READABLE_BY_OTHERS != 0);
    Documents {
        backends: backends.into_iter().map(|(url, key)| (key, url)).collect(),
        faults: Vec::new(),
        findings: document.findings.iter().map(ToString::to_string).collect(),
        // Fixed headers are where tokens of backends stand.
        open_to_others: (is_open && has_secrets)
            .then(|| path.display().to_string())
            .into_iter()
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_are_asked_once_and_open_files_with_headers_are_named() {
        let folder = std::env::temp_dir().join(format!("shardgate-tune-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("users.json");
        let backend = r#"{"name":"a","url":"http://127.0.0.1:1/mcp","add_headers":{"x-key":"k"}}"#;
        let hosts = format!(
            r#"{{"v":{{"backends":{{"a":{backend}}}}},"w":{{"backends":{{"b":{backend}}}}}}}"#
        );
        fs::write(
            &path,
            format!(r#"{{"users":{{"u":{{"virtual_hosts":{hosts}}}}}}}"#),
        )
        .unwrap();
        let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        set(0o644);
        let found = documents(&path);
        assert_eq!(found.faults, [""; 0]);
        assert_eq!(found.backends.len(), 1);
        assert_eq!(found.open_to_others.len(), 1);
        set(0o640);
        assert!(documents(&path).open_to_others.is_empty());
        fs::write(&path, "{").unwrap();
        assert_eq!(documents(&path).faults.len(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
