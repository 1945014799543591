//! Content blocks: of tool results, of prompts and of conversations (mcp.md 3.1, 3.2).
//!
//! Owns: of which kind a block is and where it names a resource.
//! Never: looks at a block's text or data.

use crate::{
    http::Span,
    mcp::json::{elements_fast, pick, says},
};

/// The kinds of blocks that the gateway tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// `audio`, since revision 2025-03-26.
    Audio,
    /// `resource_link`, since revision 2025-06-18.
    Link,
    /// `resource`, an embedded one.
    Resource,
    /// `tool_result` of a conversation, since revision 2025-11-25.
    ToolResult,
    /// Anything else.
    Other,
}

/// One content block; spans count from the start of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The whole block.
    pub at: Span,
    /// What it is.
    pub kind: BlockKind,
    /// The URI of a link or of an embedded resource.
    pub uri: Option<Span>,
    /// The content of a `tool_result`.
    pub content: Option<Span>,
}

/// The blocks at `content`, which is one block or an array of them. Malformed ones are left out.
pub fn blocks(document: &[u8], content: Span) -> impl Iterator<Item = Block> {
    let first = content.slice(document).first();
    let one = (first == Some(&b'{')).then_some(content);
    let many = (first == Some(&b'[')).then(|| elements_fast(document, content));
    one.into_iter()
        .chain(many.into_iter().flatten())
        .filter_map(|at| block(document, at))
}

fn block(document: &[u8], at: Span) -> Option<Block> {
    let keys = ["type", "uri", "resource", "content"];
    let [kind, uri, resource, content] = pick(document, at, keys);
    let kind = kind_of(kind?.slice(document));
    let uri = match kind {
        BlockKind::Link => uri,
        BlockKind::Resource => {
            let [uri] = pick(document, resource?, ["uri"]);
            uri
        }
        _ => None,
    };
    let content = content.filter(|_| kind == BlockKind::ToolResult);
    Some(Block {
        at,
        kind,
        uri,
        content,
    })
}

fn kind_of(lexeme: &[u8]) -> BlockKind {
    [
        ("audio", BlockKind::Audio),
        ("resource_link", BlockKind::Link),
        ("resource", BlockKind::Resource),
        ("tool_result", BlockKind::ToolResult),
    ]
    .into_iter()
    .find(|(name, _)| says(lexeme, name))
    .map_or(BlockKind::Other, |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(content: &str) -> Vec<(BlockKind, Option<&str>)> {
        let whole = Span {
            start: 0,
            end: content.len() as u32,
        };
        let text = |at: Span| &content[at.start as usize..at.end as usize];
        blocks(content.as_bytes(), whole)
            .map(|block| (block.kind, block.uri.or(block.content).map(text)))
            .collect()
    }

    #[test]
    fn blocks_are_told_apart_alone_and_in_arrays() {
        let link = (BlockKind::Link, Some(r#""a""#));
        assert_eq!(found(r#"{"type":"resource_link","uri":"a"}"#), [link]);
        assert_eq!(
            found(
                r#"[{"uri":"a","type":"resource\u005flink"},{"type":"text","uri":"b"},
                {"type":"resource","uri":"c","resource":{"uri":"d"}},{"type":"audio"},
                {"type":"tool_result","content":[1]},{"type":7},{},3,{"type":"resource"}]"#
            ),
            [
                link,
                (BlockKind::Other, None),
                (BlockKind::Resource, Some(r#""d""#)),
                (BlockKind::Audio, None),
                (BlockKind::ToolResult, Some("[1]")),
                (BlockKind::Other, None),
            ]
        );
        for none in ["", "7", "null", r#""resource_link""#, "[", "{"] {
            assert_eq!(found(none), [], "{none}");
        }
        // What comes before a fault is still found.
        assert_eq!(found(r#"[{"type":"resource_link","uri":"a"},{"#), [link]);
    }
}
