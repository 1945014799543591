//! The header section of a request: which lines we read and what they say together.
//!
//! Owns repetition, the bytes allowed in a header we read, `Connection`, and the checks that need
//! the whole section: Host, framing, persistence. Never reads a line itself.

use super::{HttpRefusal, Method, RequestHead, RequestLine, Span};
use crate::http::framing::{Framing, FramingInputs, Seen, decide};
use crate::http::line::{is_word, list_members};
use crate::http::target::check_host;

/// A header section while it is read.
pub(super) struct Section<'a> {
    head: RequestHead,
    content_length: Seen<'a>,
    transfer_encoding: Seen<'a>,
    expect: Seen<'a>,
    close: bool,
    keep_alive: bool,
}

impl<'a> Section<'a> {
    pub(super) fn new(first: &RequestLine, path: Span) -> Self {
        Self {
            head: RequestHead {
                len: 0,
                header_count: 0,
                method: first.method,
                target: first.target,
                path,
                minor: first.minor,
                framing: Framing::NoBody,
                keep_alive: false,
                expect_continue: false,
                upgrade: false,
                content_length: None,
                host: None,
                authorization: None,
                session_id: None,
                protocol_version: None,
                repeated_protocol_version: false,
                accept: None,
                accept_repeated: false,
                content_type: None,
                origin: None,
                last_event_id: None,
                access_control_request_method: None,
                access_control_request_headers: None,
                mcp_method: None,
                repeated_mcp_method: false,
                mcp_name: None,
                repeated_mcp_name: false,
            },
            content_length: Seen::Absent,
            transfer_encoding: Seen::Absent,
            expect: Seen::Absent,
            close: false,
            keep_alive: false,
        }
    }

    /// Takes one header line; lines we do not read pass untouched.
    pub(super) fn read(
        &mut self,
        view: &'a [u8],
        name: Span,
        value: Span,
    ) -> Result<(), HttpRefusal> {
        let bytes = value.slice(view);
        let written = name.slice(view);
        let is = |wanted: &str| is_word(written, wanted.as_bytes());
        let head = &mut self.head;
        // By length first: most lines then cost one comparison or none.
        match written.len() {
            4 if is("host") => once(&mut head.host, value)?,
            6 if is("accept") => first(&mut head.accept, &mut head.accept_repeated, value),
            6 if is("origin") => once(&mut head.origin, value)?,
            6 if is("expect") => self.expect.add(bytes),
            7 if is("upgrade") => head.upgrade = true,
            8 if is("mcp-name") => first(&mut head.mcp_name, &mut head.repeated_mcp_name, value),
            10 if is("connection") => self.read_connection(bytes)?,
            10 if is("mcp-method") => {
                first(&mut head.mcp_method, &mut head.repeated_mcp_method, value);
            }
            12 if is("content-type") => once(&mut head.content_type, value)?,
            13 if is("authorization") => once(&mut head.authorization, value)?,
            13 if is("last-event-id") => once(&mut head.last_event_id, value)?,
            14 if is("mcp-session-id") => once(&mut head.session_id, value)?,
            14 if is("content-length") => {
                head.content_length = Some(value);
                self.content_length.add(bytes);
            }
            17 if is("transfer-encoding") => self.transfer_encoding.add(bytes),
            // Readers that fold `_` into `-` would see a framing header where we see none.
            14 if is("content_length") => return Err(FRAMING_LOOKALIKE),
            17 if is("transfer_encoding") => return Err(FRAMING_LOOKALIKE),
            20 if is("mcp-protocol-version") => {
                let repeated = &mut head.repeated_protocol_version;
                first(&mut head.protocol_version, repeated, value);
            }
            29 if is("access-control-request-method") => {
                once(&mut head.access_control_request_method, value)?;
            }
            30 if is("access-control-request-headers") => {
                once(&mut head.access_control_request_headers, value)?;
            }
            _ => return Ok(()),
        }
        if bytes.is_ascii() {
            Ok(())
        } else {
            Err(HttpRefusal::bad("non-ASCII byte in a header"))
        }
    }

    /// RFC 9110 section 7.6.1. Options may come on several lines.
    fn read_connection(&mut self, value: &[u8]) -> Result<(), HttpRefusal> {
        for option in list_members(value) {
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if [&b"transfer-encoding"[..], b"content-length", b"host"]
                .iter()
                .any(|name| option.eq_ignore_ascii_case(name))
            {
                // Whoever drops the named header on the way changes where the body ends.
                return Err(HttpRefusal::bad("Connection names a framing header"));
            }
        }
        Ok(())
    }

    /// Judges the section as a whole.
    pub(super) fn finish(
        self,
        view: &[u8],
        len: usize,
        authority: Option<&[u8]>,
        body_bytes_max: u64,
    ) -> Result<RequestHead, HttpRefusal> {
        let mut head = self.head;
        let host = head
            .host
            .ok_or(HttpRefusal::bad("missing Host"))?
            .slice(view);
        check_host(host)?;
        // RFC 9112 section 3.2.2 lets the target win; two names for one request are a doubt.
        if authority.is_some_and(|authority| !authority.eq_ignore_ascii_case(host)) {
            return Err(HttpRefusal::bad("request target and Host disagree"));
        }
        head.framing = decide(&FramingInputs {
            minor: head.minor,
            method: head.method,
            content_length: self.content_length,
            transfer_encoding: self.transfer_encoding,
            expect: self.expect,
            body_bytes_max,
        })?;
        head.len = len;
        let persists = head.minor == 1 || self.keep_alive;
        // Whoever sends a method we do not know may have another idea of where its request ends.
        let is_known = head.method != Method::Other;
        head.keep_alive = persists && is_known && !self.close && !head.upgrade;
        // RFC 9110 section 10.1.1: without content, and from HTTP/1.0, the wish means nothing.
        let has_body = !matches!(head.framing, Framing::NoBody | Framing::Length(0));
        head.expect_continue = head.minor == 1 && has_body && self.expect != Seen::Absent;
        Ok(head)
    }
}

const FRAMING_LOOKALIKE: HttpRefusal = HttpRefusal::bad("header name that passes for another");

fn once(slot: &mut Option<Span>, value: Span) -> Result<(), HttpRefusal> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(HttpRefusal::bad("repeated header")),
    }
}

fn first(slot: &mut Option<Span>, repeated: &mut bool, value: Span) {
    *repeated |= slot.is_some();
    slot.get_or_insert(value);
}
