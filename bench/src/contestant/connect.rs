//! The connection gateway, alone in a process: clients at one port, callers at another.

use std::{fs, net::SocketAddr, path::Path, time::Duration};

use loadgen::{
    exchange::{ExchangeOptions, Secret},
    run::RunOptions,
};

use super::{Absence, command_in, free_address, wait_for};
use crate::process::Process;

/// Secrets of the bench; they guard nothing.
const TOKEN: &str = "token-of-a-bench-that-listens-on-loopback-only";
const SECRET: &str = "secret-of-a-bench-that-listens-on-loopback-only";
/// Path of the WebSockets, the default.
const PATH: &str = "/connection-gateway/v1";

/// How to start it.
#[derive(Debug, Clone, Copy)]
pub struct ConnectPlan<'a> {
    /// Name of its folder.
    pub label: &'static str,
    /// The program.
    pub program: &'a Path,
    /// `--io-driver`.
    pub driver: &'static str,
    /// Its core.
    pub cpu: usize,
    /// Program and arguments it runs under, a profiler say; none: by itself.
    pub under: &'a [String],
}

/// A running connection gateway with one shard; its mailboxes are in its memory.
#[derive(Debug)]
pub struct ConnectNode {
    /// Its process.
    pub process: Process,
    http: SocketAddr,
    websocket: SocketAddr,
}

impl ConnectNode {
    /// Starts one, in a folder of its own below `parent`.
    pub fn start(parent: &Path, plan: &ConnectPlan<'_>) -> Result<Self, Absence> {
        let folder = parent.join(plan.label);
        let mut command = command_in(&folder, plan.program, plan.under)?;
        fs::create_dir_all(&folder)?;
        let (http, websocket) = (free_address()?, free_address()?);
        command
            .args(["connect", "--shards", "1", "--admin-address", "none"])
            .args(["--log-level", "warn", "--io-driver", plan.driver])
            .args(["--cpu-list", &plan.cpu.to_string()])
            .env("HOME", &folder)
            .env("AUTH_TOKEN", TOKEN)
            .env("JWT_SECRET", SECRET)
            .env("CONNECTION_GATEWAY_HOST", "127.0.0.1")
            .env("CONNECTION_GATEWAY_PORT", http.port().to_string())
            .env("CONNECTION_GATEWAY_WS_PORT", websocket.port().to_string());
        let log = folder.join("output.log");
        let mut process = Process::start(command, Some(plan.cpu), &log, None)?;
        wait_for(&mut process, websocket, &log)?;
        wait_for(&mut process, http, &log)?;
        Ok(Self {
            process,
            http,
            websocket,
        })
    }

    /// A run against it, of exchanges as [`ExchangeOptions`] has them: three parts of 64 bytes.
    pub fn run_options(&self) -> RunOptions {
        RunOptions {
            url: format!("http://{}", self.http),
            token: Some(TOKEN.to_owned()),
            limit: Duration::from_secs(10),
            exchange: Some(ExchangeOptions {
                clients_at: format!("ws://{}{PATH}", self.websocket),
                secret: Secret(SECRET.as_bytes().to_vec()),
                ..ExchangeOptions::default()
            }),
            ..RunOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_absent_and_one_that_ends_says_why() {
        let folder = std::env::temp_dir().join(format!("bench-connect-{}", std::process::id()));
        let mut plan = ConnectPlan {
            label: "connect",
            program: Path::new("/nowhere/shardgate"),
            driver: "epoll",
            cpu: 0,
            under: &[],
        };
        let absent = ConnectNode::start(&folder, &plan);
        assert!(matches!(absent, Err(Absence::NotThere(_))));
        plan.program = Path::new("/bin/false");
        let ended = ConnectNode::start(&folder, &plan);
        assert!(matches!(ended, Err(Absence::NotUp(_))));
        fs::remove_dir_all(folder).unwrap();
    }
}
