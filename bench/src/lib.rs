//! Side-by-side measurements: the gateway on both I/O drivers, nginx, and no gateway at all.
//!
//! [`compare`] runs all contestants in turn in one run on pinned cores and gives ratios taken in
//! the same cycle, because absolute figures of a shared machine are worth little. [`contestant`]
//! starts them, [`sample`] measures one of them once, [`process`] reads what it cost, [`targets`]
//! knows what is to be reached. [`instructions`] counts what no machine's mood can change,
//! [`engines`] is the floor: a proxy without MCP on each engine.

pub mod cli;
pub mod compare;
pub mod contestant;
pub mod engines;
pub mod instructions;
pub mod machine;
pub mod metrics;
pub mod plain;
pub mod process;
pub mod sample;
pub mod targets;
pub mod token;
