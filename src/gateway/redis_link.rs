//! A shard's connections to Redis: to the one with user configurations, with what its invalidations
//! do, and to the one that nodes of the connection gateway share.

use std::{
    cell::{OnceCell, RefCell},
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use shards::{Shard, Stream};

use crate::{
    config::store::{is_about_revocation, subject_of_key},
    link::Link,
    redis::{Connect, Invalidated, OnInvalidate, RedisClient, RedisOptions, RespLimits, Tracking},
    request::Forwarded,
    settings::Redis,
    shard_state::{ShardState, ToShard},
    upstream::resolve::Resolver,
};

/// Whom to talk to; the limits are the client's own.
pub(super) fn options(redis: &Redis) -> RedisOptions {
    RedisOptions {
        host: redis.host.clone(),
        port: redis.port,
        username: redis.username.clone(),
        password: redis
            .password
            .as_ref()
            .map(|secret| String::from_utf8_lossy(secret.bytes()).into_owned()),
        database: redis.database,
        ..RedisOptions::default()
    }
}

/// Opens connections to it.
pub(super) fn connect(
    options: &RedisOptions,
    tls: Option<Arc<rustls::ClientConfig>>,
    shard: &Shard<Forwarded, ToShard>,
    resolver: &Rc<Resolver>,
) -> Connect {
    let patience = options.connect_timeout;
    let (host, port) = (options.host.clone(), options.port);
    let deadlines = shard.deadlines.clone();
    let resolver = resolver.clone();
    Rc::new(
        move || -> futures_util::future::LocalBoxFuture<'static, _> {
            let (host, tls) = (host.clone(), tls.clone());
            let (deadlines, resolver) = (deadlines.clone(), resolver.clone());
            Box::pin(async move {
                let addresses = resolver.resolve(&host, port, &RefCell::default()).await;
                let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
                for address in addresses {
                    match Stream::connect(address, patience, &deadlines).await {
                        Ok(stream) => return secure(stream, tls, &host, patience).await,
                        Err(error) => last = error,
                    }
                }
                Err(last)
            })
        },
    )
}

/// A shard's Redis client for these settings; `this` is where invalidations go, once it is set.
pub fn redis_client(
    redis: &Redis,
    tls: Option<Arc<rustls::ClientConfig>>,
    shard: &Shard<Forwarded, ToShard>,
    resolver: &Rc<Resolver>,
    this: &Rc<OnceCell<Weak<ShardState>>>,
) -> RedisClient {
    let options = options(redis);
    let connect = connect(&options, tls, shard, resolver);
    let this = this.clone();
    let on_invalidate = Rc::new(move |what: Invalidated<'_>| {
        let Some(state) = this.get().and_then(Weak::upgrade) else {
            return;
        };
        match what {
            Invalidated::All => {
                state.configs.invalidate_all();
                state.forget_unrevoked();
                state.hub.look(None);
            }
            Invalidated::Key(key) if is_about_revocation(key) => state.forget_unrevoked(),
            Invalidated::Key(key) => {
                if let Some(subject) = subject_of_key(key) {
                    state.configs.invalidate(subject);
                    state.hub.look(Some(subject));
                }
            }
        }
    });
    RedisClient::start(options, connect, on_invalidate)
}

/// How long a command of the registry may take: what fails is told to somebody, so not too short.
const REGISTRY_COMMAND: Duration = Duration::from_secs(2);
/// Bytes of a reply with what many mailboxes have, and of a command with many answers, at the
/// least: a reply that is larger is asked for in parts.
const REGISTRY_FRAME_BYTES: usize = 16 << 20;
/// The same in envelopes, where those may be very large.
const REGISTRY_FRAME_ENVELOPES: usize = 8;
/// Items of such a reply.
const REGISTRY_ITEMS: usize = 1 << 20;

/// A shard's two clients of the Redis that nodes share: for commands, and for reads that wait for
/// `block`; envelopes have so many bytes at the most.
pub(super) fn registry_clients(
    redis: &Redis,
    tls: Option<Arc<rustls::ClientConfig>>,
    shard: &Shard<Forwarded, ToShard>,
    resolver: &Rc<Resolver>,
    (block, envelope_bytes_max): (Duration, usize),
) -> (RedisClient, RedisClient) {
    let options = RedisOptions {
        command_timeout: REGISTRY_COMMAND,
        tracking: Tracking::Unavailable,
        limits: RespLimits {
            frame_bytes_max: envelope_bytes_max
                .saturating_mul(REGISTRY_FRAME_ENVELOPES)
                .max(REGISTRY_FRAME_BYTES),
            items_max: REGISTRY_ITEMS,
            ..RespLimits::default()
        },
        ..options(redis)
    };
    let connect = connect(&options, tls, shard, resolver);
    // Nothing is read that changes would be told of.
    let on_invalidate: OnInvalidate = Rc::new(|_| {});
    let reading = RedisOptions {
        command_timeout: block.saturating_add(REGISTRY_COMMAND),
        ..options.clone()
    };
    (
        RedisClient::start(options, connect.clone(), on_invalidate.clone()),
        RedisClient::start(reading, connect, on_invalidate),
    )
}

async fn secure(
    stream: Stream,
    tls: Option<Arc<rustls::ClientConfig>>,
    host: &str,
    patience: Duration,
) -> std::io::Result<Link> {
    let Some(tls) = tls else {
        return Ok(Link::Plain(stream));
    };
    let name = rustls::pki_types::ServerName::try_from(host.to_owned())
        .map_err(|_| std::io::ErrorKind::InvalidInput)?;
    stream.deadline().arm(patience);
    let link = Link::connect_tls(stream, tls, name).await?;
    link.deadline().disarm();
    Ok(link)
}
