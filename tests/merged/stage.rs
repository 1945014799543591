//! Two reference servers and one FastMCP server behind one endpoint, with what is sent to each.

use std::sync::Arc;

use shardgate::settings::FailMode;

use crate::{
    between::Recorder,
    conversation::{Answers, Conversation, Heard},
    peers::{Server, Shared},
    support::{Gateway, PATIENCE, Plan},
};

/// The servers' keys.
pub(crate) const KEYS: [&str; 3] = ["a", "b", "f"];
const REVISION: &str = "2025-11-25";
const CAPABILITIES: &str =
    r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}}}"#;

static SERVERS: Shared = Shared::none();

fn start() -> Vec<Server> {
    std::thread::scope(|scope| {
        let everything = [(); 2].map(|()| scope.spawn(Server::everything));
        let fastmcp = Server::rich_fastmcp(false);
        let everything = everything.map(|server| server.join().unwrap());
        everything.into_iter().chain([fastmcp]).collect()
    })
}

/// All that runs.
pub(crate) struct Stage {
    pub(crate) client: Conversation,
    pub(crate) recorders: Vec<Recorder>,
    /// What was not as it should be.
    pub(crate) findings: Vec<String>,
    _gateway: Gateway,
    _servers: Arc<Vec<Server>>,
}

impl Stage {
    /// Starts it, with a client that answers the servers' questions so.
    pub(crate) fn open(answers: impl Fn(&Heard) -> String + Send + Sync + 'static) -> Self {
        Self::open_with_pages(0, answers)
    }

    /// The same with so many items on a page of a list; 0: all of them.
    pub(crate) fn open_with_pages(
        page_items_max: usize,
        answers: impl Fn(&Heard) -> String + Send + Sync + 'static,
    ) -> Self {
        let servers = SERVERS.get(start);
        let recorders: Vec<Recorder> = servers
            .iter()
            .map(|server| Recorder::before(&server.url))
            .collect();
        let backends: Vec<(&str, &str)> = KEYS
            .into_iter()
            .zip(recorders.iter().map(|recorder| recorder.url.as_str()))
            .collect();
        let gateway = Plan::of(&backends)
            .settings(move |settings| {
                settings.limits.page_items_max = page_items_max;
                // A server that is late would be left out.
                settings.upstream.fail_mode = FailMode::Closed;
                settings.timeouts.initialize = PATIENCE;
            })
            .start();
        let url = format!("http://{}/servers/main/mcp", gateway.address);
        let answers: Answers = Arc::new(answers);
        let client = Conversation::open(&url, REVISION, CAPABILITIES, answers);
        Self {
            client,
            recorders,
            findings: Vec::new(),
            _gateway: gateway,
            _servers: servers,
        }
    }

    /// Notes what is not as it should be.
    pub(crate) fn check(&mut self, is_good: bool, what: impl FnOnce() -> String) {
        if !is_good {
            self.findings.push(what());
        }
    }

    /// Asks, and checks that of all servers only `key` was asked for `method`, with `part` in it.
    /// Gives the answer's bytes.
    pub(crate) fn ask_one(&mut self, key: &str, method: &str, params: &str, part: &str) -> Heard {
        for recorder in &self.recorders {
            recorder.take();
        }
        let outcome = self.client.ask(method, params);
        let sent: Vec<String> = self.recorders.iter().map(Recorder::take).collect();
        for (index, sent) in sent.iter().enumerate() {
            let is_asked = sent.contains(&format!(r#""method":"{method}""#));
            let should_be = KEYS[index] == key;
            self.check(is_asked == should_be, || {
                let verb = if is_asked { "was" } else { "was not" };
                format!("{} {verb} asked: {method} {params}", KEYS[index])
            });
            self.check(!should_be || sent.contains(part), || {
                format!("{key} did not get {part}: {method} {params}")
            });
        }
        outcome.reply
    }

    /// Fails with all findings at once.
    #[track_caller]
    pub(crate) fn end(self) {
        let unasked = self.client.close();
        drop(unasked);
        assert!(self.findings.is_empty(), "\n{}", self.findings.join("\n"));
    }
}

/// The key and the server's own name behind a name toward clients.
pub(crate) fn split(name: &str) -> Option<(&'static str, String)> {
    KEYS.into_iter()
        .find_map(|key| Some((key, name.strip_prefix(&format!("{key}-"))?.to_owned())))
}

/// The same of a URI, whose scheme `ui` stays in front.
pub(crate) fn split_uri(uri: &str) -> Option<(&'static str, String)> {
    match uri.strip_prefix("ui://") {
        Some(rest) => split(rest).map(|(key, rest)| (key, format!("ui://{rest}"))),
        None => split(uri),
    }
}
