//! What the CPUs of a group add up to, and what state that puts it in (kernel:
//! `update_sg_lb_stats`, `group_classify`).

use crate::balancer::{CpuView, Snapshot};
use crate::domains::{GroupId, SdFlags};
use crate::policy::env::{Env, asym_prefer, capacity_greater};
use crate::policy::facts::cpus_in;
use crate::units::{Capacity, CpuId, Load, Util};
use serde::Serialize;
use std::fmt;

/// The state of a group, in rising order of the need to pull from it (kernel: `enum group_type`;
/// its `llc_balance` does not exist here).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupType {
    /// It could run more.
    #[default]
    HasSpare,
    /// It is used up and nobody suffers.
    FullyBusy,
    /// One task is too big for its CPU.
    MisfitTask,
    /// Threads of one core share it while the destination could take one.
    SmtBalance,
    /// The destination is the preferred CPU for its work.
    AsymPacking,
    /// It failed to balance inside because of affinity.
    Imbalanced,
    /// It cannot give its tasks what they ask for.
    Overloaded,
}

impl GroupType {
    /// All, in rising order.
    pub const ALL: [Self; 7] = [
        Self::HasSpare,
        Self::FullyBusy,
        Self::MisfitTask,
        Self::SmtBalance,
        Self::AsymPacking,
        Self::Imbalanced,
        Self::Overloaded,
    ];
}

impl fmt::Display for GroupType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::HasSpare => "has_spare",
            Self::FullyBusy => "fully_busy",
            Self::MisfitTask => "misfit_task",
            Self::SmtBalance => "smt_balance",
            Self::AsymPacking => "asym_packing",
            Self::Imbalanced => "imbalanced",
            Self::Overloaded => "overloaded",
        })
    }
}

/// Sums over the CPUs of one group (kernel: `struct sg_lb_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupStats {
    /// The state that follows from the rest.
    pub group_type: GroupType,
    /// CPUs in the group (kernel: `group_weight`).
    pub weight: u32,
    /// Tasks, running ones included (kernel: `sum_h_nr_running`).
    pub nr_running: u32,
    /// CPUs that idle.
    pub idle_cpus: u32,
    /// Sum of loads (kernel: `group_load`).
    pub load: Load,
    /// Sum of utilisations (kernel: `group_util`).
    pub util: Util,
    /// Sum of runnable times (kernel: `group_runnable`).
    pub runnable: Util,
    /// Sum of capacities (kernel: `group_capacity`).
    pub capacity: Capacity,
    /// Smallest capacity of its CPUs.
    pub min_capacity: Capacity,
    /// Largest capacity of its CPUs.
    pub max_capacity: Capacity,
    /// Load per full CPU; worked out only where it is compared (kernel: `avg_load`).
    pub avg_load: Load,
    /// Load of the largest task that needs a larger CPU (kernel: `group_misfit_task_load`).
    pub misfit_load: Load,
    /// Whether affinity kept it from balancing inside (kernel: `sgc->imbalance`).
    pub pinned: bool,
}

impl GroupStats {
    /// CPUs that do not idle.
    pub fn busy_cpus(&self) -> u32 {
        self.weight.saturating_sub(self.idle_cpus)
    }

    /// One CPU alone.
    pub fn of_cpu(view: &CpuView, idle: bool) -> Self {
        Self {
            weight: 1,
            nr_running: view.nr_running,
            idle_cpus: u32::from(idle),
            load: view.load,
            util: view.util,
            runnable: view.runnable,
            capacity: view.capacity,
            ..Self::default()
        }
    }

    /// Adds another part's sums; the type and what follows from it are as before.
    pub fn add(&mut self, part: &Self) {
        self.weight += part.weight;
        self.nr_running += part.nr_running;
        self.idle_cpus += part.idle_cpus;
        self.load += part.load;
        self.util += part.util;
        self.runnable += part.runnable;
        self.capacity += part.capacity;
    }

    /// The same with the type that a new task sees, and the load per CPU where that is compared
    /// (kernel: `update_sg_wakeup_stats`).
    pub fn typed(mut self, imbalance_pct: u32) -> Self {
        self.group_type = self.classify(imbalance_pct, false, false);
        if self.group_type != GroupType::HasSpare {
            self.avg_load = self.load_per_capacity();
        }
        self
    }

    /// Load per full CPU of capacity.
    pub fn load_per_capacity(&self) -> Load {
        Load(self.load.0.saturating_mul(Capacity::SCALE.0) / self.capacity.0.max(1))
    }

    /// Whether it has more tasks than it can handle (kernel: `group_is_overloaded`).
    fn is_overloaded(&self, pct: u64) -> bool {
        self.nr_running > self.weight
            && (self.capacity.0 * 100 < self.util.0 * pct
                || self.capacity.0 * pct < self.runnable.0 * 100)
    }

    /// Whether more tasks would find room (kernel: `group_has_capacity`).
    fn has_capacity(&self, pct: u64) -> bool {
        self.nr_running < self.weight
            || (self.capacity.0 * pct >= self.runnable.0 * 100
                && self.capacity.0 * 100 > self.util.0 * pct)
    }

