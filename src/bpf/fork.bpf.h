/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where new tasks start: near their parent, or near a CPU of another node where the agent's plan
 * for the parent's node sends them. Which CPU near that is the kernel's built-in selection, which
 * looks farther when it finds none that idles.
 */
#ifndef BATON_FORK_BPF_H
#define BATON_FORK_BPF_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct baton_fork_plan);
	__uint(max_entries, 1); /* one for each node, set at load time */
} fork_plans SEC(".maps");

/* Whether the node of @cpu has at least @limit runnable tasks. As far as that has to be counted;
 * the kernel looks at all CPUs of the machine at each fork. */
static __always_inline bool home_has(s32 cpu, u32 limit)
{
	u32 i, at = cpu, nr = 0;

	bpf_for (i, 0, nr_cpu_ids) {
		struct baton_cpu *c;

		if (nr >= limit)
			break;
		c = cpu_ctx(at);
		if (!c)
			break;
		if (c->nr_runnable > 0)
			nr += c->nr_runnable;
		at = c->next_in_home;
		if (at == cpu)
			break;
	}
	return nr >= limit;
}

/* The CPU near which @p, forked on @cpu, is to start. */
static __always_inline s32 fork_near(const struct task_struct *p, s32 cpu)
{
	struct baton_cpu *c = cpu_ctx(cpu);
	struct baton_fork_plan *plan;
	u32 key, use, near;

	if (!c)
		return cpu;
	stat_add(c, BATON_STAT_FORKS, 1);
	key = c->home;
	plan = bpf_map_lookup_elem(&fork_plans, &key);
	if (!plan)
		return cpu;
	if (!plan->asked)
		plan->asked = 1;
	use = plan->used;
	if (use >= plan->nr)
		return cpu;
	barrier_var(use);
	if (use >= BATON_FORK_PLAN_LEN || !home_has(cpu, plan->step[use].limit))
		return cpu;
	near = plan->step[use].near;
	if (near >= nr_cpu_ids || !task_allowed(p, near))
		return cpu;
	/* Of several at once one takes the step. */
	if (__sync_val_compare_and_swap(&plan->used, use, use + 1) != use)
		return cpu;
	stat_add(c, BATON_STAT_FORKED_AWAY, 1);
	return near;
}

#endif
