//! nginx in front of the gateway: a pool of few kept connections that mixes everybody's requests.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// The distribution's program, which is not on everybody's path.
const PROGRAMS: [&str; 2] = ["/usr/sbin/nginx", "/usr/local/sbin/nginx"];
/// Longer than nginx takes to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running nginx, stopped when dropped.
pub(crate) struct Nginx {
    child: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl Nginx {
    /// Starts one in front of `upstream` that keeps at most `kept` idle connections to it. Its
    /// files are in `folder`.
    pub(crate) fn start(folder: &Path, upstream: SocketAddr, kept: u32) -> Self {
        Self::start_with(folder, upstream, kept, "")
    }

    /// The same with more lines in its `location`.
    pub(crate) fn start_with(folder: &Path, upstream: SocketAddr, kept: u32, lines: &str) -> Self {
        let program = PROGRAMS
            .iter()
            .find(|program| Path::new(program).exists())
            .expect("nginx is not installed: run scripts/peers first");
        // It takes no port 0, and somebody may take the port that was free: again then.
        for _ in 0..5 {
            let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let address = free.local_addr().unwrap();
            drop(free);
            let settings = write_settings(folder, address, upstream, kept, lines);
            let mut child = Command::new(program)
                .arg("-p")
                .arg(folder)
                .arg("-c")
                .arg(&settings)
                .arg("-e")
                .arg(folder.join("nginx-error.log"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            if accepts(&mut child, address) {
                return Self { child, address };
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("nginx did not start; see {}", folder.display());
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // One process, without a master: killing it leaves nothing behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn accepts(child: &mut Child, address: SocketAddr) -> bool {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        // An attempt from the very port that is asked for would meet itself.
        let is_other = |stream: &TcpStream| stream.local_addr().ok() != Some(address);
        if TcpStream::connect(address).is_ok_and(|stream| is_other(&stream)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

fn write_settings(
    folder: &Path,
    address: SocketAddr,
    upstream: SocketAddr,
    kept: u32,
    lines: &str,
) -> PathBuf {
    let file = folder.join("nginx.conf");
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {}/nginx-{kind}; ", folder.display()))
        .collect();
    let text = format!(
        "daemon off; master_process off; pid {folder}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  {temporary}
  keepalive_requests 1000000;
  upstream gateway {{ server {upstream}; keepalive {kept}; keepalive_requests 1000000; }}
  server {{
    listen {address} backlog=1024;
    location / {{
      proxy_pass http://gateway;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_set_header Host $http_host;
      proxy_next_upstream off;
      {lines}
    }}
  }}
}}
",
        folder = folder.display(),
    );
    std::fs::write(&file, text).unwrap();
    file
}
