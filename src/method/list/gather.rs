//! What one page of ours is made of: the pages of the backends, each asked and followed to its end.

use std::{rc::Rc, time::Duration};

use futures_util::future::join_all;
use shards::deadline::now_ms;

use super::{PAGE_BYTES_MAX, PAGES_MAX, scope_of};
use crate::{
    config::compiled::VirtualHost,
    mcp::{json, profile},
    request::Caller,
    route::{cursor::Position, family::Family, merge::BackendPages},
    session::{
        BackendSession, Place, Session,
        calls::{ClientCall, Leg},
        state::{OpenBackend, SessionKind},
    },
    shard_state::ShardState,
    stateless::bridge::{BridgeFault, Bridged, GATEWAY},
    upstream::{
        CallFault, FromClient,
        exchange::{Manner, Repeat},
        open, request,
        rpc::Answer,
    },
};

/// How long the marks of a list are gone by, ms: at least, and at the most. A backend that changes
/// them sooner says so when it is called.
const MARKS_MS: (u64, u64) = (10_000, 300_000);

/// What the backends gave for one page of ours.
#[derive(Default)]
pub(super) struct Gathered {
    /// Their pages.
    pub pages: Vec<BackendPages>,
    /// Where to go on.
    pub rest: Vec<Position>,
    /// Backends that are not in it, and why.
    pub missing: Vec<(usize, CallFault)>,
    /// The result of the only page, raw.
    whole: Option<Vec<u8>>,
    /// How long all of it may be kept, as far as backends say, ms.
    pub ttl_ms: Option<u64>,
}

impl Gathered {
    /// It may be kept no longer than this part of it.
    fn shorten(&mut self, ttl_ms: Option<u64>) {
        self.ttl_ms = match (self.ttl_ms, ttl_ms) {
            (Some(known), Some(more)) => Some(known.min(more)),
            (known, more) => known.or(more),
        };
    }

    /// The only backend's own result, when it says everything and nothing of it is hidden.
    pub(super) fn whole_result(&self, host: &VirtualHost, family: Family) -> Option<&[u8]> {
        let is_plain = host.is_single && self.rest.is_empty() && self.missing.is_empty();
        let has_own = family == Family::Tools && !host.declared.leaves_alone();
        let backend = host.backends.first().filter(|_| is_plain && !has_own)?;
        backend.shows_all_of(family).then_some(())?;
        self.whole.as_deref()
    }

