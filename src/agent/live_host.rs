//! The live machine behind the [`Host`] boundary: reads the tables that the BPF component
//! keeps, and acts through its syscall programs.

use super::bell::Bell;
use super::bpf::intf;
use super::clock;
use super::loader::Tables;
use super::programs::Programs;
use super::roster::Roster;
use crate::avg::{AVG_SHIFT, Decay};
use crate::balancer::{
    CpuView, DICE_THROWN, DICED_LEVELS, FORK_PLAN_LEN, ForkPlan, Host, MoveOutcome, NR_MIGRATE,
    PULL_PLAN_LEN, PullPlan, PullReport, Snapshot, TaskView,
};
use crate::cpumask::Cpumask;
use crate::units::{Capacity, CpuId, Load, Nanos, TaskKey, Util, Weight};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const _: () = assert!(NR_MIGRATE == intf::baton_consts_BATON_NR_MIGRATE as usize);
const _: () = assert!(PULL_PLAN_LEN == intf::baton_consts_BATON_PULL_PLAN_LEN as usize);
const _: () = assert!(DICED_LEVELS == intf::baton_consts_BATON_DICED_LEVELS as usize);
const _: () = assert!(DICE_THROWN == intf::baton_consts_BATON_DICE_THROWN);
const _: () = assert!(DICE_THROWN == u32::BITS);
const _: () = assert!(FORK_PLAN_LEN == intf::baton_consts_BATON_FORK_PLAN_LEN as usize);
const _: () = assert!(AVG_SHIFT == intf::baton_consts_BATON_AVG_SHIFT);
const _: () = assert!(align_of::<intf::baton_slot>() >= align_of::<AtomicU32>());
const _: () = assert!(MoveOutcome::ALL.len() == intf::baton_outcome_BATON_NR_OUTCOMES as usize);

/// How long a push may take before it is given up: the CPU has to reschedule.
const PUSH_PATIENCE: Nanos = Nanos::from_ms(2);
const PUSH_POLL: Duration = Duration::from_micros(50);

/// The field of a record inside the mapping. Field by field: most of a record is about other things,
/// on cache lines of their own.
macro_rules! read {
    ($record:expr, $field:ident) => {{
        let record: *const intf::baton_cpu = $record;
        // SAFETY: every record that is passed here is inside the mapping; volatile because the BPF
        // side writes it.
        unsafe { (&raw const (*record).$field).read_volatile() }
    }};
}

/// One worker's handle on the machine.
pub(crate) struct LiveHost<'a> {
    tables: &'a Tables,
    programs: &'a Programs,
    capacities: &'a [Capacity],
    largest: Capacity,
    roster: &'a Roster,
    /// One moment on the BPF component's clock and on the agent's.
    clock: (Nanos, Nanos),
    /// When the worker was woken.
    rung_at: Option<Nanos>,
    /// By CPU id: how many of its pulls have been read.
    pulls_read: Vec<u64>,
    /// The worker's own desk in the table of requests.
    slot: u32,
}

impl<'a> LiveHost<'a> {
    /// A handle that uses desk `slot`; `capacities` by CPU id.
    pub(crate) fn new(
        tables: &'a Tables,
        programs: &'a Programs,
        capacities: &'a [Capacity],
        roster: &'a Roster,
        slot: u32,
    ) -> Self {
        let largest = capacities.iter().copied().max().unwrap_or(Capacity::SCALE);
        Self {
            tables,
            programs,
            capacities,
            largest,
            roster,
            clock: (Nanos::ZERO, Nanos::ZERO),
            rung_at: None,
            pulls_read: vec![0; capacities.len()],
            slot,
        }
    }

    /// Whether nothing runs on the CPU now.
    pub(crate) fn is_idle(&self, cpu: CpuId) -> bool {
        read!(self.tables.cpus.ptr(cpu.index()), state) == intf::baton_cpu_state_BATON_CPU_IDLE
    }

    /// Sets the agent's clock by the BPF component's, unless whoever woke the worker has told the
    /// time. Once a round is enough: both run at the same pace.
    pub(crate) fn begin_round(&mut self) {
        match self.rung_at.take() {
            Some(at) => self.clock = (at, clock::now()),
            None => self.set_clock(),
        }
    }

