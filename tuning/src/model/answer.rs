//! A target rate in, shards and hosts out, with what they are worth.

use loadgen::report::html::words::count;
use serde::Serialize;

use super::{
    Confidence, EXTRAPOLATION_MAX, Point,
    curve::{Curve, Latency, Objective, Origin},
    demand::Demand,
    footprint::{Sizes, descriptors},
    skew::{Skew, skew},
    usl::{POINTS_WANTED, Usl},
};

/// Share of the capacity that is planned with: the rest is for bursts, and for a shard that is
/// restarted.
const CAPACITY_SHARE_MAX: f64 = 0.8;
/// Busy share that is planned with when a high percentile matters.
const BUSY_MAX: f64 = 0.65;
/// Busy share at which a shard is what limits.
const BUSY_FULL: f64 = 0.8;
/// A fit that differs by more is not relied on.
const RESIDUAL_MAX: f64 = 0.1;
/// More hosts than this are not planned from one machine's measurement.
const HOSTS_MAX: u32 = 64;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Question {
    /// Calls per second, all hosts together.
    pub rate: f64,
    /// What has to be kept.
    pub objective: Objective,
    /// Live sessions, all hosts together.
    pub sessions: u64,
    /// Client connections, all hosts together.
    pub connections: u64,
    /// Cores of a host that shards may use, where known.
    pub host_cores: Option<u16>,
    /// Memory of a host for the gateway, bytes, where known.
    pub host_bytes: Option<u64>,
    /// Descriptors a gateway may have, where known.
    pub host_descriptors: Option<u64>,
    /// Hosts beyond those that are needed.
    pub spare_hosts: u32,
}

/// What limits a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The shards' cores.
    Cpu,
    /// Rings between shards.
    Ring,
    /// Neither shard nor ring was full: the backend, or the network to it.
    Backend,
    /// Memory of the host.
    Memory,
    /// Descriptors of the process.
    Descriptors,
    /// The load generator could not send more: the capacity is at least this.
    Generator,
    /// Generator or backend ran on the shards' cores.
    SharedCores,
    /// No higher rate was tried.
    NotReached,
    /// The recordings do not say how busy the shards were.
    Unknown,
}

impl Limit {
    /// The words in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Ring => "ring",
            Self::Backend => "backend",
            Self::Memory => "memory",
            Self::Descriptors => "descriptors",
            Self::Generator => "generator",
            Self::SharedCores => "shared cores",
            Self::NotReached => "not reached",
            Self::Unknown => "unknown",
        }
    }
}

/// A row of the answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// Calls per second, all hosts together.
    pub rate: f64,
    /// Shards of each host.
    pub shards: u16,
    /// Hosts, the spare ones included.
    pub hosts: u32,
    /// Expected response times, with the spare hosts away.
    pub latency: Latency,
    /// Where they come from.
    pub origin: Origin,
    /// Share of the capacity in use.
    pub capacity_share: f64,
    /// Mean busy share of the shards, where demand is known.
    pub busy: Option<f64>,
    /// Memory of each host, with a reserve.
    pub bytes: u64,
    /// Descriptors of each process.
    pub descriptors: u64,
    /// What gives out first.
    pub limit: Limit,
    /// How sessions spread over the shards of a host.
    pub skew: Skew,
    /// What all this is worth.
    pub confidence: Confidence,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoAnswer {
    /// Nothing usable was measured.
    NothingMeasured,
    /// No measured point kept the objective.
    NeverMet,
    /// It lies beyond twice what was measured, or takes too many hosts; the most that can be said.
    TooFar {
        /// Calls per second of one host that can be answered for.
        host_rate_max: f64,
        /// Shards that can be answered for.
        shards_max: u16,
    },
}

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NothingMeasured => f.write_str("nothing was measured that could be used"),
            Self::NeverMet => f.write_str("no measured point kept the objective"),
            Self::TooFar {
                host_rate_max,
                shards_max,
            } => write!(
                f,
                "too far from what was measured: one host is answered for up to {} calls/s and \
                 {shards_max} shards; measure more shards",
                count(host_rate_max.round() as u64)
            ),
        }
    }
}

/// The models of one set of points.
#[derive(Debug, Clone)]
pub struct Models {
    /// What has to be kept.
    pub objective: Objective,
    /// Capacity and latency.
    pub curve: Curve,
    /// What more shards bring.
    pub usl: Option<Usl>,
    /// Time of a shard for a call.
    pub demand: Option<Demand>,
    /// Memory.
    pub sizes: Sizes,
    /// Share of forwarded calls, the largest that was measured.
    pub forwarded: f64,
    has_points: bool,
    rate_max: f64,
}

