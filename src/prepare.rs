//! Everything that can be wrong with the settings' files is found here, before a socket is bound:
//! keys parsed, documents read, secrets loaded or made.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    auth::{IssuerKeys, SignatureAlgorithm, SigningKey, VerificationKeys, load_or_create_secret},
    config::{
        decode::DecodeLimits,
        document::{Document, parse_counted},
        user_config::{DocumentRules, Finding, Severity},
    },
    settings::{
        ClientCertificate, RedisConnection, Settings, StoreSource, TlsListen, UpstreamMode,
    },
    tls::{self, Roots},
};

/// What the shards are made from. Immutable, shared by all.
#[derive(Debug)]
pub struct Prepared {
    /// The settings.
    pub settings: Arc<Settings>,
    /// Token keys.
    pub keys: Arc<VerificationKeys>,
    /// The trusted issuers; their keys are fetched later.
    pub issuers: Arc<IssuerKeys>,
    /// TLS for fetching them.
    pub issuer_tls: Arc<rustls::ClientConfig>,
    /// Secret of session ids.
    pub id_secret: Vec<u8>,
    /// Secret of the principals' fingerprints.
    pub fingerprint_secret: Vec<u8>,
    /// Signs helper tokens, when the helpers are on.
    pub signing: Option<(SigningKey, SignatureAlgorithm)>,
    /// TLS of the listener and to backends, at the start.
    pub tls: Tls,
    /// TLS to Redis.
    pub redis_tls: Option<Arc<rustls::ClientConfig>>,
    /// TLS to the Redis of the connection gateway.
    pub registry_tls: Option<Arc<rustls::ClientConfig>>,
    /// The file store's documents at start.
    pub document: Arc<Document>,
}

impl Prepared {
    /// Loads everything; all faults, one line each.
    pub fn load(settings: Settings) -> Result<Self, Vec<String>> {
        let mut faults = Vec::new();
        let keys = keys(&settings, &mut faults);
        let signing = signing(&settings, &mut faults);
        let tls = TlsFiles::of(&settings)
            .load()
            .map_err(|lines| faults.extend(lines))
            .ok();
        let redis_tls = redis_tls(&settings, &mut faults);
        let registry = settings.connection_gateway.as_ref();
        let registry = registry.and_then(|wanted| wanted.redis.as_ref());
        let registry_tls = registry.and_then(|redis| tls_of(&redis.connection, &mut faults));
        let roots = Roots::SystemAnd(settings.auth.issuer_trust_bundle.as_deref());
        // Issuers are not backends: they are shown no certificate.
        let issuer_tls = keep(tls::client(roots, None), &mut faults).map(tls::for_http);
        let document = match &settings.store.source {
            StoreSource::File(path) => match read_documents(path, document_rules(&settings)) {
                Ok(document) => document,
                Err(lines) => {
                    faults.extend(lines);
                    Document::default()
                }
            },
            StoreSource::Empty | StoreSource::Redis(_) => Document::default(),
        };
        let mut secret = |name: &str| {
            let path = settings.state_dir.join(name);
            fs::create_dir_all(&settings.state_dir)
                .and_then(|()| load_or_create_secret(&path))
                .map_err(|error| faults.push(format!("{}: {error}", path.display())))
                .unwrap_or_default()
        };
        let id_secret = secret("session.key");
        let fingerprint_secret = secret("principal.key");
        match (tls, issuer_tls) {
            (Some(tls), Some(issuer_tls)) if faults.is_empty() => Ok(Self {
                keys: Arc::new(keys),
                issuers: Arc::new(IssuerKeys::unknown(
                    settings.auth.trusted_issuers.clone().into(),
                )),
                issuer_tls,
                settings: Arc::new(settings),
                id_secret,
                fingerprint_secret,
                signing,
                tls,
                redis_tls,
                registry_tls,
                document: Arc::new(document),
            }),
            _ => Err(faults),
        }
    }
}

/// The files of the listener's TLS and of TLS to backends.
#[derive(Debug, Clone, Default)]
pub struct TlsFiles {
    listen: Option<TlsListen>,
    trust_bundle: Option<PathBuf>,
    client: Option<ClientCertificate>,
}

/// What these files make.
#[derive(Debug, Clone)]
pub struct Tls {
    /// TLS of the listener.
    pub server: Option<Arc<rustls::ServerConfig>>,
    /// TLS to backends.
    pub upstream: Arc<rustls::ClientConfig>,
}

impl TlsFiles {
    /// The files these settings name.
    pub fn of(settings: &Settings) -> Self {
        let upstream = &settings.upstream;
        let client = match upstream.mode {
            UpstreamMode::PlainTextOrMtls | UpstreamMode::MtlsOnly => upstream.client.clone(),
            UpstreamMode::TlsOnly | UpstreamMode::PlainTextOrTls => None,
        };
        Self {
            listen: settings.listen.tls.clone(),
            trust_bundle: upstream.trust_bundle.clone(),
            client,
        }
    }

    /// Where they are.
    pub fn paths(&self) -> Vec<PathBuf> {
        let listen = self.listen.iter();
        let listen = listen.flat_map(|files| [&files.certificate, &files.private_key]);
        let client = self.client.iter();
        let client = client.flat_map(|files| [&files.certificate, &files.private_key]);
        let all = listen.chain(client).chain(&self.trust_bundle);
        all.cloned().collect()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.paths().is_empty()
    }

