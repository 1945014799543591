//! Starts real shards for a test and stops them: every driver this machine has, no pinning.

use std::{
    future::Future,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use shards::{
    Control, DriverChoice, EngineCounters, Plan, Shard, Shards, counters::Counter,
    listener::ListenerGroup, notify::Event, spawn, start,
};

/// How long anything may take before a test gives up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The drivers that can be built here: epoll always, io_uring where the kernel allows it.
pub(crate) fn drivers() -> Vec<DriverChoice> {
    let plan = plan(1, DriverChoice::IoUring);
    match start::<(), (), _, _>(&plan, Vec::new(), |_| async {}) {
        Ok(shards) => {
            assert_eq!(shards.join(), 0);
            vec![DriverChoice::Epoll, DriverChoice::IoUring]
        }
        Err(_) => vec![DriverChoice::Epoll],
    }
}

/// A plan without pinning.
pub(crate) fn plan(shards: u16, driver: DriverChoice) -> Plan {
    Plan {
        shards,
        cpus: None,
        driver,
        // So that replies are polled for, and those that come later are slept for.
        busy_poll: Duration::from_micros(100),
        name: "test",
    }
}

/// Waits until `condition` holds; fails when it never does.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The sum of one counter over all shards.
pub(crate) fn sum(
    counters: &[Arc<EngineCounters>],
    counter: impl Fn(&EngineCounters) -> &Counter,
) -> u64 {
    counters.iter().map(|own| counter(own).value()).sum()
}

/// What a test's control thread can tell a shard.
pub(crate) enum Order {
    /// Runs this on the shard.
    Run(Box<dyn FnOnce() + Send>),
    /// Ends the shard.
    Stop,
}

/// Running shards of a test.
pub(crate) struct Running {
    /// The shards.
    pub(crate) shards: Shards<Order>,
}

/// A shard whose inbox is taken in; ends when the test says stop.
pub(crate) struct Served<R: 'static> {
    /// The shard.
    pub(crate) shard: Rc<Shard<R, Order>>,
    stop: Rc<Event>,
}

impl<R: 'static> Served<R> {
    /// Waits until the test says stop.
    pub(crate) async fn stopped(&self) {
        self.stop.wait().await;
    }
}

/// Starts `count` shards: each takes in arrivals with `arrive`, runs `main`, and ends when told.
pub(crate) fn run<R, A, F, Fut>(
    count: u16,
    driver: DriverChoice,
    listeners: Vec<ListenerGroup>,
    arrive: A,
    main: F,
) -> Running
where
    R: Send + 'static,
    A: Fn(&Rc<Shard<R, Order>>, shards::Arrival<R>) + Send + Sync + 'static,
    F: Fn(Rc<Served<R>>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let (arrive, main) = (Arc::new(arrive), Arc::new(main));
    let shards = start::<R, Order, _, _>(&plan(count, driver), listeners, move |shard| {
        let (arrive, main) = (arrive.clone(), main.clone());
        async move {
            let shard = Rc::new(shard);
            let stop = Rc::new(Event::default());
            let (for_arrivals, for_stop) = (Rc::downgrade(&shard), stop.clone());
            shard.take_in(move |control| match control {
                Control::Arrival(arrival) => {
                    let shard = for_arrivals
                        .upgrade()
                        .expect("the shard outlives its inbox");
                    arrive(&shard, arrival);
                }
                Control::Message(Order::Run(run)) => run(),
                Control::Message(Order::Stop) => for_stop.fire(),
            });
            let served = Rc::new(Served { shard, stop });
            spawn(main(served.clone()));
            served.stopped().await;
        }
    })
    .expect("the shards start");
    assert_eq!(shards.fallback_reason, None);
    Running { shards }
}

impl Running {
    /// Runs `run` on a shard.
    pub(crate) fn run_on(&self, shard: usize, run: impl FnOnce() + Send + 'static) {
        self.shards.handles()[shard]
            .post(Order::Run(Box::new(run)))
            .unwrap_or_else(|_| panic!("shard {shard} takes orders"));
    }

    /// Keeps a shard's thread busy until the answer is released.
    pub(crate) fn hold(&self, shard: usize) -> Held {
        let (is_held, is_released) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let (arrived, released) = (is_held.clone(), is_released.clone());
        self.run_on(shard, move || {
            arrived.store(true, Ordering::Release);
            while !released.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        });
        until("the shard is held", || is_held.load(Ordering::Acquire));
        Held { is_released }
    }

    /// Stops all shards; none may have died.
    pub(crate) fn stop(self) {
        for handle in self.shards.handles() {
            assert!(handle.post(Order::Stop).is_ok(), "a shard ended early");
        }
        assert_eq!(self.shards.join(), 0, "a shard died");
    }
}

/// A shard that does nothing until this is dropped.
pub(crate) struct Held {
    is_released: Arc<AtomicBool>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.is_released.store(true, Ordering::Release);
    }
}
