//! The client's side of a call's reply: JSON, unless something has to be said before the response,
//! or the client would rather have events.
//!
//! A stream begins with the first message, or with a heartbeat when its backend is silent for that
//! long; nothing is held back. It lasts over several requests to a backend, when the first one's
//! result is a question to the client. A client with a session may break off and resume.

use std::rc::Rc;

use shards::deadline::now_ms;

use crate::{
    http::{LAST_CHUNK, encode_chunk, sse},
    mcp::version::Version,
    method::taken,
    refusal::Refusal,
    reply::{ClientGone, Reply, relay::Cut},
    session::{Session, calls::ClientCall, streams::CallStream},
    shard_state::ShardState,
    upstream::FromClient,
};

/// Time a client waits before it resumes, when the backend does not say, ms.
pub const RETRY_MS: u64 = 1_000;

/// One reply.
#[derive(Debug)]
pub struct Flow<'a, 'b> {
    shard: &'a Rc<ShardState>,
    session: &'a Rc<Session>,
    entry: &'a Rc<ClientCall>,
    client: FromClient<'a>,
    reply: &'a mut Reply<'b>,
    /// Where the client can resume it, once it has begun.
    log: Option<Rc<CallStream>>,
    has_begun: bool,
    has_head: bool,
    /// The client's connection is gone, or was let go; what comes is kept for when it resumes.
    is_detached: bool,
    /// The pause before a client resumes, as the backend wants it.
    pub retry_ms: Option<u64>,
    /// The response is kept, and not said.
    is_keeping: bool,
    kept: Option<Kept>,
}

/// A response that was kept.
#[derive(Debug)]
pub struct Kept {
    /// The whole message, in the client's terms.
    pub document: Vec<u8>,
    /// The HTTP status it would have by itself.
    pub status: u16,
}

impl Drop for Flow<'_, '_> {
    fn drop(&mut self) {
        if let Some(log) = self.log.take() {
            self.session.streams.end_call(&log);
        }
    }
}

impl<'a, 'b> Flow<'a, 'b> {
    /// A reply that has not begun, to the call `entry` of `session`, whose request is `client`.
    pub fn new(
        shard: &'a Rc<ShardState>,
        session: &'a Rc<Session>,
        entry: &'a Rc<ClientCall>,
        client: FromClient<'a>,
        reply: &'a mut Reply<'b>,
    ) -> Self {
        Self {
            shard,
            session,
            entry,
            client,
            reply,
            log: None,
            has_begun: false,
            has_head: false,
            is_detached: false,
            retry_ms: None,
            is_keeping: false,
            kept: None,
        }
    }

    /// Keeps the response for whoever made this, who says something in its place: the client hears
    /// everything else, and whoever relays leaves failures and the end of the stream alone.
    pub fn keep_response(&mut self) {
        self.is_keeping = true;
    }

    /// The response that was kept, if there was one. What is said from now on is said.
    pub fn take_response(&mut self) -> Option<Kept> {
        self.is_keeping = false;
        self.kept.take()
    }

    /// Whether a JSON response may be written straight to [`Self::reply`].
    pub fn is_plain(&self) -> bool {
        !self.has_begun && !self.is_keeping
    }

    /// Whether a stream was begun that ends with what its backend does.
    pub fn must_end(&self) -> bool {
        self.has_begun && !self.is_keeping
    }

