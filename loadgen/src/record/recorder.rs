//! One generator shard's way into a recording: cheap for each call, tidy once an interval.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;

use super::{
    ErrorTally, Flow, INTERVALS_MAX, Operation, Owner, Recording, Series, histogram, widened,
};

/// When a call was to start, was sent and was answered, since the start of the run.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// When the schedule wanted it; in a closed loop the same as `sent`.
    pub intended: Duration,
    /// When its first byte was sent.
    pub sent: Duration,
    /// When its last byte came, or it failed.
    pub done: Duration,
}

/// Times of the interval under way.
struct Open {
    times: Histogram<u64>,
    series: Series,
}

impl Open {
    fn new() -> Self {
        Self {
            times: histogram(),
            series: Series::default(),
        }
    }

    fn record(&mut self, time: Duration) {
        self.times.saturating_record(nanos(time));
    }

    fn close(&mut self, index: u32) {
        if !self.times.is_empty() {
            self.series.add(index, &self.times);
            self.times.reset();
        }
    }
}

struct OperationSlot {
    name: String,
    counts: Operation,
    errors: BTreeMap<&'static str, ErrorTally>,
    response: Open,
    service: Open,
}

struct OwnerSlot {
    counts: Owner,
    response: Open,
}

/// Takes calls in on one shard.
pub struct Recorder {
    is_open_loop: bool,
    warm_up_until: Duration,
    interval_s: u32,
    /// The interval under way.
    index: u32,
    operations: Vec<OperationSlot>,
    owners: BTreeMap<u16, OwnerSlot>,
    slip: Open,
    flow: Vec<Flow>,
    warm_up: Flow,
    reconnects: u64,
    ended: Duration,
}

impl Recorder {
    /// Calls intended before `warm_up_until`, since the start of the run, are only counted.
    pub fn new(is_open_loop: bool, warm_up_until: Duration) -> Self {
        Self {
            is_open_loop,
            warm_up_until,
            interval_s: 1,
            index: 0,
            operations: Vec::new(),
            owners: BTreeMap::new(),
            slip: Open::new(),
            flow: Vec::new(),
            warm_up: Flow::default(),
            reconnects: 0,
            ended: Duration::ZERO,
        }
    }

    /// The number of an operation, for the other methods; `tools/call` is named `tools_call`.
    pub fn operation(&mut self, name: &str) -> usize {
        let name: String = name
            .chars()
            .map(|one| {
                if one.is_ascii_alphanumeric() {
                    one
                } else {
                    '_'
                }
            })
            .collect();
        if let Some(index) = self.operations.iter().position(|slot| slot.name == name) {
            return index;
        }
        self.operations.push(OperationSlot {
            name,
            counts: Operation::default(),
            errors: BTreeMap::new(),
            response: Open::new(),
            service: Open::new(),
        });
        self.operations.len() - 1
    }

    /// A session was opened on this shard of the target.
    pub fn session(&mut self, owner: u16) {
        self.owner(owner).counts.sessions += 1;
    }

    /// A connection was opened anew.
    pub fn reconnect(&mut self) {
        self.reconnects += 1;
    }

    /// A good call; `owner` is the target's shard, where known.
    pub fn good(&mut self, operation: usize, owner: Option<u16>, timing: Timing, bytes: usize) {
        if !self.enter(&timing) {
            self.warm_up.good += 1;
            return;
        }
        let response = timing.done.saturating_sub(timing.intended);
        let service = timing.done.saturating_sub(timing.sent);
        if let Some(slot) = self.operations.get_mut(operation) {
            slot.counts.sent += 1;
            slot.counts.bytes += bytes as u64;
            slot.response.record(response);
            slot.service.record(service);
        }
        if let Some(owner) = owner {
            let owner = self.owner(owner);
            owner.counts.sent += 1;
            owner.response.record(response);
        }
        self.flow_at(timing.done).good += 1;
    }

