//! The auth step: a request's bearer token to its principal.

use std::rc::Rc;

use crate::{
    auth::{AuthFault, Principal, Trust, bearer, revocation::Standing},
    refusal::Refusal,
    request::Request,
    shard_state::ShardState,
};

/// How often keys or revocations may change while a token is verified.
const ATTEMPTS_MAX: usize = 3;

/// Who sent the request. Verified tokens are remembered until they expire; a request without a
/// token is anonymous where that is allowed.
pub async fn authenticate(shard: &ShardState, request: &Request) -> Result<Rc<Principal>, Refusal> {
    let Some(header) = request.field(request.head.authorization) else {
        return shard.anonymous.clone().ok_or_else(|| refused(shard, false));
    };
    if shard.keys.is_empty()
        && shard.issuers.is_empty()
        && let Some(anonymous) = &shard.anonymous
    {
        // No key is configured, so no token means anything here.
        return Ok(anonymous.clone());
    }
    let Some(token) = bearer(header) else {
        return Err(refused(shard, false));
    };
    let now = shards::clock::coarse_unix_s();
    let known = shard.tokens.borrow_mut().lookup(token, now);
    let principal = match known {
        Some(principal) => principal,
        // Boxed: rare, and larger than all the rest.
        None => Box::pin(prove(shard, token, now)).await?,
    };
    if principal.must_name_resource && !is_meant_for_endpoint(shard, request, &principal) {
        return Err(refused(shard, true));
    }
    Ok(principal)
}

/// The principal of a token that is not known.
async fn prove(shard: &ShardState, token: &[u8], now: u64) -> Result<Rc<Principal>, Refusal> {
    for _ in 0..ATTEMPTS_MAX {
        let issuers = shard.issuers.current();
        let generation = shard.tokens.borrow().generation();
        shard.numbers.tokens_verified.add(1);
        let trust = Trust {
            keys: &shard.keys,
            rules: &shard.token_rules,
            issuers: &issuers,
        };
        let verified = match trust.verify(token, now) {
            Ok(verified) => verified,
            Err(AuthFault::UnknownKey(issuer)) => {
                if shard.issuers.refresh(issuer, &issuers).await {
                    continue;
                }
                return Err(refused(shard, true));
            }
            Err(AuthFault::KeysMissing(issuer)) => {
                if shard.issuers.refresh(issuer, &issuers).await {
                    continue;
                }
                // The token may be good: that is not for its sender to mend.
                return Err(Refusal::TokenKeys);
            }
            Err(_) => return Err(refused(shard, true)),
        };
        if let Some(id) = &verified.id {
            match shard.revocations.of(shard.configs.store(), id).await {
                Standing::Good => {}
                Standing::Revoked => {
                    shard.numbers.tokens_revoked.add(1);
                    return Err(refused(shard, true));
                }
                Standing::Unknown => return Err(Refusal::Revocations),
            }
        }
        let mut tokens = shard.tokens.borrow_mut();
        if tokens.generation() != generation {
            // A key was removed meanwhile, or a token revoked: perhaps this one.
            continue;
        }
        let principal = Rc::new(Principal::from_verified(verified, &shard.fingerprints));
        tokens.insert(token, principal.clone(), now);
        return Ok(principal);
    }
    Err(Refusal::TokenKeys)
}

fn is_meant_for_endpoint(shard: &ShardState, request: &Request, principal: &Principal) -> bool {
    let path = request.head.path.slice(&request.bytes);
    let metadata = shard.metadata.as_ref();
    metadata.is_some_and(|metadata| {
        let mut audiences = principal.audiences.iter();
        audiences.any(|audience| metadata.is_resource(path, audience))
    })
}

fn refused(shard: &ShardState, had_token: bool) -> Refusal {
    shard.numbers.unauthorized.add(1);
    Refusal::Unauthorized(had_token)
}
