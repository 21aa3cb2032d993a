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

static __always_inline void wake_worker(struct baton_cpu *c)
{
	struct baton_slot *s = worker_of(c);

	if (s && s->asleep && __sync_val_compare_and_swap(&s->asleep, 1, 0) == 1)
		ring(c->worker);
}

/* Whether the worker of @c sleeps although a busy CPU of its shard is due. */
static __always_inline bool is_due(struct baton_cpu *c, u64 now)
{
	struct baton_slot *s = worker_of(c);

	return s && s->asleep && now >= s->due;
}

/* An idle CPU that has been so for this long may stay so: as if it had stopped its tick. */
#define IDLE_SETTLED_NS 2000000ULL

/* Whether a CPU idles that some worker balances; one of them is looked at, each time another. */
static __always_inline bool somebody_idles(u64 now)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	u32 cpu = nr_cpu_ids;
	struct bpf_cpumask *mask;
	struct baton_cpu *c;

	bpf_rcu_read_lock();
	mask = balanced;
	if (mask)
		cpu = bpf_cpumask_any_and_distribute(idle, cast_mask(mask));
	bpf_rcu_read_unlock();
	scx_bpf_put_idle_cpumask(idle);
	if (cpu >= nr_cpu_ids)
		return false;
	c = cpu_ctx(cpu);
	return c && c->idle_since && elapsed(c->idle_since, now) >= IDLE_SETTLED_NS;
}

/* A task waits on @c: wakes the worker if a CPU idles that might run it and help is due. The time
 * comes before the mask, which all idle CPUs write. */
static __always_inline void want_help(struct baton_cpu *c, u64 now)
{
	struct baton_slot *s = worker_of(c);

	if (s && s->asleep && now >= s->due_idle && somebody_idles(now))
		wake_worker(c);
}

#endif
