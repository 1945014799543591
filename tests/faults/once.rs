//! Promise 8: a call reaches its tool once at the most, wherever its connection breaks, and its
//! caller gets exactly one answer.

use std::collections::HashMap;

use crate::{
    is_long, outcome_of,
    support::{
        Asked, Backend, Effect, Fault, FaultProxy, LAYOUTS, McpClient, Plan, Wire, event, response,
    },
};

/// How a backend answers.
#[derive(Clone, Copy, Debug)]
enum Answers {
    Json,
    Stream,
}

fn started(answers: Answers) -> Backend {
    Backend::scripted("a", &["once"], move |asked: &Asked, wire: &mut Wire<'_>| {
        asked.tool()?;
        let Answers::Stream = answers else {
            return None;
        };
        let body = event(None, &response(asked, "done"));
        wire.answer(200, "content-type: text/event-stream\r\n", body);
        Some(())
    })
}

/// Breaks a call's connection behind each byte in turn of what the gateway sends or gets.
#[test]
fn a_call_reaches_its_tool_once_wherever_its_connection_breaks() {
    let step = if is_long() { 1 } else { 13 };
    // A call's head and body are some 450 bytes, the reply 250: the last ones break nothing.
    let places = || (0..520).step_by(step);
    let faults = [Effect::Reset, Effect::End, Effect::HalfEnd]
        .into_iter()
        .flat_map(|effect| {
            let in_request = places().map(move |at| Fault::in_request(at, effect));
            let in_reply = places().map(move |at| Fault::in_reply(at, effect));
            in_request.chain(in_reply)
        });
    let faults: Vec<Fault> = faults.collect();
    let mut hits = 0;
    for (layout, answers) in
        LAYOUTS
            .into_iter()
            .zip([Answers::Json, Answers::Stream, Answers::Json])
    {
        let backend = started(answers);
        let proxy = FaultProxy::start(backend.address());
        let gateway = Plan::of(&[("a", &proxy.url())])
            .layout(layout)
            .settings(|settings| {
                // An end of one half is no end of the call: the limit is.
                settings.timeouts.upstream_first_byte = std::time::Duration::from_millis(100);
                settings.timeouts.call = std::time::Duration::from_millis(100);
            })
            .start();
        let mut client = McpClient::open(&gateway);
        let mut failed = 0;
        for (number, fault) in faults.iter().enumerate() {
            proxy.arm(*fault);
            let id = number.to_string();
            // What follows the call on its connection is answered by its own answer: no more and
            // no less has come for the call.
            client.send_call(&id, "once", &format!(r#"{{"number":{number}}}"#));
            let ping = format!(r#"{{"jsonrpc":"2.0","id":"after {number}","method":"ping"}}"#);
            let ping = client.request(ping);
            client.connection.send(ping.bytes());
            let outcome = outcome_of(&client.connection.read_response(), &id);
            failed += usize::from(outcome.is_none());
            let after = client.connection.read_response().message();
            assert_eq!(after["id"], format!("after {number}"), "{fault:?}");
            // The other half of the calls meets a connection that is new.
            proxy.mend();
            if number % 2 == 0 {
                proxy.cut();
            }
        }
        let mut times: HashMap<String, usize> = HashMap::new();
        for call in backend.seen_rpc("tools/call") {
            *times.entry(call.param("arguments").unwrap()).or_default() += 1;
        }
        let repeated: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
        assert!(repeated.is_empty(), "{layout:?}: {repeated:?}");
        // What has been answered was done, and what never came whole was not.
        assert!(times.len() >= faults.len() - failed, "{layout:?}");
        assert!(
            times.len() < faults.len(),
            "{layout:?}: some never came whole"
        );
        assert!(
            failed > faults.len() / 2,
            "{layout:?}: only {failed} failed"
        );
        hits += proxy.hits();
    }
    println!("{hits} connections broken, no call repeated");
}
