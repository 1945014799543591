//! Answers to what backends ask: a ping is answered; everything else is not relayed yet and was not
//! advertised, so it is refused.

use std::rc::Rc;

use crate::{
    config::compiled::VirtualHost,
    refusal::rpc_error,
    session::state::OpenBackend,
    shard_state::ShardState,
    upstream::{
        exchange::{Manner, Repeat},
        request,
    },
};

/// Answers the request with this raw `id` of the backend at `index`, on a task of its own.
pub fn answer(
    shard: &Rc<ShardState>,
    (host, index): (&Rc<VirtualHost>, usize),
    open: &Rc<OpenBackend>,
    id: &[u8],
    is_ping: bool,
) {
    let body = if is_ping {
        let mut body = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
        body.extend_from_slice(id);
        body.extend_from_slice(b",\"result\":{}}");
        body
    } else {
        rpc_error(Some(id), -32601, "Method not found")
    };
    let (shard, host, open) = (shard.clone(), host.clone(), open.clone());
    shards::spawn(async move {
        let backend = &host.backends[index];
        let mut request = open.head.to_vec();
        request::finish_head(&mut request, body.len(), backend, b"");
        request.extend_from_slice(&body);
        let manner = Manner {
            repeat: Repeat::IfUnsent,
            first_byte: shard.upstream.limits.first_byte,
            is_lateness_telling: false,
        };
        let told = shard.upstream.tell(&backend.target, request, manner).await;
        if told.is_err() {
            shard.numbers.backend_answers_failed.add(1);
        }
    });
}
