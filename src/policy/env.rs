//! The surroundings of one balancing attempt in one structure (kernel: `struct lb_env`).

use crate::cpumask::Cpumask;
use crate::domains::{DomainId, DomainTree, GroupId, SchedDomain, SchedGroup, SdFlags};
use crate::policy::facts::{Facts, cpus_in};
use crate::policy::marks::GroupMarks;
use crate::policy::tunables::Tunables;
use crate::units::{Capacity, CpuId};
use serde::Serialize;
use std::fmt;

/// What the destination CPU is doing (kernel: `enum cpu_idle_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IdleType {
    /// It runs something.
    NotIdle,
    /// It has been idle.
    Idle,
    /// It is about to idle.
    NewlyIdle,
}

impl IdleType {
    /// All, in the order of the kernel's statistics.
    pub const ALL: [Self; 3] = [Self::NotIdle, Self::Idle, Self::NewlyIdle];

    /// Whether the CPU idles, newly or not (kernel: a test of `env->idle`).
    pub const fn is_idle(self) -> bool {
        !matches!(self, Self::NotIdle)
    }
}

impl fmt::Display for IdleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NotIdle => "busy",
            Self::Idle => "idle",
            Self::NewlyIdle => "newly idle",
        })
    }
}

/// Which of the balancing passes is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PassKind {
    /// The CPU's own, by time.
    Periodic,
    /// The CPU is about to idle.
    Newidle,
    /// One idle CPU on behalf of another.
    Nohz,
}

impl fmt::Display for PassKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Periodic => "periodic",
            Self::Newidle => "newidle",
            Self::Nohz => "nohz",
        })
    }
}

/// One attempt to balance one domain towards one CPU.
#[derive(Clone, Copy, Debug)]
pub struct Env<'a> {
    /// The machine's domains.
    pub tree: &'a DomainTree,
    /// Facts derived from them.
    pub facts: &'a Facts,
    /// The settings.
    pub tunables: &'a Tunables,
    /// What is known of groups that affinity keeps unbalanced.
    pub marks: &'a GroupMarks,
    /// The domain.
    pub id: DomainId,
    /// Position of the destination's own group in the domain.
    pub local: usize,
    /// Whether no wider domain exists (kernel: `!sd->parent`).
    pub is_root: bool,
    /// Where tasks would go.
    pub dst: CpuId,
    /// What that CPU is doing.
    pub idle: IdleType,
    /// CPUs still considered: the span without those given up in this pass (kernel: `env->cpus`).
    pub cpus: &'a Cpumask,
    /// CPUs that idle, as far as the snapshot reaches.
    pub idle_cpus: &'a Cpumask,
}

impl<'a> Env<'a> {
    /// The domain.
    pub fn domain(&self) -> &'a SchedDomain {
        self.tree.domain(self.id)
    }

    /// Whether the domain has a flag.
    pub fn has(&self, flag: SdFlags) -> bool {
        self.domain().flags.contains(flag)
    }

    /// The destination's own group.
    pub fn local_id(&self) -> GroupId {
        self.domain().groups[self.local]
    }

    /// The destination's own group.
    pub fn local_group(&self) -> &'a SchedGroup {
        self.tree.group(self.local_id())
    }

    /// Whether the CPU idles.
    pub fn cpu_idle(&self, cpu: CpuId) -> bool {
        self.idle_cpus.test(cpu)
    }

    /// Whether all other threads of the CPU's core idle (kernel: `is_core_idle`).
    pub fn core_idle(&self, cpu: CpuId) -> bool {
        self.facts.is_core_idle(cpu, self.idle_cpus)
    }

    /// The CPUs of a group that are still considered, in rising order.
    pub fn group_cpus(&self, group: GroupId) -> impl Iterator<Item = CpuId> + 'a {
        let considered = self.cpus.words();
        cpus_in(&self.tree.group(group).span, self.facts.group_words(group), move |i, w| {
            w & considered[i]
        })
    }

    /// Whether the priority order of CPUs counts for `cpu`: always among threads of a core,
    /// between cores only if the whole core idles (kernel: `sched_use_asym_prio`).
    pub fn use_asym_prio(&self, cpu: CpuId) -> bool {
        self.has(SdFlags::ASYM_PACKING)
            && (!self.facts.smt_active()
                || self.has(SdFlags::SHARE_CPUCAPACITY)
                || self.core_idle(cpu))
    }

    /// Whether work should rather run on `dst` than on `src` (kernel: `sched_asym`).
    pub fn asym(&self, dst: CpuId, src: CpuId) -> bool {
        self.use_asym_prio(dst) && asym_prefer(dst, src)
    }
}

/// Whether CPU `a` has the higher packing priority: the lower number (kernel:
/// `sched_asym_prefer` with the default `arch_asym_cpu_priority`).
pub fn asym_prefer(a: CpuId, b: CpuId) -> bool {
    a < b
}

/// Whether `a` is greater by a margin of about 5 % (kernel: `capacity_greater`).
pub fn capacity_greater(a: Capacity, b: Capacity) -> bool {
    a.0.saturating_mul(1024) > b.0.saturating_mul(1078)
}
