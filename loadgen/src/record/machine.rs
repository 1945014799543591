//! The machine a generator ran on, and a command line that gives nothing away.

use std::{collections::BTreeMap, fs};

use serde::{Deserialize, Serialize};

/// What stands for something secret.
const HIDDEN: &str = "***";
/// Parts of the names of options and settings whose values are hidden.
const SECRET_NAMES: [&str; 9] = [
    "token", "secret", "password", "passwd", "key", "auth", "header", "cookie", "peer",
];

/// Facts that figures depend on, of one machine and the generator on it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub host: String,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Processor model.
    pub cpu: Option<String>,
    /// Cores this process may use.
    pub cores: u32,
    /// CPU frequency governor.
    pub governor: Option<String>,
    /// TCP congestion control.
    pub congestion_control: Option<String>,
    /// Load average when the run ended.
    pub load_average: Option<String>,
    /// Version of the generator.
    pub version: String,
    /// Shards of the generator.
    pub shards: u16,
    /// Cores they were pinned to.
    pub pinned: Option<Vec<usize>>,
    /// I/O driver of the generator.
    pub driver: String,
    /// The command, secrets hidden.
    pub command: String,
    /// Versions and settings of others, by name: the gateway, the backend, ...
    pub more: BTreeMap<String, String>,
}

impl Machine {
    /// Reads what this machine says of itself; what the generator was told is the caller's to add.
    pub fn here() -> Self {
        Self {
            host: first_line("/proc/sys/kernel/hostname").unwrap_or_default(),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            cpu: cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            cores: std::thread::available_parallelism()
                .map_or(0, |count| u32::try_from(count.get()).unwrap_or(u32::MAX)),
            governor: first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            congestion_control: first_line("/proc/sys/net/ipv4/tcp_congestion_control"),
            load_average: first_line("/proc/loadavg"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: redacted_command_line(std::env::args()),
            ..Self::default()
        }
    }
}

fn first_line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.to_owned())
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// A command line for reports: values of options that name a secret, tokens and credentials in
/// URLs are hidden.
pub fn redacted_command_line(arguments: impl IntoIterator<Item = String>) -> String {
    let mut shown = Vec::new();
    let mut is_value_secret = false;
    for argument in arguments {
        if std::mem::take(&mut is_value_secret) && !argument.starts_with("--") {
            shown.push(HIDDEN.to_owned());
            continue;
        }
        shown.push(match argument.split_once('=') {
            Some((name, _)) if is_option(name) && is_secret_name(name) => {
                format!("{name}={HIDDEN}")
            }
            Some((name, value)) if is_option(name) => format!("{name}={}", redacted_value(value)),
            _ => {
                // `-H` is how many tools say header.
                is_value_secret =
                    argument == "-H" || (is_option(&argument) && is_secret_name(&argument));
                redacted_value(&argument)
            }
        });
    }
    shown
        .iter()
        .map(|one| quoted(one))
        .collect::<Vec<_>>()
        .join(" ")
}

/// A URL without user, password, query and fragment.
pub fn redacted_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (plain, hidden) = rest.split_at(end);
    let (authority, path) = plain.split_at(plain.find('/').unwrap_or(plain.len()));
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let mark = if hidden.is_empty() { "" } else { "?***" };
    format!("{scheme}://{host}{path}{mark}")
}

fn is_option(argument: &str) -> bool {
    argument.starts_with('-')
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

fn redacted_value(value: &str) -> String {
    // A signed token begins with the base64 of `{"`.
    if value.contains("eyJ") || value.to_ascii_lowercase().starts_with("bearer") {
        HIDDEN.to_owned()
    } else {
        redacted_url(value)
    }
}

fn quoted(argument: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,%@+*?".contains(&byte);
    if !argument.is_empty() && argument.bytes().all(is_plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &[&str]) -> String {
        redacted_command_line(line.iter().map(|one| (*one).to_owned()))
    }

    #[test]
    fn command_lines_give_no_secret_away() {
        for (line, expected) in [
            (
                &["loadgen", "run", "http://h/mcp", "-r", "5"][..],
                "loadgen run http://h/mcp -r 5",
            ),
            (&["l", "--token", "abc", "-c", "2"], "l --token *** -c 2"),
            (&["l", "--token=abc"], "l --token=***"),
            (&["l", "--jwt-key", "--json"], "l --jwt-key --json"),
            (&["l", "-H", "x: y"], "l -H ***"),
            (&["l", "--peer", "a=http://h/,x-key: y"], "l --peer ***"),
            (&["l", "eyJhbGciOi.x.y"], "l ***"),
            (&["l", "--x=eyJhbGciOi.x.y"], "l --x=***"),
            (&["l", "http://u:p@h:1/mcp?t=1#f"], "l http://h:1/mcp?***"),
            (&["l", "--url=http://u@h"], "l --url=http://h"),
            (&["l", r#"{"a":"it's"}"#], r#"l '{"a":"it'\''s"}'"#),
        ] {
            assert_eq!(shown(line), expected);
        }
    }

    #[test]
    fn the_processor_is_named_as_the_kernel_names_it() {
        let model = cpu_model("processor: 0\nmodel name\t: Some CPU: 9\n");
        assert_eq!(model.as_deref(), Some("Some CPU: 9"));
        assert_eq!(cpu_model(""), None);
    }

    #[test]
    fn this_machine_says_something() {
        let machine = Machine::here();
        assert!(machine.cores > 0);
        assert!(machine.kernel.is_some());
    }
}
