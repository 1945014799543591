//! The figures to reach, and where a measured one stands.

/// One target: lower is better unless `is_share`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Short name.
    pub id: &'static str,
    /// What is measured.
    pub what: &'static str,
    /// Unit; empty for a ratio.
    pub unit: &'static str,
    /// What must be reached first.
    pub first: f64,
    /// Where we are going.
    pub goal: f64,
    /// Whether higher is better.
    pub is_share: bool,
}

const fn target(
    id: &'static str,
    what: &'static str,
    unit: &'static str,
    first: f64,
    goal: f64,
) -> Target {
    Target {
        id,
        what,
        unit,
        first,
        goal,
        is_share: false,
    }
}

/// All targets `compare` measures.
pub const TARGETS: &[Target] = &[
    target(
        "V1",
        "CPU per call, 200 B JSON, io_uring / nginx",
        "",
        0.88,
        0.75,
    ),
    target(
        "V2",
        "CPU per call, 200 B JSON, epoll / nginx",
        "",
        1.00,
        0.80,
    ),
    target(
        "V3",
        "CPU per call, 16 KiB JSON, io_uring / nginx",
        "",
        1.00,
        0.85,
    ),
    target(
        "V4",
        "CPU per call, 200 B SSE, io_uring / nginx",
        "",
        1.00,
        0.80,
    ),
    target(
        "V5",
        "CPU of a forwarded call / a local one",
        "",
        1.50,
        1.30,
    ),
    target(
        "V6",
        "added p50 of a forwarded call, 1 connection",
        "us",
        45.0,
        20.0,
    ),
    target(
        "V7",
        "added p50 at 1 connection, io_uring / nginx",
        "",
        1.00,
        0.75,
    ),
    target(
        "V8",
        "p99 at 5,000 calls/s open loop, io_uring / nginx",
        "",
        1.00,
        0.80,
    ),
    target("V10", "heap allocations per local call", "", 8.0, 0.0),
    target(
        "V11",
        "CPU of tools/list over 5 x 50 tools / 5 direct",
        "",
        1.00,
        0.10,
    ),
    target(
        "V12",
        "CPU of a stateless call / a call in a session",
        "",
        1.10,
        1.00,
    ),
    target(
        "V13",
        "CPU of an exchange, request + 3 chunks + end, in process",
        "us",
        120.0,
        60.0,
    ),
    target(
        "V14",
        "CPU per call, 2 shards / 1 shard, sticky",
        "",
        1.08,
        1.03,
    ),
    target(
        "V15",
        "CPU to the first answer of initialize, 2 backends",
        "us",
        400.0,
        250.0,
    ),
    target(
        "V16",
        "one socket hand-over, CPU of both shards",
        "us",
        35.0,
        22.0,
    ),
    target("V17", "user CPU per local call, 200 B JSON", "us", 6.0, 3.5),
    Target {
        id: "V18",
        what: "share of local requests, sticky clients",
        unit: "%",
        first: 99.0,
        goal: 99.9,
        is_share: true,
    },
    target("V18B", "sessions per shard, max / mean", "", 1.10, 1.02),
    target(
        "S1",
        "resident per idle session, 2 backends",
        "bytes",
        3072.0,
        1024.0,
    ),
    target(
        "S2",
        "resident per idle kept connection, no session",
        "bytes",
        2560.0,
        1536.0,
    ),
    target(
        "S3",
        "resident per session with an open GET stream",
        "bytes",
        6144.0,
        2560.0,
    ),
    target("S4", "start to first answered request", "ms", 150.0, 40.0),
    target("S5", "release binary", "MB", 30.0, 15.0),
    target("S6", "resident at idle, 2 shards", "MB", 40.0, 15.0),
];

impl Target {
    /// Where `value` stands.
    pub fn verdict(&self, value: f64) -> &'static str {
        let reaches = |bound: f64| {
            if self.is_share {
                value >= bound
            } else {
                value <= bound
            }
        };
        if reaches(self.goal) {
            "goal"
        } else if reaches(self.first) {
            "first"
        } else {
            "missed"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_of_both_directions() {
        let find = |id| TARGETS.iter().find(|target| target.id == id).unwrap();
        for (id, value, verdict) in [
            ("V1", 0.75, "goal"),
            ("V1", 0.80, "first"),
            ("V1", 0.89, "missed"),
            ("V18", 99.95, "goal"),
            ("V18", 99.5, "first"),
            ("V18", 90.0, "missed"),
        ] {
            assert_eq!(find(id).verdict(value), verdict, "{id} {value}");
        }
    }

    #[test]
    fn goals_are_never_easier_than_what_comes_first() {
        for target in TARGETS {
            assert_eq!(target.is_share, target.goal > target.first, "{}", target.id);
        }
    }
}
