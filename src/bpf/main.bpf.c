/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The dispatching half of scx_baton. It keeps one queue for each possible CPU, ordered by
 * virtual time, and decides nothing about balance: which CPUs a CPU may pull from is the
 * agent's pull plan, which tasks move otherwise is the agent's request. Without the agent
 * everything still runs; only balancing stops.
 *
 *   intf.h          what both sides share
 *   avg.bpf.h       decaying averages
 *   account.bpf.h   tasks, CPUs, where a task counts
 *   bell.bpf.h      when a worker of the agent is woken
 *   requests.bpf.h  the agent's requests
 *   fork.bpf.h      where new tasks start
 *   main.bpf.c      the scheduler's callbacks
 */
#include <scx/common.bpf.h>
#include <scx/compat.bpf.h>

#include "intf.h"
#include "avg.bpf.h"
#include "account.bpf.h"
#include "bell.bpf.h"
#include "requests.bpf.h"
#include "fork.bpf.h"

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/* The more tasks wait, the shorter each runs, down to the minimum. */
static __always_inline u64 slice_for(struct baton_cpu *c)
{
	s32 waiting = c->nr_queued;
	u64 slice;

	if (waiting <= 0)
		return slice_ns;
	slice = slice_ns / (waiting + 1);
	return slice > slice_min_ns ? slice : slice_min_ns;
}

s32 BPF_STRUCT_OPS(baton_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 cpu;

	if (wake_flags & SCX_WAKE_FORK)
		prev_cpu = fork_near(p, prev_cpu);
	cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);
	if (is_idle) {
		stat_inc_here(BATON_STAT_DIRECT);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	}
	return cpu;
}

/* Carries out a push of @p away from @cpu. False if there is none or it cannot be done. */
static __always_inline bool enqueue_pushed(struct task_struct *p, struct task_ctx *t,
					   struct baton_cpu *c, u64 now)
{
	s32 dst = c->push_dst;
	u64 vtime;

	if (!c->push_key || c->push_key != t->key)
		return false;
	if ((u32)dst >= nr_cpu_ids || !task_allowed(p, dst) || is_migration_disabled(p)) {
		push_end(c, t->key, BATON_REFUSED_AFFINITY);
		return false;
	}
	if (!push_end(c, t->key, BATON_APPLIED))
		return false;
	vtime = vtime_on(p, t, dst);
	t->vtime_cpu = dst;
	t->moved_to = dst;
	place_set(t, PLACE(task_weight(p), dst, true), now);
	scx_bpf_dsq_insert_vtime(p, dst, slice_ns, vtime, 0);
	scx_bpf_kick_cpu(dst, SCX_KICK_IDLE);
	return true;
}

/* Whether a task that wakes with @vtime is further behind than the running one by more than
 * the shortest slice. */
static __always_inline bool should_preempt(struct baton_cpu *c, u64 vtime, u64 now)
{
	u64 ran = elapsed(c->curr_since, now);

	if (!c->curr_key || !c->curr_weight || ran < slice_min_ns)
		return false;
	return (s64)(c->curr_vtime + ran * 1024 / c->curr_weight - vtime) > (s64)slice_min_ns;
}

