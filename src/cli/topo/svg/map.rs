//! The map: packages hold nodes, nodes hold LLCs, LLCs hold cores.

use super::canvas::{Canvas, INK, MUTED, mix};
use super::{Distances, MARGIN, WIDTH, heading};
use crate::cpumask::Cpumask;
use crate::topology::{LOCAL_DISTANCE, Topology};
use crate::units::{Capacity, CpuId};
use std::collections::BTreeSet;

/// A core at full and at no capacity.
const STRONG: [u8; 3] = [0x2b, 0x4c, 0x6f];
const WEAK: [u8; 3] = [0xb4, 0xc9, 0xdc];
const ISOLATED: &str = "#ffffff";
const PAD: f64 = 8.0;
const LABEL: f64 = 18.0;

/// Something with a size that draws itself at a place.
struct Tile {
    width: f64,
    height: f64,
    what: What,
    inner: Vec<(f64, f64, Tile)>,
}

enum What {
    Machine,
    Package(usize),
    Node(usize),
    Llc(usize),
    Core(usize),
}

/// Tiles side by side, wrapped at `limit`, as a box around them with `pad` and room for a label.
fn flow(what: What, tiles: Vec<Tile>, limit: f64, pad: f64, label: f64, gap: f64) -> Tile {
    let (mut x, mut y, mut row, mut right) = (0.0, 0.0, 0.0_f64, 0.0_f64);
    let mut inner = Vec::with_capacity(tiles.len());
    for tile in tiles {
        if x > 0.0 && x + tile.width > limit {
            (x, y) = (0.0, y + row + gap);
            row = 0.0;
        }
        let (width, height) = (tile.width, tile.height);
        inner.push((x + pad, y + pad + label, tile));
        x += width + gap;
        (row, right) = (row.max(height), right.max(x - gap));
    }
    Tile { width: right + 2.0 * pad, height: y + row + 2.0 * pad + label, what, inner }
}

/// A width that makes boxes about twice as wide as high.
fn target(tiles: &[Tile], most: f64) -> f64 {
    let area: f64 = tiles.iter().map(|t| (t.width + PAD) * (t.height + PAD)).sum();
    let widest = tiles.iter().map(|t| t.width).fold(0.0, f64::max);
    (area * 2.2).sqrt().max(widest).min(most.max(widest))
}

/// Sides of a core's square that are tried; the largest that fits is used.
const SIDES: [f64; 9] = [40.0, 32.0, 26.0, 20.0, 15.0, 12.0, 9.0, 6.0, 4.0];
/// Height that the map should not exceed.
const FITTING: f64 = 520.0;

fn layout(t: &Topology, inner_width: f64, side: f64) -> Vec<Tile> {
    let mut packages = Vec::new();
    for package in 0..t.packages.len() {
        let mask = t.packages.mask(package);
        let mut nodes = Vec::new();
        for (n, node) in t.nodes.iter().enumerate() {
            let here = node.cpus.and(&mask);
            if here.is_empty() {
                continue;
            }
            let llcs: BTreeSet<usize> = here.iter().filter_map(|cpu| t.llcs.of(cpu)).collect();
            let llcs: Vec<Tile> = llcs.into_iter().map(|llc| llc_tile(t, llc, side)).collect();
            let limit = target(&llcs, inner_width - 4.0 * PAD);
            nodes.push(flow(What::Node(n), llcs, limit, PAD, LABEL, PAD));
        }
        let limit = target(&nodes, inner_width - 2.0 * PAD);
        packages.push(flow(What::Package(package), nodes, limit, PAD, LABEL, PAD));
    }
    packages
}

fn llc_tile(t: &Topology, llc: usize, side: f64) -> Tile {
    let cores: BTreeSet<usize> =
        t.llcs.members(llc).iter().filter_map(|&cpu| t.cores.of(cpu)).collect();
    let columns = ((cores.len() as f64 * 2.0).sqrt().ceil()).max(1.0);
    let gap = (side / 7.0).max(1.0);
    let tiles = cores
        .into_iter()
        .map(|core| Tile { width: side, height: side, what: What::Core(core), inner: Vec::new() })
        .collect();
    let limit = columns * (side + gap) - gap + 0.5;
    flow(What::Llc(llc), tiles, limit, gap + 2.0, 0.0, gap)
}

struct Painter<'a> {
    t: &'a Topology,
    colours: &'a Distances,
    view: CpuId,
}

