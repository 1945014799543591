//! The stream of a GET: log messages at an even pace, until the client goes.

use std::{io::Write, time::Duration};

use shards::Stream;

/// Appends the head of the reply.
pub(super) fn write_head(out: &mut Vec<u8>) {
    out.extend_from_slice(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n\
          transfer-encoding: chunked\r\n\r\n",
    );
}

/// Sends what `out` holds, then an event each time `interval` has passed.
pub(super) async fn serve(mut stream: Stream, mut out: Vec<u8>, interval: Duration) {
    let mut number = 0_u64;
    loop {
        let result;
        (result, out) = stream.write_all(out).await;
        if result.is_err() {
            return;
        }
        out.clear();
        shards::sleep(interval.max(Duration::from_millis(1))).await;
        // A client sends nothing over a stream: input is its end.
        if stream.has_input() {
            return;
        }
        number += 1;
        write_event(&mut out, number);
    }
}

fn write_event(out: &mut Vec<u8>, number: u64) {
    let event = format!(
        concat!(
            "event: message\ndata: ",
            r#"{{"jsonrpc":"2.0","method":"notifications/message","#,
            r#""params":{{"level":"info","data":"event {number}"}}}}"#,
            "\n\n"
        ),
        number = number
    );
    // Writing to a vector cannot fail.
    let _ = write!(out, "{:x}\r\n{event}\r\n", event.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_chunk() {
        let mut out = Vec::new();
        write_event(&mut out, 7);
        let text = String::from_utf8(out).unwrap();
        let (size, rest) = text.split_once("\r\n").unwrap();
        let event = rest.strip_suffix("\r\n").unwrap();
        assert_eq!(usize::from_str_radix(size, 16).unwrap(), event.len());
        assert!(event.contains(r#""data":"event 7"}"#) && event.ends_with("\n\n"));
    }
}
