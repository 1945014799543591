//! Keys of trusted issuers: fetched, kept fresh, told to the shards.
//!
//! Each issuer has its own life. Its keys are fetched at the start, when they are older than the
//! issuer says (within bounds), when somebody asks for a reload, and when a token names a key that
//! is not known; of these last a few are allowed at once and then one in a while, so that nobody
//! can have an issuer flooded. When they cannot be fetched the last ones are used for a bounded
//! time, and after that none: tokens of that issuer are then refused.

mod fetch;
mod pace;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{broadcast, mpsc},
    task::JoinSet,
    time::Instant,
};

use crate::{
    auth::{
        IssuerKeys, KeySet,
        issuers::{KeyNews, KeyQuestion},
    },
    control::{View, watch::tell_all},
    log,
    settings::Timeouts,
    shard_state::ToShard,
};

use fetch::{FetchFault, Fetched};
use pace::Pace;

/// Keys are not fetched more often than this because of their age, whatever an issuer says.
const AGE_MIN: Duration = Duration::from_secs(30);
/// How old keys may be whose issuer says nothing about it.
const AGE_UNSAID: Duration = Duration::from_secs(600);
/// After a failure: first and longest pause before the next attempt.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What is counted of each issuer.
#[derive(Debug)]
pub struct IssuerNumbers {
    /// Its name.
    pub issuer: Box<str>,
    /// Times its keys were fetched.
    pub fetched: AtomicU64,
    /// Times they could not be.
    pub failed: AtomicU64,
    /// Keys in use; 0: its tokens are refused.
    pub keys: AtomicU64,
    /// When they were fetched, seconds since 1970; 0: never.
    pub fetched_unix_s: AtomicU64,
    /// Unknown keys that were not looked for, because that had been done too often.
    pub unanswered: AtomicU64,
}

impl IssuerNumbers {
    /// Numbers of these issuers, all zero.
    pub fn of(keys: &IssuerKeys) -> Arc<[Self]> {
        let names = (0..keys.len()).filter_map(|index| Some(keys.of(index)?.0.issuer.clone()));
        let zero = AtomicU64::default;
        names
            .map(|issuer| Self {
                issuer,
                fetched: zero(),
                failed: zero(),
                keys: zero(),
                fetched_unix_s: zero(),
                unanswered: zero(),
            })
            .collect()
    }
}

/// What is needed to fetch keys.
pub struct Issuers {
    /// The issuers, without keys.
    pub keys: Arc<IssuerKeys>,
    /// The shards' questions.
    pub questions: mpsc::Receiver<KeyQuestion>,
    /// Whom TLS trusts.
    pub tls: Arc<rustls::ClientConfig>,
    /// How old keys may be; how old when they cannot be fetched.
    pub age_max: Duration,
    /// See [`Timeouts::jwks_stale_max`].
    pub stale_max: Duration,
}

impl Issuers {
    /// With the bounds of these settings.
    pub fn new(
        keys: Arc<IssuerKeys>,
        questions: mpsc::Receiver<KeyQuestion>,
        tls: Arc<rustls::ClientConfig>,
        times: &Timeouts,
    ) -> Self {
        Self {
            keys,
            questions,
            tls,
            age_max: times.jwks_age_max,
            stale_max: times.jwks_stale_max,
        }
    }
}

/// How one issuer stands.
struct Standing {
    set: Option<Arc<KeySet>>,
    /// When its keys were fetched last.
    fetched: Option<Instant>,
    /// When the shards were told last that looking for keys is done.
    told: Option<Instant>,
    /// When they are to be fetched, the next time if that is under way.
    due: Instant,
    is_fetching: bool,
    /// Attempts that have failed since.
    failures: u32,
    pace: Pace,
}

/// Fetches until the runtime ends.
pub(super) async fn run(view: View, mut issuers: Issuers, mut reload: broadcast::Receiver<()>) {
    let now = Instant::now();
    let standing = (0..issuers.keys.len()).map(|_| Standing {
        set: None,
        fetched: None,
        told: None,
        due: now,
        is_fetching: false,
        failures: 0,
        pace: Pace::new(now),
    });
    let mut keeper = Keeper {
        standing: standing.collect(),
        keys: issuers.keys.clone(),
        age_max: issuers.age_max,
        stale_max: issuers.stale_max,
        view,
        fetches: JoinSet::new(),
    };
    loop {
        keeper.start_due(&issuers.tls);
        let next = keeper.next();
        tokio::select! {
            Some(done) = keeper.fetches.join_next() => {
                // After one that panicked the issuer's next time comes as well.
                if let Ok((index, outcome)) = done {
                    keeper.fetched(index, outcome).await;
                }
            }
            question = issuers.questions.recv() => match question {
                Some(question) => keeper.asked(question).await,
                None => return,
            },
            asked = reload.recv() => {
                if matches!(asked, Err(broadcast::error::RecvError::Closed)) {
                    return;
                }
                keeper.all_due();
            }
            () = tokio::time::sleep_until(next) => keeper.forget_stale().await,
        }
    }
}

/// All issuers, and who is told.
struct Keeper {
    standing: Vec<Standing>,
    keys: Arc<IssuerKeys>,
    age_max: Duration,
    stale_max: Duration,
    view: View,
    fetches: JoinSet<(usize, Result<Fetched, FetchFault>)>,
}

