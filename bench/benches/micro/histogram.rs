//! What recording a time costs: one value into one histogram, and a call into a shard's three.

use std::hint::black_box;

use criterion::Criterion;
use hdrhistogram::Histogram;
use shardgate::telemetry::Latency;

/// Times spread as those of calls are: most short, some long. From one seed, so that every run
/// records the same.
fn times_us() -> Vec<u64> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    (0..4096)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // 64 to 65,599 us, as many in each octave.
            (64 << (state % 10)) + (state >> 40) % 64
        })
        .collect()
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let times = times_us();
    let mut group = criterion.benchmark_group("histogram");
    let mut turns = times.iter().copied().cycle();
    let mut histogram = Histogram::<u32>::new_with_bounds(1, 600_000_000, 3).unwrap();
    group.bench_function("record", |bencher| {
        bencher.iter(|| histogram.saturating_record(black_box(turns.next().unwrap())));
    });
    let mut latency = Latency::new();
    group.bench_function("record a call", |bencher| {
        bencher.iter(|| {
            let total_us = turns.next().unwrap();
            latency.record(black_box(total_us), black_box(total_us - 20));
        });
    });
    group.bench_function("quantile", |bencher| {
        bencher.iter(|| black_box(&histogram).value_at_quantile(0.99));
    });
    group.finish();
}
