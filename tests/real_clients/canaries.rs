//! No principal ever sees another's bytes: equal ids, shared connections, a canary in each call
//! (reliability.md 8, promise 6; market.md S2).

use std::{sync::Arc, thread};

use loadgen::backend::{BackendKind, ReplyKind};

use crate::{
    stage::{Stage, sample},
    support::{Ask, Connection, McpClient, Plan},
};
use serde_json::json;

const PRINCIPALS: usize = 64;
const THREADS: usize = 8;

/// Calls of the whole run; the long form is the promise's own figure.
fn call_count() -> usize {
    match std::env::var_os("SHARDGATE_TEST_LONG") {
        Some(_) => 10_000_000,
        None => 20_000,
    }
}

/// One principal's session.
struct Caller {
    /// A request of the session, without a body.
    template: Ask,
    session: String,
    canary: String,
}

impl Caller {
    fn ask(&self, body: impl Into<Vec<u8>>) -> Ask {
        Ask {
            body: Some(body.into()),
            ..self.template.clone()
        }
    }
}

#[test]
fn every_reply_carries_its_callers_canary() {
    let (json_replies, streams) = (
        sample(BackendKind::Echo, ReplyKind::Json),
        sample(BackendKind::Echo, ReplyKind::Sse),
    );
    let host = json!({"backends": {
        "json": {"name": "json", "url": json_replies.url()},
        "sse": {"name": "sse", "url": streams.url()},
    }});
    let document = json!({"users": {"*": {"virtual_hosts": {"main": host}}}});
    // nginx keeps fewer connections than there are callers: they carry everybody's calls.
    let stage = Stage::start(Plan::document(document).with_tokens()).behind_nginx(4);
    let callers: Vec<Caller> = (0..PRINCIPALS)
        .map(|number| {
            let token = stage
                .gateway
                .token(&format!("principal-{number}@example.com"));
            let client = McpClient::open_on(&stage.gateway, "main", Some(&token));
            Caller {
                template: client.request(""),
                session: client.session,
                canary: format!("canary of principal {number}"),
            }
        })
        .collect();
    let callers = Arc::new(callers);
    let address = stage.address();
    let rounds = call_count() / PRINCIPALS;
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let callers = callers.clone();
            thread::spawn(move || {
                let mut connection = Connection::open(address);
                for round in 0..rounds {
                    // Each thread asks for its own callers in turn, all over one connection, and
                    // every caller gives its calls the same ids.
                    for own in (thread..PRINCIPALS).step_by(THREADS) {
                        call(&mut connection, &callers[own], round);
                    }
                    let (own, foreign) = (thread, (thread + round) % PRINCIPALS);
                    if round % 16 == 1 && own != foreign {
                        trespass(&mut connection, &callers[own], &callers[foreign]);
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let totals = stage.totals();
    let calls = (rounds * PRINCIPALS) as u64;
    assert_eq!(totals.calls, calls);
    assert_eq!(json_replies.calls() + streams.calls(), calls);
    assert!(totals.forwarded > 0, "{totals:?}");
    drop(callers);
    stage.end();
    assert_eq!((json_replies.stop(), streams.stop()), (0, 0));
}

fn call(connection: &mut Connection, caller: &Caller, round: usize) {
    let tool = if round.is_multiple_of(2) {
        "json-echo"
    } else {
        "sse-echo"
    };
    let canary = format!("{} call {round}", caller.canary);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{round},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"text":"{canary}"}}}}}}"#
    );
    let response = connection.ask(&caller.ask(body));
    assert_eq!(response.status, 200, "{}", response.text());
    let message = response.message();
    assert_eq!(message["id"], round);
    assert_eq!(message["result"]["content"][0]["text"], canary);
}

/// A caller with another's session id is told what one with an unknown id is told.
fn trespass(connection: &mut Connection, caller: &Caller, other: &Caller) {
    let body = r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#;
    let ask = caller.ask(body).with("mcp-session-id", &other.session);
    let response = connection.ask(&ask);
    assert_eq!(response.status, 404, "{}", response.text());
    assert!(!response.text().contains("canary"));
}
