//! TLS end to end: to backends, from clients, across shards, to Redis; every certificate is made
//! here and lives as long as its test.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/old.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod old;
#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod process;
#[path = "support/redis.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod redis;
#[path = "support/support.rs"]
mod support;
#[path = "support/tls.rs"]
mod tls;

#[path = "operations/caller.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod caller;

#[path = "tls/backends.rs"]
mod backends;
#[path = "tls/bad_backends.rs"]
mod bad_backends;
#[path = "tls/client_records.rs"]
mod client_records;
#[path = "tls/hand_over.rs"]
mod hand_over;
#[path = "tls/listener.rs"]
mod listener;
#[path = "tls/modes.rs"]
mod modes;
#[path = "tls/old_transport.rs"]
mod old_transport;
#[path = "tls/records.rs"]
mod records;
#[path = "tls/redis_tls.rs"]
mod redis_tls;
#[path = "tls/reload.rs"]
mod reload;

use std::{path::PathBuf, sync::Arc};

use shardgate::settings::TlsListen;

use certificates::{Authority, Identity, VERSIONS};
use process::Folder;
use support::{Gateway, HOST, McpClient, Plan};
use tls::TlsClient;

/// Everybody's names here.
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// An authority, somebody it vouches for under all of [`NAMES`], and a folder for PEM files.
struct Trust {
    authority: Authority,
    identity: Identity,
    folder: Folder,
}

impl Trust {
    fn new() -> Self {
        let authority = Authority::new("a root of a test");
        let identity = authority.issue(&NAMES);
        Self {
            authority,
            identity,
            folder: Folder::new(),
        }
    }

    /// A PEM file of this text.
    fn file(&self, name: &str, pem: &str) -> PathBuf {
        self.folder.write(name, pem).into()
    }

    /// Where a PEM file is.
    fn file_path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes the gateway of `plan` trust backends of this authority.
    fn toward_backends(&self, plan: Plan) -> Plan {
        let bundle = self.file("bundle.pem", &self.authority.pem());
        plan.settings(|settings| settings.upstream.trust_bundle = Some(bundle))
    }

    /// Gives the gateway of `plan` a TLS listener.
    fn listening(&self, plan: Plan) -> Plan {
        let listen = TlsListen {
            address: ([127, 0, 0, 1], 0).into(),
            certificate: self.file("server.pem", &self.identity.chain_pem()),
            private_key: self.file("server.key", &self.identity.key_pem()),
        };
        plan.settings(|settings| settings.listen.tls = Some(listen))
    }

    /// Settings of a client of that listener.
    fn client(&self) -> Arc<rustls::ClientConfig> {
        Arc::new(self.authority.client(&VERSIONS))
    }
}

/// A session over a TLS connection to the gateway's listener.
fn open_session(gateway: &Gateway, config: &Arc<rustls::ClientConfig>) -> McpClient {
    let address = gateway.inner().tls_address.unwrap();
    let connection = TlsClient::connect(config, address);
    McpClient::open_over(connection, address, HOST, None)
}

/// The text of the first content block of a call's result.
fn text_of(response: &support::Response) -> String {
    let result = response.result();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}
