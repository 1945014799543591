//! `shardgate demo`: the main job on one machine, with nothing installed and no network.
//!
//! Two sample backends, a file configuration, a token, the gateway; one real round trip through
//! it, then a line each second.

mod client;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use loadgen::backend::{Backend, BackendKind, BackendOptions, ReplyKind};

use shards::clock::unix_s;

use crate::{
    auth::{MintRequest, SignatureAlgorithm, SigningKey, load_or_create_secret, mint},
    command::{complain, print_notes, refuse, refuse_lines, say, token::GENERATED_SECRET},
    gateway::Gateway,
    log,
    settings::{Environment, Flags, Purpose, Settings},
    telemetry::Latency,
};
use client::Client;

const HOST: &str = "demo";
const SUBJECT: &str = "demo@example.com";
const TOKEN_LIFETIME_S: u64 = 12 * 3600;

/// Runs the demo; with `once`, ends after the round trip.
pub(crate) fn run(flags: Flags, once: bool) -> ExitCode {
    let folder = std::env::temp_dir().join(format!("shardgate-demo-{}", std::process::id()));
    let outcome = Demo::start(flags, &folder).and_then(|demo| demo.show(once));
    // Only files this run made are in it.
    let _ = std::fs::remove_dir_all(&folder);
    log::flush();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(code) => code,
    }
}

struct Demo {
    backends: Vec<Backend>,
    gateway: Gateway,
    token: String,
    endpoint: String,
}

impl Demo {
    fn start(mut flags: Flags, folder: &Path) -> Result<Self, ExitCode> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            complain(format_args!("error: {what}: {error}"));
            ExitCode::FAILURE
        };
        let counter = sample("counter", BackendKind::Counter, ReplyKind::Json)
            .map_err(|error| failed("sample backend", &error))?;
        let echo = sample("echo", BackendKind::Echo, ReplyKind::Sse)
            .map_err(|error| failed("sample backend", &error))?;
        let config = write_config(folder, &[("counter", &counter), ("echo", &echo)])
            .map_err(|error| failed("demo folder", &error))?;
        let secret_file = folder.join(GENERATED_SECRET);
        let secret =
            load_or_create_secret(&secret_file).map_err(|error| failed("demo folder", &error))?;
        let wanted = [
            ("config-file", config.display().to_string()),
            ("state-dir", folder.display().to_string()),
            (
                "token-verification-secret",
                format!("file:{}", secret_file.display()),
            ),
            ("upstream-connection-mode", "plain-text-or-tls".to_owned()),
        ];
        for (flag, value) in wanted {
            flags.set(flag, value);
        }
        for (flag, value) in [("address", "127.0.0.1:0"), ("admin-address", "127.0.0.1:0")] {
            if flags.said(flag).is_none() {
                flags.set(flag, value);
            }
        }
        // The operator's environment is about other gateways.
        let (settings, notes) = Settings::load(&flags, &Environment::default(), Purpose::Serve)
            .map_err(|faults| refuse(&faults))?;
        print_notes(&notes);
        log::start(settings.telemetry.log_level);
        let gateway = Gateway::start(settings).map_err(refuse_lines)?;
        let key = SigningKey::from_secret(&secret).map_err(|error| failed("token", &error))?;
        let request = MintRequest {
            lifetime_s: TOKEN_LIFETIME_S,
            ..MintRequest::bootstrap(SUBJECT, SUBJECT, SignatureAlgorithm::Hs256, &key)
        };
        let token = mint(&request, unix_s()).map_err(|error| failed("token", &error))?;
        let address = gateway
            .address
            .ok_or_else(|| failed("demo", &"it needs a plain listener (--address)"))?;
        let endpoint = format!("http://{address}/servers/{HOST}/mcp");
        Ok(Self {
            backends: vec![counter, echo],
            gateway,
            token,
            endpoint,
        })
    }

    fn show(self, once: bool) -> Result<(), ExitCode> {
        self.introduce();
        let result = self.round_trip();
        let outcome = match result {
            Ok(()) if once => Ok(()),
            Ok(()) => self.watch(),
            Err(error) => {
                complain(format_args!("error: the round trip failed: {error}"));
                Err(ExitCode::FAILURE)
            }
        };
        let is_clean = self.gateway.stop();
        for backend in self.backends {
            backend.stop();
        }
        if is_clean {
            outcome
        } else {
            Err(ExitCode::FAILURE)
        }
    }

    fn introduce(&self) {
        let Self {
            gateway,
            token,
            endpoint,
            ..
        } = self;
        say(format_args!(
            "shardgate demo: {} shard(s) on {}, two sample backends behind one endpoint",
            gateway.shard_count, gateway.view.driver,
        ));
        if let Some(reason) = gateway.fallback_reason() {
            say(format_args!("  {reason}; all shards use epoll"));
        }
        say(format_args!("\nEndpoint   {endpoint}"));
        for (backend, name) in self.backends.iter().zip(["counter", "echo"]) {
            say(format_args!("Backend    {name:8} {}", backend.url()));
        }
        if let Some(admin) = gateway.admin_address {
            say(format_args!("Admin      http://{admin}/metrics"));
        }
        say(format_args!("Token      {token}"));
        say("\nTry it with curl:");
        say(format_args!(
            "  curl -si {endpoint} -H 'Authorization: Bearer {token}' \\\n    -H 'Content-Type: \
             application/json' -H 'Accept: application/json, text/event-stream' \\\n    -d \
             '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":\
             {{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{{}},\"clientInfo\":\
             {{\"name\":\"curl\",\"version\":\"1\"}}}}}}'"
        ));
        say("\nWith MCP Inspector:");
        say(format_args!(
            "  npx @modelcontextprotocol/inspector --cli {endpoint} --transport http \\\n    \
             --header 'Authorization: Bearer {token}' --method tools/list"
        ));
        let entry = serde_json::json!({
            "type": "http",
            "url": endpoint,
            "headers": {"Authorization": format!("Bearer {token}")},
        });
        say("\nIn Claude's or Cursor's configuration:");
        say(format_args!(
            "  {}",
            serde_json::json!({"mcpServers": {"shardgate": entry}})
        ));
        say("\nIn VS Code's mcp.json:");
        say(format_args!(
            "  {}",
            serde_json::json!({"servers": {"shardgate": entry}})
        ));
    }

    /// One real client's life: initialize, initialized, list, calls, DELETE.
    fn round_trip(&self) -> Result<(), client::Fault> {
        let path = format!("/servers/{HOST}/mcp");
        let address = self.gateway.address.ok_or(client::Fault::NoListener)?;
        let mut client = Client::open(address, &path, &self.token)?;
        let server = client.initialize()?;
        say(format_args!(
            "\nRound trip through the gateway\n  initialize -> {server}"
        ));
        let tools = client.tools()?;
        say(format_args!(
            "  tools/list -> {} tools: {}",
            tools.len(),
            tools.join(", ")
        ));
        for (tool, arguments) in [
            ("counter-increment", serde_json::json!({})),
            ("counter-increment", serde_json::json!({})),
            ("echo-echo", serde_json::json!({"text": "hello"})),
        ] {
            let text = client.call(tool, &arguments)?;
            say(format_args!("  tools/call {tool} {arguments} -> {text}"));
        }
        client.end()?;
        say("  DELETE -> session ended");
        Ok(())
    }

    /// A line each second until Ctrl-C.
    fn watch(&self) -> Result<(), ExitCode> {
        let (sender, interrupted) = crossbeam_channel::bounded::<()>(1);
        let listening = std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                if let Ok(runtime) = runtime
                    && runtime.block_on(tokio::signal::ctrl_c()).is_ok()
                {
                    // The receiver lives as long as the demo.
                    let _ = sender.send(());
                }
            });
        if listening.is_err() {
            complain("note: Ctrl-C ends the demo without a drain");
        }
        say(
            "\nPress Ctrl-C to end. Each second: requests, share of each shard, steered, forwarded, p50 and p99.",
        );
        let mut before = Totals::default();
        while interrupted.recv_timeout(Duration::from_secs(1)).is_err() {
            let now = Totals::read(&self.gateway);
            say(now.line(&before));
            before = now;
        }
        say("\nending");
        Ok(())
    }
}

