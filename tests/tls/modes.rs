//! The connection modes of the backend side (contextforge.md 1.3): which URLs are called, and who
//! sees a client certificate.

use shardgate::settings::{ClientCertificate, UpstreamMode};

use crate::{
    NAMES, Trust,
    certificates::{Authority, Identity, VERSIONS},
    support::{Backend, Gateway, McpClient, Plan},
    text_of,
    tls::Terminator,
};

/// A backend each in plain text, in TLS, and in TLS for known clients only.
struct Stage {
    trust: Trust,
    /// Who vouches for clients.
    clients: Authority,
    plain: Backend,
    open: Backend,
    open_front: Terminator,
    closed: Backend,
    closed_front: Terminator,
}

impl Stage {
    fn new() -> Self {
        Self::speaking(&VERSIONS)
    }

    fn speaking(versions: &[&'static rustls::SupportedProtocolVersion]) -> Self {
        let trust = Trust::new();
        let clients = Authority::new("a root of clients");
        let [plain, open, closed] =
            ["plain", "open", "closed"].map(|name| Backend::start(name, &["echo"]));
        let open_front = Terminator::start(trust.identity.server(versions), &open.url());
        let demanding = clients.demanding_server(&trust.identity, versions);
        let closed_front = Terminator::start(demanding, &closed.url());
        Self {
            trust,
            clients,
            plain,
            open,
            open_front,
            closed,
            closed_front,
        }
    }

    fn gateway(&self, mode: UpstreamMode, client: Option<&Identity>) -> Gateway {
        let plan = Plan::of(&[
            ("plain", &self.plain.url()),
            ("open", &self.open_front.url()),
            ("closed", &self.closed_front.url()),
        ]);
        let client = client.map(|client| ClientCertificate {
            certificate: self.trust.file("client.pem", &client.chain_pem()),
            private_key: self.trust.file("client.key", &client.key_pem()),
        });
        self.trust
            .toward_backends(plan)
            .settings(move |settings| {
                settings.upstream.mode = mode;
                settings.upstream.client = client;
            })
            .start()
    }

    /// Asserts that these backends are served and the others are failures at call time.
    fn assert_served(&self, gateway: &Gateway, served: &[&str]) {
        let mut client = McpClient::open(gateway);
        let names: Vec<String> = served.iter().map(|name| format!("{name}-echo")).collect();
        let mut listed = client.tool_names();
        listed.sort();
        assert_eq!(listed, names);
        for name in ["closed", "open", "plain"] {
            let response = client.call("1", &format!("{name}-echo"), "{}");
            if served.contains(&name) {
                assert_eq!(text_of(&response), format!("{name} echo {{}}"));
            } else {
                assert_eq!(response.error_code(), -32603, "{name}");
            }
        }
    }
}

#[test]
fn tls_only_refuses_plain_text_when_it_is_asked_for() {
    let stage = Stage::new();
    let gateway = stage.gateway(UpstreamMode::TlsOnly, None);
    stage.assert_served(&gateway, &["open"]);
    let mut client = McpClient::open(&gateway);
    let message = client.call("1", "plain-echo", "{}").message();
    assert_eq!(
        message["error"]["message"],
        "Routing problem... plain-text backends are not allowed by the upstream connection mode"
    );
    let unavailable = &client.list().result()["_meta"]["shardgate/unavailable"];
    assert_eq!(unavailable, &serde_json::json!(["closed", "plain"]));
    assert_eq!(
        stage.plain.connection_count(),
        0,
        "it is not even connected to"
    );
}

#[test]
fn plain_text_or_tls_calls_both_and_shows_no_certificate() {
    let stage = Stage::new();
    // There, but not in a mode that shows it.
    let client = stage.clients.issue(&["a client"]);
    let gateway = stage.gateway(UpstreamMode::PlainTextOrTls, Some(&client));
    stage.assert_served(&gateway, &["open", "plain"]);
    assert_eq!(stage.closed.seen().len(), 0);
}

#[test]
fn plain_text_or_m_tls_calls_all_and_shows_its_certificate_to_who_asks() {
    for version in VERSIONS {
        let stage = Stage::speaking(&[version]);
        let client = stage.clients.below("a team's", |_| {}).issue(&["a client"]);
        let gateway = stage.gateway(UpstreamMode::PlainTextOrMtls, Some(&client));
        stage.assert_served(&gateway, &["closed", "open", "plain"]);
        for seen in stage.closed_front.seen() {
            assert_eq!(seen.client_chain_length, 2, "the whole chain");
            assert_eq!(seen.version, Some(version.version));
        }
        for seen in stage.open_front.seen() {
            assert_eq!(seen.client_chain_length, 0, "it did not ask");
        }
    }
}

#[test]
fn m_tls_only_refuses_plain_text() {
    let stage = Stage::new();
    let client = stage.clients.issue(&["a client"]);
    let gateway = stage.gateway(UpstreamMode::MtlsOnly, Some(&client));
    stage.assert_served(&gateway, &["closed", "open"]);
    assert_eq!(stage.plain.connection_count(), 0);
    assert!(stage.open.session_count() > 0);
}

#[test]
fn a_certificate_of_the_wrong_authority_opens_nothing() {
    for version in VERSIONS {
        let stage = Stage::speaking(&[version]);
        let stranger = Authority::new("a stranger").issue(&NAMES);
        let gateway = stage.gateway(UpstreamMode::MtlsOnly, Some(&stranger));
        stage.assert_served(&gateway, &["open"]);
        assert_eq!(stage.closed.seen().len(), 0);
    }
}

#[test]
fn files_that_are_no_certificates_are_named_before_anything_starts() {
    let trust = Trust::new();
    let stranger = Authority::new("a stranger").issue(&NAMES);
    let (certificate, key) = (trust.identity.chain_pem(), trust.identity.key_pem());
    // Which text is the certificate, which the key; and which file is at fault.
    let cases = [
        ("", &*key, "client.pem"),
        ("no certificate", &*key, "client.pem"),
        (&*key, &*key, "client.pem"),
        (&*certificate, "", "client.key"),
        (&*certificate, &*certificate, "client.key"),
        (&*certificate, &*stranger.key_pem(), "client.pem"),
    ];
    for (certificate, key, at_fault) in cases {
        let mut settings = shardgate::settings::Settings::testing();
        settings.state_dir = trust.folder.path().join("state");
        settings.upstream.mode = UpstreamMode::MtlsOnly;
        settings.upstream.client = Some(ClientCertificate {
            certificate: trust.file("client.pem", certificate),
            private_key: trust.file("client.key", key),
        });
        let faults = shardgate::gateway::Gateway::start(settings).err().unwrap();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].contains(at_fault), "{faults:?}");
        assert!(!faults[0].contains("PRIVATE"), "no secrets: {faults:?}");
    }
}
