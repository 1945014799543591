//! User configurations out of a real Redis that another process writes: in force without a restart,
//! never replaced by what cannot be read, and ridden through an outage.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    caller::{Answer, Caller, SECRET, await_ready, metric, token},
    process::{Folder, Process, run, until},
    redis::{Admin, Scripted, Server},
};

pub(crate) const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
pub(crate) const NO_CONFIG: &str = "Problem occurred retrieving the configuration";

/// The key of a subject of at most 31 bytes, written out (contextforge.md 3.1).
fn key(subject: &str) -> Vec<u8> {
    let mut key = b"\x92\xaaUserConfig".to_vec();
    key.push(0xa0 | u8::try_from(subject.len()).unwrap());
    key.extend_from_slice(subject.as_bytes());
    key
}

/// A configuration with one virtual host without backends, as the control plane writes it: structs
/// are maps (contextforge.md 3.2).
pub(crate) fn map_form(host: &str) -> Vec<u8> {
    let mut value = b"\x81\xadvirtual_hosts\x81".to_vec();
    value.push(0xa0 | u8::try_from(host.len()).unwrap());
    value.extend_from_slice(host.as_bytes());
    value.extend_from_slice(b"\x81\xa8backends\x80");
    value
}

/// The same as the data planes write it: structs are arrays.
fn array_form(host: &str) -> Vec<u8> {
    let mut value = b"\x91\x81".to_vec();
    value.push(0xa0 | u8::try_from(host.len()).unwrap());
    value.extend_from_slice(host.as_bytes());
    value.extend_from_slice(b"\x91\x80");
    value
}

pub(crate) fn publish(admin: &mut Admin, subject: &str, value: &[u8]) {
    admin.order(&[b"SET", &key(subject), value]);
}

pub(crate) fn serve(home: &Folder, port: u16, more: &[&str]) -> Process {
    let port = port.to_string();
    let mut arguments = vec!["--token-verification-secret", SECRET];
    arguments.extend(["--redis-address", "127.0.0.1", "--redis-mode", "plain-text"]);
    arguments.extend(["--redis-port", &port]);
    arguments.extend(more);
    Process::serve(home, &arguments)
}

/// A Redis, a gateway beside it that is ready, and the gateway's home.
pub(crate) fn both(more: &[&str]) -> (Server, Process, Folder) {
    let redis = Server::start(&[]);
    let home = Folder::new();
    let process = serve(&home, redis.port, more);
    await_ready(process.admin_address());
    (redis, process, home)
}

pub(crate) fn caller(process: &Process, subject: &str, host: &str) -> Caller {
    let path = format!("/contextforge-rs/servers/{host}/mcp");
    Caller::new(process.address(), &path, Some(token(subject)))
}

/// What the configuration in force says of a caller's virtual host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    Host,
    NoHost,
    NoConfig,
    BadConfig,
}

pub(crate) fn look(caller: &Caller) -> Seen {
    seen(&caller.post(PING))
}

fn seen(answer: &Answer) -> Seen {
    let is_plain = answer.header("content-type") == Some("text/plain");
    match (answer.status, &*answer.body) {
        // Only with a virtual host does the missing session matter.
        (400, body) if body.contains("Mcp-Session-Id header is required") => Seen::Host,
        (404, r#"{"detail":"Server not found"}"#) => Seen::NoHost,
        (400, NO_CONFIG) if is_plain => Seen::NoConfig,
        (500, NO_CONFIG) if is_plain => Seen::BadConfig,
        _ => panic!("unforeseen: {answer:?}"),
    }
}

/// Waits until `caller` is served so over many fresh connections in a row, which both shards get;
/// the time until the first of them.
pub(crate) fn until_seen(caller: &Caller, wanted: Seen) -> Duration {
    let started = Instant::now();
    until(&format!("{wanted:?} on all shards"), || {
        let elapsed = started.elapsed();
        (0..20).all(|_| look(caller) == wanted).then_some(elapsed)
    })
}

pub(crate) fn info(admin: &mut Admin, section: &str, field: &str) -> String {
    let text = String::from_utf8(admin.ask(&[b"INFO", section.as_bytes()])).unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(field));
    lines.next().unwrap_or_default().to_owned()
}

