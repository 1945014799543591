//! What may be wrong with a tool's schemas or its declaration: one reason code each.

use std::fmt;

/// Which part of a tool a fault is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SchemaKind {
    /// `inputSchema`.
    Input,
    /// `outputSchema`.
    Output,
    /// Anything else of the declaration.
    Configuration,
}

impl SchemaKind {
    /// The word in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "inputSchema",
            Self::Output => "outputSchema",
            Self::Configuration => "configuration",
        }
    }
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $name:ident => $code:literal),+ $(,)?) => {
        /// Why a tool is refused (dual-profile.md section 3.1).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[doc = $doc])* $name,)+
        }

        impl Reason {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The code in reports.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)+
                }
            }
        }
    };
}

reasons! {
    /// The name is not 1 to 128 of `[A-Za-z0-9_.-]`.
    ToolNameInvalid => "TOOL_NAME_INVALID",
    /// Two tools of a virtual host have one name.
    DuplicateToolName => "DUPLICATE_TOOL_NAME",
    /// `inputSchema` is neither an object nor a boolean.
    InputNotObjectDocument => "INPUT_SCHEMA_NOT_OBJECT_DOCUMENT",
    /// `inputSchema` is `true` or `false`.
    InputBooleanRoot => "INPUT_SCHEMA_BOOLEAN_ROOT",
    /// `inputSchema` does not say `"type": "object"` at its root.
    InputMissingObjectRoot => "INPUT_SCHEMA_MISSING_OBJECT_ROOT",
    /// Too long, too deep, or too many subschemas.
    BudgetExceeded => "SCHEMA_BUDGET_EXCEEDED",
    /// `$schema` names another dialect.
    UnsupportedDialect => "UNSUPPORTED_DIALECT",
    /// `$schema` below the root.
    NestedDialect => "NESTED_DIALECT_UNSUPPORTED",
    /// `$id` below the root.
    NestedId => "NESTED_ID_UNSUPPORTED",
    /// `$dynamicAnchor`.
    AnchorReference => "ANCHOR_REFERENCE_UNSUPPORTED",
    /// `$dynamicRef` or `$recursiveRef`.
    DynamicReference => "DYNAMIC_REFERENCE_UNSUPPORTED",
    /// `$ref` to another document.
    ExternalReference => "EXTERNAL_REFERENCE_DISABLED",
    /// `$ref` to a place that the document does not have.
    UnresolvedReference => "UNRESOLVED_LOCAL_REFERENCE",
    /// Following references takes too many steps.
    GraphVisits => "SCHEMA_GRAPH_VISIT_LIMIT_EXCEEDED",
    /// Too many branches of `allOf`, `anyOf` and `oneOf`.
    CompositionBranches => "COMPOSITION_BRANCH_LIMIT_EXCEEDED",
    /// It is not a schema, or a regular expression cannot be compiled.
    CompilationFailed => "SCHEMA_COMPILATION_FAILED",
    /// `x-mcp-header`, `x-mask`, `x-mask-pattern` or `x-sensitive` where or as it may not be.
    AnnotationInvalid => "SCHEMA_ANNOTATION_INVALID",
    /// Where arguments go in an HTTP request contradicts itself or the schema.
    RoutingContract => "MCP_ROUTING_CONTRACT_INVALID",
    /// The schema does not tell which arguments there are.
    RoutingAnalysis => "SCHEMA_ROUTING_ANALYSIS_FAILED",
    /// Anything else in the declaration.
    ConfigInvalid => "MCP_CONFIG_INVALID",
}

/// One thing that is wrong with a schema.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SchemaFault {
    /// Where, as a JSON pointer (RFC 6901) into the schema.
    pub pointer: String,
    /// Why.
    pub reason: Reason,
    /// The same in words. Holds no values.
    pub text: String,
}

impl SchemaFault {
    pub(crate) fn new(reason: Reason, pointer: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            reason,
            text: text.into(),
        }
    }
}

impl fmt::Display for SchemaFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} at \"{}\": {}",
            self.reason.code(),
            self.pointer,
            self.text
        )
    }
}
