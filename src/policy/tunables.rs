//! The switches of the balancing policy and the one table that describes them.
//!
//! The command line, `baton set`, `baton get` and the documentation all read [`TUNABLES`];
//! [`Tunables`] is a small `Copy` value so that a whole configuration is swapped at once.

use serde::{Serialize, Serializer};
use std::fmt;

/// One value that a switch may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// As written on the command line.
    pub name: &'static str,
    /// What it does.
    pub doc: &'static str,
}

/// What a setting accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// One of these words; the first is the default.
    Choices(&'static [Choice]),
    /// A whole number, both ends included.
    Range {
        /// Smallest value.
        min: u32,
        /// Largest value.
        max: u32,
        /// What it counts; empty for a pure number.
        unit: &'static str,
    },
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Choices(choices) => {
                for (i, choice) in choices.iter().enumerate() {
                    write!(f, "{}{}", if i == 0 { "" } else { ", " }, choice.name)?;
                }
                Ok(())
            }
            Self::Range { min, max, unit: "" } => write!(f, "{min} to {max}"),
            Self::Range { min, max, unit } => write!(f, "{min} to {max} {unit}"),
        }
    }
}

/// One row of the table: a setting, its default and its meaning.
#[derive(Clone, Copy, Debug)]
pub struct Tunable {
    /// Name as on the command line, without the dashes.
    pub name: &'static str,
    /// The rule of the policy that it switches.
    pub section: &'static str,
    /// What it accepts.
    pub domain: Domain,
    /// What it does, one sentence.
    pub doc: &'static str,
}

impl Tunable {
    /// The default, as text.
    pub fn default_value(&self) -> String {
        Tunables::default().get(self.name).unwrap_or_default()
    }
}

/// Why a setting was refused: a sentence with the list of what would have been accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunableError {
    /// There is no setting of that name.
    UnknownName(String),
    /// The setting does not take that value.
    BadValue {
        /// The setting.
        name: &'static str,
        /// What was asked for.
        value: String,
        /// What it accepts.
        domain: Domain,
    },
    /// Not of the form `NAME=VALUE`.
    NoValue(String),
}

impl fmt::Display for TunableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName(name) => {
                write!(f, "`{name}` is not a setting; there are")?;
                for (i, tunable) in TUNABLES.iter().enumerate() {
                    write!(f, "{} {}", if i == 0 { "" } else { "," }, tunable.name)?;
                }
                Ok(())
            }
            Self::BadValue { name, value, domain } => {
                write!(f, "`{value}` is not a value of {name}; it takes {domain}")
            }
            Self::NoValue(text) => write!(f, "`{text}` is not of the form NAME=VALUE"),
        }
    }
}

impl std::error::Error for TunableError {}

