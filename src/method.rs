//! One file for each thing a client can ask for.

pub mod batch;
pub mod call;
pub mod end;
pub mod initialize;
pub mod list;
pub mod log_level;
pub mod stream;
pub mod taken;

use std::rc::Rc;

use crate::{
    config::compiled::VirtualHost,
    mcp::envelope::Envelope,
    reply::{ClientGone, Reply},
    request::Caller,
    session::Session,
};

/// The request's raw id.
pub fn id_of<'a>(caller: &Caller<'a>, message: &Envelope) -> &'a [u8] {
    message.id.map_or(b"null", |span| span.slice(caller.body))
}

/// Answers a ping.
pub async fn ping(
    caller: &Caller<'_>,
    message: &Envelope,
    reply: &mut Reply<'_>,
) -> Result<(), ClientGone> {
    reply.json(&result(id_of(caller, message), b"{}")).await
}

/// A JSON-RPC response with this raw result.
pub fn result(id: &[u8], result: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(result.len() + id.len() + 40);
    body.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    body.extend_from_slice(id);
    body.extend_from_slice(b",\"result\":");
    body.extend_from_slice(result);
    body.push(b'}');
    body
}

/// Brings a session in line with the configuration as it is now.
pub fn follow_configuration(session: &Rc<Session>, host: &Rc<VirtualHost>) {
    // Backend sessions that fell away are dropped with what they hold; their backends end them by
    // their own time limits, because their configuration, credentials included, is gone.
    drop(session.follow(host));
}