impl Painter<'_> {
    fn draw(&self, c: &mut Canvas, x: f64, y: f64, tile: &Tile) {
        let t = self.t;
        let (w, h) = (tile.width, tile.height);
        match tile.what {
            What::Machine => {}
            What::Package(package) => {
                c.rect([x, y, w, h], 8.0, "#f4f6f8", Some("#c9d1d8"), "");
                let label = format!("package {package}");
                c.text(x + PAD, y + 17.0, 12.0, MUTED, "start", &label);
            }
            What::Node(n) => {
                let node = &t.nodes[n];
                let from = t.node_index(self.view);
                let distance = from.map_or(LOCAL_DISTANCE, |from| t.distance(from, n));
                let tip = format!("node {}: CPUs {}", node.id, node.cpus);
                c.rect([x, y, w, h], 6.0, &self.colours.colour(distance), None, &tip);
                let mut label = format!("node {}", node.id);
                if !node.has_memory {
                    label.push_str(", no memory");
                }
                c.text(x + PAD, y + 16.0, 12.0, INK, "start", &label);
            }
            What::Llc(llc) => {
                let tip = format!("LLC {llc}: CPUs {}", t.llcs.mask(llc));
                c.rect([x, y, w, h], 4.0, "#ffffff", Some("#aebac4"), &tip);
            }
            What::Core(core) => self.core(c, x, y, w, core),
        }
        for (dx, dy, inner) in &tile.inner {
            self.draw(c, x + dx, y + dy, inner);
        }
    }

    /// One square, divided into its hardware threads.
    fn core(&self, c: &mut Canvas, x: f64, y: f64, side: f64, core: usize) {
        let t = self.t;
        let threads = t.cores.members(core);
        let width = side / threads.len() as f64;
        let gap = if width >= 4.0 && threads.len() > 1 { 1.0 } else { 0.0 };
        for (i, &cpu) in threads.iter().enumerate() {
            let at = t.capacity(cpu).0 as f64 / Capacity::SCALE.0 as f64;
            let (fill, stroke) = match t.isolated.test(cpu) {
                true => (ISOLATED.to_string(), Some("#c05a3c")),
                false => (mix(WEAK, STRONG, at), None),
            };
            let state = if t.isolated.test(cpu) { ", isolated" } else { "" };
            let tip = format!("CPU {cpu}, core {core}, capacity {}{state}", t.capacity(cpu));
            let x = x + i as f64 * width;
            c.rect([x, y, width - gap, side], 2.0, &fill, stroke, &tip);
            if side >= 28.0 && threads.len() <= 2 {
                let ink = if t.isolated.test(cpu) || at < 0.5 { INK } else { "#ffffff" };
                let (x, y) = (x + (width - gap) / 2.0, y + side / 2.0 + 3.5);
                c.text(
                    x,
                    y,
                    if threads.len() > 1 { 8.0 } else { 11.0 },
                    ink,
                    "middle",
                    &cpu.to_string(),
                );
            }
        }
    }
}

/// Draws the map from `y` down; returns where it ends.
pub(super) fn draw(c: &mut Canvas, t: &Topology, colours: &Distances, view: CpuId, y: f64) -> f64 {
    let y = heading(c, y, "Machine: packages, nodes (coloured by distance), LLCs, cores");
    let inner_width = WIDTH - 2.0 * MARGIN;
    let painter = Painter { t, colours, view };
    let mut all = None;
    for side in SIDES {
        let packages = layout(t, inner_width - 2.0 * PAD, side);
        let tile = flow(What::Machine, packages, inner_width, 0.0, 0.0, 12.0);
        let fits = tile.height <= FITTING && tile.width <= inner_width;
        all = Some(tile);
        if fits {
            break;
        }
    }
    let Some(all) = all else { return y };
    painter.draw(c, MARGIN, y, &all);
    legend(c, t, y + all.height + 22.0)
}

/// What the colours mean and what is not on the map.
fn legend(c: &mut Canvas, t: &Topology, y: f64) -> f64 {
    let mut x = MARGIN;
    let mut entry = |fill: &str, stroke: Option<&str>, text: &str| {
        c.rect([x, y - 11.0, 13.0, 13.0], 2.0, fill, stroke, "");
        c.text(x + 19.0, y, 12.0, MUTED, "start", text);
        x += 19.0 + 7.0 * text.len() as f64 + 24.0;
    };
    let threads = t.cores.largest();
    let core = match threads {
        0 | 1 => "core".to_string(),
        n => format!("core, up to {n} threads"),
    };
    entry(&mix(WEAK, STRONG, 1.0), None, &core);
    let weakest = t.online.iter().map(|cpu| t.capacity(cpu).0).min().unwrap_or(Capacity::SCALE.0);
    if weakest < Capacity::SCALE.0 {
        let at = weakest as f64 / Capacity::SCALE.0 as f64;
        entry(&mix(WEAK, STRONG, at), None, &format!("capacity {weakest}"));
    }
    if t.isolated.intersects(&t.online) {
        entry(ISOLATED, Some("#c05a3c"), "isolated");
    }
    let text =
        |what: &str, mask: &Cpumask| (!mask.is_empty()).then(|| format!("{what}: CPUs {mask}"));
    let memory_only: Vec<String> =
        t.nodes.iter().filter(|n| n.cpus.is_empty()).map(|n| n.id.to_string()).collect();
    let rest = [
        text("offline", &t.present.and_not(&t.online)),
        (!memory_only.is_empty())
            .then(|| format!("nodes without CPUs: {}", memory_only.join(", "))),
    ];
    let rest: Vec<String> = rest.into_iter().flatten().collect();
    c.text(x, y, 12.0, MUTED, "start", &rest.join("; "));
    y
}
