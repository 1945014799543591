//! The reader of user configurations in MessagePack, in every encoding found in the wild.
//!
//! Map form (control plane), array forms of 7, 8 and 9 fields (upstream's own writers), and any
//! mixture, by the rules of contextforge.md section 3.2. Bounded in bytes and counts; reserves no
//! memory by a length that the input claims; unknown values are skipped without recursion, so depth
//! needs no limit. JSON is not accepted here. Nothing of the content reaches an error.

mod reader;

use std::collections::BTreeMap;

use super::credential::BackendAuth;
use super::credential_mode::CredentialMode;
use super::user_config::{
    BACKEND_FIELDS, BACKEND_FIELDS_ALIASED, BackendConfig, BackendProtocol, BridgeMode, Transport,
    UrlFault, UserConfig, VirtualHost, check_url,
};
use crate::{
    declared::Tools,
    schema::{Reason, SchemaLimits},
    settings::FailMode,
};
use reader::{Reader, Shape};

/// Bounds of one user's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Longest document.
    pub bytes_max: usize,
    /// Most virtual hosts.
    pub virtual_host_count_max: usize,
    /// Most backends of one virtual host.
    pub backend_count_max: usize,
    /// Most entries of all lists and inner maps together: one byte of input costs many in memory.
    pub item_count_max: usize,
    /// Bounds of the schemas of declared tools.
    pub schema: SchemaLimits,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self {
            bytes_max: 4 * 1024 * 1024,
            virtual_host_count_max: 1024,
            backend_count_max: 256,
            item_count_max: 256 * 1024,
            schema: SchemaLimits::default(),
        }
    }
}

/// Why a document is not a user configuration. Positions are byte offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeFault {
    /// Longer than [`DecodeLimits::bytes_max`].
    #[error("the document has {bytes} bytes, more than {bytes_max}")]
    TooLong {
        /// Length of the document.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The document ends within a value.
    #[error("the document ends within a value")]
    Truncated,
    /// A value of another type than the field has; `null` is never allowed.
    #[error("expected {expected} at byte {at}")]
    UnexpectedType {
        /// Where the value starts.
        at: usize,
        /// What the field is.
        expected: &'static str,
    },
    /// A string that is not UTF-8.
    #[error("the string at byte {at} is not UTF-8")]
    NotUtf8 {
        /// Where the string starts.
        at: usize,
    },
    /// A required field is missing.
    #[error("the field `{field}` is missing in the value at byte {at}")]
    MissingField {
        /// Where the structure starts.
        at: usize,
        /// The field.
        field: &'static str,
    },
    /// A known field stands twice in one structure.
    #[error("a field is given twice at byte {at}")]
    DuplicateField {
        /// Where the second one starts.
        at: usize,
    },
    /// A positional structure with a number of fields that no layout has.
    #[error("no layout has {fields} fields in this place, at byte {at}")]
    UnknownLayout {
        /// Where the structure starts.
        at: usize,
        /// Its number of fields.
        fields: u32,
    },
    /// A backend's address is not an absolute URL.
    #[error("the backend at byte {at} has an invalid URL: {fault}")]
    InvalidUrl {
        /// Where the backend starts.
        at: usize,
        /// What is wrong with it.
        fault: UrlFault,
    },
    /// More virtual hosts than [`DecodeLimits::virtual_host_count_max`].
    #[error("too many virtual hosts")]
    TooManyVirtualHosts,
    /// More backends in a virtual host than [`DecodeLimits::backend_count_max`].
    #[error("too many backends in a virtual host")]
    TooManyBackends,
    /// A declared tool, or a rule about tools, is not sound.
    #[error("a declared tool is not sound: {reason}")]
    UnsoundTool {
        /// The reason code of the first fault.
        reason: &'static str,
    },
    /// A value nests deeper than it may.
    #[error("a value nests too deep at byte {at}")]
    TooDeep {
        /// Where it starts.
        at: usize,
    },
    /// More list entries than [`DecodeLimits::item_count_max`].
    #[error("too many list entries")]
    TooManyItems,
}

