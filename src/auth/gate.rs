//! The auth step: a request's bearer token to its principal.

use std::rc::Rc;

use crate::{
    auth::{AuthFault, Principal, bearer, verify},
    refusal::Refusal,
    request::Request,
    shard_state::ShardState,
};

/// Who sent the request. Verified tokens are remembered until they expire; a request without a
/// token is anonymous where that is allowed.
pub fn authenticate(shard: &ShardState, request: &Request) -> Result<Rc<Principal>, Refusal> {
    let Some(header) = request.field(request.head.authorization) else {
        return shard.anonymous.clone().ok_or_else(|| refused(shard, false));
    };
    if shard.keys.is_empty()
        && let Some(anonymous) = &shard.anonymous
    {
        // No key is configured, so no token means anything here.
        return Ok(anonymous.clone());
    }
    let Some(token) = bearer(header) else {
        return Err(refused(shard, false));
    };
    let now = shards::clock::coarse_unix_s();
    if let Some(principal) = shard.tokens.borrow_mut().lookup(token, now) {
        return Ok(principal);
    }
    shard.numbers.tokens_verified.add(1);
    let verified = verify(&shard.keys, token, now, &shard.token_rules)
        .map_err(|_: AuthFault| refused(shard, true))?;
    let principal = Rc::new(Principal::from_verified(verified, &shard.fingerprints));
    shard
        .tokens
        .borrow_mut()
        .insert(token, principal.clone(), now);
    Ok(principal)
}

fn refused(shard: &ShardState, had_token: bool) -> Refusal {
    shard.numbers.unauthorized.add(1);
    Refusal::Unauthorized(had_token)
}
