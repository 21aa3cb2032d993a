//! What things cost that are not work: cache lines that move, switches, migrations, looks.
//!
//! A cache line is one server with an owner: taking it costs a transfer that depends on how far
//! the old owner is, and operations queue in the order in which they come.

use crate::units::{CpuId, Nanos};
use serde::Serialize;

/// How far two CPUs are from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[repr(u8)]
pub enum Distance {
    /// The same CPU.
    Same,
    /// Threads of one core.
    Core,
    /// The same last-level cache.
    Llc,
    /// The same package.
    Package,
    /// Another package.
    Far,
}

/// Transfer costs of one cache line in ns: threads of a core, one LLC, one package, far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinePreset {
    /// The name for `--line-costs`.
    pub name: &'static str,
    /// Where the figures are from.
    pub source: &'static str,
    /// ns by distance from [`Distance::Core`] on.
    pub ns: [u64; 4],
}

/// Known machines: compare-exchange on a line that another CPU owns. Where a source gives a
/// range, its middle.
pub const LINE_PRESETS: &[LinePreset] = &[
    LinePreset { name: "genoa", source: "EPYC Genoa, measured", ns: [9, 24, 100, 195] },
    LinePreset { name: "milan", source: "EPYC Milan, measured", ns: [10, 23, 107, 197] },
    LinePreset { name: "ice-lake", source: "Ice Lake, measured", ns: [8, 51, 51, 108] },
    LinePreset { name: "cascade-lake", source: "Cascade Lake, measured", ns: [8, 47, 47, 134] },
    LinePreset { name: "power7", source: "POWER7, measured", ns: [173, 173, 173, 443] },
    LinePreset {
        name: "granite-rapids",
        source: "unknown: assumed, to be swept (60 / 90 / 150-200)",
        ns: [10, 60, 90, 175],
    },
];