    /// A call that failed; `reason` is its label, `text` is kept for the first one.
    pub fn failed(
        &mut self,
        operation: usize,
        owner: Option<u16>,
        timing: Timing,
        reason: &'static str,
        text: impl FnOnce() -> String,
    ) {
        if !self.enter(&timing) {
            self.warm_up.errors += 1;
            return;
        }
        if let Some(slot) = self.operations.get_mut(operation) {
            slot.counts.sent += 1;
            let entry = slot.errors.entry(reason).or_insert_with(|| ErrorTally {
                count: 0,
                first: text(),
            });
            entry.count += 1;
        }
        if let Some(owner) = owner {
            let owner = self.owner(owner);
            owner.counts.sent += 1;
            owner.counts.errors += 1;
        }
        self.flow_at(timing.done).errors += 1;
    }

    /// A call of the schedule that was given up before it was sent.
    pub fn unsent(&mut self, operation: usize, intended: Duration) {
        if intended < self.warm_up_until {
            self.warm_up.offered += 1;
            return;
        }
        self.flow_at(intended).offered += 1;
        if let Some(slot) = self.operations.get_mut(operation) {
            slot.counts.unsent += 1;
        }
    }

    /// What was recorded. What was asked for, machines and verdicts are the caller's to add.
    pub fn finish(mut self, started_unix_ms: u64) -> Recording {
        self.close_interval();
        let operations = self.operations.into_iter().map(|slot| {
            let errors = slot.errors.into_iter();
            let operation = Operation {
                errors: errors
                    .map(|(reason, error)| (reason.to_owned(), error))
                    .collect(),
                response: slot.response.series,
                service: slot.service.series,
                ..slot.counts
            };
            (slot.name, operation)
        });
        let owners = self.owners.into_iter().map(|(shard, slot)| {
            let response = slot.response.series;
            let owner = Owner {
                response,
                ..slot.counts
            };
            (shard, owner)
        });
        Recording {
            started_unix_ms: started_unix_ms + self.warm_up_until.as_millis() as u64,
            measured_s: self.ended.saturating_sub(self.warm_up_until).as_secs_f64(),
            interval_s: self.interval_s,
            warm_up: self.warm_up,
            operations: operations.collect(),
            slip: self.slip.series,
            flow: self.flow,
            owners: owners.collect(),
            reconnects: self.reconnects,
            ..Recording::default()
        }
    }

    /// Counts a call in, and moves on to its interval; false in the warm-up.
    fn enter(&mut self, timing: &Timing) -> bool {
        if timing.intended < self.warm_up_until {
            self.warm_up.offered += 1;
            self.warm_up.sent += 1;
            return false;
        }
        self.ended = self.ended.max(timing.done);
        let index = self.index_of(timing.done);
        if index > self.index {
            self.close_interval();
            self.index = self.index_of(timing.done);
        }
        self.flow_at(timing.intended).offered += 1;
        self.flow_at(timing.sent).sent += 1;
        if self.is_open_loop {
            let late = timing.sent.saturating_sub(timing.intended);
            self.slip.record(late);
        }
        true
    }

    /// The interval of a time; makes intervals longer when there would be too many.
    fn index_of(&mut self, at: Duration) -> u32 {
        let second = at.saturating_sub(self.warm_up_until).as_secs();
        while second / u64::from(self.interval_s) >= u64::from(INTERVALS_MAX) {
            self.widen();
        }
        // Below INTERVALS_MAX now.
        (second / u64::from(self.interval_s)) as u32
    }

    fn flow_at(&mut self, at: Duration) -> &mut Flow {
        let index = self.index_of(at) as usize;
        if index >= self.flow.len() {
            self.flow.resize(index + 1, Flow::default());
        }
        &mut self.flow[index]
    }

    fn owner(&mut self, shard: u16) -> &mut OwnerSlot {
        self.owners.entry(shard).or_insert_with(|| OwnerSlot {
            counts: Owner::default(),
            response: Open::new(),
        })
    }

    fn close_interval(&mut self) {
        let index = self.index;
        self.slip.close(index);
        for slot in &mut self.operations {
            slot.response.close(index);
            slot.service.close(index);
        }
        for slot in self.owners.values_mut() {
            slot.response.close(index);
        }
    }

