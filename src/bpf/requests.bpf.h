/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the agent asks for, done at once: list a queue, move named tasks, push the running one.
 * Everything is checked again here, at the moment of the move; nothing a request says can
 * eject the scheduler.
 *
 * Loop counters live in the slot: kept in registers across a queue iteration they make the
 * verifier explore every value of them (E2BIG).
 */
#ifndef BATON_REQUESTS_BPF_H
#define BATON_REQUESTS_BPF_H

static u64 next_token;

struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;

static __always_inline void count_outcome(u32 outcome)
{
	if (outcome < BATON_NR_OUTCOMES)
		__sync_fetch_and_add(&globals.outcomes[outcome], 1);
}

static __always_inline bool task_allowed(const struct task_struct *p, u32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

static __always_inline bool percpu_kthread(const struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1;
}

/* The vtime that keeps the task's lead or lag against its queue, on the clock of @cpu. */
static __always_inline u64 vtime_on(const struct task_struct *p, struct task_ctx *t, s32 cpu)
{
	struct baton_cpu *from = cpu_ctx(t->vtime_cpu), *to = cpu_ctx(cpu);
	u64 vtime = p->scx.dsq_vtime;

	if (!from || !to)
		return vtime;
	if (from != to)
		vtime += to->vtime_now - from->vtime_now;
	/* A sleeper's claim on the past is one slice, and so is what a stale clock may cost. */
	if ((s64)(vtime - (to->vtime_now - slice_ns)) < 0)
		vtime = to->vtime_now - slice_ns;
	return vtime;
}

static __always_inline void list_one(struct baton_slot *s, struct task_struct *p,
				     struct task_ctx *t, u64 now)
{
	struct baton_task *out;
	u32 i = s->nr;

	barrier_var(i);
	if (i >= BATON_NR_LIST)
		return;
	out = &s->tasks[i];
	task_sync(t, now);
	out->key = t->key;
	out->load = t->load >> BATON_AVG_SHIFT;
	out->util = t->util >> BATON_AVG_SHIFT;
	out->last_ran = t->last_ran;
	out->weight = task_weight(p);
	out->flags = (task_allowed(p, s->dst) ? BATON_TASK_ALLOWED : 0) |
		     (is_migration_disabled(p) ? BATON_TASK_NO_MIGRATE : 0) |
		     (percpu_kthread(p) ? BATON_TASK_PERCPU_KTHREAD : 0);
	s->nr = i + 1;
}

static __always_inline struct baton_slot *slot_of(struct baton_args *args)
{
	u32 key = args->slot;

	return bpf_map_lookup_elem(&slots, &key);
}

/* Reads the clock that all times are on. */
SEC("syscall")
int baton_clock(struct baton_args *args)
{
	struct baton_slot *s = slot_of(args);

	if (!s)
		return -EINVAL;
	s->now = scx_bpf_now();
	return 0;
}

/* Wakes the worker whose slot it is, however it sleeps. */
SEC("syscall")
int baton_ring(struct baton_args *args)
{
	ring(args->slot);
	return 0;
}

/* Makes slot.dst use its pull plan if it idles. */
SEC("syscall")
int baton_kick(struct baton_args *args)
{
	struct baton_slot *s = slot_of(args);
	struct baton_cpu *c;

	if (!s || s->dst >= nr_cpu_ids)
		return -EINVAL;
	c = cpu_ctx(s->dst);
	if (c)
		tell(c, s->dst);
	return 0;
}

/* Lists up to BATON_NR_LIST tasks that wait on slot.src, in queue order. */
SEC("syscall")
int baton_list(struct baton_args *args)
{
	struct baton_slot *s = slot_of(args);
	struct task_struct *p;
	u64 now = scx_bpf_now();

	if (!s || s->src >= nr_cpu_ids || s->dst >= nr_cpu_ids)
		return -EINVAL;
	s->nr = 0;
	s->walked = 0;
	bpf_rcu_read_lock();
	bpf_for_each (scx_dsq, p, s->src, 0) {
		struct task_ctx *t = task_ctx(p);

		if (t)
			list_one(s, p, t, now);
		if (++s->walked >= BATON_MAX_WALK || s->nr >= BATON_NR_LIST)
			break;
	}
	bpf_rcu_read_unlock();
	return 0;
}

/*
 * First half of a move: marks the named tasks and says of each what is known before the
 * queue is walked. A task that is marked but not met there has gone.
 */
static __always_inline void mark_one(struct baton_slot *s, u32 i)
{
	struct task_struct *p;
	struct task_ctx *t;
	u64 key;

	barrier_var(i);
	if (i >= BATON_NR_MIGRATE)
		return;
	key = s->keys[i];
	s->outcomes[i] = BATON_REFUSED_GONE;
	p = bpf_task_from_pid((s32)key);
	if (!p)
		return;
	t = task_ctx(p);
	if (t && t->key == key) {
		if (t->running) {
			s->outcomes[i] = BATON_REFUSED_RUNNING;
		} else {
			t->move_index = i;
			t->move_token = s->token;
		}
	}
	bpf_task_release(p);
}

static __always_inline void settle_one(struct baton_slot *s, u32 i, u32 outcome)
{
	barrier_var(i);
	if (i < BATON_NR_MIGRATE)
		s->outcomes[i] = outcome;
}

/* Moves slot.keys[0..nr] from slot.src's queue to slot.dst's. */
SEC("syscall")
int baton_move(struct baton_args *args)
{
	struct baton_slot *s = slot_of(args);
	struct task_struct *p;
	struct baton_cpu *c;
	u64 now = scx_bpf_now();
	bool has_queue;
	u32 nr, i;

	if (!s || s->src >= nr_cpu_ids || s->dst >= nr_cpu_ids || s->nr > BATON_NR_MIGRATE)
		return -EINVAL;
	nr = s->nr;
	c = cpu_ctx(s->dst);
	has_queue = c && c->nr_queued > 0;
	s->token = __sync_fetch_and_add(&next_token, 1) + 1;
	s->walked = 0;
	__sync_fetch_and_add(&globals.issued, nr);
	bpf_for (i, 0, nr)
		mark_one(s, i);

	bpf_rcu_read_lock();
	bpf_for_each (scx_dsq, p, s->src, 0) {
		struct task_ctx *t = task_ctx(p);
		u32 dst = s->dst;

		if (++s->walked >= BATON_MAX_WALK)
			break;
		if (!t || t->move_token != s->token)
			continue;
		t->move_token = 0;
		if (!task_allowed(p, dst) || is_migration_disabled(p)) {
			settle_one(s, t->move_index, BATON_REFUSED_AFFINITY);
			continue;
		}
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, vtime_on(p, t, dst));
		if (!scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, dst, 0))
			continue;
		t->vtime_cpu = dst;
		t->moved_to = dst;
		place_move(t, s->src, dst, now);
		settle_one(s, t->move_index, BATON_APPLIED);
	}
	bpf_rcu_read_unlock();

	/* With something in its queue already it does not idle before it has seen these too. */
	if (!has_queue)
		scx_bpf_kick_cpu(s->dst, SCX_KICK_IDLE);
	bpf_for (i, 0, nr) {
		u32 k = i;

		barrier_var(k);
		if (k < BATON_NR_MIGRATE)
			count_outcome(s->outcomes[k]);
	}
	return 0;
}

