//! One declared tool, judged and compiled: shared by all shards.

use std::time::Duration;

use super::{list::Descriptors, retry::RetryPolicy, routing::Routing};
use crate::{
    config::credential::BackendAuth,
    schema::{InputSchema, OutputSchema},
};

/// A declared tool.
#[derive(Debug)]
pub struct Tool {
    /// Its name, as clients see it.
    pub name: Box<str>,
    /// For people.
    pub title: Option<Box<str>>,
    /// For models.
    pub description: Box<str>,
    /// What access rules know it by (dual-profile.md 3.6).
    pub endpoint: Box<str>,
    /// What it takes.
    pub input: InputSchema,
    /// What it gives, when that is declared.
    pub output: Option<OutputSchema>,
    /// What is behind it.
    pub kind: Kind,
    /// What it may do to the world.
    pub safety: Safety,
    /// Time for one attempt of a call; `None`: the limit of all backends.
    pub timeout: Option<Duration>,
    /// When it may be tried again.
    pub retry: Option<RetryPolicy>,
    /// The gateway's own credential for it, named, of local files only.
    pub auth: Option<BackendAuth>,
    pub(super) descriptors: Descriptors,
}

/// What a tool may do, as far as its declaration tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Safety {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// It may destroy something.
    pub destructive: Option<bool>,
    /// Twice is as once.
    pub idempotent: Option<bool>,
}

/// What is behind a tool.
#[derive(Debug)]
pub enum Kind {
    /// An HTTP API.
    Http(Box<HttpRoute>),
    /// A tool of a backend of the same virtual host.
    Mcp(McpRoute),
}

/// How to call an HTTP API.
#[derive(Debug)]
pub struct HttpRoute {
    /// Absolute address of the server and what stands before every path.
    pub base: url::Url,
    /// Request method, upper case.
    pub method: &'static str,
    /// It may lead to this host and its networks.
    pub allows_private: bool,
    pub(super) routing: Routing,
}

/// Which tool of which backend.
#[derive(Debug)]
pub struct McpRoute {
    /// The backend's key.
    pub backend: Box<str>,
    /// The tool's name there.
    pub tool: Box<str>,
    /// It needs no state of an earlier call.
    pub is_session_independent: bool,
}

impl Tool {
    /// The HTTP route, if it has one.
    #[must_use]
    pub fn http(&self) -> Option<&HttpRoute> {
        match &self.kind {
            Kind::Http(route) => Some(route),
            Kind::Mcp(_) => None,
        }
    }

    /// The route to a backend's tool, if it has one.
    #[must_use]
    pub fn mcp(&self) -> Option<&McpRoute> {
        match &self.kind {
            Kind::Http(_) => None,
            Kind::Mcp(route) => Some(route),
        }
    }
}
