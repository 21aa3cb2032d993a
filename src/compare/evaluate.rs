//! From a record to verdicts.
//!
//! Runs of one round are pairs. A pair counts as the logarithm of the ratio of its scores, so that
//! twice as fast and twice as slow weigh the same. A row (side, load, metric) is *better* or
//! *worse* only if all hold:
//!
//! 1. at least [`FEWEST_PAIRS`] valid pairs,
//! 2. the 95 % bootstrap interval of the mean leaves out "no change",
//! 3. the signed-rank test, corrected for the number of rows after Holm, is below 5 %,
//! 4. the change is beyond the [`noise_floor`]: what the baseline showed against itself (A/A).
//!
//! Everything else is *no call*, with the first of these that failed.

use super::plan::{FEWEST_PAIRS, Phase};
use super::record::Record;
use super::statistics::{
    Interval, deviation, holm, mean, mean_interval, median, quantile, signed_rank, smallest_p,
};
use super::workload::{Better, Load};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use serde::Serialize;
use std::collections::BTreeMap;

/// Level of the intervals.
pub const CONFIDENCE: f64 = 0.95;
/// Chance of a false call that is accepted, over all rows.
pub const SIGNIFICANCE: f64 = 0.05;
/// Resamples of each bootstrap.
const RESAMPLES: usize = 10_000;
/// Fewest pairs from which noise is judged.
const FEWEST_NOISE_PAIRS: usize = 3;

/// What a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Better than the baseline.
    Better,
    /// Worse than the baseline.
    Worse,
    /// The data do not decide.
    NoCall,
}

impl Verdict {
    /// As shown.
    pub fn text(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoCall => "no call",
        }
    }
}

/// What pairs say by themselves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Assessment {
    /// Number of valid pairs.
    pub pairs: usize,
    /// Mean change as a share of the baseline (0.05 is 5 % more); `None` without pairs.
    pub change: Option<f64>,
    /// Its interval, in the same unit; `None` of fewer than two pairs.
    pub interval: Option<Interval>,
    /// Two-sided p value of the signed-rank test.
    pub p: f64,
    /// Each pair's change, by round.
    pub changes: Vec<f64>,
}

/// Assesses pairs of (baseline, other) scores; pairs with a score that is not above 0 have no ratio
/// and are left out.
pub fn assess(pairs: &[(f64, f64)], resamples: usize, rng: &mut Pcg64) -> Assessment {
    let logs: Vec<f64> =
        pairs.iter().filter(|(a, b)| *a > 0.0 && *b > 0.0).map(|(a, b)| (b / a).ln()).collect();
    let share = |log: f64| log.exp_m1();
    let interval = mean_interval(&logs, CONFIDENCE, resamples, rng);
    Assessment {
        pairs: logs.len(),
        change: mean(&logs).map(share),
        interval: interval.map(|i| Interval { low: share(i.low), high: share(i.high) }),
        p: signed_rank(&logs).p,
        changes: logs.into_iter().map(share).collect(),
    }
}

/// The noise floor that an assessment of the baseline against itself gives: the difference it
/// showed, or the one that it could not have told from none (half its interval), whichever is
/// larger; `None` of too few pairs. It is a share upwards; downwards the same ratio counts, see
/// [`noise_band`].
pub fn noise_floor(noise: &Assessment) -> Option<f64> {
    let (change, interval) = noise.change.zip(noise.interval)?;
    let half = (interval.high.ln_1p() - interval.low.ln_1p()) / 2.0;
    (noise.pairs >= FEWEST_NOISE_PAIRS).then(|| change.ln_1p().abs().max(half).exp_m1())
}

/// The changes that are noise, from a floor: with 100 %, from half to twice.
pub fn noise_band(floor: f64) -> Interval {
    Interval { low: (-floor.ln_1p()).exp_m1(), high: floor }
}

/// The verdict, and for "no call" why. `p` is the corrected one of `rows` rows.
pub fn call(
    a: &Assessment,
    p: f64,
    rows: usize,
    floor: Option<f64>,
    better: Better,
) -> (Verdict, String) {
    let no_call = |why: String| (Verdict::NoCall, why);
    let (Some(change), Some(interval)) = (a.change, a.interval) else {
        return no_call(format!("{} valid pairs, {FEWEST_PAIRS} are needed", a.pairs));
    };
    if a.pairs < FEWEST_PAIRS {
        return no_call(format!("{} valid pairs, {FEWEST_PAIRS} are needed", a.pairs));
    }
    let Some(floor) = floor else {
        return no_call(format!(
            "the noise is unknown: fewer than {FEWEST_NOISE_PAIRS} valid A/A pairs"
        ));
    };
    if smallest_p(a.pairs) * rows as f64 > SIGNIFICANCE {
        let enough = (a.pairs..64).find(|&n| smallest_p(n) * rows as f64 <= SIGNIFICANCE);
        return no_call(format!("{rows} rows need {} pairs each", enough.unwrap_or(64)));
    }
    if interval.holds(0.0) {
        return no_call("the interval holds 0".into());
    }
    if p > SIGNIFICANCE {
        return no_call(format!("p = {p:.3} over {rows} rows"));
    }
    if noise_band(floor).holds(change) {
        return no_call(format!("inside the A/A noise of {:.1} %", 100.0 * floor));
    }
    let verdict = match (better, change > 0.0) {
        (Better::Higher, true) | (Better::Lower, false) => Verdict::Better,
        _ => Verdict::Worse,
    };
    (verdict, String::new())
}

