//! Schemas of a document as JSON Schema 2020-12: references moved into `$defs`, the dialect of
//! version 3.0 translated, what only documentation needs taken out.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Source;

/// Nesting of a schema, references not counted.
const DEPTH_MAX: usize = 64;
/// Schemas that one tool refers to at the most.
const DEFINITIONS_MAX: usize = 512;

/// Members that say nothing about an instance.
const DOCUMENTATION: [&str; 5] = [
    "example",
    "externalDocs",
    "xml",
    "discriminator",
    "nullable",
];

/// The schemas of one tool's input or output.
pub(super) struct Schemas<'a> {
    source: &'a Source<'a>,
    /// Properties that only the other direction has are not required.
    other_direction: &'static str,
    /// Names under `$defs`, by reference.
    names: BTreeMap<String, String>,
    definitions: BTreeMap<String, Value>,
    dropped_patterns: usize,
}

impl<'a> Schemas<'a> {
    /// For what is sent.
    pub(super) fn of_input(source: &'a Source<'a>) -> Self {
        Self::new(source, "readOnly")
    }

    /// For what is received.
    pub(super) fn of_output(source: &'a Source<'a>) -> Self {
        Self::new(source, "writeOnly")
    }

    fn new(source: &'a Source<'a>, other_direction: &'static str) -> Self {
        Self {
            source,
            other_direction,
            names: BTreeMap::new(),
            definitions: BTreeMap::new(),
            dropped_patterns: 0,
        }
    }

    /// Converts a schema; what it refers to is kept for [`Schemas::finish`].
    ///
    /// # Errors
    /// Why it cannot be converted.
    pub(super) fn convert(&mut self, schema: &Value) -> Result<Value, String> {
        self.nested(schema, DEPTH_MAX)
    }

    /// Adds what was referred to, and tells what was changed.
    pub(super) fn finish(self, root: &mut Map<String, Value>, notes: &mut Vec<String>) {
        if !self.definitions.is_empty() {
            let definitions = self.definitions.into_iter().collect::<Map<_, _>>();
            root.insert("$defs".to_owned(), Value::Object(definitions));
        }
        if self.dropped_patterns > 0 {
            let count = self.dropped_patterns;
            notes.push(format!(
                "{count} patterns left out: they cannot be matched in linear time"
            ));
        }
    }

    fn nested(&mut self, schema: &Value, depth_left: usize) -> Result<Value, String> {
        let members = match schema {
            Value::Object(members) => members,
            Value::Bool(_) => return Ok(schema.clone()),
            _ => return Err("a schema is neither an object nor a boolean".to_owned()),
        };
        let depth_left = depth_left.checked_sub(1).ok_or("a schema nests too deep")?;
        if let Some(reference) = members.get("$ref") {
            let target = self.reference(reference)?;
            // Version 3.0 ignores what stands beside a reference.
            if self.source.is_old || members.len() == 1 {
                return Ok(json!({"$ref": target}));
            }
            let mut others = members.clone();
            others.remove("$ref");
            let mut converted = self.members(&others, depth_left)?;
            converted.insert("$ref".to_owned(), target.into());
            return Ok(Value::Object(converted));
        }
        let mut converted = self.members(members, depth_left)?;
        if self.source.is_old {
            exclusive(&mut converted, "exclusiveMinimum", "minimum");
            exclusive(&mut converted, "exclusiveMaximum", "maximum");
            if members.get("nullable") == Some(&Value::Bool(true)) {
                return Ok(nullable(converted));
            }
        }
        Ok(Value::Object(converted))
    }

    fn members(
        &mut self,
        members: &Map<String, Value>,
        depth_left: usize,
    ) -> Result<Map<String, Value>, String> {
        let mut converted = Map::new();
        for (keyword, value) in members {
            if DOCUMENTATION.contains(&keyword.as_str()) || keyword == "$schema" {
                continue;
            }
            let value = match keyword.as_str() {
                "properties" | "patternProperties" | "dependentSchemas" | "$defs" => {
                    self.map(value, depth_left)?
                }
                "allOf" | "anyOf" | "oneOf" | "prefixItems" => self.list(value, depth_left)?,
                "items" if value.is_array() => self.list(value, depth_left)?,
                "items"
                | "contains"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "unevaluatedItems"
                | "propertyNames"
                | "not"
                | "if"
                | "then"
                | "else" => self.nested(value, depth_left)?,
                "pattern" if !crate::schema::is_linear_pattern(value) => {
                    self.dropped_patterns += 1;
                    continue;
                }
                "required" => {
                    let names = self.required(value, members);
                    if names.is_empty() {
                        continue;
                    }
                    json!(names)
                }
                _ => value.clone(),
            };
            converted.insert(keyword.clone(), value);
        }
        Ok(converted)
    }

