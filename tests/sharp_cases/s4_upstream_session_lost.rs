//! S4: a backend that forgot its session is opened again, once, and nobody notices.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::{
    support::{Backend, Gate, LAYOUTS, Layout, McpClient, Plan, eventually},
    text_of,
};

const LOST_404: &str =
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#;
const LOST_400: &str = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#;

fn counts(backend: &Backend) -> (usize, usize) {
    (
        backend.seen_rpc("initialize").len(),
        backend.seen_rpc("notifications/initialized").len(),
    )
}

#[test]
fn s4_ten_parallel_calls_reopen_a_restarted_backend_once() {
    for layout in LAYOUTS {
        let (calls, reopening) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
        let a = Backend::scripted("a", &["one"], {
            let (calls, reopening) = (calls.clone(), reopening.clone());
            move |asked, _| {
                if asked.tool().is_some() && asked.header("mcp-session-id") == Some("a-session-1") {
                    calls.wait();
                }
                if asked.is("initialize") && calls.is_open() {
                    reopening.wait();
                }
                None
            }
        });
        let b = Backend::start("b", &["two"]);
        let gateway = Plan::of(&[("a", &a.url()), ("b", &b.url())])
            .layout(layout)
            .start();
        let first = McpClient::open(&gateway);
        let seen_by_b = b.await_rpc("notifications/initialized", 1).len() + 1;
        let mut clients: Vec<McpClient> = (0..10).map(|_| first.again()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.send_call(&number.to_string(), "a-one", &format!("[{number}]"));
        }
        calls.await_arrivals(10);
        a.lose_sessions();
        calls.open();
        // All ten have met their 404 before the one initialize is answered.
        eventually("ten calls found the session lost", || {
            (gateway.metric("shardgate_backend_sessions_reopened_total") == 10).then_some(())
        });
        reopening.open();
        for (number, client) in clients.iter_mut().enumerate() {
            let response = client.connection.read_response();
            assert_eq!(text_of(&response), format!("a one [{number}]"));
            assert_eq!(response.message()["id"], number);
        }
        assert_eq!(counts(&a), (2, 2), "opened again exactly once");
        let calls = a.seen_rpc("tools/call");
        assert_eq!(calls.len(), 20);
        let retried = calls
            .iter()
            .filter(|asked| asked.header("mcp-session-id") == Some("a-session-2"));
        assert_eq!(retried.count(), 10);
        assert_eq!(b.seen().len(), seen_by_b, "the other backend is untouched");
        let mut client = first.again();
        assert_eq!(text_of(&client.call("1", "b-two", "{}")), "b two {}");
    }
}

#[test]
fn s4_every_way_to_say_lost_is_understood() {
    for (status, content_type, body) in [
        (404, "application/json", LOST_404),
        (404, "text/plain", "Not Found: Session not found"),
        (404, "text/html", ""),
        (400, "application/json", LOST_400),
    ] {
        for layout in LAYOUTS {
            let times = AtomicUsize::new(0);
            let backend = Backend::scripted("a", &["one"], move |asked, wire| {
                asked.tool()?;
                if times.fetch_add(1, Ordering::SeqCst) > 0 {
                    return None;
                }
                wire.answer(status, &format!("content-type: {content_type}\r\n"), body);
                Some(())
            });
            let gateway = Plan::one(&backend).layout(layout).start();
            let mut client = McpClient::open(&gateway);
            let response = client.call(r#""x""#, "one", "{}");
            assert_eq!(text_of(&response), "a one {}", "{status} {content_type}");
            assert_eq!(response.message()["id"], "x");
            assert_eq!(counts(&backend), (2, 2));
            assert_eq!(
                client.tool_names(),
                ["one"],
                "the client's session lives on"
            );
        }
    }
}

#[test]
fn s4_a_second_404_is_an_error_and_no_loop() {
    for layout in LAYOUTS {
        let backend = Backend::scripted("a", &["one", "gone"], |asked, wire| {
            (asked.tool()? == "gone").then(|| wire.answer(404, "", ""))
        });
        let gateway = Plan::one(&backend).layout(layout).start();
        let mut client = McpClient::open(&gateway);
        let response = client.call("5", "gone", "{}");
        assert_eq!((response.status, response.error_code()), (200, -32603));
        assert_eq!(response.message()["id"], 5);
        assert_eq!(backend.seen_rpc("tools/call").len(), 2);
        assert_eq!(counts(&backend), (2, 2));
        assert_eq!(text_of(&client.call("6", "one", "{}")), "a one {}");
    }
}

#[test]
fn s4_a_failed_reopening_is_an_error_and_the_next_call_tries_again() {
    for layout in LAYOUTS {
        let initializes = AtomicUsize::new(0);
        let backend = Backend::scripted("a", &["one"], move |asked, wire| {
            let is_second =
                asked.is("initialize") && initializes.fetch_add(1, Ordering::SeqCst) == 1;
            is_second.then(|| wire.answer(500, "content-type: text/plain\r\n", "canary"))
        });
        let gateway = Plan::one(&backend).layout(layout).start();
        let mut client = McpClient::open(&gateway);
        backend.lose_sessions();
        let response = client.call("5", "one", "{}");
        assert_eq!((response.status, response.error_code()), (200, -32603));
        assert!(!response.text().contains("canary"));
        assert_eq!(text_of(&client.call("6", "one", "{}")), "a one {}");
        assert_eq!(backend.seen_rpc("initialize").len(), 3);
    }
}

#[test]
fn s4_a_list_finds_the_loss_too() {
    for layout in LAYOUTS {
        let a = Backend::start("a", &["one"]);
        let b = Backend::start("b", &["two"]);
        let gateway = Plan::of(&[("a", &a.url()), ("b", &b.url())])
            .layout(layout)
            .start();
        let mut client = McpClient::open(&gateway);
        assert_eq!(client.tool_names(), ["a-one", "b-two"]);
        a.lose_sessions();
        assert_eq!(client.tool_names(), ["a-one", "b-two"]);
        assert_eq!((counts(&a), counts(&b)), ((2, 2), (1, 1)));
    }
}

#[test]
fn s4_other_client_errors_of_a_backend_are_no_loss() {
    for (status, body) in [
        (
            400,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"bad params"}}"#,
        ),
        (400, "session"),
        (401, ""),
        (403, ""),
        (405, ""),
        (409, ""),
        (429, ""),
        (500, ""),
        (503, ""),
    ] {
        let backend = Backend::scripted("a", &["one"], move |asked, wire| {
            asked.tool()?;
            wire.answer(status, "content-type: application/json\r\n", body);
            Some(())
        });
        let gateway = Plan::one(&backend).layout(Layout::Spread).start();
        let mut client = McpClient::open(&gateway);
        let response = client.call("5", "one", "{}");
        assert_eq!(
            (response.status, response.error_code()),
            (200, -32603),
            "{status}"
        );
        assert_eq!(backend.seen_rpc("tools/call").len(), 1, "{status}");
        assert_eq!(counts(&backend), (1, 1), "{status}");
    }
}
