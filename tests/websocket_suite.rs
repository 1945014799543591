//! The Autobahn cases for RFC 6455, run by `kosoku`, against both roles of our WebSockets.
//!
//! As a server, the connection gateway's own listener is under test, with the handshake, the
//! receiver, the outbox and the end that its clients have; it sends back what it hears in the place
//! of the protocol above ([`ConnectionGateway::echoes`]). As a client, it is the handshake, the
//! receiver and the frames of `src/websocket`. Every case must be `OK`, with a clean end, but for
//! those that `tests/websocket_suite/expected.toml` lists, each with its reason.
//!
//! `kosoku` is installed by `scripts/peers`. Its reports are left in `target/tmp/websocket-suite`.
//!
//! [`ConnectionGateway::echoes`]: shardgate::settings::ConnectionGateway

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the helpers of these tests fail the test that calls them"
)]

#[path = "support/peers.rs"]
mod peers;
#[path = "support/support.rs"]
mod support;

#[path = "websocket_suite/client.rs"]
mod client;
#[path = "websocket_suite/verdicts.rs"]
mod verdicts;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use shardgate::settings::ConnectionGateway;

use support::{Gateway, Plan};
use verdicts::Expectations;

/// More than the largest message of the cases, which is 16 MiB.
const MESSAGE_BYTES_MAX: usize = 17 << 20;

/// The connection gateway as an echo.
fn echo() -> Gateway {
    let mut settings = ConnectionGateway::testing();
    settings.echoes = true;
    settings.envelope_bytes_max = MESSAGE_BYTES_MAX;
    Plan::without_document()
        .settings(move |whole| whole.connection_gateway = Some(settings))
        .start()
}

/// An empty folder for the reports of one run.
fn reports(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("websocket-suite")
        .join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The suite in one of its two roles.
fn suite(mode: &str, address: &str, reports: &Path) -> Command {
    let (program, path) = peers::program("kosoku");
    let mut command = Command::new(program);
    command
        .env("PATH", path)
        .args(["--mode", mode, "--outdir"])
        .arg(reports)
        .arg(address)
        .stdin(Stdio::null());
    command
}

#[test]
fn as_a_server_every_case_passes_but_those_that_are_refused_by_design() {
    let gateway = echo();
    let at = gateway.inner().connection_gateway.clone().unwrap();
    let folder = reports("server");
    let url = format!("ws://{}{}", at.websocket, at.path);
    let output = suite("fuzzingclient", &url, &folder).output().unwrap();
    let verdicts = verdicts::read(&folder, &output.stderr);
    Expectations::of("server").judge(&verdicts);
    // Nothing was left behind.
    support::eventually("no connection is open", || {
        let open = gateway.metric("shardgate_connection_gateway_connections");
        (open == 0).then_some(())
    });
}

#[test]
fn as_a_client_every_case_passes_but_those_that_are_refused_by_design() {
    let folder = reports("client");
    let child = suite("fuzzingserver", "ws://127.0.0.1:0", &folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = client::run(child);
    let verdicts = verdicts::read(&folder, said.as_bytes());
    Expectations::of("client").judge(&verdicts);
}