void BPF_STRUCT_OPS(baton_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct baton_cpu *c = cpu_ctx(cpu);
	struct task_ctx *t = task_ctx(p);
	u64 now = scx_bpf_now(), vtime;

	if (!t || !c) {
		stat_inc_here(BATON_STAT_NO_CTX);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags);
		return;
	}
	if (p->tgid == agent_tgid) {
		stat_add(c, BATON_STAT_AGENT, 1);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags | SCX_ENQ_PREEMPT);
		return;
	}
	/* Kernel threads of one CPU do that CPU's own work (softirqs, RCU): others' work waits
	 * for them, so they do not queue behind it. */
	if (percpu_kthread(p)) {
		stat_add(c, BATON_STAT_DIRECT, 1);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags);
		return;
	}
	if (enqueue_pushed(p, t, c, now))
		return;
	/* The kernel does not ask for a CPU for tasks that have only one. */
	if (!__COMPAT_is_enq_cpu_selected(enq_flags) && scx_bpf_test_and_clear_cpu_idle(cpu)) {
		stat_add(c, BATON_STAT_DIRECT, 1);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags);
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return;
	}

	vtime = vtime_on(p, t, cpu);
	t->vtime_cpu = cpu;
	place_set(t, PLACE(task_weight(p), cpu, true), now);
	scx_bpf_dsq_insert_vtime(p, cpu, slice_for(c), vtime, enq_flags);
	stat_add(c, BATON_STAT_QUEUED, 1);
	if (wakeup_preempt && (enq_flags & SCX_ENQ_WAKEUP) && should_preempt(c, vtime, now)) {
		stat_add(c, BATON_STAT_PREEMPT, 1);
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	/* A wake-up has just found no idle CPU; what was preempted has not looked. */
	if (!(enq_flags & SCX_ENQ_WAKEUP))
		ask_for_balance(c, now);
}

/* Notes for the worker what came of the plan: costs and success are learned from it. */
static __always_inline void pull_record(struct baton_cpu *c, u64 key, u32 src, u32 cost_ns, u64 at)
{
	u32 i = c->nr_pulls % BATON_NR_PULLS;

	barrier_var(i);
	if (i >= BATON_NR_PULLS)
		return;
	c->pulls[i].key = key;
	c->pulls[i].at = at;
	c->pulls[i].cost_ns = cost_ns;
	c->pulls[i].src = src;
	c->pulls[i].left_out = c->pull_left_out;
	c->nr_pulls++;
}

/* The CPU from whose queue @c can take a task now, or did; nr_cpu_ids if there is none. */
static __always_inline u32 pull_from(u32 src, s32 cpu, s32 min_queued)
{
	struct baton_cpu *c = cpu_ctx(src);

	/* An idle CPU with a queue has just been given it and is on its way. */
	if (!c || src == cpu || c->nr_queued < min_queued || c->idle_since)
		return nr_cpu_ids;
	return scx_bpf_dsq_move_to_local(src, 0) ? src : nr_cpu_ids;
}

/* Queues of a node that one pull tries: each may hold nothing but tasks bound to the node. */
#define HOME_TRIES 8

/*
 * The same with the node of CPU @first, if it has @limit runnable tasks: from that CPU on, or from
 * where CPU @cpu gave it up the last time.
 */
static __noinline u32 pull_from_home(u32 first, u32 limit, s32 cpu)
{
	struct baton_cpu *mine = cpu_ctx(cpu), *there = cpu_ctx(first), *c;
	u32 i, at = first, tries = 0, from;

	if (!mine || !there || !home_has(first, limit))
		return nr_cpu_ids;
	c = mine->pull_next ? cpu_ctx(mine->pull_next - 1) : NULL;
	if (c && c->home == there->home) {
		at = mine->pull_next - 1;
		mine->pull_next = 0;
	}
	first = at;
	bpf_for (i, 0, nr_cpu_ids) {
		c = cpu_ctx(at);
		if (!c)
			break;
		if (tries >= HOME_TRIES) {
			mine->pull_next = at + 1;
			break;
		}
		if (c->nr_queued > 0 && !c->idle_since) {
			from = pull_from(at, cpu, 1);
			if (from < nr_cpu_ids)
				return from;
			tries++;
		}
		at = c->next_in_home;
		if (at == first)
			break;
	}
	return nr_cpu_ids;
}

/*
 * Pulls one task by the plan. A CPU that would idle takes from any queue with a waiting task, of
 * the levels that the dice let it look at this time; one that could go on with its previous task
 * only from a queue that has two more than it, so that what was pulled does not come straight back.
 * The dice are for looks on the off-chance, not for a CPU that was told that something waits.
 */
