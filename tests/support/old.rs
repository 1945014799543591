//! A server of the HTTP+SSE transport of revision 2024-11-05 (mcp.md 1.3), in any dialect.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, mpsc},
};

use serde_json::{Value, json};

use crate::support::{Asked, Backend, Wire};

/// How a server spells things.
#[derive(Clone, Copy)]
pub(crate) struct Dialect {
    /// The endpoint event; `{origin}` and `{session}` are replaced.
    pub(crate) endpoint: &'static str,
    /// One message; `{data}` is replaced.
    pub(crate) message: &'static str,
    /// The stream says the answer before the POST is answered.
    pub(crate) is_hasty: bool,
}

/// The usual spelling.
pub(crate) const USUAL: Dialect = Dialect {
    endpoint: "event: endpoint\ndata: /message?sessionId={session}\n\n",
    message: "event: message\ndata: {data}\n\n",
    is_hasty: false,
};

type Streams = Arc<Mutex<HashMap<String, mpsc::Sender<String>>>>;

/// A server of revision 2024-11-05.
pub(crate) struct Old {
    /// What it was asked, and how often it was connected to.
    pub(crate) backend: Backend,
    streams: Streams,
}

impl Old {
    /// One that speaks a dialect.
    pub(crate) fn start(dialect: Dialect) -> Self {
        Self::scripted(dialect, |_, _| None)
    }

    /// The same, where `first` comes first.
    pub(crate) fn scripted(
        dialect: Dialect,
        first: impl Fn(&Asked, &mut Wire<'_>) -> Option<()> + Send + Sync + 'static,
    ) -> Self {
        let streams = Streams::default();
        let backend = Backend::scripted("old", &[], {
            let streams = streams.clone();
            move |asked, wire| {
                if first(asked, wire).is_some() {
                    return Some(());
                }
                if asked.method == "GET" {
                    listen(&streams, dialect, asked, wire);
                } else {
                    take(&streams, dialect, asked, wire);
                }
                Some(())
            }
        });
        Self { backend, streams }
    }

    /// Where its stream is.
    pub(crate) fn url(&self) -> String {
        self.backend.url().replace("/mcp", "/sse?key=1")
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        let url = self.backend.url();
        let (_, rest) = url.rsplit_once(':').unwrap();
        rest.split('/').next().unwrap().parse().unwrap()
    }

    /// Ends the streams.
    pub(crate) fn cut(&self) {
        self.streams.lock().unwrap().clear();
    }

    /// The messages posted so far.
    pub(crate) fn posts(&self) -> Vec<Asked> {
        let mut seen = self.backend.seen();
        seen.retain(|asked| asked.method == "POST");
        seen
    }
}

fn listen(streams: &Streams, dialect: Dialect, asked: &Asked, wire: &mut Wire<'_>) {
    let (sender, receiver) = mpsc::channel();
    let session = {
        let mut streams = streams.lock().unwrap();
        let session = format!("s{}", asked.connection);
        streams.insert(session.clone(), sender);
        session
    };
    wire.stream_head();
    let origin = format!("http://{}", asked.header("host").unwrap());
    let endpoint = dialect.endpoint.replace("{origin}", &origin);
    wire.send(endpoint.replace("{session}", &session));
    while let Ok(message) = receiver.recv() {
        wire.send(dialect.message.replace("{data}", &message));
    }
}

fn take(streams: &Streams, dialect: Dialect, asked: &Asked, wire: &mut Wire<'_>) {
    let session = asked.target.rsplit('=').next().unwrap();
    let Some(sender) = streams.lock().unwrap().get(session).cloned() else {
        return wire.answer(404, "", "");
    };
    if !dialect.is_hasty {
        wire.answer(202, "content-type: text/plain\r\n", "Accepted");
    }
    let id = asked.id();
    let say = |result: Value| {
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        sender.send(answer).unwrap();
    };
    let body = asked.json();
    match asked.rpc_method().as_deref() {
        Some("initialize") => say(json!({
            "protocolVersion": body["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "old", "version": "1"},
        })),
        Some("tools/list") => say(json!({"tools": [
            {"name": "echo", "inputSchema": {"type": "object"}}]})),
        Some("tools/call") if asked.tool().as_deref() == Some("silent") => {}
        Some("tools/call") => {
            if let Some(token) = body["params"]["_meta"].get("progressToken") {
                let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": 1}});
                sender.send(progress.to_string()).unwrap();
            }
            say(
                json!({"content": [{"type": "text", "text": body["params"]["arguments"]["text"]}]}),
            );
        }
        _ => {}
    }
    if dialect.is_hasty {
        wire.answer(202, "content-type: text/plain\r\n", "Accepted");
    }
}
