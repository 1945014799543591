//! A bare proxy of this bench, in a process of its own: the same program, started as `bench proxy`.

use std::{fs, net::SocketAddr, path::Path, process::Command};

use super::{Absence, Case, Contestant, free_address, wait_for};
use crate::{
    engines::{Engine, Place},
    plain::Endpoint,
    process::Process,
};

/// Starts `program`, this bench, on core `cpu`.
pub(super) fn start(
    folder: &Path,
    program: &Path,
    engine: Engine,
    cpu: usize,
    backends: &[(Case, SocketAddr)],
) -> Result<Contestant, Absence> {
    let folder = folder.join(engine.name());
    fs::create_dir_all(&folder)?;
    let mut command = Command::new(program);
    command
        .args(["proxy", "--engine", engine.name()])
        .arg("--cpu")
        .arg(cpu.to_string());
    let mut endpoints = Vec::new();
    for (case, backend) in backends {
        let address = free_address()?;
        let place = Place {
            address,
            backend: *backend,
        };
        command.arg(place.to_string());
        endpoints.push((*case, Endpoint::new(address, "/mcp", None)));
    }
    let log = folder.join("output.log");
    let mut process = Process::start(command, Some(cpu), &log, None)?;
    for (_, endpoint) in &endpoints {
        wait_for(&mut process, endpoint.address, &log)?;
    }
    Ok(Contestant::new(engine.label(), Some(process), endpoints))
}
