//! The decision matrix of `policy::src_group`, one test per cell.
//!
//! Two groups of four CPUs: 0-3 local, 4-7 busiest; CPU 0 decides. The level does not share its
//! LLC and its groups prefer no siblings, so that only the types speak. Cells that say *n/a* have
//! a test that the type cannot arise.

use scx_baton::balancer::fake::{Situation, regular_tree};
use scx_baton::domains::SdFlags;
use scx_baton::policy::GroupType::{self, *};
use scx_baton::policy::MigrationType::{self, Load, Misfit, Task, Util};
use scx_baton::policy::{IdleType, SkipReason};
use scx_baton::units::{self, Capacity};

const LOCAL: std::ops::Range<u32> = 0..4;
const OTHER: std::ops::Range<u32> = 4..8;

/// Position of the level with the two groups in CPU 0's chain.
const LEVEL: usize = 1;

/// Gives a group's CPUs what makes it that type. `loads` scales what an overloaded group has.
fn make(s: &mut Situation, group: std::ops::Range<u32>, kind: GroupType, loads: u64) {
    let is_local = group.start == 0;
    match kind {
        // One task: local groups keep CPU 0 idle.
        HasSpare => drop(s.hogs([group.end - 1], 1)),
        FullyBusy => drop(s.hogs(group, 1)),
        // 2 tasks per CPU: runnable 8,192 > 4,096 × 1.17.
        Overloaded => {
            s.hogs(group.clone(), 2);
            group.for_each(|cpu| s.cpu(cpu).load = load(loads));
        }
        Imbalanced => {
            s.hogs([group.end - 1], 1);
            s.marks.set_imbalanced(s.group(0, LEVEL, usize::from(!is_local)), true);
        }
        MisfitTask => {
            s.flag(0, LEVEL, SdFlags::ASYM_CPUCAPACITY);
            for cpu in group.clone() {
                s.cpu(cpu).capacity = Capacity(512);
            }
            s.hogs([group.start], 1);
            s.cpu(group.start).misfit_load = load(900);
        }
        AsymPacking => {
            s.flag(0, LEVEL, SdFlags::ASYM_PACKING);
            s.hogs([group.start, group.start + 1], 1);
        }
        SmtBalance => drop(s.hogs([group.start, group.start + 1], 1)),
    }
}

/// The answer for a local and a busiest type, with what it is in the cell's own words.
fn answer(
    local: GroupType,
    busiest: GroupType,
    idle: IdleType,
) -> Result<(MigrationType, u64), SkipReason> {
    // Groups of SMT balance are cores of four threads; the others have no threads.
    let (mut s, level) = if busiest == SmtBalance {
        (Situation::new(regular_tree(1, 1, 2, 4)), LEVEL)
    } else {
        (Situation::new(regular_tree(1, 2, 4, 1)), LEVEL)
    };
    s.unflag(SdFlags::PREFER_SIBLING | SdFlags::SHARE_LLC);
    make(&mut s, LOCAL, local, 2048);
    make(&mut s, OTHER, busiest, 4096);
    let (plan, sds) = s.decide(0, level, idle);
    assert_eq!(sds.local.group_type, local, "the local group is what it should be");
    assert_eq!(sds.busiest_stat.group_type, busiest, "the busiest group is what it should be");
    plan.map(|p| (p.unit, p.imbalance))
}

macro_rules! cells {
    ($($name:ident: $busiest:ident / $local:ident, $idle:ident => $want:expr;)+) => {
        $(#[test]
        fn $name() {
            assert_eq!(answer($local, $busiest, IdleType::$idle), $want);
        })+
    };
}

use SkipReason::{
    DstBusy, IdleEven, LocalAboveDomain, LocalBusier, LocalLoadHigher, NoBusiest, NoImbalance,
    WithinPct,
};

