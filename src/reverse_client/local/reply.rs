//! Bodies of an HTTP server's replies, read within bounds: a JSON document, or the events of a
//! stream.
//!
//! Many replies come at once, so only a few may be long at a time; a long one whose rest does not
//! come makes room for the others.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{
    Response,
    body::{Frame, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use super::posted::Fault;
use crate::{
    http::sse::{Event, EventParser},
    reverse_client::MESSAGE_BYTES_MAX,
    upstream::rpc::is_message,
};

/// Longer replies need a place.
const SHORT_BYTES_MAX: usize = 64 << 10;
/// Places for long replies.
const LONG_MAX: usize = 2;
/// How long the next piece of a long reply may take.
const PIECE_PATIENCE: Duration = Duration::from_secs(30);
/// Before a stream is asked for again, unless the server says a time.
const RETRY: Duration = Duration::from_secs(1);
/// A time of the server's is heeded within these bounds.
const RETRY_BOUNDS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(30));

/// What a reply's head says its body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Json,
    Events,
    Other,
}

impl Content {
    pub(super) fn of(response: &Response<Incoming>) -> Self {
        let value = response.headers().get(CONTENT_TYPE);
        let text = value.and_then(|value| value.to_str().ok()).unwrap_or("");
        let essence = text.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case("application/json") {
            Self::Json
        } else if essence.eq_ignore_ascii_case("text/event-stream") {
            Self::Events
        } else {
            Self::Other
        }
    }
}

/// Room for the long replies of one server.
#[derive(Debug)]
pub(super) struct Room(Semaphore);

impl Default for Room {
    fn default() -> Self {
        Self(Semaphore::new(LONG_MAX))
    }
}

impl Room {
    /// The next piece of a body of which `size` bytes wait to be whole; `None`: it has ended, in
    /// whatever way.
    async fn piece<'a>(
        &'a self,
        body: &mut Incoming,
        size: usize,
        place: &mut Option<SemaphorePermit<'a>>,
    ) -> Result<Option<Frame<Bytes>>, Fault> {
        if size <= SHORT_BYTES_MAX {
            *place = None;
            return Ok(body.frame().await.and_then(Result::ok));
        }
        if place.is_none() {
            // Nobody closes it.
            *place = self.0.acquire().await.ok();
        }
        match timeout(PIECE_PATIENCE, body.frame()).await {
            Ok(frame) => Ok(frame.and_then(Result::ok)),
            Err(_) => Err(Fault::Message("stopped inside a message".to_owned())),
        }
    }

    /// A whole body of at most `bytes_max`.
    pub(super) async fn document(
        &self,
        mut body: Incoming,
        bytes_max: usize,
    ) -> Result<Vec<u8>, Fault> {
        let mut document = Vec::new();
        let mut place = None;
        while !hyper::body::Body::is_end_stream(&body) {
            let piece = self.piece(&mut body, document.len(), &mut place).await?;
            let Some(piece) = piece else { break };
            let data = piece.data_ref().map_or(&b""[..], |data| data);
            if document.len() + data.len() > bytes_max {
                return Err(Fault::Message(
                    "answered with more than is taken".to_owned(),
                ));
            }
            document.extend_from_slice(data);
        }
        Ok(document)
    }
}

/// Where a stream goes on when it is asked for again.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    /// The last event's id.
    pub(super) last_id: Option<HeaderValue>,
    /// Events so far, also those without a message.
    pub(super) event_count: u64,
    retry: Option<Duration>,
}

impl Cursor {
    fn take(&mut self, event: &Event<'_>) {
        self.event_count += 1;
        if let Some(ms) = event.retry_ms {
            let (least, most) = RETRY_BOUNDS;
            self.retry = Some(Duration::from_millis(ms).clamp(least, most));
        }
        if let Some(id) = event.id {
            // An empty one takes the last one back.
            self.last_id = HeaderValue::from_bytes(id).ok().filter(|_| !id.is_empty());
        }
    }

    /// How long to wait before the stream is asked for again.
    pub(super) fn pause(&self) -> Duration {
        self.retry.unwrap_or(RETRY)
    }
}

/// One event stream.
pub(super) struct Events<'a> {
    body: Incoming,
    parser: EventParser,
    ready: VecDeque<Vec<u8>>,
    /// Bytes since the last event at the most.
    size: usize,
    room: &'a Room,
    place: Option<SemaphorePermit<'a>>,
}

impl<'a> Events<'a> {
    pub(super) fn new(body: Incoming, room: &'a Room) -> Self {
        Self {
            body,
            parser: EventParser::new(MESSAGE_BYTES_MAX),
            ready: VecDeque::new(),
            size: 0,
            room,
            place: None,
        }
    }

    /// The next message; `None`: the stream has ended.
    pub(super) async fn next(&mut self, cursor: &mut Cursor) -> Result<Option<Vec<u8>>, Fault> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Ok(Some(message));
            }
            let piece = self
                .room
                .piece(&mut self.body, self.size, &mut self.place)
                .await?;
            let Some(piece) = piece else { return Ok(None) };
            let Some(data) = piece.data_ref() else {
                continue;
            };
            let mut size = self.size + data.len();
            let ready = &mut self.ready;
            let fed = self.parser.feed(data, |event| {
                size = 0;
                cursor.take(&event);
                if is_message(event.name) && !event.data.is_empty() {
                    ready.push_back(event.data.to_vec());
                }
            });
            self.size = size;
            if fed.is_err() {
                let text = "said more in one event than is taken";
                return Err(Fault::Message(text.to_owned()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(stream: &str) -> Cursor {
        let mut cursor = Cursor::default();
        let mut parser = EventParser::new(1000);
        parser
            .feed(stream.as_bytes(), |event| cursor.take(&event))
            .unwrap();
        cursor
    }

    #[test]
    fn a_stream_goes_on_behind_its_last_id_after_its_own_pause() {
        let plain = cursor("data: {}\n\n");
        assert_eq!((plain.last_id.as_ref(), plain.pause()), (None, RETRY));
        let primed = cursor("id: a/1\nretry: 250\ndata:\n\n");
        assert_eq!(primed.last_id.as_ref().unwrap(), "a/1");
        assert_eq!(primed.pause(), Duration::from_millis(250));
        assert_eq!(primed.event_count, 1);
        let taken_back = cursor("id: 1\ndata: {}\n\nid\ndata: {}\n\n");
        assert_eq!(taken_back.last_id, None);
        let endless = cursor("retry: 99999999999\ndata: {}\n\n");
        assert_eq!(endless.pause(), RETRY_BOUNDS.1);
        assert!(cursor("retry: 0\n\n").pause() > Duration::ZERO);
    }
}