    /// Reads them.
    ///
    /// # Errors
    /// A line for each that cannot be used.
    pub fn load(&self) -> Result<Tls, Vec<String>> {
        let mut faults = Vec::new();
        let server = self.listen.as_ref().and_then(|files| {
            keep(
                tls::server(&files.certificate, &files.private_key),
                &mut faults,
            )
        });
        let roots = Roots::SystemAnd(self.trust_bundle.as_deref());
        let upstream = keep(tls::client(roots, self.client.as_ref()), &mut faults);
        match upstream {
            Some(upstream) if faults.is_empty() => Ok(Tls {
                server,
                upstream: tls::for_http(upstream),
            }),
            _ => Err(faults),
        }
    }
}

fn keep<T>(result: Result<T, tls::TlsFault>, faults: &mut Vec<String>) -> Option<T> {
    result.map_err(|fault| faults.push(fault.0)).ok()
}

fn keys(settings: &Settings, faults: &mut Vec<String>) -> VerificationKeys {
    let mut keys = VerificationKeys::default();
    if let Some(path) = &settings.auth.public_key
        && let Err(fault) = keys.read_public_pem(path)
    {
        faults.push(fault.to_string());
    }
    if let Some(secret) = &settings.auth.secret
        && let Err(fault) = keys.set_secret(secret.bytes())
    {
        faults.push(fault.to_string());
    }
    keys
}

/// The key of the token helper: the private key that was given, else the shared secret.
fn signing(
    settings: &Settings,
    faults: &mut Vec<String>,
) -> Option<(SigningKey, SignatureAlgorithm)> {
    if !settings.access.bootstrap_helpers {
        return None;
    }
    let (key, algorithm) = match (&settings.auth.signing_key, &settings.auth.secret) {
        (Some(path), _) => (
            SigningKey::read_rsa_private_pem(path),
            SignatureAlgorithm::Rs256,
        ),
        (None, Some(secret)) => (
            SigningKey::from_secret(secret.bytes()),
            SignatureAlgorithm::Hs256,
        ),
        (None, None) => return None,
    };
    key.map_err(|fault| faults.push(fault.to_string()))
        .ok()
        .map(|key| (key, algorithm))
}

/// TLS to Redis, in the modes that have it.
pub fn redis_tls(
    settings: &Settings,
    faults: &mut Vec<String>,
) -> Option<Arc<rustls::ClientConfig>> {
    let StoreSource::Redis(redis) = &settings.store.source else {
        return None;
    };
    tls_of(&redis.connection, faults)
}

fn tls_of(
    connection: &RedisConnection,
    faults: &mut Vec<String>,
) -> Option<Arc<rustls::ClientConfig>> {
    match connection {
        RedisConnection::PlainText => None,
        RedisConnection::SystemTls => keep(tls::client(Roots::SystemAnd(None), None), faults),
        RedisConnection::Tls { trust_bundle } => {
            keep(tls::client(Roots::Only(trust_bundle), None), faults)
        }
        RedisConnection::Mtls {
            trust_bundle,
            client,
        } => keep(tls::client(Roots::Only(trust_bundle), Some(client)), faults),
    }
}

/// What the documents of these settings may ask for.
pub fn document_rules(settings: &Settings) -> DocumentRules {
    DocumentRules {
        allow_stdio: settings.upstream.allow_stdio,
        schema: settings.limits.schema,
    }
}

/// Reads a document, or all `*.json` of a folder in the order of their names.
pub fn read_documents(path: &Path, rules: DocumentRules) -> Result<Document, Vec<String>> {
    let (document, _) = read_counted(path, rules);
    // Each names its file and place; warnings can wait until the document is usable.
    document.map_err(|findings| {
        let errors = findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error);
        errors
            .map(|finding| match &*finding.path {
                "" => finding.message.clone(),
                path => format!("{path}: {}", finding.message),
            })
            .collect()
    })
}

/// A file's text. One longer than any document may be is not read to its end.
fn read_bounded(file: &Path) -> std::io::Result<String> {
    let bytes_max = DecodeLimits::default().bytes_max;
    let mut text = Vec::new();
    let longest = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    fs::File::open(file)?
        .take(longest.saturating_add(1))
        .read_to_end(&mut text)?;
    if text.len() > bytes_max {
        let message = format!("more than {bytes_max} bytes");
        return Err(std::io::Error::other(message));
    }
    String::from_utf8(text)
        .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error.utf8_error()))
}

/// The same with all findings, and the number of declared tools that were looked at.
pub fn read_counted(path: &Path, rules: DocumentRules) -> (Result<Document, Vec<Finding>>, usize) {
    let unreadable = |path: &Path, error: std::io::Error| {
        Finding::error("", format!("{}: {error}", path.display()))
    };
    let mut files: Vec<PathBuf> = if path.is_dir() {
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) => return (Err(vec![unreadable(path, error)]), 0),
        };
        entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|file| {
                file.extension()
                    .is_some_and(|extension| extension == "json")
            })
            .collect()
    } else {
        vec![path.to_owned()]
    };
    files.sort();
    let mut documents = Vec::new();
    let mut faults = Vec::new();
    let mut tools_checked = 0;
    for file in files {
        let label = file.display().to_string();
        match read_bounded(&file) {
            Err(error) => faults.push(unreadable(&file, error)),
            Ok(text) => {
                let (document, count) = parse_counted(rules, &text, &label);
                tools_checked += count;
                match document {
                    Ok(document) => documents.push((label, document)),
                    Err(findings) => faults.extend(findings),
                }
            }
        }
    }
    if !faults.is_empty() {
        return (Err(faults), tools_checked);
    }
    let mut document = Document::merge(documents);
    document.resolve_credentials(|name| std::env::var(name).ok());
    (Ok(document), tools_checked)
}