macro_rules! costs {
    ($($(#[doc = $doc:literal])+ $field:ident = $default:literal, $name:literal, $unit:literal;)+) => {
        /// All costs. Zero switches a part off, as does its name in `off`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        pub struct Costs {
            /// Line transfers in ns by distance from [`Distance::Core`] on.
            pub line_ns: [u64; 4],
            $($(#[doc = $doc])+ pub $field: u64,)+
        }

        impl Default for Costs {
            fn default() -> Self {
                Self { line_ns: LINE_PRESETS[0].ns, $($field: $default,)+ }
            }
        }

        /// Name, unit, default and meaning of each cost.
        pub const COSTS: &[(&str, &str, u64, &str)] =
            &[$(($name, $unit, $default, concat!($($doc),+).trim_ascii())),+];

        impl Costs {
            /// Sets a cost by name, or the line costs by a preset's.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
                let number = || value.parse::<u64>().ok().filter(|&n| n <= 1_000_000_000).ok_or_else(
                    || format!("{name}: `{value}` is not a number from 0 to 1000000000"),
                );
                match name {
                    $($name => self.$field = number()?,)+
                    "line-costs" => self.line_ns = line_costs(value)?,
                    _ => return Err(format!("there is no cost `{name}`")),
                }
                Ok(())
            }
        }
    };
}

costs! {
    /// A switch from one task to another.
    switch_ns = 1500, "cost-switch", "ns";
    /// A tick without what it balances.
    tick_ns = 800, "cost-tick", "ns";
    /// A wake-up, on the waking CPU.
    wake_ns = 700, "cost-wake", "ns";
    /// A kick of another CPU until it reacts.
    ipi_ns = 1500, "cost-ipi", "ns";
    /// Entering or leaving a balancing pass at one level.
    pass_ns = 150, "cost-pass", "ns";
    /// Share of a line transfer that looking at another CPU's state costs, in per cent: loads
    /// overlap, compare-exchanges do not.
    look_pct = 25, "cost-look", "% of a line transfer";
    /// Share of a line transfer that each line of a footprint costs after a migration.
    refill_pct = 15, "cost-refill", "% of a line transfer";
    /// Share of a line transfer that each line of a pipe's data costs the reader, and each line of
    /// its pages the writer.
    copy_pct = 15, "cost-copy", "% of a line transfer";
    /// What goes through a pipe when all is in the cache, by two copies one after the other.
    copy_mb_s = 9000, "pipe-bandwidth", "MB/s";
    /// What one node can send to others; 0: no limit.
    node_mb_s = 20000, "node-bandwidth", "MB/s";
    /// Whether operations on the serialize flag cost anything.
    flag_line = 1, "cost-flag-line", "0 or 1";
    /// Whether operations on the nohz mask, counter and record cost anything.
    nohz_line = 1, "cost-nohz-line", "0 or 1";
}

fn line_costs(value: &str) -> Result<[u64; 4], String> {
    if let Some(preset) = LINE_PRESETS.iter().find(|p| p.name == value) {
        return Ok(preset.ns);
    }
    let numbers: Vec<u64> = value.split('/').filter_map(|n| n.parse().ok()).collect();
    let names: Vec<&str> = LINE_PRESETS.iter().map(|p| p.name).collect();
    numbers.try_into().map_err(|_| {
        format!(
            "line-costs: `{value}` is neither CORE/LLC/PACKAGE/FAR in ns nor one of {}",
            names.join(", ")
        )
    })
}

impl Costs {
    /// Everything free: the machine of queueing theory.
    pub const FREE: Self = Self {
        line_ns: [0; 4],
        switch_ns: 0,
        tick_ns: 0,
        wake_ns: 0,
        ipi_ns: 0,
        pass_ns: 0,
        look_pct: 0,
        refill_pct: 0,
        copy_pct: 0,
        copy_mb_s: 0,
        node_mb_s: 0,
        flag_line: 0,
        nohz_line: 0,
    };

    /// What it takes to get a line from that far.
    pub fn transfer(&self, distance: Distance) -> u64 {
        match distance {
            Distance::Same => 0,
            d => self.line_ns[d as usize - 1],
        }
    }

    /// What it takes to fetch so many bytes from that far, at a share of a transfer for each line.
    pub fn fetch(&self, bytes: u64, distance: Distance, pct: u64) -> u64 {
        bytes / 64 * self.transfer(distance) * pct / 100
    }
}

/// On what a CPU's time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Cause {
    /// The tasks' own work.
    Work,
    /// Switching tasks.
    Switch,
    /// Ticks.
    Tick,
    /// Waking tasks.
    Wake,
    /// Balancing passes: looking at other CPUs.
    Balance,
    /// Waiting for the serialize flag's line.
    Flag,
    /// Waiting for the nohz lines.
    Nohz,
    /// Fetching a cache's contents after a migration.
    Refill,
    /// Fetching data that another CPU wrote, queueing for a node's link, spinning for a pipe.
    Transfer,
}

impl Cause {
    /// How many there are.
    pub const COUNT: usize = 9;
    /// All of them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Work,
        Self::Switch,
        Self::Tick,
        Self::Wake,
        Self::Balance,
        Self::Flag,
        Self::Nohz,
        Self::Refill,
        Self::Transfer,
    ];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Switch => "context switch",
            Self::Tick => "tick",
            Self::Wake => "wake-up",
            Self::Balance => "balancing passes",
            Self::Flag => "serialize flag",
            Self::Nohz => "nohz lines",
            Self::Refill => "migration refill",
            Self::Transfer => "data transfer",
        }
    }
}

/// A cache line with its owner and what it has been through.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Line {
    #[serde(skip)]
    owner: Option<CpuId>,
    #[serde(skip)]
    free_at: Nanos,
    /// Whether others have read it since the last write.
    #[serde(skip)]
    shared: bool,
    /// Operations.
    pub accesses: u64,
    /// Operations that had to fetch the line.
    pub transfers: u64,
    /// Time spent on these by all CPUs together, queueing included.
    pub time_ns: u64,
    /// Plain reads.
    pub reads: u64,
    /// Time spent on reads by all CPUs together, queueing included.
    pub read_ns: u64,
}

impl Line {
    /// An operation by `cpu` that needs the line alone, asked for at `now`; when it is done.
    /// `distance` tells how far the last owner is.
    pub fn access(
        &mut self,
        cpu: CpuId,
        now: Nanos,
        costs: &Costs,
        distance: impl FnOnce(CpuId) -> Distance,
    ) -> Nanos {
        let mut far = self.owner.map_or(Distance::Llc, distance);
        if std::mem::take(&mut self.shared) {
            // The readers' copies have to go first.
            far = far.max(Distance::Llc);
        }
        // An operation on a line already held still takes the time of a locked instruction.
        let service = costs.transfer(far).max(costs.line_ns[0].min(8));
        let done = now.max(self.free_at) + Nanos(service);
        self.accesses += 1;
        self.transfers += u64::from(far != Distance::Same);
        self.time_ns += (done - now).0;
        self.owner = Some(cpu);
        self.free_at = done;
        done
    }