    /// Sets the agent's clock by the BPF component's, exactly.
    pub(crate) fn set_clock(&mut self) {
        if self.programs.clock.run(self.slot) {
            // SAFETY: as in `ask`; the program has returned, so nothing writes the desk now.
            let theirs = unsafe { (&raw const (*self.desk()).now).read_volatile() };
            self.clock = (Nanos(theirs), clock::now());
        }
    }

    /// The time on the BPF component's clock.
    pub(crate) fn read_clock(&self) -> Nanos {
        let (theirs, ours) = self.clock;
        theirs + (clock::now() - ours)
    }

    /// What became of the CPU's pull plan the next time it was used; `None` if all is told. Pulls
    /// that were overwritten before they were read are lost to learning, not to the counters.
    pub(crate) fn next_pull(&mut self, cpu: CpuId) -> Option<PullReport> {
        const KEPT: u64 = intf::baton_consts_BATON_NR_PULLS as u64;
        let record = self.tables.cpus.ptr(cpu.index());
        let made = read!(record, nr_pulls);
        let read = &mut self.pulls_read[cpu.index()];
        if *read >= made {
            return None;
        }
        *read = (*read).max(made.saturating_sub(KEPT));
        let i = (*read % KEPT) as usize;
        // SAFETY: as above; `i` is below the length of the ring.
        let pull = unsafe { (&raw const (*record).pulls[i]).read_volatile() };
        *read += 1;
        let pulled =
            (pull.key != 0).then(|| (TaskKey::from_bits(pull.key), CpuId(pull.src.into())));
        let cost = Nanos(u64::from(pull.cost_ns));
        let left_out = pull.left_out.into();
        Some(PullReport { cpu, pulled, left_out, cost, at: Nanos(pull.at) })
    }

    /// Since when something has always waited on the CPU, while something does.
    pub(crate) fn queued_since(&self, cpu: CpuId) -> Nanos {
        Nanos(read!(self.tables.cpus.ptr(cpu.index()), queued_since))
    }

    /// Whether both CPUs do what they have to do about a task that waits on `src` while `idle` idles. An
    /// idle CPU that was told of work uses its plan, within half of `patience`; a CPU with a queue runs
    /// something, and ticks within `patience`.
    pub(crate) fn reacts(&self, idle: CpuId, src: CpuId, at: &Snapshot, patience: Nanos) -> bool {
        let (idle, queue) = (self.tables.cpus.ptr(idle.index()), self.tables.cpus.ptr(src.index()));
        let (told, told_at) = (read!(idle, told), Nanos(read!(idle, told_at)));
        let ticked_at = Nanos(read!(queue, ticked_at));
        // For longer than between two tasks.
        let is_vacant = at.cpu(src).current == TaskKey::default()
            && at.now - Nanos(read!(queue, state_at)) > Nanos(patience.0 / 2);
        let is_late =
            told == intf::baton_told_BATON_TOLD && at.now - told_at > Nanos(patience.0 / 2);
        !is_late && !is_vacant && at.now - ticked_at <= patience
    }

    /// Since when the CPU waits for a newidle pass by the agent, if it does.
    pub(crate) fn asked_at(&self, cpu: CpuId) -> Option<Nanos> {
        let at = read!(self.tables.cpus.ptr(cpu.index()), ask_at);
        (at != 0).then_some(Nanos(at))
    }

    /// The CPU may ask again.
    pub(crate) fn answered(&self, cpu: CpuId) {
        let record = self.tables.cpus.ptr(cpu.index());
        // SAFETY: as in `asked_at`; the BPF side writes the word only while it is zero.
        unsafe { (&raw mut (*record).ask_at).write_volatile(0) };
    }

    /// Whether CPUs that are about to idle ask the agent.
    pub(crate) fn set_newidle_ask(&self, yes: bool) {
        let globals = self.tables.globals.ptr(0);
        // SAFETY: the field is inside the mapping and written by agents alone, all with the
        // same value.
        unsafe {
            let ask = &raw mut (*globals).newidle_ask;
            if ask.read_volatile() != u32::from(yes) {
                ask.write_volatile(u32::from(yes));
            }
        }
    }

