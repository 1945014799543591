//! What of a result a caller gets: rows and columns.

use std::{borrow::Cow, cmp::Ordering};

use serde_json::{Map, Value};

use super::{
    claims::{Claims, Mappings},
    words::words,
};

/// Why a result is not handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilterFault {
    /// It is nothing that has rows or columns.
    #[error("Access control response filter failed")]
    Shape,
    /// It is one object, and the caller may not have it.
    #[error("Access denied by response filter")]
    Denied,
}

/// Tests for the rows of callers with one value in one dimension.
#[derive(Debug)]
pub(super) struct RowRule {
    pub(super) dimension: String,
    pub(super) value: String,
    pub(super) tests: Vec<RowTest>,
}

/// Columns for callers with one value in one dimension.
#[derive(Debug)]
pub(super) struct ColumnRule {
    pub(super) dimension: String,
    pub(super) value: String,
    /// These are left out; otherwise only these are kept.
    pub(super) removes: bool,
    pub(super) names: Vec<String>,
}

/// One test of a row.
#[derive(Debug)]
pub(super) struct RowTest {
    column: String,
    operator: Operator,
    value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    Greater,
    LessOrEqual,
    GreaterOrEqual,
    In,
    NotIn,
    Range,
}

/// Who gets the result.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller<'a> {
    pub(super) claims: &'a Claims,
    pub(super) mappings: &'a Mappings,
}

impl Caller<'_> {
    fn has(&self, dimension: &str, value: &str) -> bool {
        let held = self.claims.dimension(self.mappings, dimension);
        held.iter().any(|one| one == value)
    }
}

impl RowTest {
    /// Reads `{colName, operator, colValue}`.
    pub(super) fn read(test: &Value) -> Option<Self> {
        let operator = match test.get("operator").map(Value::as_str) {
            None | Some(Some("=")) => Operator::Equal,
            Some(Some("!=")) => Operator::NotEqual,
            Some(Some("<")) => Operator::Less,
            Some(Some(">")) => Operator::Greater,
            Some(Some("<=")) => Operator::LessOrEqual,
            Some(Some(">=")) => Operator::GreaterOrEqual,
            Some(Some("in")) => Operator::In,
            Some(Some("not in")) => Operator::NotIn,
            Some(Some("range")) => Operator::Range,
            Some(_) => return None,
        };
        let value = test.get("colValue")?.clone();
        let is_claim = value.as_str().is_some_and(|text| text.starts_with('@'));
        let is_sound = match operator {
            Operator::In | Operator::NotIn => words(&value).is_some(),
            Operator::Range => is_claim || bounds(&value).is_some(),
            _ => !(value.is_object() || value.is_array() || value.is_null()),
        };
        is_sound.then_some(Self {
            column: test.get("colName")?.as_str()?.to_owned(),
            operator,
            value,
        })
    }

    /// Whether a row passes. One without the column does not.
    fn passes(&self, row: &Map<String, Value>, claims: &Claims) -> bool {
        let Some(cell) = row.get(&self.column).filter(|cell| !cell.is_null()) else {
            return false;
        };
        let wanted = match self.value.as_str().and_then(|text| text.strip_prefix('@')) {
            None => Cow::Borrowed(&self.value),
            // Without the claim nothing is wanted that could be had.
            Some(name) => match claims.value(name) {
                Some(value) => Cow::Borrowed(value),
                None => return false,
            },
        };
        let is = |orders: &[Ordering]| order(cell, &wanted).is_some_and(|it| orders.contains(&it));
        use Ordering::{Equal, Greater, Less};
        match self.operator {
            Operator::Equal => is(&[Equal]),
            Operator::NotEqual => is(&[Less, Greater]),
            Operator::Less => is(&[Less]),
            Operator::Greater => is(&[Greater]),
            Operator::LessOrEqual => is(&[Less, Equal]),
            Operator::GreaterOrEqual => is(&[Greater, Equal]),
            Operator::In => is_among(cell, &wanted),
            Operator::NotIn => words(&wanted).is_some() && !is_among(cell, &wanted),
            Operator::Range => bounds(&wanted).is_some_and(|(low, high)| {
                let above = order(cell, &low).is_some_and(|it| it != Less);
                above && order(cell, &high).is_some_and(|it| it != Greater)
            }),
        }
    }
}

