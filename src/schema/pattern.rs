//! Regular expressions of schemas: linear in time, bounded in memory.

use regex::{Regex, RegexBuilder};

/// Bytes of a compiled expression, and of the automaton it may grow into while it matches.
pub(super) const REGEX_BYTES_MAX: usize = 1 << 20;

/// Compiles an expression; `None` when it is faulty, too large, or needs what cannot be done in
/// linear time.
pub(super) fn compile(text: &str) -> Option<Regex> {
    RegexBuilder::new(text)
        .size_limit(REGEX_BYTES_MAX)
        .dfa_size_limit(REGEX_BYTES_MAX)
        .build()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_linear_or_is_too_large_is_refused() {
        assert!(compile("^[a-z]{1,10}$").is_some());
        for text in ["(a", "(?=a)", r"(a)\1", r"\w{1000}{1000}"] {
            assert!(compile(text).is_none(), "{text}");
        }
    }
}
