//! HTTP/1.1 as bytes: heads, body framing, backend replies, event streams.
//!
//! Everything here but the connection takes bytes and gives verdicts; no socket, no clock, no
//! allocation on the way of a request head. Framing doubt is a refusal and a refusal closes:
//! a client's framing bytes are never passed on, upstream requests are written anew
//! (`contracts/reliability.md` section 3). The grammar is our own and strict, because a lenient
//! reader needs every line checked again afterwards; httparse is the oracle of its tests.

pub mod body;
pub mod connection;
mod decimal;
pub mod framing;
pub mod head;
mod line;
pub mod response;
pub mod sse;
mod target;

pub use body::{ChunkDecoder, LAST_CHUNK, encode_chunk};
pub use decimal::Decimal;
pub use framing::{Framing, FramingInputs, Seen, decide};
pub use head::{
    HeadLimits, HttpRefusal, KnownHead, Method, Parsed, PathRule, RequestHead, Span, header_values,
    headers, parse_request, parse_request_under,
};
pub use response::{
    ContentKind, Encoding, ResponseFault, ResponseFraming, ResponseHead, parse_response,
};
