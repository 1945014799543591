//! The bridge's own port: who may speak to it, and which session is whose.

use std::sync::Arc;

use serde_json::{Value, json};
use shardgate::{
    bridge::{Bridge, SECRET_HEADER},
    config::{document::parse_document_under, user_config::DocumentRules},
    settings::Settings,
};

use crate::{
    child,
    stdio::until_gone,
    support::{Ask, Connection, Response, call_body, initialize_body},
};

/// A bridge without a gateway, and the paths of a document's servers in the order of their keys.
pub(crate) struct Alone {
    bridge: Arc<Bridge>,
    thread: Option<std::thread::JoinHandle<()>>,
    pub(crate) paths: Vec<String>,
}

impl Alone {
    pub(crate) fn start(document: &Value, adjust: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::testing();
        adjust(&mut settings);
        let roots = rustls::RootCertStore::empty();
        let tls = rustls::ClientConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
        let (bridge, thread) = Bridge::start(&settings, Arc::new(tls)).unwrap();
        let rules = DocumentRules {
            allow_stdio: true,
            ..DocumentRules::default()
        };
        let document = parse_document_under(rules, &document.to_string(), "f").unwrap();
        bridge.register(&document);
        let servers = document.stdio_servers();
        Self {
            bridge,
            thread: Some(thread),
            paths: servers
                .iter()
                .map(|server| format!("/stdio/{}", server.id))
                .collect(),
        }
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.bridge.door().unwrap().address)
    }

    /// A request that knows the secret.
    pub(crate) fn ask(&self, method: &str, path: &str, session: Option<&str>) -> Ask {
        let mut ask = Ask::new(method, path);
        ask = ask.header(SECRET_HEADER, &self.bridge.door().unwrap().secret);
        match session {
            Some(session) => ask.header("mcp-session-id", session),
            None => ask,
        }
    }

    pub(crate) fn post(&self, path: &str, session: Option<&str>, body: &str) -> Response {
        let mut ask = self.ask("POST", path, session);
        ask.body = Some(body.into());
        self.connect().ask(&ask)
    }

    /// Opens a session: its id.
    pub(crate) fn open(&self, path: &str) -> String {
        let response = self.post(path, None, &initialize_body("0", "2025-11-25"));
        assert_eq!(response.status, 200, "{}", response.text());
        response.header("mcp-session-id").unwrap().to_owned()
    }

    pub(crate) fn pid(&self, path: &str, session: &str) -> u32 {
        let response = self.post(path, Some(session), &call_body("1", "pid", "{}"));
        crate::stdio::text(&response).parse().unwrap()
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.bridge.stop();
        let _ = self.thread.take().unwrap().join();
    }
}

fn two() -> Alone {
    Alone::start(
        &child::document(&[("a", json!({})), ("b", json!({}))]),
        |_| {},
    )
}

#[test]
fn without_the_secret_nothing_is_answered() {
    let alone = two();
    let path = &alone.paths[0];
    let mut ask = Ask::post(path, initialize_body("0", "2025-11-25"));
    let secret = alone.ask("POST", path, None).headers[1].1.clone();
    assert_eq!(secret.len(), 64);
    let wrong = [None, Some(""), Some("x"), Some(&secret[1..])];
    for wrong in wrong {
        if let Some(wrong) = wrong {
            ask = ask.with(SECRET_HEADER, wrong);
        }
        assert_eq!(alone.connect().ask(&ask).status, 403, "{wrong:?}");
    }
    let mut flipped = secret.clone().into_bytes();
    flipped[0] ^= 1;
    ask = ask.with(SECRET_HEADER, std::str::from_utf8(&flipped).unwrap());
    assert_eq!(alone.connect().ask(&ask).status, 403);
    ask = ask.with(SECRET_HEADER, &secret);
    assert_eq!(alone.connect().ask(&ask).status, 200);
}

