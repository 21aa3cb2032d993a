//! Whether a tree is fit for balancing (kernel: `sched_domain_debug_one`, and more).

use super::{DomainId, DomainTree, GroupId, SchedDomain, SdFlags};
use crate::cpumask::Cpumask;
use crate::units::CpuId;
use serde::Serialize;
use std::collections::HashSet;
use std::fmt;

/// One broken rule of a [`DomainTree`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "rule")]
pub enum Violation {
    /// A CPU's chain names a domain that does not hold the CPU.
    NotInSpan {
        /// The CPU.
        cpu: CpuId,
        /// The domain.
        domain: DomainId,
    },
    /// A domain is not strictly inside the next wider one of the same CPU.
    NotInParent {
        /// The CPU whose chain it is.
        cpu: CpuId,
        /// The narrower domain.
        child: DomainId,
        /// The wider domain.
        parent: DomainId,
    },
    /// A CPU's own group does not hold it, or differs from the span of the next narrower domain.
    WrongLocalGroup {
        /// The CPU.
        cpu: CpuId,
        /// The domain.
        domain: DomainId,
    },
    /// A group is empty or reaches outside the domain.
    GroupOutside {
        /// The domain.
        domain: DomainId,
        /// The group.
        group: GroupId,
    },
    /// Groups share CPUs although the level does not allow that.
    GroupsOverlap {
        /// The domain.
        domain: DomainId,
        /// The group that repeats CPUs.
        group: GroupId,
    },
    /// The groups together are not the span.
    UnionDiffers {
        /// The domain.
        domain: DomainId,
    },
    /// Fewer than two groups: nothing to balance.
    OneGroup {
        /// The domain.
        domain: DomainId,
    },
    /// The group has no balance CPU, or one outside itself, or one that balances for another
    /// group.
    NoBalanceCpu {
        /// The group.
        group: GroupId,
    },
    /// Two groups have the same span and balance mask, so they would not share their state.
    Duplicate {
        /// The later group.
        group: GroupId,
    },
    /// A stated weight is not the number of CPUs.
    WrongWeight {
        /// The span concerned.
        span: Cpumask,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInSpan { cpu, domain } => {
                write!(f, "CPU {cpu} has domain {} without being in it", domain.0)
            }
            Self::NotInParent { cpu, child, parent } => {
                write!(f, "CPU {cpu}: domain {} is not inside domain {}", child.0, parent.0)
            }
            Self::WrongLocalGroup { cpu, domain } => {
                write!(f, "CPU {cpu}: its own group in domain {} is not its own", domain.0)
            }
            Self::GroupOutside { domain, group } => {
                write!(f, "group {} is empty or reaches outside domain {}", group.0, domain.0)
            }
            Self::GroupsOverlap { domain, group } => {
                write!(f, "group {} repeats CPUs in domain {}", group.0, domain.0)
            }
            Self::UnionDiffers { domain } => {
                write!(f, "the groups of domain {} do not make up its span", domain.0)
            }
            Self::OneGroup { domain } => write!(f, "domain {} has fewer than 2 groups", domain.0),
            Self::NoBalanceCpu { group } => write!(f, "group {} has no balance CPU", group.0),
            Self::Duplicate { group } => write!(f, "group {} exists twice", group.0),
            Self::WrongWeight { span } => write!(f, "the weight stated for {span} is wrong"),
        }
    }
}

/// Checks every rule that balancing relies on; an empty list means sane.
///
/// Child inside parent, groups inside the domain, union equal to the span, own group equal to the
/// child, no overlap where none is allowed, and exactly one balance CPU per group: the first of
/// its balance mask, all of whose CPUs see this very group as their own.
pub fn sanity(tree: &DomainTree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (i, domain) in tree.domains.iter().enumerate() {
        check_domain(tree, DomainId(i as u32), domain, &mut found);
    }
    let mut known = HashSet::new();
    for (i, group) in tree.groups.iter().enumerate() {
        let id = GroupId(i as u32);
        if group.weight as usize != group.span.weight() {
            found.push(Violation::WrongWeight { span: group.span.clone() });
        }
        if !known.insert((&group.span, &group.balance_mask)) {
            found.push(Violation::Duplicate { group: id });
        }
        let arrives = |cpu: CpuId| {
            let same = |d: &SchedDomain| d.weight == group.weight && d.span == group.span;
            group.weight == 1 && group.span.test(cpu)
                || tree.chain(cpu).iter().any(|link| same(tree.domain(link.domain)))
        };
        let mask = &group.balance_mask;
        if mask.is_empty() || !mask.is_subset(&group.span) || !mask.iter().all(arrives) {
            found.push(Violation::NoBalanceCpu { group: id });
        }
    }
    for cpu in (0..tree.chains.len()).map(CpuId::from) {
        check_chain(tree, cpu, &mut found);
    }
    found
}

fn check_domain(tree: &DomainTree, id: DomainId, domain: &SchedDomain, found: &mut Vec<Violation>) {
    let mut union = Cpumask::new(domain.span.width());
    for &group in &domain.groups {
        let span = &tree.group(group).span;
        if span.is_empty() || !span.is_subset(&domain.span) {
            found.push(Violation::GroupOutside { domain: id, group });
        }
        if !domain.flags.contains(SdFlags::OVERLAP) && span.intersects(&union) {
            found.push(Violation::GroupsOverlap { domain: id, group });
        }
        union.or_assign(span);
    }
    if union != domain.span {
        found.push(Violation::UnionDiffers { domain: id });
    }
    if domain.groups.len() < 2 {
        found.push(Violation::OneGroup { domain: id });
    }
    if domain.weight as usize != domain.span.weight() {
        found.push(Violation::WrongWeight { span: domain.span.clone() });
    }
}

fn check_chain(tree: &DomainTree, cpu: CpuId, found: &mut Vec<Violation>) {
    let mut child: Option<DomainId> = None;
    for link in tree.chain(cpu) {
        let id = link.domain;
        let domain = tree.domain(id);
        if !domain.span.test(cpu) {
            found.push(Violation::NotInSpan { cpu, domain: id });
        }
        let local = domain.groups.get(link.local as usize).map(|&group| tree.group(group));
        let own = local.is_some_and(|group| match child {
            Some(child) => group.span == tree.domain(child).span,
            None => group.weight == 1 && group.span.test(cpu),
        });
        if !own {
            found.push(Violation::WrongLocalGroup { cpu, domain: id });
        }
        if let Some(child) = child {
            let inner = tree.domain(child);
            if inner.weight >= domain.weight || !inner.span.is_subset(&domain.span) {
                found.push(Violation::NotInParent { cpu, child, parent: id });
            }
        }
        child = Some(id);
    }
}
