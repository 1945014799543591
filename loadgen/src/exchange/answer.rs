//! A bound client: what it answers to what it hears.

use super::{
    Bound, Plan,
    frame::{self, BadFrame},
    words::{self, Envelope, Message},
};
use crate::{client::CallFault, random::Random};

/// How a message with an envelope begins.
const OPENING: &[u8] = br#"{"protocol":"connection-gateway.ws.v1","type":"envelope","envelope":"#;

/// What came of the bytes a client heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It goes on.
    Open,
    /// The gateway has ended it.
    Closed,
}

/// Answers every request: `accepted`, its parts, `end` (connection-gateway.md 7.5).
#[derive(Debug)]
pub(crate) struct Answerer {
    bound: Bound,
    message: Vec<u8>,
}

impl Answerer {
    /// Of the session.
    pub(crate) fn new(bound: Bound) -> Self {
        Self {
            bound,
            message: Vec::new(),
        }
    }

    /// Takes in the whole messages of `inbound`, removes them, and appends the answers to `out`.
    pub(crate) fn hear(
        &mut self,
        plan: &Plan,
        inbound: &mut Vec<u8>,
        out: &mut Vec<u8>,
        random: &mut Random,
    ) -> Result<Heard, CallFault> {
        let mut at = 0;
        let mut heard = Heard::Open;
        while heard == Heard::Open
            && let Some(first) = frame::first(&inbound[at..]).map_err(|BadFrame| CallFault::Wire)?
        {
            let payload = &inbound[at + first.payload.start..at + first.payload.end];
            match first.opcode {
                frame::TEXT => self.read(plan, payload, out, random)?,
                frame::PING => frame::put(out, frame::PONG, mask(random), payload),
                frame::CLOSE => heard = Heard::Closed,
                _ => {}
            }
            at += first.payload.end;
        }
        inbound.drain(..at);
        Ok(heard)
    }

    /// Appends a heartbeat.
    pub(crate) fn put_heartbeat(&mut self, out: &mut Vec<u8>, random: &mut Random) {
        self.message.clear();
        words::put_heartbeat(&mut self.message, shards::clock::unix_ms());
        frame::put(out, frame::TEXT, mask(random), &self.message);
    }

    /// Appends the end.
    pub(crate) fn put_close(out: &mut Vec<u8>, random: &mut Random) {
        frame::put(out, frame::CLOSE, mask(random), &[]);
    }

    fn read(
        &mut self,
        plan: &Plan,
        text: &[u8],
        out: &mut Vec<u8>,
        random: &mut Random,
    ) -> Result<(), CallFault> {
        let message: Message<'_> = serde_json::from_slice(text).map_err(|_| CallFault::Wire)?;
        // Heartbeats are of no interest; an error is about an envelope of ours, whose caller will
        // miss it.
        let Some(envelope) = message.envelope.filter(|one| one.kind == "request") else {
            return Ok(());
        };
        let Some(request_id) = envelope.request_id else {
            return Ok(());
        };
        let options = &plan.options;
        if random.is_in(options.heartbeats) {
            self.put_heartbeat(out, random);
        }
        let mut say = |kind, put_payload: &dyn Fn(&mut Vec<u8>)| {
            self.message.clear();
            self.message.extend_from_slice(OPENING);
            let envelope = Envelope {
                session: &self.bound.session,
                generation: self.bound.generation,
                request_id: &request_id,
                kind,
                now_ms: shards::clock::unix_ms(),
            };
            envelope.put(&mut self.message, put_payload);
            self.message.push(b'}');
            frame::put(out, frame::TEXT, mask(random), &self.message);
        };
        say("response", &|out| {
            out.extend_from_slice(br#"{"kind":"plugin-debug.accepted"}"#);
        });
        for index in 0..options.chunks {
            say("stream", &|out| put_part(out, index, options.chunk_bytes));
        }
        say("stream", &|out| {
            out.extend_from_slice(br#"{"kind":"plugin-debug.stream","event":"end"}"#);
        });
        Ok(())
    }
}

/// The mask of a frame.
pub(super) fn mask(random: &mut Random) -> u32 {
    // Any 32 of the bits.
    random.bits() as u32
}

/// Appends part `index`, whose text tells it from the others: its number, then so many letters
/// that it has `bytes` or, if that is longer, its number alone.
fn put_part(out: &mut Vec<u8>, index: u32, bytes: usize) {
    words::put(
        out,
        format_args!(concat!(
            r#"{{"kind":"plugin-debug.stream","event":"chunk","data":{{"type":"stream","#,
            r#""data":{{"type":"answer","content":""#
        ),),
    );
    let start = out.len();
    words::put(out, format_args!("{index} "));
    let filled = out.len().max(start + bytes);
    out.resize(filled, b'x');
    out.extend_from_slice(br#""}}}"#);
}