/// The valid samples of one side, load and metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Samples {
    /// The scores in the order of the runs.
    pub values: Vec<f64>,
    /// Median.
    pub median: Option<f64>,
    /// Mean.
    pub mean: Option<f64>,
    /// Standard deviation.
    pub deviation: Option<f64>,
    /// 5th, 25th, 75th and 95th percentile.
    pub percentiles: Option<[f64; 4]>,
}

impl Samples {
    fn new(values: Vec<f64>) -> Self {
        let at = |q| quantile(&values, q);
        let percentiles = match [at(0.05), at(0.25), at(0.75), at(0.95)] {
            [Some(a), Some(b), Some(c), Some(d)] => Some([a, b, c, d]),
            _ => None,
        };
        Self {
            median: median(&values),
            mean: mean(&values),
            deviation: deviation(&values),
            percentiles,
            values,
        }
    }
}

/// One row of the result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Position of the side that is compared with the baseline.
    pub side: usize,
    /// The load level.
    pub load: Load,
    /// Position of the metric.
    pub metric: usize,
    /// The baseline's samples.
    pub baseline: Samples,
    /// The side's samples.
    pub samples: Samples,
    /// What the pairs say.
    #[serde(flatten)]
    pub assessment: Assessment,
    /// The p value, corrected over all rows.
    pub p_holm: f64,
    /// The baseline against itself.
    pub noise: Assessment,
    /// Changes up to this are noise; `None` if unknown.
    pub noise_floor: Option<f64>,
    /// What the row says.
    pub verdict: Verdict,
    /// Why there is no call; empty if there is one.
    pub reason: String,
}

/// Means of what was counted beside the score, by load and side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beside {
    /// The load level.
    pub load: Load,
    /// Name and unit to one value a side; `None` where a side does not have it.
    pub counters: BTreeMap<String, Vec<Option<f64>>>,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// By load, side, metric.
    pub rows: Vec<Row>,
    /// By load.
    pub beside: Vec<Beside>,
}

/// Evaluates a record. The same record gives the same result.
pub fn evaluate(record: &Record) -> Evaluation {
    let header = &record.header;
    let metrics = header.workload.metrics();
    let mut rng = Pcg64::seed_from_u64(header.seed);
    let mut rows = Vec::new();
    for &load in &header.plan.loads {
        let noise: Vec<Assessment> = (0..metrics.len())
            .map(|m| assess(&pairs(record, Phase::Noise, load, 1, m), RESAMPLES, &mut rng))
            .collect();
        for side in 1..header.sides.len() {
            for (metric, noise) in noise.iter().enumerate() {
                let pairs = pairs(record, Phase::Sides, load, side, metric);
                rows.push(Row {
                    side,
                    load,
                    metric,
                    baseline: Samples::new(scores(record, load, 0, metric)),
                    samples: Samples::new(scores(record, load, side, metric)),
                    assessment: assess(&pairs, RESAMPLES, &mut rng),
                    p_holm: 1.0,
                    noise_floor: noise_floor(noise),
                    noise: noise.clone(),
                    verdict: Verdict::NoCall,
                    reason: String::new(),
                });
            }
        }
    }
    let p: Vec<f64> = rows.iter().map(|r| r.assessment.p).collect();
    for (row, p) in rows.iter_mut().zip(holm(&p)) {
        row.p_holm = p;
        let better = metrics[row.metric].better;
        (row.verdict, row.reason) =
            call(&row.assessment, p, metrics_rows(header), row.noise_floor, better);
    }
    Evaluation {
        rows,
        beside: header.plan.loads.iter().map(|&load| beside(record, load)).collect(),
    }
}

/// Number of rows over which is corrected.
fn metrics_rows(header: &super::record::Header) -> usize {
    header.plan.loads.len() * (header.sides.len() - 1) * header.workload.metrics().len()
}

/// Pairs of valid scores of slot 0 and another, by round.
fn pairs(record: &Record, phase: Phase, load: Load, slot: usize, metric: usize) -> Vec<(f64, f64)> {
    let runs = record.by_step();
    let score = |round, slot| {
        let run = runs.get(&(phase, round, load, slot))?;
        if run.invalid.is_none() { run.scores.get(metric).copied() } else { None }
    };
    let rounds = record.header.plan.rounds(phase);
    (0..rounds).filter_map(|round| Some((score(round, 0)?, score(round, slot)?))).collect()
}

fn scores(record: &Record, load: Load, side: usize, metric: usize) -> Vec<f64> {
    valid(record, load, side).filter_map(|run| run.scores.get(metric).copied()).collect()
}