    /// The result: the list, our cursor, and who is missing. `before`: members in front of it,
    /// `meta`: the first ones of its `_meta`.
    pub(super) fn object(
        &self,
        shard: &ShardState,
        caller: &Caller<'_>,
        family: Family,
        array: &[u8],
        (before, meta): (&str, &str),
    ) -> Vec<u8> {
        let mut object = Vec::with_capacity(array.len() + before.len() + meta.len() + 64);
        object.push(b'{');
        object.extend_from_slice(before.as_bytes());
        object.push(b'"');
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
        if !self.missing.is_empty() || !meta.is_empty() {
            object.extend_from_slice(b",\"_meta\":{");
            object.extend_from_slice(meta.as_bytes());
        }
        if !self.missing.is_empty() {
            if !meta.is_empty() {
                object.push(b',');
            }
            object.extend_from_slice(b"\"shardgate/unavailable\":[");
            for (position, (backend, _)) in self.missing.iter().enumerate() {
                if position > 0 {
                    object.push(b',');
                }
                json::quote(&mut object, &caller.host.backends[*backend].key);
            }
            object.push(b']');
        }
        if !self.missing.is_empty() || !meta.is_empty() {
            object.push(b'}');
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
    /// How long it may be kept, if the backend says so, ms.
    ttl_ms: Option<u64>,
    /// It comes from a stateless backend.
    is_stateless: bool,
}

/// Asks for the pages of one family.
pub(super) struct Lister<'a, 'b> {
    /// The shard.
    pub shard: &'a Rc<ShardState>,
    /// Who asks.
    pub caller: &'a Caller<'b>,
    /// By which session.
    pub session: &'a Rc<Session>,
    /// For what.
    pub family: Family,
    /// The request that is the reason.
    pub entry: &'a Rc<ClientCall>,
}

impl Lister<'_, '_> {
    /// Goes on from these positions. Backends the configuration has no more fall out.
    pub(super) async fn gather(&self, positions: Vec<Position>) -> Gathered {
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
            gathered.shorten(own.ttl_ms);
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
        let mut bridged = None;
        let mut checks_marks = self.session.version.is_stateless();
        loop {
            let cursor = position.cursor.as_deref();
            let Some(page) = self.page(index, cursor, &mut bridged).await? else {
                break;
            };
            checks_marks |= page.is_stateless;
            gathered.shorten(page.ttl_ms);
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
                if is_start && arrays.len() == 1 && !checks_marks {
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
            checks_marks,
            is_bridged: bridged.is_some(),
        });
        Ok(taken)
    }

    /// One page of one backend; `None`: it does not have this family. A backend that lost its
    /// session is opened again.
    async fn page(
        &self,
        index: usize,
        cursor: Option<&[u8]>,
        bridged: &mut Option<Bridged>,
    ) -> Result<Option<Page>, CallFault> {
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
            let opened = match open::ensure(shard, session, (host, index), &link, patience).await {
                Err(CallFault::NotStateless) if session.kind == SessionKind::Standing => {
                    return self.bridged_page(index, cursor, bridged).await;
                }
                other => other?,
            };
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

    /// Reads a stateless backend's tools for their marks.
    pub(super) async fn learn_marks(&self, index: usize, open: &Rc<OpenBackend>) {
        let Some(link) = self.session.backend(&self.caller.host, index) else {
            return;
        };
        let patience = self.shard.upstream.limits.fan_out;
        let (mut cursor, mut pages) = (None::<Box<[u8]>>, 0);
        while let Ok(Some(page)) = self
            .ask(index, &link, open, cursor.as_deref(), patience)
            .await
        {
            pages += 1;
            let is_cyclic = page.next == cursor;
            cursor = page.next;
            if cursor.is_none() || is_cyclic || pages >= PAGES_MAX {
                return;
            }
        }
        // One that fails is not asked before every call.
        if open.mirrored.is_stale(now_ms()) {
            open.mirrored.begin(now_ms() + MARKS_MS.0);
        }
    }

    /// The same of a backend with sessions, for a client without: in a session that is opened for
    /// the list. One that may not be reached so has nothing to show.
    async fn bridged_page(
        &self,
        index: usize,
        cursor: Option<&[u8]>,
        bridged: &mut Option<Bridged>,
    ) -> Result<Option<Page>, CallFault> {
        if self.caller.host.backends[index].bridge.is_none() {
            return Ok(None);
        }
        if bridged.is_none() {
            let opened = Bridged::open(self.shard, self.caller, index, GATEWAY).await;
            *bridged = Some(opened.map_err(|fault| match fault {
                BridgeFault::Backend(fault) => fault,
                BridgeFault::TooMany | BridgeFault::Refused(_) => CallFault::Busy,
            })?);
        }
        let Some(way) = &*bridged else {
            return Ok(None);
        };
        let patience = self.shard.upstream.limits.fan_out;
        let opened = way.link.open().ok_or(CallFault::SessionLost)?;
        self.ask(index, &way.link, &opened, cursor, patience).await
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
        backend.admit(&self.caller.principal)?;
        let upstream_id = link.next_id();
        let id = upstream_id.to_string();
        let method = self.family.method();
        let is_stateless = open.version.is_stateless();
        let mut body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}""#).into_bytes();
        if cursor.is_some() || is_stateless {
            body.extend_from_slice(b",\"params\":{");
            if is_stateless {
                profile::own_meta(&mut body);
            }
            if let Some(cursor) = cursor {
                if is_stateless {
                    body.push(b',');
                }
                body.extend_from_slice(b"\"cursor\":");
                body.extend_from_slice(cursor);
            }
            body.push(b'}');
        }
        body.push(b'}');
        let mut http = open.head.to_vec();
        let client = FromClient::of(self.caller.request, &self.caller.principal);
        if is_stateless {
            let mirror = request::Mirror::of_method(method.as_bytes());
            request::finish_mirrored_head(&mut http, body.len(), &mirror, backend, client);
        } else {
            request::finish_head(&mut http, body.len(), backend, client);
        }
        http.extend_from_slice(&body);
        let manner = Manner {
            repeat: Repeat::Harmless,
            first_byte: patience,
            is_lateness_telling: true,
            is_stateless,
            is_endless: false,
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
        let ttl_ms = is_stateless.then(|| ttl_of(&answer));
        if is_stateless && self.family == Family::Tools {
            if cursor.is_none() {
                let kept_ms = ttl_ms.unwrap_or_default().clamp(MARKS_MS.0, MARKS_MS.1);
                open.mirrored.begin(now_ms() + kept_ms);
            }
            open.mirrored.read(array);
        }
        Ok(Some(Page {
            ttl_ms,
            is_stateless,
            array: array.to_vec(),
            result: answer.result().unwrap_or_default().to_vec(),
            next: next.map(Box::from),
        }))
    }
}

/// How long a stateless backend lets its answer be kept, ms; what it does not say is not long.
fn ttl_of(answer: &Answer) -> u64 {
    let said = answer.result_member("ttlMs");
    let said = said.and_then(|raw| std::str::from_utf8(raw).ok()?.parse().ok());
    said.unwrap_or_default()
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
