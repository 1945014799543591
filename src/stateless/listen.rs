//! `subscriptions/listen`: a client without a session hears what changes (mcp.md 2.7).
//!
//! The first message acknowledges what will be heard; every message carries the request's id; the
//! stream ends with the request's result, at the latest when its token expires. Nothing is
//! replayed.

use std::{pin::pin, rc::Rc, time::Duration};

use futures_util::future::{Either, select};
use serde_json::Value;
use shards::{alarm::Alarm, notify::Event};

use crate::{
    auth::scope,
    config::compiled::VirtualHost,
    http::{LAST_CHUNK, encode_chunk, sse},
    mcp::{
        edits::Edits,
        envelope::Envelope,
        json::{self, pick},
        profile,
        reply_scan::ReplyScan,
    },
    method::{id_of, list},
    refusal::Refusal,
    reply::{ClientGone, Reply},
    request::{Caller, gone_is_fine},
    route::{
        family::Family,
        names::{expose_id, expose_uri, route_task, route_uri},
    },
    session::{Place, state::OpenBackend},
    shard_state::ShardState,
    stateless::{Standing, StatelessFault, hub::Listener},
    upstream::{
        FromClient,
        subscribe::{self, Said, Wants},
    },
};

/// Bytes of the id of such a request (dual-profile.md 6).
const ID_BYTES_MAX: usize = 256;
/// URIs, or tasks, of one request.
const NAMES_MAX: usize = 1024;
/// Bytes of one of them.
const NAME_BYTES_MAX: usize = 8192;
/// The key of the request's id in all that is said.
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Serves one listener until it leaves, its time is over or the gateway goes down.
pub async fn serve(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    standing: &Rc<Standing>,
    message: &Envelope,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let id = id_of(caller, message);
    let refused = |fault| Refusal::modern(Some(id), fault);
    let wanted = wanted(caller, message).map_err(refused)?;
    let principal = &caller.principal;
    if !wanted.uris.is_empty() {
        let scopes = scope::required_scopes(b"resources/subscribe");
        scope::check_scopes(shard, principal, scopes)?;
    }
    if !wanted.tasks.is_empty() {
        let scopes = scope::required_scopes(b"tasks/get");
        scope::check_scopes(shard, principal, scopes)?;
    }
    if id.len() > ID_BYTES_MAX {
        return Err(refused(StatelessFault::Params("the id is too long")));
    }
    let own = (!principal.anonymous).then_some(&principal.fingerprint);
    let Some(_permit) = shard.subscriptions.take(own) else {
        return Err(refused(StatelessFault::Limit("subscriptions", 429)));
    };
    let limit = time_left(shard, caller);
    let mut ear = Ear {
        shard,
        caller,
        host: caller.host.clone(),
        id,
        wanted,
        honoured: Wants::default(),
        listener: Rc::new(Listener::of(&principal.subject)),
        unwanted: Rc::default(),
    };
    shard.hub.add(&ear.listener);
    let opened = standing.all_open(shard, caller).await;
    if !ear.wanted.uris.is_empty()
        && list::must_learn(&ear.host, &standing.session, Family::Resources)
    {
        list::learn(shard, caller, &standing.session, Family::Resources).await;
    }
    let open: Vec<Option<Rc<OpenBackend>>> = opened.into_iter().map(Result::ok).collect();
    ear.follow(standing, &open);
    let writer = Writer {
        shard,
        reply,
        out: Vec::with_capacity(512),
        alarm: Rc::default(),
    };
    gone_is_fine(writer.run(&mut ear, limit).await)
}

/// What the request wants to hear, in the client's names.
fn wanted(caller: &Caller<'_>, message: &Envelope) -> Result<Wants, StatelessFault> {
    let bad = StatelessFault::Params;
    let params = message
        .params
        .map_or(&b"{}"[..], |span| span.slice(caller.body));
    let filter = json::member(params, "notifications").map(|span| span.slice(params));
    let filter: Value = filter
        .and_then(|raw| serde_json::from_slice(raw).ok())
        .filter(Value::is_object)
        .ok_or(bad("notifications must be an object"))?;
    let flag = |name: &str| match filter.get(name) {
        None => Ok(false),
        Some(Value::Bool(is_wanted)) => Ok(*is_wanted),
        Some(_) => Err(bad("a notification is neither true nor false")),
    };
    let names = |name: &str| -> Result<Vec<Box<str>>, StatelessFault> {
        let Some(list) = filter.get(name) else {
            return Ok(Vec::new());
        };
        let list = list.as_array().filter(|list| list.len() <= NAMES_MAX);
        let list = list.ok_or(bad("a list of names is none, or too long"))?;
        let name = |value: &Value| match value.as_str() {
            Some(name) if (1..=NAME_BYTES_MAX).contains(&name.len()) => Ok(Box::from(name)),
            _ => Err(bad("a name is none, or too long")),
        };
        list.iter().map(name).collect()
    };
    Ok(Wants {
        tools: flag("toolsListChanged")?,
        prompts: flag("promptsListChanged")?,
        resources: flag("resourcesListChanged")?,
        uris: names("resourceSubscriptions")?,
        tasks: names("taskIds")?,
    })
}

