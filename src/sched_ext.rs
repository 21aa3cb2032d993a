//! What the kernel says about sched_ext, below any root directory; `/` for this machine.

use std::path::Path;

/// Where it says it.
const DIR: &str = "sys/kernel/sched_ext";
/// The file behind [`hotplug_seq`], for readers of their own.
pub const HOTPLUG_SEQ: &str = "sys/kernel/sched_ext/hotplug_seq";

/// Whether the kernel has sched_ext.
pub fn is_there(root: &Path) -> bool {
    root.join(DIR).is_dir()
}

/// `disabled`, `enabling`, `enabled` or `disabling`; `None` without sched_ext.
pub fn state(root: &Path) -> Option<String> {
    read(root, "state")
}

/// The name of the scheduler in charge; `None` if there is none.
pub fn ops(root: &Path) -> Option<String> {
    read(root, "root/ops").filter(|name| !name.is_empty())
}

/// Counts schedulers enabled since boot; `None` on kernels that do not.
pub fn enable_seq(root: &Path) -> Option<u64> {
    read(root, "enable_seq")?.parse().ok()
}

/// Counts CPUs that came or went since boot; `None` on kernels that do not.
pub fn hotplug_seq(root: &Path) -> Option<u64> {
    text(&root.join(HOTPLUG_SEQ))?.parse().ok()
}

fn read(root: &Path, name: &str) -> Option<String> {
    text(&root.join(DIR).join(name))
}

fn text(file: &Path) -> Option<String> {
    Some(std::fs::read_to_string(file).ok()?.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read_and_what_it_does_not_say_is_none() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert!(!is_there(root));
        assert_eq!((state(root), ops(root), enable_seq(root)), (None, None, None));
        std::fs::create_dir_all(root.join(DIR).join("root")).unwrap();
        for (name, text) in [
            ("state", "enabled\n"),
            ("root/ops", "baton_0.1.0\n"),
            ("enable_seq", "7\n"),
            ("hotplug_seq", "?\n"),
        ] {
            std::fs::write(root.join(DIR).join(name), text).unwrap();
        }
        assert!(is_there(root));
        assert_eq!(state(root).as_deref(), Some("enabled"));
        assert_eq!(ops(root).as_deref(), Some("baton_0.1.0"));
        assert_eq!((enable_seq(root), hotplug_seq(root)), (Some(7), None));
        // Between two schedulers the name is empty.
        std::fs::write(root.join(DIR).join("root/ops"), "\n").unwrap();
        assert_eq!(ops(root), None);
    }
}
