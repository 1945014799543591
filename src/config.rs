//! User configurations: what a user may reach, from the store to what a request looks up.
//!
//! Read ([`document`], [`decode`]), judged ([`user_config`]), compiled per shard ([`compiled`]) and
//! cached there ([`cache`]); [`store`] says where they come from.

pub mod cache;
pub mod compiled;
pub mod credential;
pub mod credential_mode;
pub mod decode;
pub mod document;
pub mod encode;
pub mod host_protocols;
pub mod redis_key;
pub mod schema;
pub mod store;
pub mod user_config;
