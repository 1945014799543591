//! The lists: tools, resources, templates, prompts, tasks; the pages of all backends, merged.
//!
//! All pages of all backends are one page of ours, unless they are more than is asked of a backend
//! at a time, or the operator wants smaller pages: then our cursor says where each backend stands.
//! Backends that fail are left out and named in the result's `_meta`; they are not in the cursor,
//! so no client loops for them (market.md S1).

use std::{rc::Rc, time::Duration};

use futures_util::future::join_all;
use shards::deadline::now_ms;

use crate::{
    config::compiled::VirtualHost,
    mcp::{envelope::Envelope, json},
    method::{id_of, result},
    refusal::Refusal,
    reply::Reply,
    request::{Caller, gone_is_fine},
    route::{
        cursor::{Position, Scope},
        family::Family,
        merge::{BackendPages, Merged, merge},
    },
    session::{
        BackendSession, Place, Session,
        calls::{ClientCall, Leg},
        state::OpenBackend,
    },
    shard_state::ShardState,
    upstream::{
        CallFault,
        exchange::{Manner, Repeat},
        open, request,
    },
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
    let merged = merged(shard, caller, session, family, &gathered, is_first);
    let object = gathered.object(shard, caller, family, &merged.array);
    gone_is_fine(reply.response(&result(id, &object)).await)
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

/// What the backends gave for one page of ours.
#[derive(Default)]
struct Gathered {
    pages: Vec<BackendPages>,
    /// Where to go on.
    rest: Vec<Position>,
    /// Backends that are not in it, and why.
    missing: Vec<(usize, CallFault)>,
    /// The result of the only page, raw.
    whole: Option<Vec<u8>>,
}

impl Gathered {
    /// The only backend's own result, when it says everything and nothing of it is hidden.
    fn whole_result(&self, host: &VirtualHost, family: Family) -> Option<&[u8]> {
        let is_plain = host.is_single && self.rest.is_empty() && self.missing.is_empty();
        let backend = host.backends.first().filter(|_| is_plain)?;
        backend.shows_all_of(family).then_some(())?;
        self.whole.as_deref()
    }

    fn object(
        &self,
        shard: &ShardState,
        caller: &Caller<'_>,
        family: Family,
        array: &[u8],
    ) -> Vec<u8> {
        let mut object = Vec::with_capacity(array.len() + 64);
        object.extend_from_slice(b"{\"");
        object.extend_from_slice(family.member().as_bytes());
        object.extend_from_slice(b"\":");
        object.extend_from_slice(array);
        let scope = scope_of(caller, family);
        // A backend's cursor may be too long to be carried: then its list ends here.
        if !self.rest.is_empty()
            && let Some(cursor) = shard.cursors.seal(scope, &self.rest)
        {
            object.extend_from_slice(b",\"nextCursor\":\"");
            object.extend_from_slice(cursor.as_bytes());
            object.push(b'"');
        }
        if !self.missing.is_empty() {
            object.extend_from_slice(b",\"_meta\":{\"shardgate/unavailable\":[");
            for (position, (backend, _)) in self.missing.iter().enumerate() {
                if position > 0 {
                    object.push(b',');
                }
                json::quote(&mut object, &caller.host.backends[*backend].key);
            }
            object.extend_from_slice(b"]}");
        }
        object.push(b'}');
        object
    }
}

/// One page of a backend.
struct Page {
    /// The array, raw.
    array: Vec<u8>,
    /// The result, raw.
    result: Vec<u8>,
    /// The backend's next cursor, raw.
    next: Option<Box<[u8]>>,
}

struct Lister<'a, 'b> {
    shard: &'a Rc<ShardState>,
    caller: &'a Caller<'b>,
    session: &'a Rc<Session>,
    family: Family,
    entry: &'a Rc<ClientCall>,
}

impl Lister<'_, '_> {
    /// Goes on from these positions. Backends the configuration has no more fall out.
    async fn gather(&self, positions: Vec<Position>) -> Gathered {
        let backends = &self.caller.host.backends;
        let known = positions.into_iter().filter_map(|position| {
            let index = backends.iter().position(|b| b.key == position.key)?;
            Some((index, position))
        });
        let known: Vec<(usize, Position)> = known.collect();
        match self.shard.settings.limits.page_items_max {
            0 => self.gather_all(known).await,
            items_max => self.gather_some(known, items_max).await,
        }
    }

    /// All backends at once, each to its end.
    async fn gather_all(&self, positions: Vec<(usize, Position)>) -> Gathered {
        let all = positions.into_iter().map(|(index, position)| async move {
            let mut own = Gathered::default();
            if let Err(fault) = self.follow(index, position, usize::MAX, &mut own).await {
                own = Gathered::default();
                own.missing.push((index, fault));
            }
            own
        });
        let mut gathered = Gathered::default();
        for own in join_all(all).await {
            gathered.pages.extend(own.pages);
            gathered.rest.extend(own.rest);
            gathered.missing.extend(own.missing);
            gathered.whole = own.whole;
        }
        gathered
    }

    /// One backend after the other, until there are enough.
    async fn gather_some(&self, positions: Vec<(usize, Position)>, items_max: usize) -> Gathered {
        let mut gathered = Gathered::default();
        let mut left = items_max;
        for (index, position) in positions {
            if left == 0 {
                gathered.rest.push(position);
                continue;
            }
            let rest_before = gathered.rest.len();
            match self.follow(index, position, left, &mut gathered).await {
                Ok(taken) => left = left.saturating_sub(taken),
                Err(fault) => {
                    gathered.rest.truncate(rest_before);
                    gathered.missing.push((index, fault));
                }
            }
            gathered.whole = None;
        }
        gathered
    }

    /// Takes up to `items_max` items of one backend: how many there were.
    async fn follow(
        &self,
        index: usize,
        mut position: Position,
        items_max: usize,
        gathered: &mut Gathered,
    ) -> Result<usize, CallFault> {
        let (mut taken, mut bytes) = (0, 0);
        let mut arrays = Vec::new();
        let mut seen: Vec<Box<[u8]>> = position.cursor.iter().cloned().collect();
        let is_start = position.cursor.is_none() && position.skip == 0;
        loop {
            let Some(page) = self.page(index, position.cursor.as_deref()).await? else {
                break;
            };
            bytes += page.array.len();
            let part = if items_max == usize::MAX && position.skip == 0 {
                Part::all(page.array)
            } else {
                Part::of(&page.array, position.skip as usize, items_max - taken)
            };
            taken += part.count;
            arrays.push(part.array);
            if part.has_more {
                // An array of more than 2^32 items is over the limit of a reply.
                position.skip += u32::try_from(part.count).unwrap_or(u32::MAX);
                gathered.rest.push(position);
                break;
            }
            let Some(next) = page.next else {
                if is_start && arrays.len() == 1 {
                    gathered.whole = Some(page.result);
                }
                break;
            };
            // A cursor met before would go on for ever (market.md S1).
            if seen.contains(&next) {
                self.shard.numbers.lists_cyclic.add(1);
                break;
            }
            seen.push(next.clone());
            position.cursor = Some(next);
            position.skip = 0;
            let is_enough = taken >= items_max || arrays.len() >= PAGES_MAX;
            if is_enough || bytes >= PAGE_BYTES_MAX {
                gathered.rest.push(position);
                break;
            }
        }
        gathered.pages.push(BackendPages {
            backend: index,
            arrays,
        });
        Ok(taken)
    }

    /// One page of one backend; `None`: it does not have this family. A backend that lost its
    /// session is opened again.
    async fn page(&self, index: usize, cursor: Option<&[u8]>) -> Result<Option<Page>, CallFault> {
        let (shard, session, host) = (self.shard, self.session, &self.caller.host);
        let patience = shard.upstream.limits.fan_out;
        let link = session
            .backend(host, index)
            .ok_or(CallFault::Reconfigured)?;
        // A backend that is late already, or that fails at once, costs the list nothing.
        if open::opening_for_ms(&link).is_some_and(|ms| u128::from(ms) >= patience.as_millis())
            || (link.open().is_none() && link.target.breaker.is_open(now_ms()))
        {
            return Err(link.last_fault.get().unwrap_or(CallFault::CircuitOpen));
        }
        let mut is_second = false;
        loop {
            let opened = open::ensure(shard, session, (host, index), &link, patience).await?;
            match self.ask(index, &link, &opened, cursor, patience).await {
                Err(CallFault::SessionLost) if !is_second => {
                    is_second = true;
                    link.forget(&opened);
                    shard.numbers.backend_reopened.add(1);
                }
                outcome => return outcome,
            }
        }
    }

    async fn ask(
        &self,
        index: usize,
        link: &BackendSession,
        open: &Rc<OpenBackend>,
        cursor: Option<&[u8]>,
        patience: Duration,
    ) -> Result<Option<Page>, CallFault> {
        if !self.family.is_offered(&open.capabilities) {
            return Ok(None);
        }
        let backend = &self.caller.host.backends[index];
        let upstream_id = link.next_id();
        let id = upstream_id.to_string();
        let method = self.family.method();
        let mut body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}""#).into_bytes();
        if let Some(cursor) = cursor {
            body.extend_from_slice(b",\"params\":{\"cursor\":");
            body.extend_from_slice(cursor);
            body.push(b'}');
        }
        body.push(b'}');
        let mut http = open.head.to_vec();
        let client_head = self.caller.request.head_bytes();
        request::finish_head(&mut http, body.len(), backend, client_head);
        http.extend_from_slice(&body);
        let manner = Manner {
            repeat: Repeat::Harmless,
            first_byte: patience,
            is_lateness_telling: true,
            cancel: Some(&self.entry.cancel),
        };
        self.entry.add_leg(Leg {
            place: Place {
                host: self.caller.host.clone(),
                index,
            },
            open: open.clone(),
            upstream_id,
        });
        let asked = self
            .shard
            .upstream
            .ask(&backend.target, http, id.as_bytes(), manner)
            .await;
        self.entry.end_leg(open, upstream_id);
        let answer = asked?;
        // Some servers advertise a family that has nothing to list (market.md C3).
        if answer.error_code() == Some(-32601) {
            return Ok(None);
        }
        let array = answer
            .result_member(self.family.member())
            .filter(|array| array.starts_with(b"["))
            .ok_or(CallFault::NotAReply)?;
        let next = answer
            .result_member("nextCursor")
            .filter(|raw| raw.starts_with(b"\""));
        Ok(Some(Page {
            array: array.to_vec(),
            result: answer.result().unwrap_or_default().to_vec(),
            next: next.map(Box::from),
        }))
    }
}

