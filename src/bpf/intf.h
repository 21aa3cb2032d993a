/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the BPF component and the agent share: the one home of every structure and
 * constant that crosses the boundary. The Rust side is generated from this file.
 *
 * All times are the scheduler's clock, scx_bpf_now(): cheap on every machine, also where reading
 * the monotonic clock is not. The agent reads it through baton_clock and never compares it with
 * a clock of its own.
 *
 * Memory here is mapped by both sides. Each structure says who writes it; all others only
 * read, and may see a value from a moment ago.
 */
#ifndef BATON_INTF_H
#define BATON_INTF_H

#ifndef __VMLINUX_H__
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
#endif

enum baton_consts {
	BATON_CACHELINE = 64,
	/* Tasks that one move request may name (kernel: sched_nr_migrate). */
	BATON_NR_MIGRATE = 32,
	/* Tasks that one list request returns at the most. */
	BATON_NR_LIST = 64,
	/* Waiting tasks that one request looks at before it gives up. */
	BATON_MAX_WALK = 1024,
	/* Source CPUs in one pull plan. */
	BATON_PULL_PLAN_LEN = 16,
	/* Levels that have dice of their own in a pull plan. */
	BATON_DICED_LEVELS = 8,
	/* Uses of a pull plan for which its dice are thrown, the bits of a word of them. */
	BATON_DICE_THROWN = 32,
	/* Forks that one fork plan sends away. */
	BATON_FORK_PLAN_LEN = 32,
	/* Pulls that a CPU remembers until its worker has read them. */
	BATON_NR_PULLS = 8,
	/* Later than the default limit of work conservation. */
	BATON_LATE_NS = 10000000,
	/* Averages are kept in 1/1024 of their unit. */
	BATON_AVG_SHIFT = 10,
};

/*
 * How a request ended. Codes are the positions in Rust's MoveOutcome::ALL.
 * issued = the sum of all of these, at any time at which no request is under way.
 */
enum baton_outcome {
	BATON_APPLIED,
	BATON_REFUSED_AFFINITY,
	BATON_REFUSED_GONE,
	BATON_REFUSED_RUNNING,
	BATON_SUPERSEDED,
	BATON_EXPIRED,
	BATON_NR_OUTCOMES,
};

/* Events counted by each CPU for itself. */
enum baton_stat {
	BATON_STAT_DIRECT,       /* inserted straight into an idle CPU's local queue */
	BATON_STAT_QUEUED,       /* inserted into a CPU's own queue */
	BATON_STAT_OWN,          /* dispatched from the CPU's own queue */
	BATON_STAT_PULLED,       /* dispatched from another CPU's queue, by the pull plan */
	BATON_STAT_KEPT,         /* previous task kept running */
	BATON_STAT_PREEMPT,      /* running task preempted by a wake-up */
	BATON_STAT_AGENT,        /* agent thread put ahead of everything else */
	BATON_STAT_LANDED,       /* moved task first ran on the destination */
	BATON_STAT_DIVERTED,     /* moved task first ran elsewhere */
	BATON_STAT_SWITCHES,     /* times a task started to run */
	BATON_STAT_WAIT_NS,      /* time tasks were runnable before they ran */
	BATON_STAT_NO_CTX,       /* a task without context was given the defaults */
	BATON_STAT_PULL_EMPTY,   /* a pull by plan found nothing */
	BATON_STAT_IDLE_ENTRIES, /* times the CPU became idle */
	BATON_STAT_TOLD,         /* an idle CPU that was told of work looked for it */
	BATON_STAT_TOLD_LATE,    /* more than BATON_LATE_NS after it was told */
	BATON_STAT_FORKS,        /* new tasks placed */
	BATON_STAT_FORKED_AWAY,  /* near a CPU of another node, by the fork plan */
	BATON_NR_STATS,
	BATON_ROOM_FOR_STATS = 24, /* whole cache lines */
};

/* Who has a CPU. */
enum baton_cpu_state {
	BATON_CPU_IDLE,
	BATON_CPU_OURS,
	BATON_CPU_OTHER, /* a task of another class, or none for the moment */
};

