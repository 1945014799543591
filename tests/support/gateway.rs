//! A gateway in the test's own process, with a state folder of its own.

use std::{
    fs,
    net::SocketAddr,
    num::NonZeroUsize,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use shardgate::{
    auth::{MintRequest, SignatureAlgorithm, SigningKey, mint},
    settings::{Secret, Settings, StoreSource},
};

use super::{Backend, client::Connection};

/// The virtual host of [`Plan::of`].
pub const HOST: &str = "main";
const SECRET: &[u8] = b"a secret only the tests know";

/// A virtual host without backends, in gateways with [`Layout::Spread`].
pub(super) const DECOY_HOST: &str = "decoy";

/// How many shards, and how clients come to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One shard.
    One,
    /// Two shards; connections move to their session's owner, as they do.
    Two,
    /// Four shards, and the connections of [`super::McpClient`] are none of their owner's: all its
    /// requests are forwarded.
    Spread,
}

/// All layouts: what a client sees must be the same.
pub const LAYOUTS: [Layout; 3] = [Layout::One, Layout::Two, Layout::Spread];

impl Layout {
    /// How many shards.
    pub fn shards(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Spread => 4,
        }
    }
}

type Adjust = Box<dyn FnOnce(&mut Settings)>;

/// What a gateway is to be started with.
pub struct Plan {
    document: Option<Value>,
    shards: usize,
    is_spread: bool,
    with_tokens: bool,
    adjust: Vec<Adjust>,
}

impl Plan {
    /// Everyone's virtual host `main` with these backends, by key and URL.
    pub fn of(backends: &[(&str, &str)]) -> Self {
        let backends: serde_json::Map<String, Value> = backends
            .iter()
            .map(|(key, url)| ((*key).to_owned(), json!({"name": key, "url": url})))
            .collect();
        Self::document(json!({"virtual_hosts": {HOST: {"backends": backends}}}))
    }

    /// Everyone's virtual host `main` with one backend, `a`.
    pub fn one(backend: &Backend) -> Self {
        Self::of(&[("a", &backend.url())])
    }

    /// A whole configuration document.
    pub fn document(document: Value) -> Self {
        Self {
            document: Some(document),
            shards: 2,
            is_spread: false,
            with_tokens: false,
            adjust: Vec::new(),
        }
    }

    /// No configuration document: the settings closure names the store.
    pub fn without_document() -> Self {
        Self {
            document: None,
            ..Self::document(Value::Null)
        }
    }

    /// How many shards; 2 unless said.
    pub fn shards(mut self, count: usize) -> Self {
        self.shards = count;
        self
    }

    /// How many shards, and how clients come to them.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.shards = layout.shards();
        self.is_spread = layout == Layout::Spread;
        self
    }

    /// Callers need a token ([`Gateway::token`]).
    pub fn with_tokens(mut self) -> Self {
        self.with_tokens = true;
        self
    }

    /// Changes the settings before the start.
    pub fn settings(mut self, adjust: impl FnOnce(&mut Settings) + 'static) -> Self {
        self.adjust.push(Box::new(adjust));
        self
    }

    /// Starts it.
    pub fn start(self) -> Gateway {
        let folder = new_folder();
        let mut settings = Settings::testing();
        settings.state_dir = folder.join("state");
        settings.shards.count = NonZeroUsize::new(self.shards);
        if let Some(mut document) = self.document {
            if self.is_spread {
                add_decoys(&mut document);
            }
            let path = folder.join("config.json");
            fs::write(&path, document.to_string()).unwrap();
            settings.store.source = StoreSource::File(path);
        }
        if self.with_tokens {
            settings.access.allow_anonymous = false;
            settings.auth.secret = Some(Secret::new(SECRET));
        }
        for adjust in self.adjust {
            adjust(&mut settings);
        }
        let inner = shardgate::gateway::Gateway::start(settings).unwrap();
        Gateway {
            address: inner.address.unwrap(),
            admin_address: inner.admin_address,
            inner: Some(inner),
            folder,
            shards: self.shards,
            is_spread: self.is_spread,
        }
    }
}

