//! Certificates made for one test: authorities, and who they vouch for.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses a part of it"
)]

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion,
    client::ClientConnection,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
    server::WebPkiClientVerifier,
};

/// TLS as the newest and as the oldest version that is spoken.
pub const VERSIONS: [&SupportedProtocolVersion; 2] =
    [&rustls::version::TLS13, &rustls::version::TLS12];

/// Who signs certificates.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// The certificates between this authority and its root, nearest first.
    between: Vec<CertificateDer<'static>>,
}

/// Somebody with a certificate and its key.
pub struct Identity {
    /// Its certificate, then those up to the root, without that.
    pub chain: Vec<CertificateDer<'static>>,
    key: KeyPair,
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn leaf_params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.is_ca = IsCa::ExplicitNoCa;
    let name = "somebody of a test";
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl Authority {
    /// A root.
    pub fn new(name: &str) -> Self {
        Self::with(name, |_| {})
    }

    /// A root with changed particulars.
    pub fn with(name: &str, adjust: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = authority_params(name);
        adjust(&mut params);
        let key = KeyPair::generate().unwrap();
        Self {
            issuer: CertifiedIssuer::self_signed(params, key).unwrap(),
            between: Vec::new(),
        }
    }

    /// An authority below this one, with changed particulars.
    pub fn below(&self, name: &str, adjust: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = authority_params(name);
        adjust(&mut params);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::signed_by(params, key, &self.issuer).unwrap();
        let mut between = vec![issuer.der().clone()];
        between.extend(self.between.iter().cloned());
        Self { issuer, between }
    }

    /// A certificate for these host names and addresses.
    pub fn issue(&self, names: &[&str]) -> Identity {
        self.issue_with(names, |_| {})
    }

    /// The same with changed particulars.
    pub fn issue_with(
        &self,
        names: &[&str],
        adjust: impl FnOnce(&mut CertificateParams),
    ) -> Identity {
        let mut params = leaf_params(names);
        adjust(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let mut chain = vec![certificate.der().clone()];
        chain.extend(self.between.iter().cloned());
        Identity { chain, key }
    }

    /// Its certificate, PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        roots
    }

    /// Settings of a client that trusts this authority, for TLS of these versions.
    pub fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(self.roots())
            .with_no_client_auth()
    }

    /// Settings of a server that is `who` and demands certificates of this authority.
    pub fn demanding_server(
        &self,
        who: &Identity,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ServerConfig {
        let roots = Arc::new(self.roots());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
        ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(who.chain.clone(), who.key())
            .unwrap()
    }
}

impl Identity {
    /// Somebody who vouches for himself only.
    pub fn self_signed(names: &[&str]) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = leaf_params(names).self_signed(&key).unwrap();
        Self {
            chain: vec![certificate.der().clone()],
            key,
        }
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.serialize_der().into())
    }

    /// Its key, PEM (PKCS#8).
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Its chain, PEM.
    pub fn chain_pem(&self) -> String {
        use base64::{Engine, engine::general_purpose::STANDARD};
        let mut pem = String::new();
        for certificate in &self.chain {
            let text = STANDARD.encode(certificate);
            pem.push_str("-----BEGIN CERTIFICATE-----\n");
            for line in text.as_bytes().chunks(64) {
                pem.push_str(std::str::from_utf8(line).unwrap());
                pem.push('\n');
            }
            pem.push_str("-----END CERTIFICATE-----\n");
        }
        pem
    }

    /// Settings of a server that is this one, for TLS of these versions.
    pub fn server(&self, versions: &[&'static SupportedProtocolVersion]) -> ServerConfig {
        ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key())
            .unwrap()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The client side of a TLS session with the server of this name.
pub fn client_session(config: &Arc<ClientConfig>, name: &str) -> ClientConnection {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    ClientConnection::new(config.clone(), name).unwrap()
}
