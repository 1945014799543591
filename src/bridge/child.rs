//! A child process that speaks JSON lines: started, read, written to, and surely ended.
//!
//! Knows nothing of MCP or HTTP. The child is the head of a process group of its own. It is asked
//! to go by the end of its input, then by SIGTERM; what is left of the group is killed. Its
//! standard error goes to ours, or to the log in lines of a bounded length and number.

use std::{
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader},
    process::{ChildStdin, Command},
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    time::Instant,
};

use crate::{config::user_config::StdioServer, log};

/// Time to go after the end of the input, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(1);
/// Lines that wait in either direction of a backend.
const LINES_MAX: usize = 64;
/// Bytes of a line of standard error that are logged.
const LOGGED_BYTES_MAX: usize = 1000;
/// Lines of standard error logged in a second.
const LOGGED_LINES_MAX: u32 = 50;
/// What a child gets of our environment: no setting of ours, which may be a secret.
const INHERITED: [&str; 11] = [
    "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ",
    "USER",
];

/// A running child. Dropping it ends the process.
#[derive(Debug)]
pub struct Child {
    /// Lines for its standard input; each gets its line feed.
    pub input: mpsc::Sender<Vec<u8>>,
    /// Held for its being dropped.
    _leash: oneshot::Sender<()>,
}

/// What holds for a child while it runs.
#[derive(Debug)]
pub(crate) struct Terms {
    /// Its name in the log.
    pub(crate) label: Arc<str>,
    /// Bytes of a line of its standard output; a longer one ends it.
    pub(crate) line_bytes_max: usize,
    /// Lines that wait in either direction.
    pub(crate) lines_max: usize,
    /// Its standard error goes to the log, not to ours.
    pub(crate) is_logged: bool,
}

/// Starts the server of a backend. The lines of its standard output come through the receiver,
/// which ends when it does; a longer line than `line_bytes_max` ends the child. `permit` is given
/// back when the process is gone.
///
/// # Errors
/// Why the system did not start it.
pub fn start(
    server: &StdioServer,
    line_bytes_max: usize,
    permit: OwnedSemaphorePermit,
) -> std::io::Result<(Child, mpsc::Receiver<Vec<u8>>)> {
    let mut command = Command::new(&server.command);
    command
        .args(&server.args)
        .env_clear()
        .envs(
            INHERITED
                .iter()
                .filter_map(|name| Some((name, std::env::var_os(name)?))),
        )
        .envs(&server.env);
    if let Some(folder) = &server.cwd {
        command.current_dir(folder);
    }
    let terms = Terms {
        label: server.label.as_ref().into(),
        line_bytes_max,
        lines_max: LINES_MAX,
        is_logged: true,
    };
    launch(command, terms, move |_| drop(permit))
}

/// How a child ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// What the system says.
    pub(crate) status: std::io::Result<ExitStatus>,
    /// It was ended for a line over the limit.
    pub(crate) had_long_line: bool,
}

