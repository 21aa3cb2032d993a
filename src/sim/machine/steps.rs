//! Tasks follow their programs.

use super::run::Next;
use super::{Cause, Event, Machine, TaskId, TaskState};
use crate::sim::program::{Gives, Op};
use crate::sim::random::{Purpose, Stream};
use crate::sim::task::{Copying, Task};
use crate::units::{CpuId, Nanos};
use std::sync::Arc;

/// Steps in a row without any work after which a task is charged a microsecond: a program of such
/// steps only would never let the clock go on.
const FREE_STEPS: u32 = 1000;

impl Machine {
    /// Makes a task of a template; it begins on `on`, or where it is placed as seen from `parent`.
    pub(crate) fn spawn(&mut self, template: u32, parent: Option<CpuId>, on: Option<CpuId>) {
        let workload = Arc::clone(&self.workload);
        let kind = &workload.templates[template as usize];
        let stream = Stream::new(self.seed, Purpose::Task(self.spawned));
        self.spawned = self.spawned.wrapping_add(1);
        let mask = self.masks[template as usize].clone();
        let id = self.free.pop();
        let at = id.unwrap_or(TaskId(self.tasks.len() as u32));
        let mut task = Task::new(at, template, kind, mask, stream, self.now);
        match id {
            Some(id) => {
                task.key.generation = self.tasks[id.index()].key.generation;
                self.tasks[id.index()] = task;
            }
            None => self.tasks.push(task),
        }
        let may = |cpu: &CpuId| self.online.test(*cpu) && self.tasks[at.index()].may_run_on(*cpu);
        let cpu = on.filter(may).unwrap_or_else(|| self.place_new(at, parent));
        let now = self.now;
        let floor = self.floor(cpu);
        let task = &mut self.tasks[at.index()];
        task.cpu = cpu;
        task.vtime = floor;
        task.become_(TaskState::Waiting, now);
        let (load, util) = (task.load().0 as f64, task.util().0 as f64);
        self.cpus[cpu.index()].average(now);
        self.cpus[cpu.index()].attach(load, util);
        self.enqueue(at, cpu);
    }

    /// A source gives its next piece of work.
    pub(crate) fn arrival(&mut self, source: u32, stream: &mut Stream) {
        let workload = Arc::clone(&self.workload);
        let source_ = &workload.sources[source as usize];
        match source_.gives {
            Gives::Task(template) => self.spawn(template, None, None),
            Gives::Post(semaphore) => self.post(semaphore, None),
        }
        let next = self.now + stream.time(&source_.interval);
        self.events.plan(next, Event::Arrival(source));
    }

    /// A timer of a sleeping task.
    pub(crate) fn timer(&mut self, id: TaskId, sleep: u32) {
        let task = &self.tasks[id.index()];
        if task.state() == TaskState::Sleeping && task.sleep == sleep {
            self.wake(id, None);
        }
    }

    /// Wakes a sleeping task.
    pub(super) fn wake(&mut self, id: TaskId, waker: Option<CpuId>) {
        let now = self.now;
        self.totals.wakeups += 1;
        if let Some(waker) = waker {
            self.steal(waker, Cause::Wake, self.costs.wake_ns);
        }
        let prev = self.tasks[id.index()].cpu;
        let cpu = self.place(id, waker);
        self.totals.wakeups_moved += u64::from(cpu != prev);
        self.tasks[id.index()].become_(TaskState::Waiting, now);
        self.enqueue(id, cpu);
    }

    fn post(&mut self, semaphore: u32, by: Option<CpuId>) {
        let s = &mut self.objects.semaphores[semaphore as usize];
        match s.waiters.pop_front() {
            Some(waiter) => self.wake(waiter, by),
            None => s.put(self.now),
        }
    }

