//! One exchange of bytes with a server, nothing read into them: for streams that are no requests.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses a part of it"
)]

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};

/// Reached only by a failing test.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends the pieces, one write each, and reads until the server ends or has said `until`; the
/// client's own end follows the last piece if `is_all`. What the server said.
pub fn exchange(
    address: SocketAddr,
    pieces: &[&[u8]],
    is_all: bool,
    until: Option<&[u8]>,
) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    std::thread::scope(|scope| {
        let mut writer = stream.try_clone().unwrap();
        let mut send = move || {
            for piece in pieces {
                // A server that has refused reads no further.
                if writer.write_all(piece).is_err() {
                    return;
                }
            }
            if is_all {
                let _ = writer.shutdown(Shutdown::Write);
            }
        };
        // Only what may fill the sockets' buffers needs a hand of its own to read meanwhile.
        let total: usize = pieces.iter().map(|piece| piece.len()).sum();
        if total > 16 << 10 {
            scope.spawn(send);
        } else {
            send();
        }
        let heard = read(&mut stream, until);
        // Lets a writer that is still at it go.
        let _ = stream.shutdown(Shutdown::Both);
        heard
    })
}

fn read(stream: &mut TcpStream, until: Option<&[u8]>) -> Vec<u8> {
    let mut heard = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return heard,
            Ok(count) => {
                let from = heard.len().saturating_sub(until.map_or(0, <[u8]>::len));
                heard.extend_from_slice(&piece[..count]);
                if until.is_some_and(|until| memchr::memmem::find(&heard[from..], until).is_some())
                {
                    return heard;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset) => return heard,
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&heard)),
        }
    }
}

/// The statuses of the answers in what a server said, those of the 1xx class left out.
pub fn statuses(heard: &[u8]) -> Vec<u16> {
    memchr::memmem::find_iter(heard, b"HTTP/1.1 ")
        // What is no number is a refusal's text that speaks of versions.
        .filter_map(|at| {
            std::str::from_utf8(heard.get(at + 9..at + 12)?)
                .ok()?
                .parse()
                .ok()
        })
        .filter(|status| *status >= 200)
        .collect()
}
