//! The fuzz target `websocket`; what it does with its input is in the library beside it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    shardgate_fuzz::run("websocket", data);
});