/// Reads one user configuration; bytes after it are ignored.
///
/// # Errors
/// When the bytes are not one, or exceed a limit.
pub fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<UserConfig, DecodeFault> {
    if bytes.len() > limits.bytes_max {
        return Err(DecodeFault::TooLong {
            bytes: bytes.len(),
            bytes_max: limits.bytes_max,
        });
    }
    let mut reader = Reader::new(bytes, limits.item_count_max);
    let hosts = |reader: &mut Reader<'_>| {
        let count = reader.map_length()?;
        if count as usize > limits.virtual_host_count_max {
            return Err(DecodeFault::TooManyVirtualHosts);
        }
        keyed(reader, count, |reader| virtual_host(reader, limits))
    };
    let virtual_hosts = sole_field(&mut reader, "virtual_hosts", hosts, |reader, _| {
        reader.skip()
    })?;
    Ok(UserConfig { virtual_hosts })
}

fn virtual_host(
    reader: &mut Reader<'_>,
    limits: &DecodeLimits,
) -> Result<VirtualHost, DecodeFault> {
    let backends = |reader: &mut Reader<'_>| {
        let count = reader.map_length()?;
        if count as usize > limits.backend_count_max {
            return Err(DecodeFault::TooManyBackends);
        }
        keyed(reader, count, backend)
    };
    let (mut failure_mode, mut teams) = (None, Vec::new());
    let mut protocols = None;
    let (mut tools, mut access_control, mut rules) = (None, None, None);
    let backends = sole_field(reader, "backends", backends, |reader, name| {
        match name {
            // As for `protocol`: a word that is not known says nothing.
            "failure_mode" => failure_mode = reader.text_or_skip()?.and_then(FailMode::from_name),
            // They say who may not come in, so what is no list of them is not ignored.
            "teams" => teams = reader.texts()?,
            // It says what is not served, likewise.
            "protocols" => {
                let at = reader.position();
                let read = serde_json::from_value(reader.value()?);
                protocols = Some(read.map_err(|_| DecodeFault::UnexpectedType {
                    at,
                    expected: "a sound `protocols` object",
                })?);
            }
            "tools" => tools = Some(reader.value()?),
            "access_control" => access_control = Some(reader.value()?),
            "rules" => rules = Some(reader.value()?),
            _ => reader.skip()?,
        }
        Ok(())
    })?;
    let unsound = |reason| DecodeFault::UnsoundTool { reason };
    let tools = tools.map(|tools| Tools::read(tools, &limits.schema));
    let tools = tools.transpose();
    let host = VirtualHost {
        backends,
        failure_mode,
        teams,
        protocols,
        tools: tools
            .map_err(|_| unsound(Reason::ConfigInvalid.code()))?
            .unwrap_or_default(),
        access_control,
        rules,
        ..VirtualHost::default()
    };
    match host.tool_faults().first() {
        Some(fault) => Err(unsound(fault.fault.reason.code())),
        None => Ok(host),
    }
}

/// A structure of one field: a map that has it among others, or an array of just its value.
fn sole_field<'a, T>(
    reader: &mut Reader<'a>,
    field: &'static str,
    mut value: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeFault>,
    mut other: impl FnMut(&mut Reader<'a>, &str) -> Result<(), DecodeFault>,
) -> Result<T, DecodeFault> {
    let at = reader.position();
    let count = match reader.shape()? {
        Shape::Array(1) => return value(reader),
        Shape::Array(fields) => return Err(DecodeFault::UnknownLayout { at, fields }),
        Shape::Map(count) => count,
    };
    let mut found = None;
    for _ in 0..count {
        let at = reader.position();
        let name = reader.field_name()?.unwrap_or_default();
        if name != field {
            other(reader, name)?;
        } else if found.replace(value(reader)?).is_some() {
            return Err(DecodeFault::DuplicateField { at });
        }
    }
    found.ok_or(DecodeFault::MissingField { at, field })
}

/// The entries of a map with string keys; of equal keys the last one stays, as for upstream.
fn keyed<'a, T>(
    reader: &mut Reader<'a>,
    count: u32,
    mut value: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeFault>,
) -> Result<BTreeMap<String, T>, DecodeFault> {
    let mut entries = BTreeMap::new();
    for _ in 0..count {
        let key = reader.text()?.to_owned();
        entries.insert(key, value(reader)?);
    }
    Ok(entries)
}

fn backend(reader: &mut Reader<'_>) -> Result<BackendConfig, DecodeFault> {
    let at = reader.position();
    let backend = match reader.shape()? {
        Shape::Map(count) => backend_from_map(reader, count, at)?,
        Shape::Array(fields) => backend_from_array(reader, fields, at)?,
    };
    // Other transports have addresses of other kinds, and their backends are skipped later.
    if backend.transport == Transport::StreamableHttp {
        match check_url(&backend.url) {
            // What upstream's URL reader takes but we do not is that backend's fault alone.
            Ok(()) | Err(UrlFault::Scheme | UrlFault::UserInfo | UrlFault::Character) => {}
            Err(fault) => return Err(DecodeFault::InvalidUrl { at, fault }),
        }
    }
    Ok(backend)
}

