//! What `shardgate tune` asks about user configurations: their backends, findings and files.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt, path::Path};

use tuning::Documents;

use crate::prepare::read_documents;

/// Bits of a mode that let everyone on the host read.
const READABLE_BY_OTHERS: u32 = 0o004;

/// Reads the documents at `path` for the checks of the host.
pub(crate) fn documents(path: &Path) -> Documents {
    let document = match read_documents(path) {
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
                backends.insert(backend.url.clone(), key.clone());
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
