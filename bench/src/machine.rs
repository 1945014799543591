//! What the figures were measured on: printed beside every result.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

/// Facts of this machine and of the contestants, as one JSON object.
pub fn describe(gateway: &Path, backend_driver: &str, test_cpu: usize, load_cpu: usize) -> Value {
    json!({
        "kernel": first_line("/proc/sys/kernel/osrelease"),
        "cpu": cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "test_cpu": test_cpu,
        "load_cpu": load_cpu,
        "congestion_control": first_line("/proc/sys/net/ipv4/tcp_congestion_control"),
        "load_average": first_line("/proc/loadavg"),
        "generator_driver": backend_driver,
        "nginx": version_of(Path::new("/usr/sbin/nginx"), "-v"),
        "gateway": version_of(gateway, "version"),
        "bench": env!("CARGO_PKG_VERSION"),
    })
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

/// The first line a program says about its version, on either stream.
fn version_of(program: &Path, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&text).lines().next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_and_versions() {
        let model = cpu_model("processor: 0\nmodel name\t: Some CPU: 9\n");
        assert_eq!(model.as_deref(), Some("Some CPU: 9"));
        assert_eq!(cpu_model(""), None);
        assert_eq!(version_of(Path::new("/nowhere/program"), "-v"), None);
        assert_eq!(
            version_of(Path::new("/bin/echo"), "1.2").as_deref(),
            Some("1.2")
        );
    }
}
