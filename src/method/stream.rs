//! GET: the stream of what a session has to say outside replies (market.md S10).

use std::rc::Rc;

use futures_util::future::{Either, select};

use crate::{
    http::{LAST_CHUNK, encode_chunk, sse},
    preflight,
    refusal::Refusal,
    reply::{ClientGone, Reply},
    request::{Caller, gone_is_fine, session_of},
    session::{Session, inbox::StreamQueue},
    shard_state::ShardState,
    upstream::listen,
};

/// Open GET streams of one session at the most.
const STREAMS_MAX: usize = 8;

/// Opens a stream: first byte at once, a comment each heartbeat, ends with the session.
pub async fn open(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    if !preflight::accepts_stream(caller.request) {
        return Err(Refusal::AcceptStream);
    }
    let version = preflight::classify(caller.request, &Default::default(), b"")?;
    let session = session_of(shard, caller)?;
    preflight::check_version(version, &session)?;
    if shard.shard.gate.is_closed() {
        return Err(Refusal::Draining);
    }
    let queue = session.inbox.open(STREAMS_MAX).ok_or(Refusal::StreamCap)?;
    listen::start(shard, &session);
    let open = OpenStream {
        session: &session,
        queue,
    };
    let result = open.run(shard, reply).await;
    gone_is_fine(result)
}

/// A stream in its session's inbox; leaves it when dropped.
struct OpenStream<'a> {
    session: &'a Session,
    queue: Rc<StreamQueue>,
}

impl OpenStream<'_> {
    async fn run(self, shard: &ShardState, reply: &mut Reply<'_>) -> Result<(), ClientGone> {
        let heartbeat = shard.upstream.limits.heartbeat;
        let mut out = Vec::with_capacity(512);
        reply.stream_head(&mut out);
        let mut text = Vec::new();
        sse::write_comment(&mut text, b"ok");
        loop {
            while let Some(message) = self.queue.pop() {
                sse::write_event(&mut text, None, None, &message);
            }
            let is_over = self.queue.is_closed() || shard.shard.gate.is_closed();
            if !text.is_empty() {
                if reply.is_chunked() {
                    encode_chunk(&mut out, &text);
                } else {
                    out.extend_from_slice(&text);
                }
                text.clear();
            }
            if is_over {
                if reply.is_chunked() {
                    out.extend_from_slice(LAST_CHUNK);
                }
                reply.last(out).await?;
                return Ok(());
            }
            if !out.is_empty() {
                // The buffer would be held for the stream's whole silence.
                drop(reply.part(std::mem::take(&mut out)).await?);
            }
            let changed = std::pin::pin!(self.queue.changed());
            let left = std::pin::pin!(reply.client_left());
            let pause = std::pin::pin!(shards::sleep(heartbeat));
            match select(changed, select(left, pause)).await {
                Either::Left(_) => {}
                // Bytes on the connection of an open stream are its end, or a pipelined request,
                // which no client of a stream sends.
                Either::Right((Either::Left(_), _)) => return Err(ClientGone),
                Either::Right((Either::Right(_), _)) => sse::write_comment(&mut text, b""),
            }
        }
    }
}

impl Drop for OpenStream<'_> {
    fn drop(&mut self) {
        self.session.inbox.close(&self.queue);
        self.session.used_ms.set(shards::deadline::now_ms());
    }
}
