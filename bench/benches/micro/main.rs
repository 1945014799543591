//! What the steps of a call cost by themselves: `cargo bench -p bench`.
//!
//! Each group asks one question and stands in a file of its name. `cargo bench -p bench -- ring`
//! runs one group; criterion compares with the run before.

#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot be prepared has nothing to measure"
)]

mod histogram;
mod ring;
mod router;
mod scanner;
mod token;

criterion::criterion_group!(
    micro,
    scanner::bench,
    router::bench,
    ring::bench,
    token::bench,
    histogram::bench
);
criterion::criterion_main!(micro);
