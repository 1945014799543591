//! Which protocol profile a POST belongs to: a pure function of its version header, of what its
//! body says, and of the revisions that are served (dual-profile.md 1.4, mcp.md 8).
//!
//! Nothing but what is written in the request decides: no session is looked up and no earlier
//! request is remembered. A request that says the stateless revision is never anything else, with
//! whatever session id it comes; one that does not say it never becomes stateless.

use crate::mcp::{
    envelope::Kind,
    version::{STATELESS, Version, VersionSet},
};

/// The profiles that are served; at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enabled {
    /// Revision 2026-07-28.
    pub stateless: bool,
    /// The revisions with sessions.
    pub legacy: VersionSet,
}

/// The `MCP-Protocol-Version` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header<'a> {
    /// It is not there.
    Absent,
    /// Its only value.
    One(&'a [u8]),
    /// It stands more than once, whatever it says; true: one of them names the stateless revision.
    Several(bool),
}

/// `params._meta["io.modelcontextprotocol/protocolVersion"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meta<'a> {
    /// It is not there.
    Absent,
    /// It is not a string.
    NotText,
    /// Its text.
    Text(&'a str),
}

/// What the decision rests on.
#[derive(Debug, Clone, Copy)]
pub struct Marks<'a> {
    /// The version header.
    pub header: Header<'a>,
    /// The version in the body.
    pub meta: Meta<'a>,
    /// What the message is.
    pub kind: Kind,
    /// Its method is `initialize`.
    pub is_initialize: bool,
    /// It has a session id.
    pub has_session: bool,
}

/// What a POST is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// A request of the stateless revision.
    Stateless,
    /// A notification to somebody who keeps nothing: it is taken and dropped (mcp.md 0.10).
    Dropped,
    /// It opens a session.
    Initialize,
    /// It belongs to a session; with the revision its header names.
    Session(Option<Version>),
}

/// Why a POST is none of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misfit<'a> {
    /// D1: the version header stands twice in a request that says the stateless revision.
    HeaderTwice,
    /// D1: the same in another one.
    LegacyHeaderTwice,
    /// D2: an answer, but nobody asked.
    Answer,
    /// D3: the body does not say the revision.
    MetaMissing,
    /// D4: the header does not say it.
    HeaderMissing,
    /// D5: they say two.
    Mismatch,
    /// D6, D8, D9: a revision that is not served.
    Unsupported(&'a [u8]),
    /// The stateless revision is switched off.
    StatelessOff,
    /// D8 of a request with a session: the header names no revision that has any.
    LegacyVersion,
    /// D11: no session.
    NoSession,
}

/// Decides. The rows are those of dual-profile.md 1.4.
pub fn classify<'a>(enabled: Enabled, marks: &Marks<'a>) -> Result<Profile, Misfit<'a>> {
    let in_body = marks.meta != Meta::Absent;
    let header = match marks.header {
        Header::Several(names_stateless) if names_stateless || in_body => {
            return Err(match enabled.stateless {
                true => Misfit::HeaderTwice,
                false => Misfit::LegacyHeaderTwice,
            });
        }
        Header::Several(_) => return Err(Misfit::LegacyHeaderTwice),
        Header::One(name) => Some(name),
        Header::Absent => None,
    };
    if in_body || header == Some(STATELESS.as_bytes()) {
        return match enabled.stateless {
            true => stateless(header, marks),
            false => Err(Misfit::StatelessOff),
        };
    }
    if enabled.legacy.is_empty() {
        return without_legacy(header, marks);
    }
    let version = match header {
        None => None,
        Some(name) => match Version::from_name(name).filter(|one| enabled.legacy.contains(*one)) {
            Some(version) => Some(version),
            // What no session speaks of is judged as the stateless profile would.
            None if enabled.stateless && !marks.has_session && !marks.is_initialize => {
                return Err(Misfit::Unsupported(name));
            }
            None => return Err(Misfit::LegacyVersion),
        },
    };
    if marks.is_initialize && marks.kind == Kind::Request {
        return Ok(Profile::Initialize);
    }
    match marks.has_session {
        true => Ok(Profile::Session(version)),
        false => Err(Misfit::NoSession),
    }
}

/// D2 to D7: the request says the stateless revision somewhere.
fn stateless<'a>(header: Option<&'a [u8]>, marks: &Marks<'a>) -> Result<Profile, Misfit<'a>> {
    match marks.kind {
        Kind::Response => return Err(Misfit::Answer),
        Kind::Notification => return Ok(Profile::Dropped),
        Kind::Request => {}
    }
    match (header, marks.meta) {
        // mcp.md 8: an old handshake under the new header.
        (_, Meta::Absent) if marks.is_initialize => Err(Misfit::Mismatch),
        (_, Meta::Absent | Meta::NotText) => Err(Misfit::MetaMissing),
        (None, Meta::Text(_)) => Err(Misfit::HeaderMissing),
        (Some(header), Meta::Text(body)) if header != body.as_bytes() => Err(Misfit::Mismatch),
        (_, Meta::Text(STATELESS)) => Ok(Profile::Stateless),
        (_, Meta::Text(body)) => Err(Misfit::Unsupported(body.as_bytes())),
    }
}

/// mcp.md 2.12: what a server without sessions says to clients of the older revisions.
fn without_legacy<'a>(header: Option<&'a [u8]>, marks: &Marks<'a>) -> Result<Profile, Misfit<'a>> {
    match (marks.kind, header) {
        (Kind::Response, _) => Err(Misfit::Answer),
        (Kind::Notification, _) => Ok(Profile::Dropped),
        (Kind::Request, Some(name)) => Err(Misfit::Unsupported(name)),
        (Kind::Request, None) if marks.is_initialize => Err(Misfit::Unsupported(b"")),
        (Kind::Request, None) => Err(Misfit::MetaMissing),
    }
}

#[cfg(test)]
mod tests;
