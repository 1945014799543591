//! The steps of a call of a declared tool, in the order of dual-profile.md 3.4: access, headers,
//! validation, masking, the call itself, filters, and the check of what came back. A backend is
//! asked by the frontend: it knows how its clients' calls reach backends.

use std::{rc::Rc, sync::Arc};

use serde_json::Value;

use super::{
    http::HttpCaller,
    list::Profile,
    mapping::MapFault,
    outcome::{ToolResult, conforming},
    served::{Declared, Route, Served},
    tool::Tool,
};
use crate::{
    mcp::mirror::check_params,
    policy::{Claims, Denial},
    schema::pool::{INLINE_STEPS_MAX, PoolFault, Timed, timed},
    shard_state::ShardState,
    upstream::{CallFault, cancel::Cancel},
};

/// Bytes of a JSON document up to which it is parsed where it is.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// Who calls.
#[derive(Debug)]
pub struct Asker<'a> {
    /// The shard.
    pub shard: &'a Rc<ShardState>,
    /// The claims of the caller's verified token; empty without one.
    pub claims: &'a Claims,
    /// Head of the client's request.
    pub client_head: &'a [u8],
    /// The client's profile.
    pub profile: Profile,
    /// Says when nobody wants the result any more.
    pub cancel: Option<&'a Cancel>,
}

/// Why there is no result at all: a JSON-RPC error. Texts hold no values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallRefusal {
    /// `arguments` is no JSON object.
    #[error("tools/call params.arguments must be an object")]
    Arguments,
    /// A number in the arguments has no exact value here.
    #[error("tools/call params.arguments has an integer of more than 64 bits")]
    Number,
    /// The caller may not call the tool.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// A header does not say what its argument says.
    #[error("Header mismatch: Mcp-Param")]
    Header,
    /// The arguments make no request.
    #[error(transparent)]
    Mapping(#[from] MapFault),
    /// The backend of the tool refused the call.
    #[error("the backend of the tool refused the call")]
    Backend(i64),
    /// The caller has cancelled the call.
    #[error("the request was cancelled")]
    Cancelled,
}

impl CallRefusal {
    /// Short name for metrics.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Denied(_) => "tool_denied",
            Self::Header => "tool_header",
            Self::Arguments | Self::Number | Self::Mapping(_) => "tool_arguments",
            Self::Backend(_) | Self::Cancelled => "tool_backend",
        }
    }

    /// The JSON-RPC code (dual-profile.md 1.6).
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            Self::Arguments | Self::Number | Self::Mapping(_) | Self::Backend(-32602) => -32602,
            Self::Denied(_) => -32001,
            Self::Header => -32020,
            Self::Backend(_) | Self::Cancelled => -32603,
        }
    }
}

/// Judges who calls and what with, before anything is sent. `arguments` is the raw value of the
/// request's member, if it has one. Gives the masked arguments, or the result that says what is
/// wrong with them.
///
/// # Errors
/// When there is no result, not even one that tells of an error.
pub async fn prepare(
    asker: &Asker<'_>,
    declared: &Declared,
    served: &Served,
    arguments: Option<&[u8]>,
) -> Result<Result<Value, ToolResult>, CallRefusal> {
    let shard = asker.shard;
    let numbers = &shard.numbers;
    numbers.declared_calls.add(1);
    // Before a word about the arguments: they are checked for those who may call (3.4).
    if let Some(raw) = arguments
        && !raw.trim_ascii().starts_with(b"{")
    {
        return Err(CallRefusal::Arguments);
    }
    admit(asker, declared, served)?;
    let raw = arguments.unwrap_or(b"{}").to_vec();
    if has_long_integer(&raw) {
        return Err(CallRefusal::Number);
    }
    let tool = &served.tool;
    let mirrored = match asker.profile {
        Profile::Stateless if !tool.input.headers.is_empty() => Some(asker.client_head.to_vec()),
        _ => None,
    };
    let cost = tool.input.schema.cost(raw.len());
    let is_small = raw.len() <= INLINE_BYTES_MAX && cost.is_some_and(|it| it <= INLINE_STEPS_MAX);
    let judge = {
        let tool = tool.clone();
        move || masked(&tool, &raw, mirrored.as_deref())
    };
    match run(shard, is_small, judge).await {
        Ok(judged) => Ok(judged?.map_err(|diagnostics| {
            numbers.arguments_invalid.add(1);
            let text = format!("Tool arguments did not conform to inputSchema: {diagnostics}");
            ToolResult::error(text)
        })),
        Err(fault) => Ok(Err(ToolResult::error(fault.to_string()))),
    }
}

