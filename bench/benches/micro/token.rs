//! What knowing a token saves: a look into the cache against a check of the signature.

use std::{hint::black_box, rc::Rc};

use criterion::{BenchmarkId, Criterion};
use shardgate::auth::{
    FingerprintKey, Principal, TokenCache, TokenRules, VerificationKeys, verify,
};

/// Guards nothing.
const SECRET: &str = "the secret of a benchmark, which is long enough";
/// Seconds since 1970 at which all of this happens.
const NOW_UNIX_S: u64 = 1_800_000_000;

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("token");
    let mut keys = VerificationKeys::default();
    keys.set_secret(SECRET.as_bytes()).unwrap();
    let rules = TokenRules::default();
    let fingerprints = FingerprintKey::new(&[3; 32]);
    let mint = |number: usize| {
        bench::token::mint(&format!("user-{number}"), SECRET, NOW_UNIX_S).into_bytes()
    };
    let check = |token: &[u8]| verify(&keys, token, NOW_UNIX_S, &rules).unwrap();
    let token = mint(0);
    group.bench_function("check HS256", |bencher| {
        bencher.iter(|| check(black_box(&token)))
    });
    for count in [1, 1000, 8000] {
        let mut cache = TokenCache::default();
        let tokens: Vec<_> = (0..count).map(mint).collect();
        for token in &tokens {
            let principal = Principal::from_verified(check(token), &fingerprints);
            cache.insert(token, Rc::new(principal), NOW_UNIX_S);
        }
        assert_eq!(cache.len(), count);
        let mut turns = tokens.iter().cycle();
        group.bench_function(BenchmarkId::new("known", count), |bencher| {
            bencher.iter(|| {
                let token = turns.next().unwrap();
                cache.lookup(black_box(token), NOW_UNIX_S).unwrap()
            });
        });
    }
    group.finish();
}
