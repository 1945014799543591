//! What backends have asked the client and it has not answered yet, under ids of ours (mcp.md 3.4,
//! 2): each backend numbers its requests for itself.

use std::{cell::RefCell, rc::Rc};

use shards::notify::Notify;

use crate::session::{
    calls::is_decimal_of,
    state::{OpenBackend, Place},
};

/// Unanswered requests of one session at the most.
const ASKED_MAX: usize = 64;

/// One request of a backend.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Our id, the client's to answer with.
    pub id: u64,
    /// Who asks.
    pub place: Place,
    /// What was agreed with it.
    pub open: Rc<OpenBackend>,
    /// Its own id, raw.
    pub backend_id: Box<[u8]>,
    /// Its own progress token, raw; ours is the id.
    pub progress_token: Option<Box<[u8]>>,
    /// Who waits for the answer, when it is not the backend itself, and which one it is.
    pub waiter: Option<(Rc<Answers>, usize)>,
}

/// Answers of the client that somebody here waits for.
#[derive(Debug)]
pub struct Answers {
    got: RefCell<Vec<Option<Answer>>>,
    changed: Notify,
}

/// An answer: the raw result, or nothing, because it was an error.
pub type Answer = Option<Box<[u8]>>;

impl Answers {
    /// None of so many is there yet.
    pub fn new(count: usize) -> Self {
        Self {
            got: RefCell::new(vec![None; count]),
            changed: Notify::default(),
        }
    }

    /// One is there.
    pub fn put(&self, index: usize, answer: Answer) {
        if let Some(place) = self.got.borrow_mut().get_mut(index) {
            *place = Some(answer);
        }
        self.changed.notify();
    }

    /// All of them, once they are there.
    pub fn all(&self) -> Option<Vec<Answer>> {
        self.got.borrow().iter().cloned().collect()
    }

    /// Waits until one more is there.
    pub async fn changed(&self) {
        self.changed.wait().await;
    }
}

/// The unanswered requests of one session.
#[derive(Debug, Default)]
pub struct AskedTable {
    entries: Vec<Asked>,
    last_id: u64,
}

impl AskedTable {
    /// Takes down a request; `None` when too many wait already.
    pub fn ask(
        &mut self,
        place: &Place,
        open: &Rc<OpenBackend>,
        backend_id: &[u8],
        progress_token: Option<&[u8]>,
    ) -> Option<u64> {
        self.add(place, open, backend_id, progress_token, None)
    }

    /// Takes down a question of the gateway's own on behalf of a backend.
    pub fn ask_for(
        &mut self,
        place: &Place,
        open: &Rc<OpenBackend>,
        waiter: (Rc<Answers>, usize),
    ) -> Option<u64> {
        self.add(place, open, b"", None, Some(waiter))
    }

    fn add(
        &mut self,
        place: &Place,
        open: &Rc<OpenBackend>,
        backend_id: &[u8],
        progress_token: Option<&[u8]>,
        waiter: Option<(Rc<Answers>, usize)>,
    ) -> Option<u64> {
        if self.entries.len() >= ASKED_MAX {
            return None;
        }
        // The first one is 1: some clients take 0 for no id.
        self.last_id += 1;
        self.entries.push(Asked {
            id: self.last_id,
            place: place.clone(),
            open: open.clone(),
            backend_id: backend_id.into(),
            progress_token: progress_token.map(Box::from),
            waiter,
        });
        Some(self.last_id)
    }

    /// Takes out the request the client answers with this raw id.
    pub fn take(&mut self, id: &[u8]) -> Option<Asked> {
        let index = self.position(id)?;
        Some(self.entries.swap_remove(index))
    }

    /// The request the client means by a raw id or progress token of ours.
    pub fn get(&self, id: &[u8]) -> Option<&Asked> {
        self.position(id).map(|index| &self.entries[index])
    }

    /// Takes out the request that its backend knows by this raw id.
    pub fn withdraw(&mut self, open: &Rc<OpenBackend>, backend_id: &[u8]) -> Option<Asked> {
        let index = self
            .entries
            .iter()
            .position(|asked| Rc::ptr_eq(&asked.open, open) && *asked.backend_id == *backend_id)?;
        Some(self.entries.swap_remove(index))
    }

    fn position(&self, id: &[u8]) -> Option<usize> {
        self.entries
            .iter()
            .position(|asked| is_decimal_of(id, asked.id))
    }
}
