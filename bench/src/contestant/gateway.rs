//! The gateway as its operator would start it: file configuration, tokens checked, plain HTTP.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use super::{Absence, Case, Contestant, command_in, free_address, wait_for};
use crate::{plain::Endpoint, process::Process, token};

/// Secret of the bench's tokens; it guards nothing.
const SECRET: &str = "the secret of a bench that listens on loopback only";

/// Which gateway to start.
#[derive(Debug, Clone, Copy)]
pub struct GatewayPlan<'a> {
    /// Name in tables, and of its folder.
    pub label: &'static str,
    /// The program.
    pub program: &'a Path,
    /// `--io-driver`.
    pub driver: &'static str,
    /// Cores. With one of them the whole process stays there, however many shards it has.
    pub cpus: &'a [usize],
    /// Number of shards; as many as there are cores, or all on one.
    pub shards: usize,
    /// Program and arguments it runs under, a profiler say; none: by itself.
    pub under: &'a [String],
}

impl GatewayPlan<'_> {
    pub(crate) fn folder(&self, parent: &Path) -> PathBuf {
        parent.join(self.label.replace(' ', "-"))
    }
}

pub(super) fn start(
    folder: &Path,
    plan: &GatewayPlan<'_>,
    backends: &[(Case, SocketAddr)],
) -> Result<Contestant, Absence> {
    let (command, mut contestant) = prepare(folder, plan, backends)?;
    let log = plan.folder(folder).join("output.log");
    let cpu = if let [cpu] = plan.cpus {
        Some(*cpu)
    } else {
        None
    };
    let mut process = Process::start(command, cpu, &log, None)?;
    let address = contestant.endpoints.first().map(|(_, to)| to.address);
    if let Some(address) = address {
        wait_for(&mut process, address, &log)?;
    }
    contestant.process = Some(process);
    Ok(contestant)
}

fn prepare(
    folder: &Path,
    plan: &GatewayPlan<'_>,
    backends: &[(Case, SocketAddr)],
) -> Result<(Command, Contestant), Absence> {
    let folder = plan.folder(folder);
    let mut command = command_in(&folder, plan.program, plan.under)?;
    let state = folder.join("state");
    // A start that is measured finds no state of an earlier one.
    if state.exists() {
        fs::remove_dir_all(&state)?;
    }
    fs::create_dir_all(&state)?;
    let users = folder.join("users.json");
    fs::write(&users, user_config(backends).to_string())?;
    let (address, admin) = (free_address()?, free_address()?);
    let cpus: Vec<String> = plan.cpus.iter().map(usize::to_string).collect();
    command.arg("serve");
    if !plan.under.is_empty() {
        // What polls counts as much as the profiler is slow.
        command.args(["--busy-poll-us", "0"]);
    }
    for (flag, value) in [
        ("--address", address.to_string()),
        ("--admin-address", admin.to_string()),
        ("--io-driver", plan.driver.to_owned()),
        ("--shards", plan.shards.to_string()),
        ("--token-verification-secret", SECRET.to_owned()),
        ("--upstream-connection-mode", "plain-text-or-tls".to_owned()),
        // One principal opens all sessions of the bench, and makes all calls that have none.
        ("--sessions-per-principal-max", "10000".to_owned()),
        (
            "--max-concurrent-requests-per-principal",
            "10000".to_owned(),
        ),
        ("--max-concurrent-requests", "10000".to_owned()),
        ("--log-level", "warn".to_owned()),
    ] {
        command.arg(flag).arg(value);
    }
    // Several shards on one core cannot be pinned each; they stay where the process is.
    if plan.shards == cpus.len() {
        command.arg("--cpu-list").arg(cpus.join(","));
    }
    command
        .arg("--config-file")
        .arg(&users)
        .arg("--state-dir")
        .arg(&state);
    let now_unix_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_secs());
    let token = token::mint("bench", SECRET, now_unix_s);
    let mut endpoints: Vec<(Case, Endpoint)> = Vec::new();
    for (case, _) in backends {
        if endpoints.iter().all(|(known, _)| known != case) {
            let path = format!("/servers/{}/mcp", case.name());
            endpoints.push((*case, Endpoint::new(address, path, Some(token.clone()))));
        }
    }
    let mut contestant = Contestant::new(plan.label, None, endpoints);
    contestant.admin = Some(admin);
    Ok((command, contestant))
}

