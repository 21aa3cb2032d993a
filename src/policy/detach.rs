//! Which tasks of the source queue should come (kernel: `detach_tasks`, `can_migrate_task`,
//! `task_hot`).

use crate::balancer::{NR_MIGRATE, TaskView};
use crate::domains::SdFlags;
use crate::policy::env::{Env, IdleType};
use crate::policy::imbalance::MigrationType;
use crate::units::{Capacity, Nanos, TaskKey, Util};

/// A task that ran less than this ago has its data in the source's cache (kernel:
/// `sysctl_sched_migration_cost`).
pub const MIGRATION_COST: Nanos = Nanos::from_us(500);

/// A task to be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Which.
    pub key: TaskKey,
    /// What it takes off the imbalance, in the plan's unit.
    pub value: u64,
    /// Whether it is cache-hot and comes only because earlier attempts failed.
    pub hot: bool,
}

/// What the look at the queue found, besides the chosen tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Tasks looked at.
    pub looked_at: u32,
    /// Tasks that may not run on the destination, per-CPU kernel threads not counted.
    pub pinned: u32,
    /// Whether a task was found that may run on the destination, chosen or not.
    pub some_allowed: bool,
    /// Tasks left because they are cache-hot.
    pub hot: u32,
    /// Tasks left because they carry too much.
    pub too_big: u32,
}

/// Whether the task's data is likely in the source's cache (kernel: `task_hot`). Threads of one
/// core share it.
fn is_hot(env: &Env, task: &TaskView, now: Nanos) -> bool {
    !env.has(SdFlags::SHARE_CPUCAPACITY) && now - task.last_ran < MIGRATION_COST
}

/// Whether the task fits a CPU with 20 % to spare (kernel: `task_fits_cpu`).
fn fits(util: Util, capacity: Capacity) -> bool {
    util.0.saturating_mul(1280) < capacity.0.saturating_mul(1024)
}

/// Chooses from `tasks`, in order, at most `imbalance` of `unit`; `chosen` is emptied first.
///
/// `nr_running` counts the source's tasks, the running one included; `src_capacity` is what the
/// source can deliver. With earlier failures (`nr_balance_failed`) a task may exceed what is left
/// by that power of two, as in the kernel, so that one big task is not left for ever.
pub fn select_tasks(
    env: &Env,
    tasks: &[TaskView],
    now: Nanos,
    (unit, imbalance): (MigrationType, u64),
    (nr_running, src_capacity): (u32, Capacity),
    nr_balance_failed: u32,
    chosen: &mut Vec<Chosen>,
) -> Selection {
    let mut found = Selection::default();
    let mut left = imbalance;
    chosen.clear();
    for task in tasks {
        let remaining = nr_running.saturating_sub(chosen.len() as u32);
        let leave_one = env.idle.is_idle() && remaining <= 1;
        let enough = env.idle == IdleType::NewlyIdle && !chosen.is_empty();
        if left == 0 || leave_one || enough || chosen.len() >= NR_MIGRATE {
            break;
        }
        found.looked_at += 1;
        // They are where they need to be, and say nothing about the group.
        if task.percpu_kthread {
            continue;
        }
        if !task.allowed_on_dst || task.migration_disabled {
            found.pinned += 1;
            continue;
        }
        found.some_allowed = true;
        if task.running {
            continue;
        }
        let hot = is_hot(env, task, now);
        if hot && nr_balance_failed <= env.domain().cache_nice_tries {
            found.hot += 1;
            continue;
        }
        let value = match unit {
            // A group of many light tasks can report zero; each must still count.
            MigrationType::Load => task.load.0.max(1),
            MigrationType::Util => task.util.0,
            MigrationType::Task => 1,
            MigrationType::Misfit if fits(task.util, src_capacity) => continue,
            MigrationType::Misfit => left,
        };
        let bounded = value.checked_shr(nr_balance_failed).unwrap_or(0);
        if bounded > left {
            found.too_big += 1;
            continue;
        }
        left = left.saturating_sub(value);
        chosen.push(Chosen { key: task.key, value, hot });
    }
    found
}
