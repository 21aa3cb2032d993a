//! What is kept of a run for pictures and traces; nothing unless asked for.

use super::costs::Distance;
use crate::units::{CpuId, Nanos, TaskKey};
use serde_json::{Value, json};

/// Columns of the heat map.
pub const HEAT_COLUMNS: usize = 240;

/// Most stretches of running that a trace keeps; later ones are counted only.
const MAX_SLICES: usize = 4_000_000;

#[derive(Clone, Copy, Debug)]
struct Slice {
    cpu: CpuId,
    from: Nanos,
    to: Nanos,
    task: TaskKey,
    template: u32,
}

#[derive(Clone, Copy, Debug)]
struct Move {
    at: Nanos,
    task: TaskKey,
    src: CpuId,
    dst: CpuId,
    distance: Distance,
}

/// Busy time of each CPU in each part of the run.
#[derive(Clone, Debug)]
pub struct Heat {
    column: u64,
    cells: Vec<u64>,
}

impl Heat {
    fn add(&mut self, cpu: CpuId, from: Nanos, to: Nanos) {
        let mut at = from.0;
        while at < to.0 {
            let column = (at / self.column) as usize;
            let end = to.0.min((at / self.column + 1) * self.column);
            if column < HEAT_COLUMNS {
                self.cells[cpu.index() * HEAT_COLUMNS + column] += end - at;
            }
            at = end;
        }
    }

    /// A CPU's share of time busy, 0 to 1, by column.
    pub fn row(&self, cpu: CpuId) -> impl Iterator<Item = f64> + '_ {
        let from = cpu.index() * HEAT_COLUMNS;
        let column = self.column as f64;
        self.cells[from..from + HEAT_COLUMNS].iter().map(move |&ns| ns as f64 / column)
    }
}

/// Keeps what was asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracer {
    open: Vec<Option<(Nanos, TaskKey, u32)>>,
    slices: Option<Vec<Slice>>,
    moves: Vec<Move>,
    heat: Option<Heat>,
    lost: u64,
}

impl Tracer {
    /// Keeps a heat map of a run of that length and, with `slices`, every stretch of running.
    pub(crate) fn new(width: usize, duration: Nanos, slices: bool) -> Self {
        Self {
            open: vec![None; width],
            slices: slices.then(Vec::new),
            moves: Vec::new(),
            heat: Some(Heat {
                column: duration.0.div_ceil(HEAT_COLUMNS as u64).max(1),
                cells: vec![0; width * HEAT_COLUMNS],
            }),
            lost: 0,
        }
    }

    pub(crate) fn runs(&mut self, cpu: CpuId, now: Nanos, task: TaskKey, template: u32) {
        if self.heat.is_none() {
            return;
        }
        self.close(cpu, now);
        self.open[cpu.index()] = Some((now, task, template));
    }

    pub(crate) fn idle(&mut self, cpu: CpuId, now: Nanos) {
        if self.heat.is_some() {
            self.close(cpu, now);
        }
    }

    fn close(&mut self, cpu: CpuId, now: Nanos) {
        let Some((from, task, template)) = self.open[cpu.index()].take() else { return };
        if let Some(heat) = &mut self.heat {
            heat.add(cpu, from, now);
        }
        if let Some(slices) = &mut self.slices {
            if slices.len() < MAX_SLICES {
                slices.push(Slice { cpu, from, to: now, task, template });
            } else {
                self.lost += 1;
            }
        }
    }

    pub(crate) fn moves(
        &mut self,
        at: Nanos,
        task: TaskKey,
        src: CpuId,
        dst: CpuId,
        distance: Distance,
    ) {
        if self.slices.is_some() && self.moves.len() < MAX_SLICES {
            self.moves.push(Move { at, task, src, dst, distance });
        }
    }

    /// Ends the run.
    pub(crate) fn finish(&mut self, now: Nanos) {
        (0..self.open.len()).for_each(|cpu| self.close(CpuId::from(cpu), now));
    }

    /// The heat map, if one was kept.
    pub(crate) fn heat(&self) -> Option<&Heat> {
        self.heat.as_ref()
    }

    /// The run as Chrome's trace events, which Perfetto reads too: one row for each CPU, times in
    /// microseconds as that format has them.
    pub(crate) fn chrome(&self, names: &[String]) -> Value {
        let us = |t: Nanos| t.0 as f64 / 1000.0;
        let slices = self.slices.as_deref().unwrap_or_default();
        let mut events: Vec<Value> = (0..self.open.len())
            .map(|cpu| {
                json!({"ph": "M", "name": "thread_name", "pid": 0, "tid": cpu,
                    "args": {"name": format!("CPU {cpu}")}})
            })
            .collect();
        events.extend(slices.iter().map(|s| {
            json!({"ph": "X", "pid": 0, "tid": s.cpu, "ts": us(s.from), "dur": us(s.to - s.from),
                "name": format!("{} {}", names[s.template as usize], s.task.pid),
                "args": {"pid": s.task.pid}})
        }));
        events.extend(self.moves.iter().map(|m| {
            json!({"ph": "i", "s": "t", "pid": 0, "tid": m.dst, "ts": us(m.at), "name": "move",
                "args": {"pid": m.task.pid, "from": m.src, "distance": m.distance}})
        }));
        json!({"displayTimeUnit": "ns", "traceEvents": events, "otherData": {"lost": self.lost}})
    }
}
