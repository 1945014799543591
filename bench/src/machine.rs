//! What the figures were measured on: printed beside every result.

use std::{fs, path::Path, process::Command};

use loadgen::record::Machine;
use serde_json::{Value, json};

use crate::contestant::{HAPROXY, NGINX};

/// Facts of this machine and of who was measured.
#[derive(Debug)]
pub struct Facts(Machine);

impl Facts {
    /// What this machine says of itself, and the versions of who may take part.
    pub fn here(gateway: &Path) -> Self {
        let mut facts = Self(Machine::here());
        for (name, version) in [
            ("gateway", version_of(gateway, "version")),
            ("nginx", version_of(Path::new(NGINX), "-v")),
            ("haproxy", version_of(Path::new(HAPROXY), "-v")),
            ("virtual", Some(is_virtual().to_string())),
            ("memory", memory()),
        ] {
            if let Some(version) = version {
                facts.add(name, version);
            }
        }
        facts
    }

    /// One more.
    pub fn add(&mut self, name: &str, value: impl Into<String>) {
        self.0.more.insert(name.to_owned(), value.into());
    }

    /// As one object; what does not apply is left out.
    pub fn to_json(&self) -> Value {
        let machine = &self.0;
        let mut facts = json!({
            "bench": machine.version,
            "command": machine.command,
            "congestion_control": machine.congestion_control,
            "cores": machine.cores,
            "cpu": machine.cpu,
            "governor": machine.governor,
            "host": machine.host,
            "kernel": machine.kernel,
            "load_average": machine.load_average,
        });
        for (name, value) in &machine.more {
            facts[name] = json!(value);
        }
        if let Some(facts) = facts.as_object_mut() {
            facts.retain(|_, value| !value.is_null());
        }
        facts
    }
}

/// The load average now; empty when the system does not say.
pub fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.trim().to_owned()
}

/// Whether there is a hypervisor below: neighbours can take time away.
fn is_virtual() -> bool {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpuinfo
        .lines()
        .filter(|line| line.starts_with("flags"))
        .any(|line| line.split(' ').any(|flag| flag == "hypervisor"))
}

fn memory() -> Option<String> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().to_owned())
}

/// The first line a program says about its version, on either stream.
pub(crate) fn version_of(program: &Path, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&text).lines().next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version_of(Path::new("/nowhere/program"), "-v"), None);
        assert_eq!(
            version_of(Path::new("/bin/echo"), "1.2").as_deref(),
            Some("1.2")
        );
    }

    #[test]
    fn facts_are_one_flat_object() {
        let mut facts = Facts::here(Path::new("/bin/echo"));
        facts.add("test_cpu", "0");
        let json = facts.to_json();
        assert_eq!(json["test_cpu"], "0");
        assert_eq!(json["gateway"], "version");
        assert!(json["kernel"].is_string() && json["cores"].as_u64().unwrap() > 0);
        let values = json.as_object().unwrap().values();
        assert!(
            values
                .clone()
                .all(|value| !value.is_null() && !value.is_object())
        );
    }
}
