//! A TCP proxy that breaks what passes through it, as and when the test says.
//!
//! A fault counts bytes from the moment it is armed, on each connection for itself: so it may hit a
//! connection that was kept from before in the middle of its next request.

use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    thread,
    time::Duration,
};

use socket2::SockRef;

use super::{Listening, PATIENCE};

/// How often one that cannot write looks whether its connection was reset.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Which bytes a fault is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// From the client to the server.
    Request,
    /// From the server to the client.
    Reply,
}

/// What happens to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Both ends get a reset.
    Reset,
    /// Both ends get an orderly end.
    End,
    /// Only the side that the bytes go to gets an end; the other way stays open.
    HalfEnd,
    /// Nothing is read of this side any more, nor passed on.
    Stall,
    /// The bytes that follow have their lowest bit turned round.
    Garble,
    /// The bytes that follow come one by one, with this pause before each.
    Drip(Duration),
    /// What follows is held back for this time.
    Delay(Duration),
}

/// A fault at a place in a connection's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Whose bytes count.
    pub side: Side,
    /// How many of them are passed on unharmed.
    pub after: usize,
    /// What happens then.
    pub effect: Effect,
}

impl Fault {
    /// A fault in what the client sends.
    pub fn in_request(after: usize, effect: Effect) -> Self {
        let side = Side::Request;
        Self {
            side,
            after,
            effect,
        }
    }

    /// A fault in what the server sends.
    pub fn in_reply(after: usize, effect: Effect) -> Self {
        let side = Side::Reply;
        Self {
            side,
            after,
            effect,
        }
    }
}

/// A proxy before one server; ends when dropped.
pub struct FaultProxy {
    /// Where clients come to.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    /// None while it refuses.
    listening: Option<Listening>,
}

struct Shared {
    server: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    fault: Option<Fault>,
    /// Goes up each time something is armed or mended.
    armed: usize,
    hits: usize,
    open: Vec<Arc<Carried>>,
    accepted: usize,
    has_ended: bool,
}

/// Both ends of a connection.
struct Carried {
    client: TcpStream,
    server: TcpStream,
    is_reset: AtomicBool,
}

impl FaultProxy {
    /// Passes everything on to `server` until told otherwise.
    pub fn start(server: SocketAddr) -> Self {
        let shared = Arc::new(Shared {
            server,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let listener = TcpListener::bind((own_address(), 0)).unwrap();
        let listening = listen(listener, &shared);
        Self {
            address: listening.address,
            shared,
            listening: Some(listening),
        }
    }

    /// The MCP endpoint behind it.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// From now on this happens, on every connection, old or new.
    pub fn arm(&self, fault: Fault) {
        self.shared.set(Some(fault));
    }

    /// From now on everything is passed on, and what was stalled goes on.
    pub fn mend(&self) {
        self.shared.set(None);
    }

    /// Refuses connections, and resets those that are open.
    pub fn kill(&mut self) {
        self.listening = None;
        self.cut();
    }

    /// Refuses no longer.
    pub fn revive(&mut self) {
        let listener = TcpListener::bind(self.address).unwrap();
        self.listening = Some(listen(listener, &self.shared));
    }

    /// Resets all connections.
    pub fn cut(&self) {
        let state = self.shared.state.lock().unwrap();
        for carried in &state.open {
            carried.reset();
        }
        self.shared.changed.notify_all();
    }

    /// How often a fault has struck.
    pub fn hits(&self) -> usize {
        self.shared.state.lock().unwrap().hits
    }

    /// Waits until a fault has struck this often.
    pub fn await_hits(&self, count: usize) {
        let state = self.shared.state.lock().unwrap();
        let (state, late) = self
            .shared
            .changed
            .wait_timeout_while(state, PATIENCE, |state| state.hits < count)
            .unwrap();
        assert!(!late.timed_out(), "{} of {count} hits", state.hits);
    }

    /// Connections it has taken.
    pub fn accepted(&self) -> usize {
        self.shared.state.lock().unwrap().accepted
    }

    /// Connections that are open.
    pub fn open_count(&self) -> usize {
        self.shared.state.lock().unwrap().open.len()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.listening = None;
        self.shared.state.lock().unwrap().has_ended = true;
        self.shared.changed.notify_all();
        self.cut();
    }
}

/// A loopback address hardly anybody else has: a port there is not given to another while the proxy
/// refuses.
fn own_address() -> IpAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let process = (std::process::id() % 200 + 20).to_le_bytes()[0];
    IpAddr::V4(Ipv4Addr::new(127, process, high, low.max(1)))
}

fn listen(listener: TcpListener, shared: &Arc<Shared>) -> Listening {
    let shared = shared.clone();
    Listening::start(listener, move |client, _| {
        let shared = shared.clone();
        move || shared.carry(client)
    })
}

impl Carried {
    /// Ends it the hard way: whoever closes it last sends both ends a reset.
    fn reset(&self) {
        self.is_reset.store(true, Ordering::SeqCst);
        for end in [&self.client, &self.server] {
            // It may have ended already. Ending the output too would send an orderly end first.
            let _ = SockRef::from(end).set_linger(Some(Duration::ZERO));
            let _ = end.shutdown(Shutdown::Read);
        }
    }

