//! Whether scx_baton can run here, found out before the kernel answers "Invalid argument".
//!
//! Everything is read from files, below any root, so that a machine can be judged from a copy.

use crate::kconfig::{Kconfig, places};
use crate::sched_ext;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Version of the JSON form of [`Report`].
pub const JSON_VERSION: u32 = 1;

/// Oldest and newest kernel that scx_baton is known to work on.
pub const KNOWN_TO_WORK: ((u32, u32), (u32, u32)) = ((6, 16), (7, 3));
/// First kernel with sched_ext.
const FIRST_SCHED_EXT: (u32, u32) = (6, 12);

/// Kernels that have sched_ext but cannot run scx_baton, and why.
const KNOWN_BAD: &[((u32, u32), &str)] =
    &[((6, 12), "its functions for moving a task between queues have other names")];

/// Memory that the agent locks at most, so that it never faults while it decides.
const LOCKED_BYTES: u64 = 256 << 20;

/// Options the kernel must be built with, and what each is for.
const OPTIONS: &[(&str, &str)] = &[
    ("CONFIG_SCHED_CLASS_EXT", "schedulers as BPF programs"),
    ("CONFIG_BPF_SYSCALL", "loading BPF programs"),
    ("CONFIG_BPF_JIT", "running BPF programs as machine code"),
    ("CONFIG_DEBUG_INFO_BTF", "fitting BPF programs to this kernel"),
];

const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_NICE: u32 = 23;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// How a finding bears on running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As needed.
    Ok,
    /// It will run, but not as tested or not as well.
    Warning,
    /// It will not run.
    Missing,
}

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub what: &'static str,
    /// How it bears on running.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// How to get what is needed; `None` if nothing is.
    pub remedy: Option<String>,
}

/// All findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// [`JSON_VERSION`].
    pub version: u32,
    /// Whether nothing is missing.
    pub will_run: bool,
    /// In the order in which to read them.
    pub findings: Vec<Finding>,
}

struct Inspector<'a> {
    root: &'a Path,
    findings: Vec<Finding>,
}

/// Looks at the machine below `root`; `/` for this one.
pub fn inspect(root: &Path) -> Report {
    let mut i = Inspector { root, findings: Vec::new() };
    let release = i.read("proc/sys/kernel/osrelease").unwrap_or_default();
    i.kernel(&release);
    i.configuration(&release);
    i.sched_ext();
    i.btf();
    let capabilities = i.capabilities();
    i.other_scheduler();
    i.memory_lock(capabilities);
    i.page_size();
    let will_run = i.findings.iter().all(|f| f.verdict != Verdict::Missing);
    Report { version: JSON_VERSION, will_run, findings: i.findings }
}

/// `7.3.4+deb13-amd64` is (7, 3).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn show((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

