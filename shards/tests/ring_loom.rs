//! The ring and the doorbell under every interleaving that the memory model allows.
//!
//! Runs with `RUSTFLAGS="--cfg loom" cargo test -p shards --test ring_loom --release`. The two
//! files are compiled here a second time, on loom's atomics, so that no runtime is needed.
#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

#[allow(dead_code, unreachable_pub, reason = "the models use a part of it")]
#[path = "../src/bell.rs"]
mod bell;
#[allow(dead_code, unreachable_pub, reason = "the models use a part of it")]
#[path = "../src/ring.rs"]
mod ring;

use std::{
    sync::atomic::{AtomicUsize as PlainUsize, Ordering as PlainOrdering},
    task::{Wake, Waker},
};

use bell::{Bell, Flag};
use loom::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use ring::ring;

/// Checks `run` under all interleavings, or those with at most so many preemptions.
fn model(preemptions_max: Option<usize>, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemptions_max);
    builder.check(run);
}

/// A value that counts its drops, outside the model.
struct Counted(u32, std::sync::Arc<PlainUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, PlainOrdering::Relaxed);
    }
}

/// Three pushes against three pops; what is not popped is dropped with the ring, each value once.
fn push_pop_drop(capacity: usize) {
    model(None, move || {
        let drops = std::sync::Arc::new(PlainUsize::new(0));
        let (mut producer, mut consumer) = ring(capacity);
        let for_pushes = drops.clone();
        let pushing = thread::spawn(move || {
            (0..3)
                .filter(|number| producer.push(Counted(*number, for_pushes.clone())).is_ok())
                .count()
        });
        let mut seen = Vec::new();
        for _ in 0..3 {
            if let Some(value) = consumer.pop() {
                seen.push(value.0);
            }
        }
        drop(consumer);
        let accepted = pushing.join().unwrap();
        assert!(seen.is_sorted(), "reordered: {seen:?}");
        assert!(seen.len() <= accepted);
        // The first push always finds room.
        assert!(accepted >= 1);
        assert!(seen.first().is_none_or(|first| *first == 0));
        assert_eq!(
            drops.load(PlainOrdering::Relaxed),
            3,
            "lost or dropped twice"
        );
    });
}

#[test]
fn a_ring_of_one_neither_loses_nor_repeats() {
    push_pop_drop(1);
}

#[test]
fn a_ring_of_two_neither_loses_nor_repeats() {
    push_pop_drop(2);
}

/// A sleeping shard: `wake` is remembered, as the runtime's wakers do.
struct Sleeper {
    wakes: Mutex<usize>,
    woken: Condvar,
}

struct WakeSleeper(Arc<Sleeper>);

impl Wake for WakeSleeper {
    fn wake(self: std::sync::Arc<Self>) {
        *self.0.wakes.lock().unwrap() += 1;
        self.0.woken.notify_one();
    }
}

impl Sleeper {
    fn new() -> (Arc<Self>, Waker) {
        let sleeper = Arc::new(Self {
            wakes: Mutex::new(0),
            woken: Condvar::new(),
        });
        let waker = Waker::from(std::sync::Arc::new(WakeSleeper(sleeper.clone())));
        (sleeper, waker)
    }

    /// Loom reports a deadlock when nobody wakes it.
    fn sleep(&self) {
        let mut wakes = self.wakes.lock().unwrap();
        while *wakes == 0 {
            wakes = self.woken.wait(wakes).unwrap();
        }
        *wakes -= 1;
    }
}

/// A producer pushes and rings; the consumer drains, arms, looks again and sleeps, as
/// `Port::take_in` does. A lost wake-up would leave it asleep: loom calls that a deadlock.
#[test]
fn no_wake_up_is_lost() {
    model(Some(4), || {
        let (sleeper, waker) = Sleeper::new();
        let bell = Arc::new(Bell::new());
        let (mut producer, mut consumer) = ring(2);
        bell.attach(&waker);
        let for_ringer = bell.clone();
        let ringing = thread::spawn(move || {
            for number in 0..2u32 {
                producer.push(number).unwrap();
                for_ringer.ring();
            }
        });
        let mut seen = 0;
        while seen < 2 {
            bell.disarm();
            while let Some(number) = consumer.pop() {
                assert_eq!(number, seen);
                seen += 1;
            }
            if seen == 2 {
                break;
            }
            bell.arm();
            if consumer.is_empty() {
                sleeper.sleep();
            }
        }
        ringing.join().unwrap();
    });
}

/// Two shards ring the same third one: whoever comes first while it sleeps must wake it.
#[test]
fn of_two_ringers_at_least_one_wakes() {
    model(Some(3), || {
        let (sleeper, waker) = Sleeper::new();
        let bell = Arc::new(Bell::new());
        bell.attach(&waker);
        let rung = Arc::new(AtomicUsize::new(0));
        let mut consumers = Vec::new();
        let mut ringers = Vec::new();
        for number in 0..2u32 {
            let (mut producer, consumer) = ring(1);
            consumers.push(consumer);
            let (bell, rung) = (bell.clone(), rung.clone());
            ringers.push(thread::spawn(move || {
                producer.push(number).unwrap();
                if bell.ring() {
                    rung.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        let (mut seen, mut sleeps) = (0, 0);
        while seen < 2 {
            bell.disarm();
            seen += consumers
                .iter_mut()
                .filter_map(|consumer| consumer.pop())
                .count();
            if seen == 2 {
                break;
            }
            bell.arm();
            if consumers.iter_mut().all(|consumer| consumer.is_empty()) {
                sleeper.sleep();
                sleeps += 1;
            }
        }
        for ringer in ringers {
            ringer.join().unwrap();
        }
        assert!(rung.load(Ordering::Relaxed) >= sleeps);
    });
}

/// The other direction, as in `Lane::flush`, `Lane::has_work` and `Port::drain`: a producer whose
/// ring is full raises its flag and goes to sleep; the consumer makes room, takes the flag and
/// rings, again and again. The producer's last look before it sleeps must include the room, and
/// raise the flag anew, or a wake-up is lost.
fn starved(values: u32, preemptions_max: Option<usize>) {
    model(preemptions_max, move || {
        let (sleeper, waker) = Sleeper::new();
        let bell = Arc::new(Bell::new());
        bell.attach(&waker);
        let starved = Arc::new(Flag::new());
        let (mut producer, mut consumer) = ring(1);
        producer.push(0).unwrap();
        let (for_peer, peers_flag) = (bell.clone(), starved.clone());
        let draining = thread::spawn(move || {
            // All but the last value, for whose room nobody waits.
            for expected in 0..values - 1 {
                while consumer.is_empty() {
                    thread::yield_now();
                }
                assert_eq!(consumer.pop(), Some(expected));
                if peers_flag.take() {
                    for_peer.ring();
                }
            }
            consumer
        });
        let mut next = 1;
        loop {
            bell.disarm();
            while next < values && producer.push(next).is_ok() {
                next += 1;
            }
            if next == values {
                break;
            }
            starved.raise();
            if !producer.is_full() {
                continue;
            }
            bell.arm();
            starved.raise();
            if producer.is_full() {
                sleeper.sleep();
            }
        }
        let mut consumer = draining.join().unwrap();
        assert_eq!(consumer.pop(), Some(values - 1));
    });
}

#[test]
fn a_starved_producer_learns_of_room() {
    starved(2, None);
}

#[test]
fn a_starved_producer_learns_of_room_made_after_an_early_answer() {
    starved(3, Some(3));
}
