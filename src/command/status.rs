//! `shardgate status`: how a running gateway is, asked of its admin listener.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    process::ExitCode,
    time::Duration,
};

use serde_json::Value;

use crate::{
    command::{complain, print_notes, refuse, refuse_lines, say},
    settings::{Environment, Flags, Purpose, Settings},
};

/// It answers, but does not serve everything it should.
const EXIT_DEGRADED: u8 = 1;
/// Nobody answers, or somebody else.
const EXIT_UNREACHABLE: u8 = 2;
/// How long the admin listener may take for anything.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of its answer at the most.
const ANSWER_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Prints the state. 0: all is well; 1: something is not; 2: it cannot be reached.
pub(crate) fn run(
    admin: Option<SocketAddr>,
    as_json: bool,
    flags: &Flags,
    environment: &Environment,
) -> ExitCode {
    let address = match admin {
        Some(address) => address,
        // Where the gateway itself would be told to listen.
        None => match Settings::load(flags, environment, Purpose::Token) {
            Ok((settings, notes)) => {
                print_notes(&notes);
                match settings.listen.admin {
                    Some(address) => address,
                    None => {
                        return refuse_lines([
                            "the settings turn the admin listener off".to_owned()
                        ]);
                    }
                }
            }
            Err(faults) => return refuse(&faults),
        },
    };
    let status = match ask(address) {
        Ok(status) => status,
        Err(error) => {
            complain(format_args!("error: {address}: {error}"));
            return ExitCode::from(EXIT_UNREACHABLE);
        }
    };
    if as_json {
        say(format_args!("{status:#}"));
    } else {
        for line in table(&status) {
            say(line);
        }
    }
    if status["is_healthy"] == true {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_DEGRADED)
    }
}

fn ask(address: SocketAddr) -> io::Result<Value> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = format!("GET /status HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    read(&answer).ok_or_else(|| io::Error::other("this is no admin listener of shardgate"))
}

/// The document of a whole answer.
fn read(answer: &[u8]) -> Option<Value> {
    let body_at = memchr::memmem::find(answer, b"\r\n\r\n")? + 4;
    if !answer.starts_with(b"HTTP/1.1 200 ") {
        return None;
    }
    let status: Value = serde_json::from_slice(&answer[body_at..]).ok()?;
    status["is_healthy"].is_boolean().then_some(status)
}

/// The state as lines for people.
fn table(status: &Value) -> Vec<String> {
    let none = Vec::new();
    let rows = |name: &str| status[name].as_array().unwrap_or(&none).iter();
    let state = match (&status["is_draining"], &status["is_ready"]) {
        (Value::Bool(true), _) => "draining",
        (_, Value::Bool(true)) => "ready",
        _ => "not ready",
    };
    let answered = rows("shards").len();
    let mut lines = vec![format!(
        "shardgate {}: {state}, {answered} of {} shards answer, {}",
        text(&status["version"]),
        text(&status["shard_count"]),
        text(&status["driver"]),
    )];
    let mut shards = vec![
        ["shard", "sessions", "connections", "store"]
            .map(str::to_owned)
            .to_vec(),
    ];
    shards.extend(rows("shards").map(|shard| {
        let store = if shard["is_store_ready"] == true {
            "ready"
        } else {
            "away"
        };
        let mut cells: Vec<String> = ["shard", "sessions", "connections"]
            .iter()
            .map(|&name| text(&shard[name]))
            .collect();
        cells.push(store.to_owned());
        cells
    }));
    lines.extend(aligned(&shards));
    let names = [
        "breaker",
        "in_flight",
        "idle",
        "opened",
        "failures",
        "last_fault",
    ];
    let mut backends = vec![
        std::iter::once("backend")
            .chain(names)
            .map(str::to_owned)
            .collect(),
    ];
    backends.extend(rows("backends").map(|backend| {
        let cells = std::iter::once("name").chain(names);
        cells.map(|name| text(&backend[name])).collect()
    }));
    if backends.len() > 1 {
        lines.extend(aligned(&backends));
    } else {
        lines.push("no backend has been asked".to_owned());
    }
    lines
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// Rows of cells as lines with their columns below one another.
fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter()
            .map(|row| row.get(column).map_or(0, String::len))
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let padded: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        format!("  {}", padded.join("  ")).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_one_another() {
        let rows = [["a", "long name"], ["bcd", "1"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(aligned(&rows), ["  a    long name", "  bcd  1"]);
    }

    #[test]
    fn only_an_admin_listener_is_believed() {
        let sound = b"HTTP/1.1 200 OK\r\na: b\r\n\r\n{\"is_healthy\":true}\n";
        assert!(read(sound).is_some());
        for other in [
            &b"HTTP/1.1 404 Not Found\r\n\r\n{\"is_healthy\":true}"[..],
            b"HTTP/1.1 200 OK\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\n\r\n{\"is_healthy\":tr",
            b"SSH-2.0",
            b"",
        ] {
            assert!(read(other).is_none());
        }
    }
}