    /// Whether a task has come to wait since [`Self::clear_overloaded`].
    pub(crate) fn is_overloaded(&self) -> bool {
        let globals = self.tables.globals.ptr(0);
        // SAFETY: the field is inside the mapping; volatile because the BPF side writes it.
        unsafe { (&raw const (*globals).overloaded).read_volatile() != 0 }
    }

    /// No CPU has two tasks: until one comes to wait again, CPUs that idle do not look around.
    pub(crate) fn clear_overloaded(&self) {
        let globals = self.tables.globals.ptr(0);
        // SAFETY: the field is inside the mapping; a task that comes to wait at this moment and is
        // missed here is seen at the tick of the CPU on which it waits.
        unsafe { (&raw mut (*globals).overloaded).write_volatile(0) };
    }

    /// Caps the CPU's average idle time (kernel: `update_rq_avg_idle`).
    pub(crate) fn cap_avg_idle(&self, cpu: CpuId, cap: Nanos) {
        let record = self.tables.cpus.ptr(cpu.index());
        // SAFETY: the field is inside the mapping and written by this CPU's worker alone.
        unsafe { (&raw mut (*record).avg_idle_max).write_volatile(cap.0) };
    }

    /// Puts the CPUs on which the task may run into `mask`; false if it has gone.
    pub(crate) fn affinity(&self, task: TaskKey, mask: &mut Cpumask) -> bool {
        let Some(words) = affinity_words(task) else { return false };
        mask.clear_all();
        for i in (0..mask.width()).filter(|i| words[i / 64] >> (i % 64) & 1 == 1) {
            mask.set(i.into());
        }
        true
    }

    /// Sleeps until the bell rings or `timeout` has passed. Before `due` no busy CPU of the shard
    /// needs a round, before `due_idle` no idle one does (both on the BPF component's clock).
    pub(crate) fn sleep(&mut self, bell: &Bell, due: Nanos, due_idle: Nanos, timeout: Duration) {
        let desk = self.desk();
        // SAFETY: the fields are inside the mapping; the BPF side reads the times, and takes the
        // flag back with an atomic operation.
        let asleep = unsafe {
            (&raw mut (*desk).due).write_volatile(due.0);
            (&raw mut (*desk).due_idle).write_volatile(due_idle.0);
            AtomicU32::from_ptr(&raw mut (*desk).asleep)
        };
        // Whatever happened since the last look lasts until the next tick, which sees this.
        asleep.store(1, Ordering::Release);
        self.rung_at = bell.wait(timeout);
        asleep.store(0, Ordering::Relaxed);
    }

    fn desk(&self) -> *mut intf::baton_slot {
        self.tables.slots.ptr(self.slot as usize)
    }

    /// Writes a request's head to the desk.
    fn ask(&self, src: CpuId, dst: CpuId, nr: u32) {
        let desk = self.desk();
        // SAFETY: the desk is inside the mapping and this worker's alone between requests; the
        // BPF side reads it only while a program of ours runs.
        unsafe {
            (&raw mut (*desk).src).write_volatile(src.0);
            (&raw mut (*desk).dst).write_volatile(dst.0);
            (&raw mut (*desk).nr).write_volatile(nr);
        }
    }
}

