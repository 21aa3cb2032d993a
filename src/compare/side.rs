//! What is compared: the kernel's scheduler, scx_baton with flags, or any other command.

use crate::policy::tunables::{TUNABLES, Tunables};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// As shown: the text it was given by, with a number after it if another side has the same.
    pub name: String,
    /// What schedules.
    pub scheduler: Scheduler,
}

/// What schedules on a side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduler {
    /// The kernel's own; no sched_ext scheduler is attached.
    Kernel,
    /// scx_baton.
    Baton {
        /// Options that are fixed when it is loaded, as given.
        load_options: Vec<String>,
        /// All policy settings, by name.
        settings: BTreeMap<String, String>,
    },
    /// Any other sched_ext scheduler.
    Command {
        /// Program and arguments.
        words: Vec<String>,
    },
}

/// What brings a side into force after another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    /// It is in force already.
    Stay,
    /// These settings change on the running scheduler (`NAME=VALUE`).
    Set(Vec<String>),
    /// The scheduler is stopped and the other one started.
    Reload,
}

impl Scheduler {
    fn parse(text: &str) -> Result<Self> {
        let words = |text: &str| {
            shlex::split(text).with_context(|| format!("`{text}` has a quote without its end"))
        };
        match text.split_once(':') {
            None if text == "kernel" => Ok(Self::Kernel),
            None if text == "baton" => Self::baton(&[]),
            Some(("baton", flags)) => Self::baton(&words(flags)?),
            Some(("cmd", command)) => match words(command)? {
                words if words.is_empty() => bail!("`cmd:` lacks its command"),
                words => Ok(Self::Command { words }),
            },
            _ => bail!("`{text}` is no side: use kernel, baton, baton:FLAGS or cmd:COMMAND"),
        }
    }

    /// Divides flags into policy settings, which can be switched live, and all others.
    fn baton(flags: &[String]) -> Result<Self> {
        let mut settings = Tunables::default();
        let mut load_options = Vec::new();
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (flag.as_str(), None),
            };
            let tunable =
                name.strip_prefix("--").and_then(|n| TUNABLES.iter().find(|t| t.name == n));
            let Some(tunable) = tunable else {
                load_options.push(flag.clone());
                continue;
            };
            let value = value
                .or_else(|| flags.next().cloned())
                .with_context(|| format!("`{name}` lacks its value"))?;
            settings.set(tunable.name, &value).map_err(|e| anyhow::anyhow!("{e}"))?;
        }
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value)).collect();
        Ok(Self::Baton { load_options, settings })
    }

    /// Whether only tasks of policy SCHED_EXT are its own.
    pub fn is_partial(&self) -> bool {
        match self {
            Self::Kernel => false,
            Self::Baton { load_options: words, .. } | Self::Command { words } => {
                words.iter().any(|w| w == "--partial" || w == "-p")
            }
        }
    }

    /// The arguments of scx_baton that load this side; nothing for the others.
    pub fn baton_arguments(&self) -> Vec<String> {
        let Self::Baton { load_options, settings } = self else { return Vec::new() };
        let changed = TUNABLES.iter().filter_map(|t| {
            let value = settings.get(t.name).filter(|v| **v != t.default_value())?;
            Some(format!("--{}={value}", t.name))
        });
        load_options.iter().cloned().chain(changed).collect()
    }

    /// What brings this one into force after `before`. Sides that are loaded are loaded afresh for
    /// each run, also after themselves, so that every run starts alike.
    pub fn after(&self, before: &Self) -> Transition {
        match (before, self) {
            (Self::Kernel, Self::Kernel) => Transition::Stay,
            (
                Self::Baton { load_options: old, settings: was },
                Self::Baton { load_options: new, settings },
            ) if old == new => {
                let changes = settings.iter().filter(|(name, value)| was.get(*name) != Some(value));
                Transition::Set(changes.map(|(name, value)| format!("{name}={value}")).collect())
            }
            _ => Transition::Reload,
        }
    }
}

/// Reads the sides of a comparison, the baseline first.
///
/// # Errors
/// One sentence: fewer than two sides, no such kind of side, a bad setting.
pub fn parse_sides(texts: &[String]) -> Result<Vec<Side>> {
    if texts.len() < 2 {
        bail!("a comparison needs two sides, such as `kernel baton`");
    }
    let mut sides: Vec<Side> = Vec::new();
    for text in texts {
        let scheduler = Scheduler::parse(text.trim())?;
        let same = sides.iter().filter(|s| s.name.split(" #").next() == Some(text.trim())).count();
        let name = match same {
            0 => text.trim().to_string(),
            n => format!("{} #{}", text.trim(), n + 1),
        };
        sides.push(Side { name, scheduler });
    }
    Ok(sides)
}

/// Whether going round these sides never reloads anything: the runs can stay on one scheduler.
pub fn switched_live(sides: &[Side]) -> bool {
    sides
        .iter()
        .zip(sides.iter().cycle().skip(1))
        .all(|(a, b)| b.scheduler.after(&a.scheduler) != Transition::Reload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(text: &str) -> Scheduler {
        Scheduler::parse(text).unwrap()
    }

    #[test]
    fn policy_settings_switch_live_and_others_reload() {
        let a = side("baton:--workers cpu --serialize-order always");
        let b = side("baton:--workers cpu");
        assert_eq!(b.after(&a), Transition::Set(vec!["serialize-order=elected".into()]));
        assert_eq!(a.after(&b), Transition::Set(vec!["serialize-order=always".into()]));
        assert_eq!(b.after(&b), Transition::Set(Vec::new()));
        assert_eq!(a.baton_arguments(), ["--workers", "cpu", "--serialize-order=always"]);
        assert_eq!(side("baton").after(&b), Transition::Reload);
        assert_eq!(side("baton").after(&Scheduler::Kernel), Transition::Reload);
        assert_eq!(Scheduler::Kernel.after(&Scheduler::Kernel), Transition::Stay);
        let rusty = side("cmd:scx_rusty -s 20000");
        assert_eq!(rusty.after(&rusty), Transition::Reload);
    }

    #[test]
    fn sides_of_the_same_text_have_different_names() {
        let texts = ["baton", "baton", "kernel"].map(String::from);
        let sides = parse_sides(&texts).unwrap();
        let names: Vec<&str> = sides.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["baton", "baton #2", "kernel"]);
        assert!(!switched_live(&sides) && switched_live(&sides[..2]));
    }

    #[test]
    fn a_bad_side_is_told_in_one_sentence() {
        for (text, part) in [
            ("eevdf", "use kernel, baton, baton:FLAGS or cmd:COMMAND"),
            ("cmd:", "lacks its command"),
            ("cmd:'x", "a quote without its end"),
            ("baton:--serialize-order=never", "takes elected, due, always"),
            ("baton:--serialize-order", "lacks its value"),
        ] {
            let error = Scheduler::parse(text).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
        assert!(parse_sides(&["kernel".into()]).is_err());
    }
}
