//! Verification and signing keys, and the secrets the gateway makes for itself.
//!
//! The public key and the secret are separate fields, so a token can never choose to have its HMAC
//! checked with a public key (contextforge.md section 2). Errors name files, never contents.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jsonwebtoken::{DecodingKey, EncodingKey};
use ring::rand::{SecureRandom as _, SystemRandom};

use super::algorithm::{KeyFamily, SignatureAlgorithm};
use super::public_key::{PublicKey, Unfit, holds};

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFault {
    /// The file cannot be read.
    #[error("cannot read the key file {}: {source}", file.display())]
    Unreadable {
        /// The file as configured.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not a PEM document with an RSA private key.
    #[error("{} is not an RSA private key in PEM form", file.display())]
    NotRsa {
        /// The file as configured.
        file: PathBuf,
    },
    /// The file is not a PEM document with a public key of a kind that is known.
    #[error("{} is not a public key in PEM form, RSA, P-256, P-384 or Ed25519", file.display())]
    NotPublic {
        /// The file as configured.
        file: PathBuf,
    },
    /// A private key stands where the public one belongs.
    #[error("{} holds a private key; give the gateway the public one", file.display())]
    PrivateKey {
        /// The file as configured.
        file: PathBuf,
    },
    /// RSA keys below 2048 bits verify nothing.
    #[error("the RSA key in {} is shorter than 2048 bits", file.display())]
    TooShort {
        /// The file as configured.
        file: PathBuf,
    },
    /// RSA keys above 8192 bits verify nothing either.
    #[error("the RSA key in {} is longer than 8192 bits", file.display())]
    TooLong {
        /// The file as configured.
        file: PathBuf,
    },
    /// An empty secret would accept tokens from anyone.
    #[error("the token secret is empty")]
    EmptySecret,
}

/// The keys that tokens are checked with.
#[derive(Clone, Default)]
pub struct VerificationKeys {
    public: Option<PublicKey>,
    hmac: Option<DecodingKey>,
}

impl VerificationKeys {
    /// Sets the public key from PEM bytes; `file` is for messages only.
    ///
    /// # Errors
    /// When the bytes are not a public key: RSA of 2048 to 8192 bits, P-256, P-384 or Ed25519.
    pub fn set_public_pem(&mut self, pem: &[u8], file: &Path) -> Result<(), KeyFault> {
        let file = || file.to_owned();
        let label = pem_label(pem).ok_or_else(|| KeyFault::NotPublic { file: file() })?;
        if label.ends_with("PRIVATE KEY") {
            return Err(KeyFault::PrivateKey { file: file() });
        }
        if label != "PUBLIC KEY" && label != "RSA PUBLIC KEY" {
            return Err(KeyFault::NotPublic { file: file() });
        }
        let key = PublicKey::from_pem(pem, label).map_err(|unfit| match unfit {
            Unfit::Kind => KeyFault::NotPublic { file: file() },
            Unfit::Short => KeyFault::TooShort { file: file() },
            Unfit::Long => KeyFault::TooLong { file: file() },
        })?;
        self.public = Some(key);
        Ok(())
    }

    /// Reads the public key from a PEM file.
    ///
    /// # Errors
    /// When the file cannot be read or is not such a key.
    pub fn read_public_pem(&mut self, file: &Path) -> Result<(), KeyFault> {
        let pem = read_key_file(file)?;
        self.set_public_pem(&pem, file)
    }

    /// Sets the shared secret: the bytes of the configured string, as they are.
    ///
    /// # Errors
    /// When it is empty.
    pub fn set_secret(&mut self, secret: &[u8]) -> Result<(), KeyFault> {
        if secret.is_empty() {
            return Err(KeyFault::EmptySecret);
        }
        self.hmac = Some(DecodingKey::from_secret(secret));
        Ok(())
    }

    /// True when no key is set: every token would be refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.public.is_none() && self.hmac.is_none()
    }

    /// Whether the key of the algorithm's family has made `signature`; `None`: there is none.
    pub(super) fn has_signed(
        &self,
        algorithm: SignatureAlgorithm,
        message: &str,
        signature: &str,
    ) -> Option<bool> {
        if algorithm.is_hmac() {
            let secret = self.hmac.as_ref()?;
            return Some(holds(secret, algorithm, message, signature));
        }
        let key = self.public.as_ref()?;
        (key.family() == algorithm.family()).then(|| key.has_signed(algorithm, message, signature))
    }
}

