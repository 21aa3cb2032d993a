/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks, CPUs and where each task counts.
 *
 * A runnable task counts on exactly one CPU: its weight, its load and whether it waits. All
 * of that is in one word, task_ctx.place, changed by exchange only. Whoever changes it takes
 * away what the old word said and adds what the new one says; the counts are exact after any
 * number of racing changes, because what one adds the next takes away.
 */
#ifndef BATON_ACCOUNT_BPF_H
#define BATON_ACCOUNT_BPF_H

/* Set by the agent before loading. Non-zero defaults keep the verifier honest. */
const volatile u32 nr_cpu_ids = 1;
const volatile u32 nr_slots = 1;
const volatile u64 slice_ns = 3000000;
const volatile u64 slice_min_ns = 1000000;
const volatile bool wakeup_preempt = false;
const volatile s32 agent_tgid = 1;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct baton_cpu);
	__uint(max_entries, 1); /* one for each possible CPU, set at load time */
} cpus SEC(".maps");

struct task_ctx {
	u64 key;
	u64 place; /* see PLACE_* */
	/* Averages at avg_at, as in struct baton_cpu. */
	u64 avg_at;
	u64 load;
	u64 runnable;
	u64 util;
	u64 run_at;     /* when it last started to run */
	u64 last_ran;   /* when it last stopped */
	u64 wait_since; /* when it last became runnable or was preempted */
	u64 move_token; /* which request named it, see requests.bpf.h */
	u32 move_index; /* and at which position */
	s32 moved_to;   /* CPU it was moved to but has not yet run on, or -1 */
	s32 vtime_cpu;  /* CPU by whose clock its vtime is */
	u32 avg_weight; /* what it counts at while runnable, 0 else */
	bool running;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} task_ctxs SEC(".maps");

/* place: 0 = counts nowhere; else weight << 24 | cpu << 2 | waiting << 1 | 1. */
#define PLACE_WAITING       2ULL
#define PLACE(w, cpu, wait) ((u64)(w) << 24 | (u64)(cpu) << 2 | ((wait) ? 2ULL : 0) | 1ULL)
#define PLACE_CPU(place)    ((u32)((place) >> 2) & ((1U << 22) - 1))
#define PLACE_WEIGHT(place) ((place) >> 24)

static u32 next_generation;

struct baton_globals globals SEC(".data.shared");

static __always_inline struct baton_cpu *cpu_ctx(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&cpus, &key);
}

static __always_inline struct task_ctx *task_ctx(struct task_struct *p)
{
	return bpf_task_storage_get(&task_ctxs, p, 0, 0);
}

static __always_inline void stat_add(struct baton_cpu *c, u32 stat, u64 n)
{
	if (stat < BATON_NR_STATS)
		__sync_fetch_and_add(&c->stats[stat], n);
}

static __always_inline void stat_inc_here(u32 stat)
{
	struct baton_cpu *c = cpu_ctx(bpf_get_smp_processor_id());

	if (c)
		stat_add(c, stat, 1);
}

/* The kernel's share of each nice level (sched_prio_to_weight): a step is about 1.25. */
static const u32 nice_weight[40] = {
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906,  3121,  2501,  1991,  1586,  1277,  1024,  820,   655,   526,   423,  335,  272,  215,
    172,   137,   110,   87,    70,    56,    45,    36,    29,    23,    18,   15,
};

#define SCHED_IDLE_POLICY 5
#define SCHED_IDLE_WEIGHT 3

static __always_inline u32 task_weight(const struct task_struct *p)
{
	u32 i = p->static_prio - 100;

	if (p->policy == SCHED_IDLE_POLICY)
		return SCHED_IDLE_WEIGHT;
	return i < 40 ? nice_weight[i] : 1024;
}

/* Brings a queue's averages to @now; they count at the rate of its present tasks. */
static __always_inline void cpu_sync(struct baton_cpu *c, u64 now)
{
	u64 f = avg_factor(elapsed(c->queue_avg_at, now));
	s32 nr = c->nr_runnable;

	c->load = avg_step(c->load, c->sum_weight, f);
	c->runnable = avg_step(c->runnable, nr > 0 ? (u64)nr << 10 : 0, f);
	c->queue_avg_at = now;
}

