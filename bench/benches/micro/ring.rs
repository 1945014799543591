//! What a message between two shards costs the ring itself: on one core, and from one thread to
//! another that is awake.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput};
use shards::ring::ring;

/// Slots of a lane between two of four shards.
const CAPACITY: usize = 1024;
/// Messages in a row.
const BATCH: u64 = 64;

/// As large as what the lanes carry.
type Message = [u64; 4];

/// `count` messages from this thread to another.
fn across(count: u64) -> Duration {
    let (mut producer, mut consumer) = ring::<Message>(CAPACITY);
    let receiving = std::thread::spawn(move || {
        let mut sum = 0_u64;
        for _ in 0..count {
            let message = loop {
                match consumer.pop() {
                    Some(message) => break message,
                    None => std::hint::spin_loop(),
                }
            };
            sum = sum.wrapping_add(message[0]);
        }
        sum
    });
    let start = Instant::now();
    for number in 0..count {
        let mut message = [number; 4];
        while let Err(back) = producer.push(message) {
            message = back;
            std::hint::spin_loop();
        }
    }
    let sum = receiving.join().unwrap();
    let elapsed = start.elapsed();
    // 0 + 1 + ... + (count - 1), which wraps as the sum does.
    let wanted = u128::from(count) * u128::from(count.saturating_sub(1)) / 2;
    assert_eq!(u128::from(sum), wanted % (1 << 64));
    elapsed
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ring");
    let (mut producer, mut consumer) = ring::<Message>(CAPACITY);
    group.throughput(Throughput::Elements(1));
    group.bench_function("push and pop", |bencher| {
        bencher.iter(|| {
            producer.push(black_box([1; 4])).unwrap();
            consumer.pop()
        });
    });
    group.throughput(Throughput::Elements(BATCH));
    group.bench_function("batch of 64", |bencher| {
        bencher.iter(|| {
            for number in 0..BATCH {
                producer.push(black_box([number; 4])).unwrap();
            }
            while let Some(message) = consumer.pop() {
                black_box(message);
            }
        });
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("to another thread", |bencher| bencher.iter_custom(across));
    group.finish();
}
