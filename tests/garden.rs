//! A second opinion on where requests end (reliability contract, section 8, promise 2): mutated
//! streams go to the gateway and to nginx, each in front of a server that records what it is asked.
//!
//! The rule: the calls that our backend gets are, in their order and byte for byte but for the id,
//! among the bodies that nginx passes on for the same stream. Then we neither take what nginx
//! refuses, nor see more requests, nor other ends. What may differ: we refuse more than nginx does
//! (bare line feeds, trailers, headers it leaves out, repeated `Content-Length`), and close after
//! it; what is no call never reaches a backend of ours. Not compared is what nginx refuses against
//! the RFCs: a tab beside the value of `Host` or a framing header (RFC 9110 section 5.6.3), and
//! `OPTIONS *` (RFC 9112 section 3.2.4).
//! `SHARDGATE_GARDEN_COUNT` says how many streams; `scripts/garden --count N` sets it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "support/cases.rs"]
mod cases;
#[path = "smuggling/live.rs"]
mod live;
#[path = "support/mutate.rs"]
mod mutate;
#[path = "support/nginx.rs"]
#[allow(dead_code, reason = "one of its two ways to start")]
mod nginx;
#[path = "support/raw.rs"]
mod raw;
#[path = "support/support.rs"]
mod support;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{Arc, Mutex},
};

use cases::{FILES, cases};
use live::Maker;
use mutate::Mutator;
use nginx::Nginx;
use raw::exchange;
use shardgate::mcp::{
    envelope::scan,
    json::{DEPTH_MAX, splice},
};
use support::{Backend, Gateway, McpClient, Plan};

/// Streams of the short form.
const STREAM_COUNT: usize = 400;
/// Streams of one gateway and one nginx; then new ones start, so that nothing grows for hours.
const ROUND_STREAMS: usize = 10_000;

/// Bodies in the order they came.
type Record = Arc<Mutex<Vec<Vec<u8>>>>;

/// Both readers, each with its recorder.
struct Garden {
    gateway: Gateway,
    _backend: Backend,
    ours: Record,
    session: String,
    nginx: Nginx,
    theirs: Record,
    folder: PathBuf,
}

impl Garden {
    fn new() -> Self {
        let ours = Record::default();
        let backend = Backend::scripted("a", &[], {
            let ours = ours.clone();
            move |asked, _| {
                if asked.is("tools/call") {
                    ours.lock().unwrap().push(asked.body.clone());
                }
                None
            }
        });
        let gateway = Plan::one(&backend)
            .settings(|settings| settings.access.hosts = vec!["a".to_owned()])
            .start();
        let theirs = Record::default();
        let origin = record(theirs.clone());
        let folder = gateway.config_path().with_file_name("nginx");
        std::fs::create_dir_all(&folder).unwrap();
        // A client that has said all it has to say has not left.
        let nginx = Nginx::start_with(&folder, origin, 4, "proxy_ignore_client_abort on;");
        Self {
            session: McpClient::open(&gateway).session,
            gateway,
            _backend: backend,
            ours,
            nginx,
            theirs,
            folder,
        }
    }

    /// Sends a stream to both: the calls that arrived at our backend, and all that nginx passed on.
    fn ask(&self, bytes: &[u8]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        exchange(self.gateway.address, &[bytes], true, None);
        exchange(self.nginx.address, &[bytes], true, None);
        let take = |record: &Record| -> Vec<Vec<u8>> {
            let bodies = std::mem::take(&mut *record.lock().unwrap());
            bodies.iter().map(|body| without_id(body)).collect()
        };
        (take(&self.ours), take(&self.theirs))
    }
}

impl Drop for Garden {
    fn drop(&mut self) {
        // In the gateway's own folder, which is removed with it.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// An origin server that takes everything down: a well-framed request's body, answered by 200.
fn record(record: Record) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Ends with the process; what it listens to is nginx alone.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let record = record.clone();
            std::thread::spawn(move || serve(stream.unwrap(), &record));
        }
    });
    address
}

