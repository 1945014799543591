//! Certificates that are replaced while the gateway runs: new connections get the new one, open
//! ones stay, and what cannot be used changes nothing.

use std::sync::Arc;

use rustls::{ClientConfig, pki_types::CertificateDer};
use shardgate::settings::{ClientCertificate, UpstreamMode};

use crate::{
    NAMES, Trust,
    certificates::{Authority, Identity, VERSIONS},
    open_session,
    process::{Folder, Process, until},
    support::{Backend, Gateway, McpClient, Plan, eventually},
    text_of,
    tls::{Terminator, TlsClient},
};

/// The certificate a new connection is shown.
fn shown(gateway: &Gateway, config: &Arc<ClientConfig>) -> CertificateDer<'static> {
    let mut client = open_session(gateway, config);
    let chain = client
        .connection
        .tls()
        .peer_certificates()
        .unwrap()
        .to_vec();
    assert_eq!(client.delete().status, 200);
    chain[0].clone()
}

/// Replaces the listener's certificate and key, each by a rename.
fn replace(trust: &Trust, identity: &Identity) {
    for (name, pem) in [
        ("server.pem", identity.chain_pem()),
        ("server.key", identity.key_pem()),
    ] {
        let next = trust.file("next", &pem);
        std::fs::rename(next, trust.file_path(name)).unwrap();
    }
}

#[test]
fn a_new_certificate_is_shown_to_new_connections_and_open_ones_stay() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let gateway = trust.listening(Plan::one(&backend)).start();
    let config = trust.client();
    let mut open = open_session(&gateway, &config);
    assert_eq!(shown(&gateway, &config), trust.identity.chain[0]);

    let next = trust.authority.issue(&NAMES);
    replace(&trust, &next);
    eventually("the new certificate is shown on all shards", || {
        let is_new = |_| shown(&gateway, &config) == next.chain[0];
        (0..8).all(is_new).then_some(())
    });
    assert_eq!(text_of(&open.call("1", "echo", "[1]")), "b echo [1]");
}

#[test]
fn a_certificate_that_cannot_be_used_changes_nothing_and_sighup_reads_again() {
    let trust = Trust::new();
    let home = Folder::new();
    let document = home.write("users.json", r#"{"virtual_hosts":{}}"#);
    let certificate = trust.file("server.pem", &trust.identity.chain_pem());
    let key = trust.file("server.key", &trust.identity.key_pem());
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let process = Process::serve(
        &home,
        &[
            &["--config-file", &document, "--allow-anonymous"][..],
            &["--tls-address", "127.0.0.1:0"],
            &[
                "--server-certificate",
                certificate,
                "--server-private-key",
                key,
            ],
        ]
        .concat(),
    );
    let line = process.printed("  listening on https://");
    let address = line
        .rsplit("https://")
        .next()
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let shown = || {
        let mut connection = TlsClient::connect(&trust.client(), address);
        connection.flush();
        connection.tls().peer_certificates().unwrap()[0]
            .clone()
            .into_owned()
    };
    assert_eq!(shown(), trust.identity.chain[0]);

    trust.file("server.pem", "not a certificate");
    let line = process.logged("certificates stay as they were");
    assert!(line.contains("server.pem"), "{line}");
    assert_eq!(shown(), trust.identity.chain[0]);

    // Somebody else's key is as bad.
    let next = trust.authority.issue(&NAMES);
    trust.file("server.pem", &next.chain_pem());
    until("both faults are logged", || {
        let count = process
            .stderr()
            .matches("certificates stay as they were")
            .count();
        (count >= 2).then_some(())
    });
    assert_eq!(shown(), trust.identity.chain[0]);

    trust.file("server.key", &next.key_pem());
    until("the new certificate is shown", || {
        (shown() == next.chain[0]).then_some(())
    });
    let count = || {
        process
            .stderr()
            .matches("certificates were read again")
            .count()
    };
    let before = count();
    process.signal("HUP");
    until("it is read again", || (count() > before).then_some(()));
    process.logged("user configurations were read again");
}

#[test]
fn the_certificate_shown_to_backends_is_replaced_too() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let clients = Authority::new("a root of clients");
    let demanding = clients.demanding_server(&trust.identity, &VERSIONS);
    let front = Terminator::start(demanding, &backend.url());
    let client = clients.issue(&NAMES);
    let files = ClientCertificate {
        certificate: trust.file("client.pem", &client.chain_pem()),
        private_key: trust.file("client.key", &client.key_pem()),
    };
    let gateway = trust
        .toward_backends(Plan::of(&[("a", &front.url())]))
        .settings(|settings| {
            settings.upstream.mode = UpstreamMode::MtlsOnly;
            settings.upstream.client = Some(files);
        })
        .start();
    let mut session = McpClient::open(&gateway);
    assert_eq!(text_of(&session.call("1", "echo", "{}")), "b echo {}");
    assert!(
        front
            .seen()
            .iter()
            .all(|seen| seen.client_chain_length == 1)
    );

    // One with another authority in between is told from it.
    let next = clients.below("a branch", |_| {}).issue(&NAMES);
    trust.file("client.key", &next.key_pem());
    trust.file("client.pem", &next.chain_pem());
    eventually("the new one is shown", || {
        backend.cut_connections();
        let answer = session.call("2", "echo", "{}").message();
        let is_new = front
            .seen()
            .iter()
            .any(|seen| seen.client_chain_length == 2);
        (is_new && answer["result"].is_object()).then_some(())
    });
}

#[test]
fn a_backend_is_asked_for_http_1_1_by_name() {
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let fronts = [&b"http/1.1"[..], b"h2"].map(|protocol| {
        let mut config = trust.identity.server(&VERSIONS);
        config.alpn_protocols = vec![protocol.to_vec()];
        Terminator::start(config, &backend.url())
    });
    let plan = Plan::of(&[("a", &fronts[0].url()), ("b", &fronts[1].url())]);
    let gateway = trust.toward_backends(plan).start();
    let mut session = McpClient::open(&gateway);
    assert_eq!(session.tool_names(), ["a-echo"]);
    let is_told = |seen: &crate::tls::Seen| seen.fault.is_some();
    assert!(
        fronts[1].seen().iter().any(is_told),
        "{:?}",
        fronts[1].seen()
    );
}
