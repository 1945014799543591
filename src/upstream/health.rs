//! How backends are, as an operator may see it: one line for each scheme, host and port, over all
//! shards. Nothing here is on a request's way.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::upstream::{
    breaker::State,
    target::{Target, Targets},
};

/// Targets a shard tells of at the most.
const TARGETS_MAX: usize = 1000;

/// One target as one shard sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetHealth {
    /// What an operator knows it by.
    pub name: String,
    /// Exchanges under way.
    pub in_flight: u64,
    /// Idle connections.
    pub idle: u64,
    /// Connections opened.
    pub opened: u64,
    /// Exchanges that failed.
    pub failures: u64,
    /// Where its breaker stands.
    pub breaker: State,
    /// How the last one failed, and how long ago, ms.
    pub last_fault: Option<(&'static str, u64)>,
}

/// One backend as all shards together see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackendHealth {
    /// Scheme, host and port; a child process' virtual host and key.
    pub name: String,
    /// Exchanges under way.
    pub in_flight: u64,
    /// Idle connections kept.
    pub idle: u64,
    /// Connections opened so far.
    pub opened: u64,
    /// Exchanges that failed so far.
    pub failures: u64,
    /// The worst of the shards' breakers.
    #[serde(serialize_with = "label")]
    pub breaker: State,
    /// Shards whose breaker is not closed.
    pub shards_not_closed: u64,
    /// How the last failure is called; `null`: none so far.
    pub last_fault: Option<&'static str>,
    /// How long ago that was.
    pub last_fault_age_seconds: Option<u64>,
}

fn label<S: serde::Serializer>(state: &State, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.label())
}

impl Target {
    fn health(&self, now_ms: u64) -> TargetHealth {
        let last = self.last_fault.get();
        TargetHealth {
            name: self.name.to_string(),
            in_flight: u64::from(self.in_flight.get()),
            idle: self.idle_count() as u64,
            opened: self.opened_count.get(),
            failures: self.fault_count.get(),
            breaker: self.breaker.state(now_ms),
            last_fault: last.map(|(fault, at_ms)| (fault.label(), now_ms.saturating_sub(at_ms))),
        }
    }
}

impl Targets {
    /// How they are, `TARGETS_MAX` of them at the most.
    pub fn health(&self, now_ms: u64) -> Vec<TargetHealth> {
        let all = self.all();
        let some = all.iter().take(TARGETS_MAX);
        some.map(|target| target.health(now_ms)).collect()
    }
}

/// What all shards say of each backend, by its name.
pub fn together(shards: impl IntoIterator<Item = Vec<TargetHealth>>) -> Vec<BackendHealth> {
    let mut all: BTreeMap<String, (BackendHealth, u64)> = BTreeMap::new();
    for target in shards.into_iter().flatten() {
        let (sum, newest_ms) = all.entry(target.name.clone()).or_insert_with(|| {
            let none = BackendHealth {
                name: target.name.clone(),
                in_flight: 0,
                idle: 0,
                opened: 0,
                failures: 0,
                breaker: State::Closed,
                shards_not_closed: 0,
                last_fault: None,
                last_fault_age_seconds: None,
            };
            (none, u64::MAX)
        });
        sum.in_flight += target.in_flight;
        sum.idle += target.idle;
        sum.opened += target.opened;
        sum.failures += target.failures;
        sum.breaker = sum.breaker.max(target.breaker);
        sum.shards_not_closed += u64::from(target.breaker != State::Closed);
        if let Some((fault, age_ms)) = target.last_fault
            && age_ms < *newest_ms
        {
            *newest_ms = age_ms;
            sum.last_fault = Some(fault);
            sum.last_fault_age_seconds = Some(age_ms / 1000);
        }
    }
    all.into_values().map(|(health, _)| health).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(breaker: State, failures: u64, last: Option<(&'static str, u64)>) -> TargetHealth {
        TargetHealth {
            name: "http://a:1".to_owned(),
            in_flight: 1,
            idle: 2,
            opened: 3,
            failures,
            breaker,
            last_fault: last,
        }
    }

    #[test]
    fn shards_are_summed_and_the_worst_and_newest_is_told() {
        let other = TargetHealth {
            name: "http://b:1".to_owned(),
            ..target(State::Closed, 0, None)
        };
        let all = together([
            vec![target(State::Closed, 2, Some(("status", 5_000)))],
            vec![
                target(State::Open, 3, Some(("connect_failed", 2_500))),
                other,
            ],
        ]);
        assert_eq!(all.len(), 2);
        let a = &all[0];
        assert_eq!((a.in_flight, a.idle, a.opened, a.failures), (2, 4, 6, 5));
        assert_eq!((a.breaker, a.shards_not_closed), (State::Open, 1));
        assert_eq!(a.last_fault, Some("connect_failed"));
        assert_eq!(a.last_fault_age_seconds, Some(2));
        let json = serde_json::to_value(&all[1]).unwrap();
        assert_eq!(
            (&json["breaker"], &json["last_fault"]),
            (&"closed".into(), &().into())
        );
    }
}
