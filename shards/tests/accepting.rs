//! Accepting connections: what is queued when a drain begins is served, a shortage of descriptors
//! is survived, and a panic costs one connection. On every driver this machine has.
#![expect(clippy::expect_used, reason = "a test may fail where it stands")]

mod support {
    #[allow(dead_code, reason = "each test file uses a part of it")]
    pub(crate) mod harness;
}

use std::{
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Command, Stdio},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use shards::{Arrival, DriverChoice, Shard, Stream, listener::listen, spawn};
use support::harness::{Order, PATIENCE, Running, Served, drivers, run, sum, until};

fn no_arrival(_: &Rc<Shard<(), Order>>, _: Arrival<()>) {
    panic!("nothing is sent between the shards here");
}

/// Clients are already queued at listeners nobody accepts on when the drain begins: each of them
/// is served; afterwards the address is closed.
#[test]
fn connections_queued_when_the_drain_begins_are_all_served() {
    const CLIENTS: usize = 300;
    for driver in drivers() {
        let group = listen(([127, 0, 0, 1], 0).into(), 2, false).expect("it listens");
        let address = group.address;
        let drain = Arc::new(AtomicBool::new(false));
        let drained = Arc::new(AtomicUsize::new(0));
        let (for_main, for_drained) = (drain.clone(), drained.clone());
        let main = move |served: Rc<Served<()>>| {
            let (drain, drained) = (for_main.clone(), for_drained.clone());
            async move {
                while !drain.load(Ordering::Acquire) {
                    shards::sleep(Duration::from_millis(1)).await;
                }
                let shard = &served.shard;
                let gate = shard.gate.clone();
                let accept = move |mut stream: Stream, _, _| {
                    let pass = gate.enter();
                    spawn(async move {
                        let _pass = pass;
                        assert!(stream.has_no_delay().expect("it is open"));
                        let (result, bytes) = stream.read(Vec::new()).await;
                        assert_eq!(result.expect("the client has written"), bytes.len());
                        let (result, _) = stream.write_all(bytes).await;
                        result.expect("the client reads");
                    });
                };
                shard.accept(accept).expect("it accepts");
                shard.stop_accepting().await;
                shard.gate.close();
                shard.gate.emptied().await;
                drained.fetch_add(1, Ordering::Release);
                served.stopped().await;
            }
        };
        let running = run(2, driver, vec![group], no_arrival, main);
        let mut clients: Vec<TcpStream> = (0..CLIENTS)
            .map(|number| {
                let mut client = TcpStream::connect(address).expect("it is queued");
                client
                    .set_read_timeout(Some(PATIENCE))
                    .expect("it can be set");
                client.write_all(&[number as u8]).expect("it is taken");
                client
            })
            .collect();
        assert_eq!(sum(&running.shards.counters, |own| &own.accepted), 0);
        drain.store(true, Ordering::Release);
        for (number, client) in clients.iter_mut().enumerate() {
            let mut answer = Vec::new();
            client
                .read_to_end(&mut answer)
                .expect("it is served, not reset");
            assert_eq!(answer, [number as u8]);
        }
        until("both have drained", || drained.load(Ordering::Acquire) == 2);
        let error = TcpStream::connect(address).expect_err("nobody listens any more");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(listen(address, 2, false).is_ok(), "the address is free");
        assert_eq!(
            sum(&running.shards.counters, |own| &own.accepted),
            CLIENTS as u64
        );
        running.stop();
    }
}

/// New clients keep coming while the shard stops: it stops all the same, and whoever was accepted
/// is served.
#[test]
fn a_stream_of_new_clients_does_not_hold_up_the_drain() {
    for driver in drivers() {
        let group = listen(([127, 0, 0, 1], 0).into(), 1, false).expect("it listens");
        let address = group.address;
        let drain = Arc::new(AtomicBool::new(false));
        let drained = Arc::new(AtomicBool::new(false));
        let (for_main, for_drained) = (drain.clone(), drained.clone());
        let main = move |served: Rc<Served<()>>| {
            let (drain, drained) = (for_main.clone(), for_drained.clone());
            async move {
                let accept = |mut stream: Stream, _, _| {
                    spawn(async move { drop(stream.write_all(b"hello".to_vec()).await) });
                };
                served.shard.accept(accept).expect("it accepts");
                while !drain.load(Ordering::Acquire) {
                    shards::sleep(Duration::from_millis(1)).await;
                }
                served.shard.stop_accepting().await;
                drained.store(true, Ordering::Release);
                served.stopped().await;
            }
        };
        let running = run(1, driver, vec![group], no_arrival, main);
        let (served, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    // Until the address is closed.
                    while let Ok(mut client) = TcpStream::connect(address) {
                        client
                            .set_read_timeout(Some(PATIENCE))
                            .expect("it can be set");
                        let mut answer = Vec::new();
                        match client.read_to_end(&mut answer) {
                            Ok(_) => {
                                assert_eq!(answer, b"hello", "accepted, but not served");
                                served.fetch_add(1, Ordering::Relaxed);
                            }
                            // It came between the last look and the close.
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
            until("clients are served", || {
                served.load(Ordering::Relaxed) > 200
            });
            drain.store(true, Ordering::Release);
            until("it has stopped", || drained.load(Ordering::Acquire));
        });
        assert!(
            refused.load(Ordering::Relaxed) <= 2,
            "one for each client at the most"
        );
        let accepted = running.shards.counters[0].accepted.value();
        assert_eq!(accepted, served.load(Ordering::Relaxed) as u64);
        running.stop();
    }
}

#[test]
fn a_panic_in_the_shards_own_code_costs_one_connection() {
    for driver in drivers() {
        let group = listen(([127, 0, 0, 1], 0).into(), 1, false).expect("it listens");
        let address = group.address;
        let main = |served: Rc<Served<()>>| async move {
            let count = std::cell::Cell::new(0);
            let accept = move |mut stream: Stream, _, _| {
                count.set(count.get() + 1);
                assert!(
                    count.get() % 2 == 0,
                    "every other connection fails, as this test wants"
                );
                spawn(async move { drop(stream.write_all(b"hello".to_vec()).await) });
            };
            served.shard.accept(accept).expect("it accepts");
            served.stopped().await;
        };
        let running = run(1, driver, vec![group], no_arrival, main);
        for number in 1..=20 {
            let mut client = TcpStream::connect(address).expect("it connects");
            client
                .set_read_timeout(Some(PATIENCE))
                .expect("it can be set");
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).expect("it ends in order");
            assert_eq!(answer, if number % 2 == 0 { &b"hello"[..] } else { b"" });
        }
        running.stop();
    }
}

