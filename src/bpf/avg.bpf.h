/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Decaying averages: avg(t + dt) = avg(t) * f + rate * (1 - f), f = 2^(-dt / half-life).
 * The half-life is the kernel's (kernel/sched/pelt.c): 32 periods of 2^20 ns.
 *
 * For one rate over any number of steps the result is the same as over one step, so the sum
 * of tasks' averages is the average of their sum: a CPU's load is that of its tasks.
 */
#ifndef BATON_AVG_BPF_H
#define BATON_AVG_BPF_H

#define AVG_PERIOD_SHIFT 20
#define AVG_ONE_SHIFT    26
#define AVG_ONE          (1ULL << AVG_ONE_SHIFT)

/* 2^(-i/32) in 1/2^26; one more entry than periods so that the last can be interpolated. */
static const u32 avg_decay_table[33] = {
    67108864, 65670859, 64263668, 62886630, 61539100, 60220444, 58930044, 57667294, 56431603,
    55222390, 54039088, 52881142, 51748008, 50639155, 49554062, 48492221, 47453133, 46436310,
    45441276, 44467563, 43514715, 42582284, 41669834, 40776935, 39903169, 39048127, 38211406,
    37392614, 36591368, 35807290, 35040014, 34289178, 33554432,
};

/* What is left of 1 after @dt ns, in 1/2^26. */
static __always_inline u64 avg_factor(u64 dt)
{
	u64 periods = dt >> AVG_PERIOD_SHIFT;
	u32 i = periods & 31;
	u64 part = dt & ((1ULL << AVG_PERIOD_SHIFT) - 1);
	u64 here, next;

	if (periods >= 32 * AVG_ONE_SHIFT)
		return 0;
	here = avg_decay_table[i];
	next = avg_decay_table[i + 1];
	return (here - (((here - next) * part) >> AVG_PERIOD_SHIFT)) >> (periods >> 5);
}

/* One step of the average; @rate in whole units, @val in 1/1024 of them. */
static __always_inline u64 avg_step(u64 val, u64 rate, u64 factor)
{
	return (val * factor + (rate << BATON_AVG_SHIFT) * (AVG_ONE - factor)) >> AVG_ONE_SHIFT;
}

/* Time from @then to @now; clocks of two CPUs may disagree by a little. */
static __always_inline u64 elapsed(u64 then, u64 now)
{
	return now > then ? now - then : 0;
}

#endif
