//! Whether a CPU about to idle looks for work, at which levels, and what it learns from that
//! (kernel: `sched_balance_newidle`, `update_newidle_cost`, `update_newidle_stats`,
//! `update_rq_avg_idle`).

use crate::balancer::{PULL_PLAN_LEN, Snapshot};
use crate::domains::{GroupId, SchedDomain, SdFlags};
use crate::policy::env::Env;
use crate::policy::group_stats::SdStats;
use crate::policy::skip::SkipReason;
use crate::policy::src_group::find_src_group;
use crate::policy::state::LevelState;
use crate::policy::tunables::{Newidle, NewidleCost, OnOff, Tunables, YesNo};
use crate::units::{CpuId, Nanos};

/// Lowest cap of the average idle time's cap, and its start (kernel:
/// `sysctl_sched_migration_cost`).
pub const IDLE_COST_FLOOR: Nanos = Nanos::from_us(500);

/// Attempts that count as one round of the success ratio, and the ratio's scale.
pub const RATIO_SCALE: u32 = 1024;

/// A stream of random numbers of its own (splitmix64): the same seed, the same throws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rng(u64);

impl Rng {
    /// A stream from a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The new average of a CPU's idle times, after one of `idle` (kernel: `update_rq_avg_idle`): an
/// eighth of the way, and at most twice what its newidle passes cost at most. To be called
/// whenever the CPU leaves idle, for whatever reason.
pub fn update_avg_idle(avg_idle: Nanos, idle: Nanos, max_idle_balance_cost: Nanos) -> Nanos {
    let avg = if idle >= avg_idle {
        avg_idle + Nanos((idle - avg_idle).0 / 8)
    } else {
        // The kernel shifts a signed difference, which rounds down.
        avg_idle - Nanos((avg_idle - idle).0.div_ceil(8))
    };
    let cap = max_idle_balance_cost.max(IDLE_COST_FLOOR);
    avg.min(cap + cap)
}

/// Counts an attempt; `success` is how many it stands for, 0 for a failure. Every 1,024 attempts
/// the ratio is taken anew and the counts are halved (kernel: `update_newidle_stats`).
pub fn update_newidle_stats(state: &mut LevelState, success: u32, now: Nanos) {
    state.newidle_call += 1;
    state.newidle_success = state.newidle_success.saturating_add(success);
    if state.newidle_call < RATIO_SCALE {
        return;
    }
    // Attempts that are rare cost little: the time they took counts as success.
    let rate = (now - state.newidle_stamp).0 >> 22;
    let ratio = rate.saturating_add(u64::from(state.newidle_success));
    state.newidle_stamp = now;
    state.newidle_ratio = ratio.min(u64::from(RATIO_SCALE)) as u32;
    state.newidle_call /= 2;
    state.newidle_success /= 2;
}

/// What a pass that took `took` costs, for [`update_newidle_cost`]: unless switched, the least that
/// it and the last few took. All are times by the clock, and an interrupt or a hypervisor that had
/// the CPU meanwhile would close the cost gate for minutes (the kernel lets it). Never zero.
pub fn pass_cost(tunables: &Tunables, state: &mut LevelState, took: Nanos) -> Nanos {
    if tunables.newidle_cost == NewidleCost::Each {
        return took.max(Nanos(1));
    }
    let least = state.recent_costs.iter().fold(took, |least, &cost| least.min(cost));
    state.recent_costs.rotate_right(1);
    state.recent_costs[0] = took;
    least.max(Nanos(1))
}

/// Takes over the cost of a newidle pass, and what it yielded; a `cost` of zero is a mere visit.
/// A new maximum counts at once; otherwise the old one decays by about 1 % a second. Returns
/// whether it decayed (kernel: `update_newidle_cost`).
pub fn update_newidle_cost(state: &mut LevelState, cost: Nanos, success: u32, now: Nanos) -> bool {
    if cost > Nanos::ZERO {
        update_newidle_stats(state, success, now);
    }
    if cost > state.max_newidle_lb_cost {
        state.max_newidle_lb_cost = cost;
        state.last_decay = now;
        false
    } else if now > state.last_decay + Nanos::from_secs(1) {
        state.max_newidle_lb_cost = Nanos(state.max_newidle_lb_cost.0 * 253 / 256);
        state.last_decay = now;
        true
    } else {
        false
    }
}

/// Whether a newidle pass starts at all.
pub fn may_start(
    tunables: &Tunables,
    overloaded: bool,
    avg_idle: Nanos,
    lowest: &LevelState,
) -> Result<(), SkipReason> {
    if tunables.newidle == Newidle::Off {
        Err(SkipReason::NewidleOff)
    } else if !overloaded {
        Err(SkipReason::NotOverloaded)
    } else if avg_idle < lowest.max_newidle_lb_cost {
        Err(SkipReason::IdleTooShort)
    } else {
        Ok(())
    }
}

/// Whether the pass may spend time at this level, `spent` having gone before. A level too
/// expensive ends the pass; one without the flag is passed over.
pub fn may_visit(
    tunables: &Tunables,
    domain: &SchedDomain,
    state: &LevelState,
    avg_idle: Nanos,
    spent: Nanos,
) -> Result<(), SkipReason> {
    if avg_idle < spent + state.max_newidle_lb_cost {
        return Err(SkipReason::IdleTooShort);
    }
    let serialized = domain.flags.contains(SdFlags::SERIALIZE)
        && domain.distance >= tunables.serialize_min_distance;
    if !domain.flags.contains(SdFlags::NEWIDLE)
        || (serialized && tunables.newidle_numa == YesNo::No)
    {
        return Err(SkipReason::NewidleLevel);
    }
    Ok(())
}

/// Throws the dice for a level: `Some(weight)` to go on, a success then counting `weight` times,
/// to make up for the attempts not made. A level that always succeeds is not thrown for.
pub fn throw_dice(tunables: &Tunables, state: &LevelState, rng: &mut Rng) -> Option<u32> {
    if tunables.newidle_dice == OnOff::Off || state.newidle_ratio >= RATIO_SCALE {
        return Some(1);
    }
    let thrown = (rng.next_u64() % u64::from(RATIO_SCALE)) as u32;
    (thrown <= 1 + state.newidle_ratio).then_some(success_weight(tunables, state))
}

/// What a success at the level counts for, the dice having let one attempt in so many pass.
pub fn success_weight(tunables: &Tunables, state: &LevelState) -> u32 {
    if tunables.newidle_dice == OnOff::Off || state.newidle_ratio >= RATIO_SCALE {
        return 1;
    }
    let weight = 1 + state.newidle_ratio;
    (RATIO_SCALE + weight / 2) / weight
}

/// Calls `add` for the CPUs that a newly idle CPU should pull from in the group that a newidle pass
/// would choose at this level, most waiting tasks first. Returns the group and how many CPUs have
/// the most, or `None` if a pass would find the level balanced.
pub fn pull_sources(
    env: &Env,
    snapshot: &Snapshot,
    sds: &mut SdStats,
    mut add: impl FnMut(CpuId),
) -> Option<(GroupId, usize)> {
    let (group, ..) = find_src_group(env, snapshot, sds).ok()?;
    let waiting = |cpu: CpuId| snapshot.cpu(cpu).nr_running.saturating_sub(1);
    let next_below = |n| env.group_cpus(group).map(waiting).filter(|&w| w < n).max().unwrap_or(0);
    let mut most = next_below(u32::MAX);
    let ties = env.group_cpus(group).filter(|&cpu| most > 0 && waiting(cpu) == most).count();
    // Down through the numbers of waiting tasks that occur; a plan holds few sources.
    let mut added = 0;
    while most > 0 && added < PULL_PLAN_LEN {
        for cpu in env.group_cpus(group).filter(|&cpu| waiting(cpu) == most) {
            add(cpu);
            added += 1;
        }
        most = next_below(most);
    }
    Some((group, ties))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::domains::LevelKind;
    use crate::policy::state::COSTS_KEPT;

    fn level(cost: Nanos) -> LevelState {
        LevelState {
            last_balance: Nanos::ZERO,
            balance_interval: Nanos::from_ms(4),
            nr_balance_failed: 0,
            max_newidle_lb_cost: cost,
            last_decay: Nanos::ZERO,
            recent_costs: [Nanos::ZERO; COSTS_KEPT],
            newidle_call: 512,
            newidle_success: 256,
            newidle_ratio: 512,
            newidle_stamp: Nanos::ZERO,
        }
    }

    fn numa(flags: SdFlags) -> SchedDomain {
        let mask = crate::cpumask::Cpumask::full(4);
        SchedDomain {
            level: LevelKind::Numa(1),
            span: mask,
            weight: 4,
            groups: Vec::new(),
            flags,
            distance: 21,
            imbalance_pct: 117,
            cache_nice_tries: 2,
            busy_factor: 16,
            min_interval: Nanos::from_ms(4),
            max_interval: Nanos::from_ms(8),
            imb_numa_nr: 1,
        }
    }

    #[test]
    fn a_pass_that_was_interrupted_does_not_count_as_dear() {
        let mut s = level(Nanos::ZERO);
        let costs = [100, 90, 120, 100, 9_000_000, 110, 130, 9_000_000, 140, 150, 160, 170];
        let mut t = Tunables::default();
        let least = costs.map(|took| pass_cost(&t, &mut s, Nanos(took)).0);
        assert_eq!(least, [1, 1, 1, 90, 90, 100, 100, 110, 110, 130, 140, 140]);
        t.newidle_cost = NewidleCost::Each;
        assert_eq!(costs.map(|took| pass_cost(&t, &mut s, Nanos(took)).0), costs);
    }

    #[test]
    fn cost_rises_at_once_and_decays_once_a_second() {
        let mut s = level(Nanos::ZERO);
        assert!(!update_newidle_cost(&mut s, Nanos(256_000), 0, Nanos::from_secs(1)));
        assert_eq!(s.max_newidle_lb_cost, Nanos(256_000));
        assert!(!update_newidle_cost(&mut s, Nanos(100), 0, Nanos::from_secs(2)));
        assert!(update_newidle_cost(&mut s, Nanos::ZERO, 0, Nanos(2_000_000_001)));
        // 256,000 × 253 / 256
        assert_eq!(s.max_newidle_lb_cost, Nanos(253_000));
        assert!(!update_newidle_cost(&mut s, Nanos::ZERO, 0, Nanos(2_500_000_000)));
    }

    #[test]
    fn a_visit_is_no_attempt() {
        let mut s = level(Nanos::ZERO);
        update_newidle_cost(&mut s, Nanos::ZERO, 0, Nanos(1));
        assert_eq!(s.newidle_call, 512);
    }

    #[test]
    fn the_ratio_is_taken_every_1024_attempts() {
        let mut s = level(Nanos::ZERO);
        // 512 more attempts, one in four a success: 256 + 128 = 384, no time gone by.
        for i in 0..512 {
            update_newidle_stats(&mut s, u32::from(i % 4 == 0), Nanos::ZERO);
        }
        assert_eq!((s.newidle_ratio, s.newidle_call, s.newidle_success), (384, 512, 192));
        // None succeeds in the next 512, but they take 4 s: 4e9 >> 22 = 953, + 192, capped.
        for _ in 0..512 {
            update_newidle_stats(&mut s, 0, Nanos::from_secs(4));
        }
        assert_eq!(s.newidle_ratio, 1024);
    }

    #[test]
    fn the_dice_follow_the_ratio_and_credit_its_inverse() {
        let t = Tunables::default();
        let mut rng = Rng::new(1);
        let mut s = level(Nanos::ZERO);
        s.newidle_ratio = 255;
        // weight 256: thrown ≤ 256 of 1,024, about one in four; a success counts (1024+128)/256 = 4.
        let hits: Vec<u32> = (0..4096).filter_map(|_| throw_dice(&t, &s, &mut rng)).collect();
        assert!((900..1150).contains(&hits.len()), "{}", hits.len());
        assert!(hits.iter().all(|&w| w == 4));
        s.newidle_ratio = 1024;
        assert_eq!(throw_dice(&t, &s, &mut rng), Some(1));
        s.newidle_ratio = 0;
        let off = Tunables { newidle_dice: OnOff::Off, ..t };
        assert_eq!(throw_dice(&off, &s, &mut rng), Some(1));
    }

    #[test]
    fn average_idle_moves_by_an_eighth_and_is_capped() {
        let floor = IDLE_COST_FLOOR;
        assert_eq!(update_avg_idle(Nanos(800), Nanos(1600), floor), Nanos(900));
        assert_eq!(update_avg_idle(Nanos(1600), Nanos(800), floor), Nanos(1500));
        assert_eq!(update_avg_idle(Nanos(0), Nanos::from_secs(1), floor), Nanos::from_ms(1));
        assert_eq!(update_avg_idle(Nanos(0), Nanos::from_secs(1), Nanos(1)), Nanos::from_ms(1));
    }

    #[test]
    fn each_gate_has_its_reason() {
        let t = Tunables::default();
        let s = level(Nanos(1000));
        let off = Tunables { newidle: Newidle::Off, ..t };
        assert_eq!(may_start(&off, true, Nanos(2000), &s), Err(SkipReason::NewidleOff));
        assert_eq!(may_start(&t, false, Nanos(2000), &s), Err(SkipReason::NotOverloaded));
        assert_eq!(may_start(&t, true, Nanos(999), &s), Err(SkipReason::IdleTooShort));
        assert_eq!(may_start(&t, true, Nanos(1000), &s), Ok(()));

        let d = numa(SdFlags::NEWIDLE | SdFlags::SERIALIZE);
        let visit = |t: &Tunables, d: &SchedDomain, spent| may_visit(t, d, &s, Nanos(2000), spent);
        assert_eq!(visit(&t, &d, Nanos(1000)), Ok(()));
        assert_eq!(visit(&t, &d, Nanos(1001)), Err(SkipReason::IdleTooShort));
        assert_eq!(visit(&t, &numa(SdFlags::empty()), Nanos(0)), Err(SkipReason::NewidleLevel));
        let near = Tunables { newidle_numa: YesNo::No, ..t };
        assert_eq!(visit(&near, &d, Nanos(0)), Err(SkipReason::NewidleLevel));
        assert_eq!(visit(&near, &numa(SdFlags::NEWIDLE), Nanos(0)), Ok(()));
    }
}
