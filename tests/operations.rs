//! The gateway in operation: started, configured from a file and from a real Redis, asked with and
//! without rights, walked through with curl, and stopped, mostly as the process operators run.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

use std::process::Command;

#[path = "support/process.rs"]
mod process;

#[path = "operations/startup.rs"]
mod startup;

/// The shared secret of these tests' tokens.
const SECRET: &str = "a secret of these tests, long enough";

/// What curl got.
#[derive(Debug)]
struct Answer {
    status: u16,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        found.next().map(|(_, value)| value.as_str())
    }
}

/// Runs curl, an HTTP client nobody here wrote; it gives up after half a minute.
fn curl(arguments: &[&str]) -> Answer {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--include", "--max-time", "30"])
        .args(["--noproxy", "*", "--header", "Expect:"])
        .args(arguments)
        .output()
        .expect("these tests need curl on the path");
    assert!(output.status.success(), "curl {arguments:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let (status_line, fields) = head.split_once("\r\n").unwrap();
    let headers = fields
        .lines()
        .map(|line| line.split_once(": ").unwrap_or((line, "")))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    Answer {
        status: status_line.split(' ').nth(1).unwrap().parse().unwrap(),
        headers,
        body: body.to_owned(),
    }
}
