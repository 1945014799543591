//! The other side of the gateway while it is counted: one client, one call at a time.

use std::{io, net::TcpStream};

use loadgen::{
    era::STATELESS_REVISION,
    run::{RunOptions, run},
};
use shards::{slots::SlotTable, topology};

use super::Input;
use crate::{
    contestant::{ConnectNode, Contestant, PROGRESS_COUNT},
    metrics::Metrics,
    plain::Endpoint,
};

/// First id: all ids of a run have as many digits.
const ID_FIRST: u32 = 1_000_000;
/// The tool that is called.
const TOOL: &str = "echo";
/// Sessions opened until both of two shards own one: each has half of them.
const SESSIONS_MAX: usize = 200;
/// How far a reply's size may be off: the gateway puts ids of its own length in.
const BYTES_TOLERANCE: usize = 32;

/// Runs `work` in a thread on core `cpu` that never takes it from a thread that runs. Threads that
/// `work` starts are like that too.
pub(super) fn politely<T: Send>(cpu: usize, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let working = scope.spawn(|| {
            if !topology::pin(cpu) {
                return Err(io::Error::other(format!("cannot pin to core {cpu}")));
            }
            if !topology::wake_without_preempting() {
                return Err(io::Error::other("cannot step back behind other threads"));
            }
            Ok(work())
        });
        let outcome = working.join();
        outcome.map_err(|_| io::Error::other("a thread died"))?
    })
}

/// Opens what the input needs, then makes the calls and checks each reply.
pub(super) fn converse(gateway: &Contestant, input: Input, calls: u32) -> io::Result<()> {
    let endpoint = gateway
        .endpoint(input.case())
        .ok_or(io::ErrorKind::NotFound)?;
    let (mut stream, session) = match input {
        Input::Forwarded => far_session(&endpoint)?,
        Input::Stateless => (endpoint.connect()?, String::new()),
        _ => endpoint.initialize()?,
    };
    let forwarded = || {
        let admin = gateway.admin.ok_or(io::ErrorKind::NotFound)?;
        Ok::<_, io::Error>(Metrics::read(admin)?.total("forwarded"))
    };
    let before = forwarded()?;
    for id in ID_FIRST..ID_FIRST + calls {
        let message = message(input, id);
        let reply = match input {
            Input::Stateless => {
                endpoint.call_stateless(&mut stream, "tools/call", TOOL, &message)?
            }
            _ => endpoint.call(&mut stream, &session, &message)?,
        };
        if !is_right(input, id, &String::from_utf8_lossy(&reply)) {
            return Err(io::Error::other("a reply is not to its request"));
        }
    }
    let after = forwarded()?;
    let wanted = if input == Input::Forwarded { calls } else { 0 };
    if after.zip(before).map(|(after, before)| after - before) != Some(f64::from(wanted)) {
        return Err(io::Error::other(format!(
            "{wanted} calls should have been forwarded, the counter went from {before:?} to \
             {after:?}"
        )));
    }
    Ok(())
}

/// As many exchanges, one at a time, between one caller and one client.
pub(super) fn exchange(node: &ConnectNode, cpu: usize, calls: u32) -> io::Result<()> {
    let report = run(RunOptions {
        calls: Some(calls.into()),
        cpus: Some(vec![cpu]),
        ..node.run_options()
    })
    .map_err(io::Error::other)?;
    match report.error_count() {
        0 if report.sent == u64::from(calls) => Ok(()),
        _ => Err(io::Error::other("an exchange was not answered whole")),
    }
}

/// A connection at home with one shard, and a session that the other one owns. A connection moves
/// to the owner of the first session it names, and stays there.
fn far_session(endpoint: &Endpoint) -> io::Result<(TcpStream, String)> {
    let slots = SlotTable::new(2);
    let mut owned: [Option<String>; 2] = [None, None];
    for _ in 0..SESSIONS_MAX {
        let (_, session) = endpoint.initialize()?;
        let owner = usize::from(slots.owner_of(session.as_bytes()));
        owned[owner] = Some(session);
        if let [Some(near), Some(far)] = &owned {
            return Ok((endpoint.connect_and_ping(near)?, far.clone()));
        }
    }
    Err(io::Error::other("all sessions are on one shard"))
}

fn message(input: Input, id: u32) -> String {
    let meta = match input {
        Input::Progress => format!(r#""_meta":{{"progressToken":{id}}},"#),
        Input::Stateless => format!(
            concat!(
                r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"{}","#,
                r#""io.modelcontextprotocol/clientInfo":{{"name":"bench","version":"1"}},"#,
                r#""io.modelcontextprotocol/clientCapabilities":{{}}}},"#
            ),
            STATELESS_REVISION
        ),
        Input::Small | Input::Large | Input::Forwarded | Input::Exchange => String::new(),
    };
    format!(
        concat!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","#,
            r#""params":{{{meta}"name":"{tool}","arguments":{{"text":"hello"}}}}}}"#
        ),
        id = id,
        meta = meta,
        tool = TOOL
    )
}

/// Whether it is the reply to this call, with all that must come before it.
fn is_right(input: Input, id: u32, reply: &str) -> bool {
    let start = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#);
    match input {
        Input::Progress => {
            let token = format!(r#""progressToken":{id},"#);
            let notes = reply.matches("\"notifications/progress\"").count();
            let own = reply.matches(&token).count();
            notes == own && own == PROGRESS_COUNT as usize && reply.contains(&start)
        }
        Input::Small | Input::Large | Input::Forwarded | Input::Stateless | Input::Exchange => {
            let bytes = input.case().bytes();
            reply.starts_with(&start) && reply.len().abs_diff(bytes) <= BYTES_TOLERANCE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_told_from_others() {
        let small = |id: u32| {
            let start = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":""#);
            format!("{start}{}\"}}}}", "x".repeat(197 - start.len()))
        };
        assert!(is_right(Input::Small, 7, &small(7)));
        assert!(!is_right(Input::Small, 8, &small(7)));
        assert!(!is_right(Input::Large, 7, &small(7)));
        let note = r#"{"method":"notifications/progress","params":{"progressToken":7,"#;
        let stream = |count: usize| format!("{}{}", note.repeat(count), small(7));
        assert!(is_right(Input::Progress, 7, &stream(3)));
        assert!(!is_right(Input::Progress, 7, &stream(2)));
        assert!(!is_right(Input::Progress, 7, &note.repeat(3)));
    }

    #[test]
    fn messages_are_json_of_one_length() {
        for input in Input::ALL {
            let lengths: Vec<usize> = [ID_FIRST, ID_FIRST + 999_999]
                .into_iter()
                .map(|id| message(input, id))
                .map(|text| {
                    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
                    let has_token = value["params"]["_meta"]["progressToken"].is_u64();
                    assert_eq!(has_token, input == Input::Progress);
                    text.len()
                })
                .collect();
            assert_eq!(lengths[0], lengths[1]);
        }
    }
}