    /// A plain read. The first after a write fetches the line from its writer, and is in the way of
    /// others for as long as a write would be; further ones are served from the shared copy, one
    /// after the other but quickly.
    pub fn read(
        &mut self,
        cpu: CpuId,
        now: Nanos,
        costs: &Costs,
        distance: impl FnOnce(CpuId) -> Distance,
    ) -> Nanos {
        let far = match self.owner {
            Some(owner) if owner != cpu => distance(owner),
            _ => Distance::Same,
        };
        let begins = now.max(self.free_at);
        let (done, free) = match (far, self.shared) {
            (Distance::Same, _) => (begins, begins),
            (_, false) => {
                let done = begins + Nanos(costs.transfer(far));
                (done, done)
            }
            (_, true) => {
                let latency = Nanos(costs.transfer(far.min(Distance::Llc)));
                (begins + latency, begins + Nanos(costs.transfer(Distance::Core)))
            }
        };
        self.shared |= far != Distance::Same;
        self.free_at = free;
        self.reads += 1;
        self.read_ns += (done - now).0;
        done
    }
}

/// Which shared line, and whether it is needed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineId {
    /// The serialize flag.
    Flag,
    /// A part of the nohz idle mask: what lies on one line.
    Mask(u16),
    /// A look at that part.
    ReadMask(u16),
    /// The nohz record: the mask's address, the counter, the marks and the times.
    Record,
    /// A look at the record.
    ReadRecord,
}

impl LineId {
    /// Whether it is only read.
    pub const fn is_read(self) -> bool {
        matches!(self, Self::ReadMask(_) | Self::ReadRecord)
    }
}

/// In the course of what a shared line is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Site {
    /// Taking or giving back the serialize flag.
    Flag,
    /// Entering the idle mask (kernel: `nohz_balance_enter_idle`).
    EnterIdle,
    /// Leaving it (kernel: `nohz_balance_exit_idle`).
    ExitIdle,
    /// A busy tick that looks whether to kick (kernel: the rest of `nohz_balancer_kick`).
    Kick,
}

impl Site {
    /// How many there are.
    pub const COUNT: usize = 4;
}

/// One use of a shared line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The line.
    pub line: LineId,
    /// In the course of what.
    pub site: Site,
}

/// CPUs of a mask on one line.
pub const MASK_LINE: usize = 512;

/// The shared lines of a machine.
#[derive(Clone, Debug, Serialize)]
pub struct Lines {
    /// The serialize flag.
    pub flag: Line,
    /// The nohz idle mask: a line for 512 CPUs or, with `nohz-mask=node`, for each node.
    pub mask: Vec<Line>,
    /// The nohz record, on whose line the counter of `nohz-count=counter` lies.
    pub record: Line,
    /// Time spent on all of them by all CPUs together, by [`Site`].
    pub site_ns: [u64; Site::COUNT],
}

impl Lines {
    /// For a machine of so many CPU ids and nodes.
    pub fn new(width: usize, nodes: usize) -> Self {
        let mask = vec![Line::default(); width.div_ceil(MASK_LINE).max(nodes).max(1)];
        Self { flag: Line::default(), mask, record: Line::default(), site_ns: [0; Site::COUNT] }
    }

    /// The line.
    pub fn get(&mut self, id: LineId) -> &mut Line {
        match id {
            LineId::Flag => &mut self.flag,
            LineId::Mask(part) | LineId::ReadMask(part) => &mut self.mask[usize::from(part)],
            LineId::Record | LineId::ReadRecord => &mut self.record,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_on_a_line_queue() {
        let costs = Costs::default();
        let mut line = Line::default();
        let far = |_| Distance::Far;
        // First owner: 24; then two from afar asked for at once: 195 each, one after the other.
        assert_eq!(line.access(CpuId(0), Nanos(0), &costs, far), Nanos(24));
        assert_eq!(line.access(CpuId(1), Nanos(100), &costs, far), Nanos(295));
        assert_eq!(line.access(CpuId(2), Nanos(100), &costs, far), Nanos(490));
        assert_eq!((line.accesses, line.transfers, line.time_ns), (3, 3, 24 + 195 + 390));
    }

    #[test]
    fn costs_are_set_by_name() {
        let mut costs = Costs::default();
        for (name, _, default, _) in COSTS {
            costs.set(name, &(default + 1).to_string()).unwrap();
        }
        costs.set("line-costs", "milan").unwrap();
        assert_eq!(costs.line_ns[3], 197);
        costs.set("line-costs", "1/2/3/4").unwrap();
        assert_eq!((costs.line_ns, costs.switch_ns), ([1, 2, 3, 4], 1501));
        assert!(costs.set("line-costs", "1/2").is_err());
        assert!(costs.set("cost-switch", "-1").is_err());
        assert!(costs.set("cost-nothing", "1").is_err());
    }
}