/// How long the stream may last: as configured, and no longer than the token holds.
fn time_left(shard: &ShardState, caller: &Caller<'_>) -> Duration {
    let limit = shard.settings.protocols.subscription_duration;
    let now_s = shards::clock::coarse_unix_s();
    let token_s = caller.principal.expires_at_unix_s.saturating_sub(now_s);
    limit.min(Duration::from_secs(token_s))
}

/// What one listener hears.
struct Ear<'a, 'b> {
    shard: &'a Rc<ShardState>,
    caller: &'a Caller<'b>,
    host: Rc<VirtualHost>,
    id: &'a [u8],
    /// What the request asked for, in the client's names.
    wanted: Wants,
    /// What of it will be heard, in the client's names.
    honoured: Wants,
    listener: Rc<Listener>,
    /// Fires when nobody listens to the backends of `host` any more.
    unwanted: Rc<Event>,
}

impl Drop for Ear<'_, '_> {
    fn drop(&mut self) {
        self.unwanted.fire();
    }
}

impl Ear<'_, '_> {
    /// Listens to the backends as they are now.
    fn follow(&mut self, standing: &Standing, open: &[Option<Rc<OpenBackend>>]) {
        self.unwanted.fire();
        self.unwanted = Rc::default();
        let has = |family: Family| {
            let mut all = open.iter().flatten();
            all.any(|open| family.is_offered(&open.capabilities))
        };
        // Lists change with the configuration as well, whatever their backends say.
        self.honoured = Wants {
            tools: self.wanted.tools && has(Family::Tools),
            prompts: self.wanted.prompts && has(Family::Prompts),
            resources: self.wanted.resources && has(Family::Resources),
            uris: Vec::new(),
            tasks: Vec::new(),
        };
        let learned = standing.session.learned.borrow();
        for (index, open) in open.iter().enumerate() {
            let Some(open) = open else { continue };
            let (mut uris, mut tasks) = (Vec::new(), Vec::new());
            let (mut own_uris, mut own_tasks) = (Vec::new(), Vec::new());
            for exposed in &self.wanted.uris {
                let route = route_uri(&self.host, &learned, exposed);
                if let Some(route) = route.filter(|route| route.backend == index) {
                    uris.push(route.original.as_ref().into());
                    own_uris.push(exposed.clone());
                }
            }
            for exposed in &self.wanted.tasks {
                let route = route_task(&self.host, exposed);
                if let Some(route) = route.filter(|route| route.backend == index) {
                    tasks.push(route.original.as_ref().into());
                    own_tasks.push(exposed.clone());
                }
            }
            let wants = Wants {
                uris,
                tasks,
                ..self.honoured.clone()
            };
            let wants = subscribe::offered(open, wants);
            if !wants.uris.is_empty() {
                self.honoured.uris.extend(own_uris);
            }
            if !wants.tasks.is_empty() {
                self.honoured.tasks.extend(own_tasks);
            }
            if !wants.is_empty() {
                self.listen_to(index, open.clone(), wants);
            }
        }
    }

