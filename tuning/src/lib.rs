//! Looks at the host a gateway runs on and says what costs it latency or connections, changes what
//! it is told to, and says how many shards and hosts a rate takes.
//!
//! `check` reads files of /proc and /sys and makes a few short tries (a ring, two sockets, some
//! sleeps); it changes nothing and needs no running gateway. [`Changes`] plans and writes settings,
//! and writes them back. Every question is a [`Row`]: what is, what should be, how bad the
//! difference is, why it matters and what to do. What cannot be seen, in a container for example,
//! is said and not guessed.
//!
//! [`model`] has the models of capacity, over points that `tune cores` measures or that run folders
//! hold.
//! [`cli`] is the command line `shardgate tune`.

#![forbid(unsafe_code)]

mod apply;
mod around;
mod cgroup;
mod check;
mod checks;
pub mod cli;
mod cores;
mod host;
mod jitter;
mod measured;
pub mod model;
mod ping;
mod place;
mod plan;
mod row;
pub mod scrape;
mod source;
mod table;

pub use apply::{Change, Changes, Left, Record, RecordFault};
pub use around::Documents;
pub use check::{Options, Report, check};
pub use place::Place;
pub use plan::Plan;
pub use row::{Row, Severity};
