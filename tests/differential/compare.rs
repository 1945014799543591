//! Holds one walk against another, byte for byte.

use crate::walk::{Step, Walked};

/// How much of a text is shown around its first difference.
const SHOWN: usize = 160;

/// All that differs between the parts of two walks.
pub(crate) fn differences(ours: &[Walked], theirs: &[Walked]) -> Vec<String> {
    assert_eq!(ours.len(), theirs.len());
    let parts = ours.iter().zip(theirs);
    parts
        .flat_map(|(ours, theirs)| of_one(ours, theirs))
        .collect()
}

fn of_one(ours: &Walked, theirs: &Walked) -> Vec<String> {
    let mut found = Vec::new();
    for (ours, theirs) in ours.steps.iter().zip(&theirs.steps) {
        if ours.name != theirs.name {
            found.push(format!("{} is followed by {}", ours.name, theirs.name));
            return found;
        }
        compare_step(ours, theirs, &mut found);
    }
    if ours.steps.len() != theirs.steps.len() {
        let counts = (ours.steps.len(), theirs.steps.len());
        found.push(format!("{} steps in place of {}", counts.0, counts.1));
    }
    found
}

fn compare_step(ours: &Step, theirs: &Step, found: &mut Vec<String>) {
    let methods = |step: &Step| -> Vec<String> {
        step.heard
            .iter()
            .map(|(method, _)| method.clone())
            .collect()
    };
    let (our_methods, their_methods) = (methods(ours), methods(theirs));
    if our_methods != their_methods {
        let name = &ours.name;
        found.push(format!(
            "{name}: {our_methods:?} in place of {their_methods:?}"
        ));
        // An answer of another kind says why.
        for step in [ours, theirs] {
            if let Some((method, raw)) = step.heard.last() {
                found.push(format!("    {method} {}", shown(raw, 0)));
            }
        }
        return;
    }
    for ((method, ours_raw), (_, theirs_raw)) in ours.heard.iter().zip(&theirs.heard) {
        if ours_raw != theirs_raw {
            let pairs = ours_raw.bytes().zip(theirs_raw.bytes());
            let at = pairs.take_while(|(our, their)| our == their).count();
            found.push(format!(
                "{}: {method} at byte {at}:\n    {}\n    {}",
                ours.name,
                shown(ours_raw, at),
                shown(theirs_raw, at),
            ));
        }
    }
}

/// The part of a text that is around a byte.
fn shown(text: &str, at: usize) -> String {
    let from = at.saturating_sub(SHOWN / 4);
    let bytes = text.as_bytes();
    let from = from.min(bytes.len());
    let to = (from + SHOWN).min(bytes.len());
    String::from_utf8_lossy(&bytes[from..to]).into_owned()
}
