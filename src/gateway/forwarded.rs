//! What another shard has sent here to be answered.

use std::rc::Rc;

use shards::ReplySink;

use crate::{
    connection_gateway::{self, index::Ask},
    http::RequestHead,
    reply::{Reply, Sink},
    request::{self, Forwarded},
    shard_state::ShardState,
};

/// Serves what another shard has sent; the reply streams back.
pub(super) fn serve(state: &Rc<ShardState>, forwarded: Forwarded, sink: ReplySink<Forwarded>) {
    let state = state.clone();
    let gate = state.shard.gate.clone();
    let new_reply =
        |sink, head: &RequestHead| Reply::new(Sink::Ring(sink), gate, head.keep_alive, head.minor);
    match forwarded {
        Forwarded::Request(request) => {
            let mut reply = new_reply(sink, &request.head);
            shards::spawn(async move {
                request::serve(&state, &request, &mut reply).await;
                // The reply's last buffer stays with the asking shard in its place.
                state.shard.buffers.put(request.bytes);
            });
        }
        Forwarded::Internal(request) => {
            let Some(node) = state.connection_gateway.clone() else {
                return;
            };
            let mut reply = new_reply(sink, &request.head);
            shards::spawn(async move {
                connection_gateway::api::serve(&state, &node, &request, &mut reply).await;
                state.shard.buffers.put(request.bytes);
            });
        }
        Forwarded::Ask(ask) => {
            let Some(node) = state.connection_gateway.clone() else {
                return;
            };
            // What changes something does so in the order it came.
            let answer = match *ask {
                Ask::AwaitEnd(id) => Err(id),
                ask => Ok(node.answer(ask)),
            };
            shards::spawn(async move {
                let answer = match answer {
                    Ok(answer) => answer,
                    Err(id) => node.await_end(id).await,
                };
                // Who asked may be gone.
                let _ = sink.end(answer).await;
            });
        }
    }
}
