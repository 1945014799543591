//! The forms in which the gateway may have the reference server, and what is meant to differ.

use crate::{
    support::{Gateway, Plan},
    walk::Revision,
};

/// How the gateway reaches the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Streamable HTTP, the very server that is walked straight.
    Http,
}

/// A gateway in front of the server.
pub(crate) struct Behind {
    /// Its endpoint.
    pub(crate) url: String,
    _gateway: Gateway,
}

impl Form {
    /// A gateway with the server as its one backend; `url` is where it serves Streamable HTTP.
    pub(crate) fn gateway(self, url: &str) -> Behind {
        let (plan, path) = match self {
            Self::Http => (Plan::of(&[("everything", url)]), "/servers/main/mcp"),
        };
        let gateway = plan.start();
        Behind {
            url: format!("http://{}{path}", gateway.address),
            _gateway: gateway,
        }
    }
}

/// The steps, by how their names begin, that are meant to differ.
pub(crate) fn meant(_form: Form, revision: Revision) -> Vec<&'static str> {
    // The gateway looks at levels itself: it remembers them for servers that join late.
    let mut steps = vec!["no such level"];
    if revision.name < "2025-11-25" {
        // What a revision does not know is not offered to its clients.
        steps.push("initialize: capabilities");
    }
    steps
}
