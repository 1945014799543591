//! TLS settings from PEM files: the listener's, the backends', Redis's. One provider: ring.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::settings::ClientCertificate;

/// Why a TLS setting cannot be used: one line for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFault(pub String);

fn fault(file: &Path, what: impl std::fmt::Display) -> TlsFault {
    TlsFault(format!("{}: {what}", file.display()))
}

/// The listener's settings. ALPN offers HTTP/1.1 only (engine.md D10).
pub fn server(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsFault> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| fault(certificate, error))?
        .with_no_client_auth()
        .with_single_cert(certificates(certificate)?, private_key(key)?)
        .map_err(|error| fault(certificate, error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Which certificates a client trusts.
#[derive(Debug, Clone, Copy)]
pub enum Roots<'a> {
    /// The system's, and those of the bundle.
    SystemAnd(Option<&'a Path>),
    /// Those of the bundle only.
    Only(&'a Path),
}

/// A client's settings.
pub fn client(
    roots: Roots<'_>,
    identity: Option<&ClientCertificate>,
) -> Result<Arc<ClientConfig>, TlsFault> {
    let mut store = RootCertStore::empty();
    let bundle = match roots {
        Roots::SystemAnd(bundle) => {
            // Some systems keep certificates that do not parse; the others still count.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            bundle
        }
        Roots::Only(bundle) => Some(bundle),
    };
    if let Some(bundle) = bundle {
        for certificate in certificates(bundle)? {
            store
                .add(certificate)
                .map_err(|error| fault(bundle, error))?;
        }
    }
    let label = Path::new("TLS");
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| fault(label, error))?
        .with_root_certificates(store);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder
            .with_client_auth_cert(
                certificates(&identity.certificate)?,
                private_key(&identity.private_key)?,
            )
            .map_err(|error| fault(&identity.certificate, error))?,
    };
    Ok(Arc::new(config))
}

/// The same client, which asks for HTTP/1.1 (RFC 7301).
pub fn for_http(config: Arc<ClientConfig>) -> Arc<ClientConfig> {
    let mut config = Arc::unwrap_or_clone(config);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let all = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| fault(file, error))?;
    if all.is_empty() {
        Err(fault(file, "no certificates provided"))
    } else {
        Ok(all)
    }
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsFault> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| fault(file, error))
}
