//! Outgoing connections: they work, they are refused, they time out against a black hole; none of
//! it leaves a descriptor behind. On every driver this machine has, over the loopback only.
#![expect(clippy::expect_used, reason = "a test may fail where it stands")]

mod support {
    #[allow(dead_code, reason = "each test file uses a part of it")]
    pub(crate) mod harness;
}

use std::{
    future::Future,
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use shards::{Shard, Stream, spawn, task::within};
use socket2::{Domain, Socket, Type};
use support::harness::{Order, Served, drivers, run, until};

/// Descriptors are counted for the whole process: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const LONG: Duration = Duration::from_secs(3_600);

fn open_descriptors() -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").expect("Linux has it");
    // The directory itself is one.
    entries.count() - 1
}

/// Runs `client` on a shard of each driver; afterwards as many descriptors are open as before.
fn on_a_shard<Fut: Future<Output = ()> + 'static>(
    client: impl Fn(Rc<Shard<(), Order>>) -> Fut + Send + Sync + 'static,
) {
    let client = Arc::new(client);
    for driver in drivers() {
        let go = Arc::new(AtomicBool::new(false));
        let is_done = Arc::new(AtomicBool::new(false));
        let (client, may_go, done) = (client.clone(), go.clone(), is_done.clone());
        let main = move |served: Rc<Served<()>>| {
            let (client, may_go, done) = (client.clone(), may_go.clone(), done.clone());
            async move {
                while !may_go.load(Ordering::Acquire) {
                    shards::sleep(Duration::from_millis(1)).await;
                }
                client(served.shard.clone()).await;
                done.store(true, Ordering::Release);
                served.stopped().await;
            }
        };
        let running = run(1, driver, Vec::new(), |_, _| (), main);
        let before = open_descriptors();
        go.store(true, Ordering::Release);
        until("the client is done", || is_done.load(Ordering::Acquire));
        until("no descriptor is left behind", || {
            open_descriptors() <= before
        });
        running.stop();
    }
}

/// An address that takes no connection and refuses none: its queue is full.
struct BlackHole {
    address: SocketAddr,
    _listener: Socket,
    _queued: Vec<Socket>,
}

impl BlackHole {
    fn open() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        listener
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .expect("it binds");
        listener.listen(0).expect("it listens");
        let address = listener
            .local_addr()
            .expect("bound")
            .as_socket()
            .expect("IPv4");
        // A queue of "0" holds one. Fill it, then some, until one is left without an answer.
        let mut queued = Vec::new();
        loop {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            let result = socket.connect_timeout(&address.into(), Duration::from_millis(200));
            queued.push(socket);
            match result {
                Ok(()) => assert!(queued.len() < 100, "the queue never fills"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::TimedOut);
                    break;
                }
            }
        }
        Self {
            address,
            _listener: listener,
            _queued: queued,
        }
    }
}

#[test]
fn a_connection_carries_bytes_both_ways() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let listener = Arc::new(TcpListener::bind(("127.0.0.1", 0)).expect("it binds"));
    let address = listener.local_addr().expect("bound");
    let rounds = drivers().len() * 20;
    // The descriptors are counted: this end closes its own only when all is over.
    let for_server = listener.clone();
    let server = std::thread::spawn(move || {
        for _ in 0..rounds {
            let (mut client, _) = for_server.accept().expect("a client");
            let mut request = [0; 5];
            client.read_exact(&mut request).expect("a request");
            assert_eq!(&request, b"hello");
            client.write_all(b"welcome").expect("it is taken");
        }
    });
    on_a_shard(move |shard| async move {
        for _ in 0..20 {
            let mut stream = Stream::connect(address, LONG, &shard.deadlines)
                .await
                .expect("it connects");
            assert_eq!(stream.peer_address().expect("connected"), address);
            assert!(stream.has_no_delay().expect("it is open"));
            let (result, _) = stream.write_all(b"hello".to_vec()).await;
            result.expect("it is taken");
            let mut answer = Vec::new();
            loop {
                // Without `readable` before it: the read itself must wait on either driver.
                let (result, back) = stream.read(answer).await;
                answer = back;
                if result.expect("it can be read") == 0 {
                    break;
                }
            }
            assert_eq!(answer, b"welcome");
        }
    });
    server.join().expect("the server got what it wants");
    drop(listener);
}

#[test]
fn a_refused_connection_says_so() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // Bound, so that nobody else gets the port, but not listening.
    let nobody = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    nobody
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .expect("it binds");
    let address = nobody
        .local_addr()
        .expect("bound")
        .as_socket()
        .expect("IPv4");
    on_a_shard(move |shard| async move {
        for _ in 0..20 {
            let result = Stream::connect(address, LONG, &shard.deadlines).await;
            assert_eq!(
                result.err().map(|error| error.kind()),
                Some(ErrorKind::ConnectionRefused)
            );
        }
        assert_eq!(shard.deadlines.open_count(), 0);
    });
}

async fn time_out(shard: &Shard<(), Order>, address: SocketAddr, limit: Duration) -> io::Error {
    let started = Instant::now();
    let error = Stream::connect(address, limit, &shard.deadlines)
        .await
        .expect_err("a black hole takes nobody");
    assert!(started.elapsed() >= limit, "gave up early");
    error
}

#[test]
fn a_black_hole_times_out_and_leaves_nothing_behind() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let hole = BlackHole::open();
    let address = hole.address;
    on_a_shard(move |shard| async move {
        let ended = Rc::new(AtomicU64::new(0));
        for attempt in 0..50 {
            let (shard, ended) = (shard.clone(), ended.clone());
            spawn(async move {
                let limit = Duration::from_millis(20 + attempt);
                let error = time_out(&shard, address, limit).await;
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        while ended.load(Ordering::Relaxed) < 50 {
            shards::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(shard.own_counters().deadlines_passed.value(), 50);
        assert_eq!(shard.deadlines.open_count(), 0);
    });
}

#[test]
fn a_dropped_attempt_leaves_nothing_behind() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let hole = BlackHole::open();
    let address = hole.address;
    on_a_shard(move |shard| async move {
        for _ in 0..20 {
            let attempt = Stream::connect(address, LONG, &shard.deadlines);
            assert!(within(Duration::from_millis(3), attempt).await.is_none());
        }
        assert_eq!(shard.deadlines.open_count(), 0);
    });
}

#[test]
fn many_attempts_at_once_all_succeed() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    const ATTEMPTS: u64 = 100;
    let listener = Arc::new(TcpListener::bind(("127.0.0.1", 0)).expect("it binds"));
    let address = listener.local_addr().expect("bound");
    let (for_server, all) = (listener.clone(), drivers().len() as u64 * ATTEMPTS);
    let server = std::thread::spawn(move || {
        for _ in 0..all {
            drop::<TcpStream>(for_server.accept().expect("a client").0);
        }
    });
    on_a_shard(move |shard| async move {
        let reached = Rc::new(AtomicU64::new(0));
        for _ in 0..ATTEMPTS {
            let (shard, reached) = (shard.clone(), reached.clone());
            spawn(async move {
                let stream = Stream::connect(address, LONG, &shard.deadlines).await;
                drop(stream.expect("it connects"));
                reached.fetch_add(1, Ordering::Relaxed);
            });
        }
        while reached.load(Ordering::Relaxed) < ATTEMPTS {
            shards::sleep(Duration::from_millis(1)).await;
        }
    });
    server.join().expect("all came");
    drop(listener);
}
