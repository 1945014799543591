//! The commands as an operator types them: what they print and how they end.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use loadgen::{
    backend::{Backend, BackendOptions},
    run::{Check, RunOptions, run},
};
use serde_json::Value;

/// Time a started proxy has until it listens.
const START_LIMIT: Duration = Duration::from_secs(60);

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(arguments)
        .output()
        .unwrap()
}

fn backend() -> Backend {
    let options = BackendOptions {
        payload_bytes: Some(200),
        ..BackendOptions::default()
    };
    Backend::start(options).unwrap()
}

#[test]
fn another_gateway_takes_part_and_who_fails_stays_in_the_table() {
    let (backend, address, gone) = (backend(), free_address(), free_address());
    let mut proxy = Kill::proxy("epoll", address, &backend);
    assert!(proxy.listens(address));
    let other = format!(
        "other=http://{address}/mcp,pid={},x-tenant: a",
        proxy.0.id()
    );
    let gone = format!("gone=http://{gone}/mcp");
    let output = bench(&[
        "compare",
        "--json",
        "--gateway",
        "/nowhere/shardgate",
        "--only",
        "V8",
        "--seconds",
        "0.1",
        "--rates",
        "200",
        "--peer",
        &other,
        "--peer",
        &gone,
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["cycles"], 3);
    let case = &json["cases"]["json200, 200 calls/s"];
    let points = |name: &str| {
        let row = &case[name];
        (
            row["accepted"].as_u64().unwrap(),
            row["refused"].as_u64().unwrap(),
        )
    };
    // How many were sent in time is the machine's affair.
    let (accepted, refused) = points("other");
    assert_eq!(accepted + refused, 3, "{json}");
    assert!(case["other"]["cpu_us"].as_f64().unwrap() > 0.0);
    assert_eq!(points("gone"), (0, 3));
    assert!(case["gone"]["p99_us"].is_null());
    let notes = |name: &str| json[name].as_array().unwrap().clone();
    let refusals = notes("refused");
    assert!(
        refusals
            .iter()
            .any(|note| note.as_str().unwrap().starts_with("gone json200"))
    );
    assert!(
        notes("skipped")[0]
            .as_str()
            .unwrap()
            .contains("is not there")
    );
    // Header lines and process numbers of peers are nobody's business.
    assert!(
        json["machine"]["command"]
            .as_str()
            .unwrap()
            .contains("--peer ***")
    );
}

#[test]
fn a_bare_proxy_carries_calls() {
    for engine in ["epoll", "io-uring"] {
        let (backend, address) = (backend(), free_address());
        let mut proxy = Kill::proxy(engine, address, &backend);
        if !proxy.listens(address) {
            // A kernel or a container without io_uring: it says so.
            assert_eq!(engine, "io-uring");
            continue;
        }
        let report = run(RunOptions {
            url: format!("http://{address}/mcp"),
            connections: 2,
            calls: Some(50),
            check: Check::Bytes(200),
            ..RunOptions::default()
        });
        assert_eq!(report.unwrap().error_count(), 0, "{engine}");
    }
}

#[test]
fn nothing_measured_is_3_and_a_wrong_word_is_2() {
    let code = |arguments: &[&str]| bench(arguments).status.code();
    assert_eq!(code(&["compare", "--only", "V99"]), Some(2));
    assert_eq!(
        code(&["compare", "--only", "S5", "--gateway", "/nowhere"]),
        Some(3)
    );
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("{}=127.0.0.1:9", taken.local_addr().unwrap());
    assert_eq!(code(&["proxy", "--engine", "epoll", &place]), Some(3));
    // 77 where valgrind is missing.
    let counted = code(&["instructions", "--gateway", "/nowhere/shardgate"]);
    assert!(matches!(counted, Some(3 | 77)), "{counted:?}");
}

/// A child that does not outlive its test.
struct Kill(Child);

impl Kill {
    /// A bare proxy before `backend`.
    fn proxy(engine: &str, address: SocketAddr, backend: &Backend) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_bench"))
            .args(["proxy", "--engine", engine])
            .arg(format!("{address}={}", backend.address()))
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    /// Waits until it listens; false when it ended before.
    fn listens(&mut self, address: SocketAddr) -> bool {
        let start = Instant::now();
        while start.elapsed() < START_LIMIT {
            if TcpStream::connect(address).is_ok() {
                return true;
            }
            if self.0.try_wait().unwrap().is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it neither listens nor ends");
    }
}

impl Drop for Kill {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An address nobody listens on just now.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}
