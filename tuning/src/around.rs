//! Asks what stands around the gateway: Redis a few commands, backends one `initialize`.
//!
//! Blocking, with a time limit on every step and a bound on every answer. Speaks plain text only:
//! where TLS is, a connection is all that is tried.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    thread,
    time::{Duration, Instant, SystemTime},
};

const STEP_MAX: Duration = Duration::from_secs(2);
const PINGS: usize = 100;
/// The longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Backends that are asked at the same time.
const ASKED_AT_ONCE: usize = 16;

/// What the caller knows about the configuration documents.
#[derive(Debug, Clone, Default)]
pub struct Documents {
    /// Backends: a name to tell, and the URL.
    pub backends: Vec<(String, String)>,
    /// What makes a document useless.
    pub faults: Vec<String>,
    /// What is odd about a document.
    pub findings: Vec<String>,
    /// Files that every user of the host may read.
    pub open_to_others: Vec<String>,
}

/// What Redis told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RedisFacts {
    pub(crate) pings: usize,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) version: Option<String>,
    pub(crate) eviction: Option<String>,
    pub(crate) clock_skew_ms: Option<u64>,
}

/// How a backend answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// `initialize` was answered by a server of this name and version.
    Speaks { server: String, took: Duration },
    /// It takes connections; more was not tried.
    Connects { took: Duration },
    /// It answered with another status than 200.
    Refuses { status: u16 },
    /// No answer.
    Fails(String),
}

/// A backend and its answer.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) name: String,
    pub(crate) answer: Answer,
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, STEP_MAX) {
            Ok(stream) => {
                stream.set_read_timeout(Some(STEP_MAX))?;
                stream.set_write_timeout(Some(STEP_MAX))?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Asks Redis at `HOST:PORT`.
pub(crate) fn ask_redis(address: &str) -> Result<RedisFacts, String> {
    let tell = |error: io::Error| error.to_string();
    let mut redis = Redis(BufReader::new(connect(address).map_err(tell)?));
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let asked_at = Instant::now();
        match redis.ask(&["PING"]).map_err(tell)?.as_slice() {
            [pong] if pong == "PONG" => times.push(asked_at.elapsed()),
            [other, ..] => return Err(format!("PING is answered with {}", shown(other))),
            [] => return Err("PING is answered with nothing".to_owned()),
        }
    }
    times.sort_unstable();
    let at = |percent: usize| {
        times
            .get((times.len() * percent).div_ceil(100).max(1) - 1)
            .copied()
    };
    let info = redis.ask(&["INFO", "server"]).map_err(tell)?;
    let policy = redis
        .ask(&["CONFIG", "GET", "maxmemory-policy"])
        .map_err(tell)?;
    let time = redis.ask(&["TIME"]).map_err(tell)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Ok(RedisFacts {
        pings: times.len(),
        p50: at(50).unwrap_or_default(),
        p99: at(99).unwrap_or_default(),
        version: info
            .first()
            .and_then(|text| {
                text.lines()
                    .find_map(|line| line.strip_prefix("redis_version:"))
            })
            .map(|version| shown(version.trim())),
        eviction: policy.get(1).map(|policy| shown(policy)),
        clock_skew_ms: now.ok().and_then(|now| skew_ms(&time, now)),
    })
}

fn skew_ms(time: &[String], now: Duration) -> Option<u64> {
    let [seconds, micros] = time else { return None };
    let theirs = Duration::from_secs(seconds.parse().ok()?)
        .checked_add(Duration::from_micros(micros.parse().ok()?))?;
    u64::try_from(theirs.abs_diff(now).as_millis()).ok()
}

/// What others wrote, fit for a terminal.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(60).collect()
}

/// A connection that speaks RESP 2, as far as the commands above need it.
struct Redis(BufReader<TcpStream>);

impl Redis {
    /// The texts of the answer; those of an error are none.
    fn ask(&mut self, words: &[&str]) -> io::Result<Vec<String>> {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(command.as_bytes())?;
        read_reply(&mut self.0)
    }
}

