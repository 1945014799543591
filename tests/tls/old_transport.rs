//! HTTP+SSE backends over TLS, which the bridge speaks: by the same settings as any other backend.

use serde_json::json;
use shardgate::settings::{ClientCertificate, UpstreamMode};

use crate::{
    NAMES, Trust,
    certificates::{Authority, VERSIONS},
    old::{Old, USUAL},
    support::{HOST, McpClient, Plan},
    text_of,
    tls::Terminator,
};

fn plan(terminator: &Terminator) -> Plan {
    let url = format!("https://localhost:{}/sse?key=1", terminator.port());
    let backend = json!({"url": url, "transport": "SSE"});
    Plan::document(json!({"virtual_hosts": {HOST: {"backends": {"old": backend}}}}))
}

fn echo(client: &mut McpClient) -> String {
    text_of(&client.call("1", "echo", r#"{"text":"hi"}"#))
}

#[test]
fn a_backend_of_a_trusted_authority_is_served() {
    for version in VERSIONS {
        let trust = Trust::new();
        let old = Old::start(USUAL);
        let backend_url = old.backend.url();
        let terminator = Terminator::start(trust.identity.server(&[version]), &backend_url);
        let gateway = trust
            .toward_backends(plan(&terminator))
            .settings(|settings| settings.upstream.mode = UpstreamMode::TlsOnly)
            .start();
        let mut client = McpClient::open(&gateway);
        assert_eq!(client.tool_names(), ["echo"]);
        assert_eq!(echo(&mut client), "hi");
        let seen = terminator.seen();
        assert!(seen.len() >= 2, "a stream and messages: {seen:?}");
        for seen in seen {
            assert_eq!(seen.server_name.as_deref(), Some("localhost"));
            assert_eq!(seen.client_chain_length, 0, "no certificate to show");
        }
    }
}

#[test]
fn a_backend_of_an_unknown_authority_is_not_spoken_to() {
    let trust = Trust::new();
    let stranger = Authority::new("a stranger").issue(&NAMES);
    let old = Old::start(USUAL);
    let terminator = Terminator::start(stranger.server(&VERSIONS), &old.backend.url());
    let gateway = trust.toward_backends(plan(&terminator)).start();
    let mut client = McpClient::open(&gateway);
    assert_eq!(client.tool_names(), Vec::<String>::new());
    assert!(!terminator.seen().is_empty() && old.backend.seen().is_empty());
}

#[test]
fn the_client_certificate_is_shown_in_the_modes_that_have_one() {
    let trust = Trust::new();
    let clients = Authority::new("a root of clients");
    let identity = clients.issue(&["client"]);
    let old = Old::start(USUAL);
    let demanding = clients.demanding_server(&trust.identity, &VERSIONS);
    let terminator = Terminator::start(demanding, &old.backend.url());
    let certificate = ClientCertificate {
        certificate: trust.file("client.pem", &identity.chain_pem()),
        private_key: trust.file("client.key", &identity.key_pem()),
    };
    let gateway = trust
        .toward_backends(plan(&terminator))
        .settings(move |settings| {
            settings.upstream.mode = UpstreamMode::MtlsOnly;
            settings.upstream.client = Some(certificate);
        })
        .start();
    let mut client = McpClient::open(&gateway);
    assert_eq!(echo(&mut client), "hi");
    assert!(
        terminator
            .seen()
            .iter()
            .all(|seen| seen.client_chain_length > 0)
    );
}
