//! The ring against a plain queue: any sequence of pushes, pops and drops must look the same, no
//! value may be lost, repeated, reordered or dropped twice, and two threads must agree on a sum.
#![expect(clippy::expect_used, reason = "a test may fail where it stands")]

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use proptest::prelude::*;
use shards::ring::ring;

/// A value that counts its drops.
#[derive(Debug)]
struct Counted {
    number: u32,
    drops: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Push,
    Pop,
    LookEmpty,
    LookFull,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => Just(Step::Push),
        4 => Just(Step::Pop),
        1 => Just(Step::LookEmpty),
        1 => Just(Step::LookFull),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(256)
    })]

    #[test]
    fn the_ring_is_a_bounded_queue(
        capacity in 0usize..20,
        steps in steps(),
        producer_goes_first: bool,
    ) {
        let drops = Arc::new(AtomicUsize::new(0));
        let (mut producer, mut consumer) = ring(capacity);
        let slots = capacity.max(1).next_power_of_two();
        prop_assert_eq!(producer.capacity(), slots);
        let mut model = VecDeque::new();
        let (mut made, mut gone) = (0u32, 0usize);
        for step in steps {
            match step {
                Step::Push => {
                    let value = Counted { number: made, drops: drops.clone() };
                    made += 1;
                    match producer.push(value) {
                        Ok(()) => model.push_back(made - 1),
                        Err(value) => {
                            prop_assert_eq!(model.len(), slots, "refused with room");
                            prop_assert_eq!(value.number, made - 1, "another value came back");
                            gone += 1;
                        }
                    }
                    prop_assert!(model.len() <= slots);
                }
                Step::Pop => {
                    let value = consumer.pop();
                    prop_assert_eq!(value.as_ref().map(|value| value.number), model.pop_front());
                    gone += usize::from(value.is_some());
                }
                Step::LookEmpty => prop_assert_eq!(consumer.is_empty(), model.is_empty()),
                Step::LookFull => prop_assert_eq!(producer.is_full(), model.len() == slots),
            }
            prop_assert_eq!(drops.load(Ordering::Relaxed), gone);
        }
        if producer_goes_first {
            drop(producer);
            for number in std::mem::take(&mut model) {
                prop_assert_eq!(consumer.pop().map(|value| value.number), Some(number));
            }
            prop_assert!(consumer.pop().is_none());
        } else {
            drop(consumer);
            drop(producer);
        }
        prop_assert_eq!(drops.load(Ordering::Relaxed), made as usize);
    }
}

/// Messages of the two-thread test; `SHARDS_RING_MESSAGES` sets another number for a long run.
fn messages() -> u64 {
    std::env::var("SHARDS_RING_MESSAGES").map_or(2_000_000, |text| {
        text.parse().expect("SHARDS_RING_MESSAGES is a number")
    })
}

/// A value that fills the slot unevenly, so that a torn read cannot look right.
fn content(number: u64) -> (u64, [u8; 24]) {
    (number, [(number ^ (number >> 8)) as u8; 24])
}

fn two_threads(capacity: usize, count: u64) {
    let (mut producer, mut consumer) = ring(capacity);
    let producing = std::thread::spawn(move || {
        let mut sum = 0u64;
        for number in 0..count {
            let mut value = content(number);
            while let Err(back) = producer.push(value) {
                value = back;
                std::thread::yield_now();
            }
            sum = sum.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        sum
    });
    let mut sum = 0u64;
    for expected in 0..count {
        let value = loop {
            match consumer.pop() {
                Some(value) => break value,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(
            value,
            content(expected),
            "lost, repeated, reordered or torn"
        );
        sum = sum.wrapping_add(value.0.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
    assert_eq!(sum, producing.join().expect("the producer ends"));
    assert!(consumer.pop().is_none());
}

#[test]
fn two_threads_agree_on_order_and_sum() {
    two_threads(1024, messages());
}

#[test]
fn two_threads_agree_when_the_ring_is_always_full_or_empty() {
    two_threads(1, messages() / 200);
    two_threads(2, messages() / 200);
}

#[test]
fn values_left_in_the_ring_are_dropped_by_whichever_end_goes_last() {
    for consumer_goes_last in [false, true] {
        let drops = Arc::new(AtomicUsize::new(0));
        let (mut producer, consumer) = ring(4);
        for number in 0..3 {
            let drops = drops.clone();
            producer
                .push(Counted { number, drops })
                .expect("there is room");
        }
        let (first, last): (Box<dyn Send>, Box<dyn Send>) = if consumer_goes_last {
            (Box::new(producer), Box::new(consumer))
        } else {
            (Box::new(consumer), Box::new(producer))
        };
        drop(first);
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        std::thread::spawn(move || drop(last))
            .join()
            .expect("the last end goes");
        assert_eq!(drops.load(Ordering::Relaxed), 3);
    }
}