    /// Does the task's next steps, until one of them takes time or has to wait. The task runs.
    pub(super) fn step(&mut self, id: TaskId) -> Next {
        let program = Arc::clone(&self.tasks[id.index()].program);
        let cpu = self.tasks[id.index()].cpu;
        for _ in 0..FREE_STEPS {
            let now = self.now;
            let task = &mut self.tasks[id.index()];
            if let Some(copy) = task.copying.take() {
                self.copied(copy, cpu);
                continue;
            }
            let Some(op) = program.get(task.pc as usize) else { return Next::End };
            task.pc += 1;
            match op {
                Op::Run(time) => {
                    task.left += task.stream.time(time).0 as f64;
                }
                Op::Sleep(time) => {
                    let until = now + task.stream.time(time);
                    return self.sleep(id, until);
                }
                Op::Period(period) => {
                    let period = period.0.max(1);
                    let since = (now - task.began).0;
                    let until = task.began + Nanos((since / period + 1) * period);
                    return self.sleep(id, until);
                }
                Op::Post(semaphore) => self.post(*semaphore, Some(cpu)),
                Op::Wait(semaphore) => {
                    let s = &mut self.objects.semaphores[*semaphore as usize];
                    if !s.take(now) {
                        s.waiters.push_back(id);
                        return Next::Sleep;
                    }
                }
                Op::Write(pipe, bytes) => {
                    if !self.write(id, *pipe, u64::from(*bytes)) {
                        return Next::Sleep;
                    }
                }
                Op::Read(pipe, bytes) => {
                    if !self.read(id, *pipe, u64::from(*bytes)) {
                        return Next::Sleep;
                    }
                }
                Op::Lock { first, nr } => {
                    let which = first + task.stream.below(*nr);
                    task.lock = Some(which);
                    let lock = &mut self.objects.locks[which as usize];
                    if lock.taken {
                        // It is handed over by whoever gives it back.
                        lock.waiters.push_back(id);
                        return Next::Sleep;
                    }
                    lock.taken = true;
                }
                Op::Unlock => {
                    if let Some(which) = task.lock.take() {
                        let lock = &mut self.objects.locks[which as usize];
                        match lock.waiters.pop_front() {
                            Some(waiter) => self.wake(waiter, Some(cpu)),
                            None => lock.taken = false,
                        }
                    }
                }
                Op::Barrier(barrier) => {
                    let b = &mut self.objects.barriers[*barrier as usize];
                    if b.waiters.len() as u32 + 1 < b.wants {
                        b.waiters.push(id);
                        return Next::Sleep;
                    }
                    for waiter in std::mem::take(&mut b.waiters) {
                        self.wake(waiter, Some(cpu));
                    }
                }
                Op::Fork(template, nr) => {
                    for _ in 0..*nr {
                        self.steal(cpu, Cause::Wake, self.costs.wake_ns);
                        self.spawn(*template, Some(cpu), None);
                    }
                }
                Op::Pin(mask) => {
                    task.allowed = mask.clone().map(Arc::new).or_else(|| self.unbound.clone());
                }
                Op::Done => self.totals.done[task.template as usize] += 1,
                Op::Repeat { from, times, counter } => {
                    let count = &mut task.counters[*counter as usize % 4];
                    *count += 1;
                    if *times == 0 || *count < *times {
                        task.pc = *from;
                    } else {
                        *count = 0;
                    }
                }
            }
            if self.tasks[id.index()].left >= 1.0 {
                return Next::Work;
            }
        }
        self.tasks[id.index()].left += 1000.0;
        Next::Work
    }

    fn sleep(&mut self, id: TaskId, until: Nanos) -> Next {
        let task = &mut self.tasks[id.index()];
        task.sleep = task.sleep.wrapping_add(1);
        self.events.plan(until, Event::Timer { task: id, sleep: task.sleep });
        Next::Sleep
    }

    /// One of the two copies by which bytes go through a pipe, all in the cache.
    fn copying(&self, bytes: u64) -> f64 {
        match self.costs.copy_mb_s {
            0 => 0.0,
            speed => bytes as f64 * 1000.0 / (2 * speed) as f64,
        }
    }

    /// Begins to write. False if there is no room: the task waits and tries again.
    fn write(&mut self, id: TaskId, pipe: u32, bytes: u64) -> bool {
        let cpu = self.tasks[id.index()].cpu;
        let p = &self.objects.pipes[pipe as usize];
        if !p.has_room(bytes) {
            self.objects.pipes[pipe as usize].writers.push_back(id);
            self.tasks[id.index()].pc -= 1;
            return false;
        }
        // The pages were last in the reader's caches. Whole lines are written: they have to be
        // taken from there, but their old contents need not come.
        let from = self.places.distance(p.reader.unwrap_or(cpu), cpu);
        let take = self.costs.fetch(bytes, from, self.costs.copy_pct);
        self.objects.pipes[pipe as usize].filling += bytes;
        self.copy(id, pipe, Copying::Into(pipe, bytes), take, bytes);
        true
    }

    /// Begins to read. False if the bytes are not there: the task waits and tries again.
    fn read(&mut self, id: TaskId, pipe: u32, bytes: u64) -> bool {
        let cpu = self.tasks[id.index()].cpu;
        let p = &mut self.objects.pipes[pipe as usize];
        if p.level < bytes {
            p.readers.push_back(id);
            self.tasks[id.index()].pc -= 1;
            return false;
        }
        p.level -= bytes;
        p.draining += bytes;
        let from = p.writer.unwrap_or(cpu);
        let fetch = self.fetch(from, cpu, bytes, self.costs.copy_pct);
        self.copy(id, pipe, Copying::OutOf(pipe, bytes), fetch, bytes);
        true
    }

    /// Begins a copy that has to get lines first; it spins for the pipe before that.
    fn copy(&mut self, id: TaskId, pipe: u32, copy: Copying, lines: u64, bytes: u64) {
        let copying = self.copying(bytes);
        let hold = lines + copying as u64;
        let spin = self.objects.pipes[pipe as usize].lock(self.now, hold);
        let task = &mut self.tasks[id.index()];
        task.copying = Some(copy);
        task.left += copying;
        task.transfer += spin + lines;
    }

    /// The task has done its copy: who waits for the data, or for the room, is woken.
    fn copied(&mut self, copy: Copying, cpu: CpuId) {
        let (Copying::Into(pipe, bytes) | Copying::OutOf(pipe, bytes)) = copy;
        let p = &mut self.objects.pipes[pipe as usize];
        let waiter = match copy {
            Copying::Into(..) => {
                p.filling -= bytes;
                p.level += bytes;
                p.writer = Some(cpu);
                p.readers.pop_front()
            }
            Copying::OutOf(..) => {
                p.draining -= bytes;
                p.reader = Some(cpu);
                self.totals.piped_bytes += bytes;
                p.writers.pop_front()
            }
        };
        if let Some(waiter) = waiter {
            self.wake(waiter, Some(cpu));
        }
    }
}
