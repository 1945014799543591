//! Where user configurations come from: the `UserConfigStore` boundary and its two adapters.
//!
//! The file adapter holds the documents the control thread read; the Redis adapter asks over the
//! shard's own connection. Neither interprets more than the encoding.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use crate::{
    config::{
        decode::{DecodeLimits, decode},
        document::Document,
        redis_key::user_key,
        user_config::UserConfig,
    },
    redis::{RedisClient, RedisFault, Reply},
    schema::{SchemaLimits, pool::Pool},
};
use futures_util::future::join;

/// A shard's view of the store.
#[derive(Debug)]
pub enum UserConfigStore {
    /// Documents, swapped whole.
    File(FileStore),
    /// Redis.
    Redis(RedisStore),
}

/// The file adapter.
#[derive(Debug, Default)]
pub struct FileStore {
    document: RefCell<Arc<Document>>,
    generation: Cell<u64>,
}

/// The Redis adapter.
#[derive(Debug)]
pub struct RedisStore {
    client: RedisClient,
    limits: DecodeLimits,
    /// Compiles the schemas of declared tools off the shard.
    pool: Arc<Pool>,
}

/// What the store says of a subject.
#[derive(Debug, Clone)]
pub enum Fetched {
    /// Its configuration; the token tells whether it is the same as another.
    Config(Arc<UserConfig>, Fingerprint),
    /// As the fingerprint given: nothing changed.
    Unchanged,
    /// There is none.
    Nothing,
}

/// Tells configurations apart without comparing them.
pub type Fingerprint = [u8; 32];

/// Why the store says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// It cannot be reached, or did not answer in time.
    #[error("the store cannot be reached")]
    Unreachable,
    /// It holds something that is no configuration.
    #[error("the stored configuration cannot be read")]
    Undecodable,
}

impl FileStore {
    /// Swaps the documents.
    pub fn replace(&self, document: Arc<Document>) {
        *self.document.borrow_mut() = document;
        self.generation.set(self.generation.get() + 1);
    }

    /// Whether `document` revokes other tokens than the documents now.
    pub fn revokes_others(&self, document: &Document) -> bool {
        self.document.borrow().revoked_tokens != document.revoked_tokens
    }

    /// Whether a document revokes the token with this `jti`.
    pub fn is_revoked(&self, token_id: &str) -> bool {
        self.document.borrow().revoked_tokens.contains(token_id)
    }
}

impl RedisStore {
    /// An adapter over the shard's connection; what has tools is read on a thread of `pool`, and
    /// their schemas are held to these bounds.
    pub fn new(client: RedisClient, pool: Arc<Pool>, schema: SchemaLimits) -> Self {
        Self {
            client,
            limits: DecodeLimits {
                schema,
                ..DecodeLimits::default()
            },
            pool,
        }
    }

    async fn read(&self, value: Vec<u8>) -> Result<UserConfig, StoreFault> {
        let limits = self.limits;
        // The field's name in MessagePack: only then are there schemas to compile.
        let decoded = if memchr::memmem::find(&value, b"\xa5tools").is_some() {
            let decoding = self.pool.run(move || decode(&value, &limits)).await;
            decoding.map_err(|_| StoreFault::Unreachable)?.outcome
        } else {
            decode(&value, &limits)
        };
        decoded.map_err(|_| StoreFault::Undecodable)
    }

    /// The connection.
    pub fn client(&self) -> &RedisClient {
        &self.client
    }

    /// Whether the control plane has revoked the token with this `jti`: it keeps all of them in one
    /// set, and the last day's as keys of their own.
    ///
    /// # Errors
    /// When Redis does not say.
    pub async fn is_revoked(&self, token_id: &str) -> Result<bool, StoreFault> {
        let key = [REVOKED_PREFIX, token_id.as_bytes()].concat();
        let member: [&[u8]; 3] = [b"SISMEMBER", REVOKED_SET, token_id.as_bytes()];
        let exists: [&[u8]; 2] = [b"EXISTS", &key];
        let asked = join(self.client.command(&member), self.client.command(&exists));
        match asked.await {
            (Ok(Reply::Integer(member)), Ok(Reply::Integer(exists))) => {
                Ok(member > 0 || exists > 0)
            }
            _ => Err(StoreFault::Unreachable),
        }
    }
}

/// The control plane's set of revoked tokens.
const REVOKED_SET: &[u8] = b"mcpgw:auth:revoked_tokens";
/// And the key of each, before its `jti`.
const REVOKED_PREFIX: &[u8] = b"mcpgw:auth:revoke:";

/// Whether a key that has changed says that a token was revoked.
pub fn is_about_revocation(key: &[u8]) -> bool {
    key == REVOKED_SET || key.starts_with(REVOKED_PREFIX)
}

impl UserConfigStore {
    /// What it says of `subject`; `known` is the fingerprint of the copy the caller has.
    pub async fn fetch(
        &self,
        subject: &str,
        known: Option<Fingerprint>,
    ) -> Result<Fetched, StoreFault> {
        match self {
            Self::File(store) => {
                let document = store.document.borrow().clone();
                let Some(config) = document.of_subject(subject) else {
                    return Ok(Fetched::Nothing);
                };
                // Documents are swapped whole, so their addresses tell them apart as long as they
                // live, and the generation does afterwards.
                let mut fingerprint = [0; 32];
                fingerprint[..8].copy_from_slice(&store.generation.get().to_le_bytes());
                fingerprint[8..16]
                    .copy_from_slice(&(Arc::as_ptr(config) as usize as u64).to_le_bytes());
                if known == Some(fingerprint) {
                    return Ok(Fetched::Unchanged);
                }
                Ok(Fetched::Config(config.clone(), fingerprint))
            }
            Self::Redis(store) => {
                let value =
                    store
                        .client
                        .get(&user_key(subject))
                        .await
                        .map_err(|fault| match fault {
                            RedisFault::ValueTooLarge => StoreFault::Undecodable,
                            _ => StoreFault::Unreachable,
                        })?;
                let Some(value) = value else {
                    return Ok(Fetched::Nothing);
                };
                let mut fingerprint = [0; 32];
                fingerprint
                    .copy_from_slice(ring::digest::digest(&ring::digest::SHA256, &value).as_ref());
                if known == Some(fingerprint) {
                    return Ok(Fetched::Unchanged);
                }
                let config = store.read(value).await?;
                Ok(Fetched::Config(Arc::new(config), fingerprint))
            }
        }
    }
}

/// The subject of a key of ours, as an invalidation names it.
pub fn subject_of_key(key: &[u8]) -> Option<&str> {
    // contextforge.md 3.1: array(2), str(10) "UserConfig", str subject.
    let rest = key.strip_prefix(b"\x92\xaaUserConfig")?;
    let (length, text) = match rest {
        [head @ 0xa0..=0xbf, text @ ..] => (usize::from(head & 0x1f), text),
        [0xd9, length, text @ ..] => (usize::from(*length), text),
        [0xda, high, low, text @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), text),
        _ => return None,
    };
    (text.len() == length)
        .then(|| std::str::from_utf8(text).ok())
        .flatten()
}

/// The store of a shard, shared with the task that keeps its connection.
pub type SharedStore = Rc<UserConfigStore>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_their_subject() {
        for subject in [
            "a",
            "admin@example.com",
            &"x".repeat(31),
            &"y".repeat(32),
            &"z".repeat(300),
        ] {
            assert_eq!(subject_of_key(&user_key(subject)), Some(subject));
        }
        assert_eq!(subject_of_key(b"other"), None);
        assert_eq!(subject_of_key(b"\x92\xaaUserConfig\xa5abc"), None);
    }
}