/// A running gateway; stopped, and its folder removed, when dropped.
pub struct Gateway {
    /// The plain listener.
    pub address: SocketAddr,
    /// The admin listener, if it is on.
    pub admin_address: Option<SocketAddr>,
    /// How many shards it has.
    pub shards: usize,
    pub(super) is_spread: bool,
    inner: Option<shardgate::gateway::Gateway>,
    folder: PathBuf,
}

impl Gateway {
    /// A new client connection.
    pub fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// The configuration file, for tests that change it.
    pub fn config_path(&self) -> PathBuf {
        self.folder.join("config.json")
    }

    /// A token of this subject.
    pub fn token(&self, subject: &str) -> String {
        self.token_for(subject, "mcpgateway-api")
    }

    /// The same for another audience.
    pub fn token_for(&self, subject: &str, audience: &str) -> String {
        minted(subject, audience, 0, 3600)
    }

    /// A token of this subject, minted so many seconds ago for a lifetime in seconds.
    pub fn token_at(&self, subject: &str, ago_s: u64, lifetime_s: u64) -> String {
        minted(subject, "mcpgateway-api", ago_s, lifetime_s)
    }

    /// A token of the control plane with these claims.
    pub fn token_with(&self, claims: &Value) -> String {
        let key = jsonwebtoken::EncodingKey::from_secret(SECRET);
        jsonwebtoken::encode(&jsonwebtoken::Header::default(), claims, &key).unwrap()
    }

    /// A token of this subject with these claims beside the usual ones.
    pub fn token_of(&self, subject: &str, claims: &Value) -> String {
        use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};

        let token = self.token(subject);
        let usual = token.split('.').nth(1).unwrap();
        let mut all: Value = serde_json::from_slice(&BASE64.decode(usual).unwrap()).unwrap();
        for (name, value) in claims.as_object().unwrap() {
            all[name] = value.clone();
        }
        self.token_with(&all)
    }

    /// A metric summed over its shards, as the metrics text has it.
    pub fn metric(&self, name: &str) -> u64 {
        self.metric_by_shard(name).iter().sum()
    }

    /// The same, shard by shard.
    pub fn metric_by_shard(&self, name: &str) -> Vec<u64> {
        let text = shardgate::admin::text(&self.inner.as_ref().unwrap().view);
        let values: Vec<u64> = text
            .lines()
            .filter_map(|line| line.strip_prefix(name))
            .filter(|rest| rest.starts_with(['{', ' ']))
            // Counters and gauges of tests are small whole numbers.
            .map(|rest| rest.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64)
            .collect();
        assert!(!values.is_empty(), "no metric {name}");
        values
    }

    /// The gateway itself.
    pub fn inner(&self) -> &shardgate::gateway::Gateway {
        self.inner.as_ref().unwrap()
    }

    /// Drains and ends; true: nothing was cut off.
    pub fn stop(mut self) -> bool {
        self.inner.take().unwrap().stop()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            inner.stop();
        }
        // Nothing else is in it.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Adds a virtual host without backends wherever there are virtual hosts.
fn add_decoys(document: &mut Value) {
    let Some(members) = document.as_object_mut() else {
        return;
    };
    for (name, member) in members {
        match member.as_object_mut() {
            Some(hosts) if name == "virtual_hosts" => {
                hosts.insert(DECOY_HOST.to_owned(), json!({"backends": {}}));
            }
            _ => add_decoys(member),
        }
    }
}

/// A folder of this test's own.
pub fn new_folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("shardgate-test-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn minted(subject: &str, audience: &str, ago_s: u64, lifetime_s: u64) -> String {
    let key = SigningKey::from_secret(SECRET).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let request = MintRequest {
        audience,
        lifetime_s,
        ..MintRequest::bootstrap(subject, subject, SignatureAlgorithm::Hs256, &key)
    };
    mint(&request, now.as_secs() - ago_s).unwrap()
}