    fn widen(&mut self) {
        self.close_interval();
        self.index /= 2;
        self.interval_s = self.interval_s.saturating_mul(2);
        self.slip.series.widen(2);
        for slot in &mut self.operations {
            slot.response.series.widen(2);
            slot.service.series.widen(2);
        }
        for slot in self.owners.values_mut() {
            slot.response.series.widen(2);
        }
        self.flow = widened(&self.flow, 2);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Start, lateness and service time in milliseconds, outcome, owner.
    type Call = (u64, u64, u64, bool, u16);

    fn timing((intended, late, service, ..): Call) -> Timing {
        let sent = Duration::from_millis(intended + late);
        Timing {
            intended: Duration::from_millis(intended),
            sent,
            done: sent + Duration::from_millis(service),
        }
    }

    fn record(calls: &[Call]) -> Recording {
        let mut recorder = Recorder::new(true, Duration::from_millis(500));
        // As a shard sees them: in the order they end.
        let mut calls = calls.to_vec();
        calls.sort_by_key(|call| timing(*call).done);
        for call in calls {
            let operation =
                recorder.operation(["tools/call", "initialize"][usize::from(call.4 % 2)]);
            if call.3 {
                recorder.good(operation, Some(call.4), timing(call), 7);
            } else {
                recorder.failed(operation, Some(call.4), timing(call), "status", || {
                    "500".to_owned()
                });
            }
        }
        let mut recording = recorder.finish(1000);
        // The order of the names is that of first use; an operation nobody used is not there.
        recording
            .operations
            .retain(|_, operation| operation.sent > 0);
        recording
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn merged_recorders_hold_what_one_would(
            calls in proptest::collection::vec(
                (0_u64..8000, 0_u64..50, 0_u64..3000, any::<bool>(), 0_u16..3), 1..30),
            parts in 1_usize..4,
        ) {
            let whole = record(&calls);
            let mut merged = Recording::default();
            for part in 0..parts {
                let of_part = calls.iter().skip(part).step_by(parts).copied();
                merged.merge(&record(&of_part.collect::<Vec<_>>()));
            }
            prop_assert_eq!(merged.sent() + merged.warm_up.sent, calls.len() as u64);
            prop_assert_eq!(merged, whole);
        }
    }

    #[test]
    fn a_long_run_widens_its_intervals_and_loses_nothing() {
        let call = |start: u64| (start, 1, 2, true, 0);
        let early = record(&[call(600), call(1600)]);
        let long = record(&[call(600), call(1600), call(5_000_000)]);
        assert_eq!((early.interval_s, long.interval_s), (1, 8));
        assert_eq!(long.flow.iter().map(|flow| flow.good).sum::<u64>(), 3);
        let series = &long.operations["tools_call"].response;
        assert_eq!(series.whole().len(), 3);
        assert_eq!(series.intervals()[&0].unpack().len(), 2);
        let mut both = early;
        both.merge(&long);
        assert_eq!((both.interval_s, both.good()), (8, 5));
        assert_eq!(both.slip.intervals()[&0].unpack().len(), 4);
    }

    #[test]
    fn starts_apart_stay_apart() {
        let first = record(&[(600, 0, 5, true, 0)]);
        let mut later = first.clone();
        later.started_unix_ms += 3400;
        for (one, other) in [(&first, &later), (&later, &first)] {
            let mut both = one.clone();
            both.merge(other);
            let good: Vec<_> = both.flow.iter().map(|flow| flow.good).collect();
            assert_eq!(good, [1, 0, 0, 1]);
            assert_eq!(both.started_unix_ms, first.started_unix_ms);
            assert!((both.measured_s - first.measured_s - 3.4).abs() < 1e-9);
            assert_eq!(both.operations["tools_call"].response.intervals().len(), 2);
        }
        let mut far = first.clone();
        far.started_unix_ms += 10_000_000;
        let mut both = far;
        both.merge(&first);
        assert_eq!(both.interval_s, 16);
        assert_eq!(both.good(), 2);
    }

    #[test]
    fn what_was_not_sent_is_offered_all_the_same() {
        let mut recorder = Recorder::new(true, Duration::ZERO);
        let operation = recorder.operation("tools/call");
        recorder.good(operation, None, timing((0, 0, 1, true, 0)), 1);
        recorder.unsent(operation, Duration::from_secs(2));
        let recording = recorder.finish(0);
        assert_eq!((recording.offered(), recording.sent()), (2, 1));
        assert!(!recording.is_honest());
        assert_eq!(recording.flow[2].offered, 1);
        assert_eq!(recording.slip.whole().len(), 1);
    }
}