    fn listen_to(&self, index: usize, open: Rc<OpenBackend>, wants: Wants) {
        let shard = self.shard.clone();
        let place = Place {
            host: self.host.clone(),
            index,
        };
        let client = FromClient::of(self.caller.request, &self.caller.principal);
        let voice = Rc::new(client.keep());
        let (listener, unwanted) = (self.listener.clone(), self.unwanted.clone());
        let id: Box<[u8]> = self.id.into();
        let families: Vec<Family> = [Family::Tools, Family::Prompts, Family::Resources]
            .into_iter()
            .filter(|family| wants.is_family(*family))
            .collect();
        shards::spawn(async move {
            let on = |said: Said<'_>| match said {
                Said::Open => {}
                Said::Notification(data, scan) => {
                    if is_list_changed(data, scan) {
                        shard.generations.bump(place.backend());
                    }
                    if let Some(message) = tagged(&place, data, scan, &id) {
                        listener.post(message);
                    }
                }
                Said::Gap => {
                    shard.generations.bump(place.backend());
                    for family in &families {
                        listener.post(changed(*family, &id));
                    }
                }
            };
            let voice = || voice.clone();
            subscribe::listen(&shard, &place, &open, voice, &wants, &unwanted, on).await;
        });
    }

    /// The configuration may have changed: what lists there are now may be others. False: the
    /// virtual host is gone.
    async fn look(&mut self) -> bool {
        let config = self
            .shard
            .configs
            .of_subject(self.shard, &self.caller.principal)
            .await;
        // A store that cannot say is no change.
        let Ok(config) = config else { return true };
        let Some(host) = config.host(&self.host.name) else {
            return false;
        };
        if Rc::ptr_eq(host, &self.host) {
            return true;
        }
        let is_same = host.revision == self.host.revision;
        self.host = host.clone();
        let caller = Caller {
            request: self.caller.request,
            body: self.caller.body,
            principal: self.caller.principal.clone(),
            host: host.clone(),
        };
        let Ok(standing) = self.shard.standings.of(self.shard, &caller) else {
            return true;
        };
        let opened = standing.all_open(self.shard, &caller).await;
        let open: Vec<Option<Rc<OpenBackend>>> = opened.into_iter().map(Result::ok).collect();
        self.follow(&standing, &open);
        if !is_same {
            for family in [Family::Tools, Family::Prompts, Family::Resources] {
                if self.wanted.is_family(family) {
                    self.listener.post(changed(family, self.id));
                }
            }
        }
        true
    }

    fn acknowledgement(&self) -> Vec<u8> {
        let mut out = br#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{""#.to_vec();
        out.extend_from_slice(SUBSCRIPTION_ID.as_bytes());
        out.extend_from_slice(b"\":");
        out.extend_from_slice(self.id);
        out.extend_from_slice(b"},\"notifications\":");
        self.honoured.write(&mut out);
        out.extend_from_slice(b"}}");
        out
    }

    /// The request's result: the stream is over.
    fn end(&self) -> Vec<u8> {
        let id = String::from_utf8_lossy(self.id);
        let info = profile::own_server_info();
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","_meta":{{"{SUBSCRIPTION_ID}":{id},{info}}}}}}}"#
        )
        .into_bytes()
    }
}

/// That the list of a family is another now.
fn changed(family: Family, id: &[u8]) -> Vec<u8> {
    let method = family.changed().unwrap_or_default();
    let id = String::from_utf8_lossy(id);
    format!(
        r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"_meta":{{"{SUBSCRIPTION_ID}":{id}}}}}}}"#
    )
    .into_bytes()
}

fn is_list_changed(data: &[u8], scan: &ReplyScan) -> bool {
    let method = scan.method.map_or(&b""[..], |span| span.slice(data));
    method.starts_with(b"notifications/") && method.ends_with(b"/list_changed")
}

/// A backend's notification in the client's terms; `None`: it is between the backend and us.
fn tagged(place: &Place, data: &[u8], scan: &ReplyScan, id: &[u8]) -> Option<Vec<u8>> {
    let method = scan.method.map_or(&b""[..], |span| span.slice(data));
    let family = [Family::Tools, Family::Prompts, Family::Resources].into_iter();
    let mut family = family.filter(|family| family.changed().map(str::as_bytes) == Some(method));
    if let Some(family) = family.next() {
        return Some(changed(family, id));
    }
    let (host, index) = (&place.host, place.index);
    let params = scan.params?;
    let [meta, uri, task] = pick(data, params, ["_meta", "uri", "taskId"]);
    let mut edits = Edits::default();
    match method {
        b"notifications/resources/updated" => {
            let original = json::unescape(uri?.slice(data))?;
            edits.put_text(uri?, &expose_uri(host, index, &original));
        }
        b"notifications/tasks" => {
            let original = json::unescape(task?.slice(data))?;
            edits.put_text(task?, &expose_id(host, index, &original));
        }
        _ => return None,
    }
    let mut tag = format!("\"{SUBSCRIPTION_ID}\":").into_bytes();
    tag.extend_from_slice(id);
    match meta.filter(|meta| meta.slice(data).starts_with(b"{")) {
        Some(meta) => {
            let object = [b"{", &*tag, b"}"].concat();
            edits.put(meta, object);
        }
        None => {
            let member = [b"\"_meta\":{", &*tag, b"},"].concat();
            edits.insert(params.start + 1, member);
        }
    }
    let mut out = Vec::with_capacity(data.len() + 64);
    edits.apply(&mut out, data);
    Some(out)
}

