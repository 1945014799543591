//! Things that happen at the same time on several nodes.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    cluster::{Two, keys_with},
    stage::{Client, Heard, LONG, claims_of, sign, with_body},
    support::eventually,
};

/// D19: of binds at the same time as many succeed as there are places.
#[test]
fn a_budget_is_kept_over_nodes() {
    let two = Two::with(2, |settings| settings.sessions_per_subject_max = 5);
    let barrier = Barrier::new(20);
    let outcomes: Vec<(Client, Value)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..20)
            .map(|number| {
                let barrier = &barrier;
                let node = if number % 2 == 0 { &two.a } else { &two.b };
                scope.spawn(move || {
                    let mut claims = claims_of("tmb_1");
                    claims["sessionScope"]["source"] = format!("s-{number}").into();
                    let mut client = node.client();
                    barrier.wait();
                    client.send_bind(&sign(&claims), &json!({}));
                    let message = client.message();
                    (client, message)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let (bound, refused): (Vec<_>, Vec<_>) = outcomes
        .into_iter()
        .partition(|(_, message)| message["type"] == "bound");
    assert_eq!(bound.len(), 5);
    for (_, message) in &refused {
        let code = "connection_gateway.resource_limit_exceeded";
        assert_eq!(message["code"], code, "{message}");
    }
    // Only live ones count.
    drop(bound);
    eventually("a place is free", || {
        let mut client = two.b.client();
        client.send_bind(&sign(&claims_of("tmb_1")), &json!({}));
        (client.message()["type"] == "bound").then_some(())
    });
}

/// Tells threads to stop, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Sends heartbeats without a pause until it is told to stop or the connection ends.
fn beat(client: &mut Client, is_over: &AtomicBool) -> Vec<Heard> {
    let mut rest = Vec::new();
    while !is_over.load(Ordering::SeqCst) {
        client.send(json!({"type": "heartbeat", "ts": 1}));
        match client.hear() {
            Heard::Message(message) if message["type"] == "heartbeat" => {}
            other => {
                rest.push(other);
                break;
            }
        }
    }
    rest
}

/// D8: a deletion on another node ends the connection at once. What would undo it is forced to come
/// after it in `interleaved`.
#[test]
fn a_deletion_from_another_node_ends_a_client_that_is_never_silent() {
    // So short that renewals are under way all the time; long enough for a busy machine.
    let two = Two::with(2, |settings| settings.lease = Duration::from_secs(2));
    let mut admin = two.redis.admin();
    for round in 0..40 {
        let (mut client, session) = two.a.bound("tmb_1");
        let (is_over, deleted) = (AtomicBool::new(false), AtomicBool::new(false));
        let took = thread::scope(|scope| {
            let beating = scope.spawn(|| {
                let heard = beat(&mut client, &is_over);
                assert!(deleted.load(Ordering::SeqCst), "{heard:?}");
                assert_eq!(heard, [Heard::Close(None)]);
                Instant::now()
            });
            let _stop = Stop(&is_over);
            // A different moment of the lease in each round.
            thread::park_timeout(Duration::from_millis(round * 19 % 700));
            deleted.store(true, Ordering::SeqCst);
            assert_eq!(two.b.delete(session.id()).status, 200);
            let answered = Instant::now();
            eventually("its client is told", || beating.is_finished().then_some(()));
            let ended = beating.join().unwrap();
            ended.saturating_duration_since(answered)
        });
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert_eq!(keys_with(&mut admin, session.id()), [""; 0]);
        assert_eq!(keys_with(&mut admin, "tmb_1"), [""; 0]);
    }
}

/// D9 as the contract counts it; the orders that lose a change are forced in `interleaved`.
#[test]
fn a_thousand_changes_of_metadata_and_no_one_is_lost() {
    let two = Two::with(2, |settings| settings.lease = Duration::from_secs(3));
    let (mut client, session) = two.a.bound("tmb_1");
    let is_over = AtomicBool::new(false);
    let lost = thread::scope(|scope| {
        scope.spawn(|| assert_eq!(beat(&mut client, &is_over), []));
        let _stop = Stop(&is_over);
        let mut lost = 0;
        for number in 0..1_000 {
            let metadata = json!({"number": number});
            // Every tenth by the owner itself.
            let node = if number % 10 == 0 { &two.a } else { &two.b };
            assert_eq!(node.patch(session.id(), &metadata).status, 200);
            let other = if number % 10 == 0 { &two.a } else { &two.b };
            let view = other.status(session.id()).json()["data"].take();
            lost += usize::from(view["session"]["metadata"] != metadata);
        }
        lost
    });
    assert_eq!(lost, 0);
    for node in [&two.a, &two.b] {
        eventually("both show the last one", || {
            let view = node.status(session.id()).json()["data"].take();
            (view["session"]["metadata"] == json!({"number": 999})).then_some(())
        });
    }
}

/// D8 for metadata: a change that was read before the end of a session is not written after it.
#[test]
fn a_change_of_metadata_does_not_bring_back_a_session_that_has_ended() {
    // It would be alive for longer than this test waits.
    let two = Two::with(1, |settings| {
        settings.lease = LONG * 4;
        settings.session_ttl = LONG * 4;
    });
    for _ in 0..60 {
        let (client, session) = two.a.bound("tmb_1");
        thread::scope(|scope| {
            let patching = scope.spawn(|| {
                let mut caller = two.b.caller();
                let target = format!("/internal/sessions/{}/metadata", session.id());
                let ask = with_body("PATCH", &target, &json!({"metadata": {"a": 1}}));
                let started = Instant::now();
                while caller.ask(&ask).status == 200 {
                    assert!(started.elapsed() < LONG, "it was brought back");
                }
            });
            drop(client);
            patching.join().unwrap();
        });
        let view = two.b.status(session.id());
        if view.status == 200 {
            let view = view.json()["data"].take();
            assert_eq!(view["session"]["status"], "closed", "{view}");
        }
    }
}

/// Changes from all sides at once: the nodes come to agree.
#[test]
fn nodes_agree_on_the_metadata_that_were_written_last() {
    let two = Two::start(2);
    let (mut client, session) = two.a.bound("tmb_1");
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        for writer in 0..4 {
            let (session, refused) = (&session, &refused);
            let node = if writer % 2 == 0 { &two.a } else { &two.b };
            scope.spawn(move || {
                for number in 0..50 {
                    let metadata = json!({"by": writer, "number": number});
                    let status = node.patch(session.id(), &metadata).status;
                    refused.fetch_add(usize::from(status != 200), Ordering::SeqCst);
                }
            });
        }
        for number in 0..50 {
            client
                .send(json!({"type": "metadata", "metadata": {"by": "client", "number": number}}));
        }
    });
    client.is_served();
    assert_eq!(refused.into_inner(), 0);
    let shown = |node: &crate::stage::Node| {
        let view = node.status(session.id()).json()["data"].take();
        view["session"]["metadata"].clone()
    };
    eventually("both show the same", || {
        (shown(&two.a) == shown(&two.b)).then_some(())
    });
}

/// D7: what was accepted is not dropped, and what is too much is not accepted.
#[test]
fn a_mailbox_that_is_full_is_said_to_be_and_nothing_in_it_is_lost() {
    let two = Two::with(1, |settings| {
        settings.mailbox_messages_max = 8;
        settings.slow_consumer_time = Duration::from_secs(60);
    });
    let (mut client, session) = two.a.bound("tmb_1");
    let mut accepted = Vec::new();
    let data = "x".repeat(300_000);
    for number in 0.. {
        let id = format!("r-{number}");
        let envelope = session.envelope("request", &id, json!({"data": data}));
        let response = two.b.publish(session.id(), &envelope);
        if response.status == 429 {
            let error = &response.json()["error"];
            assert_eq!(error["data"]["limit"], "mailboxMaxLength");
            break;
        }
        assert_eq!(response.status, 202, "{}", response.text());
        accepted.push(id);
        assert!(number < 2_000, "never full");
    }
    for id in accepted {
        assert_eq!(client.envelope()["requestId"], id);
    }
    // There is room again.
    eventually("one more is accepted", || {
        let response = two.b.publish(session.id(), &session.request("one more"));
        (response.status == 202).then_some(())
    });
    assert_eq!(client.envelope()["requestId"], "one more");
}

/// D5: answers to requests nobody made leave nothing behind.
#[test]
fn answers_that_nobody_waits_for_leave_no_keys() {
    let two = Two::start(1);
    let (mut client, session) = two.a.bound("tmb_1");
    let mut admin = two.redis.admin();
    let before = keys_with(&mut admin, "").len();
    for number in 0..2_000 {
        let id = format!("nobody-{number}");
        client.send_envelope(session.envelope("response", &id, json!({})));
    }
    client.is_served();
    assert_eq!(keys_with(&mut admin, "").len(), before);
}
