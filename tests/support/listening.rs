//! A listener of a test's own with a thread that takes its connections.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

/// Takes connections until it is dropped.
pub struct Listening {
    /// Where it listens.
    pub address: SocketAddr,
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    /// Notes every connection, with its number from 0, by `take`; what that gives back runs on a
    /// thread of its own.
    pub fn start<W: FnOnce() + Send + 'static>(
        listener: TcpListener,
        take: impl Fn(TcpStream, usize) -> W + Send + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let has_ended = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let has_ended = has_ended.clone();
            move || {
                for (number, stream) in listener.incoming().enumerate() {
                    if has_ended.load(Ordering::SeqCst) {
                        return;
                    }
                    let stream = stream.unwrap();
                    stream.set_nodelay(true).unwrap();
                    std::thread::spawn(take(stream, number));
                }
            }
        });
        Self {
            address,
            has_ended,
            thread: Some(thread),
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
