//! A real `redis-server` of a test's own, another client to change its data, and a scripted server
//! for what a real one never says.

use std::{
    cell::{Cell, RefCell},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

/// Longer than anything here takes on a busy machine; reached only by a failing test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running `redis-server`, killed when dropped.
pub(crate) struct Server {
    child: RefCell<Child>,
    arguments: Vec<String>,
    folder: PathBuf,
    /// Its plain port on the loopback interface.
    pub(crate) port: u16,
}

impl Server {
    /// Starts one with more `arguments`.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        Self::start_in(new_folder(), || arguments.clone())
    }

    /// Starts one that works in `folder`, which it then owns, and also takes TLS, on the port that
    /// is given back with it.
    pub(crate) fn start_tls(folder: PathBuf, arguments: &[&str]) -> (Self, u16) {
        let tls_port = Cell::new(0);
        let server = Self::start_in(folder, || {
            tls_port.set(free_port());
            let mut arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            arguments.extend(["--tls-port".to_owned(), tls_port.get().to_string()]);
            arguments
        });
        (server, tls_port.get())
    }

    fn start_in(folder: PathBuf, arguments: impl Fn() -> Vec<String>) -> Self {
        // Another process can take a free port before the server does.
        for _ in 0..20 {
            let (port, arguments) = (free_port(), arguments());
            if let Some(child) = spawn(&folder, port, &arguments) {
                let child = RefCell::new(child);
                return Self {
                    child,
                    arguments,
                    folder,
                    port,
                };
            }
        }
        panic!("redis-server did not start");
    }

    /// Kills it, as a crash would.
    pub(crate) fn kill(&self) {
        let mut child = self.child.borrow_mut();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts it again on the same port, with no data.
    pub(crate) fn restart(&self) {
        let child = spawn(&self.folder, self.port, &self.arguments);
        *self.child.borrow_mut() = child.expect("redis-server did not start again");
    }

    /// Suspends it: connections stay, nothing is answered.
    pub(crate) fn suspend(&self) {
        self.signal("STOP");
    }

    /// Ends a suspension.
    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.child.borrow().id());
        let status = Command::new("sh").args(["-c", &command]).status().unwrap();
        assert!(status.success());
    }

    /// Another client of this server.
    pub(crate) fn admin(&self) -> Admin {
        Admin::new(self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        let _ = child.kill();
        let _ = child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A fresh folder for one server.
pub(crate) fn new_folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("shardgate-redis-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A port nobody listens on at this moment.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn spawn(folder: &Path, port: u16, arguments: &[String]) -> Option<Child> {
    let mut child = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .args(["--dir", &folder.display().to_string()])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("these tests need redis-server on the path");
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        // An attempt from the very port that is asked for would meet itself.
        let is_other = |stream: &TcpStream| stream.local_addr().is_ok_and(|own| own.port() != port);
        if let Some(stream) = TcpStream::connect(("127.0.0.1", port))
            .ok()
            .filter(is_other)
        {
            // An answer, even a refusal, says that it serves.
            let mut admin = Admin {
                stream: BufReader::new(stream),
            };
            if !admin.ask(&[b"PING"]).is_empty() {
                return Some(child);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// A blocking client, independent of the code under test.
pub(crate) struct Admin {
    stream: BufReader<TcpStream>,
}

impl Admin {
    /// Connects to the server on `port`.
    pub(crate) fn new(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Sends a command; the first line of the reply, or the payload of a bulk.
    pub(crate) fn ask(&mut self, arguments: &[&[u8]]) -> Vec<u8> {
        if self.stream.get_mut().write_all(&encode(arguments)).is_err() {
            return Vec::new();
        }
        let line = read_line(&mut self.stream).unwrap_or_default();
        match line.split_first() {
            Some((b'$', length)) if length != b"-1" => {
                let length: usize = std::str::from_utf8(length).unwrap().parse().unwrap();
                let mut payload = vec![0; length + 2];
                self.stream.read_exact(&mut payload).unwrap();
                payload.truncate(length);
                payload
            }
            _ => line,
        }
    }

    /// Sends a command that must be answered with `+OK`.
    pub(crate) fn order(&mut self, arguments: &[&[u8]]) {
        let answer = self.ask(arguments);
        assert_eq!(String::from_utf8_lossy(&answer), "+OK");
    }
}

/// A command as it is sent.
pub(crate) fn encode(arguments: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments.iter().map(AsRef::as_ref) {
        out.extend(format!("${}\r\n", argument.len()).as_bytes());
        out.extend(argument);
        out.extend(b"\r\n");
    }
    out
}

fn read_line(stream: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let count = stream.read_until(b'\n', &mut line).ok()?;
    if count == 0 {
        return None;
    }
    line.truncate(line.len().saturating_sub(2));
    Some(line)
}

/// A server that answers each command as `script` says; an empty answer closes the connection.
pub(crate) struct Scripted {
    /// Its port on the loopback interface.
    pub(crate) port: u16,
    is_over: Arc<AtomicBool>,
}

impl Scripted {
    /// Starts it.
    pub(crate) fn start(script: impl Fn(&[Vec<u8>]) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_over = Arc::new(AtomicBool::new(false));
        let (script, is_ending) = (Arc::new(script), is_over.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if is_ending.load(Ordering::Acquire) {
                    break;
                }
                let (stream, script) = (stream.unwrap(), script.clone());
                std::thread::spawn(move || converse(stream, &*script));
            }
        });
        Self { port, is_over }
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes the accept.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn converse(stream: TcpStream, script: &dyn Fn(&[Vec<u8>]) -> Vec<u8>) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(command) = read_command(&mut reader) {
        let answer = script(&command);
        if answer.is_empty() || reader.get_mut().write_all(&answer).is_err() {
            break;
        }
    }
}

/// The next command of a client; `None`: it has ended.
pub(crate) fn read_command(reader: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let number =
        |line: Vec<u8>| -> Option<usize> { std::str::from_utf8(line.get(1..)?).ok()?.parse().ok() };
    let count = number(read_line(reader)?)?;
    let mut command = Vec::new();
    for _ in 0..count {
        let length = number(read_line(reader)?)?;
        let mut argument = vec![0; length + 2];
        reader.read_exact(&mut argument).ok()?;
        argument.truncate(length);
        command.push(argument);
    }
    Some(command)
}
