//! What the figures were measured on: printed beside every result.

use std::{path::Path, process::Command};

use loadgen::record::Machine;
use serde_json::{Value, json};

/// Facts of this machine and of the contestants, as one JSON object.
pub fn describe(gateway: &Path, backend_driver: &str, test_cpu: usize, load_cpu: usize) -> Value {
    let here = Machine::here();
    json!({
        "kernel": here.kernel,
        "cpu": here.cpu,
        "cpus": here.cores,
        "test_cpu": test_cpu,
        "load_cpu": load_cpu,
        "congestion_control": here.congestion_control,
        "load_average": here.load_average,
        "generator_driver": backend_driver,
        "nginx": version_of(Path::new("/usr/sbin/nginx"), "-v"),
        "gateway": version_of(gateway, "version"),
        "bench": env!("CARGO_PKG_VERSION"),
    })
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
    fn programs_say_their_version() {
        assert_eq!(version_of(Path::new("/nowhere/program"), "-v"), None);
        assert_eq!(
            version_of(Path::new("/bin/echo"), "1.2").as_deref(),
            Some("1.2")
        );
    }
}
