//! The connection gateway's part of a start: its listeners, its name, each shard's part of it.

use std::{net::SocketAddr, rc::Rc, sync::Arc};

use crate::{
    bridge::Bridge,
    connection_gateway::{AllNumbers, Listeners, Node, session_id::SessionId},
    prepare::Prepared,
    settings::Settings,
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
pub(super) fn node_id(settings: &Settings) -> String {
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

/// One shard's part of it, with the counters of all and the shard's own place among them.
pub(super) fn node(
    prepared: &Prepared,
    node_id: &str,
    listeners: Option<Listeners>,
    numbers: (AllNumbers, usize),
    bridge: &Arc<Bridge>,
) -> Option<Rc<Node>> {
    let wanted = prepared.settings.connection_gateway.as_ref()?;
    // Without a listener for MCP clients nobody could use a server.
    let has_clients = prepared.settings.listen.addresses().next().is_some();
    let bridge = has_clients.then(|| bridge.clone());
    let (settings, secret) = (Arc::new(wanted.clone()), &prepared.fingerprint_secret);
    let node = Node::new(settings, node_id, listeners?, secret, numbers, bridge);
    Some(Rc::new(node))
}
