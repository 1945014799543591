//! The lists: tools, resources, templates, prompts, tasks; the pages of all backends, merged.
//!
//! All pages of all backends are one page of ours, unless they are more than is asked of a backend
//! at a time, or the operator wants smaller pages: then our cursor says where each backend stands.
//! Backends that fail are left out and named in the result's `_meta`; they are not in the cursor,
//! so no client loops for them (market.md S1).

mod gather;

use std::rc::Rc;

use gather::{Gathered, Lister};

use crate::{
    config::compiled::VirtualHost,
    declared::{Profile, claims_of, weave},
    mcp::{envelope::Envelope, json, profile},
    method::{id_of, result},
    refusal::Refusal,
    reply::Reply,
    request::{Caller, gone_is_fine},
    route::{
        cursor::{Position, Scope},
        family::Family,
        merge::{Merged, merge},
    },
    session::{Session, state::OpenBackend},
    shard_state::ShardState,
    stateless::{Standing, StatelessFault},
    upstream::open,
};

/// Pages of one backend in one page of ours.
const PAGES_MAX: usize = 64;
/// Bytes of them; the page that exceeds it is the last one.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// Answers a list.
pub async fn list(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    session: &Rc<Session>,
    message: &Envelope,
    family: Family,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let id = id_of(caller, message);
    let positions = match message.cursor {
        None => start_of(&caller.host),
        Some(cursor) => json::unescape(cursor.slice(caller.body))
            .and_then(|cursor| shard.cursors.open(scope_of(caller, family), &cursor))
            .ok_or_else(|| Refusal::rpc(id, -32602, "Invalid params: unknown cursor"))?,
    };
    let is_first = message.cursor.is_none();
    let entered = session.calls.enter(id, None);
    let lister = Lister {
        shard,
        caller,
        session,
        family,
        entry: &entered.call,
    };
    let gathered = lister.gather(positions).await;
    if entered.call.cancel.is_cancelled() {
        return gone_is_fine(reply.nothing().await);
    }
    drop(entered);
    if let Some((_, fault)) = gathered.missing.first() {
        shard.numbers.lists_partial.add(1);
        open::join_late(shard, session, &caller.host);
        if shard.fails_closed(&caller.host) {
            return Err(Refusal::Backend(id.into(), *fault));
        }
    }
    if let Some(whole) = gathered.whole_result(&caller.host, family) {
        return gone_is_fine(reply.response(&result(id, whole)).await);
    }
    let mut merged = merged(shard, caller, session, family, &gathered, is_first);
    weave_in(caller, family, &mut merged, Profile::Legacy, is_first);
    let object = gathered.object(shard, caller, family, &merged.array, ("", ""));
    gone_is_fine(reply.response(&result(id, &object)).await)
}

/// Answers a list for a client without a session (dual-profile.md 1.8): the same bytes to the same
/// principal for as long as they were said to hold, on whatever connection it asks.
pub async fn stateless(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    standing: &Rc<Standing>,
    message: &Envelope,
    family: Family,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let id = id_of(caller, message);
    let refused = |fault| Refusal::modern(Some(id), fault);
    let cursor = message.cursor.map(|cursor| cursor.slice(caller.body));
    // Null is no cursor; the empty text is one, and none of ours.
    let cursor = cursor.filter(|cursor| *cursor != b"null");
    // As of before it is asked: what is said meanwhile makes it old.
    let generation = shard.generations.of(&caller.host);
    let bytes_max = shard.settings.limits.response_bytes_max;
    // What a caller may see depends on its token, and another one may be of the same principal.
    let is_kept = family != Family::Tools || !caller.host.declared.asks_claims();
    if let Some(known) = standing.page(family, cursor, generation) {
        // The id is another one each time.
        let body = result(id, &known);
        if body.len() > bytes_max {
            return Err(refused(StatelessFault::Limit("response_bytes", 400)));
        }
        shard.numbers.lists_cached.add(1);
        return gone_is_fine(reply.response(&body).await);
    }
    let positions = match cursor {
        None => start_of(&caller.host),
        Some(cursor) => json::unescape(cursor)
            .and_then(|cursor| shard.cursors.open(scope_of(caller, family), &cursor))
            .ok_or_else(|| refused(StatelessFault::Params("unknown cursor")))?,
    };
    let entered = standing.session.calls.enter(id, None);
    let lister = Lister {
        shard,
        caller,
        session: &standing.session,
        family,
        entry: &entered.call,
    };
    let gathered = lister.gather(positions).await;
    drop(entered);
    if let Some((_, fault)) = gathered.missing.first() {
        shard.numbers.lists_partial.add(1);
        let has_own = family == Family::Tools && !caller.host.declared.is_empty();
        let is_all = gathered.pages.is_empty() && !has_own;
        if is_all || shard.fails_closed(&caller.host) {
            return Err(refused(StatelessFault::Backend(*fault)));
        }
    }
    let has_own = family == Family::Tools && !caller.host.declared.is_empty();
    if !has_own && gathered.pages.iter().all(|page| page.arrays.is_empty()) {
        // Nobody has this family, so neither have we (mcp.md 2.4).
        return Err(refused(StatelessFault::Method));
    }
    let is_first = cursor.is_none();
    let mut merged = merged(
        shard,
        caller,
        &standing.session,
        family,
        &gathered,
        is_first,
    );
    weave_in(caller, family, &mut merged, Profile::Stateless, is_first);
    let protocols = caller.protocols(shard);
    if merged.count > protocols.list_items_max {
        return Err(refused(StatelessFault::Limit("catalog_items", 400)));
    }
    // A list with somebody missing may be whole the next time.
    let ttl_ms = match gathered.missing.is_empty() {
        true => protocols
            .list_ttl_ms
            .min(gathered.ttl_ms.unwrap_or(u64::MAX)),
        false => 0,
    };
    let before = profile::own_result_members(ttl_ms, true);
    let meta = profile::own_server_info();
    let object = gathered.object(shard, caller, family, &merged.array, (&before, &meta));
    let body = result(id, &object);
    if body.len() > bytes_max {
        return Err(refused(StatelessFault::Limit("response_bytes", 400)));
    }
    let object: Rc<[u8]> = object.into();
    if is_kept {
        shard
            .standings
            .keep(standing, family, cursor, (object, generation), ttl_ms);
    }
    gone_is_fine(reply.response(&body).await)
}

