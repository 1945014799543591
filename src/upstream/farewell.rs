//! Backend sessions whose session has ended are ended too (DELETE, mcp.md 1.2), a few at a time:
//! when many sessions expire at once, no backend meets a stampede, and one that is slow holds up
//! its own farewells only.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    rc::Rc,
};

use shards::{gate::Pass, spawn};

use crate::{
    config::compiled::VirtualHost,
    session::state::OpenBackend,
    shard_state::ShardState,
    upstream::{Voice, open},
};

/// Farewells of a shard under way.
const RUNNING_MAX: usize = 64;
/// Those to one target.
const RUNNING_PER_TARGET_MAX: usize = 16;
/// Farewells of a shard that wait; more are not said, and the backends' own time limits have to do.
const WAITING_MAX: usize = 64 * 1024;

/// One backend session to end.
#[derive(Debug)]
pub struct Goodbye {
    /// The virtual host of its backend.
    pub host: Rc<VirtualHost>,
    /// The backend's place in it.
    pub index: usize,
    /// What was agreed there.
    pub open: Rc<OpenBackend>,
    /// What the session says to backends by itself with.
    pub voice: Rc<Voice>,
    /// A drain waits for it.
    pub pass: Pass,
}

/// The farewells of a shard.
#[derive(Debug, Default)]
pub struct Farewells {
    lines: RefCell<HashMap<Key, Line>>,
    running: Cell<usize>,
    waiting: Cell<usize>,
}

/// A target, by its address; whatever waits for it keeps it alive.
type Key = usize;

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Goodbye>,
    running: usize,
}

impl Farewells {
    fn push(&self, key: Key, goodbye: Goodbye) -> bool {
        if self.waiting.get() >= WAITING_MAX {
            return false;
        }
        self.waiting.set(self.waiting.get() + 1);
        let mut lines = self.lines.borrow_mut();
        lines.entry(key).or_default().waiting.push_back(goodbye);
        true
    }

    /// The next one that may be said, of the target that has the fewest under way.
    fn next(&self) -> Option<(Key, Goodbye)> {
        if self.running.get() >= RUNNING_MAX {
            return None;
        }
        let mut lines = self.lines.borrow_mut();
        let may_run =
            |line: &Line| !line.waiting.is_empty() && line.running < RUNNING_PER_TARGET_MAX;
        let able = lines.iter_mut().filter(|(_, line)| may_run(line));
        let (&key, line) = able.min_by_key(|(_, line)| line.running)?;
        let goodbye = line.waiting.pop_front()?;
        line.running += 1;
        self.waiting.set(self.waiting.get() - 1);
        self.running.set(self.running.get() + 1);
        Some((key, goodbye))
    }

    fn done(&self, key: Key) {
        self.running.set(self.running.get() - 1);
        let mut lines = self.lines.borrow_mut();
        if let Some(line) = lines.get_mut(&key) {
            line.running -= 1;
            if line.running == 0 && line.waiting.is_empty() {
                lines.remove(&key);
            }
        }
    }
}

/// One that is under way, whatever becomes of it.
struct Running<'a>(&'a Farewells, Key);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.done(self.1);
    }
}

/// Ends a backend session when it is its turn; best effort.
pub fn farewell(shard: &Rc<ShardState>, goodbye: Goodbye) {
    if goodbye.open.session_id.is_none() {
        return;
    }
    let target = &goodbye.host.backends[goodbye.index].target;
    let key = Rc::as_ptr(target) as usize;
    if !shard.farewells.push(key, goodbye) {
        shard.numbers.backend_end_failed.add(1);
        return;
    }
    let Some(first) = shard.farewells.next() else {
        // Those under way go on with it.
        return;
    };
    let shard = shard.clone();
    spawn(async move {
        let mut next = Some(first);
        while let Some((key, goodbye)) = next {
            let running = Running(&shard.farewells, key);
            let Goodbye {
                host,
                index,
                open,
                voice,
                pass,
            } = goodbye;
            let (id, version) = (open.session_id.as_deref(), Some(open.version));
            open::end(&shard, &host.backends[index], id, version, &voice).await;
            drop((running, pass));
            next = shard.farewells.next();
        }
    });
}
