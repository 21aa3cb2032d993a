//! The four bugs of "The Linux Scheduler: a Decade of Wasted Cores" (EuroSys 2016), put back at the
//! boundary of the policy: its own code stays as it is.

use crate::balancer::{CpuView, Snapshot};
use crate::domains::{DomainTree, Link, SdFlags};
use crate::units::{CpuId, Load, Util};
use serde::Deserialize;

/// Which bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bug {
    /// Groups are compared by their averages only: a node with one heavy task looks busy although
    /// most of its CPUs idle.
    GroupImbalance,
    /// The groups of the widest level are those that the first CPU sees: nodes two hops apart
    /// share all of them.
    GroupConstruction,
    /// A woken task stays on its waker's node although others idle.
    OverloadOnWakeup,
    /// After a CPU has gone and come back, the levels across nodes are missing.
    MissingDomains,
}

impl Bug {
    /// All four.
    pub const ALL: [Self; 4] = [
        Self::GroupImbalance,
        Self::GroupConstruction,
        Self::OverloadOnWakeup,
        Self::MissingDomains,
    ];

    /// The paper's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GroupImbalance => "group-imbalance",
            Self::GroupConstruction => "group-construction",
            Self::OverloadOnWakeup => "overload-on-wakeup",
            Self::MissingDomains => "missing-domains",
        }
    }

    /// What it does to the domains; `rebuilt` after hotplug.
    pub(crate) fn spoil_tree(self, tree: &mut DomainTree, rebuilt: bool) {
        match self {
            Self::MissingDomains if rebuilt => {
                let domains = &tree.domains;
                let local =
                    |link: &Link| !domains[link.domain.0 as usize].flags.contains(SdFlags::NUMA);
                for chain in &mut tree.chains {
                    chain.retain(local);
                }
            }
            Self::GroupConstruction => {
                let Some(&top) = tree.chains.iter().find_map(|chain| chain.last()) else { return };
                let groups = tree.domain(top.domain).groups.clone();
                for cpu in 0..tree.chains.len() {
                    let has = |&g: &_| tree.group(g).span.test(CpuId::from(cpu));
                    let (Some(local), Some(_)) =
                        (groups.iter().position(has), tree.chains[cpu].last())
                    else {
                        continue;
                    };
                    // All levels across nodes but the nearest are the first CPU's.
                    if let Some(last) = tree.chains[cpu].last_mut() {
                        *last = Link { domain: top.domain, local: local as u32 };
                    }
                }
            }
            _ => {}
        }
    }

    /// What it does to what is seen: each CPU shows its node's average.
    pub(crate) fn spoil_view(snapshot: &mut Snapshot, node_of: &[u32]) {
        let nodes = node_of.iter().max().map_or(0, |&n| n as usize + 1);
        let mut sums = vec![(0u64, 0u64, 0u64); nodes];
        for (view, &node) in snapshot.cpus.iter().zip(node_of) {
            let sum = &mut sums[node as usize];
            sum.0 += view.load.0;
            sum.1 += u64::from(view.nr_running);
            sum.2 += 1;
        }
        for (view, &node) in snapshot.cpus.iter_mut().zip(node_of) {
            let (load, nr, cpus) = sums[node as usize];
            *view = CpuView {
                load: Load(load / cpus.max(1)),
                nr_running: (nr.div_ceil(cpus.max(1)) as u32).max(view.nr_running),
                util: Util(view.capacity.0),
                runnable: Util(view.capacity.0.max(view.runnable.0)),
                idle: false,
                ..*view
            };
        }
    }
}
