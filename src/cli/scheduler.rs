//! The options of `scx_baton`.

use crate::agent::Config;
use crate::units::Nanos;
use clap::{ArgAction, Parser, ValueEnum, value_parser};

/// A sched_ext scheduler that balances load by the kernel's rules, in user space.
///
/// Runs until it is interrupted; the kernel's own scheduler then takes over again. Exit status:
/// 0 asked to stop, 1 could not start, 2 ended by the kernel, 3 another scheduler took over.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Opts {
    /// How long a task runs while others wait, in microseconds.
    #[arg(long, value_name = "US", default_value_t = 3_000, value_parser = value_parser!(u64).range(100..=1_000_000))]
    pub slice_us: u64,

    /// What the slice shrinks to when many tasks wait (slice / (waiting + 1), but not less than
    /// this), in microseconds. Not above --slice-us.
    #[arg(long, value_name = "US", default_value_t = 1_000, value_parser = value_parser!(u64).range(100..=1_000_000))]
    pub slice_min_us: u64,

    /// Whether a task that wakes more than --slice-min-us behind the running one in virtual time
    /// preempts it: `on` favours latency, `off` throughput.
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    pub wakeup_preempt: Switch,

    /// Schedule only tasks of policy SCHED_EXT; all others stay with the kernel's scheduler.
    #[arg(long)]
    pub partial: bool,

    /// Size of the debug dump that the kernel keeps for an ejection, in bytes; 0 = its default
    /// (32,768).
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub exit_dump_len: u32,

    /// Time between two balancing rounds while tasks wait, in microseconds.
    #[arg(long, value_name = "US", default_value_t = 4_000, value_parser = value_parser!(u64).range(100..=1_000_000))]
    pub tick_us: u64,

    /// Say more; twice: libbpf's messages too.
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

/// A choice between on and off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Do it.
    On,
    /// Do not.
    Off,
}

impl Opts {
    /// The checked configuration, or a sentence that says what is wrong.
    pub fn config(&self) -> Result<Config, String> {
        if self.slice_min_us > self.slice_us {
            return Err(format!(
                "--slice-min-us {} is above --slice-us {}: lower the first or raise the second",
                self.slice_min_us, self.slice_us
            ));
        }
        Ok(Config {
            slice: Nanos::from_us(self.slice_us),
            slice_min: Nanos::from_us(self.slice_min_us),
            wakeup_preempt: self.wakeup_preempt == Switch::On,
            partial: self.partial,
            exit_dump_len: self.exit_dump_len,
            verbose: self.verbose,
            tick: Nanos::from_us(self.tick_us),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Config, String> {
        let args = std::iter::once(&"scx_baton").chain(args);
        Opts::try_parse_from(args).map_err(|e| e.to_string())?.config()
    }

    #[test]
    fn defaults_are_valid() {
        assert_eq!(parse(&[]).unwrap().slice, Nanos::from_ms(3));
    }

    #[test]
    fn every_option_reaches_the_configuration() {
        let c = parse(&[
            "--slice-us=2000",
            "--slice-min-us=500",
            "--wakeup-preempt=on",
            "--partial",
            "--exit-dump-len=65536",
            "--tick-us=1000",
            "-vv",
        ])
        .unwrap();
        assert_eq!((c.slice, c.slice_min), (Nanos::from_us(2000), Nanos::from_us(500)));
        assert!(c.wakeup_preempt && c.partial);
        assert_eq!((c.exit_dump_len, c.tick, c.verbose), (65_536, Nanos::from_ms(1), 2));
    }

    #[test]
    fn nonsense_is_refused_with_the_range() {
        assert!(parse(&["--slice-us", "0"]).unwrap_err().contains("100..=1000000"));
        assert!(parse(&["--slice-min-us", "4000"]).unwrap_err().contains("--slice-us 3000"));
        assert!(parse(&["--no-such-flag"]).unwrap_err().contains("--no-such-flag"));
    }
}
