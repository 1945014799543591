//! The `bench` command.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: shards::heap::Mimalloc = shards::heap::Mimalloc;

fn main() -> ExitCode {
    bench::cli::main(std::env::args_os())
}