    /// The state (kernel: `group_classify`).
    fn classify(&self, pct: u32, asym_packing: bool, smt_balance: bool) -> GroupType {
        let pct = u64::from(pct);
        if self.is_overloaded(pct) {
            GroupType::Overloaded
        } else if self.pinned {
            GroupType::Imbalanced
        } else if asym_packing {
            GroupType::AsymPacking
        } else if smt_balance {
            GroupType::SmtBalance
        } else if self.misfit_load > Load::ZERO {
            GroupType::MisfitTask
        } else if !self.has_capacity(pct) {
            GroupType::FullyBusy
        } else {
            GroupType::HasSpare
        }
    }
}

/// The comparison of a domain's groups (kernel: `struct sd_lb_stats`).
#[derive(Clone, Copy, Debug, Default)]
pub struct SdStats {
    /// The destination's own group.
    pub local: GroupStats,
    /// The group to pull from, if one has anything to give.
    pub busiest: Option<GroupId>,
    /// Its numbers; those of an empty group when there is none.
    pub busiest_stat: GroupStats,
    /// Load of all groups.
    pub total_load: Load,
    /// Capacity of all groups.
    pub total_capacity: Capacity,
    /// Whether tasks should be spread over the busiest group's siblings first.
    pub prefer_sibling: bool,
    /// Whether a CPU has more than one task or a misfit one; meaningful at the root only.
    pub overloaded: bool,
}

impl SdStats {
    /// Load per full CPU over the domain.
    pub fn avg_load(&self) -> Load {
        Load(self.total_load.0.saturating_mul(Capacity::SCALE.0) / self.total_capacity.0.max(1))
    }
}

/// Whether side activity has taken a noticeable part of the CPU (kernel: `check_cpu_capacity`).
pub fn capacity_reduced(view: &CpuView, imbalance_pct: u32) -> bool {
    view.capacity.0 * u64::from(imbalance_pct) < view.capacity_orig.0 * 100
}

/// The preferred CPU of a group: the lowest (kernel: `asym_prefer_cpu`).
pub(super) fn asym_prefer_cpu(env: &Env, group: GroupId) -> CpuId {
    env.tree.group(group).span.first().unwrap_or_default()
}

/// Adds up one group (kernel: `update_sg_lb_stats`).
pub fn update_sg_lb_stats(
    env: &Env,
    snapshot: &Snapshot,
    id: GroupId,
    is_local: bool,
    overloaded: &mut bool,
) -> GroupStats {
    let group = env.tree.group(id);
    let domain = env.domain();
    let asym_capacity = env.has(SdFlags::ASYM_CPUCAPACITY);
    let mut misfit = Load::ZERO;
    let mut reduced = Load::ZERO;
    let mut sum = GroupStats {
        weight: group.weight,
        pinned: env.marks.is_imbalanced(id),
        min_capacity: Capacity(u64::MAX),
        ..Default::default()
    };
    // Capacity counts for the whole group, tasks only on CPUs still considered (kernel: the
    // former is kept in `sgc`).
    for cpu in cpus_in(&group.span, env.facts.group_words(id), |_, w| w) {
        let view = snapshot.cpu(cpu);
        sum.capacity += view.capacity;
        sum.min_capacity = sum.min_capacity.min(view.capacity);
        sum.max_capacity = sum.max_capacity.max(view.capacity);
        if !env.cpus.test(cpu) {
            continue;
        }
        sum.load += view.load;
        sum.util += view.util;
        sum.runnable += view.runnable;
        sum.nr_running += view.nr_running;
        if env.cpu_idle(cpu) {
            sum.idle_cpus += 1;
            continue;
        }
        *overloaded |=
            view.nr_running > 1 || (asym_capacity && !is_local && view.misfit_load > Load::ZERO);
        misfit = misfit.max(view.misfit_load);
        if view.nr_running == 1 && capacity_reduced(view, domain.imbalance_pct) {
            reduced = reduced.max(view.load);
        }
    }
    let mut asym_packing = false;
    let mut smt_balance = false;
    if !is_local {
        let dst = snapshot.cpu(env.dst);
        if asym_capacity {
            if capacity_greater(dst.capacity, sum.max_capacity) {
                sum.misfit_load = misfit;
            }
        } else if env.idle.is_idle() {
            sum.misfit_load = reduced;
        }
        let smt = env.facts.group_flags(id).contains(SdFlags::SHARE_CPUCAPACITY);
        asym_packing = env.idle.is_idle()
            && sum.nr_running > 0
            && !(smt && sum.busy_cpus() != 1)
            && env.use_asym_prio(env.dst)
            && asym_prefer(env.dst, asym_prefer_cpu(env, id));
        smt_balance = env.idle.is_idle() && smt && sum.nr_running > 1;
    }
    sum.group_type = sum.classify(domain.imbalance_pct, asym_packing, smt_balance);
    if sum.group_type == GroupType::Overloaded {
        sum.avg_load = sum.load_per_capacity();
    }
    sum
}
