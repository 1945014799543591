//! The mesh on one thread: what the rings and the side queues do when they are full.

use std::{cell::Cell, rc::Rc, sync::Arc};

use super::{Arrival, Port, PortSeed, mesh, message::Message, ring_slots};
use crate::{
    DriverKind,
    buffer::BufferPool,
    driver::ShardRuntime,
    task::{spawn, yield_now},
};

/// Ports of `shards` shards, all on this thread.
fn ports(shards: u16) -> Vec<Port<u32>> {
    let (seeds, _) = mesh(shards);
    let plant = |seed: PortSeed<u32>| seed.plant(Arc::default(), BufferPool::default());
    seeds.into_iter().map(plant).collect()
}

/// A message that changes nothing.
fn filler() -> Message<u32> {
    Message::Cancel { slot: 0 }
}

fn on_a_runtime(test: impl Future<Output = ()>) {
    ShardRuntime::build(DriverKind::Epoll)
        .unwrap()
        .block_on(test);
}

async fn turns() {
    for _ in 0..10 {
        yield_now().await;
    }
}

/// The peer makes room after we found the ring full and before our bell is armed, so it wakes
/// nobody: only our own last look can find the room.
#[test]
fn room_made_before_the_bell_is_armed_is_found() {
    on_a_runtime(async {
        let ports = ports(3);
        let [full, caller, ours] = [0, 1, 2].map(|id: usize| ports[id].clone());
        for _ in 0..ring_slots(3) + 5 {
            ours.send(0, filler());
        }
        let waiting = |port: &Port<u32>| port.lane(0).unwrap().waiting();
        assert_eq!(waiting(&ours), 5);
        let _reply = caller.call(2, 7).unwrap();
        // Lane 0 comes first: it is flushed, in vain, before the call of lane 1 is handled.
        let make_room = move |_: Arrival<u32>| while full.drain(&mut drop) {};
        spawn(ours.clone().take_in(make_room, || false));
        turns().await;
        assert_eq!(waiting(&ours), 0, "they wait although there is room");
    });
}

/// The peer may answer that we are starved for room we have used already, and before our bell is
/// armed, so that it wakes nobody: it has to be asked again before we sleep.
#[test]
fn a_peer_that_answered_too_early_is_asked_again() {
    on_a_runtime(async {
        let ports = ports(3);
        let [full, caller, ours] = [0, 1, 2].map(|id: usize| ports[id].clone());
        for _ in 0..ring_slots(3) + 5 {
            ours.send(0, filler());
        }
        let waiting = |port: &Port<u32>| port.lane(0).unwrap().waiting();
        let _reply = caller.call(2, 7).unwrap();
        // Lane 0 comes first: it is flushed, in vain, before the call of lane 1 is handled.
        let peer = full.clone();
        let answer = move |_: Arrival<u32>| {
            assert!(peer.lane(2).unwrap().take_peer_is_starved());
            peer.ring(2);
        };
        spawn(ours.clone().take_in(answer, || false));
        turns().await;
        assert_eq!(waiting(&ours), 5);
        while full.drain(&mut drop) {}
        turns().await;
        assert_eq!(waiting(&ours), 0, "they wait although there is room");
    });
}

/// What waits keeps its order, and nothing overtakes it.
#[test]
fn a_call_does_not_overtake_what_waits() {
    on_a_runtime(async {
        let ports = ports(2);
        let credit = |slot| Message::Credit {
            slot,
            buffer: Vec::new(),
        };
        for slot in 0..ring_slots(2) as u32 + 2 {
            ports[0].send(1, credit(slot));
        }
        let lane = ports[1].lane(0).unwrap();
        assert!(matches!(lane.pop(), Some(Message::Credit { slot: 0, .. })));
        // There is room for one, but two wait.
        assert_eq!(ports[0].call(1, 9).err(), Some(9));
        ports[0].lane(1).unwrap().flush();
        for expected in 1..ring_slots(2) as u32 + 1 {
            let next = lane.pop();
            assert!(matches!(next, Some(Message::Credit { slot, .. }) if slot == expected));
        }
        assert!(lane.pop().is_none());
        assert_eq!(ports[0].call(1, 9).err(), Some(9), "one waits still");
        ports[0].lane(1).unwrap().flush();
        assert!(ports[0].call(1, 9).is_ok());
    });
}

/// The owner's buffers go back to its pool with the credits. At the end nothing is sent.
#[test]
fn buffers_of_parts_return_and_the_last_one_stays() {
    on_a_runtime(async {
        let ports = ports(2);
        let mut reply = ports[0].call(1, 1).unwrap();
        let sink = Rc::new(Cell::new(None));
        let taken = sink.clone();
        ports[1].drain(&mut |arrival| {
            if let Arrival::Call { reply, .. } = arrival {
                taken.set(Some(reply));
            }
        });
        let mut sink = sink.take().unwrap();
        // Known again by their capacities.
        let made = [5_000, 6_000].map(Vec::with_capacity);
        let [first, last] = made;
        sink.send(first).await.unwrap();
        ports[0].drain(&mut drop);
        let bytes = reply.next().await.unwrap().unwrap();
        reply.give_back(bytes);
        ports[1].drain(&mut drop);
        let pooled = |port: usize| ports[port].inner.buffers.take().capacity();
        assert_eq!(pooled(1), 5_000);
        sink.end(last).await.unwrap();
        ports[0].drain(&mut drop);
        let bytes = reply.next().await.unwrap().unwrap();
        reply.give_back(bytes);
        assert_eq!(pooled(0), 6_000);
        assert!(ports[1].lane(0).unwrap().pop().is_none());
    });
}