impl Models {
    /// Fits all of them.
    pub fn new(points: &[Point], objective: Objective) -> Self {
        let curve = Curve::new(points, &objective);
        let sizes: Vec<(u64, u64)> = points
            .iter()
            .filter_map(|point| point.sessions.zip(point.resident))
            .collect();
        // Points whose cores others used tell nothing about what shards need.
        let own: Vec<Point> = points
            .iter()
            .filter(|point| !point.is_shared)
            .copied()
            .collect();
        let demand = Demand::fit(&own).or_else(|| Demand::fit(points));
        let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        Self {
            objective,
            usl: Usl::fit(&curve.capacities()),
            demand,
            sizes: Sizes::fit(&sizes),
            forwarded: largest(&mut points.iter().filter_map(|point| point.forwarded)),
            has_points: !points.is_empty(),
            rate_max: largest(&mut curve.capacities().into_iter().map(|(_, rate)| rate)),
            curve,
        }
    }

    /// The rate a host of so many shards keeps within the objective: measured, or by the law up to
    /// twice the measured shards.
    pub fn capacity(&self, shards: u16) -> Option<f64> {
        if let Some(line) = self.curve.0.get(&shards) {
            return Some(line.capacity);
        }
        let limit = f64::from(self.curve.shards_max()) * EXTRAPOLATION_MAX;
        let by_law = self.usl?.throughput(f64::from(shards));
        (f64::from(shards) <= limit)
            .then_some(by_law.min(self.rate_max * EXTRAPOLATION_MAX))
            .filter(|rate| *rate > 0.0)
    }

    /// The rate to plan with: below capacity, with the fullest shard and the busy share in mind.
    fn planned(&self, shards: u16, sessions: u64) -> Option<f64> {
        let capacity = self.capacity(shards)?;
        let skew = skew(sessions, shards).placed;
        let by_capacity = capacity * CAPACITY_SHARE_MAX / skew;
        let by_demand = self.demand.map_or(f64::INFINITY, |demand| {
            let each = demand.utilization(1.0, f64::from(shards), self.crossing(shards));
            BUSY_MAX / each / skew
        });
        Some(by_capacity.min(by_demand))
    }

    fn crossing(&self, shards: u16) -> f64 {
        if shards == 1 { 0.0 } else { self.forwarded }
    }

    /// Answers, or says why not.
    pub fn answer(&self, question: &Question) -> Result<Answer, NoAnswer> {
        if !self.has_points {
            return Err(NoAnswer::NothingMeasured);
        }
        if self.curve.0.is_empty() {
            return Err(NoAnswer::NeverMet);
        }
        let farthest = f64::from(self.curve.shards_max()) * EXTRAPOLATION_MAX;
        let shards_max = question
            .host_cores
            .unwrap_or(u16::MAX)
            .min(farthest as u16)
            .max(1);
        for needed in 1..=HOSTS_MAX {
            let share = |total: u64| total.div_ceil(u64::from(needed));
            let (sessions, connections) = (share(question.sessions), share(question.connections));
            let rate = question.rate / f64::from(needed);
            let enough = |shards: &u16| {
                self.planned(*shards, sessions)
                    .is_some_and(|planned| planned >= rate)
            };
            let Some(shards) = (1..=shards_max).find(enough) else {
                continue;
            };
            let bytes = self.sizes.bytes(sessions, connections);
            let files = descriptors(connections, u64::from(shards) * 64, shards);
            let has_room = question.host_bytes.is_none_or(|have| have >= bytes)
                && question.host_descriptors.is_none_or(|have| have >= files);
            if !has_room && needed < HOSTS_MAX {
                continue;
            }
            let capacity = self.capacity(shards).ok_or(NoAnswer::NeverMet)?;
            // The fullest shard is ahead of the others on the curve.
            let skew = skew(sessions, shards);
            let capacity_share = (rate / capacity * skew.placed).min(1.0);
            let (latency, origin) = self
                .curve
                .latency(shards, capacity_share)
                .ok_or(NoAnswer::NeverMet)?;
            let busy = self
                .demand
                .map(|d| d.utilization(rate, f64::from(shards), self.crossing(shards)));
            return Ok(Answer {
                rate: question.rate,
                shards,
                hosts: needed + question.spare_hosts,
                latency,
                origin,
                capacity_share,
                busy,
                bytes,
                descriptors: files,
                limit: self.limit(shards, question, bytes, files),
                skew,
                confidence: self.confidence(shards, origin, needed),
            });
        }
        let host_rate_max = (1..=shards_max)
            .filter_map(|shards| self.planned(shards, question.sessions))
            .fold(0.0, f64::max);
        Err(NoAnswer::TooFar {
            host_rate_max,
            shards_max,
        })
    }

