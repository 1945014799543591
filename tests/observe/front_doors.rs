//! nginx and HAProxy with the ready-made files in front of two gateways: a session reaches the one
//! that has it, whichever connection its requests come on.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    file,
    process::Folder,
    support::{Backend, Connection, Gateway, HOST, McpClient, Plan},
};

/// Longer than a proxy takes to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

struct Door(Child);

impl Drop for Door {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program(name: &str) -> String {
    let places = ["/usr/sbin", "/usr/local/sbin", "/usr/bin"];
    let found = places
        .iter()
        .map(|place| format!("{place}/{name}"))
        .find(|path| Path::new(path).exists());
    found.unwrap_or_else(|| panic!("{name} is not installed: run scripts/peers first"))
}

/// Starts a proxy on a free port and waits until it accepts. `start` gets the port.
fn start(start: impl Fn(u16) -> Command) -> (Door, SocketAddr) {
    // Somebody may take the port that was free: again then.
    for _ in 0..5 {
        let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut command = start(address.port());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut door = Door(command.spawn().unwrap());
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && matches!(door.0.try_wait(), Ok(None)) {
            if TcpStream::connect(address).is_ok() {
                return (door, address);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    panic!("the proxy did not start");
}

fn gateways(backend: &Backend) -> [Gateway; 2] {
    ["gw01", "gw02"].map(|node| {
        Plan::one(backend)
            .settings(move |settings| node.clone_into(&mut settings.node_id))
            .start()
    })
}

/// The file with the addresses of the two gateways and the port of the proxy.
fn filled(name: &str, gateways: &[Gateway; 2], port: u16) -> String {
    let address = |index: usize| gateways[index].address.to_string();
    file(name)
        .replace("127.0.0.1:8001", &address(0))
        .replace("127.0.0.1:8002", &address(1))
        .replace("listen 8080", &format!("listen 127.0.0.1:{port}"))
        .replace("bind :8080", &format!("bind 127.0.0.1:{port}"))
}

/// Sessions through the door land on both gateways, and every call of each is answered.
fn serve_sessions(door: SocketAddr) {
    let mut clients: Vec<McpClient> = (0..8)
        .map(|_| McpClient::open_over(Connection::open(door), door, HOST, None))
        .collect();
    let nodes: Vec<String> = clients
        .iter()
        .map(|client| client.session.get(2..6).unwrap().to_owned())
        .collect();
    for node in ["gw01", "gw02"] {
        assert!(nodes.iter().any(|known| known == node), "{nodes:?}");
    }
    for round in 0..5 {
        for client in &mut clients {
            let answer = client.call(&round.to_string(), "one", "{}");
            assert_eq!(answer.result()["content"][0]["text"], "a one {}");
        }
    }
}

#[test]
fn nginx_takes_each_session_to_its_gateway() {
    let backend = Backend::start("a", &["one"]);
    let gateways = gateways(&backend);
    let folder = Folder::new();
    let (_door, address) = start(|port| {
        let path = folder.path().join("nginx.conf");
        let settings = format!(
            "daemon off;\nworker_processes 1;\npid {0}/nginx.pid;\nerror_log {0}/error.log;\n\
             events {{ worker_connections 512; }}\nhttp {{\naccess_log off;\n\
             client_body_temp_path {0}/body;\nproxy_temp_path {0}/proxy;\n\
             fastcgi_temp_path {0}/fastcgi;\nuwsgi_temp_path {0}/uwsgi;\n\
             scgi_temp_path {0}/scgi;\n{1}\n}}\n",
            folder.path().display(),
            filled("nginx.conf", &gateways, port)
        );
        std::fs::write(&path, settings).unwrap();
        let mut command = Command::new(program("nginx"));
        command
            .arg("-c")
            .arg(path)
            .arg("-e")
            .arg(folder.path().join("start.log"));
        command
    });
    serve_sessions(address);
}

#[test]
fn haproxy_takes_each_session_to_its_gateway() {
    let backend = Backend::start("a", &["one"]);
    let gateways = gateways(&backend);
    let folder = Folder::new();
    let (_door, address) = start(|port| {
        let path = folder.path().join("haproxy.cfg");
        std::fs::write(&path, filled("haproxy.cfg", &gateways, port)).unwrap();
        let mut command = Command::new(program("haproxy"));
        command.arg("-db").arg("-f").arg(path);
        command
    });
    serve_sessions(address);
}
