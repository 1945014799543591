//! Connections that move to their owner: an echo server whose first bytes name the owner. What was
//! read before the move goes along, what comes after it is read by the owner, nothing is lost, and
//! a connection moves once.
#![expect(clippy::expect_used, reason = "a test may fail where it stands")]

mod support {
    #[allow(dead_code, reason = "each test file uses a part of it")]
    pub(crate) mod harness;
}

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use shards::{
    Arrival, DriverChoice, Shard, Stream, listener::listen, mesh::MovedSocket, slots::SlotTable,
    spawn,
};
use support::harness::{Order, PATIENCE, Served, drivers, run, sum, until};

type EchoShard = Shard<(), Order>;

/// Connections served to their end, and how many of those where they were accepted.
#[derive(Debug, Default)]
struct Ends {
    all: AtomicU64,
    unmoved: AtomicU64,
}

/// Where the connection is from: what the next move must carry.
#[derive(Debug, Clone, Copy)]
struct Origin {
    peer: SocketAddr,
    listener: u8,
    moves: u8,
}

/// Serves a connection: every line `name number` is answered `shard name number` by the owner of
/// the name, which the first line decides.
async fn serve(
    shard: Rc<EchoShard>,
    mut stream: Stream,
    origin: Origin,
    mut bytes: Vec<u8>,
    ends: Arc<Ends>,
) {
    assert_eq!(stream.peer_address().expect("it is connected"), origin.peer);
    loop {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8(bytes[..end].to_vec()).expect("the client sends text");
            let name = line.split(' ').next().expect("a line starts with a name");
            let owner = shard.slots.owner_of(name.as_bytes());
            if owner != shard.id {
                assert_eq!(origin.moves, 0, "moved twice");
                let moved = MovedSocket {
                    parcel: stream.into_parcel().expect("nothing is pending"),
                    bytes,
                    baggage: None,
                    peer: origin.peer,
                    listener: origin.listener,
                    moves: 1,
                };
                shard
                    .port
                    .hand_over(owner, moved)
                    .expect("the ring has room");
                return;
            }
            let answer = format!("{} {line}\n", shard.id);
            bytes.drain(..=end);
            if stream.write_all(answer.into_bytes()).await.0.is_err() {
                return;
            }
        }
        stream.readable().await;
        let (result, back) = stream.read(bytes).await;
        bytes = back;
        if result.expect("the client closes in order") == 0 {
            assert!(bytes.is_empty(), "half a line at the end");
            ends.all.fetch_add(1, Ordering::Relaxed);
            ends.unmoved
                .fetch_add(u64::from(origin.moves == 0), Ordering::Relaxed);
            return;
        }
    }
}

fn arrive(ends: Arc<Ends>) -> impl Fn(&Rc<EchoShard>, Arrival<()>) + Send + Sync {
    move |shard, arrival| {
        let Arrival::Socket(moved) = arrival else {
            panic!("no call is sent here");
        };
        let stream = Stream::from_parcel(moved.parcel, &shard.deadlines).expect("it unpacks");
        let origin = Origin {
            peer: moved.peer,
            listener: moved.listener,
            moves: moved.moves,
        };
        spawn(serve(
            shard.clone(),
            stream,
            origin,
            moved.bytes,
            ends.clone(),
        ));
    }
}

/// One client: `number` decides the name and the way it cuts its requests into segments.
fn talk(address: SocketAddr, number: usize, table: &SlotTable) {
    let name = format!("name-{number}");
    let owner = table.owner_of(name.as_bytes());
    let client = TcpStream::connect(address).expect("it connects");
    client
        .set_read_timeout(Some(PATIENCE))
        .expect("it can be set");
    client.set_nodelay(true).expect("it can be set");
    let mut answers = BufReader::new(client.try_clone().expect("it can be cloned"));
    let mut client = client;
    let mut send = |text: &str| client.write_all(text.as_bytes()).expect("it is taken");
    let mut expect = |request: usize| {
        let mut answer = String::new();
        answers.read_line(&mut answer).expect("an answer comes");
        assert_eq!(answer, format!("{owner} {name} {request}\n"));
    };
    match number % 4 {
        // One request at a time.
        0 => {
            for request in 0..4 {
                send(&format!("{name} {request}\n"));
                expect(request);
            }
        }
        // All in one segment.
        1 => {
            send(&format!("{name} 0\n{name} 1\n{name} 2\n{name} 3\n"));
            (0..4).for_each(expect);
        }
        // The second request starts before the move and ends after it.
        2 => {
            let half = name.len() / 2;
            send(&format!("{name} 0\n{}", &name[..half]));
            expect(0);
            send(&format!("{} 1\n{name} 2", &name[half..]));
            expect(1);
            send(&format!("\n{name} 3\n"));
            expect(2);
            expect(3);
        }
        // The first request itself comes in pieces.
        _ => {
            let text = format!("{name} 0\n{name} 1\n");
            for piece in text.as_bytes().chunks(3) {
                send(std::str::from_utf8(piece).expect("plain text"));
            }
            expect(0);
            expect(1);
            send(&format!("{name} 2\n{name} 3\n"));
            expect(2);
            expect(3);
        }
    }
}

