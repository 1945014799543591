//! The gateway as a process of its own, with what it costs.

use std::{cell::RefCell, fs, net::SocketAddr};

use serde_json::json;

use crate::{
    process::{Folder, Process},
    support::{Ask, Backend, Connection, HOST, McpClient},
};

/// A gateway's process with one backend, `a`.
pub(crate) struct House {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    pub(crate) backend: Backend,
    /// Kept: there may be no descriptor left for another one.
    admin: RefCell<Connection>,
    _home: Folder,
}

impl House {
    /// Starts both; `descriptors` limits the gateway's.
    pub(crate) fn start(backend: Backend, descriptors: Option<usize>, more: &[&str]) -> Self {
        let home = Folder::new();
        let backends = json!({"a": {"name": "a", "url": backend.url()}});
        let document = json!({"virtual_hosts": {HOST: {"backends": backends}}});
        let document = home.write("config.json", &document.to_string());
        let mut arguments = vec!["--config-file", &document, "--allow-anonymous"];
        arguments.extend(["--upstream-connection-mode", "plain-text-or-tls"]);
        arguments.extend(more);
        let process = match descriptors {
            Some(count) => Process::serve_within(&home, count, &arguments),
            None => Process::serve(&home, &arguments),
        };
        Self {
            address: process.address(),
            admin: RefCell::new(Connection::open(process.admin_address())),
            process,
            backend,
            _home: home,
        }
    }

    /// A client in a session.
    pub(crate) fn open(&self) -> McpClient {
        McpClient::open_over(Connection::open(self.address), self.address, HOST, None)
    }

    /// A metric summed over the shards.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let response = self.admin.borrow_mut().ask(&Ask::new("GET", "/metrics"));
        let values = response
            .text()
            .lines()
            .filter_map(|line| line.strip_prefix(name))
            .filter(|rest| rest.starts_with(['{', ' ']))
            .map(|rest| rest.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
        values.sum()
    }

    /// Whether it calls itself ready.
    pub(crate) fn is_ready(&self) -> bool {
        let ask = Ask::new("GET", "/readyz");
        self.admin.borrow_mut().ask(&ask).status == 200
    }

    /// Its memory in KiB.
    pub(crate) fn resident_kib(&self) -> usize {
        let status = fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let number = line.unwrap().split_whitespace().nth(1).unwrap();
        number.parse().unwrap()
    }

    /// Its open descriptors.
    pub(crate) fn descriptor_count(&self) -> usize {
        fs::read_dir(self.proc("fd")).unwrap().count()
    }

    /// Processor time it has used, in hundredths of a second.
    pub(crate) fn used_ticks(&self) -> u64 {
        let stat = fs::read_to_string(self.proc("stat")).unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // Fields 14 and 15 of the whole line, times in user and in system mode.
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    fn proc(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.process.pid())
    }
}
