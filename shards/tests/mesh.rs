//! Calls between real shards: under load, with full rings, slow readers, callers that leave and
//! owners that fail. On every driver this machine has.
#![expect(clippy::expect_used, reason = "a test may fail where it stands")]

mod support {
    #[allow(dead_code, reason = "each test file uses a part of it")]
    pub(crate) mod harness;
}

use std::{
    cell::Cell,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use shards::{
    Arrival, ReplySink, Shard, ShardId,
    mesh::{Aborted, CALLS_MAX, Gone, WINDOW},
    notify::Event,
    slots::SlotTable,
    spawn, yield_now,
};
use support::harness::{Order, Served, drivers, run, sum, until};

/// What a test's caller asks of the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    /// Reply with so many parts, made from the seed.
    Parts { seed: u64, count: u32 },
    /// Send parts until the caller leaves.
    Endless,
    /// Send nothing, wait until the caller leaves.
    Hang,
    /// Panic in a task after so many parts.
    Panic { after: u32 },
    /// Panic in the inbox's own closure.
    PanicAtOnce,
}

fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Part `index` of the reply to `seed`: its length and bytes follow from both.
fn part(seed: u64, index: u32, mut buffer: Vec<u8>) -> Vec<u8> {
    let mut state = (seed ^ (u64::from(index) << 40)) | 1;
    let length = next_random(&mut state) % 64;
    buffer.clear();
    buffer.extend_from_slice(&seed.to_le_bytes());
    buffer.extend_from_slice(&index.to_le_bytes());
    buffer.extend((0..length).map(|_| next_random(&mut state) as u8));
    buffer
}

/// Counts what the owners saw, across all shards of a test.
#[derive(Debug, Default)]
struct Seen {
    sent: AtomicU64,
    gone: AtomicUsize,
}

