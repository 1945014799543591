//! Declared tools from an OpenAPI document (3.0 and 3.1): a converter, used before a gateway is
//! configured and never by a running one.
//!
//! Pure: a document in, declarations and warnings out. What cannot be said as a declaration is left
//! out with a warning; what is written is accepted by the loader. References are local or refused;
//! nothing is fetched.

mod operation;
mod parameters;
mod schema;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::{declared::Tools, schema::SchemaLimits, upstream::guard::is_forbidden_host};

/// Longest document, bytes.
pub const DOCUMENT_BYTES_MAX: usize = 32 << 20;

/// What to make of a document.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Address of the server, in place of the document's first one.
    pub server: Option<String>,
    /// Only operations with one of these tags; empty: all.
    pub tags: Vec<String>,
    /// The server may be on this host or a private network.
    pub allows_private: bool,
    /// Leave out what results look like: then results are not checked.
    pub without_output: bool,
}

/// What a document became.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Converted {
    /// Declarations.
    pub tools: Vec<Value>,
    /// What was left out or changed, and why; each begins with method and path.
    pub warnings: Vec<String>,
}

/// Why nothing can be made of a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenApiFault {
    /// Longer than [`DOCUMENT_BYTES_MAX`].
    #[error("the document has more than {DOCUMENT_BYTES_MAX} bytes")]
    TooLong,
    /// Neither JSON nor YAML.
    #[error("neither JSON nor YAML: {0}")]
    Syntax(String),
    /// Not an OpenAPI document of a known version.
    #[error("not an OpenAPI document of version 3.0 or 3.1")]
    Version,
    /// It says no absolute address.
    #[error("the document names no absolute server address: give one with --server")]
    Server,
    /// The address cannot be used.
    #[error("the server's address is not usable: {0}")]
    BadServer(&'static str),
    /// The address is not public.
    #[error("the server is this host or on a private network: allow it with --allow-private")]
    PrivateServer,
}

/// Reads a document in JSON or YAML.
///
/// # Errors
/// When it is neither, or too long.
pub fn parse(text: &str) -> Result<Value, OpenApiFault> {
    if text.len() > DOCUMENT_BYTES_MAX {
        return Err(OpenApiFault::TooLong);
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with('{') {
        let parsed = serde_json::from_str(text);
        return parsed.map_err(|error| OpenApiFault::Syntax(error.to_string()));
    }
    serde_saphyr::from_str(text).map_err(|error| OpenApiFault::Syntax(error.to_string()))
}

/// Converts a document.
///
/// # Errors
/// When nothing can be made of it.
pub fn convert(document: &Value, options: &Options) -> Result<Converted, OpenApiFault> {
    let version = document.get("openapi").and_then(Value::as_str);
    let is_old = match version.unwrap_or_default() {
        text if text.starts_with("3.0") => true,
        text if text.starts_with("3.1") => false,
        _ => return Err(OpenApiFault::Version),
    };
    let source = Source { document, is_old };
    let server = server(document, options)?;
    let mut converted = Converted::default();
    let mut names = BTreeSet::new();
    let mut schemes = BTreeSet::new();
    let paths = document.get("paths").and_then(Value::as_object);
    for (path, item) in paths.into_iter().flatten() {
        let Some(item) = source.resolve(item) else {
            converted
                .warnings
                .push(format!("{path}: left out: its reference leads nowhere"));
            continue;
        };
        for (method, operation) in item.as_object().into_iter().flatten() {
            let Some(method) = operation::method(method) else {
                continue;
            };
            if !has_tag(operation, &options.tags) {
                continue;
            }
            let mut notes = Vec::new();
            let parts = operation::Operation {
                source: &source,
                path,
                method,
                item,
                operation,
            };
            let made = parts.declaration(&server, options, &mut notes);
            let place = format!("{} {path}", method.to_ascii_uppercase());
            match made {
                Ok(mut tool) => {
                    name(&mut tool, &mut names, &mut notes);
                    match refused(&tool) {
                        None => converted.tools.push(tool),
                        Some(text) => notes.push(format!("left out: {text}")),
                    }
                }
                Err(text) => notes.push(format!("left out: {text}")),
            }
            schemes.extend(parts.security_schemes());
            let notes = notes.into_iter().map(|note| format!("{place}: {note}"));
            converted.warnings.extend(notes);
        }
    }
    if !schemes.is_empty() {
        let schemes = schemes.into_iter().collect::<Vec<_>>().join(", ");
        converted.warnings.push(format!(
            "the API asks for credentials ({schemes}): add `auth` to the tools that need them"
        ));
    }
    Ok(converted)
}

/// A document, and how to look things up in it.
#[derive(Debug, Clone, Copy)]
struct Source<'a> {
    document: &'a Value,
    /// Version 3.0, whose schemas are a dialect of their own.
    is_old: bool,
}

