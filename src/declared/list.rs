//! Declared tools in lists.

use serde_json::{Map, Value};

use super::{
    served::Declared,
    tool::{Kind, Tool},
};
use crate::{mcp::json, policy::Claims};

/// Which rules the client's revision has for what it is shown (dual-profile.md 1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Revisions with sessions: a structured result is an object.
    Legacy,
    /// Revision 2026-07-28: a structured result is any value.
    Stateless,
}

/// One tool of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListItem<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its descriptor, a JSON object.
    pub object: &'a [u8],
}

/// The tools this caller may see, by ascending name.
pub fn list_items<'a>(
    declared: &'a Declared,
    claims: &'a Claims,
    profile: Profile,
) -> impl Iterator<Item = ListItem<'a>> {
    declared.shown(claims).map(move |served| ListItem {
        name: &served.tool.name,
        object: served.tool.descriptors.of(profile),
    })
}

/// Puts the declared tools into a page of a merged list, whose elements stand by ascending name.
/// Elements of a declared tool's name are left out, for calls by it never reach their backend, and
/// so are those that access rules hide. The declared tools are all on the first page. Gives the
/// array and its length.
#[must_use]
pub fn weave(
    array: &[u8],
    declared: &Declared,
    claims: &Claims,
    profile: Profile,
    is_first: bool,
) -> (Vec<u8>, usize) {
    let mut count = 0;
    let mut out = Vec::with_capacity(array.len() + 256);
    out.push(b'[');
    let mut add = |object: &[u8]| {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(object);
        count += 1;
    };
    let mut own = list_items(declared, claims, profile)
        .filter(|_| is_first)
        .peekable();
    for element in json::elements(array) {
        let Ok(element) = element else { break };
        let object = element.slice(array);
        let name = json::member(object, "name").map(|at| at.slice(object));
        let name = name.and_then(json::unescape).unwrap_or_default();
        if declared.find(&name).is_some() || !declared.shows_relayed(&name, claims) {
            continue;
        }
        while let Some(item) = own.next_if(|item| item.name < &*name) {
            add(item.object);
        }
        add(object);
    }
    own.for_each(|item| add(item.object));
    out.push(b']');
    (out, count)
}

/// A tool's descriptor for both profiles, made once.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    legacy: Box<[u8]>,
    stateless: Box<[u8]>,
}

impl Descriptors {
    pub(super) fn new(tool: &Tool) -> Self {
        Self {
            legacy: descriptor(tool, Profile::Legacy),
            stateless: descriptor(tool, Profile::Stateless),
        }
    }

    fn of(&self, profile: Profile) -> &[u8] {
        match profile {
            Profile::Legacy => &self.legacy,
            Profile::Stateless => &self.stateless,
        }
    }
}

fn descriptor(tool: &Tool, profile: Profile) -> Box<[u8]> {
    let mut object = Map::new();
    object.insert("name".to_owned(), (*tool.name).into());
    if let Some(title) = &tool.title {
        object.insert("title".to_owned(), (**title).into());
    }
    object.insert("description".to_owned(), (*tool.description).into());
    let input = tool.input.schema.advertised().clone();
    object.insert("inputSchema".to_owned(), input);
    // Older revisions know objects only (mcp.md 2.9).
    let output = tool.output.as_ref();
    if let Some(output) = output.filter(|one| one.is_object || profile == Profile::Stateless) {
        let advertised = output.schema.advertised().clone();
        object.insert("outputSchema".to_owned(), advertised);
    }
    let hints = hints(tool);
    if !hints.is_empty() {
        object.insert("annotations".to_owned(), Value::Object(hints));
    }
    Value::Object(object).to_string().into_bytes().into()
}

/// What the declaration says of the tool's effects.
fn hints(tool: &Tool) -> Map<String, Value> {
    let mut hints = Map::new();
    for (name, said) in [
        ("readOnlyHint", tool.safety.read_only),
        ("destructiveHint", tool.safety.destructive),
        ("idempotentHint", tool.safety.idempotent),
    ] {
        if let Some(said) = said {
            hints.insert(name.to_owned(), said.into());
        }
    }
    if matches!(tool.kind, Kind::Http(_)) && !hints.is_empty() {
        hints.insert("openWorldHint".to_owned(), true.into());
    }
    hints
}
