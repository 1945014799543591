//! Promise 11: one noisy principal does not starve the others.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    assert_refused, is_long,
    support::{Backend, Gateway, HOST, Layout, McpClient, Plan},
    text_of,
};

const SESSIONS_EACH: usize = 4;
const OTHERS: usize = 5;

/// What calls of the others took, in order of length.
fn calls_of_others(clients: &mut [McpClient], count: usize) -> Vec<Duration> {
    let mut took = Vec::with_capacity(count * clients.len());
    for number in 0..count {
        for client in &mut *clients {
            let started = Instant::now();
            let response = client.call(&number.to_string(), "one", "{}");
            assert_eq!(text_of(&response), "a one {}");
            took.push(started.elapsed());
        }
    }
    took.sort_unstable();
    took
}

fn open_all(gateway: &Gateway, number: usize) -> Vec<McpClient> {
    let token = gateway.token(&format!("other-{number}"));
    (0..SESSIONS_EACH)
        .map(|_| McpClient::open_on(gateway, HOST, Some(&token)))
        .collect()
}

#[test]
fn a_principal_at_ten_times_its_share_costs_the_others_nothing() {
    let calls = if is_long() { 20_000 } else { 20 };
    let backend = Backend::start("a", &["one"]);
    let document = serde_json::json!({"users": {"*": {"virtual_hosts": {HOST: {"backends": {
        "a": {"name": "a", "url": backend.url()}
    }}}}}});
    let gateway = Plan::document(document)
        .layout(Layout::One)
        .with_tokens()
        .settings(|settings| settings.limits.sessions_per_principal_max = SESSIONS_EACH)
        .start();
    let mut others: Vec<McpClient> = open_all(&gateway, 0);
    let alone = calls_of_others(&mut others, calls);

    let noisy = gateway.token("noisy");
    let mut own: Vec<McpClient> = (0..SESSIONS_EACH)
        .map(|_| McpClient::open_on(&gateway, HOST, Some(&noisy)))
        .collect();
    let (is_over, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    let beside = thread::scope(|scope| {
        for (number, client) in own.iter_mut().enumerate() {
            let (is_over, refused, gateway) = (&is_over, &refused, &gateway);
            scope.spawn(move || {
                let initialize = client.authorize(McpClient::initialize(&client.target));
                let mut connection = gateway.connect();
                while !is_over.load(Ordering::Relaxed) {
                    for _ in 0..10 {
                        assert_refused(&connection.ask(&initialize), 429);
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    let text = text_of(&client.call(&number.to_string(), "one", "{}"));
                    assert_eq!(text, "a one {}", "its share is its own");
                }
            });
        }
        while refused.load(Ordering::Relaxed) < 10 * SESSIONS_EACH {
            thread::yield_now();
        }
        // There is room for every one of the others, and for all they ask.
        for number in 1..OTHERS {
            others.extend(open_all(&gateway, number));
        }
        let beside = calls_of_others(&mut others[..SESSIONS_EACH], calls);
        calls_of_others(&mut others, calls / OTHERS);
        is_over.store(true, Ordering::Relaxed);
        beside
    });
    let p99 = |took: &[Duration]| took[took.len() * 99 / 100];
    println!(
        "p99 of the others: alone {:?}, beside {:?}",
        p99(&alone),
        p99(&beside)
    );
    let sessions = gateway.metric("shardgate_sessions") as usize;
    assert_eq!(sessions, SESSIONS_EACH * (OTHERS + 1));
}
