//! `toolMetadata` of a declared tool: what of it is heeded. The rest describes the tool to people
//! and catalogs, and is left alone.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use super::{retry::RetryPolicy, tool::Safety};

/// Longest time a tool may be given.
const TIMEOUT_MS_MAX: u64 = 600_000;

/// What is heeded.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    /// `routing.parameters`: argument to location, as written.
    pub(super) parameters: Option<BTreeMap<String, String>>,
    pub(super) unmapped: Option<String>,
    pub(super) body_mode: Option<String>,
    pub(super) is_complete: bool,
    pub(super) allows_private: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) retry: Option<RetryPolicy>,
    pub(super) safety: Safety,
}

/// Where and what is wrong.
pub(super) type Fault = (String, &'static str);

impl Metadata {
    /// Reads it. What has a known name must have the right type.
    pub(super) fn read(metadata: &Value) -> Result<Self, Vec<Fault>> {
        let mut reader = Reader {
            metadata,
            faults: Vec::new(),
        };
        let safety = Safety {
            read_only: reader.flag(&["/safety/read_only", "/safety/readOnly"]),
            destructive: reader.flag(&["/safety/destructive"]),
            idempotent: reader.flag(&["/safety/idempotent", "/idempotent"]),
        };
        let retry = ["retry", "retryPolicy", "retry_policy"]
            .iter()
            .find_map(|name| metadata.pointer(&format!("/runtime/{name}")));
        let found = Self {
            parameters: reader.parameters(),
            unmapped: reader.text("/routing/unmappedArguments"),
            body_mode: reader.text("/routing/bodyMappingMode"),
            is_complete: reader.flag(&["/routing/requireCompleteParameterMappings"]) == Some(true),
            allows_private: reader.flag(&["/runtime/allowPrivateTargetHost"]) == Some(true),
            timeout: reader.timeout(),
            retry: retry.and_then(|retry| {
                RetryPolicy::read(
                    retry,
                    safety.idempotent == Some(true),
                    safety.destructive == Some(true),
                )
            }),
            safety,
        };
        if !(metadata.is_object() || metadata.is_null()) {
            reader.faults.push((String::new(), "it must be an object"));
        }
        if reader.faults.is_empty() {
            Ok(found)
        } else {
            Err(reader.faults)
        }
    }
}

struct Reader<'a> {
    metadata: &'a Value,
    faults: Vec<Fault>,
}

impl Reader<'_> {
    /// The first of these that is there.
    fn flag(&mut self, pointers: &[&str]) -> Option<bool> {
        let (pointer, value) = pointers
            .iter()
            .find_map(|pointer| Some((*pointer, self.metadata.pointer(pointer)?)))?;
        if value.as_bool().is_none() {
            self.faults
                .push((pointer.to_owned(), "it must be true or false"));
        }
        value.as_bool()
    }

    fn text(&mut self, pointer: &str) -> Option<String> {
        let value = self.metadata.pointer(pointer)?;
        if !value.is_string() {
            self.faults
                .push((pointer.to_owned(), "it must be a string"));
        }
        value.as_str().map(str::to_owned)
    }

    fn timeout(&mut self) -> Option<Duration> {
        let pointer = "/runtime/timeoutMs";
        let value = self.metadata.pointer(pointer)?;
        let ms = value
            .as_u64()
            .filter(|ms| (1..=TIMEOUT_MS_MAX).contains(ms));
        if ms.is_none() {
            let text = "it must be a number of milliseconds from 1 to 600000";
            self.faults.push((pointer.to_owned(), text));
        }
        ms.map(Duration::from_millis)
    }

    fn parameters(&mut self) -> Option<BTreeMap<String, String>> {
        let pointer = "/routing/parameters";
        let value = self.metadata.pointer(pointer)?;
        let read = || {
            let members = value.as_object()?.iter();
            members
                .map(|(name, place)| Some((name.clone(), place.as_str()?.to_owned())))
                .collect::<Option<BTreeMap<_, _>>>()
        };
        let read = read();
        if read.is_none() {
            let text = "it must map names of arguments to locations";
            self.faults.push((pointer.to_owned(), text));
        }
        read
    }
}
