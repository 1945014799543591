//! Holds one walk against another, byte for byte.

use crate::walk::{Step, Walked};

/// How much of a text is shown around its first difference.
const SHOWN: usize = 160;

/// Something that differs, and where.
#[derive(Debug)]
pub(crate) struct Difference {
    /// The step's name.
    pub(crate) step: String,
    /// What differs.
    pub(crate) what: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.step, self.what)
    }
}

/// All that differs between the parts of two walks.
pub(crate) fn differences(ours: &[Walked], theirs: &[Walked]) -> Vec<Difference> {
    assert_eq!(ours.len(), theirs.len());
    let mut found = Vec::new();
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert_eq!(ours.steps.len(), theirs.steps.len());
        for (ours, theirs) in ours.steps.iter().zip(&theirs.steps) {
            assert_eq!(ours.name, theirs.name);
            let note = |what| Difference {
                step: ours.name.clone(),
                what,
            };
            found.extend(of_step(ours, theirs).into_iter().map(note));
        }
    }
    found
}

fn of_step(ours: &Step, theirs: &Step) -> Vec<String> {
    let methods = |step: &Step| -> Vec<String> {
        let methods = step.heard.iter().map(|(method, _)| method.clone());
        methods.collect()
    };
    let (our_methods, their_methods) = (methods(ours), methods(theirs));
    if our_methods != their_methods {
        // An answer of another kind says why.
        let last = |step: &Step| {
            let (_, raw) = step.heard.last()?;
            Some(shown(raw, 0))
        };
        return vec![format!(
            "{our_methods:?} in place of {their_methods:?}\n    {}\n    {}",
            last(ours).unwrap_or_default(),
            last(theirs).unwrap_or_default(),
        )];
    }
    let pairs = ours.heard.iter().zip(&theirs.heard);
    let different = pairs.filter(|((_, ours), (_, theirs))| ours != theirs);
    different
        .map(|((method, ours), (_, theirs))| {
            let pairs = ours.bytes().zip(theirs.bytes());
            let at = pairs.take_while(|(our, their)| our == their).count();
            let (ours, theirs) = (shown(ours, at), shown(theirs, at));
            format!("{method} at byte {at}:\n    {ours}\n    {theirs}")
        })
        .collect()
}

/// The part of a text that is around a byte.
fn shown(text: &str, at: usize) -> String {
    let bytes = text.as_bytes();
    let from = at.saturating_sub(SHOWN / 4).min(bytes.len());
    let to = (from + SHOWN).min(bytes.len());
    String::from_utf8_lossy(&bytes[from..to]).into_owned()
}