#[test]
fn what_is_not_there_is_not_found() {
    let alone = two();
    let path = &alone.paths[0];
    let initialize = initialize_body("0", "2025-11-25");
    assert_eq!(alone.post("/stdio/none", None, &initialize).status, 404);
    assert_eq!(alone.post("/", None, &initialize).status, 404);
    assert_eq!(
        alone.post(path, None, &call_body("1", "pid", "{}")).status,
        400
    );
    assert_eq!(alone.post(path, None, "{").status, 400);
    let response = alone.post(path, Some("none"), &call_body("1", "pid", "{}"));
    assert_eq!((response.status, response.error_code()), (404, -32001));
    for method in ["GET", "DELETE"] {
        let ask = alone.ask(method, path, Some("none"));
        assert_eq!(alone.connect().ask(&ask).status, 404, "{method}");
        let ask = alone.ask(method, path, None);
        assert_eq!(alone.connect().ask(&ask).status, 400, "{method}");
    }
    let ask = alone.ask("PUT", path, None);
    assert_eq!(alone.connect().ask(&ask).status, 405);
}

#[test]
fn a_session_is_good_for_its_own_server_only() {
    let alone = two();
    let [a, b] = &alone.paths[..] else {
        panic!("two servers");
    };
    let session = alone.open(a);
    let pid = alone.pid(a, &session);
    assert_eq!(
        alone
            .post(b, Some(&session), &call_body("1", "pid", "{}"))
            .status,
        404
    );
    let ask = alone.ask("DELETE", b, Some(&session));
    assert_eq!(alone.connect().ask(&ask).status, 404);
    assert_eq!(alone.pid(a, &session), pid);
    let ask = alone.ask("DELETE", a, Some(&session));
    assert_eq!(alone.connect().ask(&ask).status, 200);
    until_gone(pid);
    assert_eq!(alone.connect().ask(&ask).status, 404);
}

#[test]
fn an_id_in_use_is_refused_and_the_call_it_is_of_goes_on() {
    let alone = two();
    let path = &alone.paths[0];
    let session = alone.open(path);
    let mut waiting = alone.connect();
    let mut ask = alone.ask("POST", path, Some(&session));
    ask.body = Some(call_body("5", "hold", "{}").into());
    waiting.send(ask.bytes());
    // Whichever comes second is refused; a call that is answered has freed its id.
    crate::support::eventually("the id is in use", || {
        let response = alone.post(path, Some(&session), &call_body("5", "pid", "{}"));
        (response.status == 400).then_some(())
    });
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#;
    assert_eq!(alone.post(path, Some(&session), cancel).status, 202);
    assert_eq!(crate::stdio::text(&waiting.read_response()), "cancelled");
}

#[test]
fn the_newest_stream_has_the_messages() {
    let alone = two();
    let path = &alone.paths[0];
    let session = alone.open(path);
    let listen = || {
        let mut connection = alone.connect();
        connection.send(alone.ask("GET", path, Some(&session)).bytes());
        let head = connection.read_head();
        assert_eq!(head.status, 200);
        crate::support::EventStream::new(connection, head)
    };
    let mut first = listen();
    assert_eq!(first.next_block().as_deref(), Some(": ok"));
    let mut second = listen();
    assert_eq!(second.next_block().as_deref(), Some(": ok"));
    assert_eq!(first.next_block(), None, "it ended");
    let response = alone.post(path, Some(&session), &call_body("1", "announce", "{}"));
    assert_eq!(response.status, 200);
    assert!(second.next_event().unwrap().data.contains("heard"));
    assert!(second.next_event().unwrap().data.contains("list_changed"));
    // What the server asks outside calls goes there, and the answer comes back.
    let mut waiting = alone.connect();
    let mut ask = alone.ask("POST", path, Some(&session));
    ask.body = Some(call_body("2", "sample", "{}").into());
    waiting.send(ask.bytes());
    let asked: Value = serde_json::from_str(&second.next_event().unwrap().data).unwrap();
    assert_eq!(
        (&asked["id"], &asked["method"]),
        (&json!(0), &json!("sampling/createMessage"))
    );
    let answer = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-7,"message":"no"}}"#;
    assert_eq!(alone.post(path, Some(&session), answer).status, 202);
    assert_eq!(crate::stdio::text(&waiting.read_response()), "-7");
}
