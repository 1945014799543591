//! Sessions that end together say goodbye to their backends one after another.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::support::{Backend, Gate, McpClient, Plan, eventually};

/// Sessions that expire together.
const SESSIONS: usize = 100;
/// Farewells of a shard to one backend at a time.
const AT_A_TIME: usize = 16;

#[test]
fn sessions_that_expire_together_end_at_their_backends_a_few_at_a_time() {
    let gate = Arc::new(Gate::default());
    let now = AtomicUsize::new(0);
    let most = Arc::new(AtomicUsize::new(0));
    let slow = Backend::scripted("slow", &["t"], {
        let (gate, most) = (gate.clone(), most.clone());
        move |asked, wire| {
            if asked.method != "DELETE" {
                return None;
            }
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            gate.wait();
            now.fetch_sub(1, Ordering::SeqCst);
            wire.usual(asked);
            Some(())
        }
    });
    let quick = Backend::start("quick", &["t"]);
    let gateway = Plan::of(&[("q", &quick.url()), ("s", &slow.url())])
        .shards(1)
        .settings(|settings| settings.timeouts.session_idle = Duration::from_secs(2))
        .start();
    for _ in 0..SESSIONS {
        McpClient::open(&gateway);
    }
    // The slow one's farewells do not hold up the other's.
    eventually("all are ended at the quick one", || {
        (gateway.metric("shardgate_sessions_expired_total") == SESSIONS as u64
            && quick.session_count() == 0)
            .then_some(())
    });
    gate.await_arrivals(AT_A_TIME);
    assert_eq!(
        gateway.metric("shardgate_backend_in_flight"),
        AT_A_TIME as u64
    );
    gate.open();
    eventually("all are ended at the slow one", || {
        (slow.session_count() == 0).then_some(())
    });
    assert_eq!(most.load(Ordering::SeqCst), AT_A_TIME);
    assert_eq!(gateway.metric("shardgate_backend_deletes_failed_total"), 0);
}
