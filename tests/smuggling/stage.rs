//! A gateway with a recording backend: streams go in, and in the end the backend has to have seen
//! exactly the calls that the verdicts let through.

use std::{collections::BTreeMap, net::SocketAddr};

use shardgate::http::{HeadLimits, Parsed, parse_request};

use crate::{
    cases::{Case, FILES, cases},
    live::{Live, Maker, call_body},
    raw::{exchange, statuses},
    support::{Asked, Backend, Gateway, McpClient, Plan},
};

/// The limits the case files are written for.
pub(crate) const LIMITS: HeadLimits = HeadLimits {
    head_bytes_max: 16 << 10,
    header_count_max: 64,
    target_bytes_max: 4 << 10,
    body_bytes_max: 1 << 20,
};
/// All that a backend gets to see of a request's head (`upstream/request.rs`).
const SENT_HEADERS: [&str; 8] = [
    "accept",
    "accept-encoding",
    "content-length",
    "content-type",
    "host",
    "mcp-protocol-version",
    "mcp-session-id",
    "user-agent",
];

/// A gateway, a session in it, and what its backend has to have seen in the end.
pub(crate) struct Stage {
    gateway: Gateway,
    backend: Backend,
    /// The session's id.
    pub(crate) session: String,
    address: SocketAddr,
    /// The marks of the calls that each stream must bring to the backend.
    pub(crate) expected: BTreeMap<String, Vec<String>>,
}

impl Stage {
    /// A new one, with the limits of the case files.
    pub(crate) fn new() -> Self {
        let backend = Backend::start("a", &[]);
        let mut hosts: Vec<String> = FILES.into_iter().flat_map(cases).filter_map(host).collect();
        hosts.push("a".to_owned());
        let gateway = Plan::one(&backend)
            .settings(move |settings| {
                settings.limits.head_bytes_max = LIMITS.head_bytes_max;
                settings.limits.header_count_max = LIMITS.header_count_max;
                settings.limits.target_bytes_max = LIMITS.target_bytes_max;
                settings.limits.body_bytes_max = usize::try_from(LIMITS.body_bytes_max).unwrap();
                settings.access.hosts = hosts;
            })
            .start();
        Self {
            session: McpClient::open(&gateway).session,
            address: gateway.address,
            gateway,
            backend,
            expected: BTreeMap::new(),
        }
    }

    /// The call that follows a stream, with headers that nobody behind us may see.
    fn last_call(&self, stream: &str) -> Vec<u8> {
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: a\r\n{}Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\n\
             Keep-Alive: timeout=9\r\nTE: trailers\r\nTrailer: X-Sum\r\nProxy-Connection: close\r\n\
             Cookie: a=b\r\nX-Forwarded-For: 10.0.0.1\r\nAuthorization: Basic Og==\r\n\
             Content-Length: 555\r\n\r\n",
            Maker::new(&self.session, stream).headers()
        );
        [head.into_bytes(), call_body(stream, "last")].concat()
    }

    /// Sends a stream in these pieces, with a call behind it unless the verdict is that the stream
    /// ends inside a request, and checks what is answered.
    pub(crate) fn play(
        &mut self,
        stream: &str,
        verdict: &str,
        live: &Live,
        is_served: bool,
        cut: &[usize],
    ) {
        let is_cut = verdict.ends_with("cut");
        let is_kept = verdict.starts_with("ok") && !verdict.contains('+');
        let mut bytes = live.bytes.clone();
        if !is_cut {
            bytes.extend(self.last_call(stream));
        }
        let mut pieces = Vec::new();
        let mut from = 0;
        for to in cut.iter().copied().chain([bytes.len()]) {
            pieces.push(&bytes[from..to]);
            from = to;
        }
        let mark = format!("\"id\":\"{stream}/last\"");
        let heard = exchange(
            self.address,
            &pieces,
            is_cut,
            is_kept.then_some(mark.as_bytes()),
        );
        let statuses = statuses(&heard);
        let (taken, end) = match verdict.strip_prefix("ok") {
            None => (0, verdict),
            Some(rest) => {
                let (count, end) = rest.split_once('+').unwrap_or((rest, ""));
                (count.parse().unwrap_or(1), end)
            }
        };
        if let Ok(status) = end.parse::<u16>() {
            assert_eq!(statuses.last(), Some(&status), "{stream}: {verdict}");
            assert_eq!(statuses.len(), taken + 1, "{stream}: {verdict}");
        } else {
            let answers = taken + usize::from(is_kept);
            assert_eq!(statuses.len(), answers, "{stream}: {verdict}: {statuses:?}");
        }
        let has_last = memchr::memmem::find(&heard, mark.as_bytes()).is_some();
        assert_eq!(has_last, is_kept, "{stream}: {verdict}");
        let arrives = if is_served {
            taken.min(live.call_count)
        } else {
            0
        };
        let mut marks: Vec<String> = (0..arrives).map(|mark| mark.to_string()).collect();
        if is_kept {
            marks.push("last".to_owned());
        }
        self.expected.insert(stream.to_owned(), marks);
    }

    /// Ends the gateway, after which nothing more can come, and compares.
    pub(crate) fn finish(self) {
        assert!(self.gateway.stop());
        let mut found: BTreeMap<String, Vec<String>> = self
            .expected
            .keys()
            .map(|stream| (stream.clone(), Vec::new()))
            .collect();
        for asked in self.backend.seen() {
            check_framing(&asked);
            if asked.is("tools/call") {
                let mark = asked.json()["params"]["arguments"]["mark"].clone();
                let (stream, mark) = mark.as_str().unwrap().split_once('/').unwrap();
                found
                    .get_mut(stream)
                    .expect("a known stream")
                    .push(mark.to_owned());
            } else {
                let is_ours = asked.is("initialize") || asked.is("notifications/initialized");
                assert!(is_ours || asked.method == "DELETE", "{asked:?}");
            }
        }
        for (stream, marks) in &self.expected {
            assert_eq!(&found[stream], marks, "{stream}");
        }
    }
}

/// The host that a case is for, when its head is well-formed.
fn host(case: Case) -> Option<String> {
    match parse_request(&case.bytes, &LIMITS) {
        Ok(Parsed::Complete(head)) => {
            let host = head.host?.slice(&case.bytes);
            Some(std::str::from_utf8(host).unwrap().to_owned())
        }
        _ => None,
    }
}

/// The request is framed by a length and nothing else, and nothing of the client's head is in it.
fn check_framing(asked: &Asked) {
    assert_eq!(asked.target, "/mcp");
    for (name, value) in asked.headers.iter() {
        assert!(SENT_HEADERS.contains(&name.as_str()), "{name}: {value}");
    }
    assert!(
        matches!(asked.method.as_str(), "POST" | "DELETE"),
        "{}",
        asked.method
    );
    let length = asked.header("content-length").map(str::to_owned);
    let expected = (asked.method == "POST").then(|| asked.body.len().to_string());
    assert_eq!(length, expected);
}
