//! `--svg`: the machine as a picture. A map of packages, nodes, LLCs and cores, the distances as
//! colours, and each level's domains along a strip of all CPUs.

mod canvas;
mod levels;
mod map;

use crate::domains::DomainTree;
use crate::topology::{LOCAL_DISTANCE, Topology};
use crate::units::CpuId;
use canvas::{Canvas, INK, MUTED, mix};

/// Width of the picture; its height follows from the machine.
const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 32.0;
const GAP: f64 = 36.0;

/// Colours of the nearest and the farthest distance.
const NEAR: [u8; 3] = [0xd3, 0xec, 0xe6];
const MIDDLE: [u8; 3] = [0xfb, 0xe3, 0xb0];
const FAR: [u8; 3] = [0xef, 0xa0, 0x84];

/// From node distance to colour, over the range that this machine has.
struct Distances {
    farthest: u32,
}

impl Distances {
    fn colour(&self, distance: u32) -> String {
        let range = f64::from(self.farthest.saturating_sub(LOCAL_DISTANCE).max(1));
        let at = f64::from(distance.saturating_sub(LOCAL_DISTANCE)) / range;
        if at <= 0.5 { mix(NEAR, MIDDLE, at * 2.0) } else { mix(MIDDLE, FAR, at * 2.0 - 1.0) }
    }
}

/// Draws the machine; what depends on a point of view is seen from `cpu`, or else from the first
/// CPU that has domains.
pub(super) fn picture(t: &Topology, tree: &DomainTree, cpu: Option<CpuId>) -> String {
    let view = cpu.or_else(|| t.active().first()).or_else(|| t.online.first());
    let view = view.unwrap_or(CpuId(0));
    let farthest = t.nodes.iter().flat_map(|n| n.distances.iter().copied()).max();
    let colours = Distances { farthest: farthest.unwrap_or(LOCAL_DISTANCE) };

    let mut c = Canvas::default();
    let mut y = MARGIN + 20.0;
    c.text(MARGIN, y, 24.0, INK, "start", &title(t));
    y += 24.0;
    let subtitle = format!("seen from CPU {view}; point at a core to read its CPUs");
    c.text(MARGIN, y, 13.0, MUTED, "start", &subtitle);
    y += GAP;
    y = map::draw(&mut c, t, &colours, view, y) + GAP;
    y = levels::draw(&mut c, t, tree, view, y) + GAP;
    if t.nodes.len() > 1 {
        y = matrix(&mut c, t, &colours, y) + GAP;
    }
    c.finish(WIDTH, y - GAP + MARGIN)
}

fn title(t: &Topology) -> String {
    let count = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    [
        count(t.online.weight(), "CPU"),
        count(t.cores.len(), "core"),
        count(t.llcs.len(), "LLC"),
        count(t.nodes.len(), "node"),
        count(t.packages.len(), "package"),
    ]
    .join(" · ")
}

fn heading(c: &mut Canvas, y: f64, text: &str) -> f64 {
    c.text(MARGIN, y, 16.0, INK, "start", text);
    y + 16.0
}

/// The distance matrix; returns where it ends.
fn matrix(c: &mut Canvas, t: &Topology, colours: &Distances, y: f64) -> f64 {
    let y = heading(c, y, "Distances between nodes");
    let n = t.nodes.len() as f64;
    let cell = ((WIDTH - 2.0 * MARGIN - 40.0) / n).clamp(3.0, 40.0);
    let left = MARGIN + 40.0;
    let top = y + 18.0;
    let numbers = cell >= 22.0;
    for (i, node) in t.nodes.iter().enumerate() {
        let at = top + i as f64 * cell;
        if cell >= 12.0 {
            let id = node.id.to_string();
            c.text(left - 8.0, at + cell / 2.0 + 4.0, 12.0, MUTED, "end", &id);
            c.text(left + (i as f64 + 0.5) * cell, top - 6.0, 12.0, MUTED, "middle", &id);
        }
        for (j, &distance) in node.distances.iter().enumerate() {
            let x = left + j as f64 * cell;
            let gap = if cell >= 12.0 { 2.0 } else { 0.0 };
            let to = t.nodes[j].id;
            let tip = format!("node {} to node {to}: {distance}", node.id);
            c.rect([x, at, cell - gap, cell - gap], 3.0, &colours.colour(distance), None, &tip);
            if numbers {
                let (x, y) = (x + cell / 2.0 - 1.0, at + cell / 2.0 + 3.0);
                c.text(x, y, 12.0, INK, "middle", &distance.to_string());
            }
        }
    }
    top + n * cell
}
