//! Promise 19: the death of a backend is its own: calls to the others never fail, its own fail in
//! time with a JSON-RPC error, and work again when it is back.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    is_long, outcome_of,
    support::{Backend, Effect, Fault, FaultProxy, LAYOUTS, Layout, McpClient, Plan, eventually},
};

const BACKENDS: usize = 4;

/// One backend of the house, behind its proxy.
struct Member {
    backend: Backend,
    proxy: Mutex<FaultProxy>,
    /// Calls to it may fail just now.
    is_dead: AtomicBool,
    answered: AtomicUsize,
    failed: AtomicUsize,
}

#[test]
fn each_backend_dies_and_comes_back_under_load_and_costs_its_own_calls_only() {
    let rounds = if is_long() { 25 } else { 1 };
    let members: Vec<Member> = (0..BACKENDS)
        .map(|number| {
            let backend = Backend::start(&format!("s{number}"), &["one"]);
            let proxy = FaultProxy::start(backend.address());
            Member {
                backend,
                proxy: Mutex::new(proxy),
                is_dead: AtomicBool::new(false),
                answered: AtomicUsize::new(0),
                failed: AtomicUsize::new(0),
            }
        })
        .collect();
    let names: Vec<String> = (0..BACKENDS).map(|number| format!("b{number}")).collect();
    let urls: Vec<String> = members
        .iter()
        .map(|member| member.proxy.lock().unwrap().url())
        .collect();
    let pairs: Vec<(&str, &str)> = names
        .iter()
        .zip(&urls)
        .map(|(name, url)| (name.as_str(), url.as_str()))
        .collect();
    let gateway = Plan::of(&pairs)
        .layout(Layout::Spread)
        .settings(|settings| {
            settings.timeouts.initialize = Duration::from_secs(2);
            settings.timeouts.upstream_first_byte = Duration::from_secs(2);
        })
        .start();
    let clients: Vec<McpClient> = (0..4).map(|_| McpClient::open(&gateway)).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let load: Vec<_> = clients
            .iter()
            .flat_map(|client| [client.again(), client.again()])
            .map(|client| scope.spawn(|| load(client, &members, &is_over)))
            .collect();
        for _ in 0..rounds {
            for member in &members {
                die_and_come_back(member, &members);
            }
        }
        is_over.store(true, Ordering::SeqCst);
        let calls: usize = load.into_iter().map(|load| load.join().unwrap()).sum();
        println!("{calls} calls, none to a living backend failed");
    });
    for member in &members {
        assert!(member.failed.load(Ordering::SeqCst) > 0, "its death showed");
    }
    assert_eq!(gateway.metric("shardgate_panics_total"), 0);
}