macro_rules! switch {
    ($(#[$doc:meta])* $name:ident {
        $first:ident = $ftext:literal : $fdoc:literal
        $(, $variant:ident = $text:literal : $vdoc:literal)* $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name {
            #[doc = $fdoc]
            #[default]
            $first,
            $(#[doc = $vdoc] $variant),*
        }

        impl $name {
            /// All values, the default first.
            pub const CHOICES: &'static [Choice] = &[
                Choice { name: $ftext, doc: $fdoc },
                $(Choice { name: $text, doc: $vdoc }),*
            ];

            /// The value of that name.
            pub fn parse(text: &str) -> Option<Self> {
                match text {
                    $ftext => Some(Self::$first),
                    $($text => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { Self::$first => $ftext, $(Self::$variant => $text),* })
            }
        }
    };
}

switch! {
    /// When the serialize flag is taken relative to the other checks of a pass.
    SerializeOrder {
        Elected = "elected": "Due check, then election of the balance CPU, then the flag (kernels from 6.19).",
        Due = "due": "Due check, then the flag, then the election.",
        Always = "always": "The flag before the due check: most attempts find nothing due (kernels up to 6.18).",
    }
}
switch! {
    /// How many serialize flags there are.
    SerializeScope {
        Global = "global": "One flag for the machine.",
        Level = "level": "One flag for each NUMA level.",
        Off = "off": "No flag: all passes run side by side.",
    }
}
switch! {
    /// Which passes take the serialize flag.
    SerializePasses {
        All = "all": "Periodic and newidle passes.",
        Periodic = "periodic": "Periodic passes only; newidle passes run beside them.",
        Busy = "busy": "Only periodic passes of busy CPUs.",
    }
}
switch! {
    /// What a pass does that finds the serialize flag taken.
    SerializeOnLoss {
        Skip = "skip": "Nothing is stamped; it tries again at the next tick.",
        Backoff = "backoff": "Counts as balanced: last balance stamped, failures cleared, interval doubled.",
    }
}
switch! {
    /// An on/off switch that is on by default, in the words of a question.
    YesNo {
        Yes = "yes": "Yes.",
        No = "no": "No.",
    }
}
switch! {
    /// A switch that is on by default.
    OnOff {
        On = "on": "On.",
        Off = "off": "Off.",
    }
}
switch! {
    /// A switch that is off by default.
    OffOn {
        Off = "off": "Off.",
        On = "on": "On.",
    }
}
switch! {
    /// What counts as the cost of a newidle pass.
    NewidleCost {
        Least = "least": "The least time that the last four took: an interruption closes no gate.",
        Each = "each": "The time that each took, whatever came between (kernels).",
    }
}
switch! {
    /// How much imbalance between NUMA groups is left alone.
    NumaImbalance {
        Corrected = "corrected": "Busy-CPU difference, the busiest group's population, tolerance imb_numa_nr.",
        Kernel = "kernel": "Idle-CPU difference, the local population + 1, tolerance 2 (as 7.3).",
    }
}
switch! {
    /// Where new tasks start.
    ForkPlacement {
        Numa = "numa": "On the node that the rule of numa-imbalance gives, there on an idle CPU (kernels).",
        Near = "near": "On an idle CPU as near as possible.",
    }
}
switch! {
    /// Who balances for a CPU that is about to idle.
    Newidle {
        Plan = "plan": "The CPU itself, from a list of sources that the agent keeps up to date.",
        Agent = "agent": "The agent, asked by the CPU.",
        Off = "off": "Nobody.",
    }
}
switch! {
    /// How it is known that no CPU idles.
    NohzCount {
        Mask = "mask": "From the idle mask itself.",
        Counter = "counter": "From a counter changed at every idle entry and exit (kernels up to 6.19).",
    }
}
switch! {
    /// Which of two checks a busy tick makes first.
    NohzOrder {
        TimeFirst = "time-first": "The due time first: the shared line is left alone until then.",
        CountFirst = "count-first": "Whether anyone idles first.",
    }
}
switch! {
    /// What a busy tick does when nobody idles.
    NohzEmpty {
        Return = "return": "Returns at once.",
        Out = "out": "Goes on to kick for statistics if those are due.",
    }
}
switch! {
    /// Which idle CPU is asked to balance for all.
    Ilb {
        IdleCore = "idle-core": "One on a fully idle core, else the first idle one.",
        First = "first": "The first idle CPU.",
        RoundRobin = "round-robin": "The next idle CPU after the one asked last.",
    }
}
switch! {
    /// How the idle mask is kept.
    NohzMask {
        Node = "node": "Each node's part on its own cache lines.",
        Global = "global": "One mask for the machine (kernels).",
    }
}

macro_rules! tunables {
    ($(
        $(#[doc = $doc:literal])+
        $field:ident : $kind:tt $([$($range:tt)*])? = $name:literal in $section:literal;
    )+) => {
        /// One whole configuration of the policy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Tunables {
            $($(#[doc = $doc])+ pub $field: $kind,)+
        }

        impl Default for Tunables {
            fn default() -> Self {
                Self { $($field: tunables!(@default $kind $([$($range)*])?),)+ }
            }
        }

        /// Every setting, in the order of the policy.
        pub const TUNABLES: &[Tunable] = &[$(Tunable {
            name: $name,
            section: $section,
            domain: tunables!(@domain $kind $([$($range)*])?),
            doc: concat!($($doc),+).trim_ascii(),
        }),+];

        impl Tunables {
            /// Changes one setting; an error leaves all as they were.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), TunableError> {
                match name {
                    $($name => match tunables!(@parse value, $kind $([$($range)*])?) {
                        Some(v) => self.$field = v,
                        None => return Err(TunableError::BadValue {
                            name: $name,
                            value: value.to_string(),
                            domain: tunables!(@domain $kind $([$($range)*])?),
                        }),
                    },)+
                    _ => return Err(TunableError::UnknownName(name.to_string())),
                }
                Ok(())
            }

            /// One setting as text, if there is one of that name.
            pub fn get(&self, name: &str) -> Option<String> {
                match name {
                    $($name => Some(self.$field.to_string()),)+
                    _ => None,
                }
            }
        }
    };
    (@default u32 [$min:literal, $max:literal, $unit:literal, $default:literal]) => { $default };
    (@default $kind:tt) => { $kind::default() };
    (@domain u32 [$min:literal, $max:literal, $unit:literal, $default:literal]) => {
        Domain::Range { min: $min, max: $max, unit: $unit }
    };
    (@domain $kind:tt) => { Domain::Choices($kind::CHOICES) };
    (@parse $text:ident, u32 [$min:literal, $max:literal, $unit:literal, $default:literal]) => {
        $text.parse::<u32>().ok().filter(|v| ($min..=$max).contains(v))
    };
    (@parse $text:ident, $kind:tt) => { $kind::parse($text) };
}

tunables! {
    /// When the serialize flag is taken relative to the due check and the election.
    serialize_order: SerializeOrder = "serialize-order" in "P3";
    /// How many serialize flags there are.
    serialize_scope: SerializeScope = "serialize-scope" in "P3";
    /// Which passes take the serialize flag.
    serialize_passes: SerializePasses = "serialize-passes" in "P3";
    /// What a pass does that finds the flag taken.
    serialize_on_loss: SerializeOnLoss = "serialize-on-loss" in "P3";
    /// NUMA levels nearer than this distance are not serialized; 0 serializes all.
    serialize_min_distance: u32 [0, 255, "", 0] = "serialize-min-distance" in "P3";
    /// Whether a CPU that is not the balance CPU still advances its last-balance time.
    stamp_unelected: YesNo = "stamp-unelected" in "P3";
    /// Whether newidle passes go up to serialized levels.
    newidle_numa: YesNo = "newidle-numa" in "P3";
    /// How much imbalance between NUMA groups is left alone.
    numa_imbalance: NumaImbalance = "numa-imbalance" in "P5";
    /// Where new tasks start.
    fork_placement: ForkPlacement = "fork-placement" in "P5";
    /// Who balances for a CPU that is about to idle.
    newidle: Newidle = "newidle" in "P6";
    /// Whether levels at which newidle seldom finds work are tried in proportion to their success.
    newidle_dice: OnOff = "newidle-dice" in "P6";
    /// What counts as the cost of a newidle pass.
    newidle_cost: NewidleCost = "newidle-cost" in "P6";
    /// Whether one idle CPU balances for all idle ones.
    nohz: OnOff = "nohz" in "P7";
    /// How it is known that no CPU idles.
    nohz_count: NohzCount = "nohz-count" in "P7";
    /// Which check a busy tick makes first.
    nohz_order: NohzOrder = "nohz-order" in "P7";
    /// What a busy tick does when nobody idles.
    nohz_empty: NohzEmpty = "nohz-empty" in "P7";
    /// Which idle CPU is asked to balance for all.
    ilb: Ilb = "ilb" in "P7";
    /// Whether the idle balancing period is stretched with the number of idle CPUs.
    nohz_scale: OffOn = "nohz-scale" in "P7";
    /// How the idle mask is kept.
    nohz_mask: NohzMask = "nohz-mask" in "P7";
    /// Longest time a CPU may idle while a task that may run there waits elsewhere.
    wc_limit_ms: u32 [1, 10000, "ms", 10] = "wc-limit" in "P8";
}

impl Tunables {
    /// Applies `NAME=VALUE`.
    pub fn apply(&mut self, assignment: &str) -> Result<(), TunableError> {
        let (name, value) = assignment
            .split_once('=')
            .ok_or_else(|| TunableError::NoValue(assignment.to_string()))?;
        self.set(name.trim(), value.trim())
    }

    /// All settings with their values, in the order of [`TUNABLES`].
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        TUNABLES.iter().map(|t| (t.name, self.get(t.name).unwrap_or_default()))
    }
}

impl Serialize for Tunables {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_reads_back_as_written() {
        for tunable in TUNABLES {
            let values: Vec<String> = match tunable.domain {
                Domain::Choices(choices) => choices.iter().map(|c| c.name.to_string()).collect(),
                Domain::Range { min, max, .. } => vec![min.to_string(), max.to_string()],
            };
            for value in values {
                let mut t = Tunables::default();
                t.apply(&format!("{}={value}", tunable.name)).unwrap();
                assert_eq!(t.get(tunable.name).unwrap(), value, "{}", tunable.name);
            }
        }
    }

    #[test]
    fn the_first_choice_is_the_default() {
        for tunable in TUNABLES {
            if let Domain::Choices(choices) = tunable.domain {
                assert_eq!(tunable.default_value(), choices[0].name, "{}", tunable.name);
            }
        }
    }

    #[test]
    fn refusals_name_what_would_do_and_change_nothing() {
        let mut t = Tunables::default();
        let error = t.apply("serialize-order=never").unwrap_err().to_string();
        assert_eq!(
            error,
            "`never` is not a value of serialize-order; it takes elected, due, always"
        );
        assert!(
            t.apply("order=due").unwrap_err().to_string().contains("there are serialize-order,")
        );
        assert!(t.apply("wc-limit=0").unwrap_err().to_string().ends_with("takes 1 to 10000 ms"));
        assert!(t.apply("wc-limit=-1").is_err());
        assert!(t.apply("nohz").unwrap_err().to_string().contains("NAME=VALUE"));
        assert_eq!(t, Tunables::default());
    }
}
