//! The name of a node is one process's at a time. Sessions are told apart all the same; but callers
//! could no longer tell whose they are, so the operator is told.

use std::{
    rc::{Rc, Weak},
    time::Duration,
};

use super::{Cluster, script::Script};
use crate::{connection_gateway::node::Node, log, redis::Reply};

static HOLD: Script = Script::new(
    r#"
-- KEYS: node. ARGV: process, lease. Who has the name, when it is another one.
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
"#,
);

static LET_GO: Script = Script::new(
    r#"
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return false
"#,
);

/// Keeps the name while the node lives. A name that another process still has after a whole lease
/// is held by one that lives.
pub(super) async fn hold(cluster: Rc<Cluster>, node: Weak<Node>) {
    let pause = Duration::from_millis((cluster.limits.lease_ms / 3).max(10));
    let (mut other, mut is_told) = (None, false);
    let mut met = 0;
    while let Some(node) = node.upgrade() {
        let key = cluster.keys.node(&node.node_id);
        let process = cluster.process.as_bytes();
        let client = &cluster.client;
        if node.is_draining() {
            // It ends with the lease all the same.
            let _ = LET_GO.run(client, &[key.as_bytes()], &[process]).await;
            return;
        }
        let lease = cluster.limits.lease_ms.to_string();
        let outcome = HOLD
            .run(client, &[key.as_bytes()], &[process, lease.as_bytes()])
            .await;
        match outcome {
            Ok(Reply::Bulk(holder)) => {
                met = if other.as_ref() == Some(&holder) {
                    met + 1
                } else {
                    0
                };
                other = Some(holder);
                if met > 3 && !is_told {
                    is_told = true;
                    log::error(|| {
                        "connection gateway: another live process has this node's name; give each \
                         its own CONNECTION_GATEWAY_NODE_ID"
                            .into()
                    });
                }
            }
            Ok(_) => (other, is_told) = (None, false),
            Err(_) => {}
        }
        drop(node);
        shards::sleep(pause).await;
    }
}
