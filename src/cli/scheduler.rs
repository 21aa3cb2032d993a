//! The options of `scx_baton`.

use crate::agent::{Config, Workers};
use crate::domains::BuildOptions;
use crate::policy::tunables::{Domain, TUNABLES, Tunable, Tunables};
use crate::units::Nanos;
use clap::{
    Arg, ArgAction, Command, CommandFactory, FromArgMatches, Parser, ValueEnum, value_parser,
};
use std::ffi::OsString;
use std::time::Duration;

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

    /// Shortest time between two looks at a CPU, in microseconds; without it the kernel's own
    /// tick (from its CONFIG_HZ).
    #[arg(long, value_name = "US", value_parser = value_parser!(u64).range(100..=1_000_000))]
    pub tick_us: Option<u64>,

    /// How the machine is divided among balancing threads.
    #[arg(long, value_enum, default_value_t = Workers::Llc)]
    pub workers: Workers,

    /// How much of its CPUs' time a balancing thread aims to use, in thousandths (0 = any). Beyond
    /// that the passes of busy CPUs, and the nohz kicks that go with them, come later: at most 16 times
    /// as seldom as by the kernel's intervals. What idle CPUs ask for is never put off.
    #[arg(long, value_name = "PERMILLE", default_value_t = 4, value_parser = value_parser!(u32).range(0..=1_000))]
    pub agent_share: u32,

    /// No balancing when a CPU becomes idle (newidle) from this row of the kernel's table of
    /// levels up, as its `relax_domain_level=` does; `baton topo` with the same option shows the
    /// effect.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(0..=255))]
    pub relax_domain_level: Option<u32>,

    /// Print statistics of this run every SEC seconds.
    #[arg(long, value_name = "SEC", value_parser = seconds)]
    pub stats: Option<Duration>,

    /// Load nothing; print statistics of the running scheduler every SEC seconds.
    #[arg(long, value_name = "SEC", value_parser = seconds)]
    pub monitor: Option<Duration>,

    /// Say what each statistic means, and exit.
    #[arg(long)]
    pub help_stats: bool,

    /// Say more; twice: libbpf's messages too.
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,

    /// The policy's settings, from options named as in [`TUNABLES`].
    #[arg(skip)]
    pub tunables: Tunables,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(s) if (0.1..=86_400.0).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err("a number of seconds from 0.1 to 86400".into()),
    }
}

/// An option for each setting of the policy.
fn tunable_arg(tunable: &'static Tunable) -> Arg {
    let mut help = format!("{} [default: {}]", tunable.doc, tunable.default_value());
    if let Domain::Choices(choices) = tunable.domain {
        for choice in choices {
            help.push_str(&format!("\n- {}: {}", choice.name, choice.doc));
        }
    }
    let check = move |value: &str| -> Result<String, String> {
        let mut scratch = Tunables::default();
        scratch.set(tunable.name, value).map_err(|e| e.to_string())?;
        Ok(value.to_string())
    };
    Arg::new(tunable.name)
        .long(tunable.name)
        .value_name(match tunable.domain {
            Domain::Choices(_) => "CHOICE",
            Domain::Range { .. } => "N",
        })
        .help_heading("Policy (can also be changed while running: baton set NAME=VALUE)")
        .help(help)
        .value_parser(check)
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
    /// The whole command line: the options above and one for each setting of the policy.
    pub fn full_command() -> Command {
        Self::command().args(TUNABLES.iter().map(tunable_arg))
    }

    /// Reads a command line; on an error, or for `--help`, clap's message.
    pub fn read<I, T>(args: I) -> Result<Self, clap::Error>
    where
        I: IntoIterator<Item = T>,
        T: Into<OsString> + Clone,
    {
        let matches = Self::full_command().try_get_matches_from(args)?;
        let mut opts = Self::from_arg_matches(&matches)?;
        for tunable in TUNABLES {
            if let Some(value) = matches.get_one::<String>(tunable.name) {
                // The value has been checked by the option's parser.
                let _ = opts.tunables.set(tunable.name, value);
            }
        }
        Ok(opts)
    }

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
            tick: self.tick_us.map(Nanos::from_us),
            workers: self.workers,
            agent_share: self.agent_share,
            domains: BuildOptions { relax_domain_level: self.relax_domain_level },
            tunables: self.tunables,
            alloc_entry: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Config, String> {
        let args = std::iter::once(&"scx_baton").chain(args);
        Opts::read(args).map_err(|e| e.to_string())?.config()
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
            "--agent-share=10",
            "--relax-domain-level=2",
            "-vv",
        ])
        .unwrap();
        assert_eq!((c.slice, c.slice_min), (Nanos::from_us(2000), Nanos::from_us(500)));
        assert!(c.wakeup_preempt && c.partial);
        assert_eq!((c.agent_share, c.domains.relax_domain_level), (10, Some(2)));
        assert_eq!((c.exit_dump_len, c.tick, c.verbose), (65_536, Some(Nanos::from_ms(1)), 2));
    }

    #[test]
    fn every_setting_of_the_policy_is_an_option() {
        for tunable in TUNABLES {
            let value = match tunable.domain {
                Domain::Choices(choices) => choices[choices.len() - 1].name.to_string(),
                Domain::Range { max, .. } => max.to_string(),
            };
            let config = parse(&[&format!("--{}={value}", tunable.name)]).unwrap();
            assert_eq!(config.tunables.get(tunable.name).unwrap(), value);
            assert!(parse(&[&format!("--{}=nonsense", tunable.name)]).is_err());
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_range() {
        assert!(parse(&["--slice-us", "0"]).unwrap_err().contains("100..=1000000"));
        assert!(parse(&["--slice-min-us", "4000"]).unwrap_err().contains("--slice-us 3000"));
        assert!(parse(&["--relax-domain-level", "256"]).unwrap_err().contains("0..=255"));
        assert!(parse(&["--no-such-flag"]).unwrap_err().contains("--no-such-flag"));
    }
}