/* Ends the push under way on @c, if it is still @key, and says how. */
static __always_inline bool push_end(struct baton_cpu *c, u64 key, u32 outcome)
{
	if (__sync_val_compare_and_swap(&c->push_key, key, 0) != key)
		return false;
	c->push_outcome = outcome + 1;
	count_outcome(outcome);
	return true;
}

/*
 * Asks for slot.keys[0], which runs on slot.src, to be preempted and queued on slot.dst
 * instead. It happens when the CPU reschedules, in baton_enqueue(); the agent watches
 * push_outcome and gives up with baton_push_expire.
 */
SEC("syscall")
int baton_push(struct baton_args *args)
{
	struct baton_slot *s = slot_of(args);
	struct baton_cpu *c;
	u64 key, old;

	if (!s || s->src >= nr_cpu_ids || s->dst >= nr_cpu_ids)
		return -EINVAL;
	key = s->keys[0];
	c = cpu_ctx(s->src);
	if (!c || !key)
		return -EINVAL;
	__sync_fetch_and_add(&globals.issued, 1);
	old = c->push_key;
	if (old)
		push_end(c, old, BATON_SUPERSEDED);
	c->push_outcome = 0;
	if (c->curr_key != key) {
		c->push_outcome = BATON_REFUSED_RUNNING + 1;
		count_outcome(BATON_REFUSED_RUNNING);
		return 0;
	}
	c->push_dst = s->dst;
	if (__sync_val_compare_and_swap(&c->push_key, 0, key) != 0) {
		/* Another worker's push came in between: its turn. */
		count_outcome(BATON_SUPERSEDED);
		s->outcomes[0] = BATON_SUPERSEDED;
		return -EBUSY;
	}
	scx_bpf_kick_cpu(s->src, SCX_KICK_PREEMPT);
	return 0;
}

SEC("syscall")
int baton_push_expire(struct baton_args *args)
{
	struct baton_slot *s = slot_of(args);
	struct baton_cpu *c;

	if (!s)
		return -EINVAL;
	c = cpu_ctx(s->src);
	if (c)
		push_end(c, s->keys[0], BATON_EXPIRED);
	return 0;
}

#endif
