//! URI templates (RFC 6570), as far as a gateway must read them: where their expressions are.
//!
//! Owns: whether a URI can have come from a template. Never: expands one, or knows its variables.

use memchr::{memchr, memmem};

/// Longest URI that can have come from a template: one may be compared with many.
const URI_BYTES_MAX: usize = 8192;

/// Whether the text holds an expression.
#[must_use]
pub fn is_template(text: &str) -> bool {
    let open = memchr(b'{', text.as_bytes());
    open.is_some_and(|at| memchr(b'}', &text.as_bytes()[at..]).is_some())
}

/// Whether `uri` can have come from `template`: literals stand as they are, and each expression
/// may have become any text, also none.
///
/// Reads each byte of both a bounded number of times: every literal is looked for once, from the
/// end of the one before.
#[must_use]
pub fn matches(template: &str, uri: &str) -> bool {
    if uri.len() > URI_BYTES_MAX {
        return false;
    }
    let mut parts = literals(template.as_bytes());
    let Some(first) = parts.next() else {
        return uri.is_empty();
    };
    let Some(mut rest) = uri.as_bytes().strip_prefix(first) else {
        return false;
    };
    let Some(mut literal) = parts.next() else {
        return rest.is_empty();
    };
    for next in parts {
        let Some(at) = memmem::find(rest, literal) else {
            return false;
        };
        rest = &rest[at + literal.len()..];
        literal = next;
    }
    rest.ends_with(literal)
}

/// The literals between, before and after the expressions; one more than there are expressions.
/// A brace that is never closed is literal.
fn literals(template: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(template);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some((open, len)) = expression(text) else {
            rest = None;
            return Some(text);
        };
        rest = Some(&text[open + len..]);
        Some(&text[..open])
    })
}

/// Where the first expression begins, and how long it is with its braces.
fn expression(text: &[u8]) -> Option<(usize, usize)> {
    let open = memchr(b'{', text)?;
    let len = memchr(b'}', &text[open..])? + 1;
    Some((open, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn literals_are_exact_and_expressions_are_anything() {
        for (template, uri) in [
            ("", ""),
            ("file:///a", "file:///a"),
            ("file:///{path}", "file:///"),
            ("file:///{path}", "file:///a/b?c"),
            ("{+all}", ""),
            ("{a}{b}", "x"),
            ("a{x}b{y}c", "abc"),
            ("a{x}b{y}c", "a-b-b-c-c"),
            ("db://{id}/rows{?limit,from}", "db://7/rows?limit=3"),
            ("odd{open", "odd{open"),
            ("a{x}b", "a{x}b"),
        ] {
            assert!(matches(template, uri), "{template} {uri}");
        }
        for (template, uri) in [
            ("", "a"),
            ("file:///a", "file:///b"),
            ("file:///{path}", "file://"),
            ("file:///{path}", "FILE:///a"),
            ("a{x}b{y}c", "acb"),
            ("a{x}a", "a"),
            ("ab{x}bc", "abc"),
            ("a{x}bb{y}b", "abb"),
            ("odd{open", "oddopen"),
        ] {
            assert!(!matches(template, uri), "{template} {uri}");
        }
    }

    #[test]
    fn a_uri_of_any_length_is_not_looked_through() {
        assert!(matches("{x}", &"a".repeat(URI_BYTES_MAX)));
        assert!(!matches("{x}", &"a".repeat(URI_BYTES_MAX + 1)));
    }

    #[test]
    fn expressions_make_a_template() {
        assert!(is_template("a{b}"));
        for text in ["", "a", "a{", "a}b{", "}"] {
            assert!(!is_template(text), "{text}");
        }
    }

    /// The plain definition, without a bound on its time.
    fn matches_slowly(parts: &[&[u8]], uri: &[u8]) -> bool {
        match parts {
            [] => uri.is_empty(),
            [last] => uri.ends_with(last),
            [first, rest @ ..] => (0..=uri.len()).any(|from| {
                uri[from..].starts_with(first) && matches_slowly(rest, &uri[from + first.len()..])
            }),
        }
    }

    proptest! {
        #[test]
        fn the_fast_answer_is_the_plain_one(
            template in "(a|b|\\{x\\}){0,7}",
            uri in "[ab]{0,9}",
        ) {
            let parts: Vec<&[u8]> = literals(template.as_bytes()).collect();
            let expected = match parts.split_first() {
                Some((only, [])) => uri.as_bytes() == *only,
                Some((first, rest)) => uri
                    .as_bytes()
                    .strip_prefix(*first)
                    .is_some_and(|left| matches_slowly(rest, left)),
                None => false,
            };
            prop_assert_eq!(matches(&template, &uri), expected);
        }

        #[test]
        fn an_expansion_matches(parts in prop::collection::vec("[a-z/:]{0,4}", 1..6), value in "\\PC*") {
            let (template, uri) = (parts.join("{v}"), parts.join(&value));
            prop_assert!(matches(&template, &uri), "{} {}", template, uri);
        }
    }
}
