//! Lists as people write them: JSON lists, JSON lists in a string, words with blanks or commas.

use serde_json::Value;

/// The words of a list; `None`: it is none.
pub(super) fn words(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(elements) => elements.iter().map(word).collect(),
        Value::String(text) if text.trim_start().starts_with('[') => {
            let elements: Vec<Value> = serde_json::from_str(text).ok()?;
            elements.iter().map(word).collect()
        }
        Value::String(text) => Some(split(text)),
        Value::Number(_) | Value::Bool(_) => Some(vec![value.to_string()]),
        Value::Null | Value::Object(_) => None,
    }
}

/// The words of a text.
pub(super) fn split(text: &str) -> Vec<String> {
    text.split([' ', ',', '\t', '\n'])
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        // `[{"ruleId": "a"}]` stands for `["a"]`.
        Value::Object(members) => members.get("ruleId")?.as_str().map(str::to_owned),
        Value::Null | Value::Array(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_spellings_say_the_same() {
        for written in [
            json!(["a", "b"]),
            json!("a,b"),
            json!("a b"),
            json!(" a , b "),
            json!(r#"["a","b"]"#),
            json!([{"ruleId": "a"}, {"ruleId": "b"}]),
        ] {
            assert_eq!(
                words(&written),
                Some(vec!["a".to_owned(), "b".to_owned()]),
                "{written}"
            );
        }
        assert_eq!(words(&json!("")), Some(Vec::new()));
        for none in [
            json!(null),
            json!({}),
            json!([[]]),
            json!("[1"),
            json!([{"id": "a"}]),
        ] {
            assert_eq!(words(&none), None, "{none}");
        }
    }
}