impl fmt::Debug for VerificationKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("VerificationKeys")
            .field("public", &self.public)
            .field("hmac", &self.hmac.is_some())
            .finish()
    }
}

/// A key that signs minted tokens.
#[derive(Clone)]
pub struct SigningKey {
    pub(super) key: EncodingKey,
    pub(super) family: KeyFamily,
}

impl SigningKey {
    /// An HMAC key.
    ///
    /// # Errors
    /// When the secret is empty.
    pub fn from_secret(secret: &[u8]) -> Result<Self, KeyFault> {
        if secret.is_empty() {
            return Err(KeyFault::EmptySecret);
        }
        Ok(Self {
            key: EncodingKey::from_secret(secret),
            family: KeyFamily::Hmac,
        })
    }

    /// An RSA private key, PKCS#1 or PKCS#8 PEM; `file` is for messages only.
    ///
    /// # Errors
    /// When the bytes are not such a key.
    pub fn from_rsa_private_pem(pem: &[u8], file: &Path) -> Result<Self, KeyFault> {
        let not_rsa = || KeyFault::NotRsa {
            file: file.to_owned(),
        };
        let label = pem_label(pem).ok_or_else(not_rsa)?;
        if label != "PRIVATE KEY" && label != "RSA PRIVATE KEY" {
            return Err(not_rsa());
        }
        let key = EncodingKey::from_rsa_pem(pem).map_err(|_| not_rsa())?;
        Ok(Self {
            key,
            family: KeyFamily::Rsa,
        })
    }

    /// Reads an RSA private key from a PEM file.
    ///
    /// # Errors
    /// When the file cannot be read or is not such a key.
    pub fn read_rsa_private_pem(file: &Path) -> Result<Self, KeyFault> {
        let pem = read_key_file(file)?;
        Self::from_rsa_private_pem(&pem, file)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SigningKey")
            .field("family", &self.family)
            .finish_non_exhaustive()
    }
}

fn read_key_file(file: &Path) -> Result<Vec<u8>, KeyFault> {
    fs::read(file).map_err(|source| KeyFault::Unreadable {
        file: file.to_owned(),
        source,
    })
}

/// The word between `-----BEGIN ` and `-----` of the first block (RFC 7468 section 2).
fn pem_label(pem: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(pem).ok()?;
    let (_, after) = text.split_once("-----BEGIN ")?;
    after.split_once("-----").map(|(label, _)| label)
}

/// Shortest accepted secret file: below this a secret can be guessed.
const SECRET_BYTES_MIN: usize = 32;

/// Reads a secret of the state folder, or makes it: 32 random bytes as hex text, mode 0600.
///
/// The secret is the text of the file without a trailing line end. When several processes start at
/// once they all end up with the same secret: the file appears whole, under its final name, once.
///
/// # Errors
/// When the file cannot be made or read, or holds less than 32 bytes.
pub fn load_or_create_secret(path: &Path) -> io::Result<Vec<u8>> {
    match read_secret(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    let temporary = write_temporary(path)?;
    // A hard link and not a rename: a rename would replace the secret of a process that was faster.
    match fs::hard_link(&temporary, path) {
        Ok(()) => fs::remove_file(&temporary)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(&temporary)?;
            return read_secret(path);
        }
        // Some file systems have no hard links; there, two makers at the very same moment may
        // disagree until the next start, which costs sessions and nothing else.
        Err(_) => fs::rename(&temporary, path)?,
    }
    sync_folder(path)?;
    read_secret(path)
}