cells! {
    // Local has 3 CPUs idle, busiest 3: even.
    spare_spare_even: HasSpare / HasSpare, Idle => Err(IdleEven);
    spare_spare_busy: HasSpare / HasSpare, NotIdle => Err(DstBusy);
    spare_fully: HasSpare / FullyBusy, Idle => Err(LocalBusier);
    spare_imbalanced: HasSpare / Imbalanced, Idle => Err(LocalBusier);
    spare_overloaded: HasSpare / Overloaded, Idle => Err(LocalBusier);

    // Idle CPUs 3 here, 0 there: 3, halved.
    fully_spare: FullyBusy / HasSpare, Idle => Ok((Task, 1));
    fully_spare_busy: FullyBusy / HasSpare, NotIdle => Err(DstBusy);
    fully_spare_newidle: FullyBusy / HasSpare, NewlyIdle => Ok((Task, 1));
    fully_fully: FullyBusy / FullyBusy, Idle => Err(IdleEven);
    fully_imbalanced: FullyBusy / Imbalanced, Idle => Err(LocalBusier);
    fully_overloaded: FullyBusy / Overloaded, Idle => Err(LocalBusier);

    misfit_spare: MisfitTask / HasSpare, Idle => Ok((Misfit, 1));
    misfit_spare_busy: MisfitTask / HasSpare, NotIdle => Ok((Misfit, 1));

    // Cores: 3 of 4 threads idle here, 2 there: even. See below for an idle core.
    smt_spare: SmtBalance / HasSpare, Idle => Err(IdleEven);
    smt_fully: SmtBalance / FullyBusy, Idle => Err(IdleEven);
    smt_imbalanced: SmtBalance / Imbalanced, Idle => Err(LocalBusier);
    smt_overloaded: SmtBalance / Overloaded, Idle => Err(LocalBusier);

    // All of the two tasks there.
    asym_spare: AsymPacking / HasSpare, Idle => Ok((Task, 2));
    asym_fully: AsymPacking / FullyBusy, Idle => Ok((Task, 2));
    asym_imbalanced: AsymPacking / Imbalanced, Idle => Ok((Task, 2));
    asym_overloaded: AsymPacking / Overloaded, Idle => Ok((Task, 2));

    imbalanced_spare: Imbalanced / HasSpare, Idle => Ok((Task, 1));
    imbalanced_spare_busy: Imbalanced / HasSpare, NotIdle => Ok((Task, 1));
    imbalanced_fully: Imbalanced / FullyBusy, Idle => Ok((Task, 1));
    imbalanced_imbalanced: Imbalanced / Imbalanced, Idle => Ok((Task, 1));
    imbalanced_overloaded: Imbalanced / Overloaded, Idle => Ok((Task, 1));

    // Room here: 4 × 1,024 - 1,024.
    overloaded_spare: Overloaded / HasSpare, Idle => Ok((Util, 3072));
    overloaded_spare_busy: Overloaded / HasSpare, NotIdle => Ok((Util, 3072));
    // Load per CPU: here 1,024, there 4,096, domain 2,560. min(1,536, 1,536) × 4 CPUs.
    overloaded_fully: Overloaded / FullyBusy, Idle => Ok((Load, 6144));
    // Here one task: 256, there 4,096, domain 2,176. min(1,920, 1,920) × 4.
    overloaded_imbalanced: Overloaded / Imbalanced, Idle => Ok((Load, 7680));
    // 2,048 here, 4,096 there, domain 3,072: 1,024 × 4.
    overloaded_overloaded: Overloaded / Overloaded, NotIdle => Ok((Load, 4096));
}

// `Load` and `Util` name migration types in the table and quantities here.
fn load(v: u64) -> units::Load {
    units::Load(v)
}

#[test]
fn smt_balance_to_an_idle_core() {
    let mut s = Situation::new(regular_tree(1, 1, 2, 4));
    s.unflag(SdFlags::PREFER_SIBLING | SdFlags::SHARE_LLC);
    s.hogs([4, 5], 1);
    let (plan, sds) = s.decide(0, LEVEL, IdleType::Idle);
    assert_eq!(sds.busiest_stat.group_type, SmtBalance);
    assert_eq!(plan.map(|p| (p.unit, p.imbalance)), Ok((Task, 1)));
}

#[test]
fn avg_load_cell_needs_a_difference_beyond_imbalance_pct() {
    let overloaded = |here: u64, there: u64| {
        let mut s = Situation::new(regular_tree(1, 2, 4, 1));
        s.unflag(SdFlags::PREFER_SIBLING);
        make(&mut s, LOCAL, Overloaded, here);
        make(&mut s, OTHER, Overloaded, there);
        s.decide(0, LEVEL, IdleType::NotIdle).0.map(|p| p.imbalance)
    };
    assert_eq!(overloaded(2048, 2048), Err(LocalLoadHigher));
    assert_eq!(overloaded(2100, 2048), Err(LocalLoadHigher));
    // 2,048 × 1.17 = 2,396.16
    assert_eq!(overloaded(2048, 2396), Err(WithinPct));
    // Domain 2,222 (2,222.5 cut): min(2,397 - 2,222, 2,222 - 2,048) × 4 = 174 × 4.
    assert_eq!(overloaded(2048, 2397), Ok(696));
}

#[test]
fn avg_load_cell_with_the_local_group_above_the_domain() {
    // Three groups of two: 2,600 here, 3,100 and 900 there: the domain's average is 2,200.
    let mut s = Situation::new(regular_tree(1, 3, 2, 1));
    s.unflag(SdFlags::PREFER_SIBLING);
    s.hogs(0..6, 2);
    for (cpus, l) in [(0..2, 2600), (2..4, 3100), (4..6, 900)] {
        cpus.for_each(|cpu| s.cpu(cpu).load = load(l));
    }
    let (plan, _) = s.decide(0, LEVEL, IdleType::NotIdle);
    assert_eq!(plan, Err(LocalAboveDomain));
}