fn valid(record: &Record, load: Load, side: usize) -> impl Iterator<Item = &super::record::Run> {
    record.runs.iter().filter(move |run| {
        run.step.phase == Phase::Sides
            && run.step.load == load
            && run.step.side == side
            && run.invalid.is_none()
    })
}

fn beside(record: &Record, load: Load) -> Beside {
    let sides = record.header.sides.len();
    let mut found: BTreeMap<String, Vec<Vec<f64>>> = BTreeMap::new();
    for side in 0..sides {
        for (name, value) in valid(record, load, side).flat_map(|run| &run.counters) {
            found.entry(name.clone()).or_insert_with(|| vec![Vec::new(); sides])[side].push(*value);
        }
    }
    let means = |values: Vec<Vec<f64>>| values.iter().map(|v| mean(v)).collect();
    Beside { load, counters: found.into_iter().map(|(name, v)| (name, means(v))).collect() }
}

/// Whether every row's interval is at most plus or minus `precision`.
pub fn precise_enough(record: &Record, precision: f64) -> bool {
    evaluate(record).rows.iter().all(|row| {
        row.assessment.pairs >= FEWEST_PAIRS
            && row.assessment.interval.is_some_and(|i| i.half_width() <= precision)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An assessment of that many pairs that all changed by about `change`.
    fn assessed(pairs: usize, change: f64) -> Assessment {
        let wobble = |i: usize| 1.0 + change + 0.001 * (i % 3) as f64;
        let pairs: Vec<(f64, f64)> = (0..pairs).map(|i| (2.0, 2.0 * wobble(i))).collect();
        assess(&pairs, 1_000, &mut Pcg64::seed_from_u64(1))
    }

    fn called(
        a: &Assessment,
        rows: usize,
        floor: Option<f64>,
        better: Better,
    ) -> (Verdict, String) {
        call(a, (a.p * rows as f64).min(1.0), rows, floor, better)
    }

    #[test]
    fn the_direction_decides_what_better_means() {
        let (more, less) = (assessed(8, 0.1), assessed(8, -0.1));
        let verdict = |a, better| called(a, 1, Some(0.02), better).0;
        assert_eq!(verdict(&more, Better::Higher), Verdict::Better);
        assert_eq!(verdict(&more, Better::Lower), Verdict::Worse);
        assert_eq!(verdict(&less, Better::Lower), Verdict::Better);
        assert_eq!(verdict(&less, Better::Higher), Verdict::Worse);
    }

    #[test]
    fn each_lack_alone_prevents_a_call_and_is_named() {
        let good = assessed(8, 0.1);
        let none = assess(&[], 100, &mut Pcg64::seed_from_u64(1));
        for (a, rows, floor, part) in [
            (&none, 1, Some(0.02), "0 valid pairs, 6 are needed"),
            (&assessed(5, 0.1), 1, Some(0.02), "5 valid pairs, 6 are needed"),
            (&good, 1, None, "the noise is unknown"),
            (&assessed(6, 0.1), 2, Some(0.02), "2 rows need 7 pairs each"),
            (&assessed(8, -0.001), 1, Some(0.0), "the interval holds 0"),
            (&good, 1, Some(0.2), "inside the A/A noise of 20.0 %"),
        ] {
            let (verdict, reason) = called(a, rows, floor, Better::Lower);
            assert_eq!((verdict, reason.contains(part)), (Verdict::NoCall, true), "{reason}");
        }
        let (verdict, reason) = call(&good, 0.06, 1, Some(0.02), Better::Lower);
        assert_eq!((verdict, reason.as_str()), (Verdict::NoCall, "p = 0.060 over 1 rows"));
    }

    #[test]
    fn twice_and_half_weigh_the_same() {
        let a = assess(&[(1.0, 2.0), (2.0, 1.0)], 100, &mut Pcg64::seed_from_u64(1));
        assert!(a.change.unwrap().abs() < 1e-12);
        let zeros = assess(&[(0.0, 1.0), (1.0, 0.0)], 100, &mut Pcg64::seed_from_u64(1));
        assert_eq!((zeros.pairs, zeros.change), (0, None));
    }

    #[test]
    fn noise_is_what_was_seen_or_could_not_be_excluded() {
        let mut noise = assessed(6, 0.0);
        noise.change = Some(-0.03);
        noise.interval = Some(Interval { low: -0.05, high: -0.01 });
        // 3 % less is 1 / 0.97 the other way.
        assert!((noise_floor(&noise).unwrap() - (1.0 / 0.97 - 1.0)).abs() < 1e-12);
        // From half to twice: as far as twice to either side.
        noise.interval = Some(Interval { low: -0.5, high: 1.0 });
        assert!((noise_floor(&noise).unwrap() - 1.0).abs() < 1e-12);
        let band = noise_band(1.0);
        assert!((band.low + 0.5).abs() < 1e-12 && band.high == 1.0);
        noise.pairs = 2;
        assert_eq!(noise_floor(&noise), None);
    }
}
