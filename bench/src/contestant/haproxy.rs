//! HAProxy as a plain proxy: one thread, kept connections on both sides, no log.

use std::{fmt::Write, fs, net::SocketAddr, path::Path, process::Command};

use super::{Absence, Case, Contestant, free_address, wait_for};
use crate::{plain::Endpoint, process::Process};

/// The distribution's program.
pub(crate) const PROGRAM: &str = "/usr/sbin/haproxy";

pub(super) fn start(
    folder: &Path,
    cpu: usize,
    backends: &[(Case, SocketAddr)],
) -> Result<Contestant, Absence> {
    if !Path::new(PROGRAM).exists() {
        return Err(Absence::NotThere(PROGRAM.into()));
    }
    let folder = folder.join("haproxy");
    fs::create_dir_all(&folder)?;
    let mut places = Vec::new();
    for (case, backend) in backends {
        places.push((*case, free_address()?, *backend));
    }
    let settings = folder.join("haproxy.cfg");
    fs::write(&settings, settings_text(&places))?;
    let mut command = Command::new(PROGRAM);
    // -db: no process in the background, so what is started is what serves.
    command.arg("-db").arg("-f").arg(&settings);
    let log = folder.join("output.log");
    let mut process = Process::start(command, Some(cpu), &log, None)?;
    for (_, address, _) in &places {
        wait_for(&mut process, *address, &log)?;
    }
    let endpoints = places
        .iter()
        .map(|(case, address, _)| (*case, Endpoint::new(*address, "/mcp", None)))
        .collect();
    Ok(Contestant::new("haproxy", Some(process), endpoints))
}

/// A listener for each case, so that no path has to be looked at or rewritten: the least work that
/// HAProxy can have with it.
fn settings_text(places: &[(Case, SocketAddr, SocketAddr)]) -> String {
    let mut text = "global\n  nbthread 1\n  maxconn 4096\n\
        defaults\n  mode http\n  no log\n  option http-keep-alive\n  http-reuse always\n  \
        timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n  \
        timeout http-keep-alive 1h\n"
        .to_owned();
    for (case, address, backend) in places {
        let name = case.name();
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "frontend {name}\n  bind {address} backlog 4096\n  default_backend {name}\n\
             backend {name}\n  server {name} {backend} pool-max-conn 256\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_its_own_listener_and_haproxy_agrees() {
        let places: Vec<_> = Case::ALL
            .into_iter()
            .zip(8001..)
            .map(|(case, port)| {
                (
                    case,
                    ([127, 0, 0, 1], port).into(),
                    ([127, 0, 0, 1], 9).into(),
                )
            })
            .collect();
        let text = settings_text(&places);
        for port in 8001..8004 {
            assert_eq!(text.matches(&format!("bind 127.0.0.1:{port} ")).count(), 1);
        }
        assert!(text.contains("default_backend sse200\nbackend sse200\n  server sse200 "));
        if Path::new(PROGRAM).exists() {
            let file = std::env::temp_dir().join(format!("bench-haproxy-{}", std::process::id()));
            fs::write(&file, text).unwrap();
            let output = Command::new(PROGRAM)
                .args(["-c", "-f"])
                .arg(&file)
                .output()
                .unwrap();
            fs::remove_file(file).unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                output.status.success() && !said.contains("WARNING"),
                "{said}"
            );
        }
    }
}
