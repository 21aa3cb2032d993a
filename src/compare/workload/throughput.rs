//! hackbench and the pipe benchmark.

use super::{Invocation, Load, Printed, first, number_after};
use serde::{Deserialize, Serialize};

/// Senders, and as many receivers, in a group unless something else is said.
const PAIRS_IN_GROUP: u32 = 20;

/// Options of hackbench.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hackbench {
    /// Groups.
    pub groups: u32,
    /// Messages that each sender passes to each receiver.
    pub loops: u32,
    /// Senders in a group, and as many receivers.
    pub fds: u32,
    /// Pipes instead of sockets.
    pub pipes: bool,
    /// Threads instead of processes.
    pub threads: bool,
}

impl Default for Hackbench {
    fn default() -> Self {
        Self { groups: 4, loops: 100, fds: PAIRS_IN_GROUP, pipes: true, threads: false }
    }
}

impl Hackbench {
    /// Below and at saturation one group is enough, of fewer senders; of a pair about one runs at
    /// a time.
    fn size(&self, load: Load, cpus: u32) -> (u32, u32) {
        match load {
            Load::Own => (self.groups, self.fds),
            Load::Amount(groups) => (groups, self.fds),
            _ => {
                let pairs = load.count(cpus, 1, self.groups);
                (pairs.div_ceil(PAIRS_IN_GROUP), pairs.min(PAIRS_IN_GROUP))
            }
        }
    }

    pub(super) fn invocation(&self, load: Load, cpus: u32) -> Invocation {
        let (groups, fds) = self.size(load, cpus);
        let mut words = vec!["hackbench".to_string()];
        if self.pipes {
            words.push("-p".into());
        }
        if self.threads {
            words.push("-T".into());
        }
        for (option, value) in [("-g", groups), ("-f", fds), ("-l", self.loops)] {
            words.extend([option.to_string(), value.to_string()]);
        }
        Invocation::one(words)
    }

    pub(super) fn title(&self) -> String {
        format!(
            "hackbench, {} of {}+{} {}, {}, {} loops",
            crate::compare::report::count(self.groups as usize, "group"),
            self.fds,
            self.fds,
            if self.threads { "threads" } else { "processes" },
            if self.pipes { "pipes" } else { "sockets" },
            self.loops
        )
    }
}

pub(super) fn hackbench_score(printed: &Printed) -> Result<Vec<f64>, String> {
    let time = number_after(first(printed), "Time:");
    time.map(|t| vec![t]).ok_or_else(|| "hackbench printed no `Time:`".into())
}

/// Options of the pipe benchmark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pipe {
    /// Pairs at once.
    pub pairs: u32,
    /// Round trips of each pair.
    pub loops: u32,
    /// Threads instead of processes.
    pub threads: bool,
}

impl Default for Pipe {
    fn default() -> Self {
        Self { pairs: 1, loops: 20_000, threads: false }
    }
}

impl Pipe {
    pub(super) fn invocation(&self, load: Load, cpus: u32) -> Invocation {
        let mut words: Vec<String> =
            ["perf", "bench", "sched", "pipe", "-l"].map(String::from).into();
        words.push(self.loops.to_string());
        if self.threads {
            words.push("-T".into());
        }
        Invocation { copies: load.count(cpus, 1, self.pairs), ..Invocation::one(words) }
    }
}

/// The mean over the pairs.
pub(super) fn pipe_score(printed: &Printed) -> Result<Vec<f64>, String> {
    let trip = |text: &String| -> Option<f64> {
        let before = text.split_once("usecs/op")?.0;
        before.split_whitespace().last()?.parse().ok()
    };
    let trips: Option<Vec<f64>> = printed.stdout.iter().map(trip).collect();
    let mean = trips.as_deref().and_then(crate::compare::statistics::mean);
    mean.map(|m| vec![m]).ok_or_else(|| "perf bench printed no `usecs/op`".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hackbench_is_sized_by_the_load() {
        let h = Hackbench::default();
        let words = |load, cpus| h.invocation(load, cpus).words.join(" ");
        assert_eq!(words(Load::Own, 8), "hackbench -p -g 4 -f 20 -l 100");
        assert_eq!(words(Load::Below, 8), "hackbench -p -g 1 -f 4 -l 100");
        assert_eq!(words(Load::Above, 8), "hackbench -p -g 2 -f 20 -l 100");
        assert_eq!(words(Load::Amount(7), 8), "hackbench -p -g 7 -f 20 -l 100");
    }

    #[test]
    fn scores_are_read_from_real_output() {
        let printed = |text: &str| Printed { stdout: vec![text.into()], ..Printed::default() };
        let text = "Each sender will pass 10 messages of 100 bytes\nTime: 0.013\n";
        assert_eq!(hackbench_score(&printed(text)), Ok(vec![0.013]));
        assert!(hackbench_score(&printed("killed")).is_err());
        let text =
            "     Total time: 0.006 [sec]\n\n       6.929000 usecs/op\n         144320 ops/sec\n";
        let pairs = Printed {
            stdout: vec![text.into(), text.replace("6.929", "7.071")],
            ..Printed::default()
        };
        assert_eq!(pipe_score(&pairs), Ok(vec![7.0]));
        assert!(pipe_score(&Printed::default()).is_err());
    }
}
