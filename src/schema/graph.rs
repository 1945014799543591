//! The walk through everything a schema can apply to an instance, references followed. It is
//! bounded in steps and branches, and collects the annotations with the places in the instance
//! that they are about.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    Reason, SchemaFault, SchemaLimits,
    check::Survey,
    keywords::{Applies, subschemas},
    pointer::{self, resolve},
};

/// One step from an instance to a part of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// The property of this name.
    Name(Box<str>),
    /// The properties whose names match this expression.
    Pattern(Box<str>),
    /// Properties of any name.
    AnyName,
    /// The element at this index.
    Index(usize),
    /// Elements at any index.
    AnyIndex,
}

/// How the walk came to a schema.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Where the instance part is.
    pub(super) path: Vec<Step>,
    /// It maps to no instance, or says the opposite of what it seems to.
    pub(super) is_elsewhere: bool,
}

/// A schema with an annotation of ours.
#[derive(Debug)]
pub(super) struct Annotated<'a> {
    /// Its JSON pointer.
    pub(super) pointer: String,
    /// How it was reached.
    pub(super) place: Place,
    /// The references on the way.
    references: Vec<String>,
    /// It lies inside a schema that contains itself.
    pub(super) is_recursive: bool,
    /// Itself.
    pub(super) schema: &'a Map<String, Value>,
}

/// What the walk found.
#[derive(Debug, Default)]
pub(super) struct Graph<'a> {
    /// Schemas with annotations, in the order of the walk; once for each way to them.
    pub(super) annotated: Vec<Annotated<'a>>,
    /// Steps taken.
    pub(super) visits: usize,
    /// Branches of compositions met.
    pub(super) branches: usize,
    /// Targets of references that contain themselves.
    recursive: BTreeSet<String>,
    /// What is wrong.
    pub(super) faults: Vec<SchemaFault>,
}

impl Graph<'_> {
    /// Whether some schema contains itself.
    pub(super) fn is_recursive(&self) -> bool {
        !self.recursive.is_empty()
    }
}

/// Nesting of the walk, references included: it runs on the stack.
const WALK_DEPTH_MAX: usize = 256;

const ANNOTATIONS: [&str; 4] = ["x-mcp-header", "x-mask", "x-mask-pattern", "x-sensitive"];

/// Walks a document whose [`Survey`] found no fault.
pub(super) fn walk<'a>(document: &'a Value, survey: &Survey, limits: &SchemaLimits) -> Graph<'a> {
    let mut walker = Walker {
        document,
        survey,
        limits,
        // The root is a target as any other: `#`.
        active: vec![String::new()],
        depth: 0,
        graph: Graph::default(),
    };
    let root = Place {
        path: Vec::new(),
        is_elsewhere: false,
    };
    walker.visit(document, "", &root);
    let mut graph = walker.graph;
    for annotated in &mut graph.annotated {
        let mut references = annotated.references.iter();
        annotated.is_recursive = references.any(|target| graph.recursive.contains(target));
    }
    graph
}

struct Walker<'a, 'b> {
    document: &'a Value,
    survey: &'b Survey,
    limits: &'b SchemaLimits,
    /// Targets of the references that are being followed.
    active: Vec<String>,
    depth: usize,
    graph: Graph<'a>,
}

