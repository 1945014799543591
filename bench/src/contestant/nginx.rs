//! nginx as a plain proxy: one worker, kept upstream connections, no access log.

use std::{fmt::Write, fs, net::SocketAddr, path::Path, process::Command};

use super::{Absence, Case, Contestant, free_address, wait_for};
use crate::{plain::Endpoint, process::Process};

/// The distribution's program.
pub(crate) const PROGRAM: &str = "/usr/sbin/nginx";

pub(super) fn start(
    folder: &Path,
    cpu: usize,
    backends: &[(Case, SocketAddr)],
) -> Result<Contestant, Absence> {
    if !Path::new(PROGRAM).exists() {
        return Err(Absence::NotThere(PROGRAM.into()));
    }
    let folder = folder.join("nginx");
    fs::create_dir_all(&folder)?;
    let address = free_address()?;
    let settings = folder.join("nginx.conf");
    fs::write(&settings, settings_text(&folder, address, backends))?;
    let log = folder.join("error.log");
    let command = || {
        let mut command = Command::new(PROGRAM);
        command
            .arg("-p")
            .arg(&folder)
            .arg("-c")
            .arg(&settings)
            .arg("-e")
            .arg(&log);
        command
    };
    let mut stop = command();
    stop.args(["-s", "stop"]);
    let output = folder.join("output.log");
    // Killing the master would leave its worker behind.
    let mut process = Process::start(command(), Some(cpu), &output, Some(stop))?;
    wait_for(&mut process, address, &log)?;
    let endpoints = backends
        .iter()
        .map(|(case, _)| {
            let path = format!("/{}/mcp", case.name());
            (*case, Endpoint::new(address, path, None))
        })
        .collect();
    Ok(Contestant::new("nginx", Some(process), endpoints))
}

/// Connections are kept for as many requests as a run makes, on both sides: the gateway keeps its
/// own as well, and reconnecting is not what is compared.
fn settings_text(folder: &Path, address: SocketAddr, backends: &[(Case, SocketAddr)]) -> String {
    let mut upstreams = String::new();
    let mut locations = String::new();
    for (case, backend) in backends {
        let name = case.name();
        let buffering = if *case == Case::Stream { "off" } else { "on" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            upstreams,
            "  upstream {name} {{ server {backend}; keepalive 256; \
             keepalive_requests 1000000000; }}"
        );
        let _ = writeln!(
            locations,
            "    location = /{name}/mcp {{ proxy_pass http://{name}/mcp; \
             proxy_buffering {buffering}; }}"
        );
    }
    let folder = folder.display();
    format!(
        "worker_processes 1;\ndaemon off;\npid {folder}/nginx.pid;\n\
         events {{ worker_connections 8192; }}\n\
         http {{\n  access_log off;\n  keepalive_timeout 3600;\n  \
         keepalive_requests 1000000000;\n  proxy_http_version 1.1;\n  \
         proxy_set_header Connection \"\";\n  client_body_temp_path {folder}/body;\n  \
         proxy_temp_path {folder}/proxy;\n  fastcgi_temp_path {folder}/fastcgi;\n  \
         uwsgi_temp_path {folder}/uwsgi;\n  scgi_temp_path {folder}/scgi;\n\
         {upstreams}  server {{\n    listen {address} backlog=4096;\n{locations}  }}\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_streams_are_unbuffered() {
        let backends: Vec<_> = Case::ALL
            .into_iter()
            .map(|case| (case, ([127, 0, 0, 1], 9).into()))
            .collect();
        let text = settings_text(Path::new("/x"), ([127, 0, 0, 1], 8).into(), &backends);
        assert_eq!(text.matches("proxy_buffering on").count(), 2);
        assert!(
            text.contains("/sse200/mcp { proxy_pass http://sse200/mcp; proxy_buffering off; }")
        );
        assert!(text.contains("listen 127.0.0.1:8 backlog=4096;"));
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
