//! What `build.rs` generates from `src/bpf`: the skeleton and the shared structures.

/// The shared structures of `src/bpf/intf.h`.
#[allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, unused)]
#[allow(unreachable_pub, clippy::all)]
pub mod intf {
    include!(concat!(env!("OUT_DIR"), "/bpf_intf.rs"));
}

/// The loadable program.
#[allow(missing_docs, unreachable_pub, clippy::all)]
#[allow(clippy::undocumented_unsafe_blocks, clippy::unwrap_used)]
pub mod skel {
    include!(concat!(env!("OUT_DIR"), "/bpf_skel.rs"));
}
