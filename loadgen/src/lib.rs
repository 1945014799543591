//! Load for MCP endpoints, and a sample MCP server to send it to.
//!
//! [`backend`] is a small, fast, strict legacy MCP server over streamable HTTP; [`run`] drives any
//! endpoint with sessions that call a tool, in a closed loop or at a fixed rate, checks every reply
//! and keeps HDR histograms; [`record`] is what a run measured, exact when merged; [`cli`] is the
//! `loadgen` command. Runs and backend stand on the `shards` engine. Nothing here knows the gateway.

pub mod backend;
pub mod cli;
pub mod client;
pub mod record;
pub mod report;
pub mod run;