fn serve(mut stream: TcpStream, record: &Record) -> Option<()> {
    let mut buffer = Vec::new();
    let fill = |buffer: &mut Vec<u8>, stream: &mut TcpStream| -> Option<()> {
        let mut piece = [0; 16 << 10];
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        buffer.extend_from_slice(&piece[..count]);
        Some(())
    };
    loop {
        let head_bytes = loop {
            match memchr::memmem::find(&buffer, b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => fill(&mut buffer, &mut stream)?,
            }
        };
        let head = buffer[..head_bytes].to_ascii_lowercase();
        let length = memchr::memmem::find(&head, b"\r\ncontent-length: ").map_or(0, |at| {
            let digits = head[at + 18..].split(|byte| *byte == b'\r').next().unwrap();
            std::str::from_utf8(digits).unwrap().parse().unwrap()
        });
        while buffer.len() < head_bytes + length {
            fill(&mut buffer, &mut stream)?;
        }
        let body = buffer[head_bytes..head_bytes + length].to_vec();
        buffer.drain(..head_bytes + length);
        record.lock().unwrap().push(body);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .ok()?;
    }
}

/// A message with `0` in the place of its id, which the gateway exchanges.
fn without_id(body: &[u8]) -> Vec<u8> {
    match scan(body, DEPTH_MAX).ok().and_then(|message| message.id) {
        Some(id) => {
            let mut out = Vec::new();
            splice(&mut out, body, &[(id, b"0")]);
            out
        }
        None => body.to_vec(),
    }
}

/// Whether all of `few` stand in `many`, in this order.
fn is_among(few: &[Vec<u8>], many: &[Vec<u8>]) -> bool {
    let mut rest = many.iter();
    few.iter().all(|wanted| rest.any(|body| body == wanted))
}

/// Whether nginx is known to refuse something here that the RFCs allow.
fn is_beyond_nginx(bytes: &[u8]) -> bool {
    bytes.split(|byte| *byte == b'\n').any(|line| {
        let line = line.to_ascii_lowercase();
        let names: [&[u8]; 3] = [b"content-length:", b"transfer-encoding:", b"host:"];
        let has_tab = names.iter().any(|name| line.starts_with(name)) && line.contains(&b'\t');
        has_tab || line.starts_with(b"options * ")
    })
}

/// Live streams of the case files, each with one more call behind it.
fn seeds(session: &str) -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = FILES
        .into_iter()
        .flat_map(cases)
        .map(|case| {
            let mut bytes = Maker::new(session, "case").case(&case.bytes).bytes;
            bytes.extend(Maker::new(session, "last").request());
            bytes
        })
        .filter(|bytes| bytes.len() <= 3000)
        .collect();
    // Most cases are refused; as many plain streams keep the others company.
    for _ in 0..seeds.len() {
        let mut maker = Maker::new(session, "plain");
        seeds.push([maker.request(), maker.request()].concat());
    }
    seeds
}

#[test]
fn nginx_sees_every_request_that_we_see() {
    let count = std::env::var("SHARDGATE_GARDEN_COUNT")
        .map_or(STREAM_COUNT, |count| count.parse().expect("a number"));
    let mut mutator = Mutator::new(0x6a2d);
    let (mut done, mut calls, mut theirs_only) = (0, 0, 0);
    while done < count {
        let garden = Garden::new();
        let seeds = seeds(&garden.session);
        let (ours, theirs) = garden.ask(seeds.last().unwrap());
        assert_eq!((ours.len(), theirs.len()), (2, 2), "a plain stream");
        for _ in 0..ROUND_STREAMS.min(count - done) {
            let bytes = match mutator.below(2) {
                0 => mutator.mutant(&seeds),
                _ => mutator.near_mutant(&seeds),
            };
            let (ours, theirs) = garden.ask(&bytes);
            assert!(
                is_among(&ours, &theirs) || is_beyond_nginx(&bytes),
                "ours: {}, theirs: {}, of b\"{}\"",
                ours.len(),
                theirs.len(),
                bytes.escape_ascii()
            );
            done += 1;
            calls += ours.len();
            theirs_only += theirs.len().saturating_sub(ours.len());
        }
    }
    println!("garden: {done} streams, {calls} calls seen by both, {theirs_only} by nginx alone");
    assert!(calls > done / 10, "only {calls} calls in {done} streams");
    println!("garden disagreements: 0 in {done} streams (0)");
}
