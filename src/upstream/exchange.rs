//! One HTTP exchange with a backend: the request is written, the reply's head is read, the body is
//! left to the caller; afterwards the connection goes back to the pool if it may.

use std::{rc::Rc, time::Duration};

use shards::{clock::coarse_ms, deadline::now_ms};

use crate::{
    http::{Parsed, ResponseFraming, ResponseHead, parse_response},
    link::Link,
    upstream::{
        CallFault, Upstream,
        body::BodyReader,
        cancel::Cancel,
        target::{Seat, Target},
    },
};

/// Bytes of a reply's head at the most.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// 1xx replies skipped before the real one.
const INTERIM_MAX: usize = 8;
/// Bytes of a reply's head usually.
const READ_BYTES: usize = 4096;

/// A reply whose head has arrived.
#[derive(Debug)]
pub struct Exchange {
    /// The head.
    pub head: ResponseHead,
    /// `Mcp-Session-Id` of the reply.
    pub session_id: Option<Box<[u8]>>,
    /// The connection.
    pub link: Link,
    /// The body.
    pub body: BodyReader,
    seat: Seat,
}

/// How to treat one request.
#[derive(Debug, Clone, Copy)]
pub struct Manner<'a> {
    /// Whether it may be sent twice.
    pub repeat: Repeat,
    /// Time until the first byte of the reply.
    pub first_byte: Duration,
    /// A late reply speaks against the backend as a whole, not only against this request. Then a
    /// head alone does not speak for it either: whoever reads the reply says how it went.
    pub is_lateness_telling: bool,
    /// The backend knows no sessions: with a status of 400 or 404 it may respond all the same.
    pub is_stateless: bool,
    /// The reply is a stream that lasts as long as somebody listens: it takes nobody's place.
    pub is_endless: bool,
    /// Says when nobody wants the reply any more.
    pub cancel: Option<&'a Cancel>,
}

/// Whether a request may be sent again when the connection ended before any reply byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Sending it twice does no harm.
    Harmless,
    /// Only when no byte of it was sent.
    IfUnsent,
}

impl Upstream {
    /// Sends `request`, a whole HTTP request, to `target` and reads the reply's head. Gives the
    /// request's buffer back with it.
    pub async fn exchange(
        &self,
        target: &Rc<Target>,
        mut request: Vec<u8>,
        manner: Manner<'_>,
        buffer: Vec<u8>,
    ) -> Result<(Exchange, Vec<u8>), CallFault> {
        // A stream of a backend lasts as long as its session: only what waits for a reply counts.
        let seat = if manner.is_endless {
            Seat::beside(target)
        } else {
            let max = self.limits.in_flight_max;
            let seat = match manner.is_stateless {
                true => Seat::take_stateless(target, max, self.limits.stateless_in_flight_max),
                false => Seat::take(target, max),
            };
            seat.ok_or(CallFault::Busy)?
        };
        let mut buffer = Some(buffer);
        let mut is_second = false;
        loop {
            let (mut link, is_reused) = if is_second {
                (self.dial(target).await?, false)
            } else {
                self.connection(target).await?
            };
            link.deadline().arm(manner.first_byte);
            if let Some(cancel) = manner.cancel {
                if cancel.is_cancelled() {
                    return Err(CallFault::Cancelled);
                }
                cancel.watch(link.deadline());
            }
            let (written, returned) = link.write_all(request).await;
            request = returned;
            let outcome = match written {
                Ok(()) => {
                    let buffer = buffer
                        .take()
                        .unwrap_or_else(|| Vec::with_capacity(READ_BYTES));
                    read_head(&mut link, buffer).await
                }
                Err(_) => Err(CallFault::ClosedBeforeReply),
            };
            match outcome {
                Ok((head, raw)) => {
                    if !manner.is_lateness_telling {
                        target.breaker.succeeded();
                    }
                    link.deadline().arm(self.limits.call);
                    let session_id = head.session_id.map(|span| span.slice(&raw).into());
                    let start = head.len;
                    // The body's own limit: events and buffered replies are limited by their
                    // readers, a stream as a whole is not.
                    // RFC 9110 section 9.3.2: the reply to HEAD says a length and has no body.
                    let framing = if request.starts_with(b"HEAD ") {
                        ResponseFraming::NoBody
                    } else {
                        head.framing
                    };
                    let body = BodyReader::new(framing, raw, start, u64::MAX);
                    let exchange = Exchange {
                        head,
                        session_id,
                        link,
                        body,
                        seat,
                    };
                    return Ok((exchange, request));
                }
                // A pooled connection that ends before the first byte was closed by its keep-alive
                // limit, as a rule; a request that may be repeated gets a new one, once. One that
                // we have ended ourselves has had its time.
                Err(CallFault::ClosedBeforeReply)
                    if is_reused
                        && manner.repeat == Repeat::Harmless
                        && !link.deadline().has_passed() =>
                {
                    is_second = true;
                }
                Err(fault) => {
                    let is_cancelled = manner.cancel.is_some_and(Cancel::is_cancelled);
                    let fault = match fault {
                        _ if is_cancelled => CallFault::Cancelled,
                        CallFault::ClosedBeforeReply if link.deadline().has_passed() => {
                            CallFault::FirstByteTimeout
                        }
                        other => other,
                    };
                    if fault == CallFault::FirstByteTimeout && manner.is_lateness_telling {
                        target.breaker.failed(now_ms());
                    }
                    target.remember(fault);
                    return Err(fault);
                }
            }
        }
    }

    /// Keeps in mind that the reply was of no use.
    pub(super) fn failed(exchange: &Exchange, fault: CallFault) -> CallFault {
        exchange.seat.target.remember(fault);
        fault
    }

    /// Ends an exchange: its connection is kept when the reply was read to the end, nothing follows
    /// and the backend lets us.
    pub fn finish(&self, exchange: Exchange) -> Vec<u8> {
        let Exchange {
            head,
            mut link,
            body,
            seat,
            ..
        } = exchange;
        let has_excess =
            body.has_excess() || link.holds_input() || (body.is_full() && link.has_input());
        if head.keep_alive && body.is_done() && !has_excess && !link.deadline().has_passed() {
            link.deadline().renew();
            seat.target
                .put_idle(link, coarse_ms(), self.limits.idle_per_target_max);
        }
        body.into_buffer()
    }
}

async fn read_head(
    link: &mut Link,
    mut buffer: Vec<u8>,
) -> Result<(ResponseHead, Vec<u8>), CallFault> {
    buffer.clear();
    let mut interim = 0;
    loop {
        if !buffer.is_empty() {
            match parse_response(&buffer, HEAD_BYTES_MAX).map_err(|_| CallFault::Malformed)? {
                Parsed::Complete(head) if head.status < 200 => {
                    interim += 1;
                    if interim > INTERIM_MAX || head.status == 101 {
                        return Err(CallFault::Malformed);
                    }
                    buffer.drain(..head.len);
                    continue;
                }
                Parsed::Complete(head) => return Ok((head, buffer)),
                Parsed::Partial => {}
            }
        }
        let is_first = buffer.is_empty() && interim == 0;
        let (result, returned) = link.read(buffer).await;
        buffer = returned;
        match result {
            Ok(count) if count > 0 => {}
            _ if is_first => return Err(CallFault::ClosedBeforeReply),
            _ => return Err(CallFault::ClosedInReply),
        }
    }
}
