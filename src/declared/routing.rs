//! Where arguments go in an HTTP request, as declared, and what a declaration must hold to
//! (dual-profile.md 4.1 and 4.2).

use std::collections::{BTreeMap, BTreeSet};

use super::metadata::Metadata;
use crate::{
    config::user_config::is_protected_header,
    schema::{InputSchema, Reason, SchemaFault},
};

/// Request methods of HTTP tools.
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
/// Headers no argument may set, beside those of [`is_protected_header`] (dual-profile.md 4.3).
const FORBIDDEN_HEADERS: [&str; 7] = [
    "accept-encoding",
    "authorization",
    "cookie",
    "expect",
    "set-cookie",
    "user-agent",
    "www-authenticate",
];

/// Where one argument goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location {
    /// A placeholder of the path.
    Path,
    /// One pair of the query; arrays and objects as JSON.
    Query,
    /// One pair for each element of an array; ours, for OpenAPI's exploded parameters.
    QueryEach,
    /// One pair, the elements joined by commas; ours, for OpenAPI's form style.
    QueryJoined,
    /// A header of that name.
    Header,
    /// A cookie of that name.
    Cookie,
    /// The body, or a member of it.
    Body,
}

impl Location {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "path" => Self::Path,
            "query" => Self::Query,
            "queryEach" => Self::QueryEach,
            "queryJoined" => Self::QueryJoined,
            "header" => Self::Header,
            "cookie" => Self::Cookie,
            "body" => Self::Body,
            _ => return None,
        })
    }
}

/// Where arguments without a location go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Unmapped {
    /// As the method has it: the query of GET and HEAD, else the body.
    #[default]
    MethodDefault,
    Query,
    Body,
    /// Nowhere: the call is refused.
    Reject,
}

/// The path of a tool, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    /// Literal and placeholder in turn; the literals are as they are sent.
    pub(super) parts: Vec<Part>,
}

/// A part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Literal(Box<str>),
    Placeholder(Box<str>),
}

/// All of it.
#[derive(Debug)]
pub(super) struct Routing {
    pub(super) template: Template,
    /// `None`: no argument has a location.
    pub(super) locations: Option<BTreeMap<Box<str>, Location>>,
    pub(super) unmapped: Unmapped,
    /// `fields`: the body is an object of named arguments; else one argument is the body.
    pub(super) is_body_of_fields: bool,
}

/// The request method of a declaration.
pub(super) fn method(
    text: Option<&str>,
    has_input_schema: bool,
) -> Result<&'static str, SchemaFault> {
    let text = text.unwrap_or("GET").to_ascii_uppercase();
    if text == "CALL" {
        return Ok(if has_input_schema { "POST" } else { "GET" });
    }
    METHODS
        .into_iter()
        .find(|method| *method == text)
        .ok_or_else(|| {
            let text = "the method is none of GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS, CALL";
            SchemaFault::new(Reason::ConfigInvalid, "/method", text)
        })
}

impl Template {
    /// Takes a path apart.
    pub(super) fn parse(path: &str) -> Result<Self, &'static str> {
        if !path.starts_with('/') {
            return Err("a path begins with /");
        }
        let mut parts = Vec::new();
        let mut rest = path;
        while !rest.is_empty() {
            let (literal, after) = match rest.find(['{', '}']) {
                None => (rest, ""),
                Some(at) => rest.split_at(at),
            };
            check_literal(literal)?;
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.into()));
            }
            if after.is_empty() {
                break;
            }
            let inner = after.strip_prefix('{').ok_or("a } without its {")?;
            let (name, after) = inner.split_once('}').ok_or("a { without its }")?;
            let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
            if name.is_empty() || !name.bytes().all(is_name_byte) {
                return Err("a placeholder is {name}, of letters, digits and _.-");
            }
            parts.push(Part::Placeholder(name.into()));
            rest = after;
        }
        let literals: String = parts
            .iter()
            .map(|part| match part {
                Part::Literal(text) => text,
                // Anything that is no dot and no slash.
                Part::Placeholder(_) => "x",
            })
            .collect();
        if has_dot_segment(&literals) {
            return Err("a path has no segments . and ..");
        }
        Ok(Self { parts })
    }

    /// The names of the placeholders.
    pub(super) fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Placeholder(name) => Some(&**name),
            Part::Literal(_) => None,
        })
    }
}

fn check_literal(text: &str) -> Result<(), &'static str> {
    // RFC 3986 section 3.3, pchar and the slash.
    let is_path_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@%/".contains(&byte);
    if text.bytes().all(is_path_byte) {
        Ok(())
    } else {
        Err("a path holds no query and no characters that must be percent-encoded")
    }
}

/// Whether a segment is `.` or `..`, percent-encoded or not.
pub(super) fn has_dot_segment(path: &str) -> bool {
    path.split('/').any(|segment| {
        let plain = segment.replace("%2e", ".").replace("%2E", ".");
        plain == "." || plain == ".."
    })
}

