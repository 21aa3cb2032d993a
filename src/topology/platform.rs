//! The few facts about the processor model on which the kernel's domain builder depends.

use super::files::Files;
use serde::Serialize;

/// Which of the kernel's tables of levels applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    /// x86: clusters are L2 caches; no PKG level where a package holds several nodes.
    X86,
    /// The generic table, as arm64 uses it.
    Other,
}

/// What of the processor model matters to sched domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Platform {
    /// Which table of levels applies.
    pub arch: Arch,
    /// NUMA levels farther than this place no new tasks (kernel: `node_reclaim_distance`).
    pub reclaim_distance: u32,
    /// The firmware's distances between packages are uneven by design and are averaged (kernel:
    /// `arch_sched_node_distance`, for sub-NUMA clusters of Granite Rapids and Clearwater Forest).
    pub averages_remote_distances: bool,
    /// CPUs have priorities that packing follows (kernel: `sched_itmt_enabled`).
    pub asym_packing: bool,
}

impl Platform {
    /// x86 without special cases.
    pub const X86: Self = Self {
        arch: Arch::X86,
        reclaim_distance: 30,
        averages_remote_distances: false,
        asym_packing: false,
    };

    /// Any other architecture without special cases.
    pub const OTHER: Self = Self { arch: Arch::Other, ..Self::X86 };

    /// Recognizes the platform from `/proc/cpuinfo` and the ITMT switch.
    pub(super) fn read(files: &mut Files) -> Self {
        let Some(cpuinfo) = files.read("proc/cpuinfo") else {
            files.note(
                "proc/cpuinfo",
                "missing",
                "the levels follow the kernel's table for x86".to_string(),
            );
            return Self::X86;
        };
        let field = |name: &str| {
            cpuinfo.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim())
            })
        };
        let number = |name: &str| field(name).and_then(|v| v.parse::<u32>().ok());
        // Of all architectures only x86 calls its feature list this.
        if field("flags").is_none() {
            return Self::OTHER;
        }
        let (family, model) = (number("cpu family"), number("model"));
        let itmt =
            ["sys/kernel/debug/x86/sched_itmt_enabled", "proc/sys/kernel/sched_itmt_enabled"]
                .iter()
                .find_map(|path| files.read(path));
        Self {
            // AMD raises the limit from Zen on, so that far packages still get new tasks.
            reclaim_distance: match (field("vendor_id"), family) {
                (Some("AuthenticAMD" | "HygonGenuine"), Some(family)) if family >= 0x17 => 32,
                _ => Self::X86.reclaim_distance,
            },
            averages_remote_distances: field("vendor_id") == Some("GenuineIntel")
                && family == Some(6)
                && matches!(model, Some(GRANITE_RAPIDS | CLEARWATER_FOREST)),
            asym_packing: itmt.is_some_and(|v| matches!(v.trim(), "1" | "Y")),
            ..Self::X86
        }
    }
}

/// Intel family 6 model numbers (kernel: `INTEL_GRANITERAPIDS_X`, `INTEL_ATOM_DARKMONT_X`).
const GRANITE_RAPIDS: u32 = 0xad;
const CLEARWATER_FOREST: u32 = 0xdd;
