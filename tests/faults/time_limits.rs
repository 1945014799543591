//! Promise 9: every request that was taken ends, with an answer, whatever becomes of its backend.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use crate::{
    is_long, outcome_of,
    support::{
        Asked, Backend, Effect, Fault, FaultProxy, LAYOUTS, McpClient, PATIENCE, Plan, Wire,
        call_body, event, eventually, response,
    },
};

/// The longest a call may take with the settings of these tests.
const CALL_LIMIT: Duration = Duration::from_millis(600);

/// What may become of a connection, with calls that have begun and calls to come.
fn faults() -> [Option<Fault>; 12] {
    let drip = Effect::Drip(Duration::from_millis(40));
    let late = Effect::Delay(CALL_LIMIT * 2);
    [
        // Refuses.
        None,
        // Takes connections and reads nothing.
        Some(Fault::in_request(0, Effect::Stall)),
        Some(Fault::in_request(60, Effect::Stall)),
        Some(Fault::in_request(60, Effect::Reset)),
        Some(Fault::in_reply(0, Effect::Stall)),
        Some(Fault::in_reply(20, Effect::Stall)),
        Some(Fault::in_reply(150, Effect::Reset)),
        Some(Fault::in_reply(150, Effect::End)),
        Some(Fault::in_reply(20, Effect::HalfEnd)),
        Some(Fault::in_reply(10, Effect::Garble)),
        Some(Fault::in_reply(30, drip)),
        Some(Fault::in_reply(0, late)),
    ]
}

/// Half of the calls are answered with streams.
fn script(asked: &Asked, wire: &mut Wire<'_>) -> Option<()> {
    if asked.tool()? != "stream" {
        return None;
    }
    let body = event(None, &response(asked, "done"));
    wire.answer(200, "content-type: text/event-stream\r\n", body);
    Some(())
}

#[test]
fn every_call_ends_whatever_becomes_of_its_backend() {
    let (rounds, in_flight) = if is_long() { (50, 200) } else { (1, 24) };
    for layout in LAYOUTS {
        let backend = Backend::scripted("a", &["json", "stream"], script);
        let mut proxy = FaultProxy::start(backend.address());
        let gateway = Plan::of(&[("a", &proxy.url())])
            .layout(layout)
            .settings(|settings| {
                let limits = &mut settings.timeouts;
                limits.upstream_connect = CALL_LIMIT / 3;
                limits.upstream_first_byte = CALL_LIMIT / 2;
                limits.initialize = CALL_LIMIT / 2;
                limits.call = CALL_LIMIT;
            })
            .start();
        let first = McpClient::open(&gateway);
        let mut longest = Duration::ZERO;
        for (round, fault) in (0..rounds).flat_map(|round| faults().map(|fault| (round, fault))) {
            // Connections that are kept from before, and then none.
            let mut clients: Vec<McpClient> = (0..in_flight).map(|_| first.again()).collect();
            if round % 2 == 0 {
                proxy.cut();
            }
            match fault {
                Some(fault) => proxy.arm(fault),
                None => proxy.kill(),
            }
            let start = Barrier::new(in_flight);
            thread::scope(|scope| {
                let calls: Vec<_> = clients
                    .iter_mut()
                    .enumerate()
                    .map(|(number, client)| {
                        let start = &start;
                        scope.spawn(move || {
                            let tool = ["json", "stream"][number % 2];
                            start.wait();
                            let started = Instant::now();
                            let response = client.call(&number.to_string(), tool, "{}");
                            outcome_of(&response, &number.to_string());
                            started.elapsed()
                        })
                    })
                    .collect();
                for call in calls {
                    longest = longest.max(call.join().unwrap());
                }
            });
            if fault.is_none() {
                proxy.revive();
            }
            proxy.mend();
            let mut client = first.again();
            eventually("it works again", || {
                let response = client.call("1", "json", "{}");
                outcome_of(&response, "1")
            });
        }
        // Far from both: what a busy machine adds, and what a call without a limit takes.
        assert!(longest < PATIENCE / 2, "{layout:?}: {longest:?}");
        println!(
            "{layout:?}: the longest of all calls took {longest:?}, the limit is {CALL_LIMIT:?}"
        );
        // Nothing is left of them.
        drop(first);
        eventually("all connections of clients have ended", || {
            (gateway.metric("shardgate_connections") == 0).then_some(())
        });
        assert_eq!(gateway.metric("shardgate_panics_total"), 0);
    }
}

/// Lists ask all backends: one that hangs in whatever way makes a list partial, not endless.
#[test]
fn every_list_ends_with_what_the_sound_backends_have() {
    let sound = Backend::start("a", &["one"]);
    let broken = Backend::start("b", &["two"]);
    let mut proxy = FaultProxy::start(broken.address());
    for layout in LAYOUTS {
        let gateway = Plan::of(&[("a", &sound.url()), ("b", &proxy.url())])
            .layout(layout)
            .settings(|settings| {
                // The sound one has its time on a busy machine too.
                settings.timeouts.initialize = Duration::from_secs(1);
                settings.timeouts.upstream_first_byte = Duration::from_secs(1);
            })
            .start();
        let mut client = McpClient::open(&gateway);
        for fault in faults() {
            eventually("both are there", || {
                (client.tool_names() == ["a-one", "b-two"]).then_some(())
            });
            match fault {
                Some(fault) => proxy.arm(fault),
                None => proxy.kill(),
            }
            proxy.cut();
            let names = client.tool_names();
            assert!(names.contains(&"a-one".to_owned()), "{fault:?}: {names:?}");
            if fault.is_none() {
                proxy.revive();
            }
            proxy.mend();
        }
    }
}

/// A client that breaks off a call costs nothing but that: its session and the backend's connection
/// go on, and nobody else gets its answer.
#[test]
fn a_client_that_breaks_off_takes_nothing_along() {
    for layout in LAYOUTS {
        let backend = Backend::start("a", &["one"]);
        let gateway = Plan::one(&backend).layout(layout).start();
        let mut client = McpClient::open(&gateway);
        let mut expected = 0;
        let whole = client.request(call_body("9", "one", "{}")).bytes().len();
        for at in (0..=whole)
            .step_by(if is_long() { 1 } else { 9 })
            .chain([whole])
        {
            for effect in [Effect::Reset, Effect::End] {
                let proxy = FaultProxy::start(gateway.address);
                proxy.arm(Fault::in_request(at, effect));
                let mut broken = crate::support::Connection::open(proxy.address);
                let ask = client.request(call_body("9", "one", r#"{"broken":true}"#));
                broken.try_send(ask.bytes());
                proxy.await_hits(1);
                drop(broken);
                expected += 1;
                let arguments = format!(r#"{{"number":{expected}}}"#);
                let response = client.call("1", "one", &arguments);
                let text = outcome_of(&response, "1");
                assert_eq!(
                    text,
                    Some(format!("a one {arguments}")),
                    "{effect:?} at {at}"
                );
            }
        }
        eventually("all broken connections have ended", || {
            (gateway.metric("shardgate_connections") == 1).then_some(())
        });
        assert_eq!(gateway.metric("shardgate_panics_total"), 0);
    }
}