#[test]
fn no_subtraction_wraps_when_the_busiest_is_below_the_domains_average() {
    // A third group, fully busy and heavy (one nice -20 task), lifts the domain's average above
    // both others: 1,500 here, 2,000 at the busiest, 30,000 at the third, average 11,166. Unsigned
    // arithmetic would make 2,000 - 11,166 huge and pull 9,666 × 2.
    let mut s = Situation::new(regular_tree(1, 3, 2, 1));
    s.unflag(SdFlags::PREFER_SIBLING);
    s.hogs(0..4, 2);
    s.hogs(4..6, 1);
    for (cpus, l) in [(0..2, 1500), (2..4, 2000), (4..6, 30_000)] {
        cpus.for_each(|cpu| s.cpu(cpu).load = load(l));
    }
    let (plan, sds) = s.decide(0, LEVEL, IdleType::NotIdle);
    assert_eq!((sds.busiest_stat.avg_load, sds.avg_load()), (load(2000), load(11_166)));
    assert_eq!(plan, Err(NoImbalance));
}

#[test]
fn local_is_never_misfit_asym_or_smt() {
    for idle in IdleType::ALL {
        let mut s = Situation::new(regular_tree(1, 1, 2, 4));
        s.flag(0, LEVEL, SdFlags::ASYM_CPUCAPACITY | SdFlags::ASYM_PACKING);
        s.hogs(LOCAL, 1);
        (0..4).for_each(|cpu| {
            s.cpu(cpu).capacity = Capacity(512);
            s.cpu(cpu).misfit_load = load(900);
        });
        s.hogs([4], 1);
        let (_, sds) = s.decide(0, LEVEL, idle);
        assert!(matches!(sds.local.group_type, HasSpare | FullyBusy), "{idle}");
    }
}

#[test]
fn misfit_is_filtered_unless_the_local_group_has_spare() {
    for local in [FullyBusy, Imbalanced, Overloaded] {
        let mut s = Situation::new(regular_tree(1, 2, 4, 1));
        s.unflag(SdFlags::PREFER_SIBLING | SdFlags::SHARE_LLC);
        make(&mut s, LOCAL, local, 2048);
        make(&mut s, OTHER, MisfitTask, 0);
        assert_eq!(s.decide(0, LEVEL, IdleType::Idle).0, Err(NoBusiest), "{local}");
    }
}

#[test]
fn misfit_without_capacity_classes_is_the_task_of_a_reduced_cpu() {
    // CPU 4 has lost 30 % to interrupts: 700 × 117 < 1,024 × 100. Its task of load 800 is wanted.
    let mut s = Situation::new(regular_tree(1, 2, 4, 1));
    s.unflag(SdFlags::PREFER_SIBLING | SdFlags::SHARE_LLC);
    s.hogs([4], 1);
    s.cpu(4).capacity = Capacity(700);
    s.cpu(4).load = load(800);
    let (plan, sds) = s.decide(0, LEVEL, IdleType::Idle);
    assert_eq!(sds.busiest_stat.group_type, MisfitTask);
    assert_eq!(plan.map(|p| (p.unit, p.imbalance, p.src.0)), Ok((Load, 800, 4)));
    // A busy CPU does not help.
    assert_eq!(s.decide(0, LEVEL, IdleType::NotIdle).0, Err(DstBusy));
}

#[test]
fn room_that_utilisation_denies_still_takes_one_waiting_task_when_idle() {
    // One task here, but its utilisation still fills the group: 4 × 1,024 - 4,096 = 0.
    let mut s = Situation::new(regular_tree(1, 2, 4, 1));
    s.unflag(SdFlags::PREFER_SIBLING | SdFlags::SHARE_LLC);
    s.hogs([3], 1);
    s.cpu(3).util = units::Util(4096);
    make(&mut s, OTHER, Overloaded, 2048);
    let units = |idle| s.decide(0, LEVEL, idle).0.map(|p| (p.unit, p.imbalance));
    assert_eq!(units(IdleType::Idle), Ok((Task, 1)));
    assert_eq!(units(IdleType::NotIdle), Err(NoImbalance));
}

#[test]
fn siblings_are_preferred_only_with_spare_room_and_a_difference_above_one() {
    let siblings = |here: u32, there: u32| {
        let mut s = Situation::new(regular_tree(1, 2, 4, 1));
        s.unflag(SdFlags::SHARE_LLC);
        s.hogs(0..here, 1);
        s.hogs(4..4 + there, 1);
        s.decide(3, LEVEL, IdleType::Idle).0.map(|p| (p.unit, p.imbalance))
    };
    // 3 tasks there, none here: 3, halved.
    assert_eq!(siblings(0, 3), Ok((Task, 1)));
    assert_eq!(siblings(0, 4), Ok((Task, 2)));
    assert_eq!(siblings(1, 3), Ok((Task, 1)));
    assert_eq!(siblings(2, 3), Err(IdleEven));
    // A busy CPU prefers nothing: the sibling difference is 0 for it.
    assert_eq!(siblings(0, 1), Err(IdleEven));
}
