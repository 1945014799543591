//! Streams without sockets: who hears what, what is replayed, what is bounded.

use super::*;

fn text_of(id: EventId) -> String {
    String::from_utf8(id.text().to_vec()).unwrap()
}

fn streams() -> Streams {
    Streams::new(Rc::new(EventBudget::new(1 << 20)))
}

fn popped(streams: &Streams, stream: &GetStream) -> Vec<String> {
    let mut all = Vec::new();
    while let Some((_, data)) = streams.pop(stream, 0) {
        all.push(String::from_utf8(data.to_vec()).unwrap());
    }
    all
}

#[test]
fn messages_go_to_one_stream_and_equal_ones_collapse() {
    let streams = streams();
    let (first, second) = (streams.open(2).unwrap(), streams.open(2).unwrap());
    assert!(streams.open(2).is_none());
    for message in [b"a", b"a", b"b"] {
        streams.post(message);
    }
    assert!(popped(&streams, &first).is_empty());
    assert_eq!(popped(&streams, &second), ["a", "b"]);
    streams.close(&second);
    streams.post(b"c");
    assert_eq!(popped(&streams, &first), ["c"]);
    streams.push(b"d");
    streams.push(b"d");
    assert_eq!(popped(&streams, &first), ["d", "d"]);
    streams.end();
    assert!(first.is_closed());
}

#[test]
fn what_nobody_heard_waits_for_the_next_stream() {
    let streams = streams();
    streams.post(b"a");
    streams.post(b"a");
    let first = streams.open(2).unwrap();
    streams.push(b"b");
    // Its client leaves before it was written.
    streams.close(&first);
    let second = streams.open(2).unwrap();
    assert_eq!(popped(&streams, &second), ["a", "b"]);
    streams.push(b"c");
    streams.unsay(|message| message == b"c");
    assert!(popped(&streams, &second).is_empty());
}

#[test]
fn a_get_stream_is_resumed_where_it_broke_off() {
    let streams = streams();
    let first = streams.open(1).unwrap();
    for message in [b"a", b"b", b"c"] {
        streams.push(message);
    }
    let (seen, _) = streams.pop(&first, 0).unwrap();
    popped(&streams, &first);
    streams.close(&first);
    streams.push(b"d");
    let Some(Resumed::Get(again)) = streams.resume(seen, 1) else {
        panic!("not resumed");
    };
    let replayed: Vec<String> = streams
        .events_after(seen)
        .iter()
        .map(|(id, _)| text_of(*id))
        .collect();
    assert_eq!(replayed, ["g1-2", "g1-3"]);
    let (id, data) = streams.pop(&again, 0).unwrap();
    assert_eq!((text_of(id), &*data), ("g1-4".to_owned(), &b"d"[..]));
}

#[test]
fn a_stream_still_held_is_taken_from_its_holder() {
    let streams = streams();
    let first = streams.open(1).unwrap();
    let seen = first.last_id();
    let Some(Resumed::Get(again)) = streams.resume(seen, 1) else {
        panic!("not resumed");
    };
    assert!(first.is_closed() && !again.is_closed());
    streams.push(b"a");
    assert_eq!(popped(&streams, &again), ["a"]);
}

#[test]
fn a_call_is_resumed_and_no_other_streams_events_are_replayed() {
    let streams = streams();
    let (call, other) = (streams.open_call(), streams.open_call());
    let first = streams.add(&call, b"1", 0);
    streams.add(&other, b"x", 0);
    streams.add(&call, b"2", 0);
    let Some(Resumed::Call(Some(found))) = streams.resume(first, 1) else {
        panic!("not resumed");
    };
    assert!(found.is_taken() && call.is_taken() && !other.is_taken());
    let after = streams.events_after(first);
    assert_eq!(after.len(), 1);
    assert_eq!(&*after[0].1, b"2");
    streams.end_call(&call);
    assert!(found.is_over());
    let resumed = streams.resume(first, 1);
    assert!(matches!(resumed, Some(Resumed::Call(None))));
    assert_eq!(streams.events_after(first).len(), 1, "still to be had");
}

#[test]
fn ids_are_read_back_and_others_are_not() {
    for id in ["g1-0", "c4294967295-17"] {
        assert_eq!(text_of(EventId::parse(id.as_bytes()).unwrap()), id);
    }
    for other in [
        "",
        "g",
        "g1",
        "g-1",
        "x1-1",
        "g1-",
        "1-1",
        "g1-1-1",
        "\u{e9}1-1",
        "c1-4294967296",
    ] {
        assert_eq!(EventId::parse(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn everything_is_bounded() {
    let budget = Rc::new(EventBudget::new(100));
    let streams = Streams::new(budget.clone());
    let stream = streams.open(1).unwrap();
    for n in 0..1000u32 {
        streams.push(&n.to_be_bytes());
    }
    let mut count = 0;
    while streams.pop(&stream, 5).is_some() {
        count += 1;
    }
    assert_eq!(count, MESSAGES_MAX);
    assert_eq!(budget.used(), 100, "25 events of 4 bytes");
    let start = EventId {
        number: 0,
        ..stream.last_id()
    };
    assert_eq!(streams.events_after(start).len(), 25);
    streams.forget_old(5 + EVENT_AGE_MS_MAX);
    assert_eq!(budget.used(), 100);
    streams.forget_old(6 + EVENT_AGE_MS_MAX);
    assert_eq!(budget.used(), 0);
    streams.push(&[0; 200]);
    assert!(streams.pop(&stream, 5).is_some(), "written though not kept");
    streams.push(b"x");
    streams.pop(&stream, 5);
    assert_eq!(budget.used(), 1);
    drop(streams);
    assert_eq!(budget.used(), 0);
}

#[test]
fn the_last_one_to_leave_is_noticed() {
    let streams = streams();
    assert!(streams.deserted().is_none());
    let (first, second) = (streams.open(2).unwrap(), streams.open(2).unwrap());
    let deserted = streams.deserted().unwrap();
    streams.close(&first);
    assert!(!deserted.has_fired());
    streams.close(&second);
    assert!(deserted.has_fired() && streams.deserted().is_none());
    let _third = streams.open(1).unwrap();
    let deserted = streams.deserted().unwrap();
    assert!(!deserted.has_fired());
    streams.end();
    assert!(deserted.has_fired());
}
