//! Wake-up latency: cyclictest with ordinary, not real-time, threads.

use super::{Better, Invocation, Load, Metric, Printed, first};
use serde::{Deserialize, Serialize};

/// Longest latency that has its own place in the histogram, microseconds.
const HISTOGRAM_US: u32 = 200_000;

/// Options of cyclictest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wakeup {
    /// Threads.
    pub threads: u32,
    /// Time between a thread's wake-ups, microseconds.
    pub interval_us: u32,
    /// Wake-ups of each thread.
    pub loops: u32,
    /// Whether a hackbench runs beside it all the time.
    #[serde(default)]
    pub hackbench: bool,
}

impl Default for Wakeup {
    fn default() -> Self {
        Self { threads: 4, interval_us: 5_000, loops: 1_000, hackbench: false }
    }
}

impl Wakeup {
    pub(super) fn invocation(&self, load: Load, cpus: u32) -> Invocation {
        let threads = load.count(cpus, 1, self.threads);
        let mut words: Vec<String> =
            ["cyclictest", "--policy=other", "-q"].map(String::from).into();
        words.push(format!("--histofall={HISTOGRAM_US}"));
        words.push(format!("--threads={threads}"));
        words.push(format!("--interval={}", self.interval_us));
        words.push("--distance=0".into());
        words.push(format!("--loops={}", self.loops));
        if self.hackbench {
            // For a fixed time, so that the long histogram is printed on a machine at rest.
            // `timeout` ends all of hackbench, which it has in a group of its own, and is told to
            // when the shell dies.
            let seconds =
                (u64::from(self.interval_us) * u64::from(self.loops)).div_ceil(1_000_000).max(1);
            words.pop();
            let script = format!(
                "{} --duration={seconds} & setpriv --pdeathsig TERM timeout {seconds} \
                 hackbench -p -g 4 -l 100000000 >/dev/null 2>&1; wait $!",
                words.join(" ")
            );
            words = vec!["sh".into(), "-c".into(), script];
        }
        Invocation::one(words)
    }

    pub(super) fn title(&self) -> String {
        let beside = if self.hackbench { ", hackbench beside it" } else { "" };
        format!(
            "cyclictest, {} threads, every {} us, {} wake-ups each{beside}",
            self.threads, self.interval_us, self.loops
        )
    }
}

pub(super) fn metrics() -> Vec<Metric> {
    ["p50 latency", "p99 latency", "longest latency"]
        .map(|name| Metric::new(name, "us", Better::Lower))
        .into()
}

/// Percentiles over all threads from the histogram; what lies beyond it counts as the longest.
pub(super) fn score(printed: &Printed) -> Result<Vec<f64>, String> {
    let text = first(printed);
    let missing = |what: &str| format!("cyclictest printed no {what}");
    let longest = text
        .lines()
        .find_map(|line| line.strip_prefix("# Max Latencies:"))
        .and_then(|line| {
            line.split_whitespace().filter_map(|w| w.parse::<f64>().ok()).reduce(f64::max)
        })
        .ok_or_else(|| missing("`# Max Latencies:`"))?;
    // The last column of `--histofall` is the sum over the threads.
    let buckets: Vec<(f64, u64)> = text
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.parse().ok()?, words.next_back()?.parse().ok()?))
        })
        .collect();
    let beyond: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("# Histogram Overflows:"))
        .and_then(|line| line.split_whitespace().next_back()?.parse().ok())
        .unwrap_or_default();
    let all = buckets.iter().map(|(_, n)| n).sum::<u64>() + beyond;
    if all == 0 {
        return Err(missing("latency"));
    }
    let percentile = |share: f64| {
        let wanted = (share * all as f64).ceil() as u64;
        let mut seen = 0;
        let mut reached = |n: u64| {
            seen += n;
            seen >= wanted
        };
        buckets.iter().find(|(_, n)| reached(*n)).map_or(longest, |(us, _)| *us)
    };
    Ok(vec![percentile(0.5), percentile(0.99), longest])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_come_from_the_sum_of_all_threads() {
        // 100 wake-ups: 40 at 10 us, 58 at 20 us, 2 beyond.
        let text = "# Histogram\n000010 000030\t000010\t000040\n000020 000029\t000029\t000058\n\
                    # Total: 000000059 000000039 000000098\n# Min Latencies: 00010 00010\n\
                    # Max Latencies: 00900 00070\n# Histogram Overflows: 00001 00001 00002\n";
        let printed = Printed { stdout: vec![text.into()], ..Printed::default() };
        assert_eq!(score(&printed), Ok(vec![20.0, 900.0, 900.0]));
        assert!(score(&Printed::default()).is_err());
    }

    #[test]
    fn threads_follow_the_load() {
        let words = |load| Wakeup::default().invocation(load, 8).words.join(" ");
        assert!(
            words(Load::Own).contains("--threads=4") && words(Load::At).contains("--threads=8")
        );
        let beside = Wakeup { hackbench: true, ..Wakeup::default() }.invocation(Load::At, 8);
        assert!(beside.words[2].contains("--threads=8") && beside.words[2].contains("hackbench"));
    }
}
