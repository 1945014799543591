//! Check 28: how this binary was built.

use crate::{
    host::Host,
    row::{Draft, Row, Scope, Subject},
};

static BUILD: Subject = Subject {
    number: 28,
    name: "binary",
    wanted: "release build, mimalloc",
    why: "a debug build is several times slower, and so are its figures",
    scope: Scope::Process,
};

/// 28: debug or release, the CPU it was built for, and the allocator.
pub(super) fn build(host: &Host) -> Row {
    let mut draft = Draft::new(&BUILD);
    if cfg!(debug_assertions) {
        draft.info("debug build");
        draft.advise("cargo build --release");
    } else {
        draft.info("release build");
    }
    let features: Vec<&str> = [
        ("aes", cfg!(target_feature = "aes")),
        ("avx2", cfg!(target_feature = "avx2")),
        ("avx512f", cfg!(target_feature = "avx512f")),
    ]
    .into_iter()
    .filter_map(|(name, is_on)| is_on.then_some(name))
    .collect();
    draft.info(match features.as_slice() {
        [] => format!("{} without extras", std::env::consts::ARCH),
        features => format!("{} with {}", std::env::consts::ARCH, features.join(", ")),
    });
    match host.source.text("/proc/self/maps") {
        // The allocator names its memory where the kernel keeps such names.
        Ok(maps) if maps.contains("[anon:mimalloc]") => draft.info("mimalloc"),
        Ok(_) => draft.unseen("the allocator: no memory is named after it"),
        Err(reason) => draft.unseen(reason),
    }
    draft.unseen("link-time optimisation, which leaves no trace to read");
    draft.finish(&host.place)
}
