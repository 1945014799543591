//! The declared tools of a virtual host, with the text they were made from.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use serde_json::Value;

use super::{fault::ToolFault, load, tool::Tool};
use crate::schema::{Reason, SchemaLimits};

/// Tools of one virtual host at the most (`maxToolsListItems`, dual-profile.md 7).
const TOOLS_MAX: usize = 1024;

/// `tools` of a virtual host: judged and compiled when it is read.
#[derive(Debug, Clone, Default)]
pub struct Tools(Option<Arc<Loaded>>);

#[derive(Debug)]
struct Loaded {
    /// As it was written, for those who write it again.
    source: Value,
    count: usize,
    tools: Vec<Arc<Tool>>,
    faults: Vec<ToolFault>,
}

/// What `shardgate config check` tells of tools (dual-profile.md 3.1).
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Nothing is wrong.
    pub valid: bool,
    /// Tools looked at.
    pub tools_checked: usize,
    /// What is wrong.
    pub errors: Vec<ToolFault>,
}

impl Tools {
    /// Judges a list of declarations, or a string that holds one as JSON, whose schemas are held to
    /// these bounds.
    ///
    /// # Errors
    /// When it is neither.
    pub fn read(source: Value, limits: &SchemaLimits) -> Result<Self, &'static str> {
        const NEITHER: &str = "tools is a list of declarations, or a string with one";
        let unquoted;
        let list = match &source {
            Value::Array(list) => list,
            Value::String(text) => {
                unquoted = serde_json::from_str::<Vec<Value>>(text).map_err(|_| NEITHER)?;
                &unquoted
            }
            _ => return Err(NEITHER),
        };
        let mut faults = Vec::new();
        if list.len() > TOOLS_MAX {
            let text = format!("more than {TOOLS_MAX} tools");
            faults.push(ToolFault::configuration(
                "",
                Reason::ConfigInvalid,
                "",
                text,
            ));
        }
        let mut tools = Vec::new();
        for (index, declaration) in list.iter().take(TOOLS_MAX).enumerate() {
            match load::tool(declaration, index, limits) {
                Ok(tool) => tools.push(Arc::new(tool)),
                Err(found) => faults.extend(found),
            }
        }
        faults.extend(duplicates(list));
        let count = list.len();
        Ok(Self(Some(Arc::new(Loaded {
            source,
            count,
            tools,
            faults,
        }))))
    }

    /// The same tools, their schemas held to these bounds instead of the usual ones.
    #[must_use]
    pub fn judged(self, limits: &SchemaLimits) -> Self {
        match self.source() {
            // It was a list, and is one.
            Some(source) if *limits != SchemaLimits::default() => {
                Self::read(source.clone(), limits).unwrap_or_default()
            }
            _ => self,
        }
    }

    /// Whether the virtual host says nothing of tools.
    #[must_use]
    pub fn is_unsaid(&self) -> bool {
        self.0.is_none()
    }

    /// The sound ones, in the order they were written.
    #[must_use]
    pub fn tools(&self) -> &[Arc<Tool>] {
        self.0.as_ref().map_or(&[], |loaded| &loaded.tools)
    }

    /// How many were declared.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.as_ref().map_or(0, |loaded| loaded.count)
    }

    /// What is wrong with the others.
    #[must_use]
    pub fn faults(&self) -> &[ToolFault] {
        self.0.as_ref().map_or(&[], |loaded| &loaded.faults)
    }

    /// As it was written.
    #[must_use]
    pub fn source(&self) -> Option<&Value> {
        self.0.as_ref().map(|loaded| &loaded.source)
    }
}

/// Each declaration after the first of its name.
fn duplicates(list: &[Value]) -> Vec<ToolFault> {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let mut faults = Vec::new();
    for (index, declaration) in list.iter().enumerate() {
        let Some(name) = declaration.get("name").and_then(Value::as_str) else {
            continue;
        };
        if let Some(first) = first.get(name) {
            let text = format!("the tool #{first} has the same name");
            let mut fault =
                ToolFault::configuration(name, Reason::DuplicateToolName, "/name", text);
            fault.index = Some(index);
            faults.push(fault);
        } else {
            first.insert(name, index);
        }
    }
    faults
}

impl PartialEq for Tools {
    fn eq(&self, other: &Self) -> bool {
        self.source() == other.source()
    }
}

impl Eq for Tools {}

impl Serialize for Tools {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.source().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Tools {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let source = Value::deserialize(deserializer)?;
        Self::read(source, &SchemaLimits::default()).map_err(D::Error::custom)
    }
}
