//! What belongs to one backend stays with it: credentials, sessions, request ids, cursors.

use std::{
    cell::RefCell, collections::HashSet, fs, net::SocketAddr, rc::Rc, sync::Arc, time::Duration,
};

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::{
    support::{self, Ask, Backend, Gate, HOST, McpClient, Plan, eventually},
    text_of,
};

fn write_config(gateway: &support::Gateway, backends: Value) {
    let document = json!({"virtual_hosts": {HOST: {"backends": backends}}});
    fs::write(gateway.config_path(), document.to_string()).unwrap();
}

fn with_a_secret(url: &str) -> Value {
    json!({"name": "a", "url": url, "add_headers": {"x-secret": "of a"}})
}

/// A call at `b` whose backend session is lost while the configuration changes.
struct Reconfigured {
    a: Backend,
    b: Backend,
    gateway: support::Gateway,
    client: McpClient,
    change_is_over: Arc<Gate>,
}

impl Reconfigured {
    fn start() -> Self {
        let change_is_over = Arc::new(Gate::default());
        let a = Backend::start("a", &["two"]);
        let b = Backend::scripted("b", &["one"], {
            let change_is_over = change_is_over.clone();
            move |asked, _| {
                if asked.tool().is_some() && !change_is_over.is_open() {
                    change_is_over.wait();
                }
                None
            }
        });
        let gateway = Plan::of(&[("b", &b.url())]).shards(1).start();
        let mut client = McpClient::open(&gateway);
        client.send_call("1", "one", "{}");
        change_is_over.await_arrivals(1);
        Self {
            a,
            b,
            gateway,
            client,
            change_is_over,
        }
    }

    fn change(&self, backends: Value, tools: &[&str]) {
        write_config(&self.gateway, backends);
        let mut other = self.client.again();
        eventually("the new configuration", || {
            (other.tool_names() == tools).then_some(())
        });
    }

    fn response(&mut self) -> support::Response {
        self.b.lose_sessions();
        self.change_is_over.open();
        self.client.connection.read_response()
    }
}

/// The place of a backend in its virtual host must not decide who gets whose credentials.
#[test]
fn a_call_that_meets_a_new_configuration_stays_with_its_backend() {
    let mut case = Reconfigured::start();
    let b = json!({"name": "b", "url": case.b.url()});
    let both = json!({"a": with_a_secret(&case.a.url()), "b": b});
    case.change(both, &["a-two", "b-one"]);
    assert_eq!(text_of(&case.response()), "b one {}");
    for asked in case.b.seen() {
        assert_eq!(asked.header("x-secret"), None);
        let session = asked.header("mcp-session-id").unwrap_or("b-session-0");
        assert!(session.starts_with("b-session-"), "{session}");
    }
    assert!(case.a.seen_rpc("tools/call").is_empty());
}

#[test]
fn a_backend_that_was_taken_away_is_not_opened_again() {
    let mut case = Reconfigured::start();
    case.change(json!({"a": with_a_secret(&case.a.url())}), &["two"]);
    assert_eq!(case.response().error_code(), -32603);
    assert_eq!(case.b.seen_rpc("initialize").len(), 1);
    assert!(case.a.seen_rpc("tools/call").is_empty());
}

#[test]
fn a_session_that_cannot_be_used_is_not_left_behind() {
    for fault in ["revision", "initialized"] {
        let backend = Backend::scripted("a", &[], move |asked, wire| {
            if fault == "revision" && asked.is("initialize") {
                let id = asked.id();
                let headers = "content-type: application/json\r\nmcp-session-id: left\r\n";
                let document = format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"2099-01-01","capabilities":{{}}}}}}"#
                );
                wire.answer(200, headers, document);
                return Some(());
            }
            let is_refused = fault == "initialized" && asked.is("notifications/initialized");
            is_refused.then(|| wire.answer(500, "", ""))
        });
        let gateway = Plan::one(&backend).start();
        McpClient::open(&gateway);
        let session = if fault == "revision" {
            "left"
        } else {
            "a-session-1"
        };
        eventually("DELETE", || {
            backend.seen().into_iter().find(|asked| {
                asked.method == "DELETE" && asked.header("mcp-session-id") == Some(session)
            })
        });
    }
}

