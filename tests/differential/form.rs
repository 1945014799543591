//! The forms in which the gateway may have the reference server, and what is meant to differ.

use serde_json::json;
use shardgate::settings::FailMode;

use crate::{
    peers::{Server, program},
    support::{Gateway, PATIENCE, Plan},
    walk::Revision,
};

/// How the gateway reaches the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Streamable HTTP, the very server that is walked straight.
    Http,
    /// HTTP+SSE as of 2024-11-05.
    Sse,
    /// A child process.
    Stdio,
}

/// A gateway in front of the server.
pub(crate) struct Behind {
    /// Its endpoint.
    pub(crate) url: String,
    _gateway: Gateway,
    _server: Option<Server>,
}

impl Form {
    /// A gateway with the server as its one backend; `url` is where it serves Streamable HTTP.
    pub(crate) fn gateway(self, url: &str) -> Behind {
        let (entry, server) = match self {
            Self::Http => (json!({"type": "http", "url": url}), None),
            Self::Sse => {
                let server = Server::everything_sse();
                (json!({"type": "sse", "url": server.url}), Some(server))
            }
            Self::Stdio => {
                let (program, path) = program("mcp-server-everything");
                let entry = json!({"command": program, "args": ["stdio"], "env": {"PATH": path}});
                (entry, None)
            }
        };
        let plan = Plan::document(json!({"mcpServers": {"everything": entry}}));
        let gateway = plan
            .settings(|settings| {
                settings.upstream.allow_stdio = true;
                // A server that is late would be left out, and several start at once here.
                settings.upstream.fail_mode = FailMode::Closed;
                settings.timeouts.initialize = PATIENCE;
            })
            .start();
        Behind {
            url: format!("http://{}/mcp", gateway.address),
            _gateway: gateway,
            _server: server,
        }
    }
}

/// The steps with `server-everything`, by how their names begin, that are meant to differ.
pub(crate) fn meant(form: Form, revision: Revision) -> Vec<&'static str> {
    // The gateway looks at levels itself: it remembers them for servers that join late.
    let mut steps = vec!["no such level"];
    if revision.name < "2025-11-25" {
        // What a revision does not know is not offered to its clients.
        steps.push("initialize: capabilities");
    }
    if form != Form::Http {
        // Another process, with variables of its own.
        steps.push("get-env");
    }
    steps
}
