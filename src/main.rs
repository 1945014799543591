//! The binary: one command line, one exit code.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: shards::heap::Counted<mimalloc::MiMalloc> =
    shards::heap::Counted(mimalloc::MiMalloc);

fn main() -> ExitCode {
    shardgate::command::run(std::env::args_os())
}
