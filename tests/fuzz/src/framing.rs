//! The framing decision: total, and what it takes has no second reading.
//!
//! Input: a byte of choices, then up to three values for each framing header, a line each.

use shardgate::http::{
    Framing, FramingInputs, HeadLimits, Method, Parsed, Seen, decide, parse_request,
};

use super::Verdict;

const BODY_BYTES_MAX: u64 = 1000;
const STATUSES: [u16; 5] = [400, 411, 413, 417, 501];

/// Decides on the lines, alone and inside a head.
pub fn check(data: &[u8]) -> Verdict {
    let Some((&choice, text)) = data.split_first() else {
        return Verdict::Refused;
    };
    let minor = choice & 1;
    let (word, method) = match choice >> 1 & 7 {
        0..4 => ("POST", Method::Post),
        4 => ("GET", Method::Get),
        5 => ("DELETE", Method::Delete),
        6 => ("OPTIONS", Method::Options),
        _ => ("PUT", Method::Other),
    };
    // Each line says which header it is a value of.
    let (mut lengths, mut codings, mut expectations) = (Vec::new(), Vec::new(), Vec::new());
    for line in text.split(|byte| *byte == b'\n').take(6) {
        match line.split_first() {
            Some((b'L', value)) => lengths.push(value),
            Some((b'T', value)) => codings.push(value),
            Some((b'E', value)) => expectations.push(value),
            _ => {}
        }
    }
    let inputs = FramingInputs {
        minor,
        method,
        content_length: seen(&lengths),
        transfer_encoding: seen(&codings),
        expect: seen(&expectations),
        body_bytes_max: BODY_BYTES_MAX,
    };
    let verdict = decide(&inputs);
    match verdict {
        Ok(framing) => has_one_reading(framing, &inputs),
        Err(refusal) => assert!(STATUSES.contains(&refusal.status), "{refusal:?}"),
    }
    let mut head = format!("{word} / HTTP/1.{minor}\r\nHost: a\r\n").into_bytes();
    for (name, values) in [
        ("Content-Length", &lengths),
        ("Transfer-Encoding", &codings),
        ("Expect", &expectations),
    ] {
        for value in values {
            // Other values are not the ones that the head's reader would hand on.
            let is_plain = |byte: &u8| matches!(byte, b'!'..=b'~');
            if !value.iter().all(is_plain) {
                return Verdict::taken_if(verdict.is_ok());
            }
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        }
    }
    head.extend_from_slice(b"\r\n");
    let limits = HeadLimits {
        body_bytes_max: BODY_BYTES_MAX,
        ..HeadLimits::default()
    };
    let framing = parse_request(&head, &limits).map(|parsed| match parsed {
        Parsed::Complete(head) => head.framing,
        Parsed::Partial => panic!("a whole head"),
    });
    assert_eq!(framing, verdict, "{:?}", String::from_utf8_lossy(&head));
    Verdict::taken_if(verdict.is_ok())
}

fn seen<'a>(values: &[&'a [u8]]) -> Seen<'a> {
    let mut seen = Seen::default();
    for value in values {
        seen.add(value);
    }
    seen
}

/// However the lines are read, by whoever, the body ends in one place.
fn has_one_reading(framing: Framing, inputs: &FramingInputs<'_>) {
    let length = match inputs.content_length {
        Seen::Absent => None,
        Seen::Once(digits) => {
            assert!(digits.iter().all(u8::is_ascii_digit));
            Some(
                std::str::from_utf8(digits)
                    .unwrap()
                    .parse::<u64>()
                    .expect("a length"),
            )
        }
        Seen::Repeated => panic!("two lengths"),
    };
    match inputs.transfer_encoding {
        Seen::Absent => assert_ne!(framing, Framing::Chunked),
        Seen::Once(coding) => {
            assert!(coding.eq_ignore_ascii_case(b"chunked"));
            assert_eq!((framing, length, inputs.minor), (Framing::Chunked, None, 1));
        }
        Seen::Repeated => panic!("two codings"),
    }
    match framing {
        Framing::NoBody => assert!(length.is_none_or(|length| length == 0)),
        Framing::Length(bytes) => {
            assert!(Some(bytes) == length && bytes <= BODY_BYTES_MAX);
        }
        Framing::Chunked => {}
    }
    let takes_body = matches!(inputs.method, Method::Post | Method::Patch | Method::Other);
    assert!(
        takes_body || framing == Framing::NoBody,
        "a body where none may be"
    );
    assert!(inputs.method != Method::Post || framing != Framing::NoBody);
    assert!(match inputs.expect {
        Seen::Absent => true,
        Seen::Once(word) => word.eq_ignore_ascii_case(b"100-continue"),
        Seen::Repeated => false,
    });
}