impl Inspector<'_> {
    fn read(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_string())
    }

    fn ok(&mut self, what: &'static str, found: impl Into<String>) {
        self.findings.push(Finding {
            what,
            verdict: Verdict::Ok,
            found: found.into(),
            remedy: None,
        });
    }

    fn not_ok(
        &mut self,
        what: &'static str,
        verdict: Verdict,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let remedy = Some(remedy.into());
        self.findings.push(Finding { what, verdict, found: found.into(), remedy });
    }

    fn kernel(&mut self, release: &str) {
        const WHAT: &str = "kernel";
        let (oldest, newest) = KNOWN_TO_WORK;
        let tested = format!("known to work are {} to {}", show(oldest), show(newest));
        let Some(version) = version(release) else {
            let found = format!("unknown release `{release}`");
            return self.not_ok(WHAT, Verdict::Warning, found, tested);
        };
        if let Some((_, why)) = KNOWN_BAD.iter().find(|(bad, _)| *bad == version) {
            let found = format!("{release}: known to be unfit, {why}");
            return self.not_ok(WHAT, Verdict::Missing, found, format!("boot another; {tested}"));
        }
        if version < FIRST_SCHED_EXT {
            let found = format!("{release}: too old for sched_ext");
            return self.not_ok(
                WHAT,
                Verdict::Missing,
                found,
                format!("boot a newer one; {tested}"),
            );
        }
        if version < oldest || version > newest {
            return self.not_ok(WHAT, Verdict::Warning, format!("{release}: not tried"), tested);
        }
        self.ok(WHAT, release);
    }

    fn configuration(&mut self, release: &str) {
        const WHAT: &str = "configuration";
        let Some(config) = Kconfig::find(self.root, release) else {
            let remedy = format!(
                "not needed if the rest is well; it is looked for at /{}",
                places(release).join(", /")
            );
            return self.not_ok(WHAT, Verdict::Warning, "not found", remedy);
        };
        let options = config.options();
        let off: Vec<String> = OPTIONS
            .iter()
            .filter(|(option, _)| options.get(option) != Some(&"y"))
            .map(|(option, purpose)| format!("{option}=y ({purpose})"))
            .collect();
        if off.is_empty() {
            return self.ok(WHAT, format!("/{} has all that is needed", config.path));
        }
        let found = format!("/{} lacks {}", config.path, off.join(", "));
        let remedy = "boot a kernel built with it: Debian's from 6.16 on, Fedora's, Arch's and \
                      CachyOS's are";
        self.not_ok(WHAT, Verdict::Missing, found, remedy);
    }

    fn sched_ext(&mut self) {
        const WHAT: &str = "sched_ext";
        if sched_ext::is_there(self.root) {
            self.ok(WHAT, "the kernel has it");
        } else {
            let remedy = "boot a kernel with CONFIG_SCHED_CLASS_EXT=y and mount /sys";
            self.not_ok(WHAT, Verdict::Missing, "/sys/kernel/sched_ext is absent", remedy);
        }
    }

    fn btf(&mut self) {
        const WHAT: &str = "BTF";
        let path = self.root.join("sys/kernel/btf/vmlinux");
        match fs::metadata(&path).map(|m| m.len()) {
            Ok(_) => self.ok(WHAT, "/sys/kernel/btf/vmlinux"),
            Err(_) => {
                let remedy = "boot a kernel with CONFIG_DEBUG_INFO_BTF=y";
                self.not_ok(WHAT, Verdict::Missing, "/sys/kernel/btf/vmlinux is absent", remedy);
            }
        }
    }

    /// The effective capabilities, as bits.
    fn capabilities(&mut self) -> u64 {
        const WHAT: &str = "privilege";
        let status = self.read("proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
        let Some(bits) = bits else {
            let remedy = "run it as root";
            self.not_ok(WHAT, Verdict::Warning, "/proc/self/status does not say", remedy);
            return 0;
        };
        let has = |cap: u32| bits >> cap & 1 == 1;
        if !(has(CAP_SYS_ADMIN) || has(CAP_BPF) && has(CAP_PERFMON)) {
            let found = "neither CAP_SYS_ADMIN nor CAP_BPF with CAP_PERFMON";
            self.not_ok(WHAT, Verdict::Missing, found, "run it as root (sudo)");
        } else if !has(CAP_SYS_NICE) {
            let remedy = "run it as root (sudo), so that its threads may be raised and pinned";
            self.not_ok(WHAT, Verdict::Warning, "no CAP_SYS_NICE", remedy);
        } else {
            self.ok(WHAT, "enough to load BPF programs");
        }
        bits
    }

    fn other_scheduler(&mut self) {
        const WHAT: &str = "scheduler";
        let state = sched_ext::state(self.root).unwrap_or_default();
        let name = sched_ext::ops(self.root);
        match (state.as_str(), name) {
            ("" | "disabled", None) => self.ok(WHAT, "no other one is attached"),
            (state, name) => {
                let found = match name {
                    Some(name) => format!("{name} is attached ({state})"),
                    None => format!("sched_ext is {state}"),
                };
                let remedy = "stop it first: end its process, or `systemctl stop scx`";
                self.not_ok(WHAT, Verdict::Missing, found, remedy);
            }
        }
    }

    fn memory_lock(&mut self, capabilities: u64) {
        const WHAT: &str = "memory lock";
        if capabilities >> CAP_IPC_LOCK & 1 == 1 {
            return self.ok(WHAT, "CAP_IPC_LOCK: no limit applies");
        }
        let limits = self.read("proc/self/limits").unwrap_or_default();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
        let soft = line.and_then(|line| line.split_whitespace().next());
        let remedy = "run it as root, or raise it: `ulimit -l unlimited`, or LimitMEMLOCK= in a \
                      systemd unit";
        match soft {
            Some("unlimited") => self.ok(WHAT, "unlimited"),
            Some(bytes) if bytes.parse().is_ok_and(|b: u64| b >= LOCKED_BYTES) => {
                self.ok(WHAT, format!("{bytes} bytes"));
            }
            Some(bytes) => {
                let found = format!("{bytes} bytes, {LOCKED_BYTES} are needed");
                self.not_ok(WHAT, Verdict::Missing, found, remedy);
            }
            None => {
                let found = "/proc/self/limits does not say";
                self.not_ok(WHAT, Verdict::Warning, found, remedy);
            }
        }
    }

    fn page_size(&mut self) {
        const WHAT: &str = "page size";
        const AT_PAGESZ: u64 = 6;
        let auxv = fs::read(self.root.join("proc/self/auxv")).unwrap_or_default();
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let size = auxv
            .chunks_exact(16)
            .find(|pair| word(&pair[..8]) == AT_PAGESZ)
            .map(|pair| word(&pair[8..]));
        match size {
            Some(4096) => self.ok(WHAT, "4096 bytes"),
            Some(size) => {
                let remedy = "only 4096 has been tried; larger pages cost more locked memory";
                self.not_ok(WHAT, Verdict::Warning, format!("{size} bytes"), remedy);
            }
            None => {
                let found = "/proc/self/auxv does not say";
                self.not_ok(WHAT, Verdict::Warning, found, "only 4096 bytes has been tried");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine on which everything is as needed.
    fn fit() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let mut auxv = Vec::new();
        for word in [6u64, 4096, 0, 0] {
            auxv.extend(word.to_ne_bytes());
        }
        let config: String = OPTIONS.iter().map(|(option, _)| format!("{option}=y\n")).collect();
        for (path, bytes) in [
            ("proc/sys/kernel/osrelease", b"7.3.4+deb13-cloud-amd64\n".to_vec()),
            ("usr/lib/modules/7.3.4+deb13-cloud-amd64/config", config.into_bytes()),
            ("proc/self/status", b"Name:\tx\nCapEff:\t000001ffffffffff\n".to_vec()),
            ("proc/self/limits", b"Max locked memory   8388608   8388608   bytes\n".to_vec()),
            ("proc/self/auxv", auxv),
            ("sys/kernel/sched_ext/state", b"disabled\n".to_vec()),
            ("sys/kernel/btf/vmlinux", b"x".to_vec()),
        ] {
            put(root.path(), path, &bytes);
        }
        root
    }

    fn put(root: &Path, path: &str, bytes: &[u8]) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn finding(root: &Path, what: &str) -> Finding {
        inspect(root).findings.into_iter().find(|f| f.what == what).unwrap()
    }

    #[test]
    fn a_fit_machine_runs_it() {
        let root = fit();
        let report = inspect(root.path());
        assert!(report.will_run);
        assert!(report.findings.iter().all(|f| f.verdict == Verdict::Ok), "{report:?}");
    }

    #[test]
    fn each_lack_is_found_alone_and_has_a_remedy() {
        for (what, path, text, verdict) in [
            ("kernel", "proc/sys/kernel/osrelease", "6.1.0", Verdict::Missing),
            ("kernel", "proc/sys/kernel/osrelease", "6.12.57+deb13", Verdict::Missing),
            ("kernel", "proc/sys/kernel/osrelease", "6.14.0", Verdict::Warning),
            ("kernel", "proc/sys/kernel/osrelease", "8.0.0", Verdict::Warning),
            ("kernel", "proc/sys/kernel/osrelease", "?", Verdict::Warning),
            (
                "configuration",
                "usr/lib/modules/7.3.4+deb13-cloud-amd64/config",
                "# CONFIG_SCHED_CLASS_EXT is not set",
                Verdict::Missing,
            ),
            ("privilege", "proc/self/status", "CapEff:\t0000000000004000", Verdict::Missing),
            ("privilege", "proc/self/status", "CapEff:\t000000c000004000", Verdict::Warning),
            ("memory lock", "proc/self/status", "CapEff:\t0000000000200000", Verdict::Missing),
            ("scheduler", "sys/kernel/sched_ext/state", "enabled", Verdict::Missing),
            ("scheduler", "sys/kernel/sched_ext/root/ops", "rusty", Verdict::Missing),
            ("page size", "proc/self/auxv", "", Verdict::Warning),
        ] {
            let root = fit();
            put(root.path(), path, text.as_bytes());
            let found = finding(root.path(), what);
            assert_eq!(found.verdict, verdict, "{found:?}");
            assert!(found.remedy.is_some());
        }
    }

    #[test]
    fn an_empty_root_is_judged_without_panic() {
        let root = tempfile::tempdir().unwrap();
        assert!(!inspect(root.path()).will_run);
    }
}
