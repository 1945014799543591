//! Exchanging names, URIs and ids in the messages of one backend of several (mcp.md 3.4).
//!
//! Owns: which members of which message name something of a backend, toward the client here,
//! toward the backend in `rewrite/original.rs`. What lists hold is exchanged in `merge.rs`.
//! Never: looks into text, arguments or structured content; refuses a message: what has not the
//! form it should have is left as it is.

mod original;

use crate::{
    config::compiled::VirtualHost,
    http::Span,
    mcp::{
        blocks::blocks,
        edits::Edits,
        json::{self, elements_fast, pick},
        reply_scan::{ReplyKind, ReplyScan},
    },
    route::names::{expose_id, expose_uri},
};

pub use original::{original_params, original_related_task, reference};

/// `_meta` key that ties a message to a task.
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// "The client must be sent to a URL first" (revision 2025-11-25).
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// The member `key` of the object at `outer`.
fn inner(document: &[u8], outer: Span, key: &str) -> Option<Span> {
    let [found] = pick(document, outer, [key]);
    found
}

/// Edits of one backend's document.
struct Rewrite<'a> {
    host: &'a VirtualHost,
    backend: usize,
    document: &'a [u8],
    edits: &'a mut Edits,
}

/// Exchanges what the response to `method` names; nothing with a single backend.
pub fn expose_response(
    host: &VirtualHost,
    backend: usize,
    method: &str,
    document: &[u8],
    scan: &ReplyScan,
    edits: &mut Edits,
) {
    if host.is_single {
        return;
    }
    let mut rewrite = Rewrite {
        host,
        backend,
        document,
        edits,
    };
    if let Some(result) = scan.result {
        rewrite.result(method, result);
    }
    if let Some(error) = scan.error {
        rewrite.error(error);
    }
}

/// Exchanges what a backend's request to the client names; nothing with a single backend. Tasks
/// that the client keeps have the client's own ids and stay.
pub fn expose_request(
    host: &VirtualHost,
    backend: usize,
    document: &[u8],
    scan: &ReplyScan,
    edits: &mut Edits,
) {
    debug_assert_eq!(scan.kind, ReplyKind::Request);
    expose_params(host, backend, document, scan, edits);
}

/// Exchanges what a backend's notification names; nothing with a single backend.
pub fn expose_notification(
    host: &VirtualHost,
    backend: usize,
    document: &[u8],
    scan: &ReplyScan,
    edits: &mut Edits,
) {
    debug_assert_eq!(scan.kind, ReplyKind::Notification);
    expose_params(host, backend, document, scan, edits);
}

fn expose_params(
    host: &VirtualHost,
    backend: usize,
    document: &[u8],
    scan: &ReplyScan,
    edits: &mut Edits,
) {
    let (Some(method), Some(params)) = (scan.method, scan.params) else {
        return;
    };
    if host.is_single {
        return;
    }
    let mut rewrite = Rewrite {
        host,
        backend,
        document,
        edits,
    };
    rewrite.params(method.slice(document), params);
}

impl Rewrite<'_> {
    fn result(&mut self, method: &str, result: Span) {
        let keys = ["_meta", "task", "content", "messages", "contents", "taskId"];
        let [meta, task, content, messages, contents, task_id] = pick(self.document, result, keys);
        self.related_task(meta);
        // Any request may be answered with a task in its place.
        if let Some(task) = task {
            self.id(inner(self.document, task, "taskId"));
        }
        match method {
            "tools/call" | "tasks/result" => self.blocks(content),
            "prompts/get" => self.messages(messages),
            "resources/read" => {
                for item in contents
                    .into_iter()
                    .flat_map(|at| elements_fast(self.document, at))
                {
                    self.uri(inner(self.document, item, "uri"));
                }
            }
            "tasks/get" | "tasks/cancel" => self.id(task_id),
            _ => {}
        }
    }

    fn error(&mut self, error: Span) {
        let Some(data) = inner(self.document, error, "data") else {
            return;
        };
        let [uri, elicitations] = pick(self.document, data, ["uri", "elicitations"]);
        self.uri(uri);
        if let Some(list) = elicitations
            && inner(self.document, error, "code").is_some_and(|code| {
                code.slice(self.document) == URL_ELICITATION_REQUIRED.to_string().as_bytes()
            })
        {
            for elicitation in elements_fast(self.document, list) {
                self.id(inner(self.document, elicitation, "elicitationId"));
            }
        }
    }

    fn params(&mut self, method: &[u8], params: Span) {
        let keys = ["_meta", "messages", "uri", "taskId", "elicitationId"];
        let [meta, messages, uri, task_id, elicitation_id] = pick(self.document, params, keys);
        self.related_task(meta);
        match method {
            b"sampling/createMessage" => self.messages(messages),
            b"elicitation/create" | b"notifications/elicitation/complete" => {
                self.id(elicitation_id);
            }
            b"notifications/resources/updated" => self.uri(uri),
            b"notifications/tasks/status" => self.id(task_id),
            _ => {}
        }
    }

    fn messages(&mut self, messages: Option<Span>) {
        for message in messages
            .into_iter()
            .flat_map(|at| elements_fast(self.document, at))
        {
            self.blocks(inner(self.document, message, "content"));
        }
    }

    /// One content block, or an array of them.
    fn blocks(&mut self, content: Option<Span>) {
        for block in content.into_iter().flat_map(|at| blocks(self.document, at)) {
            self.uri(block.uri);
            // The result of a tool in a conversation holds blocks, but no further results.
            for block in block
                .content
                .into_iter()
                .flat_map(|at| blocks(self.document, at))
            {
                self.uri(block.uri);
            }
        }
    }

    fn related_task(&mut self, meta: Option<Span>) {
        if let Some(task) = meta.and_then(|meta| inner(self.document, meta, RELATED_TASK)) {
            self.id(inner(self.document, task, "taskId"));
        }
    }

    fn uri(&mut self, at: Option<Span>) {
        let Some(at) = at else { return };
        if let Some(uri) = json::unescape(at.slice(self.document)) {
            let exposed = expose_uri(self.host, self.backend, &uri);
            self.edits.put_text(at, &exposed);
        }
    }

    fn id(&mut self, at: Option<Span>) {
        let Some(at) = at else { return };
        if let Some(id) = json::unescape(at.slice(self.document)) {
            let exposed = expose_id(self.host, self.backend, &id);
            self.edits.put_text(at, &exposed);
        }
    }
}

#[cfg(test)]
mod tests;
