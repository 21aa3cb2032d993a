//! Which CPU of a group balances for it (kernel: `should_we_balance`).

use crate::balancer::Snapshot;
use crate::domains::SdFlags;
use crate::policy::env::{Env, IdleType};
use crate::policy::facts::cpus_in;
use crate::policy::skip::SkipReason;
use crate::units::CpuId;

/// `Ok` if the destination is the CPU to do it.
///
/// A newly idle CPU always is, unless a task has arrived. Otherwise the first idle CPU of the
/// group on a fully idle core; else the first idle CPU; else the group's balance CPU.
pub fn should_we_balance(env: &Env, snapshot: &Snapshot) -> Result<(), SkipReason> {
    if !env.cpus.test(env.dst) {
        return Err(SkipReason::NotElected);
    }
    if env.idle == IdleType::NewlyIdle {
        return match snapshot.cpu(env.dst).nr_running {
            0 => Ok(()),
            _ => Err(SkipReason::TaskArrived),
        };
    }
    if elected(env) == Some(env.dst) { Ok(()) } else { Err(SkipReason::NotElected) }
}

/// The CPU that balances the domain for its local group now.
fn elected(env: &Env) -> Option<CpuId> {
    let group = env.local_group();
    let (considered, idle) = (env.cpus.words(), env.idle_cpus.words());
    let whole_cores = env.facts.smt_active() && !env.has(SdFlags::SHARE_CPUCAPACITY);
    let mut first_idle = None;
    let words = env.facts.balance_words(env.local_id());
    for cpu in cpus_in(&group.balance_mask, words, |i, w| w & considered[i] & idle[i]) {
        if !whole_cores || env.core_idle(cpu) {
            return Some(cpu);
        }
        first_idle = first_idle.or(Some(cpu));
    }
    first_idle.or(env.facts.balance_cpu(env.local_id()))
}