/// Some elements of an array, as an array.
struct Part {
    array: Vec<u8>,
    count: usize,
    has_more: bool,
}

impl Part {
    fn all(array: Vec<u8>) -> Self {
        Self {
            array,
            count: 0,
            has_more: false,
        }
    }

    fn of(array: &[u8], skip: usize, count_max: usize) -> Self {
        let mut part = Self {
            array: b"[".to_vec(),
            count: 0,
            has_more: false,
        };
        for element in json::elements(array).skip(skip) {
            let Ok(element) = element else { break };
            if part.count == count_max {
                part.has_more = true;
                break;
            }
            if part.count > 0 {
                part.array.push(b',');
            }
            part.array.extend_from_slice(element.slice(array));
            part.count += 1;
        }
        part.array.push(b']');
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_cut_between_elements() {
        let array = br#"[{"a":[1,2]}, 2 ,"3"]"#;
        let cut = |skip, count_max| {
            let part = Part::of(array, skip, count_max);
            let text = String::from_utf8(part.array).unwrap();
            (text, part.count, part.has_more)
        };
        assert_eq!(cut(0, 1), (r#"[{"a":[1,2]}]"#.to_owned(), 1, true));
        assert_eq!(cut(1, 1), ("[2]".to_owned(), 1, true));
        assert_eq!(cut(1, 2), (r#"[2,"3"]"#.to_owned(), 2, false));
        assert_eq!(cut(3, 5), ("[]".to_owned(), 0, false));
        assert_eq!(Part::of(b"[]", 0, 5).array, b"[]");
    }
}
