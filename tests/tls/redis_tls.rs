//! Redis over TLS, as operators set it up: the process, its flags and a real `redis-server`.

use crate::{
    NAMES, Trust,
    caller::{Caller, SECRET, await_ready, token},
    certificates::{Authority, Identity},
    process::{Folder, Process, until},
    redis::{Admin, Server, new_folder},
};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const NO_CONFIG: &str = "Problem occurred retrieving the configuration";

/// A Redis that takes TLS, and asks for certificates of `clients` if there are any.
fn redis(trust: &Trust, clients: Option<&Authority>) -> (Server, u16) {
    let file = |name: &str, pem: &str| trust.folder.write(name, pem);
    let certificate = file("redis.pem", &trust.identity.chain_pem());
    let key = file("redis.key", &trust.identity.key_pem());
    let roots = clients.unwrap_or(&trust.authority).pem();
    let roots = file("redis-roots.pem", &roots);
    let demand = if clients.is_some() { "yes" } else { "no" };
    Server::start_tls(
        new_folder(),
        &[
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &roots,
            "--tls-auth-clients",
            demand,
        ],
    )
}

/// A gateway of `mode` that reaches Redis under `host` and trusts `roots`.
fn serve(
    home: &Folder,
    (host, port): (&str, u16),
    roots: &Authority,
    client: Option<&Identity>,
) -> Process {
    let port = port.to_string();
    let bundle = home.write("bundle.pem", &roots.pem());
    let mut arguments: Vec<String> = [
        "--token-verification-secret",
        SECRET,
        "--redis-address",
        host,
        "--redis-port",
        &port,
        "--redis-tls-trust-bundle",
        &bundle,
        "--redis-mode",
        if client.is_some() { "mtls" } else { "tls" },
        // So long that only Redis itself can have told of a change.
        "--user-config-cache-expiry-seconds",
        "3600",
    ]
    .map(str::to_owned)
    .into();
    if let Some(client) = client {
        let certificate = home.write("client.pem", &client.chain_pem());
        let key = home.write("client.key", &client.key_pem());
        arguments.extend(["--redis-tls-client-certificate".to_owned(), certificate]);
        arguments.extend(["--redis-tls-client-private-key".to_owned(), key]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Process::serve(home, &arguments)
}

/// Gives the subject `alice` the virtual host `name`, without backends (contextforge.md 3).
fn publish(admin: &mut Admin, name: &str) {
    let mut value = b"\x81\xadvirtual_hosts\x81".to_vec();
    value.push(0xa0 | u8::try_from(name.len()).unwrap());
    value.extend_from_slice(name.as_bytes());
    value.extend_from_slice(b"\x81\xa8backends\x80");
    admin.order(&[b"SET", b"\x92\xaaUserConfig\xa5alice", &value]);
}

fn alice(process: &Process, host: &str) -> Caller {
    let path = format!("/contextforge-rs/servers/{host}/mcp");
    Caller::new(process.address(), &path, Some(token("alice")))
}

/// Waits until every shard serves `caller`: so many fresh connections in a row meet each.
fn await_served(caller: &Caller) {
    until("served on all shards", || {
        let is_served = || {
            let answer = caller.post(PING);
            answer.body.contains("Mcp-Session-Id header is required")
        };
        (0..20).all(|_| is_served()).then_some(())
    });
}

#[test]
fn configurations_come_over_tls_and_so_do_their_changes() {
    let trust = Trust::new();
    for host in NAMES {
        let (redis, port) = redis(&trust, None);
        let home = Folder::new();
        let mut admin = redis.admin();
        publish(&mut admin, "one");
        let process = serve(&home, (host, port), &trust.authority, None);
        await_ready(process.admin_address());
        await_served(&alice(&process, "one"));
        publish(&mut admin, "two");
        await_served(&alice(&process, "two"));
        let answer = alice(&process, "one").post(PING);
        assert_eq!(answer.status, 404, "{answer:?}");
    }
}

#[test]
fn a_redis_that_demands_a_certificate_gets_it_in_the_mtls_mode() {
    let trust = Trust::new();
    let clients = Authority::new("a root of clients");
    let (redis, port) = redis(&trust, Some(&clients));
    publish(&mut redis.admin(), "one");
    let home = Folder::new();
    let client = clients.issue(&["a gateway"]);
    let process = serve(&home, ("localhost", port), &trust.authority, Some(&client));
    await_ready(process.admin_address());
    await_served(&alice(&process, "one"));
    // After a restart it is shown again.
    redis.kill();
    redis.restart();
    let mut admin = redis.admin();
    publish(&mut admin, "two");
    await_served(&alice(&process, "two"));
}

#[test]
fn a_redis_that_is_not_trusted_or_does_not_trust_is_not_read() {
    let trust = Trust::new();
    let clients = Authority::new("a root of clients");
    let stranger = Authority::new("a stranger");
    let demanding = redis(&trust, Some(&clients));
    let other = trust.authority.issue(&["redis.example"]);
    let unnamed = Trust {
        identity: other,
        ..Trust::new()
    };
    let unnamed_redis = redis(&unnamed, None);
    for (server, _) in [&demanding, &unnamed_redis] {
        publish(&mut server.admin(), "one");
    }
    let known = clients.issue(&["a gateway"]);
    let unknown = stranger.issue(&["a gateway"]);
    // Not our root; no certificate shown; one of a stranger; a name that is not the server's.
    let cases = [
        (demanding.1, &stranger, Some(&known)),
        (demanding.1, &trust.authority, None),
        (demanding.1, &trust.authority, Some(&unknown)),
        (unnamed_redis.1, &trust.authority, None),
    ];
    for (port, roots, client) in cases {
        let home = Folder::new();
        let process = serve(&home, ("localhost", port), roots, client);
        let answer = alice(&process, "one").post(PING);
        assert_eq!((answer.status, &*answer.body), (400, NO_CONFIG));
        let ready = crate::caller::curl(&[&format!("http://{}/readyz", process.admin_address())]);
        assert_eq!(ready.status, 503);
    }
    for (server, _) in [&demanding, &unnamed_redis] {
        let clients = server.admin().ask(&[b"INFO", b"stats"]);
        let text = String::from_utf8(clients).unwrap();
        // The two admin connections of this test asked for nothing else.
        assert!(text.contains("keyspace_hits:0") && text.contains("keyspace_misses:0"));
    }
}