    /// The reply, for one that is not a stream.
    pub fn reply(&mut self) -> &mut Reply<'b> {
        self.reply
    }

    /// Waits until a client without a session has left: that is its cancellation (mcp.md 2.6).
    pub async fn client_left(&mut self) {
        match self.session.has_client() {
            true => std::future::pending().await,
            false => self.reply.client_hung_up().await,
        }
    }

    /// Writes messages as events of the client's stream, or to its own streams when the reply
    /// cannot be one.
    pub async fn pass_on(&mut self, messages: Vec<Vec<u8>>) -> Result<(), Cut> {
        if messages.is_empty() {
            return Ok(());
        }
        if !self.reply.can_stream() {
            for message in messages {
                self.session.streams.push(&message);
            }
            return Ok(());
        }
        let mut events = self.shard.shard.buffers.lease();
        self.begin(&mut events);
        for message in messages {
            self.event(&mut events, &message);
        }
        self.write(&events).await
    }

    /// The client's stream begins: where it can resume is the first thing it hears (mcp.md 1.2:
    /// only from 2025-11-25 on; older clients read an empty event as JSON).
    fn begin(&mut self, events: &mut Vec<u8>) {
        if std::mem::replace(&mut self.has_begun, true) || !self.session.has_client() {
            return;
        }
        let log = self.session.streams.open_call();
        if self.session.version >= Version::V2025_11_25 {
            let retry_ms = self.retry_ms.unwrap_or(RETRY_MS);
            let id = log.last_id().text();
            sse::write_event(events, Some(&id), Some(retry_ms), b"");
        }
        self.log = Some(log);
    }

    /// One message as an event that can be replayed.
    fn event(&mut self, events: &mut Vec<u8>, message: &[u8]) {
        let id = self.log.as_ref().map(|log| {
            let id = self.session.streams.add(log, message, now_ms());
            id.text()
        });
        sse::write_event(events, id.as_deref(), None, message);
    }

    /// Something to hear for a client that waits.
    pub async fn heartbeat(&mut self) -> Result<(), Cut> {
        if !self.reply.can_stream() {
            return Ok(());
        }
        let mut text = Vec::new();
        self.begin(&mut text);
        sse::write_comment(&mut text, b"");
        self.write(&text).await
    }

    /// Writes a part of the stream. A client that has gone may come back for what it missed.
    async fn write(&mut self, events: &[u8]) -> Result<(), Cut> {
        if self.is_away() {
            return Ok(());
        }
        let mut out = self.shard.shard.buffers.take();
        self.frame(&mut out, events);
        match self.reply.part(out).await {
            Ok(buffer) => self.shard.shard.buffers.put(buffer),
            Err(ClientGone) if !self.session.has_client() => return Err(self.abandoned()),
            Err(ClientGone) => self.is_detached = true,
        }
        Ok(())
    }

    /// The client has left for good.
    pub fn abandoned(&self) -> Cut {
        taken::abandon(self.shard, self.entry, self.client);
        Cut::Client
    }

    /// Whether the client does not listen here any more. When it has resumed elsewhere, this
    /// connection is of no use to it.
    fn is_away(&mut self) -> bool {
        if !self.is_detached && self.log.as_ref().is_some_and(|log| log.is_taken()) {
            self.is_detached = true;
            self.reply.hang_up();
        }
        self.is_detached
    }

    fn frame(&mut self, out: &mut Vec<u8>, events: &[u8]) {
        if !self.has_head {
            self.has_head = true;
            self.reply.stream_head(out);
        }
        if !self.reply.is_chunked() {
            out.extend_from_slice(events);
        } else if !events.is_empty() {
            encode_chunk(out, events);
        }
    }

    /// Writes the response as the last thing: in the stream if one was begun, else as JSON with
    /// this HTTP status.
    pub async fn finish(
        &mut self,
        messages: Vec<Vec<u8>>,
        response: Vec<u8>,
        status: u16,
    ) -> Result<(), Cut> {
        if self.is_keeping {
            self.pass_on(messages).await?;
            let document = response;
            self.kept = Some(Kept { document, status });
            return Ok(());
        }
        let is_stream = self.has_begun
            || (status == 200 && self.reply.prefers_stream())
            || (!messages.is_empty() && self.reply.can_stream());
        if !is_stream {
            self.pass_on(messages).await?;
            let mut out = self.shard.shard.buffers.take();
            self.reply.json_head_with(&mut out, status, response.len());
            out.extend_from_slice(&response);
            self.shard.shard.buffers.put(self.reply.last(out).await?);
            return Ok(());
        }
        let mut events = self.shard.shard.buffers.lease();
        self.begin(&mut events);
        for message in messages {
            self.event(&mut events, &message);
        }
        self.event(&mut events, &response);
        self.end(&events).await
    }

    /// Writes the end of the stream.
    pub async fn end(&mut self, events: &[u8]) -> Result<(), Cut> {
        if self.is_away() {
            return Ok(());
        }
        let mut out = self.shard.shard.buffers.take();
        self.frame(&mut out, events);
        if self.reply.is_chunked() {
            out.extend_from_slice(LAST_CHUNK);
        }
        self.shard.shard.buffers.put(self.reply.last(out).await?);
        Ok(())
    }

    /// Ends without a response: its caller has cancelled the request and waits for none.
    pub async fn nothing(&mut self) {
        // A client that has left hears no end.
        let _ = match self.has_begun {
            true => self.end(b"").await,
            false => self.reply.nothing().await.map_err(Cut::from),
        };
    }

    /// Says a refusal in the stream.
    ///
    /// # Errors
    /// None was begun: the refusal is the answer to the request as such.
    pub async fn refuse(&mut self, refusal: Refusal) -> Result<(), Refusal> {
        if !self.has_begun {
            return Err(refusal);
        }
        // A client that has left hears no reason.
        let _ = self.finish(Vec::new(), refusal.answer().body, 200).await;
        Ok(())
    }

    /// Lets a client that knows polling go until it resumes (SEP-1699).
    pub async fn let_go(&mut self) -> Result<(), Cut> {
        let version = self.session.version;
        let knows_polling = version >= Version::V2025_11_25 && self.session.has_client();
        if !knows_polling || self.is_detached || !self.reply.can_stream() {
            return Ok(());
        }
        let mut events = self.shard.shard.buffers.lease();
        self.begin(&mut events);
        if let Some(log) = &self.log {
            let id = log.last_id().text();
            sse::write_event(&mut events, Some(&id), self.retry_ms, b"");
        }
        // It may have gone by itself.
        let _ = self.end(&events).await;
        // What it asks next must not wait for this call.
        self.reply.hang_up();
        self.is_detached = true;
        Ok(())
    }
}
