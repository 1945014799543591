//! The backend side: where a backend is, a connection to it, one exchange with a deadline, and the
//! backend's part of a session.

pub mod body;
pub mod breaker;
pub mod cancel;
pub mod dial;
pub mod discover;
pub mod exchange;
pub mod farewell;
pub mod fault;
pub mod guard;
pub mod health;
pub mod inflate;
pub mod listen;
pub mod log_level;
pub mod mirrored;
pub mod open;
pub mod request;
pub mod resolve;
pub mod rpc;
pub mod say;
pub mod subscribe;
pub mod target;
pub mod voice;

pub use dial::Upstream;
pub use exchange::Exchange;
pub use fault::CallFault;
pub use voice::{FromClient, Voice};
