//! How backends and shards are, as an operator sees it: metrics, pages, and a command.

use std::net::SocketAddr;

use serde_json::Value;
use shardgate::settings::StoreSource;

use crate::{
    process::{Finished, Folder, run},
    support::{Ask, Backend, Connection, Gateway, McpClient, Plan, Refusing, eventually},
    text_of,
};

fn admin(gateway: &Gateway) -> SocketAddr {
    gateway.admin_address.unwrap()
}

fn address_of(nobody: &Refusing) -> SocketAddr {
    let url = nobody.url();
    let authority = url.strip_prefix("http://").unwrap();
    authority.strip_suffix("/mcp").unwrap().parse().unwrap()
}

fn page(gateway: &Gateway, path: &str) -> Value {
    let answer = Connection::open(admin(gateway)).ask(&Ask::new("GET", path));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.json()
}

/// What `shardgate status` says of a listener.
fn status(address: SocketAddr, more: &[&str]) -> Finished {
    let address = address.to_string();
    let arguments = [&["status", "--admin", &address], more].concat();
    run(&Folder::new(), &arguments, "")
}

fn backend_of(document: &Value, port: u16) -> Value {
    let name = format!("http://127.0.0.1:{port}");
    let all = document["backends"].as_array().unwrap();
    let found = all.iter().find(|backend| backend["name"] == *name);
    found.unwrap_or_else(|| panic!("{document}")).clone()
}

#[test]
fn a_backend_that_is_used_is_told_of() {
    let a = Backend::start("a", &["one"]);
    let gateway = Plan::one(&a).start();
    assert_eq!(
        page(&gateway, "/backends")["backends"],
        Value::Array(vec![])
    );
    let mut client = McpClient::open(&gateway);
    assert_eq!(text_of(&client.call("1", "one", "{}")), "a one {}");
    let told = backend_of(&page(&gateway, "/backends"), a.address().port());
    assert_eq!(told["breaker"], "closed");
    assert_eq!(
        (&told["in_flight"], &told["failures"]),
        (&0.into(), &0.into())
    );
    assert_eq!(told["last_fault"], Value::Null);
    assert!(told["opened"].as_u64() >= Some(1) && told["idle"].as_u64() >= Some(1));

    let seen = status(admin(&gateway), &[]);
    assert_eq!(seen.code, 0, "{seen:?}");
    assert!(
        seen.stdout.contains("ready, 2 of 2 shards answer"),
        "{seen:?}"
    );
    assert!(seen.stdout.contains(&a.address().to_string()), "{seen:?}");
    let seen = status(admin(&gateway), &["--json"]);
    let document: Value = serde_json::from_str(&seen.stdout).unwrap();
    assert_eq!((seen.code, &document["is_healthy"]), (0, &true.into()));
    let sessions = document["shards"].as_array().unwrap().iter();
    assert_eq!(
        sessions
            .map(|shard| shard["sessions"].as_u64().unwrap())
            .sum::<u64>(),
        1
    );
}

#[test]
fn a_backend_that_fails_makes_the_gateway_degraded_until_it_is_back() {
    let gone = Refusing::new();
    let port = address_of(&gone).port();
    let gateway = Plan::of(&[("a", &gone.url())]).shards(1).start();
    let mut client = McpClient::open(&gateway);
    eventually("its breaker opens", || {
        client.list();
        let told = backend_of(&page(&gateway, "/status"), port);
        (told["breaker"] == "open").then_some(())
    });
    let told = backend_of(&page(&gateway, "/backends"), port);
    assert_eq!(told["last_fault"], "connect_failed");
    assert_eq!(told["shards_not_closed"], 1);
    assert!(told["failures"].as_u64() >= Some(3));
    assert!(gateway.metric("shardgate_backend_breaker_state") >= 1);
    assert!(gateway.metric("shardgate_backend_failures_total") >= 3);
    let seen = status(admin(&gateway), &[]);
    assert_eq!(seen.code, 1, "{seen:?}");
    assert!(seen.stdout.contains("connect_failed"), "{seen:?}");

    let _back = Backend::scripted_on(gone.listen(), "a", &["one"], |_, _| None);
    eventually("it is healthy again", || {
        client.list();
        (page(&gateway, "/status")["is_healthy"] == true).then_some(())
    });
    assert_eq!(
        backend_of(&page(&gateway, "/backends"), port)["breaker"],
        "closed"
    );
}

#[test]
fn a_gateway_that_is_not_there_or_is_another_is_unreachable() {
    let nobody = Refusing::new();
    assert_eq!(status(address_of(&nobody), &[]).code, 2);
    // Its clients' listener is none for operators.
    let gateway = Plan::without_document()
        .settings(|settings| settings.store.source = StoreSource::Empty)
        .start();
    assert_eq!(status(gateway.address, &[]).code, 2);
}

#[test]
fn the_command_finds_the_listener_where_the_settings_have_it() {
    let gateway = Plan::of(&[]).start();
    let home = Folder::new();
    let text = format!("[listen]\nadmin_address = \"{}\"\n", admin(&gateway));
    let file = home.write("shardgate.toml", &text);
    let seen = run(&home, &["status", "--settings", &file], "");
    assert_eq!(seen.code, 0, "{seen:?}");
    assert!(
        seen.stdout.contains("no backend has been asked"),
        "{seen:?}"
    );
}

#[test]
fn refusals_are_counted_by_their_reason() {
    let a = Backend::start("a", &["one"]);
    let gateway = Plan::one(&a).shards(1).start();
    let reasons = || {
        let text = shardgate::admin::text(&gateway.inner().view);
        let lines = text
            .lines()
            .filter(|line| line.starts_with("shardgate_refused_total{"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(reasons(), [""; 0]);
    let ask = |ask: &Ask| gateway.connect().ask(ask).status;
    assert_eq!(ask(&Ask::new("GET", "/nowhere")), 404);
    assert_eq!(ask(&Ask::new("GET", "/else")), 404);
    assert_eq!(
        ask(&Ask::post("/mcp", "{").header("origin", "https://evil.example")),
        403
    );
    assert_eq!(ask(&Ask::post("/mcp", "{")), 400);
    assert_eq!(ask(&Ask::new("CONNECT", "/mcp")), 405);
    let expected =
        [("path", 2), ("origin", 1), ("envelope", 1), ("http", 1)].map(|(reason, count)| {
            format!("shardgate_refused_total{{shard=\"0\",reason=\"{reason}\"}} {count}")
        });
    eventually("all are counted", || (reasons() == expected).then_some(()));
}
