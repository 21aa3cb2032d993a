/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * When a worker of the agent is woken: by a bell of its own, so that nobody stands between it and
 * the CPU that needs it.
 */
#ifndef BATON_BELL_BPF_H
#define BATON_BELL_BPF_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct baton_slot);
	__uint(max_entries, 1); /* one for each worker, set at load time */
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct baton_pull_plan);
	__uint(max_entries, 1); /* one for each possible CPU, set at load time */
} pull_plans SEC(".maps");

static __always_inline struct baton_pull_plan *plan_of(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&pull_plans, &key);
}

/* One ring buffer for each worker, made and put in by the agent. */
struct bell {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1); /* one for each worker, set at load time */
	__type(key, u32);
	__array(values, struct bell);
} bells SEC(".maps");

void bpf_rcu_read_lock(void) __ksym;
void bpf_rcu_read_unlock(void) __ksym;

/* CPUs that some worker balances: all but the isolated ones. */
private(BATON) struct bpf_cpumask __kptr *balanced;

static __always_inline s32 balanced_init(void)
{
	struct bpf_cpumask *mask = bpf_cpumask_create();
	u32 cpu;

	if (!mask)
		return -ENOMEM;
	bpf_for (cpu, 0, nr_cpu_ids) {
		struct baton_cpu *c = cpu_ctx(cpu);

		if (c && c->worker < nr_slots)
			bpf_cpumask_set_cpu(cpu, mask);
	}
	mask = bpf_kptr_xchg(&balanced, mask);
	if (mask)
		bpf_cpumask_release(mask);
	return 0;
}

static __always_inline void ring(u32 worker)
{
	void *bell = bpf_map_lookup_elem(&bells, &worker);
	u64 *event;

	if (!bell)
		return;
	event = bpf_ringbuf_reserve(bell, sizeof(*event), 0);
	/* Full: it has been rung for already. */
	if (!event)
		return;
	*event = scx_bpf_now();
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
}

static __always_inline struct baton_slot *worker_of(struct baton_cpu *c)
{
	u32 worker = c->worker;

	return bpf_map_lookup_elem(&slots, &worker);
}

/* Wakes a worker, at desk @s, that was seen asleep. */
static __always_inline void wake(struct baton_slot *s, u32 worker)
{
	if (__sync_val_compare_and_swap(&s->asleep, 1, 0) == 1)
		ring(worker);
}

/* An idle CPU that has been so for this long may stay so: as if it had stopped its tick. */
#define IDLE_SETTLED_NS 4000000ULL

/* A CPU that idles and that some worker balances, each time another; nr_cpu_ids if none does. */
static __always_inline u32 idle_cpu(void)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	u32 cpu = nr_cpu_ids;
	struct bpf_cpumask *mask;

	bpf_rcu_read_lock();
	mask = balanced;
	if (mask)
		cpu = bpf_cpumask_any_and_distribute(idle, cast_mask(mask));
	bpf_rcu_read_unlock();
	scx_bpf_put_idle_cpumask(idle);
	return cpu;
}

/* Makes an idle CPU use its pull plan now. */
static __always_inline void tell(struct baton_cpu *c, u32 cpu)
{
	/* Told again, it has known since the first time. */
	if (c->told != BATON_TOLD)
		c->told_at = scx_bpf_now();
	c->told = BATON_TOLD;
	scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* Idle CPUs that one tick tells of work at the most. */
#define TELL_MOST 4

/*
 * Asks for what is due: by the busy CPUs of the shard of @c, or because tasks wait on @c while CPUs
 * idle that might run them. Those help themselves, by their plans; the worker is woken only if all
 * that were found had been told before, and have had the time. The times come before the mask,
 * which all idle CPUs write.
 */
static __always_inline void ask_for_balance(struct baton_cpu *c, u64 now)
{
	struct baton_slot *s = worker_of(c);
	struct baton_pull_plan *plan;
	bool helps = false, idles = false;
	struct baton_cpu *idle;
	s32 waiting = c->nr_queued;
	u32 i, cpu;

	if (!s)
		return;
	if (s->asleep && now >= s->due) {
		wake(s, c->worker);
		return;
	}
	if (waiting <= 0 || now < s->due_idle)
		return;
	bpf_for (i, 0, TELL_MOST) {
		cpu = (s32)i < waiting ? idle_cpu() : nr_cpu_ids;
		if (cpu >= nr_cpu_ids)
			break;
		idle = cpu_ctx(cpu);
		plan = plan_of(cpu);
		if (!idle || !plan)
			break;
		if (plan->nr && idle->told == BATON_NOT_TOLD) {
			tell(idle, cpu);
			helps = true;
		} else if (idle->told == BATON_TOLD &&
			   elapsed(idle->told_at, now) < IDLE_SETTLED_NS) {
			/* On its way. */
			helps = true;
		} else if (idle->idle_since && elapsed(idle->idle_since, now) >= IDLE_SETTLED_NS) {
			idles = true;
		}
	}
	if (idles && !helps && s->asleep)
		wake(s, c->worker);
}

#endif
