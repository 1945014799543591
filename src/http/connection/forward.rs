//! A request of this connection that another shard serves: sent over the ring, its reply written
//! here as it comes.

use futures_util::future::{Either, select};

use super::Connection;
use crate::{
    connection_gateway::api,
    http::Method,
    refusal::Refusal,
    reply,
    request::{Forwarded, Request},
};

impl Connection {
    /// Has a request served by the shard that owns its session and writes the reply as it comes.
    pub(super) async fn forward(
        &mut self,
        owner: shards::ShardId,
        request: Request,
        keep_alive: bool,
    ) -> bool {
        let minor = request.head.minor;
        let is_internal = self.internal_api().is_some();
        let is_stream = request.head.method == Method::Get && !is_internal;
        // Its caller may have sent its next request already: only its end counts.
        let is_watched = is_internal && api::is_stream(&request);
        // What is refused here is for its page to read as well.
        let origin = request.field(request.head.origin);
        let origin = origin.filter(|origin| self.shard.access.check_origin(Some(origin)).is_ok());
        let origin: Option<Box<[u8]>> = origin.map(Box::from);
        // A drain waits for the reply here as it does at the owner.
        let _pass = self.shard.shard.gate.enter();
        let request = Box::new(request);
        let call = if is_internal {
            Forwarded::Internal(request)
        } else {
            Forwarded::Request(request)
        };
        let mut parts = match self.shard.shard.port.call(owner, call) {
            Ok(parts) => parts,
            Err(_) => {
                return self
                    .refuse(&Refusal::Busy, origin.as_deref(), keep_alive, minor)
                    .await;
            }
        };
        let write_limit = self.shard.settings.timeouts.write;
        let (mut has_begun, mut is_last) = (false, false);
        loop {
            let part = if is_stream {
                // Its end is all that a client of a stream sends; the owner must hear of it.
                let left = std::pin::pin!(self.link.readable());
                match select(std::pin::pin!(parts.next()), left).await {
                    Either::Left((part, _)) => part,
                    Either::Right(_) => return false,
                }
            } else if is_watched {
                let left = std::pin::pin!(reply::hung_up(&mut self.link));
                match select(std::pin::pin!(parts.next()), left).await {
                    Either::Left((part, _)) => part,
                    Either::Right(_) => return false,
                }
            } else {
                parts.next().await
            };
            match part {
                Ok(Some(bytes)) => {
                    // The owner may have promised that the connection ends with this reply.
                    is_last |= !has_begun && reply::says_close(&bytes);
                    has_begun = true;
                    let (result, bytes) = self.link.write_all_within(bytes, write_limit).await;
                    parts.give_back(bytes);
                    if result.is_err() {
                        return false;
                    }
                }
                Ok(None) => {
                    let is_open = !is_last && !self.shard.shard.gate.is_closed();
                    return keep_alive && minor >= 1 && is_open;
                }
                Err(_) => {
                    // The owner has ended: a drain's end, or its death.
                    if !has_begun {
                        let refusal = if self.shard.shard.gate.is_closed() {
                            Refusal::Draining
                        } else {
                            Refusal::Internal
                        };
                        self.refuse(&refusal, origin.as_deref(), false, minor).await;
                    }
                    return false;
                }
            }
        }
    }
}
