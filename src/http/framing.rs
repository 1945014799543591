//! How long a request body is, decided once, by table, from the head alone.
//!
//! `contracts/reliability.md` Appendix B rule by rule, as a pure function. Any doubt is a refusal
//! and every refusal closes the connection. Never reads a body byte.

use super::head::{HttpRefusal, Method};

/// How the end of a request body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The head is the whole request.
    NoBody,
    /// `Content-Length` bytes follow.
    Length(u64),
    /// Chunks follow (RFC 9112 section 7.1).
    Chunked,
}

/// What a head says about one header that must not be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Seen<'a> {
    /// No such line.
    #[default]
    Absent,
    /// One line with this value, white space around it left out.
    Once(&'a [u8]),
    /// More than one line, equal or not.
    Repeated,
}

impl<'a> Seen<'a> {
    /// Adds one more line with this value.
    pub fn add(&mut self, value: &'a [u8]) {
        *self = match self {
            Self::Absent => Self::Once(value),
            Self::Once(_) | Self::Repeated => Self::Repeated,
        };
    }
}

/// Everything the framing of a request depends on.
#[derive(Debug, Clone, Copy)]
pub struct FramingInputs<'a> {
    /// Minor version of HTTP/1.
    pub minor: u8,
    /// The method.
    pub method: Method,
    /// `Content-Length`.
    pub content_length: Seen<'a>,
    /// `Transfer-Encoding`.
    pub transfer_encoding: Seen<'a>,
    /// `Expect`.
    pub expect: Seen<'a>,
    /// Bodies longer than this are refused before their first byte.
    pub body_bytes_max: u64,
}

/// Decides the framing of a request body (Appendix B; the first rule that speaks wins).
///
/// `Upgrade` has no say: on this side it is ignored and only ends keep-alive (rule 8).
pub fn decide(inputs: &FramingInputs<'_>) -> Result<Framing, HttpRefusal> {
    let framing = match (inputs.transfer_encoding, inputs.content_length) {
        (Seen::Absent, Seen::Absent) => Framing::NoBody,
        (Seen::Absent, length) => from_length(length, inputs.body_bytes_max)?,
        // Rule 1: a version 1.0 sender cannot know the coding, so a front that passed it on lied.
        (_, _) if inputs.minor == 0 => {
            return Err(HttpRefusal::bad("Transfer-Encoding in HTTP/1.0"));
        }
        // Rule 2: RFC 9112 section 6.3 lets a server refuse, and smuggling needs both.
        (_, Seen::Once(_) | Seen::Repeated) => {
            return Err(HttpRefusal::bad("Transfer-Encoding with Content-Length"));
        }
        (coding, Seen::Absent) => from_coding(coding)?,
    };
    // Rules 6 and 7.
    let has_body = !matches!(framing, Framing::NoBody | Framing::Length(0));
    let framing = match inputs.method {
        Method::Get | Method::Head | Method::Delete | Method::Options if has_body => {
            return Err(HttpRefusal::bad("this method takes no body"));
        }
        // Some clients send `Content-Length: 0` with DELETE: there is no body to read.
        Method::Get | Method::Head | Method::Delete | Method::Options => Framing::NoBody,
        Method::Post if framing == Framing::NoBody => {
            return Err(HttpRefusal {
                status: 411,
                reason: "a length is required",
            });
        }
        Method::Post | Method::Patch | Method::Other => framing,
    };
    // Rule 9.
    match inputs.expect {
        Seen::Absent => Ok(framing),
        Seen::Once(value) if value.eq_ignore_ascii_case(b"100-continue") => Ok(framing),
        Seen::Once(_) => Err(HttpRefusal {
            status: 417,
            reason: "unknown expectation",
        }),
        Seen::Repeated => Err(HttpRefusal::bad("repeated Expect")),
    }
}

/// Rule 3.
fn from_coding(coding: Seen<'_>) -> Result<Framing, HttpRefusal> {
    let Seen::Once(value) = coding else {
        return Err(HttpRefusal::bad("repeated Transfer-Encoding"));
    };
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(Framing::Chunked);
    }
    let known: [&[u8]; 5] = [b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress"];
    if known
        .iter()
        .any(|coding| value.eq_ignore_ascii_case(coding))
    {
        return Err(HttpRefusal {
            status: 501,
            reason: "transfer coding not supported",
        });
    }
    Err(HttpRefusal::bad("malformed Transfer-Encoding"))
}

/// Rules 4 and 5.
fn from_length(length: Seen<'_>, body_bytes_max: u64) -> Result<Framing, HttpRefusal> {
    let Seen::Once(value) = length else {
        return Err(HttpRefusal::bad("repeated Content-Length"));
    };
    let length = decimal(value).ok_or(HttpRefusal::bad("malformed Content-Length"))?;
    if length > body_bytes_max {
        return Err(HttpRefusal {
            status: 413,
            reason: "body over the limit",
        });
    }
    Ok(Framing::Length(length))
}

