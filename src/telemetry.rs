//! What a shard measures: plain counters anyone may read, histograms it hands out when asked.

pub mod latency;
pub mod numbers;
pub mod refused;

pub use latency::Latency;
pub use numbers::Numbers;
pub use refused::Refused;