static __always_inline bool pull(struct baton_cpu *c, s32 cpu, bool would_idle)
{
	u64 start = scx_bpf_now();
	struct baton_pull_plan *plan = plan_of(cpu);
	s32 min_queued = would_idle ? 1 : 2;
	u32 i, nr, use = 0;

	if (!globals.overloaded || !plan)
		return false;
	c->pull_left_out = 0;
	if (c->told == BATON_TOLD) {
		c->told = BATON_LOOKED;
		stat_add(c, BATON_STAT_TOLD, 1);
		if (elapsed(c->told_at, start) > BATON_LATE_NS)
			stat_add(c, BATON_STAT_TOLD_LATE, 1);
	} else if (would_idle) {
		use = 1U << (c->plan_uses++ % BATON_DICE_THROWN);
	}
	nr = plan->nr;
	if (nr > BATON_PULL_PLAN_LEN)
		nr = BATON_PULL_PLAN_LEN;
	bpf_for (i, 0, nr) {
		u32 k = i, level, from;

		barrier_var(k);
		if (k >= BATON_PULL_PLAN_LEN)
			break;
		level = plan->level[k] % BATON_DICED_LEVELS;
		if (plan->dice[level] & use) {
			c->pull_left_out |= 1U << level;
			continue;
		}
		if (!plan->limit[k])
			from = pull_from(plan->src[k], cpu, min_queued);
		else if (would_idle)
			from = pull_from_home(plan->src[k], plan->limit[k], cpu);
		else
			continue;
		if (from < nr_cpu_ids) {
			c->pull_src = from + 1;
			c->pull_cost_ns = elapsed(start, scx_bpf_now());
			return true;
		}
	}
	if (nr && would_idle) {
		stat_add(c, BATON_STAT_PULL_EMPTY, 1);
		pull_record(c, 0, 0, elapsed(start, scx_bpf_now()), start);
	}
	return false;
}

/*
 * Whether @prev, whose slice is over, is still ahead of everything in its CPU's queue. The kernel
 * queues it only after this dispatch, so without the question two tasks of any weights would
 * simply take turns.
 */
static __always_inline bool prev_is_next(struct task_struct *prev, s32 cpu, u64 now)
{
	struct task_ctx *t = task_ctx(prev);
	bool next = false;
	struct task_struct *head;
	u64 vtime;

	if (!t)
		return false;
	vtime = prev->scx.dsq_vtime + elapsed(t->run_at, now) * 1024 / task_weight(prev);
	bpf_rcu_read_lock();
	head = __COMPAT_scx_bpf_dsq_peek(cpu);
	if (head)
		next = (s64)(vtime - head->scx.dsq_vtime) < 0;
	bpf_rcu_read_unlock();
	return next;
}

void BPF_STRUCT_OPS(baton_dispatch, s32 cpu, struct task_struct *prev)
{
	bool prev_runnable = prev && (prev->scx.flags & SCX_TASK_QUEUED);
	struct baton_cpu *c = cpu_ctx(cpu);

	if (!c)
		return;
	/* A task that is to be pushed away goes through baton_enqueue(), see there. */
	if (c->push_key && c->push_key == c->curr_key)
		prev_runnable = false;
	if (prev_runnable && c->nr_queued > 0 && prev_is_next(prev, cpu, scx_bpf_now())) {
		stat_add(c, BATON_STAT_KEPT, 1);
		scx_bpf_task_set_slice(prev, slice_for(c));
		return;
	}
	if (scx_bpf_dsq_move_to_local(cpu, 0)) {
		stat_add(c, BATON_STAT_OWN, 1);
		return;
	}
	if (pull(c, cpu, !prev_runnable)) {
		stat_add(c, BATON_STAT_PULLED, 1);
		return;
	}
	if (prev_runnable) {
		stat_add(c, BATON_STAT_KEPT, 1);
		scx_bpf_task_set_slice(prev, slice_ns);
		return;
	}
	/* The agent's own sleep is not the end of any work: it would ask itself in circles. */
	if (globals.newidle_ask && !c->ask_at && !(prev && prev->tgid == agent_tgid)) {
		c->ask_at = scx_bpf_now();
		ring(c->worker);
	}
}

