//! The boundary between deciding and doing: what the balancer sees of a machine and how it acts
//! on it. Three hosts exist: the live agent, the simulated machine, and fakes in tests.

use super::{ForkPlan, PullPlan};
use crate::cpumask::Cpumask;
use crate::units::{Capacity, CpuId, Load, Nanos, TaskKey, Util, Weight};

/// One CPU at the time of the snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuView {
    /// Runnable tasks, the running one included (kernel: `cfs_rq->h_nr_runnable`).
    pub nr_running: u32,
    /// Sum of the loads of the runnable tasks, decaying (kernel: `cpu_load`).
    pub load: Load,
    /// Decaying running time (kernel: `cpu_util_cfs`).
    pub util: Util,
    /// Decaying runnable time, of all tasks together (kernel: `cpu_runnable`).
    pub runnable: Util,
    /// What is left for these tasks after interrupts and real-time tasks (kernel:
    /// `capacity_of`).
    pub capacity: Capacity,
    /// What the CPU could give undisturbed (kernel: `arch_scale_cpu_capacity`).
    pub capacity_orig: Capacity,
    /// Load of a running task that does not fit this CPU; zero if it fits (kernel:
    /// `rq->misfit_task_load`).
    pub misfit_load: Load,
    /// Whether nothing runs there, of any class (kernel: `idle_cpu`).
    pub idle: bool,
    /// When the CPU last became idle; meaningful while `idle`.
    pub idle_since: Nanos,
    /// How long the CPU usually idles (kernel: `rq->avg_idle`).
    pub avg_idle: Nanos,
    /// The running task; the zero key when idle or not ours.
    pub current: TaskKey,
}

/// A machine at one time, by CPU id. The host fills it in place: no allocation in steady state.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Monotonic time of the snapshot.
    pub now: Nanos,
    /// Views by CPU id, as many as the machine has ids.
    pub cpus: Vec<CpuView>,
}

impl Snapshot {
    /// A snapshot of `width` idle CPUs at time zero.
    pub fn new(width: usize) -> Self {
        Self { now: Nanos::ZERO, cpus: vec![CpuView::default(); width] }
    }

    /// The view of one CPU.
    pub fn cpu(&self, cpu: CpuId) -> &CpuView {
        &self.cpus[cpu.index()]
    }
}

/// One waiting task of a queue, as listed for one possible destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskView {
    /// Which task.
    pub key: TaskKey,
    /// Its share.
    pub weight: Weight,
    /// Its decaying load (kernel: `task_h_load`).
    pub load: Load,
    /// Its decaying utilisation (kernel: `task_util_est`).
    pub util: Util,
    /// When it last ran, for the cache-hot test (kernel: `p->se.exec_start`).
    pub last_ran: Nanos,
    /// Whether its affinity allows the destination.
    pub allowed_on_dst: bool,
    /// Whether it may not leave its CPU for now (kernel: `is_migration_disabled`).
    pub migration_disabled: bool,
    /// Whether it is a kernel thread bound to one CPU (kernel: `kthread_is_per_cpu`).
    pub percpu_kthread: bool,
    /// Whether it is running rather than waiting.
    pub running: bool,
}

/// Most tasks that one plan may name (kernel: `sched_nr_migrate`).
pub const NR_MIGRATE: usize = 32;

/// What became of one request to move one task. Every request ends as exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum MoveOutcome {
    /// The task was queued on the destination.
    Applied,
    /// Its affinity forbids the destination, or its migration is disabled.
    RefusedAffinity,
    /// It no longer exists, sleeps, or waits elsewhere.
    RefusedGone,
    /// It is running (or, for a push, no longer the one running).
    RefusedRunning,
    /// A later request for the same task or CPU took its place.
    Superseded,
    /// It was not carried out within its time.
    Expired,
}

