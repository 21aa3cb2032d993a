//! Groups of NUMA levels, where the spans of different nodes may overlap (kernel:
//! `build_overlap_sched_groups`, `build_balance_mask`).
//!
//! Such a level's groups are a cover of its span by spans of the level below, found by walking
//! the CPUs from the viewer's own; groups may share CPUs. Which cover is found depends on where
//! the walk starts, so each node, and with interleaved CPU numbers even each run of CPUs, has its
//! own. The balance mask of a group holds the CPUs that see exactly this group as their own: only
//! they may balance for it.

use super::GroupId;
use super::levels::Level;
use crate::cpumask::Cpumask;
use crate::units::CpuId;
use std::collections::HashMap;
use std::rc::Rc;

/// What a view depends on: level, span, span of the own group, and the first CPU after the viewer
/// outside that.
type ViewKey = (usize, u32, u32, Option<CpuId>);

/// Views found so far, so that the work grows with nodes and not with CPUs.
#[derive(Default)]
pub(super) struct Overlap {
    views: HashMap<ViewKey, Rc<[GroupId]>>,
    /// By level and span index of the group.
    balance_masks: HashMap<(usize, u32), Rc<Cpumask>>,
}

impl Overlap {
    /// The groups of `level` as `cpu` sees them, its own first. `intern` turns a span and a
    /// balance mask into the id of that group.
    pub(super) fn groups(
        &mut self,
        levels: &[Level],
        depth: &[u32],
        cpu: CpuId,
        level: usize,
        mut intern: impl FnMut(&Cpumask, &Cpumask) -> GroupId,
    ) -> Rc<[GroupId]> {
        let span = levels[level].span(cpu);
        let below = level - 1;
        let mut rest = span.and_not(levels[below].span(cpu));
        let start = first_from(&rest, cpu);
        let index = |level: usize| levels[level].span_of[cpu.index()];
        let key = (level, index(level), index(below), start);
        if let Some(view) = self.views.get(&key) {
            return Rc::clone(view);
        }
        let mut view = Vec::new();
        let mut add = |low: usize, cpu: CpuId| {
            let mask = self.balance_mask(levels, depth, low, cpu);
            view.push(intern(levels[low].span(cpu), &mask));
        };
        add(below, cpu);
        // Nodes whose chain ends below this level have no view of it and are left for the groups
        // of others to cover.
        let reaches = |cpu: CpuId| depth[cpu.index()] as usize > level;
        let mut left = rest.clone();
        let mut at = start;
        while let Some(next) = at {
            if reaches(next) {
                let low = widest(levels, level, next, |inner| inner.is_subset(span));
                let group = levels[low].span(next);
                (rest, left) = (rest.and_not(group), left.and_not(group));
                add(low, next);
            } else {
                rest.clear(next);
            }
            at = first_from(&rest, next);
        }
        // Only where distances differ by direction does nobody cover them; the kernel would leave
        // them out of the groups, here they form their own.
        while let Some(next) = left.first() {
            let top = depth[next.index()] as usize;
            let low = widest(levels, top.min(level), next, |inner| {
                inner.is_subset(span) && inner != span
            });
            left = left.and_not(levels[low].span(next));
            add(low, next);
        }
        let view: Rc<[GroupId]> = view.into();
        self.views.insert(key, Rc::clone(&view));
        view
    }

    fn balance_mask(
        &mut self,
        levels: &[Level],
        depth: &[u32],
        low: usize,
        cpu: CpuId,
    ) -> Rc<Cpumask> {
        let at = levels[low].span_of[cpu.index()];
        let mask = self.balance_masks.entry((low, at)).or_insert_with(|| {
            let span = levels[low].span(cpu);
            let arrives = |i: &CpuId| {
                depth[i.index()] as usize > low + 1 && levels[low].span_of[i.index()] == at
            };
            Rc::new(Cpumask::from_cpus(span.width(), span.iter().filter(arrives)))
        });
        Rc::clone(mask)
    }
}

/// The widest level below `level` whose span of `cpu` fits (kernel: `find_descended_sibling`).
/// The narrowest always does: a core lies in one node.
fn widest(levels: &[Level], level: usize, cpu: CpuId, fits: impl Fn(&Cpumask) -> bool) -> usize {
    (0..level).rev().find(|&low| fits(levels[low].span(cpu))).unwrap_or(0)
}

/// The first CPU of `mask` from `cpu` on, starting over at 0 after the last.
fn first_from(mask: &Cpumask, cpu: CpuId) -> Option<CpuId> {
    mask.iter_wrap(cpu).next()
}