/* Time for balance comes by ticks, as in the kernel: of busy CPUs only, so that an idle machine
 * lets the agent sleep, and without a timer of the agent's own. */
void BPF_STRUCT_OPS(baton_tick, struct task_struct *p)
{
	struct baton_cpu *c = cpu_ctx(scx_bpf_task_cpu(p));
	u64 now = scx_bpf_now();

	if (!c || p->tgid == agent_tgid)
		return;
	c->ticked_at = now;
	ask_for_balance(c, now);
}

void BPF_STRUCT_OPS(baton_runnable, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *t = task_ctx(p);
	u64 now = scx_bpf_now();

	/* The agent does not count: a CPU on which only it runs is idle to the balance. */
	if (!t || p->tgid == agent_tgid)
		return;
	t->wait_since = now;
	place_set(t, PLACE(task_weight(p), scx_bpf_task_cpu(p), false), now);
}

void BPF_STRUCT_OPS(baton_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct baton_cpu *c = cpu_ctx(cpu);
	struct task_ctx *t = task_ctx(p);
	u64 now = scx_bpf_now();
	u32 weight = task_weight(p);

	if (!t || !c)
		return;
	if (p->tgid == agent_tgid) {
		t->run_at = now;
		cpu_state_set(c, c->nr_runnable > 0 ? BATON_CPU_OTHER : BATON_CPU_IDLE, now);
		return;
	}
	if (t->vtime_cpu != cpu) {
		scx_bpf_task_set_dsq_vtime(p, vtime_on(p, t, cpu));
		t->vtime_cpu = cpu;
	}
	if ((s64)(p->scx.dsq_vtime - c->vtime_now) > 0)
		c->vtime_now = p->scx.dsq_vtime;
	if (t->moved_to >= 0) {
		stat_add(c, t->moved_to == cpu ? BATON_STAT_LANDED : BATON_STAT_DIVERTED, 1);
		t->moved_to = -1;
	}
	if (c->pull_src) {
		pull_record(c, t->key, c->pull_src - 1, c->pull_cost_ns, now);
		c->pull_src = 0;
	}
	place_set(t, PLACE(weight, cpu, false), now);
	t->running = true;
	t->run_at = now;
	cpu_state_set(c, BATON_CPU_OURS, now);
	c->curr_key = t->key;
	c->curr_util = t->util;
	c->curr_load = t->load;
	c->curr_vtime = p->scx.dsq_vtime;
	c->curr_since = now;
	c->curr_weight = weight;
	stat_add(c, BATON_STAT_SWITCHES, 1);
	stat_add(c, BATON_STAT_WAIT_NS, elapsed(t->wait_since, now));
}

void BPF_STRUCT_OPS(baton_stopping, struct task_struct *p, bool runnable)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct baton_cpu *c = cpu_ctx(cpu);
	struct task_ctx *t = task_ctx(p);
	u64 now = scx_bpf_now();
	u32 weight = task_weight(p);

	if (!t || !c || p->tgid == agent_tgid)
		return;
	scx_bpf_task_set_dsq_vtime(p, p->scx.dsq_vtime + elapsed(t->run_at, now) * 1024 / weight);
	task_sync(t, now);
	cpu_state_set(c, BATON_CPU_OTHER, now);
	t->running = false;
	t->last_ran = now;
	t->wait_since = now;
	c->curr_key = 0;
	/* A push ends with the stint of the task it names, unless that is about to be enqueued
	 * and carries it out there. */
	if (!runnable && c->push_key == t->key)
		push_end(c, t->key, BATON_REFUSED_RUNNING);
}