fn read_reply(from: &mut impl BufRead) -> io::Result<Vec<String>> {
    let line = read_line(from)?;
    let odd = || io::Error::other("an answer that is not Redis");
    let (kind, rest) = line.split_at_checked(1).ok_or_else(odd)?;
    let length = || rest.parse::<i64>().map_err(|_| odd());
    match kind {
        "+" | ":" => Ok(vec![rest.to_owned()]),
        "-" if rest.starts_with("NOAUTH") => Err(io::Error::other("it asks for a password")),
        "-" => Ok(Vec::new()),
        "$" => Ok(read_text(from, length()?)?.into_iter().collect()),
        "*" => {
            let mut texts = Vec::new();
            for _ in 0..length()?.clamp(0, 64) {
                let line = read_line(from)?;
                match line.split_at_checked(1).ok_or_else(odd)? {
                    ("+" | ":", text) => texts.push(text.to_owned()),
                    ("$", length) => {
                        let length = length.parse().map_err(|_| odd())?;
                        texts.push(read_text(from, length)?.unwrap_or_default());
                    }
                    _ => return Err(odd()),
                }
            }
            Ok(texts)
        }
        _ => Err(odd()),
    }
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

fn read_text(from: &mut impl BufRead, length: i64) -> io::Result<Option<String>> {
    let Ok(length) = usize::try_from(length) else {
        return Ok(None);
    };
    if length as u64 > ANSWER_BYTES_MAX {
        return Err(io::Error::other("an answer that is too long"));
    }
    let mut bytes = vec![0; length + 2];
    from.read_exact(&mut bytes)?;
    bytes.truncate(length);
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Asks all backends, some at a time, in the order they were given.
pub(crate) fn ask_backends(backends: &[(String, String)]) -> Vec<Asked> {
    let mut all = Vec::with_capacity(backends.len());
    for some in backends.chunks(ASKED_AT_ONCE) {
        thread::scope(|scope| {
            let asking: Vec<_> = some
                .iter()
                .map(|(name, url)| (name, scope.spawn(move || ask_backend(url))))
                .collect();
            all.extend(asking.into_iter().map(|(name, asking)| {
                Asked {
                    name: shown(name),
                    answer: asking
                        .join()
                        .unwrap_or_else(|_| Answer::Fails("could not be asked".to_owned())),
                }
            }));
        });
    }
    all
}

fn ask_backend(url: &str) -> Answer {
    let fails = |fault: &dyn fmt::Display| Answer::Fails(fault.to_string());
    let Some((scheme, rest)) = url.split_once("://") else {
        return fails(&"its URL has no scheme");
    };
    let (authority, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, "/"),
    };
    let is_plain = scheme == "http";
    let has_port = authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let address = match (has_port, is_plain) {
        (true, _) => authority.to_owned(),
        (false, true) => format!("{authority}:80"),
        (false, false) => format!("{authority}:443"),
    };
    let asked_at = Instant::now();
    let stream = match connect(&address) {
        Ok(stream) => stream,
        Err(error) => return fails(&error),
    };
    if !is_plain {
        return Answer::Connects {
            took: asked_at.elapsed(),
        };
    }
    initialize(stream, authority, path).map_or_else(
        |error| fails(&error),
        |answer| match answer {
            (200, body) => Answer::Speaks {
                server: server_name(&body),
                took: asked_at.elapsed(),
            },
            (status, _) => Answer::Refuses { status },
        },
    )
}

/// Sends `initialize` and, when a session was opened, ends it.
fn initialize(mut stream: TcpStream, authority: &str, path: &str) -> io::Result<(u16, String)> {
    let body = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
        r#""capabilities":{},"clientInfo":{"name":"shardgate-tune","version":"1"}}}"#
    );
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes())?;
    let mut answer = Vec::new();
    let mut reader = BufReader::new(&stream).take(ANSWER_BYTES_MAX);
    let end = Instant::now() + STEP_MAX;
    // A server that keeps the stream open has said what is wanted once a name was read.
    while Instant::now() < end && !has_server(&answer) {
        if reader.read_until(b'\n', &mut answer)? == 0 {
            break;
        }
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .ok_or_else(|| io::Error::other("an answer that is not HTTP"))?;
    let status = head
        .split_whitespace()
        .nth(1)
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| io::Error::other("an answer that is not HTTP"))?;
    if let Some(session) = header(head, "mcp-session-id") {
        // Only courtesy: the server ends it by itself some day.
        if let Ok(mut stream) = stream.peer_addr().and_then(TcpStream::connect) {
            let _ = stream.write_all(
                format!(
                    "DELETE {path} HTTP/1.1\r\nHost: {authority}\r\nMcp-Session-Id: {session}\r\n\
                     Connection: close\r\n\r\n"
                )
                .as_bytes(),
            );
            let _ = stream.set_read_timeout(Some(STEP_MAX));
            let _ = stream.read(&mut [0; 256]);
        }
    }
    Ok((status, body.to_owned()))
}