/// Calls all backends in turn until it is over; how many calls it made.
fn load(mut client: McpClient, members: &[Member], is_over: &AtomicBool) -> usize {
    let mut calls = 0;
    while !is_over.load(Ordering::SeqCst) {
        for (number, member) in members.iter().enumerate() {
            let was_dead = member.is_dead.load(Ordering::SeqCst);
            let id = calls.to_string();
            let response = client.call(&id, &format!("b{number}-one"), "{}");
            let is_dead = was_dead || member.is_dead.load(Ordering::SeqCst);
            calls += 1;
            match outcome_of(&response, &id) {
                Some(text) => {
                    assert_eq!(text, format!("s{number} one {{}}"));
                    member.answered.fetch_add(1, Ordering::SeqCst);
                }
                None => {
                    assert!(is_dead, "b{number} lives: {}", response.text());
                    member.failed.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    }
    calls
}

/// Kills one, sees the others served meanwhile, brings it back without its sessions, and sees it
/// served by every client again.
fn die_and_come_back(member: &Member, members: &[Member]) {
    let others = || members.iter().filter(|other| !std::ptr::eq(*other, member));
    let answered = |member: &Member| member.answered.load(Ordering::SeqCst);
    member.is_dead.store(true, Ordering::SeqCst);
    member.proxy.lock().unwrap().kill();
    member.backend.lose_sessions();
    let failed = member.failed.load(Ordering::SeqCst);
    eventually("its calls fail", || {
        (member.failed.load(Ordering::SeqCst) >= failed + 8).then_some(())
    });
    let before: Vec<usize> = others().map(answered).collect();
    eventually("the others are served while it is dead", || {
        others()
            .zip(&before)
            .all(|(other, before)| answered(other) >= before + 40)
            .then_some(())
    });
    member.proxy.lock().unwrap().revive();
    // Each shard finds out for itself: until no call has failed for long.
    let mut quiet = (member.failed.load(Ordering::SeqCst), answered(member));
    eventually("it is served again", || {
        let failed = member.failed.load(Ordering::SeqCst);
        if failed != quiet.0 {
            quiet = (failed, answered(member));
        }
        (answered(member) >= quiet.1 + 80).then_some(())
    });
    member.is_dead.store(false, Ordering::SeqCst);
}

/// Whichever way a backend fails, lists go on without it, say so, and are whole again afterwards.
#[test]
fn lists_leave_out_a_failing_backend_and_name_it_until_it_is_back() {
    for layout in LAYOUTS {
        let backends: Vec<Backend> = (0..3)
            .map(|number| Backend::start(&format!("s{number}"), &["one"]))
            .collect();
        let mut proxy = FaultProxy::start(backends[2].address());
        let urls = [backends[0].url(), backends[1].url(), proxy.url()];
        let gateway = Plan::of(&[("b0", &urls[0]), ("b1", &urls[1]), ("b2", &urls[2])])
            .layout(layout)
            .settings(|settings| {
                settings.timeouts.initialize = Duration::from_secs(1);
                settings.timeouts.upstream_first_byte = Duration::from_secs(1);
            })
            .start();
        let mut client = McpClient::open(&gateway);
        let all = ["b0-one", "b1-one", "b2-one"];
        assert_eq!(client.tool_names(), all);
        // Without an effect nobody listens there any more.
        let effects = [Effect::Reset, Effect::End, Effect::Stall, Effect::Garble];
        for effect in effects.map(Some).into_iter().chain([None]) {
            match effect {
                Some(effect) => proxy.arm(Fault::in_reply(0, effect)),
                None => proxy.kill(),
            }
            let before = gateway.metric("shardgate_lists_partial_total");
            eventually("it is left out", || {
                let result = client.list().result();
                let names: Vec<&str> = result["tools"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|tool| tool["name"].as_str().unwrap())
                    .collect();
                if names == all {
                    return None;
                }
                assert_eq!(names, all[..2], "{effect:?}");
                let missing = &result["_meta"]["shardgate/unavailable"];
                assert_eq!(missing, &serde_json::json!(["b2"]), "{effect:?}");
                Some(())
            });
            assert!(gateway.metric("shardgate_lists_partial_total") > before);
            for number in 0..2 {
                let response = client.call("1", &format!("b{number}-one"), "{}");
                let text = outcome_of(&response, "1");
                assert_eq!(text, Some(format!("s{number} one {{}}")), "{effect:?}");
            }
            match effect {
                Some(_) => proxy.mend(),
                None => proxy.revive(),
            }
            eventually("it is back", || (client.tool_names() == all).then_some(()));
        }
        assert_eq!(gateway.metric("shardgate_panics_total"), 0);
    }
}

/// A connection that said something unsound is not used again.
#[test]
fn a_garbled_connection_is_never_used_again() {
    let backend = Backend::start("a", &["one"]);
    let proxy = FaultProxy::start(backend.address());
    let gateway = Plan::of(&[("a", &proxy.url())]).layout(Layout::One).start();
    let mut client = McpClient::open(&gateway);
    for at in (0..200).step_by(if is_long() { 1 } else { 8 }) {
        proxy.arm(Fault::in_reply(at, Effect::Garble));
        let garbled = client.call("1", "one", "{}");
        proxy.mend();
        let before = proxy.accepted();
        let text = outcome_of(&client.call("2", "one", "{}"), "2");
        assert_eq!(text.as_deref(), Some("a one {}"));
        // A garbled text inside the JSON is nothing a gateway could see.
        if outcome_of(&garbled, "1").is_none() {
            assert!(
                proxy.accepted() > before,
                "the connection was kept, byte {at}"
            );
        }
    }
}