/// One CPU's record, decayed to `now`. `full` is what the CPU gives undisturbed, `largest` what
/// the largest one does.
fn view(record: *const intf::baton_cpu, full: Capacity, largest: Capacity, now: Nanos) -> CpuView {
    let nr_running = read!(record, nr_runnable).max(0) as u32;
    let state = read!(record, state);
    let since = |at: u64| Decay::over(now - Nanos(at));
    let (in_state, in_queue) = (since(read!(record, state_at)), since(read!(record, queue_avg_at)));
    let share = |value, of| in_state.read(value, if state == of { 1024 } else { 0 });
    let other = share(read!(record, other), intf::baton_cpu_state_BATON_CPU_OTHER).min(1024);
    let capacity = Capacity((full.0 * (1024 - other) / 1024).max(1));
    let idle_since = read!(record, idle_since);
    CpuView {
        nr_running,
        load: Load(in_queue.read(read!(record, load), read!(record, sum_weight))),
        util: Util(share(read!(record, util), intf::baton_cpu_state_BATON_CPU_OURS)),
        runnable: Util(in_queue.read(read!(record, runnable), u64::from(nr_running) << 10)),
        capacity,
        capacity_orig: full,
        misfit_load: if full < largest { misfit_load(record, capacity, now) } else { Load::ZERO },
        idle: state == intf::baton_cpu_state_BATON_CPU_IDLE,
        // A CPU that runs the agent alone counts as idle, from this moment.
        idle_since: if idle_since == 0 { now } else { Nanos(idle_since) },
        avg_idle: Nanos(read!(record, avg_idle)),
        current: TaskKey::from_bits(read!(record, curr_key)),
    }
}

/// Load of the running task if it needs more than the CPU has (kernel: `task_fits_capacity`,
/// which leaves a fifth of the capacity as margin).
fn misfit_load(record: *const intf::baton_cpu, capacity: Capacity, now: Nanos) -> Load {
    if read!(record, curr_key) == 0 {
        return Load::ZERO;
    }
    let ran = Decay::over(now - Nanos(read!(record, curr_since)));
    let util = ran.read(read!(record, curr_util), 1024);
    if util * 1280 <= capacity.0 * 1024 {
        return Load::ZERO;
    }
    // A misfit of weight next to nothing is a misfit all the same.
    Load(ran.read(read!(record, curr_load), u64::from(read!(record, curr_weight))).max(1))
}

fn task_view(raw: &intf::baton_task) -> TaskView {
    let has = |flag| raw.flags & flag != 0;
    TaskView {
        key: TaskKey::from_bits(raw.key),
        weight: Weight(u64::from(raw.weight)),
        load: Load(raw.load),
        util: Util(raw.util),
        last_ran: Nanos(raw.last_ran),
        allowed_on_dst: has(intf::baton_task_flags_BATON_TASK_ALLOWED),
        migration_disabled: has(intf::baton_task_flags_BATON_TASK_NO_MIGRATE),
        percpu_kthread: has(intf::baton_task_flags_BATON_TASK_PERCPU_KTHREAD),
        // What is listed waits.
        running: false,
    }
}

fn outcome(code: u32) -> MoveOutcome {
    MoveOutcome::ALL.get(code as usize).copied().unwrap_or(MoveOutcome::Expired)
}

/// As wide as the widest kernel's masks: the call fails if the buffer is shorter.
const MASK_WORDS: usize = 8192 / 64;

/// The task's affinity as the kernel has it; `None` if it has gone.
fn affinity_words(task: TaskKey) -> Option<[u64; MASK_WORDS]> {
    let mut words = [0; MASK_WORDS];
    // SAFETY: the buffer is valid for the length that is given.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            task.pid as libc::pid_t,
            size_of_val(&words),
            words.as_mut_ptr(),
        )
    };
    (ret >= 0).then_some(words)
}

