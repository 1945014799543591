//! The product's own binary as a process of a test: started, listened to, signalled, waited for.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

/// Longer than anything here takes on a busy machine; reached only by a failing test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A folder of one test's own, removed with all that is in it when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes one.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("shardgate-operations-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The name of a file in it, as an argument.
    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a file in it and gives its name as an argument.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let file = self.file(name);
        std::fs::write(&file, text).unwrap();
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a stream of a running process has said so far.
#[derive(Clone, Default)]
struct Said(Arc<(Mutex<String>, Condvar)>);

impl Said {
    fn follow(&self, stream: impl Read + Send + 'static) {
        let said = self.clone();
        std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|count| count > 0) {
                said.0.0.lock().unwrap().push_str(&line);
                said.0.1.notify_all();
                line.clear();
            }
        });
    }

    fn text(&self) -> String {
        self.0.0.lock().unwrap().clone()
    }

    /// The first line with `part` in it, waited for.
    fn line_with(&self, part: &str) -> String {
        let end = Instant::now() + PATIENCE;
        let mut text = self.0.0.lock().unwrap();
        loop {
            // A line that is not whole yet is not looked at.
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            if let Some(line) = whole.lines().find(|line| line.contains(part)) {
                return line.to_owned();
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no line with {part:?} in:\n{text}");
            text = self.0.1.wait_timeout(text, left).unwrap().0;
        }
    }
}

/// A running `shardgate`, killed when dropped.
pub(crate) struct Process {
    child: Child,
    stdout: Said,
    stderr: Said,
}

impl Process {
    /// Starts it with these arguments and no environment but a path and a home.
    pub(crate) fn start<A: AsRef<OsStr>>(home: &Folder, arguments: &[A]) -> Self {
        Self::of(command(home, arguments))
    }

    /// The same with these variables too.
    pub(crate) fn start_with<A: AsRef<OsStr>>(
        home: &Folder,
        variables: &[(&str, &str)],
        arguments: &[A],
    ) -> Self {
        let mut command = command(home, arguments);
        command.envs(variables.iter().copied());
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdout, stderr) = (Said::default(), Said::default());
        stdout.follow(child.stdout.take().unwrap());
        stderr.follow(child.stderr.take().unwrap());
        Self {
            child,
            stdout,
            stderr,
        }
    }

    /// Starts `serve` on free loopback ports with two shards and `more` arguments.
    pub(crate) fn serve(home: &Folder, more: &[&str]) -> Self {
        Self::start(home, &serve_arguments(more))
    }

    /// The same with these variables in its environment.
    pub(crate) fn serve_with(home: &Folder, variables: &[(&str, &str)], more: &[&str]) -> Self {
        Self::start_with(home, variables, &serve_arguments(more))
    }

    /// The same, with this many descriptors at the most.
    pub(crate) fn serve_within(home: &Folder, descriptors: usize, more: &[&str]) -> Self {
        let mut arguments = serve_arguments(more);
        let limit = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
        arguments.splice(0..0, ["-c", &limit, env!("CARGO_BIN_EXE_shardgate")]);
        Self::of(command_of("sh", home, &arguments))
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its process id.
    #[allow(dead_code, reason = "each test binary uses a part of it")]
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where clients come to, once it is there.
    pub(crate) fn address(&self) -> SocketAddr {
        address_in(&self.stdout.line_with("  listening on http://"))
    }

    /// The admin listener, once it is there.
    pub(crate) fn admin_address(&self) -> SocketAddr {
        address_in(&self.stdout.line_with("  admin on http://"))
    }

    /// What it printed so far.
    pub(crate) fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What it logged so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// The first line it printed with `part` in it, waited for.
    pub(crate) fn printed(&self, part: &str) -> String {
        self.stdout.line_with(part)
    }

    /// The first line it logged with `part` in it, waited for.
    pub(crate) fn logged(&self, part: &str) -> String {
        self.stderr.line_with(part)
    }

    /// Sends it a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &command]).status().unwrap();
        assert!(status.success());
    }

    /// Its exit code if it has ended.
    pub(crate) fn has_ended(&mut self) -> Option<i32> {
        let status = self.child.try_wait().unwrap()?;
        Some(status.code().expect("ended by a signal"))
    }

    /// Waits for its end and gives the exit code.
    pub(crate) fn exit_code(&mut self) -> i32 {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(code) = self.has_ended() {
                return code;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it did not end; it logged:\n{}", self.stderr());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve_arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["serve", "--admin-address", "127.0.0.1:0", "--no-pin"];
    for (flag, value) in [("--address", "127.0.0.1:0"), ("--shards", "2")] {
        if !more.contains(&flag) {
            arguments.extend([flag, value]);
        }
    }
    arguments.extend(more);
    arguments
}

fn command<A: AsRef<OsStr>>(home: &Folder, arguments: &[A]) -> Command {
    command_of(env!("CARGO_BIN_EXE_shardgate"), home, arguments)
}

fn command_of<A: AsRef<OsStr>>(program: &str, home: &Folder, arguments: &[A]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("HOME", home.path());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

fn address_in(line: &str) -> SocketAddr {
    let (_, rest) = line.split_once("http://").unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// What a command that has ended left behind.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Its exit code.
    pub(crate) code: i32,
    /// What it printed.
    pub(crate) stdout: String,
    /// What it complained of.
    pub(crate) stderr: String,
}

impl Finished {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code().expect("ended by a signal"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The lines of its complaints.
    pub(crate) fn complaints(&self) -> Vec<&str> {
        self.stderr.lines().collect()
    }
}

/// Runs `shardgate` to its end, with `input` on its standard input. One that serves instead of
/// ending is killed and fails the test.
pub(crate) fn run<A: AsRef<OsStr>>(home: &Folder, arguments: &[A], input: &str) -> Finished {
    run_with(home, &[], arguments, input)
}

/// The same with these variables in its environment.
pub(crate) fn run_with<A: AsRef<OsStr>>(
    home: &Folder,
    variables: &[(&str, &str)],
    arguments: &[A],
    input: &str,
) -> Finished {
    let mut child = command(home, arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that does not read its input closes it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let pid = child.id();
    let (done, is_done) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || {
        let output = child.wait_with_output().unwrap();
        let _ = done.send(());
        output
    });
    let is_late = is_done.recv_timeout(PATIENCE).is_err();
    if is_late {
        let _ = Command::new("sh")
            .args(["-c", &format!("kill -KILL {pid}")])
            .status();
    }
    let output = waiting.join().unwrap();
    assert!(!is_late, "it did not end: {output:?}");
    Finished::of(output)
}

/// Looks again and again until there is something, for as long as tests wait.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