async fn reply(shard: Rc<Shard<Ask, Order>>, ask: Ask, mut sink: ReplySink<Ask>, seen: Arc<Seen>) {
    match ask {
        Ask::Parts { seed, count } => {
            for index in 0..count - 1 {
                if sink
                    .send(part(seed, index, shard.buffers.take()))
                    .await
                    .is_err()
                {
                    seen.gone.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                seen.sent.fetch_add(1, Ordering::Relaxed);
            }
            if sink
                .end(part(seed, count - 1, shard.buffers.take()))
                .await
                .is_err()
            {
                seen.gone.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ask::Endless => {
            for index in 0.. {
                let Ok(()) = sink.send(part(7, index, shard.buffers.take())).await else {
                    assert_eq!(sink.send(Vec::new()).await, Err(Gone), "gone stays gone");
                    seen.gone.fetch_add(1, Ordering::Relaxed);
                    return;
                };
                seen.sent.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ask::Hang => {
            sink.cancelled().await;
            seen.gone.fetch_add(1, Ordering::Relaxed);
        }
        Ask::Panic { after } => {
            for index in 0..after {
                let _ = sink.send(part(7, index, Vec::new())).await;
            }
            panic!("the owner's task fails, as this test wants");
        }
        Ask::PanicAtOnce => unreachable!("the inbox panicked before"),
    }
}

fn arrive(seen: Arc<Seen>) -> impl Fn(&Rc<Shard<Ask, Order>>, Arrival<Ask>) + Send + Sync {
    move |shard, arrival| {
        let Arrival::Call {
            request,
            reply: sink,
            ..
        } = arrival
        else {
            panic!("no socket is sent here");
        };
        if request == Ask::PanicAtOnce {
            panic!("the inbox fails, as this test wants");
        }
        spawn(reply(shard.clone(), request, sink, seen.clone()));
    }
}

/// Makes one call and checks its reply, part by part; retries while the owner is busy.
async fn call_and_check(shard: &Shard<Ask, Order>, owner: ShardId, seed: u64, refused: &Cell<u64>) {
    let count = 1 + (seed % 20) as u32;
    let ask = Ask::Parts { seed, count };
    let mut stream = loop {
        match shard.port.call(owner, ask) {
            Ok(stream) => break stream,
            Err(back) => {
                assert_eq!(back, ask, "a refused request comes back as it was");
                refused.set(refused.get() + 1);
                yield_now().await;
            }
        }
    };
    let mut expected = Vec::new();
    for index in 0..count {
        let bytes = stream
            .next()
            .await
            .expect("not aborted")
            .expect("not over yet");
        expected = part(seed, index, expected);
        assert_eq!(bytes, expected, "part {index} of {seed}");
        assert_eq!(stream.is_at_end(), index + 1 == count);
        stream.give_back(bytes);
    }
    assert_eq!(stream.next().await, Ok(None));
}

/// `shards` shards with `callers` tasks each make `calls` calls each to random others.
fn load(shards: u16, callers: u64, calls: u64) {
    for driver in drivers() {
        let seen = Arc::new(Seen::default());
        let (done, refusals) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (for_shards, all_refusals) = (done.clone(), refusals.clone());
        let main = move |served: Rc<Served<Ask>>| {
            let (done, all_refusals) = (for_shards.clone(), all_refusals.clone());
            async move {
                let shard = &served.shard;
                let one = |caller: u64| {
                    let (done, all_refusals) = (done.clone(), all_refusals.clone());
                    let shard = shard.clone();
                    async move {
                        let refused = Cell::new(0);
                        let mut random = 0x9e37_79b9 ^ (u64::from(shard.id) << 32) ^ (caller << 8);
                        for _ in 0..calls / callers {
                            let step = 1 + next_random(&mut random) % u64::from(shard.count - 1);
                            let owner = (u64::from(shard.id) + step) % u64::from(shard.count);
                            let seed = next_random(&mut random);
                            call_and_check(&shard, owner as ShardId, seed, &refused).await;
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        all_refusals.fetch_add(refused.get(), Ordering::Relaxed);
                    }
                };
                for caller in 0..callers {
                    spawn(one(caller));
                }
                served.stopped().await;
            }
        };
        let running = run(shards, driver, Vec::new(), arrive(seen), main);
        let all = u64::from(shards) * (calls / callers) * callers;
        until("every call is answered", || {
            done.load(Ordering::Relaxed) == all
        });
        let counters = running.shards.counters.clone();
        running.stop();
        assert_eq!(sum(&counters, |own| &own.forwarded), all);
        assert_eq!(sum(&counters, |own| &own.served), all);
        assert_eq!(
            sum(&counters, |own| &own.ring_full),
            refusals.load(Ordering::Relaxed)
        );
    }
}

#[test]
fn two_shards_answer_each_other_under_load() {
    load(2, 32, 8_000);
}

#[test]
fn four_shards_answer_each_other_under_load() {
    load(4, 64, 20_000);
}

/// Many more callers than the 64 slots of a ring: refusals and full rings all the time.
#[test]
fn full_rings_lose_nothing() {
    load(17, 300, 600);
}

/// One call at a time: both shards sleep between any two messages, so a lost wake-up would hang.
#[test]
fn sleeping_shards_are_woken_for_every_message() {
    load(2, 1, 1_000);
}

#[test]
fn there_is_no_lane_to_oneself_or_to_nobody() {
    for driver in drivers() {
        for shards in [1, 2, 4] {
            let checked = Arc::new(AtomicUsize::new(0));
            let for_shards = checked.clone();
            let main = move |served: Rc<Served<Ask>>| {
                let checked = for_shards.clone();
                async move {
                    let (shard, ask) = (&served.shard, Ask::Parts { seed: 1, count: 1 });
                    assert_eq!(shard.port.call(shard.id, ask).err(), Some(ask));
                    assert_eq!(shard.port.call(shard.count, ask).err(), Some(ask));
                    assert_eq!(shard.port.call(ShardId::MAX, ask).err(), Some(ask));
                    checked.fetch_add(1, Ordering::Relaxed);
                }
            };
            let running = run(shards, driver, Vec::new(), arrive(Arc::default()), main);
            until("checked", || {
                checked.load(Ordering::Relaxed) == usize::from(shards)
            });
            assert_eq!(sum(&running.shards.counters, |own| &own.forwarded), 0);
            running.stop();
        }
    }
}

/// Runs `caller` on shard 0 of two, on each driver; `before_stop` looks at what it left behind.
fn with_caller<Fut: Future<Output = ()> + 'static>(
    seen: &Arc<Seen>,
    caller: impl Fn(Rc<Shard<Ask, Order>>) -> Fut + Send + Sync + Copy + 'static,
    before_stop: impl Fn(),
) {
    for driver in drivers() {
        let is_done = Arc::new(AtomicBool::new(false));
        let done = is_done.clone();
        let main = move |served: Rc<Served<Ask>>| {
            let done = done.clone();
            async move {
                if served.shard.id == 0 {
                    caller(served.shard.clone()).await;
                    done.store(true, Ordering::Release);
                }
            }
        };
        let running = run(2, driver, Vec::new(), arrive(seen.clone()), main);
        until("the caller is done", || is_done.load(Ordering::Acquire));
        before_stop();
        running.stop();
    }
}

/// The owner does not run: as many calls as there are slots go out, the next is refused and
/// counted; when the owner runs again, every one of them is answered.
#[test]
fn calls_past_the_slots_are_refused_and_the_others_answered() {
    for driver in drivers() {
        let taken = Arc::new(AtomicUsize::new(0));
        let answered = Arc::new(AtomicUsize::new(0));
        let (for_taken, for_answered) = (taken.clone(), answered.clone());
        let owner_is_held = Arc::new(AtomicBool::new(false));
        let go = owner_is_held.clone();
        let main = move |served: Rc<Served<Ask>>| {
            let (taken, answered) = (for_taken.clone(), for_answered.clone());
            let go = go.clone();
            async move {
                if served.shard.id != 0 {
                    return;
                }
                while !go.load(Ordering::Acquire) {
                    yield_now().await;
                }
                let port = &served.shard.port;
                let mut streams = Vec::new();
                while let Ok(stream) = port.call(1, Ask::Parts { seed: 3, count: 3 }) {
                    streams.push(stream);
                }
                taken.store(streams.len(), Ordering::Release);
                for mut stream in streams {
                    let mut parts = 0;
                    while let Some(bytes) = stream.next().await.expect("not aborted") {
                        assert_eq!(bytes, part(3, parts, Vec::new()));
                        parts += 1;
                        stream.give_back(bytes);
                    }
                    assert_eq!(parts, 3);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let running = run(2, driver, Vec::new(), arrive(Arc::default()), main);
        let held = running.hold(1);
        owner_is_held.store(true, Ordering::Release);
        until("a call is refused", || taken.load(Ordering::Acquire) > 0);
        assert_eq!(taken.load(Ordering::Acquire), CALLS_MAX);
        assert_eq!(running.shards.counters[0].ring_full.value(), 1);
        assert_eq!(running.shards.counters[1].served.value(), 0);
        drop(held);
        until("all are answered", || {
            answered.load(Ordering::Relaxed) == CALLS_MAX
        });
        assert_eq!(running.shards.counters[1].served.value(), CALLS_MAX as u64);
        running.stop();
    }
}

/// A reader that stops after one part: the owner sends what the credits allow and not one more,
/// while a thousand other calls on the same lane are answered.
#[test]
fn a_slow_reader_holds_up_nobody_and_grows_nothing() {
    for driver in drivers() {
        let seen = Arc::new(Seen::default());
        let others = Arc::new(Seen::default());
        let is_done = Arc::new(AtomicBool::new(false));
        let (for_owner, for_others) = (seen.clone(), others.clone());
        let (for_caller, done) = (seen.clone(), is_done.clone());
        let main = move |served: Rc<Served<Ask>>| {
            let (seen, done) = (for_caller.clone(), done.clone());
            async move {
                if served.shard.id != 0 {
                    return;
                }
                let shard = &served.shard;
                let mut slow = shard.port.call(1, Ask::Endless).expect("there is room");
                let first = slow.next().await.expect("not aborted").expect("a part");
                slow.give_back(first);
                let bound = u64::from(WINDOW) + 1;
                while seen.sent.load(Ordering::Relaxed) < bound {
                    yield_now().await;
                }
                let refused = Cell::new(0);
                for seed in 0..1_000 {
                    call_and_check(shard, 1, seed, &refused).await;
                }
                assert_eq!(refused.get(), 0);
                assert_eq!(
                    seen.sent.load(Ordering::Relaxed),
                    bound,
                    "sent without credit"
                );
                // It goes on where it was.
                for index in 1..50 {
                    let bytes = slow.next().await.expect("not aborted").expect("a part");
                    assert_eq!(bytes, part(7, index, Vec::new()));
                    slow.give_back(bytes);
                }
                drop(slow);
                done.store(true, Ordering::Release);
            }
        };
        let arrive = move |shard: &Rc<Shard<Ask, Order>>, arrival: Arrival<Ask>| {
            let Arrival::Call {
                request,
                reply: sink,
                ..
            } = arrival
            else {
                panic!("no socket is sent here");
            };
            let seen = match request {
                Ask::Endless => for_owner.clone(),
                _ => for_others.clone(),
            };
            spawn(reply(shard.clone(), request, sink, seen));
        };
        let running = run(2, driver, Vec::new(), arrive, main);
        until("the caller is done", || is_done.load(Ordering::Acquire));
        until("the owner is told", || {
            seen.gone.load(Ordering::Relaxed) == 1
        });
        assert_eq!(others.gone.load(Ordering::Relaxed), 0);
        running.stop();
    }
}

/// Callers that leave, early or while the owner waits: the owner learns of it each time, and no
/// call slot is lost, however often it happens.
#[test]
fn the_owner_learns_that_the_caller_left_and_no_slot_is_lost() {
    let seen = Arc::new(Seen::default());
    let rounds = CALLS_MAX * 2 + 10;
    with_caller(
        &seen,
        move |shard| async move {
            for round in 0..rounds {
                let ask = if round % 2 == 0 {
                    Ask::Hang
                } else {
                    Ask::Endless
                };
                let mut stream = loop {
                    match shard.port.call(1, ask) {
                        Ok(stream) => break stream,
                        Err(_) => yield_now().await,
                    }
                };
                if ask == Ask::Endless {
                    for index in 0..round as u32 % 7 {
                        let bytes = stream.next().await.expect("not aborted").expect("a part");
                        assert_eq!(bytes, part(7, index, Vec::new()));
                        stream.give_back(bytes);
                    }
                }
            }
            // All slots are free again: as many calls as there are may be open at once.
            let mut open = Vec::new();
            while open.len() < CALLS_MAX {
                match shard.port.call(1, Ask::Hang) {
                    Ok(stream) => open.push(stream),
                    Err(_) => yield_now().await,
                }
            }
        },
        || {
            until("the owners are told", || {
                seen.gone.load(Ordering::Relaxed) % (rounds + CALLS_MAX) == 0
            })
        },
    );
    let all = drivers().len() * (rounds + CALLS_MAX);
    assert_eq!(seen.gone.load(Ordering::Relaxed), all);
}

/// An owner that panics, in its task or in the inbox itself: the caller gets the parts sent before
/// and then "aborted"; the shard lives and answers the next call.
#[test]
fn an_owner_that_panics_aborts_its_call_only() {
    let seen = Arc::new(Seen::default());
    let before = shards::task::panic_count();
    with_caller(
        &seen,
        |shard| async move {
            let refused = Cell::new(0);
            for after in [0, 2, WINDOW] {
                let mut stream = shard
                    .port
                    .call(1, Ask::Panic { after })
                    .expect("there is room");
                for index in 0..after {
                    let bytes = stream.next().await.expect("not yet").expect("a part");
                    assert_eq!(bytes, part(7, index, Vec::new()));
                }
                assert_eq!(stream.next().await, Err(Aborted));
                assert!(!stream.is_at_end());
                call_and_check(&shard, 1, u64::from(after), &refused).await;
            }
            let mut stream = shard.port.call(1, Ask::PanicAtOnce).expect("there is room");
            assert_eq!(stream.next().await, Err(Aborted));
            call_and_check(&shard, 1, 19, &refused).await;
        },
        || (),
    );
    let panics = shards::task::panic_count() - before;
    assert!(
        panics >= 4 * drivers().len() as u64,
        "{panics} panics were counted"
    );
}

/// The reply of a call may be dropped with the whole answer unread, by a caller that never ran.
#[test]
fn a_held_caller_gets_everything_when_it_runs_again() {
    for driver in drivers() {
        let (sent, read) = (Arc::new(Seen::default()), Arc::new(AtomicU64::new(0)));
        let (is_ready, go_on) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let (ready, go, for_caller) = (is_ready.clone(), go_on.clone(), read.clone());
        // 17 shards have rings of 64 slots: 200 replies of one window each overflow them.
        let calls = 200u64;
        let main = move |served: Rc<Served<Ask>>| {
            let (ready, go, read) = (ready.clone(), go.clone(), for_caller.clone());
            async move {
                if served.shard.id != 0 {
                    return;
                }
                let mut streams = Vec::new();
                while (streams.len() as u64) < calls {
                    match served.shard.port.call(1, Ask::Parts { seed: 5, count: 40 }) {
                        Ok(stream) => streams.push(stream),
                        Err(_) => yield_now().await,
                    }
                }
                // The turn ends once more, so that the owner's bell is rung for the last calls.
                yield_now().await;
                ready.store(true, Ordering::Release);
                // Busy without yielding: the inbox of this shard does not run either.
                while !go.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                for mut stream in streams {
                    for index in 0..40 {
                        let bytes = stream.next().await.expect("not aborted").expect("a part");
                        assert_eq!(bytes, part(5, index, Vec::new()));
                        stream.give_back(bytes);
                    }
                    assert_eq!(stream.next().await, Ok(None));
                    read.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let running = run(17, driver, Vec::new(), arrive(sent.clone()), main);
        until("the calls are out", || is_ready.load(Ordering::Acquire));
        let bound = calls * u64::from(WINDOW);
        until("the owner used all its credits", || {
            sent.sent.load(Ordering::Relaxed) >= bound
        });
        assert_eq!(
            sent.sent.load(Ordering::Relaxed),
            bound,
            "sent without credit"
        );
        go_on.store(true, Ordering::Release);
        until("every reply is read", || {
            read.load(Ordering::Relaxed) == calls
        });
        running.stop();
    }
}

#[test]
fn every_shard_names_the_same_owners_and_the_published_ones() {
    let names: Vec<String> = (0..1_000).map(|number| format!("name-{number}")).collect();
    for shards in [1, 2, 4] {
        let answers = Arc::new(AtomicUsize::new(0));
        let (for_shards, for_names) = (answers.clone(), names.clone());
        let main = move |served: Rc<Served<Ask>>| {
            let (answers, names) = (for_shards.clone(), for_names.clone());
            async move {
                let published = SlotTable::new(served.shard.count);
                for name in names {
                    let owner = served.shard.slots.owner_of(name.as_bytes());
                    assert_eq!(owner, published.owner_of(name.as_bytes()));
                    assert!(owner < served.shard.count);
                }
                answers.fetch_add(1, Ordering::Relaxed);
            }
        };
        let driver = shards::DriverChoice::Epoll;
        let running = run(shards, driver, Vec::new(), arrive(Arc::default()), main);
        until("all have answered", || {
            answers.load(Ordering::Relaxed) == usize::from(shards)
        });
        running.stop();
    }
}

#[test]
fn orders_from_outside_arrive_once_and_in_order() {
    for driver in drivers() {
        let running = run(
            2,
            driver,
            Vec::new(),
            arrive(Arc::default()),
            |served| async move {
                let never = Event::default();
                drop(served);
                never.wait().await;
            },
        );
        let got = Arc::new(AtomicU64::new(0));
        for number in 0..5_000u64 {
            let got = got.clone();
            let mut order = Order::Run(Box::new(move || {
                let before = got.swap(number + 1, Ordering::Relaxed);
                assert_eq!(before, number, "lost, repeated or reordered");
            }));
            // The queue holds 1024: a refused order comes back and is posted again.
            while let Err(back) = running.shards.handles()[1].post(order) {
                order = back;
                std::thread::yield_now();
            }
        }
        until("the last order ran", || {
            got.load(Ordering::Relaxed) == 5_000
        });
        let handle = running.shards.handles()[1].clone();
        running.stop();
        assert!(
            handle.post(Order::Stop).is_err(),
            "an ended shard takes no orders"
        );
    }
}
