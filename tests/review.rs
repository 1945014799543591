//! Defects a reading of the core has found, each as its user met it: time limits that were not
//! there or too many, what must not be mixed up, who must not starve.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/support.rs"]
mod support;

#[path = "review/backends.rs"]
mod backends;
#[path = "review/limits.rs"]
mod limits;

/// The text of the first content block of a call's result.
fn text_of(response: &support::Response) -> String {
    let result = response.result();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}