impl Host for LiveHost<'_> {
    fn observe(&mut self, cpus: &Cpumask, snapshot: &mut Snapshot) {
        snapshot.now = self.read_clock();
        for cpu in cpus.iter() {
            let i = cpu.index();
            snapshot.cpus[i] =
                view(self.tables.cpus.ptr(i), self.capacities[i], self.largest, snapshot.now);
        }
    }

    fn list_queue(&mut self, src: CpuId, dst: CpuId, out: &mut Vec<TaskView>) {
        out.clear();
        self.ask(src, dst, 0);
        if !self.programs.list.run(self.slot) {
            return;
        }
        let desk = self.desk();
        // SAFETY: as in `ask`; the program has returned, so nothing writes the desk now.
        let found = unsafe { (&raw const (*desk).nr).read_volatile() } as usize;
        for i in 0..found.min(out.capacity()).min(intf::baton_consts_BATON_NR_LIST as usize) {
            // SAFETY: as above, and `i` is below the length of the desk's task list.
            let raw = unsafe { (&raw const (*desk).tasks[i]).read_volatile() };
            out.push(task_view(&raw));
        }
    }

    fn allowed_in(&mut self, task: TaskKey, mask: &Cpumask) -> Option<CpuId> {
        let words = affinity_words(task)?;
        mask.iter().find(|cpu| words[cpu.index() / 64] >> (cpu.0 % 64) & 1 == 1)
    }

    fn move_tasks(
        &mut self,
        src: CpuId,
        dst: CpuId,
        tasks: &[TaskKey],
        outcomes: &mut Vec<MoveOutcome>,
    ) {
        outcomes.clear();
        let desk = self.desk();
        for (i, task) in tasks.iter().take(NR_MIGRATE).enumerate() {
            // SAFETY: as in `ask`; `i` is below the length of the desk's key list.
            unsafe { (&raw mut (*desk).keys[i]).write_volatile(task.to_bits()) };
        }
        let nr = tasks.len().min(NR_MIGRATE);
        self.ask(src, dst, nr as u32);
        let ran = self.programs.move_tasks.run(self.slot);
        for i in 0..nr {
            // SAFETY: the program has returned; `i` is below the length of the list.
            let code = unsafe { (&raw const (*desk).outcomes[i]).read_volatile() };
            outcomes.push(if ran { outcome(code) } else { MoveOutcome::Expired });
        }
    }

    fn push_running(&mut self, src: CpuId, dst: CpuId, task: TaskKey) -> MoveOutcome {
        let desk = self.desk();
        // SAFETY: as in `ask`.
        unsafe { (&raw mut (*desk).keys[0]).write_volatile(task.to_bits()) };
        self.ask(src, dst, 1);
        if !self.programs.push.run(self.slot) {
            return MoveOutcome::Superseded;
        }
        let cpu = self.tables.cpus.ptr(src.index());
        // SAFETY: `cpu` is inside the mapping; volatile because the BPF side writes it.
        let ended = || unsafe { (&raw const (*cpu).push_outcome).read_volatile() };
        let give_up = clock::now() + PUSH_PATIENCE;
        while ended() == 0 && clock::now() < give_up {
            std::thread::sleep(PUSH_POLL);
        }
        if ended() == 0 {
            self.programs.push_expire.run(self.slot);
        }
        // Codes are one up, 0 being "under way"; still that after giving up means that the push
        // ended in the very moment between, and that its code is about to be written.
        match ended() {
            0 => MoveOutcome::Applied,
            code => outcome(code - 1),
        }
    }

    fn set_pull_plan(&mut self, cpu: CpuId, plan: &PullPlan) {
        let mut raw = self.tables.plans.read(cpu.index());
        raw.nr = plan.len() as u32;
        raw.version = raw.version.wrapping_add(1);
        raw.dice = plan.dice;
        for (i, source) in plan.sources().iter().enumerate() {
            raw.src[i] = source.cpu.0 as u16;
            raw.limit[i] = source.node_from;
            raw.level[i] = source.level;
        }
        self.tables.plans.write(cpu.index(), raw);
    }

    fn set_fork_plan(&mut self, home: u16, plan: &ForkPlan) {
        let mut raw = self.tables.fork_plans.read(usize::from(home));
        raw.nr = plan.steps().len() as u32;
        raw.version = raw.version.wrapping_add(1);
        (raw.used, raw.asked) = (0, 0);
        for (to, step) in raw.step.iter_mut().zip(plan.steps()) {
            (to.limit, to.near) = (step.limit, step.near.0);
        }
        self.tables.fork_plans.write(usize::from(home), raw);
    }

    fn has_forked(&self, home: u16) -> bool {
        let plan = self.tables.fork_plans.ptr(usize::from(home));
        // SAFETY: the field is inside the mapping; volatile because the BPF side writes it.
        unsafe { (&raw const (*plan).asked).read_volatile() != 0 }
    }

    fn look_again(&mut self, cpu: CpuId) {
        if self.is_idle(cpu) {
            self.ask(cpu, cpu, 0);
            self.programs.kick.run(self.slot);
        }
    }

    fn kick(&mut self, cpu: CpuId) {
        self.roster.wake_for(cpu, self.slot);
    }
}
