//! Revision 2026-07-28 at the same endpoints: requests that need no session.
//!
//! Owns: what is checked of such a request before anything is done for it, what a shard remembers
//! between two of them (never anything of a client's doing), and the two methods that only this
//! revision has. Names are routed, lists merged and replies relayed by the same code as for
//! sessions.
//! Never: looks at a session id, or keeps a request from running where it arrived.

pub mod admit;
pub mod bridge;
pub mod discover;
pub mod fault;
pub mod generations;
pub mod held;
pub mod hub;
pub mod listen;
pub mod permits;
pub mod serve;
pub mod standing;

pub use fault::StatelessFault;
pub use standing::{Standing, Standings};
