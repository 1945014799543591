//! Third-party clients and servers (`tests/peers`), installed by `scripts/peers`.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::{
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use serde_json::Value;

/// A client nobody here wrote, behind its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    /// TypeScript SDK 1.x.
    Sdk1,
    /// TypeScript client 2.x.
    Client2,
    /// Python SDK 2.x.
    Python,
    /// MCP Inspector's command line.
    Inspector,
}

/// What a driver reported: its last line, JSON.
#[derive(Debug)]
pub(crate) struct Report(pub(crate) Value);

impl Report {
    /// A counter or a time of the report.
    pub(crate) fn number(&self, name: &str) -> f64 {
        self.0[name]
            .as_f64()
            .unwrap_or_else(|| panic!("no number {name} in {}", self.0))
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// `PATH` with the peers' interpreters in front.
fn search_path() -> String {
    let output = Command::new(root().join("scripts/peers"))
        .arg("--path")
        .output()
        .unwrap();
    let prefix = String::from_utf8(output.stdout).unwrap();
    let prefix = prefix.trim();
    let mut folders = prefix.split(':').map(Path::new);
    let are_there = ["node", "mcp-inspector", "python"].iter().all(|program| {
        folders
            .next()
            .is_some_and(|folder| folder.join(program).exists())
    });
    assert!(
        are_there,
        "the third-party clients are not installed: run scripts/peers first"
    );
    format!("{prefix}:{}", std::env::var("PATH").unwrap_or_default())
}

/// A program of the peers, and the `PATH` it needs.
pub(crate) fn program(name: &str) -> (PathBuf, String) {
    let path = search_path();
    let mut folders = path.split(':').map(|folder| Path::new(folder).join(name));
    let found = folders.find(|program| program.exists());
    let found = found.unwrap_or_else(|| panic!("{name} is not installed: run scripts/peers first"));
    (found, path)
}

fn peer(name: &str) -> PathBuf {
    root().join("tests/peers").join(name)
}

/// Runs a client's driver to its end. Its errors are in the report; a driver without one panics.
pub(crate) fn drive(client: Client, url: &str, token: Option<&str>, options: &[&str]) -> Report {
    let (interpreter, file) = match client {
        Client::Sdk1 => ("node", "sdk1.mjs"),
        Client::Client2 => ("node", "client2.mjs"),
        Client::Python => ("python", "python_mcp.py"),
        Client::Inspector => ("node", "inspector.mjs"),
    };
    let mut command = Command::new("env");
    command
        .env("PATH", search_path())
        .arg(interpreter)
        .arg(peer(file))
        .args(["--url", url])
        .args(options)
        .stdin(Stdio::null());
    if let Some(token) = token {
        command.args(["--token", token]);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let report = said
        .lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok());
    let Some(report) = report else {
        let complaint = String::from_utf8_lossy(&output.stderr);
        panic!("{client:?} gave no report: {said}{complaint}");
    };
    Report(report)
}

/// The same, and all must be well: no error, nothing skipped, nothing repeated, every call made.
pub(crate) fn drive_well(
    client: Client,
    url: &str,
    token: Option<&str>,
    options: &[&str],
) -> Report {
    let report = drive(client, url, token, options);
    assert_eq!(report.0["ok"], true, "{client:?} {options:?}: {}", report.0);
    report
}

/// A server nobody here wrote, running until it is dropped.
pub(crate) struct Server {
    child: Child,
    /// Its MCP endpoint.
    pub(crate) url: String,
}

/// Servers that the tests of one file share: the first one starts them, the last one ends them.
pub(crate) struct Shared(Mutex<Weak<Vec<Server>>>);

impl Shared {
    /// None yet.
    pub(crate) const fn none() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    /// Those that run, or those that `start` starts.
    pub(crate) fn get(&self, start: fn() -> Vec<Server>) -> Arc<Vec<Server>> {
        // A test that failed to start them leaves nothing half done.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.upgrade().unwrap_or_else(|| {
            let servers = Arc::new(start());
            *known = Arc::downgrade(&servers);
            servers
        })
    }
}

impl Server {
    /// FastMCP: `increment`, `echo`, `add`; answers with JSON or with event streams.
    pub(crate) fn fastmcp(has_json_replies: bool) -> Self {
        Self::fastmcp_with(has_json_replies, &[])
    }

    /// The same with resources, a template, a prompt and a tool that links to resources.
    pub(crate) fn rich_fastmcp(has_json_replies: bool) -> Self {
        Self::fastmcp_with(has_json_replies, &["--rich"])
    }

    fn fastmcp_with(has_json_replies: bool, options: &[&str]) -> Self {
        let mut command = Command::new("env");
        command.arg("python").arg(peer("fastmcp_server.py"));
        command.args(options);
        if has_json_replies {
            command.arg("--json");
        }
        Self::start(command).expect("the FastMCP server starts")
    }

    /// The reference server `server-everything`.
    pub(crate) fn everything() -> Self {
        Self::on_free_port("everything.sh", &[])
    }

    /// The same over HTTP+SSE.
    pub(crate) fn everything_sse() -> Self {
        Self::on_free_port("everything.sh", &["sse"])
    }

    /// `server-memory`, a stdio server behind supergateway.
    pub(crate) fn memory() -> Self {
        Self::on_free_port("memory.sh", &[])
    }

    /// These servers take no port 0, and somebody may take the port that was free: again then.
    fn on_free_port(script: &str, more: &[&str]) -> Self {
        for _ in 0..5 {
            let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            let mut command = Command::new(peer(script));
            command.arg(port.to_string()).args(more);
            if let Some(server) = Self::start(command) {
                return server;
            }
        }
        panic!("{script} did not start");
    }

    /// Waits for its `ready URL`.
    fn start(mut command: Command) -> Option<Self> {
        let mut child = command
            .env("PATH", search_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        // Whatever it says later must not fill the pipe.
        std::thread::spawn(move || {
            let mut rest = Vec::new();
            let _ = output.read_to_end(&mut rest);
        });
        match line.trim().strip_prefix("ready ") {
            Some(url) => Some(Self {
                child,
                url: url.to_owned(),
            }),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                None
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The end of its input ends it, and its children with it.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