#[test]
fn a_user_redis_does_not_know_is_not_looked_up_for_every_request() {
    let (redis, process, _home) = both(&[]);
    let mut admin = redis.admin();
    let nobody = caller(&process, "nobody", "one");
    admin.order(&[b"CONFIG", b"RESETSTAT"]);
    let started = Instant::now();
    for _ in 0..50 {
        assert_eq!(look(&nobody), Seen::NoConfig);
    }
    // Each of two shards asks once a second.
    let asked_max = 2 * (started.elapsed().as_secs() + 1);
    let stats = info(&mut admin, "commandstats", "cmdstat_get:calls=");
    let asked: u64 = stats.split(',').next().unwrap().trim().parse().unwrap();
    assert!((1..=asked_max).contains(&asked), "{asked} of {asked_max}");
    // A first configuration is in force at once all the same.
    publish(&mut admin, "nobody", &map_form("one"));
    until_seen(&nobody, Seen::Host);
}

#[test]
fn a_published_configuration_is_in_force_at_once_without_a_restart() {
    // Kept for a minute, so only Redis can have told.
    let (redis, process, home) = both(&["--user-config-cache-expiry-seconds", "60"]);
    let mut admin = redis.admin();
    assert_eq!(info(&mut admin, "clients", "tracking_clients:"), "2");
    let (one, two) = (
        caller(&process, "ann", "one"),
        caller(&process, "ann", "two"),
    );
    publish(&mut admin, "ann", &map_form("one"));
    until_seen(&one, Seen::Host);
    until_seen(&two, Seen::NoHost);

    for (form, value, there, gone) in [
        ("array", array_form("two"), &two, &one),
        ("map", map_form("one"), &one, &two),
        ("array again", array_form("two"), &two, &one),
    ] {
        publish(&mut admin, "ann", &value);
        let elapsed = until_seen(there, Seen::Host);
        println!("{form} form in force after {} ms", elapsed.as_millis());
        assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
        until_seen(gone, Seen::NoHost);
    }

    // The command line is another process that writes, in each encoding.
    let input = home.write("ann.json", r#"{"virtual_hosts":{"one":{"backends":{}}}}"#);
    let port = redis.port.to_string();
    let store = [
        "--redis-address",
        "127.0.0.1",
        "--redis-mode",
        "plain-text",
        "--redis-port",
    ];
    let store = [&store[..], &[&port]].concat();
    for encoding in ["map", "array", "seed-array"] {
        publish(&mut admin, "ann", &map_form("two"));
        until_seen(&two, Seen::Host);
        let put = [
            "config",
            "put",
            "--subject",
            "ann",
            "--input",
            &input,
            "--encoding",
            encoding,
        ];
        let put = run(&home, &[&put[..], &store].concat(), "");
        assert_eq!((put.code, &*put.stdout), (0, "written\n"), "{put:?}");
        until_seen(&one, Seen::Host);
        let get = ["config", "get", "--subject", "ann"];
        let get = run(&home, &[&get[..], &store].concat(), "");
        assert_eq!(get.code, 0, "{get:?}");
        let config: serde_json::Value = serde_json::from_str(&get.stdout).unwrap();
        assert!(config["virtual_hosts"]["one"].is_object(), "{config}");
    }
}

#[test]
fn a_deleted_configuration_is_gone_at_once() {
    let (redis, process, _home) = both(&[]);
    let mut admin = redis.admin();
    let ann = caller(&process, "ann", "one");
    assert_eq!(look(&ann), Seen::NoConfig);
    publish(&mut admin, "ann", &map_form("one"));
    until_seen(&ann, Seen::Host);
    assert_eq!(admin.ask(&[b"DEL", &key("ann")]), b":1");
    until_seen(&ann, Seen::NoConfig);
    publish(&mut admin, "ann", &map_form("one"));
    until_seen(&ann, Seen::Host);
    // A whole database that goes is told in another way.
    admin.order(&[b"FLUSHALL"]);
    until_seen(&ann, Seen::NoConfig);
}

#[test]
fn where_redis_may_not_tell_changes_the_lifetime_of_the_cache_bounds_them() {
    let redis = Server::start(&[]);
    let mut admin = redis.admin();
    admin.order(&[
        b"ACL", b"SETUSER", b"gate", b"on", b">word", b"~*", b"+@all", b"-client",
    ]);
    let home = Folder::new();
    let more = [
        "--redis-username",
        "gate",
        "--redis-password",
        "word",
        "--user-config-cache-expiry-seconds",
        "1",
    ];
    let process = serve(&home, redis.port, &more);
    await_ready(process.admin_address());
    publish(&mut admin, "ann", &map_form("one"));
    let (one, two) = (
        caller(&process, "ann", "one"),
        caller(&process, "ann", "two"),
    );
    until_seen(&one, Seen::Host);
    publish(&mut admin, "ann", &map_form("two"));
    let elapsed = until_seen(&two, Seen::Host);
    println!("in force after {} ms without tracking", elapsed.as_millis());
    until_seen(&one, Seen::NoHost);
    assert_eq!(info(&mut admin, "clients", "tracking_clients:"), "0");
}

#[test]
fn a_malformed_configuration_hurts_its_user_only_and_is_logged_without_a_name() {
    let (redis, process, _home) = both(&[]);
    let mut admin = redis.admin();
    publish(&mut admin, "bob", &array_form("one"));
    let bob = caller(&process, "bob", "one");
    let cases: [&[u8]; 7] = [
        b"",
        b"\xc1",
        br#"{"virtual_hosts":{}}"#,
        b"\x81\xadvirtual_hosts\xc0",
        b"\x91\x81\xa3one",
        b"\xdd\xff\xff\xff\xff",
        &[0x91; 5000],
    ];
    for (number, value) in cases.iter().enumerate() {
        let subject = format!("secret-name-{number}");
        publish(&mut admin, &subject, value);
        assert_eq!(
            look(&caller(&process, &subject, "one")),
            Seen::BadConfig,
            "{value:?}"
        );
        assert_eq!(look(&bob), Seen::Host);
    }
    process.logged("a user configuration in the store cannot be read");
    assert!(
        !process.stderr().contains("secret-name"),
        "{}",
        process.stderr()
    );
}

#[test]
fn a_malformed_configuration_never_replaces_a_good_one() {
    let (redis, process, _home) = both(&[]);
    let mut admin = redis.admin();
    let (one, two) = (
        caller(&process, "ann", "one"),
        caller(&process, "ann", "two"),
    );
    publish(&mut admin, "ann", &map_form("one"));
    until_seen(&one, Seen::Host);
    let bad = || metric(process.admin_address(), "shardgate_configs_bad_total");
    for value in [&b"\xc1"[..], b"", b"\x81\xadvirtual_hosts\x81\xa3two"] {
        let before = bad();
        publish(&mut admin, "ann", value);
        // Both shards have read it, and serve what they had.
        until("the bad value is read", || {
            assert_eq!(look(&one), Seen::Host);
            (bad() >= before + 2).then_some(())
        });
        until_seen(&one, Seen::Host);
    }
    publish(&mut admin, "ann", &array_form("two"));
    until_seen(&two, Seen::Host);
}

#[test]
fn a_change_that_is_told_while_the_value_is_on_its_way_is_not_missed() {
    // A server that answers a read with the old value and, in the same breath, that it changed.
    let reads = Arc::new(AtomicUsize::new(0));
    let count = reads.clone();
    let redis = Scripted::start(move |command| match &*command[0] {
        b"HELLO" => b"%1\r\n+proto\r\n:3\r\n".to_vec(),
        b"GET" => {
            let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
            let value = map_form(if is_first { "one" } else { "two" });
            let mut answer = format!("${}\r\n", value.len()).into_bytes();
            answer.extend_from_slice(&value);
            answer.extend_from_slice(b"\r\n");
            if is_first {
                let key = &command[1];
                let told = format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n${}\r\n", key.len());
                answer.extend_from_slice(told.as_bytes());
                answer.extend_from_slice(key);
                answer.extend_from_slice(b"\r\n");
            }
            answer
        }
        b"PING" => b"+PONG\r\n".to_vec(),
        _ => b"+OK\r\n".to_vec(),
    });
    let home = Folder::new();
    let process = serve(&home, redis.port, &["--shards", "1"]);
    await_ready(process.admin_address());
    let two = caller(&process, "ann", "two");
    // The first request may see what was there when it asked; the next must not.
    look(&two);
    assert_eq!(look(&two), Seen::Host);
    assert_eq!(look(&two), Seen::Host);
    assert_eq!(reads.load(Ordering::SeqCst), 2, "the second value is kept");
}