impl MoveOutcome {
    /// All outcomes, in the order of their codes on the BPF boundary.
    pub const ALL: [Self; 6] = [
        Self::Applied,
        Self::RefusedAffinity,
        Self::RefusedGone,
        Self::RefusedRunning,
        Self::Superseded,
        Self::Expired,
    ];

    /// The counter's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::RefusedAffinity => "refused_affinity",
            Self::RefusedGone => "refused_gone",
            Self::RefusedRunning => "refused_running",
            Self::Superseded => "superseded",
            Self::Expired => "expired",
        }
    }
}

impl std::fmt::Display for MoveOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Applied => "applied",
            Self::RefusedAffinity => "refused: it may not run there",
            Self::RefusedGone => "refused: it sleeps, waits elsewhere or has ended",
            Self::RefusedRunning => "refused: it had started, or stopped, running",
            Self::Superseded => "superseded by a later request",
            Self::Expired => "not carried out in time",
        })
    }
}

/// The machine, to the balancer. Methods take `&mut self`: a worker owns its host handle.
pub trait Host {
    /// Brings `snapshot` up to date for `cpus` (others keep what they had) and sets its `now`.
    fn observe(&mut self, cpus: &Cpumask, snapshot: &mut Snapshot);

    /// The first CPU of `mask` from `from` on that may idle; the caller looks closer. A host that
    /// knows more than the mask passes over those that surely do not.
    fn next_maybe_idle(&mut self, mask: &Cpumask, from: CpuId) -> Option<CpuId> {
        mask.next(from)
    }

    /// Lists up to `out.capacity()` waiting tasks of `src`'s queue, longest waiting first, as seen
    /// from `dst`. `out` is emptied first and never grows beyond its capacity.
    fn list_queue(&mut self, src: CpuId, dst: CpuId, out: &mut Vec<TaskView>);

    /// A CPU of `mask` on which the task may run, if any. Only asked for tasks that may not run
    /// on the destination, so it may be slow (a system call).
    fn allowed_in(&mut self, task: TaskKey, mask: &Cpumask) -> Option<CpuId>;

    /// Moves the waiting `tasks` from `src`'s queue to `dst`, now. Pushes one outcome per task to
    /// `outcomes`, in order, after emptying it. At most [`NR_MIGRATE`] tasks.
    fn move_tasks(
        &mut self,
        src: CpuId,
        dst: CpuId,
        tasks: &[TaskKey],
        outcomes: &mut Vec<MoveOutcome>,
    );

    /// Pushes the task that runs on `src` to `dst` (kernel: active balance). Refused if it is no
    /// longer `task`.
    fn push_running(&mut self, src: CpuId, dst: CpuId, task: TaskKey) -> MoveOutcome;

    /// Wakes the worker that is responsible for `cpu`, which idles and has been asked to balance for
    /// all idle CPUs (kernel: the IPI of `kick_ilb`). Nothing by default: the request then waits
    /// for that worker's next round.
    fn kick(&mut self, cpu: CpuId) {
        let _ = cpu;
    }

    /// Replaces `cpu`'s pull plan: the CPUs it may pull from when it runs out of work while some
    /// task of the machine waits.
    fn set_pull_plan(&mut self, cpu: CpuId, plan: &PullPlan);

    /// Replaces the plan of where tasks start that are forked on the node ([`Facts::node_of`]'s
    /// numbers). Nothing by default: for hosts that ask the policy at each fork.
    ///
    /// [`Facts::node_of`]: crate::policy::facts::Facts::node_of
    fn set_fork_plan(&mut self, home: u16, plan: &ForkPlan) {
        let _ = (home, plan);
    }

    /// Whether a task was forked on the node since its plan was set.
    fn has_forked(&self, home: u16) -> bool {
        let _ = home;
        false
    }

    /// `cpu` idles although a source of its pull plan has work: makes it use the plan, and not throw
    /// its dice for that.
    fn look_again(&mut self, cpu: CpuId);
}