/// Puts the virtual host's own tools in, and takes out what its access rules hide.
fn weave_in(
    caller: &Caller<'_>,
    family: Family,
    merged: &mut Merged,
    profile: Profile,
    is_first: bool,
) {
    let declared = &caller.host.declared;
    if family != Family::Tools || declared.leaves_alone() {
        return;
    }
    let claims = claims_of(caller);
    let woven = weave(&merged.array, declared, &claims, profile, is_first);
    (merged.array, merged.count) = woven;
}

/// Asks one stateless backend for its tools, to learn which arguments are mirrored. That it cannot
/// say is no reason not to call it.
pub async fn learn_mirrored(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    session: &Rc<Session>,
    index: usize,
    open: &Rc<OpenBackend>,
) {
    if !Family::Tools.is_offered(&open.capabilities) {
        return;
    }
    let entered = session.calls.enter(b"", None);
    let lister = Lister {
        shard,
        caller,
        session,
        family: Family::Tools,
        entry: &entered.call,
    };
    lister.learn_marks(index, open).await;
}

/// Whether a list must be asked before a name of this family can be routed.
pub fn must_learn(host: &VirtualHost, session: &Session, family: Family) -> bool {
    let learned = session.learned.borrow();
    learned.lacks(host, family)
        || (family == Family::Resources && learned.lacks(host, Family::Templates))
}

/// Whether a backend that was missing from the last list may be there by now, and its list matters.
pub fn may_learn_more(host: &VirtualHost, session: &Session, family: Family) -> bool {
    if family != Family::Resources {
        return false;
    }
    let learned = session.learned.borrow();
    let mut all = host.backends.iter().enumerate();
    all.any(|(index, backend)| {
        backend.limits_resources_by_name() && !learned.has_heard(family, index)
    })
}

/// Asks for the lists that tell what names of this family mean.
pub async fn learn(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    session: &Rc<Session>,
    family: Family,
) {
    let families: &[Family] = match family {
        Family::Resources => &[Family::Resources, Family::Templates],
        _ => &[family],
    };
    let entered = session.calls.enter(b"", None);
    for &family in families {
        let lister = Lister {
            shard,
            caller,
            session,
            family,
            entry: &entered.call,
        };
        let gathered = lister.gather(start_of(&caller.host)).await;
        merged(shard, caller, session, family, &gathered, true);
    }
}

fn scope_of<'a>(caller: &'a Caller<'_>, family: Family) -> Scope<'a> {
    Scope {
        family,
        principal: &caller.principal.fingerprint,
        host: &caller.host.name,
    }
}

fn start_of(host: &VirtualHost) -> Vec<Position> {
    let all = host.backends.iter().map(|backend| Position {
        key: backend.key.clone(),
        cursor: None,
        skip: 0,
    });
    all.collect()
}

fn merged(
    shard: &ShardState,
    caller: &Caller<'_>,
    session: &Session,
    family: Family,
    gathered: &Gathered,
    is_first: bool,
) -> Merged {
    let mut merged = merge(&caller.host, family, &gathered.pages);
    let collisions = merged.collisions.len() as u64;
    shard.numbers.name_collisions.add(collisions);
    shard.numbers.tools_invalid.add(merged.invalid);
    // The indices are those of this configuration.
    if Rc::ptr_eq(&session.backends.borrow().host, &caller.host) {
        let lesson = std::mem::take(&mut merged.lesson);
        let mut learned = session.learned.borrow_mut();
        if is_first {
            learned.replace(family, lesson);
        } else {
            learned.extend(family, lesson);
        }
    }
    merged
}
