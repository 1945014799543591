//! One command to Redis for the command line, with the gateway's own client on a shard of its own:
//! the same options, the same TLS, the same errors.

use std::{cell::OnceCell, rc::Rc, sync::Arc, time::Duration};

use shards::{DriverChoice, Plan, Shard};

use crate::{
    gateway::redis_client,
    prepare::redis_tls,
    redis::{RedisClient, RedisFault},
    request::Forwarded,
    settings::{Settings, StoreSource},
    shard_state::ToShard,
    upstream::resolve::Resolver,
};

/// Why the command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ToolFault {
    /// The store is not Redis.
    #[error("the store is not Redis")]
    NotRedis,
    /// A TLS file cannot be used.
    #[error("{0}")]
    Tls(String),
    /// The shard could not be started.
    #[error("cannot start: {0}")]
    Start(std::io::Error),
    /// Redis did not do it.
    #[error("Redis: {0:?}")]
    Redis(RedisFault),
    /// The shard ended without an answer.
    #[error("no answer")]
    NoAnswer,
}

/// `GET`.
pub fn get(settings: Settings, key: Vec<u8>) -> Result<Option<Vec<u8>>, ToolFault> {
    with_client(settings, move |client| {
        let key = key.clone();
        async move { client.get(&key).await }
    })
}

/// `SET`.
pub fn set(settings: Settings, key: Vec<u8>, value: Vec<u8>) -> Result<(), ToolFault> {
    with_client(settings, move |client| {
        let (key, value) = (key.clone(), value.clone());
        async move { client.set(&key, &value).await }
    })
}

fn with_client<T, F, Fut>(settings: Settings, work: F) -> Result<T, ToolFault>
where
    T: Send + 'static,
    F: Fn(RedisClient) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T, RedisFault>>,
{
    let mut faults = Vec::new();
    let tls = redis_tls(&settings, &mut faults);
    if let Some(fault) = faults.into_iter().next() {
        return Err(ToolFault::Tls(fault));
    }
    let StoreSource::Redis(redis) = settings.store.source else {
        return Err(ToolFault::NotRedis);
    };
    let (sender, receiver) = crossbeam_channel::bounded(1);
    let redis = Arc::new(redis);
    let plan = Plan {
        shards: 1,
        cpus: None,
        driver: DriverChoice::Epoll,
        busy_poll: Duration::ZERO,
        name: "redis",
    };
    let work = Arc::new(work);
    let shards = shards::start(
        &plan,
        Vec::new(),
        move |shard: Shard<Forwarded, ToShard>| {
            let (redis, tls, sender) = (redis.clone(), tls.clone(), sender.clone());
            let work = work.clone();
            async move {
                // The system's resolver may block here: nothing else runs on this shard.
                let resolver = Rc::new(Resolver::blocking(shard.id));
                let this = Rc::new(OnceCell::new());
                let client = redis_client(&redis, tls, &shard, &resolver, &this);
                let result = work(client.clone()).await;
                client.stop();
                // The caller waits for exactly one result.
                let _ = sender.send(result);
                shards::sleep(Duration::from_millis(5)).await;
            }
        },
    )
    .map_err(ToolFault::Start)?;
    let result = receiver.recv().map_err(|_| ToolFault::NoAnswer)?;
    shards.join();
    result.map_err(ToolFault::Redis)
}
