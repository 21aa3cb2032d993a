//! The running kernel's configuration as text.
//!
//! libbpf fills `CONFIG_*` externs from `/proc/config.gz` or `/boot/config-$(uname -r)` and says
//! only "Invalid argument" when it finds neither. Distributions keep it in other places too
//! (Debian from 7.x on: below `/usr/lib/modules`), so it is looked for here and handed over.

use std::path::Path;

/// The `CONFIG_*` values that the BPF headers read, with what stands for "unknown".
const NEEDED: [(&str, &str); 3] = [
    ("CONFIG_CC_VERSION_TEXT", "\"unknown\""),
    ("CONFIG_LOCALVERSION", "\"\""),
    ("CONFIG_PREEMPT_RCU", "n"),
];

/// Text for `bpf_object_open_opts.kconfig`, or `None` where libbpf finds the file by itself.
pub(crate) fn for_libbpf(root: &Path, release: &str) -> Option<String> {
    let boot = root.join(format!("boot/config-{release}"));
    if root.join("proc/config.gz").exists() || boot.exists() {
        return None;
    }
    let text = ["usr/lib/modules", "lib/modules"]
        .iter()
        .find_map(|dir| std::fs::read_to_string(root.join(dir).join(release).join("config")).ok())
        .unwrap_or_default();
    Some(with_defaults(&text))
}

/// `text` with a line for each needed value that it does not set: one missing value is enough
/// for libbpf to go looking for a file again.
fn with_defaults(text: &str) -> String {
    let mut out: String = NEEDED
        .iter()
        .filter_map(|(name, _)| {
            text.lines().find(|l| l.starts_with(&format!("{name}="))).map(|l| format!("{l}\n"))
        })
        .collect();
    for (name, unknown) in NEEDED {
        if !out.contains(name) {
            out.push_str(&format!("{name}={unknown}\n"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_file_below_modules_and_fills_the_gaps() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("usr/lib/modules/7.3.4");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("config"), "CONFIG_LOCALVERSION=\"-x\"\n# CONFIG_FOO is not set\n")
            .unwrap();
        let text = for_libbpf(root.path(), "7.3.4").unwrap();
        assert!(text.contains("CONFIG_LOCALVERSION=\"-x\"\n"));
        assert!(text.contains("CONFIG_PREEMPT_RCU=n\n"));
    }

    #[test]
    fn nothing_found_still_defines_everything() {
        let root = tempfile::tempdir().unwrap();
        let text = for_libbpf(root.path(), "7.3.4").unwrap();
        assert_eq!(text.lines().count(), NEEDED.len());
    }

    #[test]
    fn libbpf_finds_its_own_files() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("boot")).unwrap();
        std::fs::write(root.path().join("boot/config-6.16.3"), "").unwrap();
        assert_eq!(for_libbpf(root.path(), "6.16.3"), None);
    }
}
