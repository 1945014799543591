//! What the service manager hears of a process: ready, alive while all shards are, stopping.

use std::{os::unix::net::UnixDatagram, time::Duration};

use crate::process::{Folder, Process};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

struct Manager {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Manager {
    fn new(folder: &Folder) -> (Self, String) {
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let manager = Self {
            socket,
            heard: Vec::new(),
        };
        (manager, path.to_str().unwrap().to_owned())
    }

    /// Waits for a word.
    fn hears(&mut self, word: &str) {
        let mut bytes = [0; 512];
        while !self.heard.iter().any(|line| line == word) {
            let length = self.socket.recv(&mut bytes);
            let length = length.unwrap_or_else(|_| panic!("no {word}, but {:?}", self.heard));
            let text = std::str::from_utf8(&bytes[..length]).unwrap();
            self.heard.extend(text.lines().map(str::to_owned));
        }
    }
}

#[test]
fn ready_alive_and_stopping_are_told_in_this_order() {
    let home = Folder::new();
    let (mut manager, socket) = Manager::new(&home);
    std::fs::write(
        home.path().join("users.json"),
        r#"{"users":{"u":{"virtual_hosts":{}}}}"#,
    )
    .unwrap();
    let config = home.path().join("users.json");
    let variables = [
        ("NOTIFY_SOCKET", socket.as_str()),
        ("WATCHDOG_USEC", "200000"),
    ];
    let mut process = Process::serve_with(
        &home,
        &variables,
        &[
            "--config-file",
            config.to_str().unwrap(),
            "--token-verification-secret",
            "a secret only this test knows",
        ],
    );
    manager.hears("READY=1");
    assert!(!manager.heard.contains(&"STOPPING=1".to_owned()));
    manager.heard.clear();
    for _ in 0..3 {
        manager.hears("WATCHDOG=1");
        manager.heard.clear();
    }
    process.signal("TERM");
    manager.hears("STOPPING=1");
    assert!(!manager.heard.contains(&"READY=1".to_owned()));
    assert_eq!(process.exit_code(), 0);
}
