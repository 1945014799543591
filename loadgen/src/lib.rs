//! Load for MCP endpoints, and a sample MCP server to send it to.
//!
//! [`backend`] is a small, fast, strict MCP server over streamable HTTP that also simulates slow
//! and broken ones; [`run`] drives any endpoint, with sessions or without ([`era`]), in a closed
//! loop or at a rate, checks every reply and keeps HDR histograms; [`exchange`] is what it says to
//! a connection gateway, from both sides; [`record`] is what a run
//! measured, exact when merged; [`cli`] is the `loadgen` command. Runs and backend stand on the
//! `shards` engine. Nothing here knows the gateway, but for the published rule of who owns a
//! session.

pub mod affinity;
pub mod arrivals;
pub mod backend;
pub mod cli;
pub mod client;
pub mod delay;
pub mod era;
pub mod exchange;
pub mod operation;
pub mod random;
pub mod record;
pub mod report;
pub mod run;
pub mod scenario;
pub mod search;
pub mod slo;
pub mod stages;
pub mod tokens;
pub mod units;
pub mod verdict;
