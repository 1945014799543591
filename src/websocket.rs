//! WebSockets (RFC 6455) without sockets: bytes in, events and frames out.
//!
//! [`Receiver`] reads what the other side sends and says what it means or which rule it breaks;
//! [`frame`] writes frames; [`handshake`] opens, on either side. Both roles are here: a server
//! reads masked frames and writes plain ones, a client the reverse. Extensions are never
//! negotiated, so a reserved bit is a fault. Nothing here knows what the messages are about.

pub mod close;
pub mod frame;
pub mod handshake;
mod receiver;

pub use close::CloseCode;
pub use frame::{Masking, append_text, write_close, write_frame};
pub use receiver::{Event, Receiver, Role, Violation};
