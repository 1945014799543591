//! The helpers of the seed's walk-through: a token, a user configuration, health. Off unless asked
//! for, and then on loopback listeners only (contextforge.md 4.1, 2).

use std::rc::Rc;

use shards::clock::unix_s;

use crate::{
    auth::{MintRequest, SignatureAlgorithm, SigningKey, mint},
    config::{
        encode::{ArrayLayout, encode_array},
        redis_key::user_key,
        store::UserConfigStore,
        user_config::UserConfig,
    },
    endpoint::BootstrapRoute,
    http::Method,
    refusal::{Answer, Refusal},
    reply::Reply,
    request::{Request, gone_is_fine},
    shard_state::ShardState,
};

/// What the helpers need.
pub struct Bootstrap {
    /// Signs tokens.
    pub key: SigningKey,
    /// With this algorithm.
    pub algorithm: SignatureAlgorithm,
}

impl std::fmt::Debug for Bootstrap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bootstrap(..)")
    }
}

/// Lifetime of a helper token, seconds.
const TOKEN_LIFETIME_S: u64 = 3600;

/// Serves a helper route; without the helpers there is none.
pub async fn serve(
    shard: &Rc<ShardState>,
    request: &Request,
    route: BootstrapRoute<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let bootstrap = shard.bootstrap.as_ref().ok_or(Refusal::Path)?;
    if !request.peer.ip().is_loopback() {
        return Err(Refusal::Path);
    }
    let answer = match (route, request.head.method) {
        (BootstrapRoute::Health, Method::Get) => Answer {
            content_type: "application/json",
            ..plain(200, "{\"status\": \"healthy\"}")
        },
        (BootstrapRoute::Token(user), Method::Get) => token(shard, bootstrap, user)?,
        (BootstrapRoute::UserConfig(user), Method::Post) => {
            put_user_config(shard, request, user).await
        }
        _ => return Err(Refusal::Method),
    };
    gone_is_fine(reply.answer(answer).await)
}

fn plain(status: u16, text: &str) -> Answer {
    Answer {
        status,
        content_type: "text/plain",
        body: text.as_bytes().to_vec(),
        headers: "",
        must_close: false,
    }
}

fn token(shard: &ShardState, bootstrap: &Bootstrap, user: &str) -> Result<Answer, Refusal> {
    let rules = &shard.token_rules;
    let wanted = MintRequest {
        lifetime_s: TOKEN_LIFETIME_S,
        issuer: &rules.issuer,
        audience: &rules.audience,
        ..MintRequest::bootstrap(user, user, bootstrap.algorithm, &bootstrap.key)
    };
    let token = mint(&wanted, unix_s()).map_err(|_| Refusal::Internal)?;
    Ok(plain(200, &token))
}

async fn put_user_config(shard: &Rc<ShardState>, request: &Request, user: &str) -> Answer {
    let config: UserConfig = match serde_json::from_slice(request.body_bytes()) {
        Ok(config) => config,
        Err(error) => {
            let text = format!(
                "The body is not a user configuration (line {}, column {})",
                error.line(),
                error.column()
            );
            return plain(422, &text);
        }
    };
    if config.names_credentials() {
        return plain(422, "`auth` only counts in the local configuration file");
    }
    let UserConfigStore::Redis(store) = shard.configs.store() else {
        return plain(
            409,
            "The file store is read-only; put the configuration into its file",
        );
    };
    // The form the contract's own endpoint writes.
    let value = encode_array(&config, ArrayLayout::Head);
    let written = store.client().set(&user_key(user), &value).await;
    shard.configs.invalidate(user);
    match written {
        Ok(()) => plain(202, "Added"),
        Err(_) => plain(500, "Problem with encoding "),
    }
}
