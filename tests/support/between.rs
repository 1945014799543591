//! Something between a client and a server that sees, or changes, the bytes on their way: `#[path =
//! "support/between.rs"] mod between;`.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// Bytes read at once.
const PIECE: usize = 64 * 1024;

/// Looks at a piece of one direction, and may change bytes of it.
pub(crate) type Look = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// Stands in front of the server at `url` and gives a URL of its own.
pub(crate) fn stand(url: &str, requests: Look, replies: Look) -> String {
    let rest = url.strip_prefix("http://").unwrap();
    let (address, path) = rest.split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap();
    let address = address.to_owned();
    thread::spawn(move || {
        for client in listener.incoming() {
            // A server that has ended answers nobody.
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(&address)) else {
                continue;
            };
            let (from_client, to_client) = (client.try_clone().unwrap(), client);
            let (from_server, to_server) = (server.try_clone().unwrap(), server);
            let (requests, replies) = (requests.clone(), replies.clone());
            thread::spawn(move || copy(from_client, to_server, &*requests));
            thread::spawn(move || copy(from_server, to_client, &*replies));
        }
    });
    format!("http://{own}/{path}")
}

fn copy(mut from: TcpStream, mut to: TcpStream, look: &(dyn Fn(&mut [u8]) + Send + Sync)) {
    let _ = to.set_nodelay(true);
    let mut piece = [0; PIECE];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        look(&mut piece[..count]);
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Keeps what was sent to a server.
pub(crate) struct Recorder {
    /// Where it stands.
    pub(crate) url: String,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    /// One in front of the server at `url`.
    pub(crate) fn before(url: &str) -> Self {
        let sent: Arc<Mutex<Vec<u8>>> = Arc::default();
        let keep = sent.clone();
        let requests = move |piece: &mut [u8]| keep.lock().unwrap().extend_from_slice(piece);
        Self {
            url: stand(url, Arc::new(requests), Arc::new(|_| {})),
            sent,
        }
    }

    /// What was sent since the last look.
    pub(crate) fn take(&self) -> String {
        let sent = std::mem::take(&mut *self.sent.lock().unwrap());
        String::from_utf8_lossy(&sent).into_owned()
    }
}
