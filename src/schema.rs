//! The schema contract of tools (dual-profile.md 3.1 to 3.5, mcp.md 2.9): JSON Schema 2020-12,
//! judged and compiled when a tool is loaded, and what a call needs of it.
//!
//! Owns: the bounds and reason codes, the compiled schemas, the texts about values that do not
//! conform, and the masking of arguments. Headers that mirror arguments are
//! [`crate::mcp::header_schema`]'s. Does no input or
//! output; references are local or refused, so nothing is ever fetched. Only [`pool`] knows
//! threads.

mod advertise;
mod check;
mod diagnose;
mod fault;
mod graph;
mod keywords;
mod limits;
mod mask;
mod pattern;
pub(crate) mod pointer;
pub mod pool;
mod tool;

pub use fault::{Reason, SchemaFault, SchemaKind};
pub use limits::SchemaLimits;
pub use mask::MASK;
pub(crate) use tool::items_of;
pub use tool::{InputSchema, OutputSchema, Schema, Structured, bytes_of};

/// Whether a `pattern` is one that [`InputSchema`] takes: linear in time, bounded in memory.
#[must_use]
pub fn is_linear_pattern(pattern: &serde_json::Value) -> bool {
    pattern
        .as_str()
        .is_some_and(|text| pattern::compile(text).is_some())
}

/// The JSON pointer in the fragment of a local reference, decoded; `None`: it is malformed, or
/// names an anchor.
#[must_use]
pub fn decoded_pointer(fragment: &str) -> Option<String> {
    match pointer::Reference::of(&format!("#{fragment}")) {
        pointer::Reference::Pointer(pointer) => Some(pointer.into_owned()),
        _ => None,
    }
}

/// The only dialect, and the default one.
pub const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