fn is_among(cell: &Value, list: &Value) -> bool {
    let words = words(list).unwrap_or_default();
    words
        .into_iter()
        .any(|word| order(cell, &Value::String(word)) == Some(Ordering::Equal))
}

/// `"min max"`.
fn bounds(value: &Value) -> Option<(Value, Value)> {
    match words(value)?.as_slice() {
        [low, high] => Some((low.clone().into(), high.clone().into())),
        _ => None,
    }
}

/// How two scalars compare: as numbers when one is a number and the other can be read as one, else
/// as text, for `"007"` is nobody's `"7"`.
fn order(left: &Value, right: &Value) -> Option<Ordering> {
    if (left.is_number() || right.is_number())
        && let (Some(left), Some(right)) = (number(left), number(right))
    {
        return left.partial_cmp(&right);
    }
    Some(text(left)?.cmp(&text(right)?))
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text
            .trim()
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite()),
        _ => None,
    }
}

fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(_) | Value::Bool(_) => Some(Cow::Owned(value.to_string())),
        _ => None,
    }
}

/// Drops the rows the caller may not have.
pub(super) fn rows(
    rules: &[RowRule],
    caller: &Caller<'_>,
    default_include: bool,
    payload: &mut Value,
) -> Result<(), FilterFault> {
    let ours: Vec<&RowRule> = rules
        .iter()
        .filter(|rule| caller.has(&rule.dimension, &rule.value))
        .collect();
    let is_kept = |row: &Value| {
        let Some(row) = row.as_object() else {
            return false;
        };
        if ours.is_empty() {
            return default_include;
        }
        let mut tests = ours.iter().flat_map(|rule| &rule.tests);
        tests.all(|test| test.passes(row, caller.claims))
    };
    match root(payload) {
        Some(Root::Rows(rows)) => rows.retain(is_kept),
        Some(Root::Object(object)) => {
            if !is_kept(&Value::Object(object.clone())) {
                return Err(FilterFault::Denied);
            }
        }
        None => return Err(FilterFault::Shape),
    }
    Ok(())
}

/// Takes the columns away that the caller may not have. Several rules leave what all of them leave.
pub(super) fn columns(
    rules: &[ColumnRule],
    caller: &Caller<'_>,
    payload: &mut Value,
) -> Result<(), FilterFault> {
    let ours: Vec<&ColumnRule> = rules
        .iter()
        .filter(|rule| caller.has(&rule.dimension, &rule.value))
        .collect();
    let strip = |row: &mut Map<String, Value>| {
        for rule in &ours {
            row.retain(|name, _| rule.names.contains(name) != rule.removes);
        }
    };
    match root(payload) {
        Some(Root::Rows(rows)) => {
            for row in rows {
                // What is no object has no columns to be taken away.
                strip(row.as_object_mut().ok_or(FilterFault::Shape)?);
            }
        }
        Some(Root::Object(object)) => strip(object),
        None => return Err(FilterFault::Shape),
    }
    Ok(())
}

