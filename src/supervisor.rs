//! Talks to the service manager: ready, status, alive, stopping (sd_notify(3)).
//!
//! One datagram each to the socket that `NOTIFY_SOCKET` names; nobody answers. "Alive" is said only
//! when all shards have answered, so that a shard that hangs gets the process restarted.

use std::{
    ffi::OsString,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

use crate::{control::View, log};

/// How often the state is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// The manager that started this process.
#[derive(Debug)]
pub struct Supervisor {
    socket: UnixDatagram,
    /// How often it wants to hear of us.
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// The manager the environment names, if it does.
    pub fn of_process() -> Option<Self> {
        let address = std::env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty())?;
        let text = |name: &str| std::env::var(name).ok();
        // The variables may be meant for the parent alone.
        let is_ours = text("WATCHDOG_PID").is_none_or(|id| id == std::process::id().to_string());
        let watchdog = text("WATCHDOG_USEC").filter(|_| is_ours);
        match Self::connect(&address, watchdog.as_deref()) {
            Ok(supervisor) => Some(supervisor),
            Err(error) => {
                log::warn(|| format!("the service manager cannot be told anything: {error}"));
                None
            }
        }
    }

    fn connect(address: &OsString, watchdog_us: Option<&str>) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        let address = match address.as_bytes() {
            // The kernel's own name space.
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(address)?,
        };
        socket.connect_addr(&address)?;
        // The control thread must not wait for a manager that does not read.
        socket.set_nonblocking(true)?;
        let watchdog = watchdog_us
            .and_then(|text| text.parse::<u64>().ok())
            .filter(|us| *us > 0)
            .map(Duration::from_micros);
        Ok(Self { socket, watchdog })
    }

    /// For the last word, when the drain was too short to be noticed.
    pub fn parting(&self) -> io::Result<Parting> {
        self.socket.try_clone().map(Parting)
    }

    /// Tells of the gateway until the runtime ends.
    pub async fn run(self, view: View) {
        let mut told = Told::default();
        // Half the time: one word may come late.
        let heartbeat = self.watchdog.map(|limit| limit / 2);
        let look = heartbeat.map_or(LOOK, |heartbeat| heartbeat.min(LOOK));
        let mut since_heartbeat = Duration::MAX;
        loop {
            let is_due = heartbeat.is_some_and(|every| since_heartbeat >= every);
            if is_due || !told.is_ready {
                let asked = view.clone();
                let snapshots = tokio::task::spawn_blocking(move || asked.snapshots()).await;
                let snapshots = snapshots.unwrap_or_default();
                if snapshots.len() == view.handles.len() {
                    if is_due {
                        since_heartbeat = Duration::ZERO;
                    }
                    let is_ready = view.is_ready_by(&snapshots);
                    self.say(&told.words(is_due, is_ready, view.is_draining()));
                }
            } else if view.is_draining() && !told.is_stopping {
                self.say(&told.words(false, true, true));
            }
            tokio::time::sleep(look).await;
            since_heartbeat = since_heartbeat.saturating_add(look);
        }
    }

    fn say(&self, words: &str) {
        if !words.is_empty() && self.socket.send(words.as_bytes()).is_err() {
            log::warn(|| "the service manager did not take a word".to_owned());
        }
    }
}

/// The last word.
#[derive(Debug)]
pub struct Parting(UnixDatagram);

impl Parting {
    /// Says it; saying it twice changes nothing.
    pub fn say(&self) {
        // The manager notices the end without it.
        let _ = self.0.send(b"STOPPING=1\n");
    }
}

/// What the manager knows.
#[derive(Debug, Default)]
struct Told {
    is_ready: bool,
    is_stopping: bool,
}

impl Told {
    /// What to say now. All shards answer; `is_ready`: requests can be served, too.
    fn words(&mut self, is_heartbeat: bool, is_ready: bool, is_draining: bool) -> String {
        let mut words = String::new();
        // A store that is away is no reason for the manager to give up: sessions work without it.
        if !self.is_ready && !is_draining {
            self.is_ready = true;
            words += "READY=1\n";
            words += if is_ready {
                "STATUS=serving\n"
            } else {
                "STATUS=serving, the store of user configurations cannot be reached yet\n"
            };
        }
        if is_draining && !self.is_stopping {
            self.is_stopping = true;
            words += "STOPPING=1\nSTATUS=draining\n";
        }
        if is_heartbeat {
            words += "WATCHDOG=1\n";
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_told_once() {
        let mut told = Told::default();
        assert_eq!(
            told.words(true, true, false),
            "READY=1\nSTATUS=serving\nWATCHDOG=1\n"
        );
        assert_eq!(told.words(false, true, false), "");
        assert_eq!(told.words(true, false, false), "WATCHDOG=1\n");
        assert_eq!(
            told.words(false, false, true),
            "STOPPING=1\nSTATUS=draining\n"
        );
        assert_eq!(told.words(false, false, true), "");
    }

    #[test]
    fn both_kinds_of_sockets_are_reached() {
        let name = format!("shardgate-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let supervisor = Supervisor::connect(&format!("@{name}").into(), Some("2000000")).unwrap();
        supervisor.say("READY=1\n");
        let mut heard = [0; 64];
        let length = manager.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], b"READY=1\n");
        assert_eq!(supervisor.watchdog, Some(Duration::from_secs(2)));
        assert!(Supervisor::connect(&"/no/such/socket".into(), None).is_err());
    }
}