/* Whether an idle CPU knows that something waits. */
enum baton_told {
	BATON_NOT_TOLD,
	BATON_TOLD,   /* by another CPU's tick or by the agent; it is on its way */
	BATON_LOOKED, /* it has used its plan since */
};

/* What came of a CPU's pull plan, once. */
struct baton_pull {
	u64 key; /* task that came, 0 if none did */
	u64 at;
	u32 cost_ns;
	u16 src;
	u16 left_out; /* levels, as bits, with sources that the dice kept it from */
};

/*
 * One CPU. Averages decay with the kernel's half-life (32 periods of 2^20 ns) and are valid
 * at the time beside them: the reader decays them to now.
 */
struct baton_cpu {
	/*
	 * The queue: written by whoever queues, moves or takes a task. Counts and the weight
	 * are changed atomically and are exact. The averages are not locked: two writers at
	 * once can lose one's part, an error that halves every half-life.
	 */
	s32 nr_runnable;  /* waiting or running */
	s32 nr_queued;    /* waiting */
	u64 sum_weight;   /* of the runnable ones */
	u64 queue_avg_at; /* time of the two below */
	u64 load;         /* sum of the runnable tasks' loads */
	u64 runnable;     /* sum of the runnable tasks' runnable averages */
	u64 vtime_now;    /* vtime of the last task that started here */
	u32 home; /* which fork plan is for its node, none beyond the last; written by the agent */
	u32 next_in_home; /* the node's next CPU, in a ring; written by the agent */
	u64 queued_since; /* since when something has always waited, while something does */

	/* The CPU itself: written by programs that run on it. */
	u64 state_at;   /* time of the two averages below */
	u64 util;       /* share of time that our tasks run */
	u64 other;      /* share of time taken by other classes: real-time, deadline, stop */
	u64 curr_key;   /* running task, 0 if none of ours */
	u64 curr_vtime; /* its vtime when it started */
	u64 curr_since; /* when it started */
	u64 curr_util;  /* its averages when it started */
	u64 curr_load;
	u64 idle_since; /* when the CPU became idle, 0 while busy */
	u64 avg_idle;   /* usual length of an idle period, ns */
	u32 curr_weight;
	u32 state;    /* enum baton_cpu_state */
	u64 ask_at;   /* since when it waits for the agent's newidle pass, 0 if it does not */
	u32 worker;   /* slot of the worker that balances it, nr_slots if none; written by the agent
		       */
	u32 pull_src; /* source of a task that is about to start + 1, 0 if none */
	u32 pull_cost_ns;
	u32 pull_left_out;
	u64 avg_idle_max; /* cap of avg_idle; written by the agent, 0 while unknown */
	u32 told;         /* enum baton_told, of the idle period under way */
	u32 pull_next;    /* where a pull that gave another node up goes on + 1, 0 if none did */

	/* The last pulls, a ring: entry nr_pulls % BATON_NR_PULLS is the next. */
	struct baton_pull pulls[BATON_NR_PULLS];
	u64 nr_pulls;
	u64 plan_uses; /* how often the CPU used its plan */
	u64 told_at;   /* when it was last told of work while idle */
	u64 ticked_at; /* the last tick of a task of ours */
	u64 pulls_pad[4];

	/* A request to push the running task away: written by the push program and cleared by
	 * compare-exchange by whoever carries it out or gives it up. */
	u64 push_key;
	s32 push_dst;
	u32 push_outcome; /* enum baton_outcome + 1; 0 while under way */
	u64 push_pad[6];

	u64 stats[BATON_ROOM_FOR_STATS];
};
_Static_assert(sizeof(struct baton_cpu) == 11 * BATON_CACHELINE, "whole cache lines");
_Static_assert(BATON_NR_STATS <= BATON_ROOM_FOR_STATS, "room for all counters");

/* Which CPUs may be pulled from, best first. Written by the agent alone; a torn read costs
 * one pull from a CPU of the plan before or after, which is harmless: every source is checked
 * and so is every task's affinity. */