/// One virtual host for each case, with its backends (contextforge.md 3.2).
fn user_config(backends: &[(Case, SocketAddr)]) -> Value {
    let mut hosts: BTreeMap<&str, serde_json::Map<String, Value>> = BTreeMap::new();
    for (case, address) in backends {
        let host = hosts.entry(case.name()).or_default();
        let key = match host.len() {
            0 => "b".to_owned(),
            count => format!("b{}", count + 1),
        };
        let backend = json!({
            "name": format!("{} {key}", case.name()),
            "url": format!("http://{address}/mcp"),
            "passthrough_headers": [],
            "allowed_tool_names": [],
            "allowed_resource_names": [],
            "allowed_prompt_names": [],
        });
        host.insert(key, backend);
    }
    let hosts: serde_json::Map<String, Value> = hosts
        .into_iter()
        .map(|(name, backends)| (name.to_owned(), json!({ "backends": backends })))
        .collect();
    json!({ "virtual_hosts": hosts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_the_operators() {
        let folder = std::env::temp_dir().join(format!("bench-gateway-{}", std::process::id()));
        let plan = GatewayPlan {
            label: "gateway",
            program: Path::new("/bin/sh"),
            driver: "epoll",
            cpus: &[0, 1],
            shards: 2,
            under: &[],
        };
        let backends = [(Case::Small, SocketAddr::from(([127, 0, 0, 1], 9)))];
        let (command, contestant) = prepare(&folder, &plan, &backends).unwrap();
        let line = line_of(&command);
        assert!(line.contains("sh serve --address 127.0.0.1:"), "{line}");
        for part in ["--io-driver epoll --shards 2 ", " --cpu-list 0,1 "] {
            assert!(line.contains(part), "{line}");
        }
        let written = fs::read_to_string(folder.join("gateway/users.json")).unwrap();
        let written: Value = serde_json::from_str(&written).unwrap();
        let backend = &written["virtual_hosts"]["json200"]["backends"]["b"];
        assert_eq!(backend["url"], "http://127.0.0.1:9/mcp");
        assert_eq!(
            contestant.endpoint(Case::Small).unwrap().path,
            "/servers/json200/mcp"
        );
        assert!(contestant.endpoint(Case::Large).is_none());
        let profiled = GatewayPlan {
            cpus: &[0],
            under: &["profiler".to_owned(), "--deep".to_owned()],
            ..plan
        };
        let (command, _) = prepare(&folder, &profiled, &backends).unwrap();
        let line = line_of(&command);
        assert!(line.starts_with("profiler --deep /"), "{line}");
        assert!(
            line.contains(" --shards 2 ") && !line.contains("--cpu-list"),
            "{line}"
        );
        fs::remove_dir_all(folder).unwrap();
    }

    fn line_of(command: &Command) -> String {
        let words: Vec<_> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy())
            .collect();
        words.join(" ")
    }

    #[test]
    fn backends_of_one_case_share_its_virtual_host() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let config = user_config(&[
            (Case::Pair, address(1)),
            (Case::Small, address(2)),
            (Case::Pair, address(3)),
        ]);
        let url = |host: &str, key: &str| {
            config["virtual_hosts"][host]["backends"][key]["url"]
                .as_str()
                .map(str::to_owned)
        };
        assert_eq!(url("pair", "b").as_deref(), Some("http://127.0.0.1:1/mcp"));
        assert_eq!(url("pair", "b2").as_deref(), Some("http://127.0.0.1:3/mcp"));
        assert_eq!(
            url("json200", "b").as_deref(),
            Some("http://127.0.0.1:2/mcp")
        );
        assert_eq!(url("json200", "b2"), None);
    }

    #[test]
    fn a_program_that_is_not_there_is_absent_and_one_that_ends_says_why() {
        let folder = std::env::temp_dir().join(format!("bench-absent-{}", std::process::id()));
        let mut plan = GatewayPlan {
            label: "gateway",
            program: Path::new("/nowhere/shardgate"),
            driver: "auto",
            cpus: &[0],
            shards: 1,
            under: &[],
        };
        let backends = [(Case::Small, SocketAddr::from(([127, 0, 0, 1], 9)))];
        assert!(matches!(
            start(&folder, &plan, &backends),
            Err(Absence::NotThere(_))
        ));
        plan.program = Path::new("/bin/false");
        assert!(matches!(
            start(&folder, &plan, &backends),
            Err(Absence::NotUp(_))
        ));
        fs::remove_dir_all(folder).unwrap();
    }
}
