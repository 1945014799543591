//! What `tune cores` and `plan` are both told: the objective and the hosts to plan for.

use std::time::Duration;

use clap::Args;

use crate::model::{answer::Question, curve::Objective};

#[derive(Debug, Args)]
pub(super) struct PlanningArguments {
    /// Sessions alive at a time, all hosts together.
    #[arg(long, default_value_t = 10_000)]
    pub(super) sessions: u64,
    /// Client connections open at a time, all hosts together [default: one for each session].
    #[arg(long)]
    connections: Option<u64>,
    /// Cores of a host that shards may have.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    host_cores: Option<u16>,
    /// Memory of a host for the gateway, as 4GiB or 512MiB.
    #[arg(long, value_parser = bytes)]
    host_memory: Option<u64>,
    /// Descriptors a gateway may have (LimitNOFILE).
    #[arg(long)]
    host_descriptors: Option<u64>,
    /// Hosts beyond those that are needed.
    #[arg(long, default_value_t = 1)]
    spare_hosts: u32,
}

impl PlanningArguments {
    /// The question without its rate.
    pub(super) fn question(&self, objective: Objective) -> Question {
        Question {
            rate: 0.0,
            objective,
            sessions: self.sessions,
            connections: self.connections.unwrap_or(self.sessions),
            host_cores: self.host_cores,
            host_bytes: self.host_memory,
            host_descriptors: self.host_descriptors,
            spare_hosts: self.spare_hosts,
        }
    }
}

/// A duration as 5ms, 250us or 1.5s.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    units
        .iter()
        .find_map(|(unit, seconds)| {
            let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
            Duration::try_from_secs_f64(number * seconds).ok()
        })
        .filter(|time| !time.is_zero())
        .ok_or_else(|| format!("{text} is not a time such as 5ms, 250us or 1.5s"))
}

/// Calls per second.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 1e9 => Ok(rate),
        _ => Err("must be a number of calls per second above 0".to_owned()),
    }
}

/// An objective as `p99=5ms,errors=0.1%`.
pub(super) fn objective(text: &str) -> Result<Objective, String> {
    let mut found = Objective {
        p99_us: f64::INFINITY,
        error_share: 0.001,
    };
    for part in text.split(',') {
        match part.trim().split_once('=') {
            Some(("p99", time)) => found.p99_us = duration(time)?.as_secs_f64() * 1e6,
            Some(("errors", share)) => found.error_share = percent(share)?,
            _ => return Err(format!("{part} is not p99=TIME or errors=PERCENT%")),
        }
    }
    if found.p99_us.is_finite() {
        Ok(found)
    } else {
        Err("say p99=TIME".to_owned())
    }
}

fn percent(text: &str) -> Result<f64, String> {
    text.strip_suffix('%')
        .and_then(|number| number.trim().parse::<f64>().ok())
        .filter(|percent| (0.0..=100.0).contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("{text} is not a share such as 0.1%"))
}

fn bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    units
        .iter()
        .find_map(|(unit, shift)| {
            let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
            number.checked_mul(1 << shift)
        })
        .ok_or_else(|| format!("{text} is not a size such as 4GiB or 512MiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_times_and_sizes_are_read() {
        let found = objective("p99=5ms,errors=0.1%").unwrap();
        assert!((found.p99_us - 5_000.0).abs() < 1e-6 && (found.error_share - 0.001).abs() < 1e-9);
        assert!((objective("p99=1.5s").unwrap().p99_us - 1.5e6).abs() < 1e-6);
        for bad in [
            "errors=1%",
            "p99=5",
            "p99=0ms",
            "p98=5ms",
            "p99=5ms,errors=7",
            "",
        ] {
            assert!(objective(bad).is_err(), "{bad}");
        }
        assert_eq!(bytes("4GiB"), Ok(4 << 30));
        assert!(bytes("4GB").is_err() && bytes("99999999999GiB").is_err());
        assert!(rate("0").is_err() && rate("nan").is_err() && rate("5e4").is_ok());
    }
}
