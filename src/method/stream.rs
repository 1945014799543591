//! GET: what a session has to say outside replies (market.md S10), and the rest of a stream that
//! broke off (`Last-Event-ID`, mcp.md 1.2).

use std::{pin::pin, rc::Rc};

use futures_util::future::{Either, select};
use shards::{alarm::Alarm, deadline::now_ms};

use crate::{
    http::{LAST_CHUNK, encode_chunk, header_values, sse},
    mcp::version::Version,
    preflight,
    refusal::Refusal,
    reply::{ClientGone, Reply, flow::RETRY_MS},
    request::{Caller, gone_is_fine, session_of},
    session::{
        Session,
        streams::{CallStream, EventId, GetStream, Resumed},
    },
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
    let version = preflight::session_version(caller.protocols(shard), caller.request)?;
    let session = session_of(shard, caller)?;
    preflight::check_version(caller.protocols(shard), version, &session)?;
    if shard.shard.gate.is_closed() {
        return Err(Refusal::Draining);
    }
    let seen = header_values(caller.request.head_bytes(), "last-event-id")
        .next()
        .and_then(EventId::parse);
    let writer = Writer {
        shard,
        session: &session,
        reply,
        out: Vec::with_capacity(512),
        text: Vec::new(),
        alarm: Rc::default(),
    };
    let Some(seen) = seen else {
        let stream = session.streams.open(STREAMS_MAX);
        let stream = stream.ok_or(Refusal::StreamCap)?;
        return gone_is_fine(listen_to(writer, stream, None).await);
    };
    shard.numbers.streams_resumed.add(1);
    match session.streams.resume(seen, STREAMS_MAX) {
        None => Err(Refusal::StreamCap),
        Some(Resumed::Get(stream)) => gone_is_fine(listen_to(writer, stream, Some(seen)).await),
        Some(Resumed::Call(call)) => gone_is_fine(writer.call(call.as_deref(), seen).await),
    }
}

/// Serves a GET stream, and leaves it when its client does.
async fn listen_to(
    mut writer: Writer<'_, '_>,
    stream: Rc<GetStream>,
    seen: Option<EventId>,
) -> Result<(), ClientGone> {
    let open = OpenStream {
        session: writer.session,
        stream,
    };
    listen::start(writer.shard, writer.session);
    writer.begin(open.stream.last_id(), seen);
    writer.listen(&open.stream).await
}

/// A stream of its session; leaves it when dropped.
struct OpenStream<'a> {
    session: &'a Session,
    stream: Rc<GetStream>,
}

impl Drop for OpenStream<'_> {
    fn drop(&mut self) {
        self.session.streams.close(&self.stream);
        self.session.used_ms.set(now_ms());
    }
}

/// Writes events to one client.
struct Writer<'a, 'b> {
    shard: &'a Rc<ShardState>,
    session: &'a Rc<Session>,
    reply: &'a mut Reply<'b>,
    /// What goes out with the next write.
    out: Vec<u8>,
    /// Events and comments not framed yet.
    text: Vec<u8>,
    /// Rings when nothing was said for long.
    alarm: Rc<Alarm>,
}

/// What woke a stream.
enum Woken {
    Changed,
    Left,
    Silence,
}

impl Writer<'_, '_> {
    /// The head, a first byte, and where to go on from: the events a client missed, or for clients
    /// that understand it an event without data (2025-11-25).
    fn begin(&mut self, last: EventId, seen: Option<EventId>) {
        self.reply.stream_head(&mut self.out);
        sse::write_comment(&mut self.text, b"ok");
        match seen {
            Some(seen) => {
                self.replay(seen);
            }
            None if self.session.version >= Version::V2025_11_25 => {
                sse::write_event(&mut self.text, Some(&last.text()), Some(RETRY_MS), b"");
            }
            None => {}
        }
    }

    /// Writes the events kept after `seen`; the last of them.
    fn replay(&mut self, seen: EventId) -> EventId {
        let mut last = seen;
        for (id, data) in self.session.streams.events_after(seen) {
            self.event(id, &data);
            last = id;
        }
        last
    }

    fn event(&mut self, id: EventId, data: &[u8]) {
        sse::write_event(&mut self.text, Some(&id.text()), None, data);
    }

    async fn listen(&mut self, stream: &GetStream) -> Result<(), ClientGone> {
        loop {
            while let Some((id, data)) = self.session.streams.pop(stream, now_ms()) {
                self.event(id, &data);
            }
            if stream.is_closed() || self.shard.shard.gate.is_closed() {
                return self.end().await;
            }
            self.flush().await?;
            match self.wait(stream.changed()).await {
                Woken::Changed => {}
                Woken::Left => return Err(ClientGone),
                Woken::Silence => sse::write_comment(&mut self.text, b""),
            }
        }
    }

    /// The rest of a call's stream, until its response.
    async fn call(
        mut self,
        call: Option<&CallStream>,
        mut seen: EventId,
    ) -> Result<(), ClientGone> {
        self.reply.stream_head(&mut self.out);
        sse::write_comment(&mut self.text, b"ok");
        loop {
            seen = self.replay(seen);
            let has_ended = self.session.has_ended.get() || self.shard.shard.gate.is_closed();
            let Some(call) = call.filter(|call| !call.is_over() && !has_ended) else {
                return self.end().await;
            };
            self.flush().await?;
            match self.wait(call.changed()).await {
                Woken::Changed => {}
                Woken::Left => return Err(ClientGone),
                Woken::Silence => sse::write_comment(&mut self.text, b""),
            }
        }
    }

    async fn wait(&mut self, changed: impl Future<Output = ()>) -> Woken {
        self.shard.heartbeats.set(&self.alarm);
        let pause = pin!(self.alarm.rings());
        let left = pin!(self.reply.client_left());
        match select(pin!(changed), select(left, pause)).await {
            Either::Left(_) => Woken::Changed,
            // Bytes on the connection of an open stream are its end, or a pipelined request, which
            // no client of a stream sends.
            Either::Right((Either::Left(_), _)) => Woken::Left,
            Either::Right((Either::Right(_), _)) => Woken::Silence,
        }
    }

    fn frame(&mut self) {
        if self.text.is_empty() {
            return;
        }
        if self.reply.is_chunked() {
            encode_chunk(&mut self.out, &self.text);
        } else {
            self.out.extend_from_slice(&self.text);
        }
        // Neither buffer is held for the stream's whole silence.
        self.text = Vec::new();
    }

    async fn flush(&mut self) -> Result<(), ClientGone> {
        self.frame();
        if !self.out.is_empty() {
            drop(self.reply.part(std::mem::take(&mut self.out)).await?);
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<(), ClientGone> {
        self.frame();
        if self.reply.is_chunked() {
            self.out.extend_from_slice(LAST_CHUNK);
        }
        self.reply.last(std::mem::take(&mut self.out)).await?;
        Ok(())
    }
}
