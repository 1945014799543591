//! Which arguments of a stateless backend's tools are mirrored in headers, as its own lists tell
//! (SEP-2243).
//!
//! What a tool wants mirrored can only be known from its schema, so a backend's tools are listed
//! before the first of them is called; the lists that clients ask for keep it fresh.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use crate::mcp::{
    header_schema::{ParamHeader, param_headers},
    json,
};

/// Tools of one backend with mirrored arguments at the most.
const TOOLS_MAX: usize = 4096;

/// What is known of one backend's tools.
#[derive(Debug, Default)]
pub struct Mirrored(RefCell<Known>);

#[derive(Debug, Default)]
struct Known {
    tools: HashMap<Box<str>, Rc<[ParamHeader]>, foldhash::fast::RandomState>,
    /// Until when it is the whole truth, ms; 0: never read.
    fresh_until_ms: u64,
}

impl Mirrored {
    /// Whether the tools have to be listed before one is called.
    pub fn is_stale(&self, now_ms: u64) -> bool {
        self.0.borrow().fresh_until_ms <= now_ms
    }

    /// The mirrored arguments of a tool, by the backend's own name.
    pub fn of(&self, tool: &str) -> Option<Rc<[ParamHeader]>> {
        self.0.borrow().tools.get(tool).cloned()
    }

    /// A new list begins, which holds until then.
    pub fn begin(&self, fresh_until_ms: u64) {
        let mut known = self.0.borrow_mut();
        known.tools.clear();
        known.fresh_until_ms = fresh_until_ms;
    }

    /// Takes in one page of the tools, a raw array.
    pub fn read(&self, tools: &[u8]) {
        let mut known = self.0.borrow_mut();
        for tool in json::elements(tools).map_while(Result::ok) {
            let tool = tool.slice(tools);
            let Some((name, headers)) = headers_of(tool) else {
                continue;
            };
            if !headers.is_empty() && known.tools.len() < TOOLS_MAX {
                known.tools.insert(name, headers.into());
            }
        }
    }
}

fn headers_of(tool: &[u8]) -> Option<(Box<str>, Vec<ParamHeader>)> {
    let schema = json::member(tool, "inputSchema")?.slice(tool);
    let headers = param_headers(schema).ok()?;
    if headers.is_empty() {
        return None;
    }
    let name = json::unescape(json::member(tool, "name")?.slice(tool))?;
    Some((name.into(), headers))
}

/// Whether a tool's marks are in order; one whose are not must not be offered (mcp.md 2.2).
pub fn is_valid(tool: &[u8]) -> bool {
    let schema = json::member(tool, "inputSchema");
    schema.is_none_or(|schema| param_headers(schema.slice(tool)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_teach_what_is_mirrored() {
        let mirrored = Mirrored::default();
        assert!(mirrored.is_stale(0));
        mirrored.begin(10);
        mirrored.read(
            br#"[{"name":"a","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"R"}}}},
                {"name":"b","inputSchema":{"type":"object"}},{"name":"c"},
                {"name":"d","inputSchema":{"x-mcp-header":"R"}}]"#,
        );
        assert!(!mirrored.is_stale(9) && mirrored.is_stale(10));
        assert_eq!(mirrored.of("a").unwrap().len(), 1);
        assert!(mirrored.of("b").is_none() && mirrored.of("d").is_none());
        assert!(!is_valid(
            br#"{"name":"d","inputSchema":{"x-mcp-header":"R"}}"#
        ));
        assert!(is_valid(br#"{"name":"c"}"#));
        mirrored.begin(20);
        assert!(mirrored.of("a").is_none());
    }
}
