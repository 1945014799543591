//! The compiled schemas of one tool: what goes in, what comes out.

use std::fmt;

use jsonschema::{PatternOptions, Validator};
use serde_json::{Value, json};

use super::{
    Reason, SchemaFault, SchemaLimits, advertise,
    check::{self, Survey, compact_len},
    diagnose,
    graph::{self, RootProperties, walk},
    mask::{self, MaskPlan},
    pattern::REGEX_BYTES_MAX,
    pointer::{self, Reference, resolve},
};
use crate::mcp::header_schema::{InvalidMark, ParamHeader, headers_in};

/// Instance nodes times branches up to which all errors are looked for: each of them costs
/// memory.
const DIAGNOSED_MAX: usize = 1 << 16;

/// One compiled schema.
pub struct Schema {
    validator: Validator,
    /// As clients see it.
    advertised: Value,
    /// Steps of a walk through it: what checking one byte of an instance may cost.
    pub(super) visits: usize,
    branches: usize,
    /// A schema in it contains itself, so the cost has no bound that its size would tell.
    pub(super) is_recursive: bool,
}

impl fmt::Debug for Schema {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Schema")
            .field("visits", &self.visits)
            .finish_non_exhaustive()
    }
}

/// What is left of a walk for the makers of the two kinds.
struct Parts {
    schema: Schema,
    headers: Vec<ParamHeader>,
    mask: MaskPlan,
    root: RootProperties,
}

impl Schema {
    /// Whether `instance` conforms.
    ///
    /// # Errors
    /// Diagnostics without values, when it does not.
    pub fn check(&self, instance: &Value) -> Result<(), String> {
        if self.validator.is_valid(instance) {
            return Ok(());
        }
        let cost = nodes(instance).saturating_mul(self.branches.max(1));
        if cost <= DIAGNOSED_MAX {
            return Err(diagnose::describe(self.validator.iter_errors(instance)));
        }
        if self.branches == 0
            && let Err(first) = self.validator.validate(instance)
        {
            return Err(diagnose::describe(std::iter::once(first)));
        }
        Err("/: too large to say where".to_owned())
    }

    /// What clients are shown.
    #[must_use]
    pub fn advertised(&self) -> &Value {
        &self.advertised
    }

    /// What checking an instance of this many bytes may cost, in steps; `None`: nobody can tell.
    #[must_use]
    pub fn cost(&self, instance_bytes: usize) -> Option<usize> {
        (!self.is_recursive).then(|| instance_bytes.saturating_mul(self.visits))
    }
}

/// `inputSchema` of a tool.
#[derive(Debug)]
pub struct InputSchema {
    /// What arguments are checked with.
    pub schema: Schema,
    /// Arguments repeated in headers.
    pub headers: Vec<ParamHeader>,
    mask: MaskPlan,
    /// Names of the root's properties, wherever in the schema they are declared.
    pub(crate) property_names: Vec<Box<str>>,
    /// The root takes properties of patterns or of a schema for any name.
    pub(crate) is_open_ended: bool,
    /// The root takes no property that it does not name.
    pub(crate) is_closed: bool,
}

impl InputSchema {
    /// Judges and compiles a tool's `inputSchema`; `None`: it has none.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn new(document: Option<&Value>, limits: &SchemaLimits) -> Result<Self, Vec<SchemaFault>> {
        let default = json!({"type": "object"});
        let document = document.unwrap_or(&default);
        let one = |reason, text: &str| Err(vec![SchemaFault::new(reason, "", text)]);
        match document {
            Value::Object(_) => {}
            Value::Bool(_) => {
                return one(
                    Reason::InputBooleanRoot,
                    "the root must be an object schema",
                );
            }
            _ => return one(Reason::InputNotObjectDocument, "it is not an object"),
        }
        let mut document = document.clone();
        let survey = check::survey(&document, limits);
        let mut faults = survey.faults.clone();
        if !is_budget_broken(&faults) && !says_object(&mut document, &survey) {
            let text = "the root must say \"type\": \"object\"";
            faults.push(SchemaFault::new(Reason::InputMissingObjectRoot, "", text));
        }
        let parts = compile(&document, &survey, faults, limits)?;
        let is_false = |keyword| document.get(keyword) == Some(&Value::Bool(false));
        Ok(Self {
            schema: parts.schema,
            headers: parts.headers,
            mask: parts.mask,
            property_names: parts
                .root
                .names
                .iter()
                .map(|name| name.as_str().into())
                .collect(),
            is_open_ended: parts.root.is_open_ended,
            is_closed: is_false("additionalProperties") || is_false("unevaluatedProperties"),
        })
    }

    /// Whether no argument is ever masked.
    #[must_use]
    pub fn masks_nothing(&self) -> bool {
        self.mask.is_empty()
    }

    /// Masks what must not reach a backend.
    pub fn mask(&self, arguments: &mut Value) {
        self.mask.apply(arguments);
    }
}

/// `outputSchema` of a tool.
#[derive(Debug)]
pub struct OutputSchema {
    /// What structured results are checked with.
    pub schema: Schema,
    /// Its root says `"type": "object"`, which older revisions ask for.
    pub is_object: bool,
}

/// A structured result that conforms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Structured {
    /// As it came.
    Whole,
    /// The array inside the wrapper `{"items": [...]}` conforms; the wrapper does not.
    InnerArray,
}

