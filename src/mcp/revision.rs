//! stub
use crate::mcp::{edits::Edits, reply_scan::ReplyScan, version::Version};
/// stub
pub fn fit_response(_: Version, _: &str, _: &[u8], _: &ReplyScan, _: &mut Edits) {}