#[test]
fn cursors_that_go_round_end_the_list() {
    let backend = Backend::scripted("a", &[], |asked, wire| {
        if !asked.is("tools/list") {
            return None;
        }
        let (name, next) = match asked.json()["params"]["cursor"].as_str() {
            None => ("first", "1"),
            Some("1") => ("second", "2"),
            Some("2") => ("third", "1"),
            Some(other) => panic!("a cursor nobody gave out: {other}"),
        };
        let tool = format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
        let page = format!(r#"{{"tools":[{tool}],"nextCursor":"{next}"}}"#);
        wire.result(asked, &page);
        Some(())
    });
    let gateway = Plan::one(&backend).start();
    let mut client = McpClient::open(&gateway);
    assert_eq!(client.tool_names(), ["first", "second", "third"]);
    assert_eq!(gateway.metric("shardgate_lists_cyclic_total"), 1);
}

/// Connections to a backend are shared, so its sessions must not share request ids.
#[test]
fn no_two_requests_to_a_backend_have_the_same_id() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).shards(1).start();
    for _ in 0..3 {
        let mut client = McpClient::open(&gateway);
        assert_eq!(text_of(&client.call("1", "one", "{}")), "a one {}");
    }
    let seen = backend.seen();
    let ids: Vec<String> = seen
        .iter()
        .map(support::Asked::id)
        .filter(|id| id != "null")
        .collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
}

/// A thousand sessions that open at once must not fill the queue of questions.
#[test]
fn a_name_is_asked_for_once_however_many_wait() {
    use shardgate::upstream::resolve::{Answer, Resolver};
    let plan = shards::Plan {
        shards: 1,
        cpus: None,
        driver: shards::DriverChoice::Epoll,
        busy_poll: Duration::ZERO,
        name: "resolve",
    };
    let started = shards::start(&plan, Vec::new(), |_: shards::Shard<(), ()>| async {
        let asked: Rc<RefCell<Vec<u64>>> = Rc::default();
        let resolver = Rc::new(Resolver::new(0, {
            let asked = asked.clone();
            Box::new(move |question| {
                asked.borrow_mut().push(question.ticket);
                true
            })
        }));
        let caches: Vec<RefCell<(Vec<_>, u64)>> = (0..100).map(|_| RefCell::default()).collect();
        let all = caches
            .iter()
            .map(|cache| resolver.resolve("name.example", 80, cache));
        let answer = async {
            let addresses = vec![SocketAddr::from(([127, 0, 0, 1], 80))];
            let ticket = asked.borrow()[0];
            resolver.answered(Answer { ticket, addresses });
        };
        let (found, ()) = futures_util::future::join(join_all(all), answer).await;
        assert!(found.iter().all(|addresses| addresses.len() == 1));
        assert_eq!(asked.borrow().len(), 1);
        let other = RefCell::default();
        let other = resolver.resolve("name.example", 81, &other);
        drop(futures_util::FutureExt::now_or_never(other));
        assert_eq!(asked.borrow().len(), 2, "another port is another question");
    });
    assert_eq!(started.unwrap().join(), 0);
}

/// The stateless revision has one method; no session is looked at.
#[test]
fn the_stateless_revision_knows_no_get_and_no_delete() {
    let backend = Backend::start("a", &[]);
    let gateway = Plan::one(&backend).start();
    let client = McpClient::open(&gateway);
    for method in ["GET", "DELETE"] {
        let ask: Ask = client.bare(method);
        let ask = ask.with("mcp-protocol-version", "2026-07-28");
        let response = gateway.connect().ask(&ask);
        assert_eq!(response.status, 405);
        assert_eq!(response.header("allow"), Some("POST"));
    }
}
