//! Rules as written, to rules as they are asked.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    Policy, claims, fault,
    filter::{ColumnRule, RowRule, RowTest},
    words::words,
};
use crate::schema::SchemaFault;

const CEL: &str = "CEL is not supported: say it with permission, visibility, row and col";
const ROLES: &str = "RoleBasedAccessControlAction";
const ROWS: &str = "ResponseRowFilterAction";
const COLUMNS: &str = "ResponseColumnFilterAction";

/// How the checks of one endpoint count together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Logic {
    /// One is enough.
    #[default]
    Any,
    /// All must agree.
    All,
}

/// The rule of one endpoint.
#[derive(Debug)]
pub(super) struct EndpointRule {
    path: String,
    method: String,
    /// Checks for access; `None`: none are listed.
    pub(super) access: Option<Vec<String>>,
    pub(super) visibility: Vec<(String, Vec<String>)>,
    pub(super) roles: Vec<String>,
    pub(super) filters_rows: bool,
    pub(super) filters_columns: bool,
    pub(super) rows: Vec<RowRule>,
    pub(super) columns: Vec<ColumnRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenAccess {
    #[serde(default = "yes")]
    enabled: bool,
    #[serde(default)]
    access_rule_logic: Logic,
    #[serde(default = "yes")]
    default_deny: bool,
    #[serde(default)]
    default_include: bool,
    #[serde(default)]
    skip_path_prefixes: Vec<String>,
    #[serde(default)]
    claim_mappings: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    tools_list_access_control: WrittenListing,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenListing {
    #[serde(default)]
    mode: Mode,
    /// Every rule is known here, or refused: these three are heard and change nothing.
    #[serde(rename = "unknownRuleFallback")]
    _unknown_rule_fallback: Option<Fallback>,
    #[serde(rename = "maxCelEvaluations")]
    _max_cel_evaluations: Option<u64>,
    #[serde(rename = "maxCacheEntries")]
    _max_cache_entries: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    None,
    Permission,
    Cel,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Fallback {
    Hidden,
    Visible,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenRules {
    #[serde(default)]
    endpoint_rules: Map<String, Value>,
    #[serde(default)]
    rule_bodies: Map<String, Value>,
}

fn yes() -> bool {
    true
}

/// What a rule body does.
#[derive(Debug, Clone, Copy, Default)]
struct Body {
    checks_roles: bool,
    filters_rows: bool,
    filters_columns: bool,
}

pub(super) fn read(
    access_control: Option<&Value>,
    rules: Option<&Value>,
) -> Result<Option<Policy>, Vec<SchemaFault>> {
    let mut faults = Vec::new();
    let access: Option<WrittenAccess> = access_control.and_then(|value| {
        let read = WrittenAccess::deserialize(value);
        read.map_err(|error| faults.push(fault("/access_control", error.to_string())))
            .ok()
    });
    let written: WrittenRules = rules
        .map(WrittenRules::deserialize)
        .transpose()
        .map_err(|error| faults.push(fault("/rules", error.to_string())))
        .ok()
        .flatten()
        .unwrap_or_default();
    if let Some(access) = &access
        && access.tools_list_access_control.mode == Mode::Cel
    {
        let at = "/access_control/toolsListAccessControl/mode";
        faults.push(fault(at, CEL));
    }
    let mut reader = Reader {
        bodies: BTreeMap::new(),
        mappings: access
            .as_ref()
            .map(|access| access.claim_mappings.clone())
            .unwrap_or_default(),
        faults,
    };
    for (id, body) in &written.rule_bodies {
        let body = reader.body(id, body);
        reader.bodies.insert(id.clone(), body);
    }
    let rules: Vec<EndpointRule> = written
        .endpoint_rules
        .iter()
        .map(|(endpoint, rule)| reader.endpoint(endpoint, rule))
        .collect();
    if !reader.faults.is_empty() {
        return Err(reader.faults);
    }
    Ok(access.filter(|access| access.enabled).map(|access| Policy {
        logic: access.access_rule_logic,
        default_deny: access.default_deny,
        default_include: access.default_include,
        skip_prefixes: access.skip_path_prefixes,
        mappings: access.claim_mappings,
        hides: access.tools_list_access_control.mode == Mode::Permission,
        rules,
    }))
}

struct Reader {
    bodies: BTreeMap<String, Body>,
    mappings: claims::Mappings,
    faults: Vec<SchemaFault>,
}

impl Reader {
    fn refuse(&mut self, pointer: &str, text: impl Into<String>) {
        self.faults.push(fault(pointer, text));
    }

    fn body(&mut self, id: &str, body: &Value) -> Body {
        let at = format!("/rules/ruleBodies/{}", token(id));
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut read = Body::default();
        if !body.is_object() {
            self.refuse(&at, "a rule is an object");
            return read;
        }
        if !text("expression").trim().is_empty() || text("conditionLanguage") == "cel" {
            self.refuse(&at, CEL);
            return read;
        }
        let actions = body.get("actions").and_then(Value::as_array);
        for (index, action) in actions.into_iter().flatten().enumerate() {
            let class = action.get("actionClassName").and_then(Value::as_str);
            let class = class.unwrap_or_default();
            match class.rsplit('.').next().unwrap_or_default() {
                ROLES => read.checks_roles = true,
                ROWS => read.filters_rows = true,
                COLUMNS => read.filters_columns = true,
                _ => {
                    let text = format!("an action is one of {ROLES}, {ROWS}, {COLUMNS}");
                    self.refuse(&format!("{at}/actions/{index}"), text);
                }
            }
        }
        let is_idle = !(read.checks_roles || read.filters_rows || read.filters_columns);
        if is_idle && self.faults.is_empty() {
            self.refuse(&at, "the rule does nothing: it has no actions");
        }
        read
    }

    fn endpoint(&mut self, endpoint: &str, rule: &Value) -> EndpointRule {
        let at = format!("/rules/endpointRules/{}", token(endpoint));
        let (path, method) = endpoint.rsplit_once('@').unwrap_or((endpoint, ""));
        let known = ["req-acc", "res-fil", "visibility", "permission"];
        for name in rule.as_object().into_iter().flat_map(Map::keys) {
            if !known.contains(&name.as_str()) {
                let text = "not one of req-acc, res-fil, visibility, permission";
                self.refuse(&format!("{at}/{}", token(name)), text);
            }
        }
        if !rule.is_object() {
            self.refuse(&at, "the rules of an endpoint are an object");
        }
        let access = self.identifiers(rule, &at, "req-acc", |body| body.checks_roles);
        let filters = self.identifiers(rule, &at, "res-fil", |body| {
            body.filters_rows || body.filters_columns
        });
        let does = |asked: fn(&Body) -> bool| {
            let listed = filters.iter().flatten();
            listed.filter_map(|id| self.bodies.get(id)).any(asked)
        };
        let (filters_rows, filters_columns) = (
            does(|body| body.filters_rows),
            does(|body| body.filters_columns),
        );
        let visibility = rule.get("visibility");
        let visibility =
            visibility.map(|value| self.dimensions(value, &format!("{at}/visibility")));
        let permission = rule.get("permission").unwrap_or(&Value::Null);
        let at = format!("{at}/permission");
        let mut roles = Vec::new();
        for (name, value) in permission.as_object().into_iter().flatten() {
            let at = format!("{at}/{}", token(name));
            match name.as_str() {
                "row" | "col" => {}
                name if claims::is_dimension(name, &self.mappings) => match words(value) {
                    Some(found) if name == "roles" => roles = found,
                    Some(_) => {}
                    None => self.refuse(&at, "it is no list of words"),
                },
                _ => self.refuse(&at, "not a dimension, nor a mapped claim"),
            }
        }
        if !(permission.is_object() || permission.is_null()) {
            self.refuse(&at, "a permission is an object");
        }
        let rows = self.entries(permission.get("row"), &format!("{at}/row"), Self::row_tests);
        let columns = self.entries(permission.get("col"), &format!("{at}/col"), Self::columns);
        EndpointRule {
            path: path.to_owned(),
            method: method.to_ascii_lowercase(),
            access,
            visibility: visibility.unwrap_or_default(),
            roles,
            filters_rows,
            filters_columns,
            rows: rows
                .into_iter()
                .map(|(dimension, value, tests)| RowRule {
                    dimension,
                    value,
                    tests,
                })
                .collect(),
            columns: columns
                .into_iter()
                .map(|(dimension, value, (removes, names))| ColumnRule {
                    dimension,
                    value,
                    removes,
                    names,
                })
                .collect(),
        }
    }

    /// A list of rules by their ids, each of which must be there and be of use.
    fn identifiers(
        &mut self,
        rule: &Value,
        at: &str,
        field: &str,
        is_of_use: fn(&Body) -> bool,
    ) -> Option<Vec<String>> {
        let value = rule.get(field)?;
        let at = format!("{at}/{field}");
        let Some(ids) = words(value) else {
            self.refuse(&at, "it is no list of rule ids");
            return None;
        };
        for id in &ids {
            match self.bodies.get(id) {
                None => self.refuse(&at, format!("there is no rule body {id}")),
                // A body that was refused has been told of already.
                Some(body) if !is_of_use(body) && self.faults.is_empty() => {
                    self.refuse(&at, format!("the rule {id} has no action for this"));
                }
                Some(_) => {}
            }
        }
        // An empty list lists nothing.
        (!ids.is_empty()).then_some(ids)
    }

    fn dimensions(&mut self, value: &Value, at: &str) -> Vec<(String, Vec<String>)> {
        let mut found = Vec::new();
        let Some(members) = value.as_object() else {
            self.refuse(at, "it maps dimensions to words");
            return found;
        };
        for (name, value) in members {
            let at = format!("{at}/{}", token(name));
            match words(value) {
                _ if !claims::is_dimension(name, &self.mappings) => {
                    self.refuse(&at, "not a dimension, nor a mapped claim");
                }
                None => self.refuse(&at, "it is no list of words"),
                Some(words) => found.push((name.clone(), words)),
            }
        }
        found
    }

    /// `{dimension: {value: T}}`.
    fn entries<T>(
        &mut self,
        value: Option<&Value>,
        at: &str,
        read: fn(&mut Self, &Value, &str) -> Option<T>,
    ) -> Vec<(String, String, T)> {
        let mut found = Vec::new();
        let Some(value) = value else { return found };
        let Some(dimensions) = value.as_object() else {
            self.refuse(at, "it maps dimensions to values and their filters");
            return found;
        };
        for (dimension, values) in dimensions {
            let at = format!("{at}/{}", token(dimension));
            let Some(values) = values.as_object() else {
                self.refuse(&at, "it maps values to their filters");
                continue;
            };
            for (value, filter) in values {
                let at = format!("{at}/{}", token(value));
                if let Some(filter) = read(self, filter, &at) {
                    found.push((dimension.clone(), value.clone(), filter));
                }
            }
        }
        found
    }

    fn row_tests(&mut self, value: &Value, at: &str) -> Option<Vec<RowTest>> {
        let Some(elements) = value.as_array() else {
            self.refuse(at, "it is a list of {colName, operator, colValue}");
            return None;
        };
        let tests = elements.iter().map(RowTest::read);
        let tests: Option<Vec<RowTest>> = tests.collect();
        if tests.is_none() {
            let text = "a filter is {colName, operator, colValue} with one of = != < > <= >= in, \
                        \"not in\", range";
            self.refuse(at, text);
        }
        tests
    }

    fn columns(&mut self, value: &Value, at: &str) -> Option<(bool, Vec<String>)> {
        let Some(text) = value.as_str() else {
            self.refuse(
                at,
                "it is a list of columns in a string, after ! those to leave out",
            );
            return None;
        };
        let (removes, list) = match text.trim().strip_prefix('!') {
            Some(list) => (true, list),
            None => (false, text),
        };
        Some((removes, super::words::split(list)))
    }
}

/// A reference token of a JSON pointer.
fn token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The rule about an endpoint: its own, else the longest one with the same method whose path is
/// the same, leads to it, or has placeholders in the same places.
pub(super) fn about(rules: &[EndpointRule], endpoint: &str) -> Option<usize> {
    let (path, method) = endpoint.rsplit_once('@').unwrap_or((endpoint, ""));
    let method = method.to_ascii_lowercase();
    let same_method = || {
        let numbered = rules.iter().enumerate();
        numbered.filter(|(_, rule)| rule.method == method)
    };
    if let Some((index, _)) = same_method().find(|(_, rule)| rule.path == path) {
        return Some(index);
    }
    let fitting = same_method().filter(|(_, rule)| covers(&rule.path, path));
    fitting
        .max_by_key(|(_, rule)| rule.path.len())
        .map(|(index, _)| index)
}

fn covers(pattern: &str, path: &str) -> bool {
    let segments = |text: &str| -> Vec<String> {
        let parts = text.trim_matches('/').split('/');
        parts.map(str::to_owned).collect()
    };
    let (pattern, path) = (segments(pattern), segments(path));
    if path.starts_with(&pattern) {
        return true;
    }
    let is_placeholder = |segment: &str| segment.starts_with('{') && segment.ends_with('}');
    pattern.len() == path.len()
        && pattern
            .iter()
            .zip(&path)
            .all(|(pattern, segment)| is_placeholder(pattern) || pattern == segment)
}
