//! The document as it stands: size, dialect, identifiers, references, each subschema once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    DIALECT, Reason, SchemaFault, SchemaLimits,
    keywords::subschemas,
    pointer::{Reference, resolve},
};

/// Faults told of one schema at the most.
const FAULTS_MAX: usize = 64;

/// What the checks learned.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Places by `$anchor`.
    pub(super) anchors: BTreeMap<String, String>,
    /// What is wrong.
    pub(super) faults: Vec<SchemaFault>,
}

impl Survey {
    /// The pointer that a `$ref` leads to, if it leads anywhere in the document.
    pub(super) fn target(&self, reference: &str) -> Option<String> {
        match Reference::of(reference) {
            Reference::Pointer(pointer) => Some(pointer.into_owned()),
            Reference::Anchor(name) => self.anchors.get(name).cloned(),
            Reference::External | Reference::Malformed => None,
        }
    }

    fn fault(&mut self, reason: Reason, at: &str, text: impl Into<String>) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(SchemaFault::new(reason, at, text));
        }
    }
}

/// Checks a schema whose root is an object or a boolean.
pub(super) fn survey(document: &Value, limits: &SchemaLimits) -> Survey {
    let mut survey = Survey::default();
    let bytes = compact_len(document);
    if bytes > limits.bytes_max {
        let text = format!("{bytes} bytes, more than {}", limits.bytes_max);
        survey.fault(Reason::BudgetExceeded, "", text);
    }
    // Before anything descends into it.
    if let Some(at) = too_deep(document, limits.depth_max) {
        let text = format!("nested deeper than {} levels", limits.depth_max);
        survey.fault(Reason::BudgetExceeded, &at, text);
    }
    if !survey.faults.is_empty() {
        return survey;
    }
    let mut seen = BTreeSet::new();
    let mut references = Vec::new();
    let mut left = vec![String::new()];
    while let Some(at) = left.pop() {
        if !seen.insert(at.clone()) {
            continue;
        }
        if seen.len() > limits.subschemas_max {
            let text = format!("more than {} subschemas", limits.subschemas_max);
            survey.fault(Reason::BudgetExceeded, &at, text);
            return survey;
        }
        let Some(schema) = resolve(document, &at).and_then(Value::as_object) else {
            continue;
        };
        keywords(schema, &at, &mut survey);
        if let Some(Value::String(reference)) = schema.get("$ref") {
            references.push((at.clone(), reference.as_str()));
            // A reference may lead to what no keyword makes a schema.
            if let Some(target) = survey.target(reference) {
                left.push(target);
            }
        }
        subschemas(schema, &at, &mut |at, _, _| left.push(at));
    }
    references.sort();
    for (at, reference) in references {
        check_reference(document, &at, reference, &mut survey);
    }
    survey
        .faults
        .sort_by(|left, right| left.pointer.cmp(&right.pointer));
    survey
}

fn keywords(schema: &Map<String, Value>, at: &str, survey: &mut Survey) {
    let place = |keyword: &str| super::pointer::join(at, keyword);
    if let Some(dialect) = schema.get("$schema") {
        if !at.is_empty() {
            let text = "a subschema cannot have a dialect of its own";
            survey.fault(Reason::NestedDialect, &place("$schema"), text);
        } else if !is_our_dialect(dialect) {
            let text = format!("only {DIALECT} is supported");
            survey.fault(Reason::UnsupportedDialect, &place("$schema"), text);
        }
    }
    if schema.contains_key("$id") && !at.is_empty() {
        let text = "only the root may have an identifier";
        survey.fault(Reason::NestedId, &place("$id"), text);
    }
    if schema.contains_key("$dynamicAnchor") {
        let text = "dynamic anchors are not supported";
        survey.fault(Reason::AnchorReference, &place("$dynamicAnchor"), text);
    }
    for keyword in ["$dynamicRef", "$recursiveRef"] {
        if schema.contains_key(keyword) {
            let text = "dynamic references are not supported";
            survey.fault(Reason::DynamicReference, &place(keyword), text);
        }
    }
    if let Some(Value::String(name)) = schema.get("$anchor") {
        if let Some(first) = survey.anchors.get(name) {
            let text = format!("the same name stands at \"{first}\"");
            survey.fault(Reason::AnchorReference, &place("$anchor"), text);
        } else {
            survey.anchors.insert(name.clone(), at.to_owned());
        }
    }
}