struct baton_pull_plan {
	u32 nr;
	u32 version;
	u16 src[BATON_PULL_PLAN_LEN];
	/* 0: the CPU alone. Else its whole node, while that has so many runnable tasks. */
	u16 limit[BATON_PULL_PLAN_LEN];
	u8 level[BATON_PULL_PLAN_LEN]; /* for whose sake each source is there */
	u32 dice[BATON_DICED_LEVELS];  /* by level: the uses, as bits, that leave it out */
	u32 pad[2];
};
_Static_assert(sizeof(struct baton_pull_plan) == 2 * BATON_CACHELINE, "whole cache lines");

/* One fork that leaves its node. */
struct baton_fork_step {
	u32 limit; /* from how many runnable tasks of the node on */
	u32 near;  /* the CPU at which it goes */
};

/* Which of a node's forks leave it, in order. Written by the agent, but for `used` and `asked`.
 * Torn reads are harmless as in a pull plan. */
struct baton_fork_plan {
	struct baton_fork_step step[BATON_FORK_PLAN_LEN];
	u32 nr;
	u32 version;
	u32 used;  /* steps taken; counted by the forks, taken back by the agent */
	u32 asked; /* whether a fork has looked at it; set by the forks, taken back by the agent */
	u32 pad[12];
};
_Static_assert(sizeof(struct baton_fork_plan) == 5 * BATON_CACHELINE, "whole cache lines");

enum baton_task_flags {
	BATON_TASK_ALLOWED = 1,        /* affinity allows the destination */
	BATON_TASK_NO_MIGRATE = 2,     /* migration is disabled for now */
	BATON_TASK_PERCPU_KTHREAD = 4, /* kernel thread bound to one CPU */
};

/* One listed task. Averages are decayed to the time of the listing. */
struct baton_task {
	u64 key; /* generation << 32 | pid */
	u64 load;
	u64 util;
	u64 last_ran;
	u32 weight;
	u32 flags; /* enum baton_task_flags */
};

/*
 * One worker's desk: it writes a request, runs the program, reads the answer. Answers travel
 * here and not in the program's context, which verifiers up to 6.18 refuse to let it write.
 */
struct baton_slot {
	u32 src;
	u32 dst;
	u32 nr;     /* in: tasks named or wanted; out of a list: tasks found */
	u32 walked; /* out: waiting tasks looked at */
	u64 token;  /* scratch: which request a task was marked by */
	u64 now;    /* out of a clock reading */
	u64 keys[BATON_NR_MIGRATE];
	u32 outcomes[BATON_NR_MIGRATE]; /* enum baton_outcome */
	struct baton_task tasks[BATON_NR_LIST];
	/* Set by the worker when it goes to sleep; cleared by whoever wakes it, so that one sleep
	 * costs one event. Until then each is left alone: */
	u32 asleep;
	u32 pad0;
	u64 due;      /* time before which no busy CPU of the shard is due */
	u64 due_idle; /* time before which idle CPUs need no help with what waits in the shard */
	u64 pad[1];
};
_Static_assert(sizeof(struct baton_slot) % BATON_CACHELINE == 0, "whole cache lines");

/* Context of the syscall programs. */
struct baton_args {
	u32 slot;
};

/* What belongs to no CPU. */
struct baton_globals {
	/* Requests and how they ended; added to atomically by the programs. */
	u64 issued;
	u64 outcomes[BATON_NR_OUTCOMES];
	u64 pad0;
	/* Whether a CPU that is about to idle asks the agent; written by the agent. */
	u32 newidle_ask;
	/* Whether a task has come to wait (kernel: rd->overloaded): set by whoever queues one,
	 * taken back by the agent when it has seen that none does. Read at every idle entry,
	 * written seldom. */
	u32 overloaded;
	u32 pad1[14];
};
_Static_assert(sizeof(struct baton_globals) == 2 * BATON_CACHELINE, "whole cache lines");

#endif
