//! Backends over https that must not be spoken to: refused as unavailable, told why, and never
//! asked in plain text instead (reliability.md 8, promise 22).

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    NameConstraints, date_time_ymd,
};

use crate::{
    NAMES, Trust,
    certificates::{Authority, Identity, VERSIONS},
    support::{Backend, McpClient, Plan, Response, eventually},
    text_of,
    tls::Terminator,
};

/// A refusal that says that the backend could not be used; the second text is what a third failure
/// in a row makes of the first.
fn assert_refused(response: &Response, case: &str) {
    assert_eq!(response.error_code(), -32603, "{case}");
    let message = response.message()["error"]["message"].to_string();
    let is_known = ["no TLS session with the backend", "failed repeatedly"]
        .iter()
        .any(|known| message.contains(known));
    assert!(is_known, "{case}: {message}");
}

/// Below an authority that may sign what its particulars say.
fn below(root: &Authority, adjust: impl FnOnce(&mut CertificateParams)) -> Identity {
    root.below("an intermediate of a test", adjust)
        .issue(&NAMES)
}

/// Who is not to be believed.
fn impostors(root: &Authority) -> Vec<(&'static str, Identity)> {
    let stranger = Authority::new("a stranger");
    let namesake = Authority::new("a root of a test");
    let year = |year| date_time_ymd(year, 1, 1);
    let mut no_intermediate = below(root, |_| {});
    no_intermediate.chain.truncate(1);
    let mut wrong_order = below(root, |_| {});
    wrong_order.chain[1] = stranger.issue(&NAMES).chain[0].clone();
    let mut forged = root.issue(&NAMES);
    let mut bytes = forged.chain[0].to_vec();
    // The signature is what a certificate ends with.
    *bytes.last_mut().unwrap() ^= 1;
    forged.chain[0] = bytes.into();
    vec![
        ("stranger", stranger.issue(&NAMES)),
        ("namesake", namesake.issue(&NAMES)),
        ("self-signed", Identity::self_signed(&NAMES)),
        ("wrong-name", root.issue(&["example.com"])),
        ("other-address", root.issue(&["127.0.0.2"])),
        ("no-name", root.issue(&[])),
        ("sub-name", root.issue(&["*.localhost"])),
        (
            "expired",
            root.issue_with(&NAMES, |leaf| leaf.not_after = year(2020)),
        ),
        (
            "not-yet",
            root.issue_with(&NAMES, |leaf| leaf.not_before = year(4000)),
        ),
        (
            "client-only",
            root.issue_with(&NAMES, |leaf| {
                leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            }),
        ),
        (
            "an-authority",
            root.issue_with(&NAMES, |leaf| {
                leaf.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            }),
        ),
        ("forged", forged),
        ("no-intermediate", no_intermediate),
        ("wrong-chain", wrong_order),
        (
            "below-expired",
            below(root, |params| params.not_after = year(2020)),
        ),
        (
            "below-a-leaf",
            below(root, |params| params.is_ca = IsCa::ExplicitNoCa),
        ),
        (
            "below-another-name",
            below(root, |params| {
                params.name_constraints = Some(NameConstraints {
                    permitted_subtrees: vec![GeneralSubtree::DnsName("example.com".into())],
                    excluded_subtrees: Vec::new(),
                });
            }),
        ),
        (
            "too-far-below",
            root.below("one", |params| {
                params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            })
            .below("two", |_| {})
            .issue(&NAMES),
        ),
    ]
}

