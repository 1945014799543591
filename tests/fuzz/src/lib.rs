//! The fuzz targets' bodies (reliability contract, Appendix C): what must hold for any bytes.
//!
//! One function a target. It panics when a property does not hold and says whether the bytes were
//! taken, so that a run can show that it met both verdicts. The fuzzer's programs call [`run`];
//! `tests/fuzz_short.rs` runs the same functions over corpora and fixed mutations of them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a target stops at the first surprise"
)]

pub mod chunked;
pub mod envelope;
pub mod framing;
pub mod gateway_message;
pub mod head;
pub mod jwt;
pub mod reply;
pub mod resp;
pub mod route;
pub mod session_id;
pub mod slow_reader;
pub mod sse;
pub mod user_config;
pub mod websocket;

/// What became of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The product takes them.
    Taken,
    /// The product refuses them, or waits for more.
    Refused,
}

impl Verdict {
    /// Taken, if so.
    pub fn taken_if(is_taken: bool) -> Self {
        if is_taken { Self::Taken } else { Self::Refused }
    }
}

/// The body of a target.
pub type Target = fn(&[u8]) -> Verdict;

/// All targets by name.
pub const TARGETS: [(&str, Target); 13] = [
    ("head", head::check),
    ("framing", framing::check),
    ("chunked", chunked::check),
    ("envelope", envelope::check),
    ("reply", reply::check),
    ("jwt", jwt::check),
    ("user_config", user_config::check),
    ("resp", resp::check),
    ("sse", sse::check),
    ("route", route::check),
    ("session_id", session_id::check),
    ("websocket", websocket::check),
    ("gateway_message", gateway_message::check),
];

/// Runs the target of this name.
pub fn run(name: &str, data: &[u8]) -> Verdict {
    let (_, target) = TARGETS
        .iter()
        .find(|(known, _)| *known == name)
        .expect("a known target");
    target(data)
}

/// Ascending places to cut `len` bytes at: all of a short input, `count` of a long one.
pub fn cuts(len: usize, count: usize) -> impl Iterator<Item = usize> {
    let step = (len / count.max(1)).max(1);
    (0..len).step_by(step)
}

/// xorshift64* over a seed taken from the data: what a target chooses is the data's own.
pub struct Choices(u64);

impl Choices {
    /// Choices that depend on these bytes only.
    pub fn of(data: &[u8]) -> Self {
        // FNV-1a.
        let hash = data.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(hash | 1)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).unwrap() % bound
    }
}
