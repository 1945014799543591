//! The schema contract of tools: what is accepted and refused at load, what is said about values
//! that do not conform, which arguments headers mirror, and what is masked.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "schema/bounds.rs"]
mod bounds;
#[path = "schema/contract.rs"]
mod contract;
#[path = "schema/diagnostics.rs"]
mod diagnostics;
#[path = "schema/headers.rs"]
mod headers;
#[path = "schema/masks.rs"]
mod masks;

use serde_json::Value;
use shardgate::schema::{InputSchema, OutputSchema, Reason, SchemaFault, SchemaLimits};

fn input(schema: &Value) -> Result<InputSchema, Vec<SchemaFault>> {
    InputSchema::new(Some(schema), &SchemaLimits::default())
}

fn output(schema: &Value) -> Result<OutputSchema, Vec<SchemaFault>> {
    OutputSchema::new(schema, &SchemaLimits::default())
}

/// Reasons and places of what is wrong with an input schema.
fn faults(schema: &Value) -> Vec<(Reason, String)> {
    let faults = input(schema).err().unwrap_or_default();
    faults
        .into_iter()
        .map(|fault| (fault.reason, fault.pointer))
        .collect()
}
