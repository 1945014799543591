//! A shard's side of the trusted issuers: the keys as they were told last, and the questions for
//! newer ones.
//!
//! Keys are fetched by the control thread ([`crate::control`]), which tells all shards. A token
//! whose key is not known has the control thread look once; all who need the same wait together.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use shards::{ShardId, deadline::now_ms, notify::Event};

use super::issuer::IssuerKeys;

/// How long a request waits for keys: longer than fetching them may take.
const PATIENCE: Duration = Duration::from_secs(6);
/// How long an issuer is not asked about again when there was nothing new, ms.
const QUIET_MS: u64 = 1_000;

/// A question to the control thread: are there other keys?
#[derive(Debug, Clone, Copy)]
pub struct KeyQuestion {
    /// Who asks.
    pub shard: ShardId,
    /// Index of the issuer.
    pub issuer: usize,
    /// When it was asked: what is told of the issuer after that is the answer.
    pub asked: Instant,
}

/// What the control thread tells of an issuer.
#[derive(Debug, Clone)]
pub struct KeyNews {
    /// All keys, as they are now; the same as before when there was nothing new.
    pub keys: Arc<IssuerKeys>,
    /// Index of the issuer that was looked at, or need not be.
    pub issuer: usize,
}

/// Sends a question; false when the control thread does not take it.
pub type Ask = Box<dyn Fn(KeyQuestion) -> bool>;

/// The trusted issuers of a shard.
pub struct Issuers {
    shard: ShardId,
    ask: Ask,
    current: RefCell<Arc<IssuerKeys>>,
    questions: Box<[Open]>,
}

/// The question about one issuer.
#[derive(Default)]
struct Open {
    /// Fired when it is answered; `None`: none is open.
    answered: RefCell<Option<Rc<Event>>>,
    quiet_until_ms: Cell<u64>,
}

impl std::fmt::Debug for Issuers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuers").finish_non_exhaustive()
    }
}

impl Issuers {
    /// With these keys, for now.
    pub fn new(shard: ShardId, keys: Arc<IssuerKeys>, ask: Ask) -> Self {
        let questions = (0..keys.len()).map(|_| Open::default()).collect();
        Self {
            shard,
            ask,
            current: RefCell::new(keys),
            questions,
        }
    }

    /// The keys as they are now.
    pub fn current(&self) -> Arc<IssuerKeys> {
        self.current.borrow().clone()
    }

    /// Whether there is no issuer.
    pub fn is_empty(&self) -> bool {
        self.questions.is_empty()
    }

    /// Takes in what the control thread tells; true: keys are others than before, so what was
    /// verified with them must be forgotten.
    pub fn hear(&self, news: KeyNews) -> bool {
        let before = self.current.replace(news.keys.clone());
        let is_new = !Arc::ptr_eq(&before, &news.keys);
        if let Some(open) = self.questions.get(news.issuer) {
            if !is_new {
                open.quiet_until_ms.set(now_ms() + QUIET_MS);
            }
            if let Some(answered) = open.answered.take() {
                answered.fire();
            }
        }
        is_new
    }

    /// Has the control thread look for other keys of an issuer; true: there are other keys than
    /// `known` now.
    pub async fn refresh(&self, issuer: usize, known: &Arc<IssuerKeys>) -> bool {
        if let Some(answered) = self.question(issuer)
            && shards::task::within(PATIENCE, answered.wait())
                .await
                .is_none()
        {
            self.give_up(issuer, &answered);
        }
        !Arc::ptr_eq(known, &self.current.borrow())
    }

    /// Nobody waits for this answer any more, so that the next one asks again.
    fn give_up(&self, issuer: usize, answered: &Rc<Event>) {
        let Some(open) = self.questions.get(issuer) else {
            return;
        };
        let mut own = open.answered.borrow_mut();
        if own.as_ref().is_some_and(|own| Rc::ptr_eq(own, answered)) {
            *own = None;
        }
    }

    /// The question about this issuer: the open one, or a new one; `None`: it was answered just
    /// now, or is not taken.
    fn question(&self, issuer: usize) -> Option<Rc<Event>> {
        let open = self.questions.get(issuer)?;
        if let Some(answered) = &*open.answered.borrow() {
            return Some(answered.clone());
        }
        if open.quiet_until_ms.get() > now_ms() {
            return None;
        }
        let is_taken = (self.ask)(KeyQuestion {
            shard: self.shard,
            issuer,
            asked: Instant::now(),
        });
        let answered = Rc::new(Event::default());
        is_taken.then(|| {
            *open.answered.borrow_mut() = Some(answered.clone());
            answered
        })
    }
}
