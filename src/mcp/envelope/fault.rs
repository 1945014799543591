//! The reasons to refuse a message, and what the sender is told.
//!
//! Owns: the JSON-RPC code and text of each reason. Never: a byte of what was refused.

use crate::mcp::json::Fault;

/// Why a body is not one acceptable message; the first fault in reading order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvelopeFault {
    /// Not one JSON document in UTF-8: grammar, BOM, trailing bytes.
    NotJson,
    /// Nested deeper than the bound.
    TooDeep,
    /// Longer than positions can address.
    TooLong,
    /// A JSON document, but a scalar.
    NotAnObject,
    /// An array: JSON-RPC batches are refused in every profile.
    Batch,
    /// A key the gateway reads stands twice in its object.
    DuplicateKey,
    /// A key equals one the gateway reads only after case folding.
    FoldedKey,
    /// A key or value the gateway reads holds an escape that is no character.
    LoneSurrogate,
    /// `jsonrpc` is missing or not `"2.0"`.
    BadVersion,
    /// `id` is null, fractional, `-0` or no scalar, or a result has none.
    BadId,
    /// Neither `method` nor `result` nor `error`.
    NoMethod,
    /// `method` is not a string.
    BadMethod,
    /// `method` is spelt with escapes.
    EscapedMethod,
    /// More than one of `method`, `result` and `error`.
    Ambiguous,
    /// `params` or `params._meta` is not an object.
    BadParams,
}

impl EnvelopeFault {
    /// The JSON-RPC error code of the refusal (JSON-RPC 2.0 section 5.1).
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::NotJson => -32700,
            Self::BadParams => -32602,
            _ => -32600,
        }
    }

    /// The text of the refusal; never holds a byte of the body.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::NotJson => "Parse error: the body is not one JSON document",
            Self::TooDeep => "Invalid Request: nested too deep",
            Self::TooLong => "Invalid Request: too long",
            Self::NotAnObject => "Invalid Request: not an object",
            Self::Batch => "Invalid Request: batches are not supported",
            Self::DuplicateKey => "Invalid Request: repeated key",
            Self::FoldedKey => "Invalid Request: misspelt key",
            Self::LoneSurrogate => "Invalid Request: invalid escape",
            Self::BadVersion => "Invalid Request: jsonrpc must be \"2.0\"",
            Self::BadId => "Invalid Request: id must be a string or an integer",
            Self::NoMethod => "Invalid Request: no method",
            Self::BadMethod => "Invalid Request: method must be a string",
            Self::EscapedMethod => "Invalid Request: escaped method",
            Self::Ambiguous => "Invalid Request: both request and response",
            Self::BadParams => "Invalid params: params and _meta must be objects",
        }
    }
}

impl From<Fault> for EnvelopeFault {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Syntax => Self::NotJson,
            Fault::TooDeep => Self::TooDeep,
            Fault::TooLong => Self::TooLong,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_follow_json_rpc() {
        assert_eq!(EnvelopeFault::from(Fault::Syntax).code(), -32700);
        assert_eq!(EnvelopeFault::from(Fault::TooDeep).code(), -32600);
        assert_eq!(EnvelopeFault::from(Fault::TooLong).code(), -32600);
        assert_eq!(EnvelopeFault::BadParams.code(), -32602);
        assert_eq!(EnvelopeFault::Batch.code(), -32600);
    }

    #[test]
    fn texts_open_with_the_name_of_their_code() {
        assert!(EnvelopeFault::NotJson.message().starts_with("Parse error"));
        assert!(
            EnvelopeFault::BadParams
                .message()
                .starts_with("Invalid params")
        );
        assert!(
            EnvelopeFault::DuplicateKey
                .message()
                .starts_with("Invalid Request")
        );
    }
}