fn sample(
    name: &str,
    kind: BackendKind,
    reply: ReplyKind,
) -> Result<Backend, loadgen::backend::BackendFault> {
    Backend::start(BackendOptions {
        kind,
        reply,
        name: name.to_owned(),
        ..Default::default()
    })
}

fn write_config(folder: &Path, backends: &[(&str, &Backend)]) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let backends: serde_json::Map<String, serde_json::Value> = backends
        .iter()
        .map(|(key, backend)| ((*key).to_owned(), serde_json::json!({"url": backend.url()})))
        .collect();
    let document =
        serde_json::json!({"users": {SUBJECT: {"virtual_hosts": {HOST: {"backends": backends}}}}});
    let path = folder.join("users.json");
    std::fs::write(&path, document.to_string())?;
    Ok(path)
}

/// Counters and histograms at one moment.
#[derive(Default)]
struct Totals {
    requests: Vec<u64>,
    steered: u64,
    forwarded: u64,
    latency: Latency,
}

impl Totals {
    fn read(gateway: &Gateway) -> Self {
        let view = &gateway.view;
        let mut latency = Latency::new();
        for snapshot in view.snapshots() {
            latency.add(&snapshot.latency);
        }
        Self {
            requests: view
                .numbers
                .iter()
                .map(|numbers| numbers.requests.value())
                .collect(),
            steered: view
                .engine
                .iter()
                .map(|engine| engine.handed_over.value())
                .sum(),
            forwarded: view
                .engine
                .iter()
                .map(|engine| engine.forwarded.value())
                .sum(),
            latency,
        }
    }

    /// What happened since `before`; the percentiles are of the calls since then.
    fn line(&self, before: &Self) -> String {
        let of =
            |index: usize| self.requests[index] - before.requests.get(index).copied().unwrap_or(0);
        let deltas: Vec<u64> = (0..self.requests.len()).map(of).collect();
        let total: u64 = deltas.iter().sum();
        let shares: Vec<String> = deltas
            .iter()
            .map(|delta| format!("{:.0}%", *delta as f64 * 100.0 / total.max(1) as f64))
            .collect();
        let mut recent = self.latency.total.clone();
        // The earlier histogram is a part of this one.
        let _ = recent.subtract(&before.latency.total);
        let milliseconds = |quantile| recent.value_at_quantile(quantile) as f64 / 1000.0;
        format!(
            "{total:>7} req/s  shards [{}]  steered {}  forwarded {}  p50 {:.3} ms  p99 {:.3} ms",
            shares.join(" "),
            self.steered - before.steered,
            self.forwarded - before.forwarded,
            milliseconds(0.5),
            milliseconds(0.99),
        )
    }
}