#[test]
fn nobody_is_believed_who_cannot_prove_it_and_the_others_are_served() {
    let trust = Trust::new();
    let good = Backend::start("good", &["echo"]);
    let good_front = Terminator::start(
        below(&trust.authority, |_| {}).server(&VERSIONS),
        &good.url(),
    );
    let bad = Backend::start("bad", &["echo"]);
    let impostors = impostors(&trust.authority);
    let fronts: Vec<Terminator> = impostors
        .iter()
        .map(|(_, identity)| Terminator::start(identity.server(&VERSIONS), &bad.url()))
        .collect();
    let mut urls: Vec<(&str, String)> = vec![("good", good_front.url())];
    for ((name, _), front) in impostors.iter().zip(&fronts) {
        urls.push((name, front.url()));
    }
    let urls: Vec<(&str, &str)> = urls.iter().map(|(name, url)| (*name, &**url)).collect();
    let gateway = trust.toward_backends(Plan::of(&urls)).start();

    let mut client = McpClient::open(&gateway);
    assert_eq!(client.tool_names(), ["good-echo"]);
    assert_eq!(
        text_of(&client.call("1", "good-echo", "{}")),
        "good echo {}"
    );
    for ((name, _), front) in impostors.iter().zip(&fronts) {
        assert_refused(&client.call("1", &format!("{name}-echo"), "{}"), name);
        let seen = eventually("the front knows", || {
            let seen = front.seen();
            let is_known = !seen.is_empty() && seen.iter().all(|seen| seen.fault.is_some());
            is_known.then_some(seen)
        });
        for seen in seen {
            // 22: a handshake (RFC 8446 section 5.1).
            assert_eq!((seen.first_byte, seen.version), (Some(22), None), "{name}");
            let fault = seen.fault.unwrap();
            let is_told = fault.starts_with("received fatal alert: ");
            assert!(is_told, "{name}: {fault}");
        }
    }
    assert_eq!(
        bad.seen().len(),
        0,
        "not a byte reached what is behind them"
    );
}

/// A server that speaks no TLS: it keeps what it gets and answers as web servers do.
fn plain_server() -> (u16, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let got = Arc::new(Mutex::new(Vec::new()));
    // Ends with the process: it holds nothing.
    std::thread::spawn({
        let got = got.clone();
        move || {
            for stream in listener.incoming() {
                let Ok(mut stream): Result<TcpStream, _> = stream else {
                    return;
                };
                let mut bytes = vec![0; 4096];
                let count = stream.read(&mut bytes).unwrap_or(0);
                bytes.truncate(count);
                got.lock().unwrap().push(bytes);
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
            }
        }
    });
    (port, got)
}

#[test]
fn a_server_without_tls_is_not_asked_in_plain_text_instead() {
    let trust = Trust::new();
    let (port, got) = plain_server();
    let url = format!("https://localhost:{port}/mcp");
    // `Settings::testing` allows plain text, for other backends.
    let gateway = trust.toward_backends(Plan::of(&[("a", &url)])).start();
    let mut client = McpClient::open(&gateway);
    assert_refused(&client.call("1", "echo", "{}"), "no TLS");
    let got = got.lock().unwrap();
    assert!(!got.is_empty());
    for bytes in &*got {
        assert_eq!(bytes.first(), Some(&22), "a handshake and nothing else");
        assert!(!bytes.windows(4).any(|part| part == b"POST"));
    }
}

#[test]
fn a_server_that_never_answers_the_handshake_costs_the_connect_limit_only() {
    let trust = Trust::new();
    // Never accepted: the kernel takes the connection and keeps the bytes.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "https://localhost:{}/mcp",
        silent.local_addr().unwrap().port()
    );
    let plan = Plan::of(&[("a", &url)]).settings(|settings| {
        settings.timeouts.upstream_connect = std::time::Duration::from_millis(100);
        // Only the limit of the connection can end it within the test's patience.
        settings.timeouts.upstream_first_byte = std::time::Duration::from_secs(3_600);
        settings.timeouts.initialize = std::time::Duration::from_secs(3_600);
    });
    let gateway = trust.toward_backends(plan).start();
    let mut client = McpClient::open(&gateway);
    assert_refused(&client.call("1", "echo", "{}"), "silent");
}

#[test]
fn the_trust_of_one_test_is_no_other_ones() {
    // The same good chain, and a gateway that has not been told of its root.
    let trust = Trust::new();
    let backend = Backend::start("b", &["echo"]);
    let front = Terminator::start(trust.identity.server(&VERSIONS), &backend.url());
    let gateway = Plan::of(&[("a", &front.url())]).start();
    let mut client = McpClient::open(&gateway);
    assert_refused(&client.call("1", "echo", "{}"), "no bundle");
    assert_eq!(backend.seen().len(), 0);
}
