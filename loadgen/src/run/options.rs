//! What to run.

use std::time::{Duration, SystemTime};

use shards::DriverChoice;

use crate::{
    arrivals::{Arrivals, Shape, Stage},
    delay::Delay,
    era::Era,
    exchange::{ExchangeOptions, OPERATION},
    operation::{Check, Method, Operation},
};

/// A run without an end has a schedule this long.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How the calls of the sessions spread over connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pattern {
    /// Each session has its own kept connection, as the SDKs do: a gateway can move it to the
    /// session's owner, and all is local.
    #[default]
    Sticky,
    /// Kept connections are shared: each call of a session goes over the next free one, as through
    /// the pool of a front proxy. Some calls are local, some are forwarded.
    Pooled,
    /// Kept connections are shared, and no call of a session goes over a connection that is at home
    /// with it: all are forwarded. With the number of the target's shards this is exact.
    Spread,
    /// A new connection for each call.
    Fresh,
}

impl Pattern {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sticky => "sticky",
            Self::Pooled => "pooled",
            Self::Spread => "spread",
            Self::Fresh => "fresh",
        }
    }

    /// Whether sessions wander over connections.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Self::Pooled | Self::Spread)
    }
}

/// How the calls of a caller follow one another in a closed loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rhythm {
    /// Call, think, call, think.
    #[default]
    Steady,
    /// As an agent: look at the tools when a session begins, then bursts of two to five calls with
    /// thinking between them.
    Agent,
}

/// What to run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The endpoint, `http://HOST[:PORT]/PATH`.
    pub url: String,
    /// With a connection gateway: what is exchanged. Then the URL is that of its internal API, and
    /// what is said of eras, tools and mixes here is not used.
    pub exchange: Option<ExchangeOptions>,
    /// How callers speak. Those without sessions have none of what is said of sessions here.
    pub era: Era,
    /// Calls in flight at the most: callers of a closed loop. With kept connections, as many.
    pub connections: u32,
    /// Sessions; by default one for each connection, with shared ones two. Sticky ignores it. With
    /// a connection gateway its clients, which the callers share.
    pub sessions: Option<u32>,
    /// Operations in the life of a session, after which it is ended and another one opened.
    pub session_life: Option<u32>,
    /// Sessions beside the others that hold a GET stream open.
    pub streams: u32,
    /// Generator shards.
    pub shards: u16,
    /// Cores to pin them to; `None`: not pinned.
    pub cpus: Option<Vec<usize>>,
    /// I/O driver.
    pub driver: DriverChoice,
    /// Calls per second over all connections; `None`: closed loop, unless there is a shape.
    pub rate: Option<f64>,
    /// A rate over time, in place of `rate` and `duration`.
    pub shape: Option<Shape>,
    /// How the calls of a schedule follow one another.
    pub arrivals: Arrivals,
    /// Measured time after the warm-up; `None`: until stopped or until the calls are made.
    pub duration: Option<Duration>,
    /// Calls, the warm-up's included.
    pub calls: Option<u64>,
    /// Calls that start before this has passed are not in the histograms.
    pub warm_up: Duration,
    /// Thinking between the calls of a caller, or between the bursts of an agent.
    pub think: Delay,
    /// How the calls of a caller follow one another.
    pub rhythm: Rhythm,
    /// What callers do; none: they call `tool`.
    pub mix: Vec<Operation>,
    /// The tool.
    pub tool: String,
    /// Its arguments, a JSON object.
    pub arguments: String,
    /// What its replies must be.
    pub check: Check,
    /// Bearer token.
    pub token: Option<String>,
    /// More of them: one for each virtual user; sessions take turns.
    pub tokens: Vec<String>,
    /// Further header lines of every request, `name: value`.
    pub headers: Vec<String>,
    /// How calls spread over connections.
    pub pattern: Pattern,
    /// Shards of the target, to tell which of them owns a session.
    pub target_shards: Option<u16>,
    /// Time limit of a connect, and of each exchange.
    pub limit: Duration,
    /// Of everything drawn.
    pub seed: u64,
    /// When the clock starts, for several generators at once; `None`: when the sessions are open.
    pub start_at: Option<SystemTime>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            url: String::new(),
            exchange: None,
            era: Era::default(),
            connections: 1,
            sessions: None,
            session_life: None,
            streams: 0,
            shards: 1,
            cpus: None,
            driver: DriverChoice::Auto,
            rate: None,
            shape: None,
            arrivals: Arrivals::default(),
            duration: None,
            calls: None,
            warm_up: Duration::ZERO,
            think: Delay::default(),
            rhythm: Rhythm::default(),
            mix: Vec::new(),
            tool: "echo".to_owned(),
            arguments: r#"{"text":"hello"}"#.to_owned(),
            check: Check::default(),
            token: None,
            tokens: Vec::new(),
            headers: Vec::new(),
            pattern: Pattern::default(),
            target_shards: None,
            limit: Duration::from_secs(10),
            seed: 1,
            start_at: None,
        }
    }
}

impl RunOptions {
    /// What callers do.
    pub fn operations(&self) -> Vec<Operation> {
        if self.exchange.is_some() {
            return vec![Operation {
                name: OPERATION.to_owned(),
                ..Operation::of(Method::CallTool)
            }];
        }
        if !self.mix.is_empty() {
            return self.mix.clone();
        }
        vec![Operation {
            target: self.tool.clone(),
            arguments: self.arguments.clone(),
            check: self.check,
            ..Operation::of(Method::CallTool)
        }]
    }

    /// What callers of the era cannot do: the name of the option, and why.
    pub(crate) fn not_of_era(&self) -> Option<(&'static str, String)> {
        let strange = |operation: &Operation| !operation.method.is_of(self.era);
        if let Some(operation) = self.operations().into_iter().find(strange) {
            let (method, era) = (operation.method.name(), self.era.name());
            return Some(("mix", format!("has {method}, which era {era} has not")));
        }
        if self.era == Era::Legacy {
            return None;
        }
        let needs_sessions = [
            ("sessions", self.sessions.is_some()),
            ("session-life", self.session_life.is_some()),
            ("streams", self.streams > 0),
            ("target-shards", self.target_shards.is_some()),
            ("connections", self.pattern == Pattern::Spread),
            ("expect", self.has_counter()),
        ];
        let (name, _) = needs_sessions.into_iter().find(|(_, is_said)| *is_said)?;
        Some((
            name,
            "needs sessions, which era stateless has not".to_owned(),
        ))
    }

    /// Measured time; `None`: no end.
    pub(crate) fn length(&self) -> Option<Duration> {
        match &self.shape {
            Some(shape) => Some(shape.length()),
            None => self.duration,
        }
    }

    /// The rate over time from the start of the clock, warm-up included.
    pub(crate) fn whole_shape(&self) -> Option<Shape> {
        let shape = match (&self.shape, self.rate) {
            (Some(shape), _) => shape.clone(),
            (None, Some(rate)) => {
                let length = self.duration.unwrap_or(FOR_EVER);
                Shape::new(vec![Stage::constant(rate, length)])
            }
            (None, None) => return None,
        };
        Some(shape.after(self.warm_up))
    }

    /// Whether sessions count, so that one that is lost or mixed up shows.
    pub(crate) fn has_counter(&self) -> bool {
        self.operations()
            .iter()
            .any(|operation| operation.check == Check::Counter)
    }
}
