//! Tools that a virtual host declares itself (dual-profile.md 3, 4 and 7): an HTTP API as tools,
//! or a backend's tool under its own schema, description and filters.
//!
//! Owns: the declaration and its judgement at load, where arguments go in a request, the call with
//! everything around it (access, headers, validation, masking, retries, filters), and the shapes
//! of results. The frontends of both profiles call [`list_items`] and the steps of [`call`].

pub mod call;
mod fault;
mod http;
mod list;
mod load;
mod mapping;
mod metadata;
pub mod outcome;
mod retry;
mod routing;
mod served;
mod set;
mod tool;

pub use fault::ToolFault;
pub use list::{ListItem, Profile, list_items, weave};
#[cfg(test)]
pub(crate) use load::TOOL_FIELDS;
pub use mapping::{HttpCall, MapFault};
pub use outcome::ToolResult;
pub use retry::RetryPolicy;
pub use served::{Declared, Served};
pub use set::{Report, Tools};
pub use tool::{HttpRoute, Kind, McpRoute, Safety, Tool};

use crate::{policy::Claims, request::Caller};

/// What the caller's token claims, as far as access rules of its virtual host ask for it. The token
/// was verified before the caller was known.
#[must_use]
pub fn claims_of(caller: &Caller<'_>) -> Claims {
    if caller.principal.anonymous || !caller.host.declared.asks_claims() {
        return Claims::default();
    }
    let header = caller.request.field(caller.request.head.authorization);
    let token = header.and_then(crate::auth::bearer);
    token.map(Claims::of_token).unwrap_or_default()
}
