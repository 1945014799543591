//! Models of capacity. Pure: measured points go in, figures and their worth come out.
//!
//! Nothing here invents a latency: percentiles come from the measured curve at the same share of
//! the capacity. What lies beyond twice the measured range is not answered.

pub mod answer;
pub mod curve;
pub mod demand;
mod fit;
pub mod footprint;
pub mod skew;
pub mod usl;

use serde::{Deserialize, Serialize};

/// One load that was held for a while at one number of shards.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Point {
    /// Shards of the gateway.
    pub shards: u16,
    /// Calls per second that were offered; of a closed loop, what came back.
    pub rate: f64,
    /// Good replies per second.
    pub good_per_s: f64,
    /// Response time, microseconds.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Share of the sent calls that failed, 0 to 1.
    pub error_share: f64,
    /// Share of the offered calls that were sent, 0 to 1.
    pub sent_share: f64,
    /// Mean share of the time the shards were busy, 0 to 1.
    pub busy: Option<f64>,
    /// The busiest shard.
    pub busiest: Option<f64>,
    /// Share of the calls that crossed a ring, 0 to 1.
    pub forwarded: Option<f64>,
    /// Messages a full ring refused.
    pub ring_full: Option<u64>,
    /// Resident bytes of the gateway.
    pub resident: Option<u64>,
    /// Sessions at that time.
    pub sessions: Option<u64>,
    /// Whether load generator or backend ran on the shards' cores.
    pub is_shared: bool,
    /// Whether the objective was met.
    pub is_met: bool,
}

/// How much a figure is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Outside of what was measured, or measured on shared cores.
    Low,
    /// Between measured points, or slightly beyond with a good fit.
    Fair,
    /// Measured.
    Good,
}

impl Confidence {
    /// The word in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Fair => "fair",
            Self::Good => "good",
        }
    }
}

/// How far a question may lie beyond what was measured.
pub const EXTRAPOLATION_MAX: f64 = 2.0;
