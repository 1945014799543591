//! MCP as bytes: the JSON-RPC envelope, replies, revisions. Never a socket, never a session.

pub mod blocks;
pub mod capabilities;
pub mod classify;
pub mod edits;
pub mod envelope;
pub mod header_schema;
pub mod json;
pub mod mirror;
pub mod profile;
pub mod reply_scan;
pub mod revision;
pub mod version;
