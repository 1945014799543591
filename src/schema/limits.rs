//! The bounds of one schema.

/// Bounds of one schema, with the names and defaults of dual-profile.md section 7.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaLimits {
    /// `maxSchemaBytes`: bytes of the schema as compact JSON.
    pub bytes_max: usize,
    /// `maxDepth`: nesting of the JSON document; a scalar and `{}` are 1.
    pub depth_max: usize,
    /// `maxSubschemas`: places in the document that are schemas.
    pub subschemas_max: usize,
    /// `maxCompositionBranches`: entries of all `allOf`, `anyOf` and `oneOf` that can be reached,
    /// counted again for each reference that leads to them.
    pub branches_max: usize,
    /// `maxSchemaGraphVisits`: steps of a walk through everything that can be reached.
    pub visits_max: usize,
}

impl Default for SchemaLimits {
    fn default() -> Self {
        Self {
            bytes_max: 1 << 20,
            depth_max: 64,
            subschemas_max: 4096,
            branches_max: 256,
            visits_max: 4096,
        }
    }
}
