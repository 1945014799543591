//! A text that must not be printed: token secrets, passwords, export headers.
//!
//! Owns the bytes and hands them only to who asks by name. Its `Debug` is a mask, so that a whole
//! `Settings` can be printed. A secret is said as it is, or as `file:PATH`, or as `env:NAME`.

use super::environment::Environment;
use std::fmt;
use std::path::Path;

/// A secret text.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Keeps `bytes` from being printed.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into().into_boxed_slice())
    }

    /// The bytes themselves; never to be logged.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads what an operator said: `file:PATH`, `env:NAME`, or the secret itself.
    ///
    /// The answer's error is safe to print: it names the file or the variable, never a value.
    pub(super) fn parse(text: &str, environment: &Environment) -> Result<Self, String> {
        let secret = if let Some(path) = text.strip_prefix("file:") {
            Self::from_file(Path::new(path))?
        } else if let Some(name) = text.strip_prefix("env:") {
            let value = environment.value(name);
            Self::new(value.ok_or_else(|| format!("the variable {name} is not set"))?)
        } else {
            Self::new(text)
        };
        if secret.is_empty() {
            return Err("the secret is empty".into());
        }
        Ok(secret)
    }

    /// Reads a secret file; one line break at its end is an editor's and not the secret's.
    pub(crate) fn from_file(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let mut bytes =
            std::fs::read(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
        }
        if bytes.is_empty() {
            return Err(format!("{shown} holds no secret"));
        }
        Ok(Self::new(bytes))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_as_a_mask() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "*** Some(***)");
        assert_eq!(secret.bytes(), b"hunter2");
    }

    #[test]
    fn a_secret_may_live_in_a_variable() {
        let environment = Environment::from_pairs([("KEY", "k1"), ("HOLLOW", "")]);
        assert_eq!(
            Secret::parse("env:KEY", &environment),
            Ok(Secret::new("k1"))
        );
        assert_eq!(
            Secret::parse("plain", &environment),
            Ok(Secret::new("plain"))
        );
        for text in [
            "env:MISSING",
            "env:HOLLOW",
            "env:",
            "",
            "file:/nonexistent/secret",
        ] {
            assert!(Secret::parse(text, &environment).is_err(), "{text}");
        }
    }

    #[test]
    fn one_line_break_at_the_end_of_a_secret_file_is_not_part_of_it() {
        let path = std::env::temp_dir().join(format!("shardgate-secret-{}", std::process::id()));
        for (content, secret) in [("s\n", "s"), ("s\r\n", "s"), ("s", "s"), ("s\n\n", "s\n")] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(
                Secret::from_file(&path),
                Ok(Secret::new(secret)),
                "{content:?}"
            );
        }
        std::fs::write(&path, "\n").unwrap();
        assert!(Secret::from_file(&path).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
