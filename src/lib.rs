//! shardgate: a shared-nothing, thread-per-core MCP gateway dataplane.
//!
//! A client sees one MCP server; behind it stand many. The way of a request, and the modules in its
//! order ([`request`] tells it as one story):
//!
//! * [`steer`]: which shard a connection or a request belongs to
//! * [`http`]: HTTP/1.1 framing, limits, keep-alive; [`link`]: plain or TLS
//! * [`access`], [`preflight`]: origins, hosts, CORS, content headers
//! * [`auth`]: bearer token to principal
//! * [`config`]: principal to user configuration to virtual host
//! * [`mcp`]: the JSON-RPC envelope, scanned once
//! * [`session`]: session id to live session, bound to principal and virtual host
//! * [`method`], [`route`]: what is asked, of which backend, under which name
//! * [`upstream`]: a pooled connection to the backend, with deadlines
//! * [`reply`]: the backend's bytes back to the client, ids translated in place
//!
//! Beside it, on the same shards: [`connection_gateway`], over [`websocket`]. In a process of its
//! own, on the other side of it: [`reverse_client`].
//!
//! Around it: [`settings`], [`prepare`], [`gateway`] (start and drain), [`control`] (the one thread
//! off the request's path), [`dial`], [`admin`], [`telemetry`], [`supervisor`], [`log`],
//! [`redis`].
#![forbid(unsafe_code)]

pub mod access;
pub mod admin;
pub mod auth;
pub mod bootstrap;
pub mod bridge;
pub mod command;
pub mod config;
pub mod connection_gateway;
pub mod control;
pub mod declared;
pub mod dial;
pub mod endpoint;
pub mod gateway;
pub mod http;
pub mod link;
pub mod log;
pub mod mcp;
pub mod method;
pub mod openapi;
pub mod policy;
pub mod preflight;
pub mod prepare;
pub mod redis;
pub mod redis_tool;
pub mod refusal;
pub mod reply;
pub mod request;
pub mod reverse_client;
pub mod route;
pub mod schema;
pub mod session;
pub mod settings;
pub mod shard_state;
pub mod stateless;
pub mod steer;
pub mod supervisor;
pub mod telemetry;
pub mod tls;
pub mod upstream;
pub mod websocket;