/// Starts a program; `on_end` hears how it ended when the process is gone.
///
/// # Errors
/// Why the system did not start it.
pub(crate) fn launch(
    mut command: Command,
    terms: Terms,
    on_end: impl FnOnce(Ended) + Send + 'static,
) -> std::io::Result<(Child, mpsc::Receiver<Vec<u8>>)> {
    let Terms {
        label,
        line_bytes_max,
        lines_max,
        is_logged,
    } = terms;
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(if is_logged {
            Stdio::piped()
        } else {
            Stdio::inherit()
        })
        .process_group(0)
        .kill_on_drop(true);
    shards::child::inherit_nothing(command.as_std_mut());
    let mut process = command.spawn()?;
    let (stdin, stdout, stderr) = (
        process.stdin.take(),
        process.stdout.take(),
        process.stderr.take(),
    );
    let (input, to_write) = mpsc::channel(lines_max);
    let (output, lines) = mpsc::channel(lines_max);
    let (leash, let_go) = oneshot::channel();
    if let Some(stderr) = stderr {
        tokio::spawn(log_lines(stderr, label.clone()));
    }
    let (overflow, has_overflowed) = oneshot::channel();
    if let Some(stdout) = stdout {
        tokio::spawn(async move {
            if read_lines(stdout, line_bytes_max, &output).await.is_err() {
                // Nobody listens when the child has ended meanwhile.
                let _ = overflow.send(());
            }
        });
    }
    let writing = stdin.map(|stdin| tokio::spawn(write_lines(stdin, to_write)));
    let group = process
        .id()
        .and_then(|id| Pid::from_raw(id.try_into().ok()?));
    log::debug(|| format!("stdio server {label}: started"));
    tokio::spawn(async move {
        let mut had_long_line = false;
        let status = tokio::select! {
            status = process.wait() => Some(status),
            _ = let_go => None,
            Ok(()) = has_overflowed => {
                log::warn(|| format!("stdio server {label}: a line over the limit, ended"));
                had_long_line = true;
                None
            }
        };
        // The end of its input: a server that heeds it goes by itself.
        if let Some(writing) = writing {
            writing.abort();
        }
        let is_awaited = status.is_none();
        // A group that is gone already is what is wanted.
        let signal = |signal| group.map(|group| kill_process_group(group, signal));
        let mut ended = status;
        for farewell in [None, Some(Signal::TERM)] {
            if ended.is_none() {
                farewell.and_then(signal);
                ended = tokio::time::timeout(GRACE, process.wait()).await.ok();
            }
        }
        // What it has started itself, and itself when it did not go.
        signal(Signal::KILL);
        let status = match ended {
            Some(status) => status,
            None => process.wait().await,
        };
        let how = match &status {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        if is_awaited {
            log::debug(|| format!("stdio server {label}: ended"));
        } else {
            log::warn(|| format!("stdio server {label}: ended by itself, {how}"));
        }
        on_end(Ended {
            status,
            had_long_line,
        });
    });
    let child = Child {
        input,
        _leash: leash,
    };
    Ok((child, lines))
}

async fn write_lines(mut stdin: ChildStdin, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(mut line) = lines.recv().await {
        // Outside strings, where JSON allows them, line ends are white space.
        for byte in &mut line {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        line.push(b'\n');
        if stdin.write_all(&line).await.is_err() {
            return;
        }
    }
}

/// A line was longer than allowed.
#[derive(Debug, PartialEq, Eq)]
struct TooLong;

async fn read_lines(
    source: impl AsyncRead + Unpin,
    bytes_max: usize,
    lines: &mpsc::Sender<Vec<u8>>,
) -> Result<(), TooLong> {
    let mut source = BufReader::with_capacity(16 << 10, source);
    let mut line = Vec::new();
    while let Ok(piece) = source.fill_buf().await {
        if piece.is_empty() {
            break;
        }
        let end = memchr::memchr(b'\n', piece);
        let part = &piece[..end.unwrap_or(piece.len())];
        if line.len() + part.len() > bytes_max {
            return Err(TooLong);
        }
        line.extend_from_slice(part);
        let taken = part.len() + usize::from(end.is_some());
        source.consume(taken);
        if end.is_some() {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            if !line.is_empty() && lines.send(std::mem::take(&mut line)).await.is_err() {
                break;
            }
        }
    }
    Ok(())
}

/// Logs lines; of a long one the beginning, of too many in a second only how many there were.
async fn log_lines(source: impl AsyncRead + Unpin, label: Arc<str>) {
    let mut source = BufReader::new(source);
    let mut line = Vec::new();
    let mut second = (Instant::now(), 0, 0u32);
    while let Ok(piece) = source.fill_buf().await {
        if piece.is_empty() {
            break;
        }
        let end = memchr::memchr(b'\n', piece);
        let part = &piece[..end.unwrap_or(piece.len())];
        let room = LOGGED_BYTES_MAX.saturating_sub(line.len());
        line.extend_from_slice(&part[..part.len().min(room)]);
        let taken = part.len() + usize::from(end.is_some());
        source.consume(taken);
        if end.is_none() {
            continue;
        }
        if second.0.elapsed() >= Duration::from_secs(1) {
            if second.2 > 0 {
                log::info(|| format!("stdio server {label}: {} lines not shown", second.2));
            }
            second = (Instant::now(), 0, 0);
        }
        if second.1 < LOGGED_LINES_MAX {
            second.1 += 1;
            let text = shown(&line);
            if !text.is_empty() {
                log::info(|| format!("stdio server {label}: {text}"));
            }
        } else {
            second.2 += 1;
        }
        line.clear();
    }
}

/// A line as the log may have it: no controls, which could forge lines or colour a terminal.
fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line)
        .trim_end()
        .chars()
        .map(|character| match character {
            control if control.is_control() => '\u{fffd}',
            other => other,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines_of(text: &[u8], bytes_max: usize) -> (Result<(), TooLong>, Vec<String>) {
        let (sender, mut receiver) = mpsc::channel(LINES_MAX);
        let outcome = read_lines(text, bytes_max, &sender).await;
        drop(sender);
        let mut lines = Vec::new();
        while let Some(line) = receiver.recv().await {
            lines.push(String::from_utf8(line).unwrap());
        }
        (outcome, lines)
    }

    #[tokio::test]
    async fn lines_end_with_a_line_feed_and_have_a_bound() {
        let (outcome, lines) = lines_of(b"one\r\n\n two \nthree", 5).await;
        assert_eq!(
            (outcome, lines),
            (Ok(()), vec!["one".into(), " two ".into()])
        );
        let (outcome, lines) = lines_of(b"12345\n123456\n", 5).await;
        assert_eq!((outcome, lines), (Err(TooLong), vec!["12345".into()]));
    }

    #[test]
    fn a_logged_line_has_no_controls() {
        assert_eq!(shown(b"a\x1b[31m\tb \r"), "a\u{fffd}[31m\u{fffd}b");
    }
}
