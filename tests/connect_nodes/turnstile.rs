//! A proxy before Redis that keeps commands waiting: so what one node has sent is done after
//! everything another one does, each time the test runs and not once in a thousand.

use std::{
    io::{BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
};

use crate::{
    redis::{encode, read_command},
    support::{Listening, PATIENCE},
};

/// A command: its words.
pub(crate) type Words = [Vec<u8>];

/// Passes commands on one by one, but for those that are kept.
pub(crate) struct Turnstile {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    _listening: Listening,
}

struct Shared {
    server: u16,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    kept: Vec<Kind>,
    last_kind: usize,
}

/// What is kept.
struct Kind {
    number: usize,
    is_meant: Box<dyn Fn(&Words) -> bool + Send>,
    is_open: bool,
    /// Commands that have come, and replies of Redis to those of them that were passed on.
    came: usize,
    answered: usize,
}

impl Turnstile {
    /// One before the Redis on this port.
    pub(crate) fn before(server: u16) -> Self {
        let shared = Arc::new(Shared {
            server,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let carrying = shared.clone();
        let listening = Listening::start(listener, move |client, _| {
            let shared = carrying.clone();
            move || shared.carry(&client)
        });
        Self {
            address: listening.address,
            shared,
            _listening: listening,
        }
    }

    /// From now on such commands wait, and so does what follows them on their connections, until
    /// what is given back is dropped.
    pub(crate) fn keep(&self, is_meant: impl Fn(&Words) -> bool + Send + 'static) -> Kept<'_> {
        let mut state = self.shared.lock();
        state.last_kind += 1;
        let number = state.last_kind;
        state.kept.push(Kind {
            number,
            is_meant: Box::new(is_meant),
            is_open: false,
            came: 0,
            answered: 0,
        });
        Kept {
            shared: &self.shared,
            number,
        }
    }
}

/// Commands that wait.
pub(crate) struct Kept<'a> {
    shared: &'a Shared,
    number: usize,
}

impl Kept<'_> {
    /// Waits until one is there.
    #[track_caller]
    pub(crate) fn await_one(&self) {
        let came = self.shared.until(self.number, |kind| kind.came > 0);
        assert!(came, "no such command came");
    }

    /// Passes them on, and waits until Redis has answered one: then it is done.
    #[track_caller]
    pub(crate) fn pass(self) {
        self.open();
        let answered = self.shared.until(self.number, |kind| kind.answered > 0);
        assert!(answered, "Redis does not answer");
    }

    fn open(&self) {
        self.shared.lock().kind(self.number).is_open = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.open();
    }
}

impl State {
    fn kind(&mut self, number: usize) -> &mut Kind {
        let mut all = self.kept.iter_mut();
        all.find(|kind| kind.number == number).unwrap()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Waits for something about one kind; false: it does not come.
    fn until(&self, number: usize, is_so: impl Fn(&Kind) -> bool) -> bool {
        let state = self.lock();
        let (_state, late) = self
            .changed
            .wait_timeout_while(state, PATIENCE, |state| !is_so(state.kind(number)))
            .unwrap();
        !late.timed_out()
    }

    fn change(&self, number: usize, change: impl FnOnce(&mut Kind)) {
        change(self.lock().kind(number));
        self.changed.notify_all();
    }

    /// Carries a connection. A command that waits is passed on even when its client has given it
    /// up: it was on its way.
    fn carry(&self, client: &TcpStream) {
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.server)) else {
            return;
        };
        server.set_nodelay(true).unwrap();
        let answered = Mutex::new(None);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut from, mut to) = (&server, client);
                let mut piece = vec![0; 64 << 10];
                while let Ok(count @ 1..) = from.read(&mut piece) {
                    if let Some(number) = answered.lock().unwrap().take() {
                        self.change(number, |kind| kind.answered += 1);
                    }
                    // Its client may have left.
                    let _ = to.write_all(&piece[..count]);
                }
                let _ = client.shutdown(Shutdown::Both);
            });
            let mut commands = BufReader::new(client);
            while let Some(command) = read_command(&mut commands) {
                let kept = self.meant(&command);
                if let Some(number) = kept {
                    self.change(number, |kind| kind.came += 1);
                    self.until(number, |kind| kind.is_open);
                    *answered.lock().unwrap() = Some(number);
                }
                if (&server).write_all(&encode(&command)).is_err() {
                    break;
                }
            }
            let _ = server.shutdown(Shutdown::Write);
        });
    }

    fn meant(&self, command: &Words) -> Option<usize> {
        let state = self.lock();
        let mut kept = state.kept.iter().filter(|kind| !kind.is_open);
        kept.find(|kind| (kind.is_meant)(command))
            .map(|kind| kind.number)
    }
}