/// Writes to one client.
struct Writer<'a, 'b> {
    shard: &'a Rc<ShardState>,
    reply: &'a mut Reply<'b>,
    out: Vec<u8>,
    alarm: Rc<Alarm>,
}

/// What woke the stream.
enum Woken {
    Changed,
    Silence,
    Left,
    Over,
}

impl Writer<'_, '_> {
    async fn run(mut self, ear: &mut Ear<'_, '_>, limit: Duration) -> Result<(), ClientGone> {
        self.reply.stream_head(&mut self.out);
        self.event(&ear.acknowledgement());
        let mut over = pin!(shards::sleep(limit));
        // Nothing will ever be said.
        let mut is_over = ear.honoured.is_empty();
        loop {
            if ear.listener.must_look() && !ear.look().await {
                is_over = true;
            }
            let Some(messages) = ear.listener.take() else {
                // It reads too slowly; what it missed cannot be told.
                self.reply.hang_up();
                return Err(ClientGone);
            };
            for message in messages {
                self.event(&message);
            }
            if is_over || self.shard.shard.gate.is_closed() {
                self.event(&ear.end());
                if self.reply.is_chunked() {
                    self.out.extend_from_slice(LAST_CHUNK);
                }
                self.reply.last(std::mem::take(&mut self.out)).await?;
                return Ok(());
            }
            if !self.out.is_empty() {
                drop(self.reply.part(std::mem::take(&mut self.out)).await?);
            }
            match self.wait(&ear.listener, over.as_mut()).await {
                Woken::Changed => {}
                Woken::Silence => {
                    let mut comment = Vec::new();
                    sse::write_comment(&mut comment, b"");
                    self.frame(&comment);
                    // Stores that tell of nothing are asked now and then.
                    is_over |= !ear.look().await;
                }
                Woken::Left => return Err(ClientGone),
                Woken::Over => is_over = true,
            }
        }
    }

    async fn wait(
        &mut self,
        listener: &Listener,
        over: std::pin::Pin<&mut impl Future<Output = ()>>,
    ) -> Woken {
        self.shard.heartbeats.set(&self.alarm);
        let pause = pin!(self.alarm.rings());
        let left = pin!(self.reply.client_left());
        let changed = pin!(listener.changed());
        match select(select(changed, over), select(left, pause)).await {
            Either::Left((Either::Left(_), _)) => Woken::Changed,
            Either::Left((Either::Right(_), _)) => Woken::Over,
            Either::Right((Either::Left(_), _)) => Woken::Left,
            Either::Right((Either::Right(_), _)) => Woken::Silence,
        }
    }

    fn event(&mut self, message: &[u8]) {
        let mut event = Vec::with_capacity(message.len() + 32);
        sse::write_event(&mut event, None, None, message);
        self.frame(&event);
    }

    fn frame(&mut self, text: &[u8]) {
        match self.reply.is_chunked() {
            true => encode_chunk(&mut self.out, text),
            false => self.out.extend_from_slice(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::compiled::CompiledUser, mcp::reply_scan::scan_reply, upstream::target::Targets,
    };

    #[test]
    fn what_a_backend_says_is_tagged_and_renamed() {
        let config = serde_json::from_str(
            r#"{"virtual_hosts":{"v":{"backends":{
                "a":{"url":"http://a/mcp"},"b":{"url":"http://b/mcp"}}}}}"#,
        )
        .unwrap();
        let user = CompiledUser::new(&config, &Targets::default());
        let place = Place {
            host: user.host("v").unwrap().clone(),
            index: 1,
        };
        let said = |data: &str| {
            let scan = scan_reply(data.as_bytes()).unwrap();
            let message = tagged(&place, data.as_bytes(), &scan, b"\"7\"");
            message.map(|message| String::from_utf8(message).unwrap())
        };
        assert_eq!(
            said(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":3}}}"#).unwrap(),
            r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"7"}}}"#
        );
        assert_eq!(
            said(r#"{"method":"notifications/resources/updated","params":{"uri":"x:1","_meta":{"k":1}}}"#).unwrap(),
            r#"{"method":"notifications/resources/updated","params":{"uri":"b-x:1","_meta":{"io.modelcontextprotocol/subscriptionId":"7"}}}"#
        );
        assert_eq!(
            said(r#"{"method":"notifications/resources/updated","params":{"uri":"x:1"}}"#).unwrap(),
            r#"{"method":"notifications/resources/updated","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"7"},"uri":"b-x:1"}}"#
        );
        for other in [
            r#"{"method":"notifications/subscriptions/acknowledged","params":{"notifications":{}}}"#,
            r#"{"method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#,
        ] {
            assert_eq!(said(other), None);
        }
    }
}
