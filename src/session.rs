//! Sessions: their ids, the table a shard keeps them in, and what one session holds.
//!
//! A session belongs to one shard for its life; everything here is plain memory of that shard. It
//! is bound to a principal and a virtual host on every touch, and a session that is unknown, ended,
//! forged or somebody else's looks the same from outside (mcp.md 1.2: 404).

pub mod asked;
pub mod calls;
pub mod id;
pub mod state;
pub mod streams;
pub mod table;

pub use asked::{Answer, Answers, AskedTable};
pub use calls::Calls;
pub use id::{IdKeys, SessionId};
pub use state::{BackendLink, BackendSession, Place, Session};
pub use streams::Streams;
pub use table::{SessionCap, SessionTable, TableLimits};
