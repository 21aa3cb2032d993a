//! How a result is shown: table, JSON, CSV, a page.

mod csv;
mod forest;
mod html;
mod page;
mod svg;
mod text;

pub use csv::csv;
pub use html::html;
pub use text::text;

use super::evaluate::{Evaluation, Row, Verdict};
use super::plan::{Length, Phase};
use super::record::Record;
use super::side::Scheduler;
use serde::Serialize;

/// Version of the JSON form; raised when a field changes its meaning or goes away.
pub const JSON_VERSION: u32 = 1;

/// The JSON form: the whole record, every sample included, and what follows from it.
#[derive(Debug, Serialize)]
pub struct Json<'a> {
    /// [`JSON_VERSION`].
    pub version: u32,
    /// The record; from it everything else can be computed again.
    pub record: &'a Record,
    /// The result.
    pub evaluation: &'a Evaluation,
}

/// A number with about four digits, without an exponent.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => grouped(value),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        v if v >= 0.001 || v == 0.0 => format!("{value:.3}"),
        _ => format!("{value:.6}"),
    }
}

/// A whole number with commas between thousands.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::from(if value < 0.0 { "-" } else { "" });
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// How many of something: `1 node`, `2 nodes`.
pub(crate) fn count(n: usize, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
}

/// A change as a signed percentage.
fn percent(share: f64) -> String {
    format!("{:+.1} %", 100.0 * share)
}

/// The interval of a row, as a percentage.
fn interval(row: &Row) -> String {
    row.assessment.interval.map_or_else(
        || "-".into(),
        |i| format!("{:+.1} to {:+.1} %", 100.0 * i.low, 100.0 * i.high),
    )
}

/// The verdict, with the reason where there is no call.
fn verdict(row: &Row) -> String {
    match (row.verdict, row.reason.as_str()) {
        (Verdict::NoCall, reason) if !reason.is_empty() => format!("no call: {reason}"),
        (verdict, _) => verdict.text().to_string(),
    }
}

/// What was compared, in one line.
fn title(record: &Record) -> String {
    let names: Vec<&str> = record.header.sides.iter().map(|s| s.name.as_str()).collect();
    format!("{}: {}", record.header.workload.title(), names.join(" | "))
}

/// Where and how, label by value.
fn facts(record: &Record) -> Vec<(&'static str, String)> {
    let header = &record.header;
    let e = &header.environment;
    let joined = |pairs: Vec<String>, none: &str| {
        if pairs.is_empty() { none.to_string() } else { pairs.join(", ") }
    };
    let parts = |name: &str| e.topology[name].as_array().map_or(0, Vec::len);
    let loaded = header.sides.iter().any(|s| s.scheduler != Scheduler::Kernel);
    let last = record.times_s().last().copied().zip(record.runs.last());
    let minutes = last.map_or(0.0, |(at_s, run)| (at_s + run.elapsed_s) / 60.0);
    let mut facts = vec![
        ("kernel", format!("{} ({})", e.kernel, e.kernel_build)),
        ("kernel command line", e.command_line.clone()),
        (
            "machine",
            [
                count(e.cpus as usize, "CPU"),
                count(parts("nodes"), "node"),
                count(parts("llcs"), "LLC"),
            ]
            .join(", "),
        ),
        (
            "governor",
            joined(e.governors.iter().map(|(g, n)| format!("{g} on {n} CPUs")).collect(), "none"),
        ),
        (
            "switches",
            joined(e.switches.iter().map(|(s, v)| format!("{s}={v}")).collect(), "none readable"),
        ),
        (
            "versions",
            joined(e.versions.iter().map(|(p, v)| format!("{p} {v}")).collect(), "unknown"),
        ),
        (
            "sides",
            if !loaded {
                "the kernel's scheduler only".into()
            } else if header.switched_live {
                "switched on one running scheduler".into()
            } else {
                "loaded afresh for each run".into()
            },
        ),
        ("rounds", rounds(record)),
        ("seed", header.seed.to_string()),
        ("started", timestamp(header.started_s)),
        ("took", format!("{minutes:.1} min")),
        (
            "sessions",
            match record.resumed.iter().filter(|boot| **boot != e.boot_id).count() {
                0 => format!("{}", 1 + record.resumed.len()),
                _ => format!("{}, over more than one boot", 1 + record.resumed.len()),
            },
        ),
        ("command", command_line(&header.command)),
    ];
    if !record.changed.is_empty() {
        facts.insert(0, ("CHANGED MEANWHILE", record.changed.join("; ")));
    }
    facts
}

/// How many rounds were made of those that were planned.
fn rounds(record: &Record) -> String {
    let plan = &record.header.plan;
    let made = |phase| {
        (0..plan.rounds(phase)).filter(|&r| record.has_round(&plan.round(phase, r))).count()
    };
    let sides = match plan.length {
        Length::Rounds(n) => format!("{} of {n} A/B", made(Phase::Sides)),
        Length::Until { precision, at_most } => format!(
            "{} A/B (until ±{} %, at most {at_most})",
            made(Phase::Sides),
            short_percent(precision)
        ),
    };
    let noise = format!("{} of {} A/A", made(Phase::Noise), plan.noise_rounds);
    format!("{noise}, {sides}, {} warm-up", plan.warmup)
}

/// A percentage without needless digits: 0.02 is `2`.
fn short_percent(share: f64) -> String {
    let text = format!("{:.2}", 100.0 * share);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Words as a shell takes them.
fn command_line(words: &[String]) -> String {
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}

/// A time in UTC, `2026-12-01 12:30:00 UTC`, from seconds since 1970.
pub(crate) fn timestamp(seconds: f64) -> String {
    let total = seconds.max(0.0) as i64;
    let (days, rest) = (total.div_euclid(86_400), total.rem_euclid(86_400));
    // Days to a date in the Gregorian calendar: eras of 400 years that begin in March.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_but_exact_enough() {
        for (value, text) in [
            (1_234_567.8, "1,234,568"),
            (-1234.0, "-1,234"),
            (123.46, "123.5"),
            (1.234, "1.23"),
            (0.0123, "0.012"),
            (0.0, "0.000"),
            (0.000_012, "0.000012"),
        ] {
            assert_eq!(short(value), text);
        }
        assert_eq!(percent(-0.05), "-5.0 %");
    }

    #[test]
    fn a_command_can_be_given_again() {
        let words = ["baton", "compare", "kernel", "cmd:./other --x"].map(String::from);
        assert_eq!(command_line(&words), "baton compare kernel 'cmd:./other --x'");
        assert_eq!([0.02, 0.0025, 1.0].map(short_percent), ["2", "0.25", "100"]);
    }

    #[test]
    fn times_are_dates() {
        assert_eq!(timestamp(0.0), "1970-01-01 00:00:00 UTC");
        // date -u -d '2024-02-29 23:59:58' +%s
        assert_eq!(timestamp(1_709_251_198.0), "2024-02-29 23:59:58 UTC");
        assert_eq!(timestamp(1_796_083_200.0), "2026-12-01 00:00:00 UTC");
    }
}