/// 1 to 19 decimal digits and nothing else; 19 always fit.
pub(super) fn decimal(value: &[u8]) -> Option<u64> {
    if !(1..=19).contains(&value.len()) || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(
        value
            .iter()
            .fold(0, |number, digit| number * 10 + u64::from(digit - b'0')),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const POST: FramingInputs<'static> = FramingInputs {
        minor: 1,
        method: Method::Post,
        content_length: Seen::Absent,
        transfer_encoding: Seen::Absent,
        expect: Seen::Absent,
        body_bytes_max: 100,
    };

    fn status(inputs: FramingInputs<'_>) -> Result<Framing, u16> {
        decide(&inputs).map_err(|refusal| refusal.status)
    }

    #[test]
    fn rule_1_and_2_transfer_encoding_stands_alone_and_in_1_1() {
        let chunked = FramingInputs {
            transfer_encoding: Seen::Once(b"chunked"),
            ..POST
        };
        assert_eq!(status(chunked), Ok(Framing::Chunked));
        assert_eq!(
            status(FramingInputs {
                minor: 0,
                ..chunked
            }),
            Err(400)
        );
        for length in [Seen::Once(&b"5"[..]), Seen::Once(b""), Seen::Repeated] {
            assert_eq!(
                status(FramingInputs {
                    content_length: length,
                    ..chunked
                }),
                Err(400)
            );
        }
    }

    #[test]
    fn rule_3_chunked_is_the_only_coding() {
        for (value, verdict) in [
            ("chunked", Ok(Framing::Chunked)),
            ("CHUNKED", Ok(Framing::Chunked)),
            ("gzip", Err(501)),
            ("Deflate", Err(501)),
            ("compress", Err(501)),
            ("identity", Err(400)),
            ("gzip, chunked", Err(400)),
            ("chunked, chunked", Err(400)),
            ("chunked,", Err(400)),
            ("xchunked", Err(400)),
            ("", Err(400)),
        ] {
            let coding = Seen::Once(value.as_bytes());
            let inputs = FramingInputs {
                transfer_encoding: coding,
                ..POST
            };
            assert_eq!(status(inputs), verdict, "{value}");
        }
        let twice = FramingInputs {
            transfer_encoding: Seen::Repeated,
            ..POST
        };
        assert_eq!(status(twice), Err(400));
    }

    #[test]
    fn rules_4_and_5_a_length_is_a_bounded_decimal() {
        for (value, verdict) in [
            ("5", Ok(Framing::Length(5))),
            ("05", Ok(Framing::Length(5))),
            ("0", Ok(Framing::Length(0))),
            ("100", Ok(Framing::Length(100))),
            ("101", Err(413)),
            ("9999999999999999999", Err(413)),
            ("10000000000000000000", Err(400)),
            ("", Err(400)),
            ("+5", Err(400)),
            ("5,5", Err(400)),
            ("5 5", Err(400)),
        ] {
            let inputs = FramingInputs {
                content_length: Seen::Once(value.as_bytes()),
                ..POST
            };
            assert_eq!(status(inputs), verdict, "{value}");
        }
        assert_eq!(
            status(FramingInputs {
                content_length: Seen::Repeated,
                ..POST
            }),
            Err(400)
        );
    }

    #[test]
    fn rules_6_and_7_the_method_says_whether_a_body_is_wanted() {
        let five = Seen::Once(&b"5"[..]);
        for method in [Method::Get, Method::Head, Method::Delete, Method::Options] {
            let bare = FramingInputs { method, ..POST };
            assert_eq!(status(bare), Ok(Framing::NoBody));
            assert_eq!(
                status(FramingInputs {
                    content_length: five,
                    ..bare
                }),
                Err(400)
            );
            let zero = FramingInputs {
                content_length: Seen::Once(b"0"),
                ..bare
            };
            assert_eq!(status(zero), Ok(Framing::NoBody));
            let chunked = FramingInputs {
                transfer_encoding: Seen::Once(b"chunked"),
                ..bare
            };
            assert_eq!(status(chunked), Err(400));
        }
        assert_eq!(status(POST), Err(411));
        assert_eq!(
            status(FramingInputs {
                method: Method::Other,
                ..POST
            }),
            Ok(Framing::NoBody)
        );
    }

    #[test]
    fn rule_9_one_expectation_is_known() {
        let post = FramingInputs {
            content_length: Seen::Once(b"5"),
            ..POST
        };
        for (expect, verdict) in [
            (Seen::Once(&b"100-Continue"[..]), Ok(Framing::Length(5))),
            (Seen::Once(b"200-ok"), Err(417)),
            (Seen::Once(b""), Err(417)),
            (Seen::Repeated, Err(400)),
        ] {
            assert_eq!(status(FramingInputs { expect, ..post }), verdict);
        }
    }
}
