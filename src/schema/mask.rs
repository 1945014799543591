//! Masking: which parts of the arguments never reach a backend (dual-profile.md 3.3).

use regex::Regex;
use serde_json::{Map, Value};

use super::{
    SchemaFault,
    graph::{Annotated, Graph, Step, misplaced},
    pattern,
};

/// What stands in place of a masked value.
pub const MASK: &str = "******";

/// What is masked.
#[derive(Debug, Default)]
pub(super) struct MaskPlan {
    /// Expressions first, whole values last: a whole value wins.
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    path: Vec<Compiled>,
    /// Matches of it are masked; `None`: the whole value.
    pattern: Option<Regex>,
}

#[derive(Debug)]
enum Compiled {
    Name(Box<str>),
    Pattern(Regex),
    AnyName,
    Index(usize),
    AnyIndex,
}

/// What an annotated schema says.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wish {
    Whole,
    Matches(String),
}

impl MaskPlan {
    /// Whether nothing is masked.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Masks.
    pub(super) fn apply(&self, arguments: &mut Value) {
        for rule in &self.rules {
            descend(arguments, &rule.path, rule.pattern.as_ref());
        }
    }
}

/// The plan of a walk's annotations.
pub(super) fn plan(graph: &Graph<'_>) -> Result<MaskPlan, Vec<SchemaFault>> {
    let mut wishes: Vec<(&Annotated<'_>, Wish)> = Vec::new();
    let mut faults = Vec::new();
    for annotated in &graph.annotated {
        match wish(annotated) {
            Err(fault) => faults.push(fault),
            Ok(None) => {}
            Ok(Some((keyword, wish))) => {
                if annotated.place.is_elsewhere || annotated.is_recursive {
                    let text = "a mask cannot stand under not, if, propertyNames or \
                                contentSchema, nor in a schema that contains itself";
                    faults.push(misplaced(annotated, keyword, text));
                    continue;
                }
                if annotated.place.path.is_empty() {
                    faults.push(misplaced(annotated, keyword, "the root cannot be masked"));
                    continue;
                }
                let rival = wishes.iter().find(|(other, other_wish)| {
                    other.place.path == annotated.place.path
                        && matches!((other_wish, &wish), (Wish::Matches(a), Wish::Matches(b)) if a != b)
                });
                if rival.is_some() {
                    let text = "two different patterns for one value";
                    faults.push(misplaced(annotated, keyword, text));
                    continue;
                }
                wishes.push((annotated, wish));
            }
        }
    }
    check_mirrored(graph, &wishes, &mut faults);
    let mut rules = Vec::new();
    for (annotated, wish) in wishes {
        let path = annotated.place.path.iter().map(compiled);
        let Some(path) = path.collect::<Option<Vec<_>>>() else {
            let text = "the expression of a patternProperties above it cannot be used";
            faults.push(misplaced(annotated, "x-mask", text));
            continue;
        };
        let pattern = match wish {
            Wish::Whole => None,
            // A pattern that cannot be used masks the whole value.
            Wish::Matches(text) => pattern::compile(&text),
        };
        rules.push(Rule { path, pattern });
    }
    rules.sort_by_key(|rule| rule.pattern.is_none());
    faults.sort();
    faults.dedup();
    if faults.is_empty() {
        Ok(MaskPlan { rules })
    } else {
        Err(faults)
    }
}

fn wish(annotated: &Annotated<'_>) -> Result<Option<(&'static str, Wish)>, SchemaFault> {
    let flag = |keyword| match annotated.schema.get(keyword) {
        None => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(_) => Err(misplaced(annotated, keyword, "it must be true or false")),
    };
    let (is_sensitive, is_masked) = (flag("x-sensitive")?, flag("x-mask")?);
    let pattern = match annotated.schema.get("x-mask-pattern") {
        None => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(_) => {
            return Err(misplaced(
                annotated,
                "x-mask-pattern",
                "it must be a string",
            ));
        }
    };
    Ok(match (is_sensitive, is_masked, pattern) {
        (true, _, _) => Some(("x-sensitive", Wish::Whole)),
        (false, true, None) => Some(("x-mask", Wish::Whole)),
        (false, true, Some(text)) => Some(("x-mask", Wish::Matches(text))),
        (false, false, Some(_)) => {
            let text = "it says nothing without \"x-mask\": true";
            return Err(misplaced(annotated, "x-mask-pattern", text));
        }
        (false, false, None) => None,
    })
}

/// A mirrored argument would show in a header what the mask hides in the body.
fn check_mirrored(
    graph: &Graph<'_>,
    wishes: &[(&Annotated<'_>, Wish)],
    faults: &mut Vec<SchemaFault>,
) {
    let mirrored = graph
        .annotated
        .iter()
        .filter(|annotated| annotated.schema.contains_key("x-mcp-header"));
    for annotated in mirrored {
        let path = &annotated.place.path;
        let covers = |mask: &[Step]| {
            mask.len() <= path.len() && mask.iter().zip(path).all(|(mask, step)| meets(mask, step))
        };
        if wishes.iter().any(|(masked, _)| covers(&masked.place.path)) {
            let text = "a masked value, or a part of one, cannot be mirrored in a header";
            faults.push(misplaced(annotated, "x-mcp-header", text));
        }
    }
}

fn meets(mask: &Step, step: &Step) -> bool {
    match (mask, step) {
        (Step::AnyName, Step::Name(_)) => true,
        (Step::Pattern(text), Step::Name(name)) => {
            pattern::compile(text).is_none_or(|pattern| pattern.is_match(name))
        }
        (mask, step) => mask == step,
    }
}

fn compiled(step: &Step) -> Option<Compiled> {
    Some(match step {
        Step::Name(name) => Compiled::Name(name.clone()),
        Step::Pattern(text) => Compiled::Pattern(pattern::compile(text)?),
        Step::AnyName => Compiled::AnyName,
        Step::Index(index) => Compiled::Index(*index),
        Step::AnyIndex => Compiled::AnyIndex,
    })
}

fn descend(value: &mut Value, path: &[Compiled], pattern: Option<&Regex>) {
    let Some((step, rest)) = path.split_first() else {
        mask(value, pattern);
        return;
    };
    match (step, value) {
        (Compiled::Name(name), Value::Object(members)) => {
            if let Some(member) = members.get_mut(&**name) {
                descend(member, rest, pattern);
            }
        }
        (Compiled::Pattern(names), Value::Object(members)) => {
            let matching = members.iter_mut().filter(|(name, _)| names.is_match(name));
            matching.for_each(|(_, member)| descend(member, rest, pattern));
        }
        (Compiled::AnyName, Value::Object(members)) => {
            members
                .values_mut()
                .for_each(|member| descend(member, rest, pattern));
        }
        (Compiled::Index(index), Value::Array(elements)) => {
            if let Some(element) = elements.get_mut(*index) {
                descend(element, rest, pattern);
            }
        }
        (Compiled::AnyIndex, Value::Array(elements)) => {
            elements
                .iter_mut()
                .for_each(|element| descend(element, rest, pattern));
        }
        // The schema allows something else there, and so did the caller.
        _ => {}
    }
}

fn mask(value: &mut Value, pattern: Option<&Regex>) {
    match value {
        Value::Array(elements) => elements.iter_mut().for_each(|one| mask(one, pattern)),
        Value::Object(members) => mask_members(members, pattern),
        Value::String(text) => {
            let masked = pattern
                .filter(|pattern| pattern.is_match(text))
                .map(|pattern| {
                    pattern
                        .replace_all(text, regex::NoExpand(MASK))
                        .into_owned()
                });
            *text = masked.unwrap_or_else(|| MASK.to_owned());
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => *value = Value::from(MASK),
    }
}

fn mask_members(members: &mut Map<String, Value>, pattern: Option<&Regex>) {
    members
        .values_mut()
        .for_each(|member| mask(member, pattern));
}
