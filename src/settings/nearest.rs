//! "Did you mean": the known name closest to a mistyped one.
//!
//! Pure; used for variables and file keys (flags get theirs from the argument parser).

/// The candidate with the fewest edits from `word`, when it is close enough to be meant.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // A quarter of the word may be wrong, and two letters always: more is another word.
    let edits_max = (word.chars().count() / 4).max(2);
    candidates
        .into_iter()
        .map(|candidate| (edits(word, candidate), candidate))
        .filter(|(count, _)| *count <= edits_max)
        .min_by_key(|(count, _)| *count)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours between two words.
fn edits(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut row = Vec::with_capacity(right.len() + 1);
        row.push(i + 1);
        for (j, b) in right.iter().enumerate() {
            let mut count = (last[j] + usize::from(a != b))
                .min(last[j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                count = count.min(before_last[j - 1] + 1);
            }
            row.push(count);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (left, right, count) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "acb", 1),
            ("abc", "ab", 1),
            ("ab", "abc", 1),
            ("abc", "xyz", 3),
            ("", "abc", 3),
        ] {
            assert_eq!(edits(left, right), count, "{left} {right}");
        }
    }

    #[test]
    fn only_a_close_name_is_offered() {
        let known = ["SHARDGATE_SHARDS", "SHARDGATE_ADDRESS"];
        assert_eq!(nearest("SHARDGATE_SHARD", known), Some("SHARDGATE_SHARDS"));
        assert_eq!(
            nearest("SHARDGATE_ADRESS", known),
            Some("SHARDGATE_ADDRESS")
        );
        assert_eq!(nearest("SOMETHING_ELSE", known), None);
        assert_eq!(nearest("x", []), None);
    }
}