static __always_inline void task_sync(struct task_ctx *t, u64 now)
{
	u64 f = avg_factor(elapsed(t->avg_at, now));

	t->load = avg_step(t->load, t->avg_weight, f);
	t->runnable = avg_step(t->runnable, t->avg_weight ? 1024 : 0, f);
	t->util = avg_step(t->util, t->running ? 1024 : 0, f);
	t->avg_at = now;
}

/* Brings the shares of the CPU's time to @now and notes who has it from now on. */
static __always_inline void cpu_state_set(struct baton_cpu *c, u32 state, u64 now)
{
	u64 f = avg_factor(elapsed(c->state_at, now));

	c->util = avg_step(c->util, c->state == BATON_CPU_OURS ? 1024 : 0, f);
	c->other = avg_step(c->other, c->state == BATON_CPU_OTHER ? 1024 : 0, f);
	c->state_at = now;
	c->state = state;
}

/* One more task waits on @c. */
static __always_inline void queued_inc(struct baton_cpu *c, u64 now)
{
	if (__sync_fetch_and_add(&c->nr_queued, 1) <= 0)
		c->queued_since = now;
	if (!globals.overloaded)
		globals.overloaded = 1;
}

static __noinline int place_leave(u64 place, u64 load, u64 runnable, u64 now)
{
	struct baton_cpu *c = cpu_ctx(PLACE_CPU(place));

	if (!place || !c)
		return 0;
	cpu_sync(c, now);
	__sync_fetch_and_sub(&c->nr_runnable, 1);
	__sync_fetch_and_sub(&c->sum_weight, PLACE_WEIGHT(place));
	if (place & PLACE_WAITING)
		__sync_fetch_and_sub(&c->nr_queued, 1);
	c->load = elapsed(load, c->load);
	c->runnable = elapsed(runnable, c->runnable);
	return 0;
}

static __noinline int place_enter(u64 place, u64 load, u64 runnable, u64 now)
{
	struct baton_cpu *c = cpu_ctx(PLACE_CPU(place));

	if (!place || !c)
		return 0;
	cpu_sync(c, now);
	__sync_fetch_and_add(&c->nr_runnable, 1);
	__sync_fetch_and_add(&c->sum_weight, PLACE_WEIGHT(place));
	if (place & PLACE_WAITING)
		queued_inc(c, now);
	c->load += load;
	c->runnable += runnable;
	return 0;
}

/* Counts the task at @place from now on, wherever it counted before. */
static __always_inline u64 place_set(struct task_ctx *t, u64 place, u64 now)
{
	u64 old;

	task_sync(t, now);
	old = __sync_lock_test_and_set(&t->place, place);
	if (old == place)
		return old;
	if (old && place && (old ^ place) == PLACE_WAITING) {
		/* Same CPU, same weight: only whether it waits has changed. */
		struct baton_cpu *c = cpu_ctx(PLACE_CPU(place));

		if (c && place & PLACE_WAITING)
			queued_inc(c, now);
		else if (c)
			__sync_fetch_and_sub(&c->nr_queued, 1);
		return old;
	}
	place_leave(old, t->load, t->runnable, now);
	place_enter(place, t->load, t->runnable, now);
	t->avg_weight = PLACE_WEIGHT(place);
	return old;
}

/* Moves the task's count from @src to @dst unless it has meanwhile gone elsewhere. */
static __always_inline void place_move(struct task_ctx *t, u32 src, u32 dst, u64 now)
{
	u64 old = t->place;
	u64 new = PLACE(PLACE_WEIGHT(old), dst, true);

	if (!(old & PLACE_WAITING) || PLACE_CPU(old) != src)
		return;
	task_sync(t, now);
	if (__sync_val_compare_and_swap(&t->place, old, new) != old)
		return;
	place_leave(old, t->load, t->runnable, now);
	place_enter(new, t->load, t->runnable, now);
}

#endif
