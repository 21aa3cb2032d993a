//! What one balancer knows of the machine during a round.

use crate::balancer::host::{CpuView, Host, Snapshot};
use crate::cpumask::Cpumask;
use crate::units::{CpuId, Load, Nanos, Util};

/// A snapshot with its idle CPUs as a mask, and how far it has been looked at in this round.
#[derive(Debug)]
pub(super) struct View {
    pub(super) snapshot: Snapshot,
    /// CPUs that idle with nothing queued (kernel: `idle_cpu`).
    pub(super) idle_cpus: Cpumask,
    seen: Cpumask,
    few: Cpumask,
}

impl View {
    pub(super) fn new(width: usize) -> Self {
        Self {
            snapshot: Snapshot::new(width),
            idle_cpus: Cpumask::new(width),
            seen: Cpumask::new(width),
            few: Cpumask::new(width),
        }
    }

    pub(super) fn now(&self) -> Nanos {
        self.snapshot.now
    }

    /// Starts a round with a fresh look at `cpus`.
    pub(super) fn begin<H: Host>(&mut self, host: &mut H, cpus: &Cpumask) {
        self.seen.clear_all();
        self.look(host, cpus);
    }

    /// Starts a round with a fresh look at one CPU.
    pub(super) fn begin_at<H: Host>(&mut self, host: &mut H, cpu: CpuId) {
        self.seen.clear_all();
        self.look_at(host, cpu, cpu);
        self.seen.set(cpu);
    }

    /// Makes sure `cpus` have been looked at in this round. A round is short against the shortest
    /// interval; what it moves itself it looks at again.
    pub(super) fn see<H: Host>(&mut self, host: &mut H, cpus: &Cpumask) {
        if !cpus.is_subset(&self.seen) {
            self.look(host, cpus);
        }
    }

    /// Looks at `cpus` now.
    pub(super) fn look<H: Host>(&mut self, host: &mut H, cpus: &Cpumask) {
        host.observe(cpus, &mut self.snapshot);
        self.seen.or_assign(cpus);
        self.note_idle(cpus);
    }

    /// Whether a CPU idles, by a look in this round.
    pub(super) fn idles<H: Host>(&mut self, host: &mut H, cpu: CpuId) -> bool {
        if !self.seen.test(cpu) {
            self.look_at(host, cpu, cpu);
            self.seen.set(cpu);
        }
        self.idle_cpus.test(cpu)
    }

    /// Runnable tasks of a CPU; none of those that were not looked at in this round.
    pub(super) fn nr_seen(&self, cpu: CpuId) -> u32 {
        if self.seen.test(cpu) { self.snapshot.cpu(cpu).nr_running } else { 0 }
    }

    /// Looks at two CPUs now.
    pub(super) fn look_at<H: Host>(&mut self, host: &mut H, a: CpuId, b: CpuId) {
        let mut few = std::mem::replace(&mut self.few, Cpumask::new(0));
        few.set(a);
        few.set(b);
        host.observe(&few, &mut self.snapshot);
        self.few = few;
        for cpu in [a, b] {
            self.few.clear(cpu);
            self.note_idle_at(cpu);
        }
    }

    /// Reads the time.
    pub(super) fn read_clock<H: Host>(&mut self, host: &mut H) -> Nanos {
        host.observe(&self.few, &mut self.snapshot);
        self.snapshot.now
    }

    /// Shows a CPU as it will be when it has run out of work.
    pub(super) fn pretend_idle(&mut self, cpu: CpuId) {
        let view = &mut self.snapshot.cpus[cpu.index()];
        view.nr_running = 0;
        (view.load, view.util, view.runnable) = (Load::ZERO, Util::ZERO, Util::ZERO);
        view.idle = true;
        self.idle_cpus.set(cpu);
    }

    /// Shows a CPU again as it was seen.
    pub(super) fn restore(&mut self, cpu: CpuId, view: &CpuView) {
        self.snapshot.cpus[cpu.index()] = *view;
        if !(view.idle && view.nr_running == 0) {
            self.idle_cpus.clear(cpu);
        }
    }

    fn note_idle(&mut self, cpus: &Cpumask) {
        cpus.iter().for_each(|cpu| self.note_idle_at(cpu));
    }

    fn note_idle_at(&mut self, cpu: CpuId) {
        let view = &self.snapshot.cpus[cpu.index()];
        if view.idle && view.nr_running == 0 {
            self.idle_cpus.set(cpu);
        } else {
            self.idle_cpus.clear(cpu);
        }
    }
}
