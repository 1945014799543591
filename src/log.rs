//! Log lines: one JSON-free line each on standard error, written by a thread of its own so that no
//! shard ever waits for it. Never a token, a session id, an argument or a result.

use std::{
    io::Write,
    sync::OnceLock,
    time::{SystemTime, UNIX_EPOCH},
};

use crossbeam_channel::{Sender, bounded};

use crate::settings::LogLevel;

/// Lines waiting to be written; more are dropped and counted.
const LINES_MAX: usize = 4096;

struct Logger {
    level: LogLevel,
    lines: Sender<Line>,
    dropped: std::sync::atomic::AtomicU64,
}

enum Line {
    Text(String),
    Flush(Sender<()>),
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// Starts the writing thread. Later calls change nothing; before the first, lines go nowhere.
pub fn start(level: LogLevel) {
    let _ = LOGGER.get_or_init(|| {
        let (lines, waiting) = bounded::<Line>(LINES_MAX);
        let writer = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                let mut stderr = std::io::stderr();
                while let Ok(line) = waiting.recv() {
                    match line {
                        Line::Text(text) => {
                            let _ = writeln!(stderr, "{text}");
                        }
                        Line::Flush(done) => {
                            let _ = done.send(());
                        }
                    }
                }
            });
        // Without the thread the channel is closed and lines are dropped.
        drop(writer);
        Logger {
            level,
            lines,
            dropped: std::sync::atomic::AtomicU64::new(0),
        }
    });
}

/// Writes a line of this level: `text` is fixed or made of numbers and configured names.
pub fn write(level: LogLevel, text: impl FnOnce() -> String) {
    let Some(logger) = LOGGER.get() else { return };
    if level > logger.level {
        return;
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let name = match level {
        LogLevel::Off => return,
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    let line = format!(
        "{}.{:03} {name} {}",
        now.as_secs(),
        now.subsec_millis(),
        text()
    );
    if logger.lines.try_send(Line::Text(line)).is_err() {
        logger
            .dropped
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Waits until all lines so far are written, a second at the most. Not on a shard.
pub fn flush() {
    let Some(logger) = LOGGER.get() else { return };
    let (done, written) = bounded(1);
    if logger.lines.send(Line::Flush(done)).is_ok() {
        let _ = written.recv_timeout(std::time::Duration::from_secs(1));
    }
}

/// What an operator should know.
pub fn info(text: impl FnOnce() -> String) {
    write(LogLevel::Info, text);
}

/// What explains the rest.
pub fn debug(text: impl FnOnce() -> String) {
    write(LogLevel::Debug, text);
}

/// What may break soon.
pub fn warn(text: impl FnOnce() -> String) {
    write(LogLevel::Warn, text);
}

/// What broke.
pub fn error(text: impl FnOnce() -> String) {
    write(LogLevel::Error, text);
}

/// A user's configuration in the store names credentials. The user is not named.
pub fn credential_ignored(shard: shards::ShardId) {
    warn(|| {
        format!(
            "shard {shard}: a user configuration in the store names credentials, which only the \
             local configuration file may: those backends are not used"
        )
    });
}

/// A user's configuration in the store cannot be read. The user is not named: subjects are mail
/// addresses as a rule.
pub fn config_unreadable(shard: shards::ShardId) {
    warn(|| format!("shard {shard}: a user configuration in the store cannot be read"));
}

/// A user's configuration in the store asks for a child process. Said once: there may be many.
pub fn stdio_refused() {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| {
        warn(|| {
            "STDIO backends of user configurations in Redis are skipped: child processes are \
             started only for a local --config-file, with --allow-stdio"
                .to_owned()
        });
    });
}

/// A backend is a server that connects itself, and none can. Said once: there may be many.
pub fn reverse_refused() {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| {
        warn(|| crate::config::user_config::REVERSE_IS_OFF.to_owned());
    });
}
