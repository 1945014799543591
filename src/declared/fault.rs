//! What is wrong with a declared tool, for reports.

use std::fmt;

use serde::Serialize;

use crate::schema::{Reason, SchemaFault, SchemaKind};

/// One thing that is wrong with one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFault {
    /// The tool's name; its position in the list, as `#3`, when it has none.
    pub tool: String,
    /// Its position in the list; `None`: it is about no tool in particular.
    pub index: Option<usize>,
    /// Which part of it.
    pub kind: SchemaKind,
    /// Where in that part, why, and in words.
    pub fault: SchemaFault,
}

impl ToolFault {
    /// A fault of a configuration that is about no tool.
    #[must_use]
    pub fn other(text: impl Into<String>) -> Self {
        Self::configuration("", Reason::ConfigInvalid, "", text)
    }

    /// A fault of the declaration outside its schemas.
    pub(crate) fn configuration(
        tool: &str,
        reason: Reason,
        pointer: &str,
        text: impl Into<String>,
    ) -> Self {
        Self {
            tool: tool.to_owned(),
            index: None,
            kind: SchemaKind::Configuration,
            fault: SchemaFault::new(reason, pointer, text),
        }
    }
}

impl fmt::Display for ToolFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind.name(), self.fault)
    }
}

/// The shape of dual-profile.md 3.1.
impl Serialize for ToolFault {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;

        let mut fields = serializer.serialize_struct("ToolFault", 5)?;
        fields.serialize_field("toolName", &self.tool)?;
        fields.serialize_field("schemaKind", self.kind.name())?;
        fields.serialize_field("jsonPointer", &self.fault.pointer)?;
        fields.serialize_field("reasonCode", self.fault.reason.code())?;
        fields.serialize_field("reason", &self.fault.text)?;
        fields.end()
    }
}
