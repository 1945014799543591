//! Which kernel interface the shards use, and the runtime built on it.
//!
//! The choice is made once for all shards by building the real rings, never by a probe and never
//! mixed: when one shard's ring cannot be built, all use epoll, and the reason is kept.

use std::{cell::Cell, fmt, future::Future, io, str::FromStr};

use monoio::{IoUringDriver, LegacyDriver, Runtime, RuntimeBuilder, time::TimeDriver};

/// Submission queue entries of a shard's ring; a full queue is flushed by a submit.
const RING_ENTRIES: u32 = 1024;

/// What the operator asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DriverChoice {
    /// io_uring when every shard can have its ring, else epoll.
    #[default]
    Auto,
    /// io_uring or no start.
    IoUring,
    /// epoll.
    Epoll,
}

/// What the shards run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverKind {
    /// io_uring with cooperative task running.
    IoUring,
    /// epoll.
    Epoll,
}

impl FromStr for DriverChoice {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "io-uring" => Ok(Self::IoUring),
            "epoll" => Ok(Self::Epoll),
            _ => Err("one of auto, io-uring, epoll"),
        }
    }
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
        })
    }
}

thread_local! {
    static CURRENT: Cell<DriverKind> = const { Cell::new(DriverKind::Epoll) };
}

/// The driver this shard's thread runs on.
pub(crate) fn current() -> DriverKind {
    CURRENT.get()
}

pub(crate) enum ShardRuntime {
    IoUring(Runtime<TimeDriver<IoUringDriver>>),
    Epoll(Runtime<TimeDriver<LegacyDriver>>),
}

impl ShardRuntime {
    /// Builds the runtime of the calling thread.
    pub(crate) fn build(kind: DriverKind) -> io::Result<Self> {
        match kind {
            DriverKind::IoUring => {
                let mut builder = io_uring::IoUring::builder();
                builder.setup_coop_taskrun();
                let runtime = RuntimeBuilder::<IoUringDriver>::new()
                    .uring_builder(builder)
                    .with_entries(RING_ENTRIES)
                    .enable_timer()
                    .build()?;
                Ok(Self::IoUring(runtime))
            }
            DriverKind::Epoll => Ok(Self::Epoll(
                RuntimeBuilder::<LegacyDriver>::new()
                    .with_entries(RING_ENTRIES)
                    .enable_timer()
                    .build()?,
            )),
        }
    }

    pub(crate) fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        match self {
            Self::IoUring(runtime) => {
                CURRENT.set(DriverKind::IoUring);
                runtime.block_on(future)
            }
            Self::Epoll(runtime) => {
                CURRENT.set(DriverKind::Epoll);
                runtime.block_on(future)
            }
        }
    }
}
