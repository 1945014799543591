//! Headers that mirror the body of a stateless request (SEP-2243, mcp.md 2.2): `Mcp-Method`,
//! `Mcp-Name` and one `Mcp-Param-*` for each argument a tool's schema marks with `x-mcp-header`.
//!
//! Front doors route by them, so the one who executes must have compared them with the body, byte
//! for byte. They are never passed on: the next hop's are made anew from the body it gets.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{
    http::header_values,
    mcp::{header_schema::ParamHeader, json},
};

const PREFIX: &[u8] = b"=?base64?";
const SUFFIX: &[u8] = b"?=";
/// What numbers are exact in every parser (mcp.md 2.2).
const INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// A header does not say what the body says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch;

/// The text a header value stands for; `None`: it is marked as coded, and is not.
pub fn decode(value: &[u8]) -> Option<Cow<'_, str>> {
    match coded(value) {
        None => std::str::from_utf8(value).ok().map(Cow::Borrowed),
        Some(coded) => {
            let bytes = STANDARD.decode(coded).ok()?;
            String::from_utf8(bytes).ok().map(Cow::Owned)
        }
    }
}

/// What is between the marks of a coded value; `None`: it stands for itself.
fn coded(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)
}

/// Appends the header value that stands for `text`.
pub fn encode(out: &mut Vec<u8>, text: &str) {
    if needs_coding(text) {
        out.extend_from_slice(PREFIX);
        out.extend_from_slice(STANDARD.encode(text).as_bytes());
        out.extend_from_slice(SUFFIX);
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}

/// Characters no header can carry, blanks that it would lose, and what would be taken for coded.
fn needs_coding(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_plain = bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let looks_coded = bytes.starts_with(PREFIX) && bytes.ends_with(SUFFIX);
    !is_plain || is_blank(bytes.first()) || is_blank(bytes.last()) || looks_coded
}

/// Compares `Mcp-Name` with what the body names.
pub fn check_name(header: &[u8], named: &str) -> Result<(), Mismatch> {
    let is_same = match coded(header) {
        None => header == named.as_bytes(),
        Some(_) => decode(header).is_some_and(|text| text == named),
    };
    if is_same { Ok(()) } else { Err(Mismatch) }
}

/// Compares the `Mcp-Param-*` headers in `head` with the arguments of the call: each value that is
/// there must have its header, and no other.
pub fn check_params(
    head: &[u8],
    headers: &[ParamHeader],
    arguments: Option<&[u8]>,
) -> Result<(), Mismatch> {
    for header in headers {
        let value = arguments.and_then(|arguments| header.value(arguments));
        let mut sent = header_values(head, &header.field);
        match (value, sent.next(), sent.next()) {
            (None, None, None) => {}
            (Some(value), Some(text), None) if says(text, value) => {}
            _ => return Err(Mismatch),
        }
    }
    Ok(())
}

/// Appends the `Mcp-Param-*` header lines of a call with these arguments.
pub fn write_params(out: &mut Vec<u8>, headers: &[ParamHeader], arguments: Option<&[u8]>) {
    for header in headers {
        let Some(value) = arguments.and_then(|arguments| header.value(arguments)) else {
            continue;
        };
        let text = match value.first() {
            Some(b'"') => json::unescape(value),
            Some(b'{' | b'[') | None => None,
            _ => std::str::from_utf8(value).ok().map(Cow::Borrowed),
        };
        if let Some(text) = text {
            out.extend_from_slice(header.field.as_bytes());
            out.extend_from_slice(b": ");
            encode(out, &text);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Whether a header says a JSON value: strings by their text, numbers by their value, words as
/// they are.
fn says(header: &[u8], value: &[u8]) -> bool {
    let Some(text) = decode(header) else {
        return false;
    };
    match value.first() {
        Some(b'"') => json::unescape(value).is_some_and(|value| value == text),
        Some(b't' | b'f') => text.as_bytes() == value,
        Some(b'{' | b'[') | None => false,
        _ => {
            let number = |text: &str| text.parse::<f64>().ok();
            let value = std::str::from_utf8(value).ok().and_then(number);
            value.is_some_and(|value| {
                value.abs() <= INTEGER_MAX
                    && text
                        .bytes()
                        .all(|byte| matches!(byte, b'-' | b'.' | b'0'..=b'9'))
                    && number(&text) == Some(value)
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::header_schema::param_headers;
    use proptest::prelude::*;

    fn encoded(text: &str) -> String {
        let mut out = Vec::new();
        encode(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_what_must_be_coded_is() {
        for (text, value) in [
            ("us-west1", "us-west1"),
            ("a b\tc", "a b\tc"),
            ("", ""),
            (" a", "=?base64?IGE=?="),
            ("a\t", "=?base64?YQk=?="),
            ("Grüße", "=?base64?R3LDvMOfZQ==?="),
            ("a\nb", "=?base64?YQpi?="),
            ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
            ("=?base64?x", "=?base64?x"),
        ] {
            assert_eq!(encoded(text), value);
            assert_eq!(decode(value.as_bytes()).unwrap(), text);
        }
        assert_eq!(decode(b"=?base64??=").unwrap(), "");
    }

    #[test]
    fn what_is_marked_as_coded_must_be() {
        for bad in [
            "=?base64?YQ?=",
            "=?base64?YQ=?=",
            "=?base64?Y!==?=",
            "=?base64?YR==?=",
            "=?base64?_-8=?=",
            "=?base64?/w==?=",
        ] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
        // Without both marks it is what it is.
        for literal in ["=?base64?SGVsbG8=", "SGVsbG8=?=", "=?BASE64?YQ==?="] {
            assert_eq!(decode(literal.as_bytes()).unwrap(), literal);
        }
    }

    #[test]
    fn arguments_and_headers_must_agree() {
        let schema = br#"{"type":"object","properties":{
            "region":{"type":"string","x-mcp-header":"Region"},
            "deep":{"properties":{"n":{"type":"integer","x-mcp-header":"N"}}},
            "on":{"type":"boolean","x-mcp-header":"On"}}}"#;
        let headers = param_headers(schema).unwrap();
        let check = |lines: &str, arguments: &str| {
            let head = format!("POST / HTTP/1.1\r\n{lines}\r\n");
            check_params(head.as_bytes(), &headers, Some(arguments.as_bytes())).is_ok()
        };
        assert!(check("", "{}"));
        assert!(check("", r#"{"region":null,"deep":{}}"#));
        assert!(check("mcp-param-REGION: eu\r\n", r#"{"region":"e\u0075"}"#));
        assert!(check(
            "Mcp-Param-Region: =?base64?w6k=?=\r\n",
            r#"{"region":"é"}"#
        ));
        assert!(check("Mcp-Param-Region: \r\n", r#"{"region":""}"#));
        for number in ["42", "042", "42.0"] {
            assert!(check(
                &format!("Mcp-Param-N: {number}\r\n"),
                r#"{"deep":{"n":42}}"#
            ));
        }
        assert!(check("Mcp-Param-On: true\r\n", r#"{"on":true}"#));
        for (lines, arguments) in [
            ("", r#"{"region":"eu"}"#),
            ("Mcp-Param-Region: eu\r\n", "{}"),
            ("Mcp-Param-Region: eu\r\n", r#"{"region":null}"#),
            ("Mcp-Param-Region: EU\r\n", r#"{"region":"eu"}"#),
            (
                "Mcp-Param-Region: eu\r\nMcp-Param-Region: eu\r\n",
                r#"{"region":"eu"}"#,
            ),
            ("Mcp-Param-N: 43\r\n", r#"{"deep":{"n":42}}"#),
            ("Mcp-Param-N: 4.2e1\r\n", r#"{"deep":{"n":42}}"#),
            (
                "Mcp-Param-N: 9007199254740993\r\n",
                r#"{"deep":{"n":9007199254740993}}"#,
            ),
            ("Mcp-Param-On: 1\r\n", r#"{"on":true}"#),
            ("Mcp-Param-Region: []\r\n", r#"{"region":[]}"#),
        ] {
            assert!(!check(lines, arguments), "{lines} {arguments}");
        }
        let mut out = Vec::new();
        let arguments = br#"{"region":" x","deep":{"n":7},"on":null}"#;
        write_params(&mut out, &headers, Some(arguments));
        let lines = "mcp-param-n: 7\r\nmcp-param-region: =?base64?IHg=?=\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), lines);
    }

    proptest! {
        #[test]
        fn every_text_travels(text in any::<String>()) {
            let value = encoded(&text);
            prop_assert!(value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')));
            prop_assert_eq!(value.trim_matches([' ', '\t']), &value);
            prop_assert_eq!(decode(value.as_bytes()).unwrap(), text);
        }
    }
}