impl Keeper {
    fn start_due(&mut self, tls: &Arc<rustls::ClientConfig>) {
        let now = Instant::now();
        for (index, standing) in self.standing.iter_mut().enumerate() {
            if standing.due > now {
                continue;
            }
            let Some((rules, _)) = self.keys.of(index) else {
                continue;
            };
            standing.is_fetching = true;
            standing.due = now + RETRY.1;
            let (url, tls) = (rules.jwks_url.clone(), tls.clone());
            self.fetches
                .spawn(async move { (index, fetch::fetch(&url, &tls).await) });
        }
    }

    /// When something is to be done at the latest.
    fn next(&self) -> Instant {
        let far = Instant::now() + self.age_max;
        let stale = |standing: &Standing| Some(standing.fetched? + self.stale_max);
        let dues = self.standing.iter().map(|standing| standing.due);
        let stales = self
            .standing
            .iter()
            .filter(|standing| standing.set.is_some());
        dues.chain(stales.filter_map(stale)).fold(far, Instant::min)
    }

    fn all_due(&mut self) {
        let now = Instant::now();
        for standing in self
            .standing
            .iter_mut()
            .filter(|standing| !standing.is_fetching)
        {
            standing.due = now;
        }
    }

    async fn fetched(&mut self, index: usize, outcome: Result<Fetched, FetchFault>) {
        let now = Instant::now();
        let Some(numbers) = self.view.issuers.get(index) else {
            return;
        };
        let Some(standing) = self.standing.get_mut(index) else {
            return;
        };
        let name = &*numbers.issuer;
        standing.is_fetching = false;
        standing.told = Some(now);
        match outcome {
            Ok(fetched) => {
                let age = fetched.age_max.unwrap_or(AGE_UNSAID);
                standing.due = now + age.max(AGE_MIN).min(self.age_max);
                standing.fetched = Some(now);
                numbers.fetched.fetch_add(1, Ordering::Relaxed);
                numbers
                    .fetched_unix_s
                    .store(shards::clock::unix_s(), Ordering::Relaxed);
                if standing.failures > 0 {
                    log::info(|| format!("the keys of {name} can be fetched again"));
                }
                standing.failures = 0;
                let is_known = |set: &Arc<KeySet>| set.is_same(&fetched.set);
                if !standing.set.as_ref().is_some_and(is_known) {
                    let (count, left_out) = (fetched.set.len(), fetched.set.left_out());
                    log::info(|| {
                        format!("{name} has {count} keys; {left_out} of others are not used")
                    });
                    if fetched.set.is_empty() {
                        log::warn(|| format!("{name} has no usable key: its tokens are refused"));
                    }
                    self.change(index, Some(Arc::new(fetched.set)));
                }
            }
            Err(fault) => {
                numbers.failed.fetch_add(1, Ordering::Relaxed);
                standing.due = now + back_off(standing.failures);
                // Once, and then now and then: an issuer may be away for hours.
                if standing.failures.is_multiple_of(10) {
                    let has_keys = standing.set.is_some();
                    let rest = match has_keys {
                        true => "the last ones are used for now",
                        false => "its tokens are refused",
                    };
                    log::warn(|| format!("the keys of {name} cannot be fetched: {fault}; {rest}"));
                }
                standing.failures = standing.failures.saturating_add(1);
            }
        }
        self.forget_stale().await;
        // Whoever waits for this issuer waits no longer, whatever came of it.
        self.tell(index).await;
    }

    async fn asked(&mut self, question: KeyQuestion) {
        let now = Instant::now();
        let Some(standing) = self.standing.get_mut(question.issuer) else {
            return;
        };
        // All shards are told when it is done; a question may also cross with that.
        let is_answered = |told: Instant| question.asked < told.into_std();
        if standing.is_fetching || standing.told.is_some_and(is_answered) {
            return;
        }
        if standing.pace.may(now) {
            standing.due = now;
            return;
        }
        if let Some(numbers) = self.view.issuers.get(question.issuer) {
            numbers.unanswered.fetch_add(1, Ordering::Relaxed);
        }
        let news = KeyNews {
            keys: self.keys.clone(),
            issuer: question.issuer,
        };
        if let Some(handle) = self.view.handles.get(usize::from(question.shard)) {
            // A shard that has too much to do asks again.
            let _ = handle.post(ToShard::Keys(news));
        }
    }

    /// Forgets keys that could not be confirmed for too long.
    async fn forget_stale(&mut self) {
        let now = Instant::now();
        for index in 0..self.standing.len() {
            let Some(standing) = self.standing.get(index) else {
                continue;
            };
            let is_stale = standing
                .fetched
                .is_some_and(|at| at + self.stale_max <= now);
            if standing.set.is_some() && is_stale {
                if let Some((rules, _)) = self.keys.of(index) {
                    log::error(|| {
                        format!(
                            "the keys of {} are too old: its tokens are refused",
                            rules.issuer
                        )
                    });
                }
                self.change(index, None);
                self.tell(index).await;
            }
        }
    }

    fn change(&mut self, index: usize, set: Option<Arc<KeySet>>) {
        if let Some(numbers) = self.view.issuers.get(index) {
            let count = set.as_ref().map_or(0, |set| set.len());
            numbers.keys.store(count as u64, Ordering::Relaxed);
        }
        self.keys = Arc::new(self.keys.with(index, set.clone()));
        if let Some(standing) = self.standing.get_mut(index) {
            standing.set = set;
        }
    }

    async fn tell(&self, issuer: usize) {
        let news = || KeyNews {
            keys: self.keys.clone(),
            issuer,
        };
        tell_all(&self.view, || ToShard::Keys(news())).await;
    }
}

fn back_off(failures: u32) -> Duration {
    let (first, longest) = RETRY;
    (first * 2u32.pow(failures.min(10))).min(longest)
}
