//! Request heads: what is taken passes a second, slow reading; pieces get the verdict of the whole.

use shardgate::http::{Framing, HeadLimits, Method, Parsed, RequestHead, parse_request};

use super::{Verdict, cuts};

/// Limits that small inputs reach.
const TIGHT: HeadLimits = HeadLimits {
    head_bytes_max: 160,
    header_count_max: 4,
    target_bytes_max: 24,
    body_bytes_max: 100,
};

/// Reads the head under both limits.
pub fn check(data: &[u8]) -> Verdict {
    read(data, &TIGHT);
    Verdict::taken_if(read(data, &HeadLimits::default()))
}

fn read(data: &[u8], limits: &HeadLimits) -> bool {
    let whole = parse_request(data, limits);
    for cut in cuts(data.len(), 32) {
        let part = parse_request(&data[..cut], limits);
        if part != Ok(Parsed::Partial) {
            assert_eq!(part, whole, "another verdict after {cut} bytes");
        }
    }
    let Ok(Parsed::Complete(head)) = whole else {
        return false;
    };
    let bytes = &data[..head.len];
    assert_eq!(
        parse_request(bytes, limits),
        Ok(Parsed::Complete(head.clone()))
    );
    assert_eq!(
        parse_request(&bytes[..head.len - 1], limits),
        Ok(Parsed::Partial)
    );
    assert!(head.len <= limits.head_bytes_max && head.target.len() <= limits.target_bytes_max);
    let lines = strict_lines(bytes);
    assert!(lines.len() <= limits.header_count_max);
    agrees_with_httparse(bytes, &lines);
    agrees_with_lines(bytes, &head, &lines, limits);
    true
}

/// The header lines, read by the letter of RFC 9112 once more: names and trimmed values.
fn strict_lines(bytes: &[u8]) -> Vec<(String, &[u8])> {
    let inner = bytes
        .strip_suffix(b"\r\n\r\n")
        .expect("ends with a blank line");
    let mut lines = Vec::new();
    let mut rest = inner;
    loop {
        let end = rest.windows(2).position(|pair| pair == b"\r\n");
        lines.push(&rest[..end.unwrap_or(rest.len())]);
        let Some(end) = end else { break };
        rest = &rest[end + 2..];
    }
    for line in &lines {
        let is_text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
        assert!(line.iter().all(is_text), "a control byte");
    }
    let words: Vec<&[u8]> = lines[0].split(|byte| *byte == b' ').collect();
    assert_eq!(words.len(), 3, "three words in the request line");
    assert!(is_token(words[0]) && words[0] != b"CONNECT");
    let is_visible = |byte: &u8| byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(byte);
    assert!(
        !words[1].is_empty() && words[1].iter().all(is_visible),
        "a target byte"
    );
    assert!(matches!(words[2], b"HTTP/1.0" | b"HTTP/1.1"));
    lines[1..]
        .iter()
        .map(|line| {
            let colon = line.iter().position(|byte| *byte == b':').expect("a colon");
            assert!(is_token(&line[..colon]), "a name that is no token");
            let name = String::from_utf8(line[..colon].to_ascii_lowercase()).unwrap();
            (name, line[colon + 1..].trim_ascii())
        })
        .collect()
}

fn is_token(bytes: &[u8]) -> bool {
    let is_tchar = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(is_tchar)
}

/// A lenient reader must see the same lines and the same end.
fn agrees_with_httparse(bytes: &[u8], lines: &[(String, &[u8])]) {
    let mut slots = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut slots);
    assert_eq!(
        request.parse(bytes),
        Ok(httparse::Status::Complete(bytes.len()))
    );
    assert_eq!(request.headers.len(), lines.len());
    for (theirs, (name, value)) in request.headers.iter().zip(lines) {
        assert!(theirs.name.eq_ignore_ascii_case(name));
        assert_eq!(theirs.value.trim_ascii(), *value);
    }
}

/// Framing, host and persistence by the lines alone.
fn agrees_with_lines(
    bytes: &[u8],
    head: &RequestHead,
    lines: &[(String, &[u8])],
    limits: &HeadLimits,
) {
    let values = |name: &str| -> Vec<&[u8]> {
        let of_name = lines.iter().filter(|(known, _)| known == name);
        of_name.map(|(_, value)| *value).collect()
    };
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    assert!(lengths.len() + codings.len() <= 1, "two framing lines");
    let length = lengths.first().map(|digits| {
        assert!(
            digits.iter().all(u8::is_ascii_digit),
            "a length of other bytes"
        );
        std::str::from_utf8(digits)
            .unwrap()
            .parse::<u64>()
            .expect("a length")
    });
    match head.framing {
        Framing::NoBody => assert!(codings.is_empty() && length.unwrap_or(0) == 0),
        Framing::Length(bytes) => {
            assert!(codings.is_empty() && bytes <= limits.body_bytes_max);
            assert_eq!(length, Some(bytes));
        }
        Framing::Chunked => {
            assert_eq!(head.minor, 1);
            assert!(codings[0].eq_ignore_ascii_case(b"chunked"));
        }
    }
    let hosts = values("host");
    assert_eq!(hosts.len(), 1);
    assert_eq!(head.host.unwrap().slice(bytes), hosts[0]);
    let says = |word: &str| {
        let options = values("connection").join(&b","[..]);
        let options = String::from_utf8_lossy(&options).to_ascii_lowercase();
        options
            .split(',')
            .any(|option| option.trim_matches([' ', '\t']) == word)
    };
    let may_stay = head.minor == 1 || says("keep-alive");
    let may_stay = may_stay && head.method != Method::Other;
    let is_kept = may_stay && !says("close") && values("upgrade").is_empty();
    assert_eq!(head.keep_alive, is_kept);
    for name in ["transfer-encoding", "content-length", "host"] {
        assert!(!says(name), "Connection names {name}");
    }
}