/// Whether the caller may call the tool.
///
/// # Errors
/// When not.
pub fn admit(asker: &Asker<'_>, declared: &Declared, served: &Served) -> Result<(), CallRefusal> {
    declared.admit(served, asker.claims).map_err(|denial| {
        asker.shard.numbers.declared_denied.add(1);
        denial.into()
    })
}

/// Calls the HTTP API behind a tool with prepared arguments.
///
/// # Errors
/// When there is no result, not even one that tells of an error.
pub async fn ask_api(
    asker: &Asker<'_>,
    declared: &Declared,
    served: &Served,
    arguments: &Value,
) -> Result<ToolResult, CallRefusal> {
    let (shard, tool) = (asker.shard, &served.tool);
    let Route::Http { target, credential } = &served.route else {
        return Ok(ToolResult::error("the tool has no address"));
    };
    let caller = HttpCaller {
        shard,
        tool,
        target,
        credential: credential.as_ref(),
        client_head: asker.client_head,
        cancel: asker.cancel,
        may_repeat: tool
            .retry
            .as_ref()
            .is_some_and(|retry| retry.covers(arguments)),
    };
    let reply = match http(caller, arguments).await? {
        Ok(reply) => reply,
        Err(text) => {
            shard.numbers.calls_failed.add(1);
            return Ok(ToolResult::error(text));
        }
    };
    let is_small = reply.body.len() <= INLINE_BYTES_MAX;
    let read = move || ToolResult::of_http(reply.status, &reply.body);
    match run(shard, is_small, read).await {
        Ok(result) => Ok(finish(asker, declared, served, result).await),
        Err(fault) => Ok(ToolResult::error(fault.to_string())),
    }
}

/// What a raw result of the backend behind a tool comes to.
pub async fn of_backend(
    asker: &Asker<'_>,
    declared: &Declared,
    served: &Served,
    raw: Vec<u8>,
) -> ToolResult {
    let is_small = raw.len() <= INLINE_BYTES_MAX;
    let read = move || {
        let text = "the backend's reply is no result of a tool";
        ToolResult::of_mcp(&raw).unwrap_or_else(|| ToolResult::error(text))
    };
    match run(asker.shard, is_small, read).await {
        Ok(result) => finish(asker, declared, served, result).await,
        Err(fault) => ToolResult::error(fault.to_string()),
    }
}

/// What it comes to that the backend behind a tool gave no answer.
pub fn of_fault(asker: &Asker<'_>, fault: CallFault) -> ToolResult {
    asker.shard.numbers.calls_failed.add(1);
    ToolResult::error(format!("upstream failed: {fault}"))
}

/// Parsed, compared with its headers, validated and masked arguments.
type Masked = Result<Result<Value, String>, CallRefusal>;

fn masked(tool: &Tool, raw: &[u8], mirrored: Option<&[u8]>) -> Masked {
    let mut arguments: Value = serde_json::from_slice(raw).map_err(|_| CallRefusal::Arguments)?;
    if let Some(client_head) = mirrored {
        let mirrored = check_params(client_head, &tool.input.headers, Some(raw));
        mirrored.map_err(|_| CallRefusal::Header)?;
    }
    if let Err(diagnostics) = tool.input.schema.check(&arguments) {
        return Ok(Err(diagnostics));
    }
    tool.input.mask(&mut arguments);
    Ok(Ok(arguments))
}

async fn http(
    caller: HttpCaller<'_>,
    arguments: &Value,
) -> Result<Result<super::http::HttpReply, String>, CallRefusal> {
    let Some(route) = caller.tool.http() else {
        return Ok(Err("the tool has no address".to_owned()));
    };
    let request = route.request(arguments)?;
    match caller.call(&request).await {
        Ok(reply) => Ok(Ok(reply)),
        Err(CallFault::Cancelled) => Err(CallRefusal::Cancelled),
        Err(CallFault::TooLarge) => Ok(Err(
            "upstream response exceeds maxResponseBodyBytes".to_owned()
        )),
        Err(fault) => Ok(Err(format!("upstream failed: {fault}"))),
    }
}