const CHILD: &str = "SHARDS_TEST_SHORTAGE_CHILD";
const SHORTAGE: &str = "a_shortage_of_descriptors_is_survived";

/// Serves one-byte requests with the number of accept errors so far, a line each.
fn serve_with_few_descriptors(driver: DriverChoice) -> (Running, SocketAddr) {
    let group = listen(([127, 0, 0, 1], 0).into(), 1, false).expect("it listens");
    let address = group.address;
    let main = |served: Rc<Served<()>>| async move {
        let counters = served.shard.counters[0].clone();
        let accept = move |mut stream: Stream, _, _| {
            let counters = counters.clone();
            spawn(async move {
                while let (Ok(1..), _) = stream.read(Vec::new()).await {
                    let answer = format!("{}\n", counters.accept_errors.value());
                    if stream.write_all(answer.into_bytes()).await.0.is_err() {
                        return;
                    }
                }
            });
        };
        served.shard.accept(accept).expect("it accepts");
        served.stopped().await;
    };
    (run(1, driver, vec![group], no_arrival, main), address)
}

/// The process with too few descriptors. It lives until its standard input ends.
fn child(driver: DriverChoice) {
    let (running, address) = serve_with_few_descriptors(driver);
    let open = std::fs::read_dir("/proc/self/fd")
        .expect("Linux has it")
        .count() as u64;
    let limit = libc::rlimit {
        rlim_cur: open + 8,
        rlim_max: open + 8,
    };
    // SAFETY: a plain system call that reads the one value it is given.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(result, 0);
    println!("\nlistens on {address}");
    let mut rest = Vec::new();
    std::io::stdin()
        .read_to_end(&mut rest)
        .expect("it can be read");
    running.stop();
    println!("\nended in order");
}

/// A client of the child, and its half of the talk.
struct Client(BufReader<TcpStream>);

impl Client {
    fn errors(&mut self) -> u64 {
        let mut answer = String::new();
        self.0.read_line(&mut answer).expect("it is served");
        answer.trim_end().parse().expect("a number")
    }

    fn ask(&mut self) {
        self.0.get_mut().write_all(b"?").expect("it is taken");
    }
}

/// Many more clients than descriptors: those accepted are served meanwhile, and each of the others
/// as soon as one leaves.
#[test]
fn a_shortage_of_descriptors_is_survived() {
    match std::env::var(CHILD).as_deref() {
        Ok("epoll") => return child(DriverChoice::Epoll),
        Ok(_) => return child(DriverChoice::IoUring),
        Err(_) => {}
    }
    for driver in drivers() {
        let name = match driver {
            DriverChoice::Epoll => "epoll",
            _ => "io-uring",
        };
        let mut process = Command::new(std::env::current_exe().expect("this test"))
            .args([SHORTAGE, "--exact", "--nocapture"])
            .env(CHILD, name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let address: SocketAddr = lines
            .find_map(|line| line.ok()?.strip_prefix("listens on ")?.parse().ok())
            .expect("the child listens");
        let mut clients: Vec<Client> = (0..40)
            .map(|_| {
                let stream = TcpStream::connect(address).expect("the kernel queues it");
                stream
                    .set_read_timeout(Some(PATIENCE))
                    .expect("it can be set");
                let mut client = Client(BufReader::new(stream));
                client.ask();
                client
            })
            .collect();
        clients[0].errors();
        until("the child runs short", || {
            clients[0].ask();
            clients[0].errors() > 0
        });
        for client in &mut clients {
            // Already asked above; what comes after it finds a descriptor once this one ends.
            if !client.0.buffer().is_empty() {
                continue;
            }
            client.ask();
            client.errors();
            client
                .0
                .get_ref()
                .shutdown(std::net::Shutdown::Both)
                .expect("it is open");
        }
        drop(process.stdin.take());
        assert!(lines.any(|line| line.is_ok_and(|line| line == "ended in order")));
        assert!(process.wait().expect("it ends").success());
    }
}