impl OutputSchema {
    /// Judges and compiles a tool's `outputSchema`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn new(document: &Value, limits: &SchemaLimits) -> Result<Self, Vec<SchemaFault>> {
        if !document.is_object() && !document.is_boolean() {
            let text = "it is not a schema";
            let reason = Reason::CompilationFailed;
            return Err(vec![SchemaFault::new(reason, "", text)]);
        }
        let survey = check::survey(document, limits);
        let faults = survey.faults.clone();
        let parts = compile(document, &survey, faults, limits)?;
        Ok(Self {
            schema: parts.schema,
            is_object: document.get("type").and_then(Value::as_str) == Some("object"),
        })
    }

    /// Checks a structured result, and the array in it when it is `{"items": [...]}` and does not
    /// conform itself (dual-profile.md 3.5).
    ///
    /// # Errors
    /// Diagnostics without values.
    pub fn check(&self, value: &Value) -> Result<Structured, String> {
        let Err(diagnostics) = self.schema.check(value) else {
            return Ok(Structured::Whole);
        };
        match items_of(value) {
            Some(items) if self.schema.validator.is_valid(items) => Ok(Structured::InnerArray),
            _ => Err(diagnostics),
        }
    }
}

/// The array in `{"items": [...]}`.
pub(crate) fn items_of(value: &Value) -> Option<&Value> {
    let members = value.as_object().filter(|members| members.len() == 1)?;
    members.get("items").filter(|items| items.is_array())
}

fn is_budget_broken(faults: &[SchemaFault]) -> bool {
    faults
        .iter()
        .any(|fault| fault.reason == Reason::BudgetExceeded)
}

/// Whether the root says that it is an object; one that says so only through `$ref` says it
/// itself from now on.
fn says_object(document: &mut Value, survey: &Survey) -> bool {
    let says = |schema: &Value| schema.get("type").and_then(Value::as_str) == Some("object");
    if says(document) {
        return true;
    }
    if document.get("type").is_some() {
        return false;
    }
    let mut target = document.get("$ref").and_then(Value::as_str);
    let mut is_found = false;
    // A chain cannot be longer than the document has references.
    for _ in 0..64 {
        let Some(reference) = target else { break };
        if Reference::of(reference) == Reference::External {
            break;
        }
        let Some(schema) = survey
            .target(reference)
            .and_then(|pointer| resolve(document, &pointer))
        else {
            break;
        };
        if says(schema) {
            is_found = true;
            break;
        }
        target = schema.get("$ref").and_then(Value::as_str);
    }
    if is_found && let Some(members) = document.as_object_mut() {
        members.insert("type".to_owned(), "object".into());
    }
    is_found
}

fn compile(
    document: &Value,
    survey: &Survey,
    mut faults: Vec<SchemaFault>,
    limits: &SchemaLimits,
) -> Result<Parts, Vec<SchemaFault>> {
    // Nothing walks through references that lead nowhere.
    let graph = walk(document, survey, limits);
    if survey.faults.is_empty() {
        faults.extend(graph.faults.iter().cloned());
    }
    let headers = match document.as_object() {
        // Nothing looks into a document that is too deep.
        Some(root) if !is_budget_broken(&faults) => headers_in(root),
        _ => Ok(Vec::new()),
    };
    let headers = headers
        .map_err(|marks| faults.extend(marks.into_iter().map(of_mark)))
        .ok();
    let mask = mask::plan(&graph);
    let mask = mask.map_err(|found| faults.extend(found)).ok();
    let validator = if faults.is_empty() {
        let built = build(document);
        built.map_err(|fault| faults.push(fault)).ok()
    } else {
        None
    };
    let (Some(headers), Some(mask), Some(validator)) = (headers, mask, validator) else {
        faults.sort_by(|left, right| left.pointer.cmp(&right.pointer));
        return Err(faults);
    };
    let mut advertised = document.clone();
    advertise::without_private(&mut advertised, survey);
    Ok(Parts {
        schema: Schema {
            validator,
            advertised,
            visits: graph.visits,
            branches: graph.branches,
            is_recursive: graph.is_recursive(),
        },
        headers,
        mask,
        root: graph::root_properties(document, survey),
    })
}

fn of_mark(mark: InvalidMark) -> SchemaFault {
    let at = pointer::join(&mark.pointer, "x-mcp-header");
    SchemaFault::new(Reason::AnnotationInvalid, at, mark.text)
}

fn build(document: &Value) -> Result<Validator, SchemaFault> {
    let options = jsonschema::options()
        .with_draft(jsonschema::Draft::Draft202012)
        .offline()
        .with_pattern_options(
            PatternOptions::regex()
                .size_limit(REGEX_BYTES_MAX)
                .dfa_size_limit(REGEX_BYTES_MAX),
        );
    options.build(document).map_err(|error| {
        // The place of what the dialect's own schema refuses is in the instance: our document.
        let pointer = error.instance_path().as_str().to_owned();
        let text = format!("the schema is not sound: {}", error.kind().keyword());
        SchemaFault::new(Reason::CompilationFailed, pointer, text)
    })
}

/// Values in a value, itself included.
fn nodes(value: &Value) -> usize {
    let mut count = 0;
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        count += 1;
        match value {
            Value::Array(elements) => left.extend(elements),
            Value::Object(members) => left.extend(members.values()),
            _ => {}
        }
    }
    count
}

/// Bytes of a value as compact JSON, for an estimate of what checking it costs.
#[must_use]
pub fn bytes_of(value: &Value) -> usize {
    compact_len(value)
}