fn check_reference(document: &Value, at: &str, reference: &str, survey: &mut Survey) {
    let place = super::pointer::join(at, "$ref");
    match Reference::of(reference) {
        Reference::External => {
            let text = "references to other documents are never followed";
            survey.fault(Reason::ExternalReference, &place, text);
        }
        _ => {
            let target = survey.target(reference);
            let target = target.and_then(|target| resolve(document, &target));
            if !target.is_some_and(|target| target.is_object() || target.is_boolean()) {
                let text = "the document has no schema at this reference";
                survey.fault(Reason::UnresolvedReference, &place, text);
            }
        }
    }
}

fn is_our_dialect(dialect: &Value) -> bool {
    let text = dialect.as_str().unwrap_or_default();
    text.strip_suffix('#').unwrap_or(text) == DIALECT
}

/// Bytes of the value as compact JSON.
pub(super) fn compact_len(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A value in memory has text keys only, and the writer takes everything.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// The first place below `depth_max` levels; a scalar is one level.
fn too_deep(document: &Value, depth_max: usize) -> Option<String> {
    let mut left = vec![(document, 1, String::new())];
    while let Some((value, depth, at)) = left.pop() {
        if depth > depth_max {
            return Some(at);
        }
        match value {
            Value::Object(members) => left.extend(members.iter().map(|(name, value)| {
                let at = super::pointer::join(&at, name);
                (value, depth + 1, at)
            })),
            Value::Array(elements) => {
                left.extend(elements.iter().enumerate().map(|(index, value)| {
                    let at = super::pointer::join(&at, &index.to_string());
                    (value, depth + 1, at)
                }));
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reasons(schema: &Value, limits: &SchemaLimits) -> Vec<(Reason, String)> {
        let faults = survey(schema, limits).faults;
        faults
            .into_iter()
            .map(|fault| (fault.reason, fault.pointer))
            .collect()
    }

    #[test]
    fn budgets_are_exact() {
        let schema = json!({"properties": {"a": {"type": "string"}}});
        let sound = SchemaLimits {
            bytes_max: compact_len(&schema),
            depth_max: 4,
            subschemas_max: 2,
            ..SchemaLimits::default()
        };
        assert_eq!(reasons(&schema, &sound), []);
        for limits in [
            SchemaLimits {
                bytes_max: sound.bytes_max - 1,
                ..sound
            },
            SchemaLimits {
                depth_max: 3,
                ..sound
            },
            SchemaLimits {
                subschemas_max: 1,
                ..sound
            },
        ] {
            let found = reasons(&schema, &limits);
            assert_eq!(found.len(), 1, "{limits:?}");
            assert_eq!(found[0].0, Reason::BudgetExceeded);
        }
    }

    #[test]
    fn anchors_are_found_wherever_they_stand() {
        let schema = json!({
            "$ref": "#later",
            "$defs": {"x": {"$anchor": "later", "type": "object"}, "y": {"$ref": "#nowhere"}},
        });
        assert_eq!(
            reasons(&schema, &SchemaLimits::default()),
            [(Reason::UnresolvedReference, "/$defs/y/$ref".to_owned())]
        );
    }

    #[test]
    fn what_a_reference_makes_a_schema_is_checked_as_one() {
        let schema = json!({
            "$ref": "#/x-parts/a",
            "x-parts": {"a": {"$id": "nested"}, "b": {"$id": "data"}},
        });
        assert_eq!(
            reasons(&schema, &SchemaLimits::default()),
            [(Reason::NestedId, "/x-parts/a/$id".to_owned())]
        );
    }
}
