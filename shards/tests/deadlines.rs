//! Time limits of connections: what is late is ended, what is not is left alone, a drain ends what
//! is idle. On every driver this machine has.
#![expect(clippy::expect_used, reason = "a test may fail where it stands")]

mod support {
    #[allow(dead_code, reason = "each test file uses a part of it")]
    pub(crate) mod harness;
}

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use shards::{Arrival, DriverChoice, Shard, Stream, listener::listen, spawn};
use support::harness::{Order, PATIENCE, Running, Served, drivers, run, until};

/// A limit that passes while the test waits for it.
const SHORT: Duration = Duration::from_millis(60);
/// A limit that never passes in a test.
const LONG: Duration = Duration::from_secs(3_600);

fn no_arrival(_: &Rc<Shard<(), Order>>, _: Arrival<()>) {
    panic!("one shard gets nothing from others");
}

/// What the server saw at the end of its connections.
#[derive(Debug, Default)]
struct Ends {
    passed: AtomicU64,
    other: AtomicU64,
}

/// Serves one-byte commands, each answered by itself, then waits for the next one under a limit
/// that the command chose: `s`hort, `l`ong, `n`one, `i`dle for long, `r`e-armed from short to long.
async fn serve(mut stream: Stream, ends: Arc<Ends>) {
    stream.deadline().arm(LONG);
    loop {
        stream.readable().await;
        let (result, bytes) = stream.read(Vec::new()).await;
        if !matches!(result, Ok(count) if count > 0) {
            match stream.deadline().has_passed() {
                true => ends.passed.fetch_add(1, Ordering::Relaxed),
                false => ends.other.fetch_add(1, Ordering::Relaxed),
            };
            return;
        }
        match bytes[0] {
            b's' => stream.deadline().arm(SHORT),
            b'l' => stream.deadline().arm(LONG),
            b'n' => {
                stream.deadline().arm(SHORT);
                stream.deadline().disarm();
            }
            b'i' => stream.deadline().arm_idle(LONG),
            b'r' => {
                stream.deadline().arm(SHORT);
                stream.deadline().arm(LONG);
            }
            other => panic!("{other} is no command"),
        }
        let (result, _) = stream.write_all(bytes).await;
        if result.is_err() {
            // The limit passed between the command and its answer.
            ends.passed.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
}

fn start_server(driver: DriverChoice) -> (Running, SocketAddr, Arc<Ends>, Drain) {
    let group = listen(([127, 0, 0, 1], 0).into(), 1, false).expect("it listens");
    let address = group.address;
    let ends = Arc::new(Ends::default());
    let for_server = ends.clone();
    let drain = Drain::default();
    let for_drain = drain.clone();
    let main = move |served: Rc<Served<()>>| {
        let ends = for_server.clone();
        let drain = for_drain.clone();
        async move {
            let accept = move |stream, _, _| spawn(serve(stream, ends.clone()));
            served.shard.accept(accept).expect("it accepts");
            while drain.0.load(Ordering::Acquire) == 0 {
                shards::sleep(Duration::from_millis(1)).await;
            }
            served.shard.deadlines.end_idle();
            served.stopped().await;
        }
    };
    let running = run(1, driver, vec![group], no_arrival, main);
    (running, address, ends, drain)
}

/// Tells the server to end its idle connections.
#[derive(Debug, Default, Clone)]
struct Drain(Arc<AtomicU64>);

struct Client(TcpStream);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it connects");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("it can be set");
        Self(stream)
    }

    fn command(&mut self, command: u8) {
        self.0.write_all(&[command]).expect("it is taken");
        let mut answer = [0];
        self.0.read_exact(&mut answer).expect("an answer comes");
        assert_eq!(answer[0], command);
    }

    /// Waits for the end of the connection.
    fn ended(&mut self) {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.is_empty(), "{rest:?} came before the end"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
}

#[test]
fn a_connection_past_its_deadline_ends_and_no_other() {
    for driver in drivers() {
        let (running, address, ends, _) = start_server(driver);
        let mut kept: Vec<Client> = b"lnri"
            .iter()
            .map(|command| {
                let mut client = Client::connect(address);
                client.command(*command);
                client
            })
            .collect();
        for round in 1..=10u64 {
            let mut late = Client::connect(address);
            let armed_after = Instant::now();
            late.0.write_all(b"s").expect("it is taken");
            let mut rest = Vec::new();
            // The answer, unless the machine was so slow that the limit passed before it.
            let _ = late.0.read_to_end(&mut rest);
            assert!(rest.is_empty() || rest == b"s");
            assert!(armed_after.elapsed() >= SHORT, "ended early");
            until("it is counted", || {
                ends.passed.load(Ordering::Relaxed) == round
            });
            let counters = &running.shards.counters[0];
            assert_eq!(counters.deadlines_passed.value(), round);
        }
        // By now the short limits that these had before have passed too.
        for client in &mut kept {
            client.command(b'l');
        }
        assert_eq!(ends.other.load(Ordering::Relaxed), 0);
        drop(kept);
        until("they end", || ends.other.load(Ordering::Relaxed) == 4);
        running.stop();
        assert_eq!(ends.passed.load(Ordering::Relaxed), 10);
    }
}

#[test]
fn a_drain_ends_what_is_idle_now_and_what_becomes_idle() {
    for driver in drivers() {
        let (running, address, ends, drain) = start_server(driver);
        let mut idle: Vec<Client> = (0..20).map(|_| Client::connect(address)).collect();
        for client in &mut idle {
            client.command(b'i');
        }
        let (mut busy, mut back_to_work) = (Client::connect(address), Client::connect(address));
        busy.command(b'l');
        back_to_work.command(b'i');
        back_to_work.command(b'l');
        drain.0.store(1, Ordering::Release);
        for client in &mut idle {
            client.ended();
        }
        busy.command(b'l');
        back_to_work.command(b'n');
        // It becomes idle, and ends; its answer may be cut off, as the client is owed none.
        busy.0.write_all(b"i").expect("it is taken");
        let mut rest = Vec::new();
        let _ = busy.0.read_to_end(&mut rest);
        assert!(rest.is_empty() || rest == b"i");
        back_to_work.command(b'l');
        until("all are counted", || {
            ends.passed.load(Ordering::Relaxed) == 21
        });
        assert_eq!(ends.other.load(Ordering::Relaxed), 0);
        running.stop();
    }
}

#[test]
fn a_pending_write_ends_at_the_deadline_too() {
    for driver in drivers() {
        let group = listen(([127, 0, 0, 1], 0).into(), 1, false).expect("it listens");
        let address = group.address;
        let failed = Arc::new(AtomicU64::new(0));
        let for_server = failed.clone();
        let main = move |served: Rc<Served<()>>| {
            let failed = for_server.clone();
            async move {
                let accept = move |mut stream: Stream, _, _| {
                    let failed = failed.clone();
                    spawn(async move {
                        stream.deadline().arm(SHORT);
                        // More than both socket buffers hold; the client reads none of it.
                        let (result, _) = stream.write_all(vec![7; 64 << 20]).await;
                        assert!(result.is_err() && stream.deadline().has_passed());
                        failed.fetch_add(1, Ordering::Relaxed);
                    });
                };
                served.shard.accept(accept).expect("it accepts");
                served.stopped().await;
            }
        };
        let running = run(1, driver, vec![group], no_arrival, main);
        let client = TcpStream::connect(address).expect("it connects");
        until("the write fails", || failed.load(Ordering::Relaxed) == 1);
        drop(client);
        running.stop();
    }
}
