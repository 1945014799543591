//! A run that looks like one: two operations, four owners, a stall, errors; always the same.

use std::time::Duration;

use loadgen::record::{
    Asked, FoundMax, GeneratorShard, Machine, Mode, Recorder, Recording, Step, Timing, Verdict,
};

/// A small generator of numbers between 0 and 1.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn roll(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// What the sample is made of.
pub(crate) struct Shape {
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    pub(crate) rate: f64,
    /// Factor on all times.
    pub(crate) slower: f64,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            seed: 7,
            seconds: 8,
            rate: 400.0,
            slower: 1.0,
        }
    }
}

/// Response times with a long tail, and a stall of half a second at 3 s.
pub(crate) fn recording(shape: &Shape) -> Recording {
    let mut dice = Dice::new(shape.seed);
    let mut recorder = Recorder::new(true, Duration::from_millis(500));
    let calls = recorder.operation("tools/call");
    let lists = recorder.operation("tools/list");
    let mut timed = Vec::new();
    let count = ((shape.seconds as f64 + 0.5) * shape.rate) as u64;
    for index in 0..count {
        let intended = index as f64 / shape.rate;
        let late = dice.roll().powi(6) * 0.002;
        let tail = -(1.0 - dice.roll()).ln();
        let mut service = (0.0004 + 0.0003 * tail + 0.004 * dice.roll().powi(40)) * shape.slower;
        if (3.0..3.5).contains(&intended) {
            service += 3.5 - intended;
        }
        timed.push((
            intended,
            late,
            service,
            dice.roll(),
            (dice.roll() * 4.0) as u16,
        ));
    }
    timed.sort_by(|a, b| (a.0 + a.1 + a.2).total_cmp(&(b.0 + b.1 + b.2)));
    for (intended, late, service, kind, owner) in timed {
        let at = Duration::from_secs_f64;
        let timing = Timing {
            intended: at(intended),
            sent: at(intended + late),
            done: at(intended + late + service),
        };
        if kind < 0.004 {
            recorder.failed(calls, Some(owner), timing, "status", || {
                "HTTP status 503".to_owned()
            });
        } else {
            let operation = if kind < 0.9 { calls } else { lists };
            recorder.good(operation, Some(owner), timing, 210);
        }
    }
    (0..4).for_each(|owner| (0..16).for_each(|_| recorder.session(owner)));
    let mut recording = recorder.finish(1_796_040_000_000);
    recording.asked = Asked {
        target: "http://127.0.0.1:8900/mcp".to_owned(),
        mode: Mode::Open,
        rate: Some(shape.rate),
        callers: 64,
        warm_up_s: 0.5,
        settings: [("connections", "spread"), ("seed", "7")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
    };
    let slip = recording.slip.whole().clone();
    recording.lag.add(0, &slip);
    recording.generators = (0..2)
        .map(|shard| GeneratorShard {
            host: "lab".to_owned(),
            shard,
            cpu: Some(u32::from(shard)),
            sent: recording.sent() / 2,
            busy: Some(0.31),
        })
        .collect();
    recording.machines = vec![Machine {
        host: "lab".to_owned(),
        kernel: Some("6.18.5".to_owned()),
        cpu: Some("A processor <with> 2 & more".to_owned()),
        cores: 2,
        version: "0.1.0".to_owned(),
        shards: 2,
        pinned: Some(vec![0, 1]),
        driver: "io_uring".to_owned(),
        command: "shardgate loadgen run http://127.0.0.1:8900/mcp --token *** -r 400".to_owned(),
        ..Machine::default()
    }];
    recording.verdicts = vec![
        Verdict {
            wanted: "p99 <= 5 ms".to_owned(),
            measured: "480 ms".to_owned(),
            is_met: false,
        },
        Verdict {
            wanted: "errors <= 1 %".to_owned(),
            measured: "0.4 %".to_owned(),
            is_met: true,
        },
    ];
    recording
}

/// The same with the steps of a search for the highest rate.
pub(crate) fn search() -> Recording {
    let mut recording = recording(&Shape::default());
    let rates = [
        1000.0, 2000.0, 4000.0, 8000.0, 16_000.0, 12_000.0, 14_000.0, 13_000.0,
    ];
    recording.steps = rates
        .iter()
        .map(|rate| {
            let load = rate / 14_500.0;
            let p50_us = if load < 1.0 {
                (250.0_f64 / (1.0 - load * 0.9)).round()
            } else {
                40_000.0
            };
            Step {
                rate: *rate,
                good_per_s: rate.min(14_400.0),
                sent_share: 1.0,
                error_share: 0.0,
                p50_us,
                p99_us: (p50_us * 2.6).round(),
                p999_us: p50_us * 5.0,
                is_met: p50_us * 2.6 <= 5000.0,
                remark: String::new(),
            }
        })
        .collect();
    recording.found_max = Some(FoundMax {
        slo: "p99=5ms,errors=0.1%".to_owned(),
        last_good: Some(13_000.0),
        first_bad: Some(14_000.0),
        knee: Some(11_200.0),
    });
    recording
}
