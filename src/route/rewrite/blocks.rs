//! Content blocks: of tool results, of prompts and of conversations (mcp.md 3.1, 3.2).
//!
//! Owns: where a block names a resource. Never: looks at a block's text or data.

use super::{elements, inner, pick};
use crate::{http::Span, mcp::json::says};

/// What a content block holds that the gateway knows.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The URI of a link to a resource, or of an embedded one.
    pub uri: Option<Span>,
    /// The content of a tool's result in a conversation.
    pub inner: Option<Span>,
}

/// The blocks at `content`, which is one block or an array of them.
pub fn contents(document: &[u8], content: Span) -> impl Iterator<Item = Block> {
    let first = content.slice(document).first();
    let one = (first == Some(&b'{')).then_some(content);
    let many = (first == Some(&b'[')).then(|| elements(document, content));
    one.into_iter()
        .chain(many.into_iter().flatten())
        .map(|at| block(document, at))
}

fn block(document: &[u8], at: Span) -> Block {
    let keys = ["type", "uri", "resource", "content"];
    let [kind, uri, resource, content] = pick(document, at, keys);
    let Some(kind) = kind.map(|kind| kind.slice(document)) else {
        return Block::default();
    };
    if says(kind, "resource_link") {
        let inner = None;
        Block { uri, inner }
    } else if says(kind, "resource") {
        let uri = resource.and_then(|resource| inner(document, resource, "uri"));
        Block { uri, inner: None }
    } else if says(kind, "tool_result") {
        let inner = content;
        Block { uri: None, inner }
    } else {
        Block::default()
    }
}