fn read_secret(path: &Path) -> io::Result<Vec<u8>> {
    let mut secret = fs::read(path)?;
    while secret
        .last()
        .is_some_and(|byte| matches!(byte, b'\n' | b'\r'))
    {
        secret.pop();
    }
    if secret.len() < SECRET_BYTES_MIN {
        let text = format!(
            "{} holds less than {SECRET_BYTES_MIN} bytes",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(secret)
}

/// Writes a fresh secret beside `path` and returns the name of the file.
fn write_temporary(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", random_hex::<8>()?));
    let temporary = path.with_file_name(name);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    let written = random_hex::<32>()
        .and_then(|secret| file.write_all(format!("{secret}\n").as_bytes()))
        .and_then(|()| file.sync_all());
    if let Err(error) = written {
        // The first fault is the one to report; a left-over file is harmless.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    Ok(temporary)
}

/// Makes the new name durable, so that a power cut cannot bring back a state without the secret.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// `N` random bytes as lower-case hex.
pub(super) fn random_hex<const N: usize>() -> io::Result<String> {
    let mut bytes = [0u8; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the system gives no random bytes"))?;
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    Ok(bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// A folder of its own for each test, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let name = format!("shardgate-keys-{}", random_hex::<8>().unwrap());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_secret_is_made_once_and_private() {
        let folder = Folder::new();
        let path = folder.0.join("state/token.secret");
        let first = load_or_create_secret(&path).unwrap();
        assert_eq!(first.len(), 64);
        assert!(first.iter().all(u8::is_ascii_hexdigit));
        assert_eq!(load_or_create_secret(&path).unwrap(), first);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!(
            fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "no left-overs"
        );
    }

    #[test]
    fn racing_makers_agree() {
        let folder = Folder::new();
        let path = folder.0.join("token.secret");
        let secrets: Vec<_> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| load_or_create_secret(&path).unwrap()))
                .collect();
            makers
                .into_iter()
                .map(|maker| maker.join().unwrap())
                .collect()
        });
        assert!(secrets.iter().all(|secret| *secret == secrets[0]));
    }

    #[test]
    fn an_operators_secret_is_kept_and_a_short_one_refused() {
        let folder = Folder::new();
        let path = folder.0.join("token.secret");
        fs::write(&path, "0123456789abcdef0123456789abcdef\r\n").unwrap();
        assert_eq!(
            load_or_create_secret(&path).unwrap(),
            b"0123456789abcdef0123456789abcdef"
        );
        fs::write(&path, "short\n").unwrap();
        let error = load_or_create_secret(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(!error.to_string().contains("short\n"));
    }

    #[test]
    fn errors_name_the_file_and_not_the_key() {
        let mut keys = VerificationKeys::default();
        let file = Path::new("keys/public.pem");
        let body = "c2VjcmV0";
        for (label, expected) in [
            (
                "PRIVATE KEY",
                "keys/public.pem holds a private key; give the gateway the public one",
            ),
            (
                "RSA PRIVATE KEY",
                "keys/public.pem holds a private key; give the gateway the public one",
            ),
            (
                "PUBLIC KEY",
                "keys/public.pem is not a public key in PEM form, RSA, P-256, P-384 or Ed25519",
            ),
            (
                "CERTIFICATE",
                "keys/public.pem is not a public key in PEM form, RSA, P-256, P-384 or Ed25519",
            ),
        ] {
            let pem = format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
            let fault = keys.set_public_pem(pem.as_bytes(), file).unwrap_err();
            assert_eq!(fault.to_string(), expected);
        }
        let fault = keys.set_public_pem(b"garbage", file).unwrap_err();
        assert!(matches!(fault, KeyFault::NotPublic { .. }));
        let fault = keys.read_public_pem(Path::new("no/such.pem")).unwrap_err();
        assert!(
            fault
                .to_string()
                .starts_with("cannot read the key file no/such.pem: ")
        );
        assert!(matches!(keys.set_secret(b""), Err(KeyFault::EmptySecret)));
        assert!(keys.is_empty());
        keys.set_secret(b"hush").unwrap();
        assert_eq!(
            format!("{keys:?}"),
            "VerificationKeys { public: None, hmac: true }"
        );
    }
}
