//! The connection gateway's part of a start: its listeners, its name, each shard's part of it.

use std::{net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use shards::Shard;

use super::redis_link::registry_clients;
use crate::{
    bridge::Bridge,
    connection_gateway::{
        AllNumbers, Listeners, Node,
        registry::{self, Cluster, Registry},
        session_id::SessionId,
    },
    prepare::Prepared,
    request::Forwarded,
    settings::Settings,
    shard_state::ToShard,
    upstream::resolve::Resolver,
};

/// Where the connection gateway is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionGatewayAt {
    /// The internal HTTP API's address.
    pub http: SocketAddr,
    /// The WebSockets' address.
    pub websocket: SocketAddr,
    /// And their path.
    pub path: String,
}

/// The connection gateway's name for this node.
fn node_id(settings: &Settings) -> String {
    let said = settings.connection_gateway.as_ref();
    let said = said.and_then(|settings| settings.node_id.clone());
    said.unwrap_or_else(|| {
        let id = SessionId::random();
        let id = id.as_ref().map_or("node", |id| id.as_str());
        format!("fastgpt-plugin-{id}")
    })
}

/// Binds its listeners with `bind`, behind the `before` others; where they are and which.
pub(super) fn bind(
    settings: &Settings,
    before: u8,
    mut bind: impl FnMut(Option<SocketAddr>) -> Result<Option<SocketAddr>, Vec<String>>,
) -> Result<Option<(ConnectionGatewayAt, Listeners)>, Vec<String>> {
    let Some(wanted) = &settings.connection_gateway else {
        return Ok(None);
    };
    let (http, websocket) = (bind(Some(wanted.http))?, bind(Some(wanted.websocket))?);
    let at = http.zip(websocket).map(|(http, websocket)| {
        let at = ConnectionGatewayAt {
            http,
            websocket,
            path: wanted.path.clone(),
        };
        let listeners = Listeners {
            http: before,
            websocket: before + 1,
        };
        (at, listeners)
    });
    Ok(at)
}

/// What all shards of the connection gateway have in common.
#[derive(Debug, Clone)]
pub(super) struct Common {
    /// Its listeners, when it is wanted.
    pub(super) listeners: Option<Listeners>,
    /// Name of the node.
    pub(super) node_id: String,
    /// A text that no other process has.
    pub(super) process: String,
    /// The counters.
    pub(super) numbers: AllNumbers,
}

impl Common {
    /// Of so many shards.
    pub(super) fn new(settings: &Settings, listeners: Option<Listeners>, shards: u16) -> Self {
        let process = SessionId::random();
        Self {
            listeners,
            node_id: node_id(settings),
            process: process.map_or_else(String::new, |id| id.as_str().to_owned()),
            numbers: (0..shards).map(|_| Arc::default()).collect(),
        }
    }
}

/// One shard's part of it.
pub(super) fn node(
    prepared: &Prepared,
    common: Common,
    shard: &Shard<Forwarded, ToShard>,
    resolver: &Rc<Resolver>,
    bridge: &Arc<Bridge>,
) -> Option<Rc<Node>> {
    let wanted = prepared.settings.connection_gateway.as_ref()?;
    // Without a listener for MCP clients nobody could use a server.
    let has_clients = prepared.settings.listen.addresses().next().is_some();
    let bridge = has_clients.then(|| bridge.clone());
    let (settings, secret) = (Arc::new(wanted.clone()), &prepared.fingerprint_secret);
    let place = usize::from(shard.id);
    let registry = match &wanted.redis {
        None => Registry::Memory,
        Some(redis) => {
            let tls = prepared.registry_tls.clone();
            let block = Duration::from_millis(registry::block_ms(wanted));
            let clients = registry_clients(
                redis,
                tls,
                shard,
                resolver,
                (block, wanted.envelope_bytes_max),
            );
            let name = (&*common.node_id, &*common.process, shard.id);
            let numbers = common.numbers[place].clone();
            Registry::Redis(Rc::new(Cluster::new(clients, wanted, name, numbers)))
        }
    };
    let numbers = (common.numbers, place);
    let listeners = common.listeners?;
    let node = Node::new(
        settings,
        &common.node_id,
        listeners,
        secret,
        numbers,
        (registry, bridge),
    );
    Some(Rc::new(node))
}