fn has_server(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    text.split_once("\r\n\r\n")
        .is_some_and(|(_, body)| json(body).is_some())
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (known, value) = line.split_once(':')?;
        known.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

/// The JSON object of a body, whether it stands alone, in an event or between chunk sizes.
fn json(body: &str) -> Option<serde_json::Value> {
    let text = &body[body.find('{')?..];
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    values.next()?.ok()
}

fn server_name(body: &str) -> String {
    let value = json(body).unwrap_or_default();
    let info = &value["result"]["serverInfo"];
    let word = |name: &str| info[name].as_str().unwrap_or("?").to_owned();
    shown(&format!("({} {})", word("name"), word("version")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::TcpListener;

    fn server(answers: Vec<&'static str>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut seen = Vec::new();
                let mut buffer = [0; 4096];
                while !seen.windows(4).any(|four| four == b"\r\n\r\n") {
                    let count = stream.read(&mut buffer).unwrap();
                    seen.extend_from_slice(&buffer[..count]);
                }
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    #[test]
    fn a_backend_that_speaks_is_named_and_its_session_ended() {
        let address = server(vec![
            "HTTP/1.1 200 OK\r\nMcp-Session-Id: s\r\n\r\ndata: {\"result\":{\"serverInfo\":\
             {\"name\":\"a\",\"version\":\"2\"}}}\n\n",
            "HTTP/1.1 200 OK\r\n\r\n",
        ]);
        let answer = ask_backend(&format!("http://{address}/mcp"));
        assert!(matches!(answer, Answer::Speaks { server, .. } if server == "(a 2)"));
    }

    #[test]
    fn backends_that_do_not_speak_say_why() {
        let refusing = server(vec!["HTTP/1.1 404 Not Found\r\n\r\n"]);
        let free = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let asked = ask_backends(&[
            ("a".to_owned(), format!("http://{refusing}/mcp")),
            ("b".to_owned(), format!("http://{free}/mcp")),
            ("c".to_owned(), "nothing".to_owned()),
        ]);
        assert_eq!(asked[0].answer, Answer::Refuses { status: 404 });
        assert!(matches!(asked[1].answer, Answer::Fails(_)));
        assert!(matches!(asked[2].answer, Answer::Fails(_)));
        assert_eq!(asked[2].name, "c");
    }

    #[test]
    fn clocks_are_compared_in_both_directions() {
        let time = ["100".to_owned(), "500000".to_owned()];
        assert_eq!(skew_ms(&time, Duration::from_millis(100_400)), Some(100));
        assert_eq!(skew_ms(&time, Duration::from_millis(101_000)), Some(500));
        assert_eq!(skew_ms(&time[..1], Duration::ZERO), None);
    }

    #[test]
    fn replies_of_redis() {
        let reply = |text: &str| read_reply(&mut text.as_bytes()).map_err(|e| e.to_string());
        assert_eq!(reply("+PONG\r\n").unwrap(), ["PONG"]);
        assert_eq!(reply("*2\r\n$1\r\na\r\n$2\r\nbc\r\n").unwrap(), ["a", "bc"]);
        assert!(reply("-ERR unknown\r\n").unwrap().is_empty());
        assert!(reply("-NOAUTH x\r\n").unwrap_err().contains("password"));
        assert!(reply("HTTP/1.1 400\r\n").is_err());
    }

    proptest! {
        #[test]
        fn no_answer_breaks_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_reply(&mut bytes.as_slice());
            let _ = json(&String::from_utf8_lossy(&bytes));
        }
    }
}