enum Root<'a> {
    Rows(&'a mut Vec<Value>),
    Object(&'a mut Map<String, Value>),
}

/// Where the rows are: an array, an object with `items`, or one object.
fn root(payload: &mut Value) -> Option<Root<'_>> {
    match payload {
        Value::Array(rows) => Some(Root::Rows(rows)),
        Value::Object(object) => {
            if object.get("items").is_some_and(Value::is_array) {
                match object.get_mut("items") {
                    Some(Value::Array(rows)) => Some(Root::Rows(rows)),
                    _ => None,
                }
            } else {
                Some(Root::Object(object))
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn passes(operator: &str, wanted: Value, cell: Value) -> bool {
        let test = json!({"colName": "c", "operator": operator, "colValue": wanted});
        let claims = Claims::read(br#"{"uid":"u1","level":3,"areas":["a","b"]}"#);
        let row = json!({"c": cell});
        RowTest::read(&test)
            .unwrap()
            .passes(row.as_object().unwrap(), &claims)
    }

    #[test]
    fn operators_compare_numbers_as_numbers_and_names_as_names() {
        for (operator, wanted, cell, expected) in [
            ("=", json!("a"), json!("a"), true),
            ("=", json!("7"), json!("007"), false),
            ("=", json!("7"), json!(7), true),
            ("=", json!(7), json!(7.0), true),
            ("!=", json!("a"), json!("b"), true),
            ("!=", json!("a"), json!(null), false),
            ("<", json!(50), json!(9), true),
            ("<", json!("50"), json!(9), true),
            ("<", json!(50), json!("none"), false),
            (">=", json!(50), json!(50), true),
            ("<=", json!(50), json!(51), false),
            (">", json!("b"), json!("c"), true),
            ("in", json!("1 2,3"), json!(2), true),
            ("in", json!(["x", "y"]), json!("z"), false),
            ("not in", json!("x y"), json!("z"), true),
            ("not in", json!("x y"), json!("x"), false),
            ("range", json!("10 20"), json!(10), true),
            ("range", json!("10 20"), json!(21), false),
            ("=", json!("@uid"), json!("u1"), true),
            ("=", json!("@uid"), json!("u2"), false),
            ("=", json!("@nothing"), json!("@nothing"), false),
            ("<=", json!("@level"), json!(3), true),
            ("in", json!("@areas"), json!("b"), true),
            ("not in", json!("@nothing"), json!("b"), false),
            ("=", json!("x"), json!(["x"]), false),
        ] {
            assert_eq!(
                passes(operator, wanted.clone(), cell.clone()),
                expected,
                "{cell} {operator} {wanted}"
            );
        }
    }

    #[test]
    fn filters_that_say_nothing_sound_are_refused() {
        for test in [
            json!({}),
            json!({"colName": "c"}),
            json!({"colName": 1, "colValue": 1}),
            json!({"colName": "c", "operator": "~", "colValue": 1}),
            json!({"colName": "c", "operator": "range", "colValue": "1"}),
            json!({"colName": "c", "operator": "=", "colValue": [1]}),
            json!({"colName": "c", "operator": "in", "colValue": {}}),
        ] {
            assert!(RowTest::read(&test).is_none(), "{test}");
        }
    }

    #[test]
    fn rows_are_found_where_they_may_be() {
        let rules = [RowRule {
            dimension: "user".to_owned(),
            value: "u1".to_owned(),
            tests: vec![RowTest::read(&json!({"colName": "k", "colValue": 1})).unwrap()],
        }];
        let claims = Claims::read(br#"{"uid":"u1"}"#);
        let mappings = Mappings::new();
        let caller = Caller {
            claims: &claims,
            mappings: &mappings,
        };
        let filtered =
            |mut payload: Value| rows(&rules, &caller, false, &mut payload).map(|()| payload);
        assert_eq!(
            filtered(json!([{"k": 1}, {"k": 2}, {}, 7])),
            Ok(json!([{"k": 1}]))
        );
        assert_eq!(
            filtered(json!({"items": [{"k": 2}], "n": 1})),
            Ok(json!({"items": [], "n": 1}))
        );
        assert_eq!(filtered(json!({"k": 1})), Ok(json!({"k": 1})));
        assert_eq!(filtered(json!({"k": 2})), Err(FilterFault::Denied));
        assert_eq!(filtered(json!("text")), Err(FilterFault::Shape));
    }
}