/// Filters and checks a result.
async fn finish(
    asker: &Asker<'_>,
    declared: &Declared,
    served: &Served,
    mut result: ToolResult,
) -> ToolResult {
    let is_own_error = result.is_error() && matches!(served.route, Route::Http { .. });
    if let Some((policy, ruling)) = declared.filter_of(served)
        && !is_own_error
    {
        result = result.filtered(|value| policy.filter(ruling, asker.claims, value));
    }
    let Some(output) = served.tool.output.as_ref().filter(|_| !result.is_error()) else {
        return result;
    };
    let Some(structured) = result.structured() else {
        let text = "Tool output did not provide required structuredContent";
        return ToolResult::error(text);
    };
    let bytes = crate::schema::bytes_of(structured);
    let cost = output.schema.cost(bytes);
    let is_small = cost.is_some_and(|cost| cost <= INLINE_STEPS_MAX);
    let tool: Arc<Tool> = served.tool.clone();
    let check = move || {
        let verdict = match (&tool.output, result.structured()) {
            (Some(output), Some(value)) => conforming(output, value),
            _ => Err(String::new()),
        };
        verdict.map(|verdict| result.with_structured(verdict))
    };
    match run(asker.shard, is_small, check).await {
        Ok(Ok(result)) => result,
        Ok(Err(diagnostics)) => {
            asker.shard.numbers.results_invalid.add(1);
            let text = format!("Tool output did not conform to outputSchema: {diagnostics}");
            ToolResult::error(text)
        }
        Err(fault) => ToolResult::error(fault.to_string()),
    }
}

/// Does `work` here when it is small, else off the shard.
async fn run<T: Send + 'static>(
    shard: &Rc<ShardState>,
    is_small: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PoolFault> {
    let numbers = &shard.numbers;
    let watchdog = shard.settings.timeouts.validation_watchdog;
    let done = if is_small {
        timed(work)
    } else {
        numbers.schema_pooled.add(1);
        shard.schemas.run(work).await
    };
    match &done {
        Ok(Timed { took, .. }) if *took > watchdog => numbers.schema_slow.add(1),
        Ok(_) => {}
        Err(PoolFault::Exhausted) => numbers.schema_exhausted.add(1),
        Err(PoolFault::Failed) => numbers.schema_failed.add(1),
    }
    done.map(|timed| timed.outcome)
}

/// Whether an integer could lose digits: it would become another number on its way.
fn has_long_integer(document: &[u8]) -> bool {
    let mut rest = document;
    while let Some((first, after)) = rest.split_first() {
        rest = match first {
            b'"' => after_text(after),
            b'0'..=b'9' => {
                let is_part =
                    |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
                let length = rest.iter().take_while(|byte| is_part(byte)).count();
                let (number, after) = rest.split_at(length);
                let is_whole = number.iter().all(u8::is_ascii_digit);
                let text = std::str::from_utf8(number).unwrap_or_default();
                // A sign stands before it, so the smallest negative one is not told apart; it is
                // within 64 bits without its sign, too.
                if is_whole && text.parse::<u64>().is_err() {
                    return true;
                }
                after
            }
            _ => after,
        };
    }
    false
}

/// What follows a string whose first quote has been read.
fn after_text(mut rest: &[u8]) -> &[u8] {
    loop {
        match memchr::memchr2(b'"', b'\\', rest) {
            None => return &[],
            Some(at) if rest[at] == b'"' => return &rest[at + 1..],
            Some(at) => rest = rest.get(at + 2..).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_that_would_change_are_found() {
        for sound in [
            "{}",
            r#"{"a":18446744073709551615,"b":-9223372036854775808}"#,
            r#"{"a":"99999999999999999999999","b":"\"99999999999999999999999"}"#,
            r#"{"a":99999999999999999999999.5,"b":1e400}"#,
        ] {
            assert!(!has_long_integer(sound.as_bytes()), "{sound}");
        }
        for long in [
            r#"{"a":18446744073709551616}"#,
            r#"[[-99999999999999999999]]"#,
        ] {
            assert!(has_long_integer(long.as_bytes()), "{long}");
        }
    }
}