fn hand_over(shards: u16, driver: DriverChoice, connections: usize) {
    const CLIENTS: usize = 8;
    let group = listen(([127, 0, 0, 1], 0).into(), shards, false).expect("it listens");
    let address = group.address;
    let ends = Arc::new(Ends::default());
    let for_accept = ends.clone();
    let main = move |served: Rc<Served<()>>| {
        let ends = for_accept.clone();
        async move {
            let shard = served.shard.clone();
            let accept = move |stream, peer, listener| {
                let origin = Origin {
                    peer,
                    listener,
                    moves: 0,
                };
                let (shard, ends) = (shard.clone(), ends.clone());
                spawn(serve(shard, stream, origin, Vec::new(), ends));
            };
            served.shard.accept(accept).expect("it accepts");
            served.stopped().await;
        }
    };
    let running = run(shards, driver, vec![group], arrive(ends.clone()), main);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || {
                let table = SlotTable::new(shards);
                for number in (client..connections).step_by(CLIENTS) {
                    talk(address, number, &table);
                }
            });
        }
    });
    let all = connections as u64;
    until("every connection ends", || {
        ends.all.load(Ordering::Relaxed) == all
    });
    let counters = running.shards.counters.clone();
    running.stop();
    assert_eq!(sum(&counters, |own| &own.accepted), all);
    let moved = sum(&counters, |own| &own.handed_over);
    assert_eq!(sum(&counters, |own| &own.received), moved);
    assert_eq!(moved + ends.unmoved.load(Ordering::Relaxed), all);
    assert_eq!(sum(&counters, |own| &own.ring_full), 0);
    // Names and 4-tuples spread: with n shards about (n-1)/n of the connections move.
    let expected = all * u64::from(shards - 1) / u64::from(shards);
    assert!(moved.abs_diff(expected) < all / 5, "{moved} of {all} moved");
}

#[test]
fn connections_move_to_their_owner_once_and_lose_nothing() {
    for driver in drivers() {
        hand_over(2, driver, 1_000);
        hand_over(4, driver, 2_000);
    }
}

/// A ring that has no room gives the socket back as it was, to be served where it is.
#[test]
fn a_socket_that_finds_no_room_comes_back_whole() {
    // 17 shards have rings of 64 slots.
    const SLOTS: usize = 64;
    for driver in drivers() {
        // Only shard 0 has a listener, so that one ring takes them all.
        let group = listen(([127, 0, 0, 1], 0).into(), 1, false).expect("it listens");
        let address = group.address;
        let (arrived, sent) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (for_arrivals, for_sender) = (arrived.clone(), sent.clone());
        let came_back = Arc::new(AtomicU64::new(0));
        let for_refusals = came_back.clone();
        let arrive = move |shard: &Rc<EchoShard>, arrival: Arrival<()>| {
            let Arrival::Socket(moved) = arrival else {
                panic!("no call is sent here");
            };
            let order = for_arrivals.fetch_add(1, Ordering::Relaxed);
            assert_eq!(moved.bytes, order.to_le_bytes(), "out of order");
            let mut stream =
                Stream::from_parcel(moved.parcel, &shard.deadlines).expect("it unpacks");
            spawn(async move {
                let (result, _) = stream.write_all(b"moved\n".to_vec()).await;
                result.expect("the client reads");
            });
        };
        let main = move |served: Rc<Served<()>>| {
            let (sent, came_back) = (for_sender.clone(), for_refusals.clone());
            async move {
                let shard = served.shard.clone();
                let accept = move |stream: Stream, peer, listener| {
                    let order = sent.fetch_add(1, Ordering::Relaxed);
                    let moved = MovedSocket {
                        parcel: stream.into_parcel().expect("nothing is pending"),
                        bytes: order.to_le_bytes().to_vec(),
                        baggage: None,
                        peer,
                        listener,
                        moves: 1,
                    };
                    let Err(back) = shard.port.hand_over(1, moved) else {
                        return;
                    };
                    assert_eq!(back.bytes, order.to_le_bytes());
                    assert_eq!(back.peer, peer);
                    came_back.fetch_add(1, Ordering::Relaxed);
                    let mut stream =
                        Stream::from_parcel(back.parcel, &shard.deadlines).expect("it unpacks");
                    spawn(async move {
                        let (result, _) = stream.write_all(b"stayed\n".to_vec()).await;
                        result.expect("the client reads");
                    });
                };
                served.shard.accept(accept).expect("it accepts");
                served.stopped().await;
            }
        };
        let running = run(17, driver, vec![group], arrive, main);
        let held = running.hold(1);
        let clients: Vec<TcpStream> = (0..SLOTS + 6)
            .map(|_| TcpStream::connect(address).expect("it connects"))
            .collect();
        until("six come back", || came_back.load(Ordering::Relaxed) == 6);
        assert_eq!(sent.load(Ordering::Relaxed), SLOTS as u64 + 6);
        assert_eq!(arrived.load(Ordering::Relaxed), 0);
        drop(held);
        let mut stayed = 0;
        for client in clients {
            client
                .set_read_timeout(Some(PATIENCE))
                .expect("it can be set");
            let mut answer = String::new();
            BufReader::new(client)
                .read_line(&mut answer)
                .expect("an answer comes");
            match answer.as_str() {
                "moved\n" => {}
                "stayed\n" => stayed += 1,
                other => panic!("{other:?} is no answer"),
            }
        }
        assert_eq!(stayed, 6);
        assert_eq!(arrived.load(Ordering::Relaxed), SLOTS as u64);
        let counters = running.shards.counters.clone();
        running.stop();
        assert_eq!(counters[0].handed_over.value(), SLOTS as u64);
        assert_eq!(counters[0].ring_full.value(), 6);
        assert_eq!(counters[1].received.value(), SLOTS as u64);
    }
}