impl<'a> Walker<'a, '_> {
    /// False: a limit was met, and the walk is over.
    fn visit(&mut self, schema: &'a Value, at: &str, place: &Place) -> bool {
        self.graph.visits += 1;
        let text = if self.graph.visits > self.limits.visits_max {
            let count = self.limits.visits_max;
            format!("more than {count} steps through references and subschemas")
        } else if self.depth >= WALK_DEPTH_MAX {
            format!("references and subschemas nest deeper than {WALK_DEPTH_MAX}")
        } else {
            self.depth += 1;
            let is_whole = self.visit_members(schema, at, place);
            self.depth -= 1;
            return is_whole;
        };
        let fault = SchemaFault::new(Reason::GraphVisits, at, text);
        self.graph.faults.push(fault);
        false
    }

    fn visit_members(&mut self, schema: &'a Value, at: &str, place: &Place) -> bool {
        let Some(members) = schema.as_object() else {
            return true;
        };
        if ANNOTATIONS.iter().any(|name| members.contains_key(*name)) {
            self.graph.annotated.push(Annotated {
                pointer: at.to_owned(),
                place: place.clone(),
                references: self.active.clone(),
                is_recursive: false,
                schema: members,
            });
        }
        if let Some(Value::String(reference)) = members.get("$ref")
            && let Some(target) = self.survey.target(reference)
        {
            if self.active.contains(&target) {
                self.graph.recursive.insert(target);
            } else if let Some(schema) = resolve(self.document, &target) {
                self.active.push(target.clone());
                let is_whole = self.visit(schema, &target, place);
                self.active.pop();
                if !is_whole {
                    return false;
                }
            }
        }
        let mut below = Vec::new();
        subschemas(members, at, &mut |at, applies, schema| {
            below.push((at, applies, schema));
        });
        for (at, applies, schema) in below {
            if applies == Applies::Branch {
                self.graph.branches += 1;
                if self.graph.branches > self.limits.branches_max {
                    let text = format!(
                        "more than {} branches of allOf, anyOf and oneOf",
                        self.limits.branches_max
                    );
                    let reason = Reason::CompositionBranches;
                    self.graph.faults.push(SchemaFault::new(reason, at, text));
                    return false;
                }
            }
            if let Some(place) = place.beyond(&applies)
                && !self.visit(schema, &at, &place)
            {
                return false;
            }
        }
        true
    }
}

impl Place {
    /// The place of a subschema; `None`: it applies to nothing from here.
    fn beyond(&self, applies: &Applies<'_>) -> Option<Self> {
        let mut place = self.clone();
        match applies {
            Applies::Property(name) => place.path.push(Step::Name((*name).into())),
            Applies::PatternProperty(text) => place.path.push(Step::Pattern((*text).into())),
            Applies::AnyProperty => place.path.push(Step::AnyName),
            Applies::Element(index) => place.path.push(Step::Index(*index)),
            Applies::AnyElement => place.path.push(Step::AnyIndex),
            Applies::Same | Applies::Branch => {}
            Applies::Asked | Applies::Elsewhere => place.is_elsewhere = true,
            Applies::Definition => return None,
        }
        Some(place)
    }
}

/// The names a reader of the schema may use for the root's properties, wherever they are declared.
#[derive(Debug, Default)]
pub(super) struct RootProperties {
    /// Names.
    pub(super) names: BTreeSet<String>,
    /// There may be others: `patternProperties`, or a schema for any name.
    pub(super) is_open_ended: bool,
}

/// The properties of the instance's root that a schema declares anywhere.
pub(super) fn root_properties(document: &Value, survey: &Survey) -> RootProperties {
    let mut found = RootProperties::default();
    // Each schema once is enough: the set of names does not depend on the way to them.
    let mut seen = BTreeSet::new();
    let mut left = vec![String::new()];
    while let Some(at) = left.pop() {
        if !seen.insert(at.clone()) {
            continue;
        }
        let Some(members) = resolve(document, &at).and_then(Value::as_object) else {
            continue;
        };
        if let Some(Value::String(reference)) = members.get("$ref") {
            left.extend(survey.target(reference));
        }
        subschemas(members, &at, &mut |at, applies, schema| match applies {
            Applies::Property(name) => {
                found.names.insert(name.to_owned());
            }
            Applies::PatternProperty(_) => found.is_open_ended = true,
            // `true` and `false` close or open, and name nothing.
            Applies::AnyProperty => found.is_open_ended |= schema.is_object(),
            Applies::Same | Applies::Branch => left.push(at),
            _ => {}
        });
    }
    found
}

/// A fault at a keyword of an annotated schema.
pub(super) fn misplaced(
    annotated: &Annotated<'_>,
    keyword: &str,
    text: impl Into<String>,
) -> SchemaFault {
    let at = pointer::join(&annotated.pointer, keyword);
    SchemaFault::new(Reason::AnnotationInvalid, at, text)
}