    fn is_reset(&self) -> bool {
        self.is_reset.load(Ordering::SeqCst)
    }

    fn end(&self) {
        if !self.is_reset() {
            for end in [&self.client, &self.server] {
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }
}

/// One way of a connection.
struct Pump<'a> {
    shared: &'a Shared,
    carried: &'a Carried,
    side: Side,
    armed: usize,
    /// Bytes that have come since the fault was armed.
    passed: usize,
    has_hit: bool,
}

impl Shared {
    fn set(&self, fault: Option<Fault>) {
        let mut state = self.state.lock().unwrap();
        state.fault = fault;
        state.armed += 1;
        self.changed.notify_all();
    }

    /// Carries a connection's bytes until both ways have ended.
    fn carry(&self, client: TcpStream) {
        let Ok(server) = TcpStream::connect(self.server) else {
            return;
        };
        server.set_nodelay(true).unwrap();
        for end in [&client, &server] {
            end.set_write_timeout(Some(LOOK_EVERY)).unwrap();
        }
        let is_reset = AtomicBool::new(false);
        let carried = Arc::new(Carried {
            client,
            server,
            is_reset,
        });
        let armed = {
            let mut state = self.state.lock().unwrap();
            state.accepted += 1;
            state.open.push(carried.clone());
            state.armed
        };
        let pump = |side| Pump {
            shared: self,
            carried: &carried,
            side,
            armed,
            passed: 0,
            has_hit: false,
        };
        thread::scope(|scope| {
            scope.spawn(|| pump(Side::Request).run());
            pump(Side::Reply).run();
        });
        let mut state = self.state.lock().unwrap();
        state.open.retain(|known| !Arc::ptr_eq(known, &carried));
    }
}

impl Pump<'_> {
    fn run(mut self) {
        let (mut from, to) = match self.side {
            Side::Request => (&self.carried.client, &self.carried.server),
            Side::Reply => (&self.carried.server, &self.carried.client),
        };
        let mut bytes = vec![0; 16 * 1024];
        loop {
            // What is stalled from its first byte on is not even read.
            if let Some(fault) = self.fault()
                && fault.effect == Effect::Stall
                && self.passed >= fault.after
            {
                self.hit();
                if !self.wait_for_change() {
                    break;
                }
                continue;
            }
            let count = match from.read(&mut bytes) {
                Ok(count) if count > 0 => count,
                _ => break,
            };
            let fault = self.fault();
            let before = self.passed;
            self.passed += count;
            let after = fault.map_or(usize::MAX, |fault| fault.after);
            let sound = after.saturating_sub(before).min(count);
            if !self.write(to, &bytes[..sound]) {
                break;
            }
            let Some(fault) = fault.filter(|_| self.passed >= after) else {
                continue;
            };
            self.hit();
            if !self.strike(fault.effect, to, &mut bytes[sound..count]) {
                break;
            }
        }
        self.carried.end();
    }

    /// What becomes of the bytes behind a fault's place; false: this way has ended.
    fn strike(&mut self, effect: Effect, to: &TcpStream, rest: &mut [u8]) -> bool {
        match effect {
            Effect::Reset => {
                self.carried.reset();
                self.shared.changed.notify_all();
                false
            }
            Effect::End => false,
            Effect::HalfEnd => {
                let _ = to.shutdown(Shutdown::Write);
                self.wait_for_change();
                false
            }
            Effect::Stall => self.wait_for_change() && self.write(to, rest),
            Effect::Garble => {
                rest.iter_mut().for_each(|byte| *byte ^= 1);
                self.write(to, rest)
            }
            Effect::Drip(pause) => rest.iter().all(|byte| {
                // The pauses are the fault.
                thread::sleep(pause);
                self.write(to, &[*byte])
            }),
            Effect::Delay(pause) => {
                thread::sleep(pause);
                self.write(to, rest)
            }
        }
    }

    /// Writes, however slowly it is read; false: the connection has ended.
    fn write(&self, mut to: &TcpStream, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match to.write(bytes) {
                Ok(count) if count > 0 => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => return false,
            }
            if self.carried.is_reset() {
                return false;
            }
        }
        true
    }

    /// The fault in force; its bytes are counted anew when it is another one.
    fn fault(&mut self) -> Option<Fault> {
        let state = self.shared.state.lock().unwrap();
        if state.armed != self.armed {
            (self.armed, self.passed, self.has_hit) = (state.armed, 0, false);
        }
        state.fault.filter(|fault| fault.side == self.side)
    }

    /// Counts once what strikes a connection again and again.
    fn hit(&mut self) {
        if !std::mem::replace(&mut self.has_hit, true) {
            self.shared.state.lock().unwrap().hits += 1;
            self.shared.changed.notify_all();
        }
    }

    /// Waits until something else is armed; false: the connection is over.
    fn wait_for_change(&self) -> bool {
        let armed = self.armed;
        let is_over = |state: &State| state.has_ended || self.carried.is_reset();
        let state = self.shared.state.lock().unwrap();
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(state, PATIENCE * 2, |state| {
                state.armed == armed && !is_over(state)
            })
            .unwrap();
        state.armed != armed && !is_over(&state)
    }
}
