//! A stop: what runs is finished, what comes is told to go elsewhere, in the words of the stateless
//! revision.

use std::{net::TcpStream, sync::Arc, thread};

use serde_json::json;

use crate::{
    assert_refused,
    support::{Backend, Gate, Layout, ModernClient, Plan, eventually},
    text_of,
};

#[test]
fn what_runs_is_finished_and_what_comes_is_sent_elsewhere() {
    for layout in [Layout::One, Layout::Two] {
        let gate = Arc::new(Gate::default());
        let backend = Backend::modern_scripted("a", &["slow"], {
            let gate = gate.clone();
            move |asked, _| {
                asked.tool()?;
                gate.wait();
                None
            }
        });
        let gateway = Plan::one(&backend).layout(layout).start();
        let address = gateway.address;
        let mut running = ModernClient::new(&gateway);
        let call = running.call_request("1", "slow", "{}");
        running.connection.send(call.bytes());
        gate.await_arrivals(1);
        // Not idle: the head of its next request has begun.
        let mut late = ModernClient::new(&gateway);
        late.tool_names();
        let list = late.request("\"late\"", "tools/list", "").bytes();
        let (begun, rest) = list.split_at(20);
        late.connection.send(begun);
        let stopping = thread::spawn(move || gateway.stop());
        eventually("new connections are refused", || {
            TcpStream::connect(address).is_err().then_some(())
        });
        if late.connection.try_send(rest) {
            let response = late.connection.read_response();
            let data = assert_refused(&response, 503, Some("\"late\""), -31001);
            assert_eq!(data, json!({"reason": "draining"}));
            assert_eq!(response.header("retry-after"), Some("1"));
            assert_eq!(response.header("connection"), Some("close"));
            assert!(late.connection.is_closed());
        }
        gate.open();
        text_of(&running.connection.read_response());
        assert!(stopping.join().unwrap());
    }
}
