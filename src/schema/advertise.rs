//! A schema as clients see it: without what is between the operator and the gateway.

use serde_json::Value;

use super::{check::Survey, keywords::subschemas, pointer::resolve};

const PRIVATE: [&str; 3] = ["x-mask", "x-mask-pattern", "x-sensitive"];

/// Removes the private annotations, where they are keywords: a property or a definition of that
/// name, and data, stay.
pub(super) fn without_private(document: &mut Value, survey: &Survey) {
    let mut seen = std::collections::BTreeSet::new();
    let mut left = vec![String::new()];
    while let Some(at) = left.pop() {
        if !seen.insert(at.clone()) {
            continue;
        }
        if let Some(members) = resolve(document, &at).and_then(Value::as_object) {
            if let Some(Value::String(reference)) = members.get("$ref") {
                left.extend(survey.target(reference));
            }
            subschemas(members, &at, &mut |at, _, _| left.push(at));
        }
        if let Some(members) = document.pointer_mut(&at).and_then(Value::as_object_mut) {
            for keyword in PRIVATE {
                members.remove(keyword);
            }
        }
    }
}
