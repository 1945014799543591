//! Load for MCP endpoints, and a sample MCP server to send it to.
//!
//! [`backend`] is a small, fast, strict legacy MCP server over streamable HTTP; [`run`] drives any
//! endpoint with sessions that call a tool, in a closed loop or at a fixed rate, checks every reply
//! and keeps HDR histograms; [`cli`] is the `loadgen` command. Both stand on the `shards` engine.
//! Nothing here knows the gateway.

pub mod backend;
pub mod cli;
pub mod client;
pub mod delay;
pub mod random;
pub mod run;
pub mod units;
