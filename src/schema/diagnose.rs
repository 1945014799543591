//! What is told about a value that does not conform: places and keywords, never values
//! (dual-profile.md 3.5).

use jsonschema::{ValidationError, error::ValidationErrorKind};
use serde_json::Value;

/// Errors looked at.
const ERRORS_MAX: usize = 16;
/// Errors told.
const TOLD_MAX: usize = 3;
/// Bytes of a place, and of a keyword.
const PATH_BYTES_MAX: usize = 256;
const KEYWORD_BYTES_MAX: usize = 64;

/// The diagnostics of `errors`, as `place: keyword`, joined.
pub(super) fn describe<'a>(errors: impl Iterator<Item = ValidationError<'a>>) -> String {
    let errors: Vec<ValidationError<'a>> = errors.take(ERRORS_MAX).collect();
    let (compositions, others): (Vec<_>, Vec<_>) = errors
        .iter()
        .partition(|error| branches(error.kind()).is_some());
    let mut told: Vec<String> = Vec::new();
    for error in compositions {
        let Some((keyword, branches)) = branches(error.kind()) else {
            continue;
        };
        let path = place(error.instance_path().as_str());
        told.push(format!("{path}: {keyword} ({} branches)", branches.len()));
        if let Some(branch) = meant(branches) {
            told.extend(branch.iter().map(line));
        }
    }
    told.extend(others.into_iter().map(line));
    told.truncate(TOLD_MAX);
    told.join("; ")
}

type Branches = [Vec<ValidationError<'static>>];

/// The branches of a failed composition, with what each of them says.
fn branches(kind: &ValidationErrorKind) -> Option<(&'static str, &Branches)> {
    match kind {
        ValidationErrorKind::AnyOf { context } => Some(("anyOf", context)),
        ValidationErrorKind::OneOfNotValid { context }
        | ValidationErrorKind::OneOfMultipleValid { context } => Some(("oneOf", context)),
        _ => None,
    }
}

/// The one branch whose `const` and `enum` fit, where those of all others do not.
fn meant(branches: &Branches) -> Option<&Vec<ValidationError<'static>>> {
    let is_other = |branch: &&Vec<ValidationError<'static>>| {
        branch.iter().any(|error| {
            matches!(
                error.kind(),
                ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. }
            )
        })
    };
    let mut fitting = branches.iter().filter(|branch| !is_other(branch));
    let found = fitting.next()?;
    let is_only = fitting.next().is_none() && branches.len() > 1;
    is_only.then_some(found)
}

fn line(error: &ValidationError<'_>) -> String {
    let mut path = error.instance_path().as_str().to_owned();
    // A missing property is named: the place alone is that of its parent.
    if let ValidationErrorKind::Required {
        property: Value::String(name),
    } = error.kind()
    {
        super::pointer::push(&mut path, name);
    }
    format!(
        "{}: {}",
        place(&path),
        cut(error.kind().keyword(), KEYWORD_BYTES_MAX)
    )
}

fn place(path: &str) -> &str {
    match path {
        "" => "/",
        path => cut(path, PATH_BYTES_MAX),
    }
}

/// At most so many bytes, whole characters.
fn cut(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}
