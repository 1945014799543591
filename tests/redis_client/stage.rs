//! What the tests of the Redis client share: a shard of each driver, and what listeners were told.

use std::{
    cell::RefCell,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use shardgate::{
    link::Link,
    redis::{Connect, ConnectionEnd, Invalidated, OnInvalidate, RedisClient, RedisOptions},
};
use shards::{DriverChoice, Plan, Shard, Stream, sleep};

use super::support::PATIENCE;

pub(crate) type Local = Pin<Box<dyn Future<Output = ()>>>;

/// Runs `body` as the life of one shard, once on each driver, with a fresh `fixture` each.
pub(crate) fn on_each_driver<T: Send + 'static>(
    fixture: impl Fn() -> T,
    body: impl Fn(Rc<Shard<(), ()>>, Rc<T>) -> Local + Send + Sync + 'static,
) {
    let body = Arc::new(body);
    let mut runs = 0;
    for driver in [DriverChoice::Epoll, DriverChoice::IoUring] {
        let plan = Plan {
            shards: 1,
            cpus: None,
            driver,
            busy_poll: Duration::ZERO,
            name: "redis-test",
        };
        let (sender, receiver) = mpsc::channel();
        let given = Mutex::new(Some(fixture()));
        let body = body.clone();
        let started = shards::start::<(), (), _, _>(&plan, Vec::new(), move |shard| {
            let (sender, body) = (sender.clone(), body.clone());
            let given = Rc::new(given.lock().unwrap().take().unwrap());
            async move {
                // Ours too: the fixture lives as long as the test, whatever the body takes of it.
                body(Rc::new(shard), given.clone()).await;
                drop(given);
                sender.send(()).unwrap();
            }
        });
        match started {
            Ok(shards) => {
                let outcome = receiver.recv_timeout(PATIENCE * 4);
                assert!(
                    !matches!(outcome, Err(mpsc::RecvTimeoutError::Timeout)),
                    "{driver:?}"
                );
                assert_eq!(shards.join(), 0, "{driver:?}");
                outcome.unwrap();
                runs += 1;
            }
            // Containers often forbid io_uring; epoll must always run.
            Err(error) => {
                assert_eq!(driver, DriverChoice::IoUring, "{error}");
                eprintln!("not run on io_uring: {error}");
            }
        }
    }
    assert!(runs > 0);
}

pub(crate) fn plain(shard: &Shard<(), ()>, port: u16) -> Connect {
    let deadlines = shard.deadlines.clone();
    Rc::new(move || {
        let deadlines = deadlines.clone();
        async move {
            let address = ([127, 0, 0, 1], port).into();
            let stream = Stream::connect(address, Duration::from_secs(1), &deadlines).await?;
            Ok(Link::Plain(stream))
        }
        .boxed_local()
    })
}

/// Collects what was told: keys, and `None` for everything.
#[derive(Clone, Default)]
pub(crate) struct Told(Rc<RefCell<Vec<Option<Vec<u8>>>>>);

impl Told {
    pub(crate) fn listener(&self) -> OnInvalidate {
        let told = self.0.clone();
        Rc::new(move |what| {
            told.borrow_mut().push(match what {
                Invalidated::Key(key) => Some(key.to_vec()),
                Invalidated::All => None,
            });
        })
    }

    pub(crate) fn has(&self, what: Option<&[u8]>) -> bool {
        self.0.borrow().iter().any(|told| told.as_deref() == what)
    }

    pub(crate) async fn wait_for(&self, what: Option<&[u8]>) {
        until("an invalidation", || self.has(what)).await;
        self.0.borrow_mut().clear();
    }
}

/// Limits wide enough that only a test that means to meet them does.
pub(crate) fn patient() -> RedisOptions {
    RedisOptions {
        command_timeout: PATIENCE,
        connect_timeout: PATIENCE,
        idle_check: PATIENCE,
        ..RedisOptions::default()
    }
}

pub(crate) fn start(
    shard: &Shard<(), ()>,
    port: u16,
    options: RedisOptions,
) -> (RedisClient, Told) {
    let told = Told::default();
    let client = RedisClient::start(options, plain(shard, port), told.listener());
    (client, told)
}

pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) fn refused(kind: &str) -> ConnectionEnd {
    ConnectionEnd::Refused(String::from(kind))
}