void BPF_STRUCT_OPS(baton_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct task_ctx *t = task_ctx(p);

	if (t)
		place_set(t, 0, scx_bpf_now());
}

void BPF_STRUCT_OPS(baton_update_idle, s32 cpu, bool idle)
{
	struct baton_cpu *c = cpu_ctx(cpu);
	u64 now = scx_bpf_now();

	if (!c)
		return;
	cpu_state_set(c, idle ? BATON_CPU_IDLE : BATON_CPU_OTHER, now);
	if (idle) {
		c->idle_since = now;
		stat_add(c, BATON_STAT_IDLE_ENTRIES, 1);
	} else if (c->idle_since) {
		/* kernel: update_avg(): an eighth of the difference. */
		s64 diff = elapsed(c->idle_since, now) - c->avg_idle;

		c->avg_idle += diff / 8;
		if (c->avg_idle_max && c->avg_idle > c->avg_idle_max)
			c->avg_idle = c->avg_idle_max;
		c->idle_since = 0;
		c->told = BATON_NOT_TOLD;
	}
}

/* A task of a higher class takes the CPU: what was about to run here, or ran, waits in the queue
 * from now on, where others can take it. */
void BPF_STRUCT_OPS(baton_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	scx_bpf_reenqueue_local();
}

void BPF_STRUCT_OPS(baton_enable, struct task_struct *p)
{
	struct task_ctx *t = task_ctx(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct baton_cpu *c = cpu_ctx(cpu);

	if (!t || !c)
		return;
	t->vtime_cpu = cpu;
	scx_bpf_task_set_dsq_vtime(p, c->vtime_now);
}

/* The class switch of a runnable task ends its count here: the kernel calls ops.quiescent
 * first. A new task starts with the load of one that always ran, as the kernel has it. */
s32 BPF_STRUCT_OPS_SLEEPABLE(baton_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct task_ctx *t;
	u32 generation = __sync_fetch_and_add(&next_generation, 1) + 1;

	t = bpf_task_storage_get(&task_ctxs, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return -ENOMEM;
	t->key = (u64)generation << 32 | (u32)p->pid;
	t->moved_to = -1;
	t->avg_at = scx_bpf_now();
	t->load = (u64)task_weight(p) << BATON_AVG_SHIFT;
	t->runnable = 1024ULL << BATON_AVG_SHIFT;
	t->util = 512ULL << BATON_AVG_SHIFT;
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(baton_init)
{
	u32 cpu;
	s32 ret;

	ret = balanced_init();
	if (ret) {
		scx_bpf_error("the set of balanced CPUs cannot be made: %d", ret);
		return ret;
	}
	bpf_for (cpu, 0, nr_cpu_ids) {
		ret = scx_bpf_create_dsq(cpu, NUMA_NO_NODE);
		if (ret) {
			scx_bpf_error("the queue of CPU %d cannot be made: %d", cpu, ret);
			return ret;
		}
	}
	return 0;
}

void BPF_STRUCT_OPS(baton_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(baton_ops, .select_cpu = (void *)baton_select_cpu, .enqueue = (void *)baton_enqueue,
	       .dispatch = (void *)baton_dispatch, .tick = (void *)baton_tick,
	       .runnable = (void *)baton_runnable, .running = (void *)baton_running,
	       .stopping = (void *)baton_stopping, .quiescent = (void *)baton_quiescent,
	       .update_idle = (void *)baton_update_idle, .cpu_release = (void *)baton_cpu_release,
	       .enable = (void *)baton_enable, .init_task = (void *)baton_init_task,
	       .init = (void *)baton_init, .exit = (void *)baton_exit,
	       .flags = SCX_OPS_KEEP_BUILTIN_IDLE | SCX_OPS_ENQ_LAST, .timeout_ms = 30000U,
	       .name = "baton");