    /// The required names, without those that only the other direction has.
    fn required(&self, value: &Value, members: &Map<String, Value>) -> Vec<String> {
        let names = value.as_array().into_iter().flatten();
        let is_other = |name: &str| {
            let property = members.get("properties").and_then(|all| all.get(name));
            let property = property.and_then(|property| self.source.resolve(property));
            property.and_then(|property| property.get(self.other_direction))
                == Some(&Value::Bool(true))
        };
        let names = names.filter_map(Value::as_str);
        names
            .filter(|name| !is_other(name))
            .map(str::to_owned)
            .collect()
    }

    fn map(&mut self, value: &Value, depth_left: usize) -> Result<Value, String> {
        let members = value.as_object().ok_or("a map of schemas is no object")?;
        let mut converted = Map::new();
        for (name, schema) in members {
            converted.insert(name.clone(), self.nested(schema, depth_left)?);
        }
        Ok(Value::Object(converted))
    }

    fn list(&mut self, value: &Value, depth_left: usize) -> Result<Value, String> {
        let elements = value.as_array().ok_or("a list of schemas is no array")?;
        let converted = elements
            .iter()
            .map(|schema| self.nested(schema, depth_left))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Value::Array(converted))
    }

    /// The place under `$defs` of what a reference leads to.
    fn reference(&mut self, reference: &Value) -> Result<String, String> {
        let reference = reference.as_str().ok_or("a reference is no text")?;
        if !reference.starts_with('#') {
            return Err("a schema refers to another document".to_owned());
        }
        if let Some(name) = self.names.get(reference) {
            return Ok(format!("#/$defs/{name}"));
        }
        let source = self.source;
        let target = source
            .target(reference)
            .ok_or("a schema's reference leads nowhere")?;
        if self.names.len() >= DEFINITIONS_MAX {
            return Err(format!(
                "more than {DEFINITIONS_MAX} schemas are referred to"
            ));
        }
        let name = self.free_name(reference);
        // Known before it is converted: it may refer to itself.
        self.names.insert(reference.to_owned(), name.clone());
        let converted = self.nested(target, DEPTH_MAX)?;
        self.definitions.insert(name.clone(), converted);
        Ok(format!("#/$defs/{name}"))
    }

    fn free_name(&self, reference: &str) -> String {
        let last = reference.rsplit('/').next().unwrap_or_default();
        let is_sound = |character: &char| character.is_ascii_alphanumeric() || *character == '_';
        let mut name: String = last.chars().filter(is_sound).collect();
        if name.is_empty() {
            name.push_str("schema");
        }
        let taken = |name: &str| self.names.values().any(|known| known == name);
        let wanted = name.clone();
        let mut number = 2;
        while taken(&name) {
            name = format!("{wanted}_{number}");
            number += 1;
        }
        name
    }
}

/// `exclusiveMinimum: true` beside a `minimum` is a number of its own by now.
fn exclusive(members: &mut Map<String, Value>, flag: &str, bound: &str) {
    match members.get(flag) {
        Some(Value::Bool(true)) => match members.remove(bound) {
            Some(number) => {
                members.insert(flag.to_owned(), number);
            }
            None => {
                members.remove(flag);
            }
        },
        Some(Value::Bool(false)) => {
            members.remove(flag);
        }
        _ => {}
    }
}

/// The same schema, or null.
fn nullable(mut members: Map<String, Value>) -> Value {
    let kind = match members.get("type") {
        Some(Value::String(kind)) => kind.clone(),
        _ => return json!({"anyOf": [members, {"type": "null"}]}),
    };
    members.insert("type".to_owned(), json!([kind, "null"]));
    if let Some(Value::Array(words)) = members.get_mut("enum")
        && !words.contains(&Value::Null)
    {
        words.push(Value::Null);
    }
    Value::Object(members)
}
