//! A shard's connection to the Redis with user configurations, and what its invalidations do.

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
    redis::{Invalidated, RedisClient, RedisOptions},
    request::Forwarded,
    settings::Redis,
    shard_state::{ShardState, ToShard},
    upstream::resolve::Resolver,
};

/// A shard's Redis client for these settings; `this` is where invalidations go, once it is set.
pub fn redis_client(
    redis: &Redis,
    tls: Option<Arc<rustls::ClientConfig>>,
    shard: &Shard<Forwarded, ToShard>,
    resolver: &Rc<Resolver>,
    this: &Rc<OnceCell<Weak<ShardState>>>,
) -> RedisClient {
    let options = RedisOptions {
        host: redis.host.clone(),
        port: redis.port,
        username: redis.username.clone(),
        password: redis
            .password
            .as_ref()
            .map(|secret| String::from_utf8_lossy(secret.bytes()).into_owned()),
        database: redis.database,
        ..RedisOptions::default()
    };
    let patience = options.connect_timeout;
    let (host, port) = (redis.host.clone(), redis.port);
    let deadlines = shard.deadlines.clone();
    let resolver = resolver.clone();
    let connect = Rc::new(
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
    );
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
