//! The levels: one strip of all CPUs per level, in the order of the map.

use super::canvas::{Canvas, INK, MUTED, mix};
use super::{MARGIN, WIDTH, heading};
use crate::cpumask::Cpumask;
use crate::domains::{DomainId, DomainTree, LevelKind, SdFlags};
use crate::topology::Topology;
use crate::units::CpuId;
use std::collections::BTreeMap;

const LABEL: f64 = 225.0;
const STRIP: f64 = 22.0;
/// Height of one domain where domains overlap and lie below each other.
const SLICE: f64 = 12.0;
/// Overlapping domains drawn at most.
const MOST_SLICES: usize = 16;
const NARROW: [u8; 3] = [0x86, 0xb6, 0xd6];
const WIDE: [u8; 3] = [0xc9, 0xb4, 0xde];

/// CPUs from left to right: by package, node, LLC and core, as on the map.
fn order(t: &Topology) -> Vec<CpuId> {
    let mut cpus: Vec<CpuId> = t.online.iter().collect();
    cpus.sort_by_key(|&cpu| {
        (t.packages.of(cpu), t.node_index(cpu), t.llcs.of(cpu), t.cores.of(cpu), cpu)
    });
    cpus
}

struct Strip {
    order: Vec<CpuId>,
    left: f64,
    per_cpu: f64,
}

impl Strip {
    /// The runs of neighbouring CPUs of `span`, as first position and length.
    fn runs(&self, span: &Cpumask) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (at, _) in self.order.iter().enumerate().filter(|(_, cpu)| span.test(**cpu)) {
            match runs.last_mut() {
                Some((first, len)) if *first + *len == at => *len += 1,
                _ => runs.push((at, 1)),
            }
        }
        runs
    }

    fn draw(&self, c: &mut Canvas, y: f64, h: f64, span: &Cpumask, look: (&str, bool), tip: &str) {
        let (fill, own) = look;
        for (first, len) in self.runs(span) {
            let width = len as f64 * self.per_cpu;
            let gap = if width > 3.0 { 1.0 } else { 0.0 };
            let x = self.left + first as f64 * self.per_cpu;
            c.rect([x, y, width - gap, h], 2.0, fill, own.then_some(INK), tip);
        }
    }
}

/// Draws the strips from `y` down; returns where they end.
pub(super) fn draw(c: &mut Canvas, t: &Topology, tree: &DomainTree, view: CpuId, y: f64) -> f64 {
    let title =
        format!("Levels, narrow to wide: one block per domain; outlined: those of CPU {view}");
    let mut y = heading(c, y, &title) + 4.0;
    let order = order(t);
    let left = MARGIN + LABEL;
    let per_cpu = (WIDTH - MARGIN - left) / order.len().max(1) as f64;
    let strip = Strip { order, left, per_cpu };
    y = node_axis(c, t, &strip, y);
    let own: Vec<DomainId> = tree.chain(view).iter().map(|link| link.domain).collect();

    // Domains that differ only in their groups look alike here.
    let mut levels: BTreeMap<LevelKind, BTreeMap<&Cpumask, bool>> = BTreeMap::new();
    for (i, domain) in tree.domains.iter().enumerate() {
        let is_own = own.contains(&DomainId(i as u32));
        *levels.entry(domain.level).or_default().entry(&domain.span).or_default() |= is_own;
    }
    if levels.is_empty() {
        c.text(MARGIN, y + 16.0, 13.0, MUTED, "start", "no level has two CPUs to balance between");
        return y + 20.0;
    }
    let count = levels.len();
    for (i, (level, spans)) in levels.into_iter().enumerate() {
        let fill = mix(NARROW, WIDE, i as f64 / count.max(2) as f64);
        let mut spans: Vec<(&Cpumask, bool)> = spans.into_iter().collect();
        spans.sort_by_key(|(span, _)| strip.runs(span).first().copied());
        let overlap = overlapping(&spans);
        let height = if overlap {
            spans.sort_by_key(|&(_, own)| !own);
            spans.len().min(MOST_SLICES) as f64 * SLICE
        } else {
            STRIP
        };
        label(c, tree, level, &spans, y, height);
        for (row, &(span, is_own)) in spans.iter().enumerate() {
            let tip = format!("{level}: CPUs {span}");
            match overlap {
                false => strip.draw(c, y, STRIP, span, (&fill, is_own), &tip),
                true if row < MOST_SLICES => {
                    let y = y + row as f64 * SLICE;
                    strip.draw(c, y, SLICE - 2.0, span, (&fill, is_own), &tip);
                }
                true => {}
            }
        }
        y += height + 10.0;
    }
    y - 10.0
}

/// Which stretch of the strips is which node.
fn node_axis(c: &mut Canvas, t: &Topology, strip: &Strip, y: f64) -> f64 {
    if t.nodes.len() < 2 {
        return y;
    }
    for node in &t.nodes {
        for (first, len) in strip.runs(&node.cpus) {
            let (x, width) =
                (strip.left + first as f64 * strip.per_cpu, len as f64 * strip.per_cpu);
            if width > 12.0 {
                c.rect([x, y + 15.0, width - 1.0, 2.0], 1.0, "#c9d1d8", None, "");
            }
            let text = if width > 60.0 { format!("node {}", node.id) } else { node.id.to_string() };
            if width > 18.0 {
                c.text(x + width / 2.0, y + 10.0, 11.0, MUTED, "middle", &text);
            }
        }
    }
    y + 24.0
}

fn overlapping(spans: &[(&Cpumask, bool)]) -> bool {
    let Some((first, _)) = spans.first() else { return false };
    let mut covered = Cpumask::new(first.width());
    spans.iter().any(|(span, _)| {
        let again = span.intersects(&covered);
        covered.or_assign(span);
        again
    })
}

fn label(
    c: &mut Canvas,
    tree: &DomainTree,
    level: LevelKind,
    spans: &[(&Cpumask, bool)],
    y: f64,
    height: f64,
) {
    let middle = y + height / 2.0 + 4.0;
    let distance = tree
        .domains
        .iter()
        .find(|d| d.level == level && d.flags.contains(SdFlags::NUMA))
        .map_or(String::new(), |d| format!(" ≤ {}", d.distance));
    c.text(MARGIN, middle, 13.0, INK, "start", &format!("{level}{distance}"));
    let weights: Vec<usize> = spans.iter().map(|(span, _)| span.weight()).collect();
    let (least, most) = (weights.iter().min().copied(), weights.iter().max().copied());
    let (least, most) = (least.unwrap_or(0), most.unwrap_or(0));
    let cpus = if least == most { most.to_string() } else { format!("{least}–{most}") };
    let text = format!("{} × {cpus} CPUs", spans.len());
    c.text(MARGIN + LABEL - 14.0, middle, 12.0, MUTED, "end", &text);
}