    fn limit(&self, shards: u16, question: &Question, bytes: u64, files: u64) -> Limit {
        // One more host was taken because of these, or they are close.
        if question
            .host_bytes
            .is_some_and(|have| bytes as f64 > have as f64 * 0.8)
        {
            return Limit::Memory;
        }
        if question
            .host_descriptors
            .is_some_and(|have| files as f64 > have as f64 * 0.8)
        {
            return Limit::Descriptors;
        }
        let Some((line, _)) = self.curve.nearest(shards) else {
            return Limit::Unknown;
        };
        let at = line.first_bad.unwrap_or(line.last_good);
        if at.ring_full.is_some_and(|count| count > 0) {
            Limit::Ring
        } else if at.busiest.or(at.busy).is_some_and(|busy| busy >= BUSY_FULL) {
            Limit::Cpu
        } else if line.first_bad.is_none() {
            Limit::NotReached
        } else if at.is_shared {
            Limit::SharedCores
        } else if at.sent_share < 0.99 {
            Limit::Generator
        } else if at.busiest.or(at.busy).is_some() {
            Limit::Backend
        } else {
            Limit::Unknown
        }
    }

    fn confidence(&self, shards: u16, origin: Origin, hosts: u32) -> Confidence {
        let Some((line, is_own)) = self.curve.nearest(shards) else {
            return Confidence::Low;
        };
        let usl_is_good = self
            .usl
            .is_some_and(|usl| usl.points >= POINTS_WANTED && usl.residual < RESIDUAL_MAX);
        if line.last_good.is_shared || line.is_noisy || (!is_own && !usl_is_good) {
            Confidence::Low
        } else if !is_own || hosts > 1 || origin != Origin::Interpolated {
            Confidence::Fair
        } else {
            Confidence::Good
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECTIVE: Objective = Objective {
        p99_us: 5_000.0,
        error_share: 0.001,
    };

    /// A machine of known law: capacity 10,000 a shard, 5 % contention, 20 us a call at D.
    fn machine(shards: &[u16], demand_us: f64) -> Vec<Point> {
        let mut points = Vec::new();
        for &n in shards {
            let capacity = 10_000.0 * f64::from(n) / (1.0 + 0.05 * f64::from(n - 1));
            for (share, p99_us) in [
                (0.25, 300.0),
                (0.5, 400.0),
                (0.75, 900.0),
                (1.0, 4_000.0),
                (1.2, 60_000.0),
            ] {
                let rate: f64 = capacity * share;
                let busy = (rate * demand_us / 1e6 / f64::from(n)).min(1.0);
                points.push(Point {
                    shards: n,
                    rate,
                    good_per_s: rate,
                    p50_us: p99_us / 4.0,
                    p99_us,
                    p999_us: p99_us * 2.0,
                    sent_share: 1.0,
                    busy: Some(busy),
                    busiest: Some(busy),
                    ..Point::default()
                });
            }
        }
        points
    }

    fn question(rate: f64) -> Question {
        Question {
            rate,
            objective: OBJECTIVE,
            sessions: 10_000,
            connections: 2_000,
            host_cores: None,
            host_bytes: None,
            host_descriptors: None,
            spare_hosts: 1,
        }
    }

    #[test]
    fn what_was_measured_is_answered_with_its_own_percentiles() {
        let models = Models::new(&machine(&[1, 2, 4], 20.0), OBJECTIVE);
        let answer = models.answer(&question(7_500.0)).unwrap();
        assert_eq!((answer.shards, answer.hosts), (1, 2));
        assert!((answer.latency.p99_us - 900.0).abs() < 1.0);
        assert_eq!(answer.confidence, Confidence::Good);
        assert_eq!(answer.origin, Origin::Interpolated);
        assert_eq!(answer.limit, Limit::Backend);
        assert!((answer.busy.unwrap() - 0.15).abs() < 0.01);
        // Eight tenths of the capacity are planned with.
        assert_eq!(models.answer(&question(8_100.0)).unwrap().shards, 2);
    }

    #[test]
    fn a_busy_shard_limits_before_the_measured_capacity_does() {
        // 80 us a call: 0.8 busy at the capacity, and 0.65 is planned with.
        let models = Models::new(&machine(&[1, 2, 4], 80.0), OBJECTIVE);
        let answer = models.answer(&question(8_000.0)).unwrap();
        assert_eq!(answer.shards, 1);
        assert_eq!(models.answer(&question(8_200.0)).unwrap().shards, 2);
        let busy = Models::new(&machine(&[1, 2], 90.0), OBJECTIVE);
        assert_eq!(busy.answer(&question(7_500.0)).unwrap().limit, Limit::Cpu);
        assert_eq!(busy.answer(&question(7_500.0)).unwrap().shards, 2);
    }

    #[test]
    fn beyond_the_measured_shards_the_law_answers_with_little_confidence() {
        let models = Models::new(&machine(&[1, 2, 4], 20.0), OBJECTIVE);
        let answer = models.answer(&question(40_000.0)).unwrap();
        assert_eq!((answer.shards, answer.hosts), (7, 2));
        assert_eq!(answer.confidence, Confidence::Low);
        assert_eq!(answer.origin, Origin::Extrapolated);
        let many = Models::new(&machine(&[1, 2, 3, 4, 6, 8], 20.0), OBJECTIVE);
        let answer = many.answer(&question(60_000.0)).unwrap();
        assert_eq!((answer.shards, answer.confidence), (12, Confidence::Fair));
    }

    #[test]
    fn beyond_twice_the_measured_range_there_are_more_hosts_and_then_no_answer() {
        let models = Models::new(&machine(&[1, 2], 20.0), OBJECTIVE);
        let answer = models.answer(&question(100_000.0)).unwrap();
        assert!(answer.hosts > 3 && answer.shards <= 4);
        assert_eq!(answer.confidence, Confidence::Low);
        match models.answer(&question(10_000_000.0)) {
            Err(NoAnswer::TooFar {
                shards_max: 4,
                host_rate_max,
            }) => {
                assert!(host_rate_max > 20_000.0 && host_rate_max < 40_000.0);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(models.capacity(5), None);
        let cores = Question {
            host_cores: Some(1),
            ..question(15_000.0)
        };
        let answer = models.answer(&cores).unwrap();
        assert_eq!((answer.shards, answer.hosts), (1, 3));
    }

    #[test]
    fn memory_and_descriptors_ask_for_hosts_as_well() {
        let models = Models::new(&machine(&[1, 2], 20.0), OBJECTIVE);
        let crowded = Question {
            sessions: 1_000_000,
            host_bytes: Some(4 << 30),
            ..question(1_000.0)
        };
        let answer = models.answer(&crowded).unwrap();
        assert!(answer.hosts >= 3 && answer.bytes <= 4 << 30);
        assert_eq!(answer.limit, Limit::Memory);
        let files = Question {
            connections: 100_000,
            host_descriptors: Some(60_000),
            ..question(1_000.0)
        };
        let answer = models.answer(&files).unwrap();
        assert_eq!((answer.hosts, answer.limit), (3, Limit::Descriptors));
    }

    #[test]
    fn nothing_measured_is_no_answer() {
        let none = Models::new(&[], OBJECTIVE);
        assert_eq!(
            none.answer(&question(1.0)).unwrap_err(),
            NoAnswer::NothingMeasured
        );
        let strict = Objective {
            p99_us: 1.0,
            ..OBJECTIVE
        };
        let never = Models::new(&machine(&[1], 20.0), strict);
        assert_eq!(
            never.answer(&question(1.0)).unwrap_err(),
            NoAnswer::NeverMet
        );
    }

    #[test]
    fn shared_cores_and_refusing_rings_are_told() {
        let mut points = machine(&[1, 2], 20.0);
        for point in &mut points {
            point.is_shared = true;
        }
        let models = Models::new(&points, OBJECTIVE);
        let answer = models.answer(&question(5_000.0)).unwrap();
        assert_eq!(
            (answer.limit, answer.confidence),
            (Limit::SharedCores, Confidence::Low)
        );
        for point in &mut points {
            point.ring_full = Some(3);
        }
        let models = Models::new(&points, OBJECTIVE);
        assert_eq!(
            models.answer(&question(5_000.0)).unwrap().limit,
            Limit::Ring
        );
    }
}