impl<'a> Source<'a> {
    /// The value itself, or what its chain of references leads to.
    fn resolve(&self, value: &'a Value) -> Option<&'a Value> {
        let mut value = value;
        // A longer chain is a circle.
        for _ in 0..32 {
            let Some(reference) = value.get("$ref").and_then(Value::as_str) else {
                return Some(value);
            };
            value = self.target(reference)?;
        }
        None
    }

    /// What a local reference leads to.
    fn target(&self, reference: &str) -> Option<&'a Value> {
        let pointer = reference.strip_prefix('#')?;
        let pointer = crate::schema::decoded_pointer(pointer)?;
        self.document.pointer(&pointer)
    }
}

fn has_tag(operation: &Value, tags: &[String]) -> bool {
    if tags.is_empty() {
        return true;
    }
    let own = operation.get("tags").and_then(Value::as_array);
    let mut own = own.into_iter().flatten().filter_map(Value::as_str);
    own.any(|tag| tags.iter().any(|wanted| wanted == tag))
}

/// The address that paths are appended to.
fn server(document: &Value, options: &Options) -> Result<String, OpenApiFault> {
    let text = match &options.server {
        Some(server) => server.clone(),
        None => {
            let first = document.pointer("/servers/0").ok_or(OpenApiFault::Server)?;
            let url = first.get("url").and_then(Value::as_str);
            let mut url = url.ok_or(OpenApiFault::Server)?.to_owned();
            let variables = first.get("variables").and_then(Value::as_object);
            for (name, variable) in variables.into_iter().flatten() {
                let default = variable.get("default").and_then(Value::as_str);
                url = url.replace(&format!("{{{name}}}"), default.unwrap_or_default());
            }
            url
        }
    };
    let url = url::Url::parse(&text).map_err(|_| OpenApiFault::Server)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(OpenApiFault::BadServer("only http and https are spoken"));
    }
    if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
        return Err(OpenApiFault::BadServer(
            "it has a query, a fragment or a user",
        ));
    }
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if is_forbidden_host(host) && !options.allows_private {
        return Err(OpenApiFault::PrivateServer);
    }
    Ok(text)
}

/// Makes the tool's name unique.
fn name(tool: &mut Value, names: &mut BTreeSet<String>, notes: &mut Vec<String>) {
    let wanted = tool["name"].as_str().unwrap_or_default().to_owned();
    let mut name = wanted.clone();
    let mut number = 2;
    while !names.insert(name.clone()) {
        name = format!("{wanted}_{number}");
        number += 1;
    }
    if name != wanted {
        notes.push(format!("named {name}: {wanted} is taken"));
        tool["name"] = name.into();
    }
}

/// Why the loader would refuse a declaration.
fn refused(tool: &Value) -> Option<String> {
    let tools = Tools::read(Value::Array(vec![tool.clone()]), &SchemaLimits::default()).ok()?;
    tools.faults().first().map(ToString::to_string)
}

/// A member that is a text, if it is not blank.
fn text<'a>(object: &'a Value, member: &str) -> Option<&'a str> {
    let text = object.get(member)?.as_str()?.trim();
    (!text.is_empty()).then_some(text)
}

fn object(members: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let members = members.into_iter();
    Value::Object(
        members
            .map(|(name, value)| (name.to_owned(), value))
            .collect::<Map<_, _>>(),
    )
}
