//! The binary: one command line, one exit code.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: shards::heap::Counted<shards::heap::Mimalloc> =
    shards::heap::Counted(shards::heap::Mimalloc);

fn main() -> ExitCode {
    shardgate::command::run(std::env::args_os())
}
