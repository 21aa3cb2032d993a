//! Builds the BPF component and the Rust view of `src/bpf/intf.h`. Without the `live` feature
//! there is nothing to build.

fn main() {
    #[cfg(feature = "live")]
    live::build();
}

#[cfg(feature = "live")]
mod live {
    pub(crate) fn build() {
        let built = scx_cargo::BpfBuilder::new().and_then(|mut builder| {
            builder
                .add_cflag("-Wall")
                .add_cflag("-Werror")
                .enable_intf("src/bpf/intf.h", "bpf_intf.rs")
                .enable_skel("src/bpf/main.bpf.c", "bpf")
                .compile_link_gen()
        });
        if let Err(err) = built {
            eprintln!(
                "the BPF component does not build: {err:#}\n\
                 It needs clang 16 or later, libbpf's headers come with the crates. Name the \
                 compiler with BPF_CLANG=clang-19 if `clang` is not it, or build the off-line \
                 part alone with --no-default-features."
            );
            std::process::exit(1);
        }
        for part in ["avg.bpf.h", "account.bpf.h", "requests.bpf.h"] {
            println!("cargo:rerun-if-changed=src/bpf/{part}");
        }
    }
}