impl Routing {
    /// Reads and checks what a declaration says.
    pub(super) fn new(
        path: &str,
        method: &str,
        metadata: &Metadata,
        input: Option<&InputSchema>,
    ) -> Result<Self, Vec<SchemaFault>> {
        let mut faults = Vec::new();
        let mut fault = |pointer: &str, text: String| {
            faults.push(SchemaFault::new(Reason::RoutingContract, pointer, text));
        };
        const ROUTING: &str = "/toolMetadata/routing";
        let template = Template::parse(path)
            .map_err(|text| fault("/path", text.to_owned()))
            .ok();
        let mut locations = metadata.parameters.as_ref().map(|_| BTreeMap::new());
        for (name, word) in metadata.parameters.iter().flatten() {
            let at = format!(
                "{ROUTING}/parameters/{}",
                name.replace('~', "~0").replace('/', "~1")
            );
            match Location::from_name(word) {
                None => {
                    let text = "a location is path, query, queryEach, queryJoined, header, cookie \
                                or body";
                    fault(&at, text.to_owned());
                }
                Some(location) => {
                    if let Err(text) = check_name(name, location) {
                        fault(&at, text.to_owned());
                    }
                    if let Some(locations) = &mut locations {
                        locations.insert(Box::from(name.as_str()), location);
                    }
                }
            }
        }
        if let Some(template) = &template {
            let is_mapped = |name: &str| {
                let locations = locations.as_ref();
                locations.and_then(|all| all.get(name)) == Some(&Location::Path)
            };
            for name in template.placeholders().filter(|name| !is_mapped(name)) {
                fault(
                    "/path",
                    format!("the placeholder {{{name}}} has no parameter in the path"),
                );
            }
            let names: BTreeSet<&str> = template.placeholders().collect();
            for (name, location) in locations.iter().flatten() {
                if *location == Location::Path && !names.contains(&**name) {
                    fault("/path", format!("the path has no placeholder for {name}"));
                }
            }
        }
        let unmapped = match metadata.unmapped.as_deref() {
            None | Some("methodDefault") => Unmapped::MethodDefault,
            Some("query") => Unmapped::Query,
            Some("body") => Unmapped::Body,
            Some("reject") => Unmapped::Reject,
            Some(_) => {
                let text = "it is none of methodDefault, query, body, reject";
                fault(&format!("{ROUTING}/unmappedArguments"), text.to_owned());
                Unmapped::MethodDefault
            }
        };
        let is_body_of_fields = match metadata.body_mode.as_deref() {
            None | Some("legacyWhole") => false,
            Some("fields") => true,
            Some(_) => {
                let text = "it is neither legacyWhole nor fields";
                fault(&format!("{ROUTING}/bodyMappingMode"), text.to_owned());
                false
            }
        };
        if unmapped == Unmapped::Body && matches!(method, "GET" | "HEAD") {
            let text = format!("{method} has no body that unmapped arguments could be in");
            fault(&format!("{ROUTING}/unmappedArguments"), text);
        }
        if unmapped == Unmapped::Reject && input.is_some_and(|input| !input.is_closed) {
            let text = "reject needs an inputSchema whose root has additionalProperties or \
                        unevaluatedProperties false";
            fault(&format!("{ROUTING}/unmappedArguments"), text.to_owned());
        }
        if metadata.is_complete
            && let Some(input) = input
        {
            faults.extend(incomplete(input, locations.as_ref()));
        }
        match template {
            Some(template) if faults.is_empty() => Ok(Self {
                template,
                locations,
                unmapped,
                is_body_of_fields,
            }),
            _ => Err(faults),
        }
    }
}

/// `requireCompleteParameterMappings`: every property of the root has a location.
fn incomplete(
    input: &InputSchema,
    locations: Option<&BTreeMap<Box<str>, Location>>,
) -> Vec<SchemaFault> {
    let at = "/toolMetadata/routing/requireCompleteParameterMappings";
    if input.is_open_ended {
        let text = "the root takes properties that it does not name";
        return vec![SchemaFault::new(Reason::RoutingAnalysis, at, text)];
    }
    let names = input.property_names.iter();
    names
        .filter(|name| locations.is_none_or(|all| !all.contains_key(*name)))
        .map(|name| {
            let text = format!("the property {name} has no location");
            SchemaFault::new(Reason::RoutingContract, at, text)
        })
        .collect()
}

fn check_name(name: &str, location: Location) -> Result<(), &'static str> {
    // RFC 9110 section 5.6.2.
    let is_token_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_token = !name.is_empty() && name.bytes().all(is_token_byte);
    match location {
        Location::Header if !is_token => Err("the name is not a header name"),
        Location::Header if is_forbidden_header(name) => Err("no argument may set this header"),
        Location::Cookie if !is_token || name.starts_with('$') => {
            Err("the name is not a cookie name")
        }
        _ => Ok(()),
    }
}

fn is_forbidden_header(name: &str) -> bool {
    let is_listed = FORBIDDEN_HEADERS
        .iter()
        .any(|header| header.eq_ignore_ascii_case(name));
    is_listed || is_protected_header(name)
}