fn backend_from_map(
    reader: &mut Reader<'_>,
    count: u32,
    start: usize,
) -> Result<BackendConfig, DecodeFault> {
    let mut backend = BackendConfig::default();
    let mut seen = [false; BACKEND_FIELDS.len()];
    for _ in 0..count {
        let at = reader.position();
        let name = reader.field_name()?.unwrap_or_default();
        let mut aliases = BACKEND_FIELDS_ALIASED.iter();
        let name = aliases
            .find(|(alias, _)| *alias == name)
            .map_or(name, |(_, known)| known);
        let known = BACKEND_FIELDS
            .iter()
            .zip(&mut seen)
            .find(|(field, _)| **field == name);
        if let Some((_, is_seen)) = known
            && std::mem::replace(is_seen, true)
        {
            return Err(DecodeFault::DuplicateField { at });
        }
        match name {
            "name" => backend.name = reader.text()?.to_owned(),
            "url" => backend.url = reader.text()?.to_owned(),
            "passthrough_headers" => backend.passthrough_headers = reader.texts()?,
            "add_headers" => backend.add_headers = reader.text_map()?,
            "remove_headers" => backend.remove_headers = reader.texts()?,
            "allowed_tool_names" => backend.allowed_tool_names = reader.texts()?,
            "tool_name_aliases" => backend.tool_name_aliases = reader.text_map()?,
            "allowed_resource_names" => backend.allowed_resource_names = reader.texts()?,
            "allowed_prompt_names" => backend.allowed_prompt_names = reader.texts()?,
            "allowed_resource_uris" => backend.allowed_resource_uris = Some(reader.texts()?),
            // Two words decide; anything else, of any type, is ignored as HEAD ignores the field.
            "transport" => {
                let word = reader.text_or_skip()?.and_then(Transport::from_name);
                backend.transport = word.unwrap_or_default();
            }
            "protocol" => {
                backend.protocol = reader.text_or_skip()?.and_then(BackendProtocol::from_name);
            }
            "bridge" => {
                backend.bridge = reader.text_or_skip()?.and_then(BridgeMode::from_name);
            }
            "session_independent_tools" => {
                backend.session_independent_tools = reader.texts()?;
            }
            // Not looked at: it makes the backend unusable, see `credential`.
            "auth" => {
                reader.skip()?;
                backend.auth = Some(BackendAuth::Unread);
            }
            // A word that is not known is a mode that is not: without it the backend would get what
            // it is not meant to.
            "backend_credential_mode" => {
                let word = reader.text_or_skip()?.and_then(CredentialMode::from_name);
                backend.backend_credential_mode = Some(word.unwrap_or(CredentialMode::Exchange));
            }
            "backend_resource" => backend.backend_resource = Some(reader.text()?.to_owned()),
            _ => reader.skip()?,
        }
    }
    if seen.first() == Some(&false) {
        return Err(DecodeFault::MissingField {
            at: start,
            field: "url",
        });
    }
    Ok(backend)
}

/// 7 fields: before aliases; 8: SEED; both with the transport at index 2. 9: HEAD.
fn backend_from_array(
    reader: &mut Reader<'_>,
    fields: u32,
    at: usize,
) -> Result<BackendConfig, DecodeFault> {
    if !(7..=9).contains(&fields) {
        return Err(DecodeFault::UnknownLayout { at, fields });
    }
    let mut backend = BackendConfig {
        name: reader.text()?.to_owned(),
        url: reader.text()?.to_owned(),
        ..BackendConfig::default()
    };
    if fields < 9 {
        backend.transport = Transport::from_name(reader.text()?).unwrap_or_default();
    }
    backend.passthrough_headers = reader.texts()?;
    if fields == 9 {
        backend.add_headers = reader.text_map()?;
        backend.remove_headers = reader.texts()?;
    }
    backend.allowed_tool_names = reader.texts()?;
    if fields > 7 {
        backend.tool_name_aliases = reader.text_map()?;
    }
    backend.allowed_resource_names = reader.texts()?;
    backend.allowed_prompt_names = reader.texts()?;
    Ok(backend)
}
