//! Heads of messages as the helpers on both sides read them: the first line, then headers.

use std::ops::Deref;

use super::client::find;

/// Headers in order, names in lower case.
#[derive(Debug, Clone, Default)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// The value of a header that stands once at the most.
    pub fn only(&self, name: &str) -> Option<&str> {
        let mut values = self.iter().filter(|(known, _)| known == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} stands twice");
        value
    }
}

impl Deref for Headers {
    type Target = [(String, String)];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Takes a head out of `buffer`, which `fill` adds to; `None` when that has no more.
pub(super) fn read_head(
    buffer: &mut Vec<u8>,
    mut fill: impl FnMut(&mut Vec<u8>) -> bool,
) -> Option<(String, Headers)> {
    let end = loop {
        if let Some(at) = find(buffer, b"\r\n\r\n") {
            break at + 4;
        }
        if !fill(buffer) {
            return None;
        }
    };
    let head = String::from_utf8(buffer.drain(..end).collect()).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let first = lines.next().unwrap().to_owned();
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    });
    Some((first, Headers(headers.collect())))
}
