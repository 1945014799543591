//! A Redis over TLS with a password, said as a URL.

use serde_json::json;

use crate::{
    certificates::Authority,
    cluster::{PREFIX, process},
    process::Folder,
    redis::{Server, new_folder},
    stage::token_of,
    support::eventually,
};

#[test]
fn a_url_with_tls_a_user_a_password_and_a_database_is_enough() {
    let home = Folder::new();
    let authority = Authority::new("an authority of a test");
    let identity = authority.issue(&["localhost"]);
    let roots = home.write("roots.pem", &authority.pem());
    let certificate = home.write("redis.pem", &identity.chain_pem());
    let key = home.write("redis.key", &identity.key_pem());
    let arguments = [
        ["--tls-cert-file", certificate.as_str()],
        ["--tls-key-file", &key],
        ["--tls-ca-cert-file", &roots],
        ["--tls-auth-clients", "no"],
        ["--requirepass", "pass word"],
    ]
    .concat();
    let (redis, port) = Server::start_tls(new_folder(), &arguments);
    let url = format!("rediss://default:pass%20word@localhost:{port}/3");
    // Where the system's certificates are, for this process.
    let (_process, node) = process(&home, &url, "node-a", &[("SSL_CERT_FILE", &roots)]);
    let (mut client, session) = eventually("a client is bound", || {
        let mut client = node.client();
        client.send_bind(&token_of("tmb_1"), &json!({}));
        let mut message = client.message();
        (message["type"] == "bound").then(|| (client, message["session"].take()))
    });
    client.is_served();
    let mut admin = redis.admin();
    admin.order(&[b"AUTH", b"pass word"]);
    admin.order(&[b"SELECT", b"3"]);
    let key = format!("{PREFIX}sessions:by-id:{}", session["id"].as_str().unwrap());
    assert_eq!(admin.ask(&[b"EXISTS", key.as_bytes()]), b":1");
}
