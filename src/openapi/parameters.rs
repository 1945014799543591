//! Parameters of an operation as arguments of a tool.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{operation::Operation, schema::Schemas, text};

/// Headers that a document may name and a parameter never is (OpenAPI 3, Parameter Object).
const IGNORED_HEADERS: [&str; 3] = ["accept", "authorization", "content-type"];

/// The arguments of a tool.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    /// Their schemas.
    pub(super) properties: Map<String, Value>,
    /// Which must be there.
    pub(super) required: Vec<String>,
    /// Where each goes.
    pub(super) locations: BTreeMap<String, &'static str>,
}

impl Arguments {
    /// Adds one.
    pub(super) fn add(
        &mut self,
        name: &str,
        schema: Value,
        is_required: bool,
        location: &'static str,
    ) {
        self.properties.insert(name.to_owned(), schema);
        self.locations.insert(name.to_owned(), location);
        if is_required {
            self.required.push(name.to_owned());
        }
    }

    /// Adds the parameters of an operation and of its path.
    ///
    /// # Errors
    /// Why it cannot be called at all.
    pub(super) fn take<'a>(
        &mut self,
        operation: &Operation<'a>,
        schemas: &mut Schemas<'a>,
        notes: &mut Vec<String>,
    ) -> Result<(), String> {
        for parameter in all(operation)? {
            let name = text(parameter, "name").ok_or("a parameter has no name")?;
            let place = text(parameter, "in").unwrap_or_default();
            let is_required =
                parameter.get("required") == Some(&Value::Bool(true)) || place == "path";
            let location = match location(parameter, name, place, operation) {
                Ok(location) => location,
                Err(None) => continue,
                Err(Some(why)) if is_required => {
                    return Err(format!("the parameter {name} {why}"));
                }
                Err(Some(why)) => {
                    notes.push(format!("the parameter {name} {why}, and is left out"));
                    continue;
                }
            };
            if self.properties.contains_key(name) {
                if is_required {
                    return Err(format!("two parameters are named {name}"));
                }
                let note =
                    format!("two parameters are named {name}: the one of {place} is left out");
                notes.push(note);
                continue;
            }
            let mut schema = match schema_of(parameter) {
                Some(schema) => schemas.convert(schema)?,
                None => Value::Object(Map::new()),
            };
            if let (Some(said), Value::Object(members)) =
                (text(parameter, "description"), &mut schema)
            {
                members.entry("description").or_insert_with(|| said.into());
            }
            self.add(name, schema, is_required, location);
        }
        Ok(())
    }
}

/// The parameters, those of the operation in place of the path's.
fn all<'a>(operation: &Operation<'a>) -> Result<Vec<&'a Value>, String> {
    let mut found: Vec<((&str, &str), &Value)> = Vec::new();
    for owner in [operation.item, operation.operation] {
        let parameters = owner.get("parameters").and_then(Value::as_array);
        for parameter in parameters.into_iter().flatten() {
            let parameter = operation.source.resolve(parameter);
            let parameter = parameter.ok_or("the reference of a parameter leads nowhere")?;
            let member = |name| text(parameter, name).unwrap_or_default();
            let key = (member("name"), member("in"));
            match found.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) => *known = parameter,
                None => found.push((key, parameter)),
            }
        }
    }
    Ok(found.into_iter().map(|(_, parameter)| parameter).collect())
}

fn schema_of(parameter: &Value) -> Option<&Value> {
    let content = parameter.get("content").and_then(Value::as_object);
    let of_content = content.and_then(|content| content.values().next()?.get("schema"));
    parameter.get("schema").or(of_content)
}

/// Where a parameter goes; `Err(None)`: it is none. The words say what it cannot be.
fn location(
    parameter: &Value,
    name: &str,
    place: &str,
    operation: &Operation<'_>,
) -> Result<&'static str, Option<String>> {
    let style = text(parameter, "style");
    let unusual = |usual: &str| style.filter(|style| *style != usual);
    match place {
        "path" => match unusual("simple") {
            None => Ok("path"),
            Some(style) => Err(Some(format!("has the style {style}"))),
        },
        "query" => {
            if let Some(style) = unusual("form") {
                return Err(Some(format!("has the style {style}")));
            }
            let schema = schema_of(parameter).and_then(|one| operation.source.resolve(one));
            let kind = schema.and_then(|schema| schema.get("type"));
            let is = |wanted: &str| match kind {
                Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == wanted),
                Some(kind) => kind == wanted,
                None => false,
            };
            // What has a media type is written in it.
            let is_content = parameter.get("content").is_some();
            let explodes = parameter.get("explode") != Some(&Value::Bool(false));
            match (is_content, is("array"), explodes) {
                (false, true, true) => Ok("queryEach"),
                (false, true, false) => Ok("queryJoined"),
                _ if is("object") && !is_content => Err(Some("is an object".to_owned())),
                _ => Ok("query"),
            }
        }
        "header" => {
            let is = |header: &&str| header.eq_ignore_ascii_case(name);
            if IGNORED_HEADERS.iter().any(is) {
                return Err(None);
            }
            Ok("header")
        }
        "cookie" => match unusual("form") {
            None => Ok("cookie"),
            Some(style) => Err(Some(format!("has the style {style}"))),
        },
        _ => Err(Some("is in a place that is not known".to_owned())),
    }
}
