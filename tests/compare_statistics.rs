//! How often a verdict is wrong, on simulated samples: 2,000 comparisons of a thing with itself,
//! and as many of a thing with one that is 5 % slower.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use scx_baton::compare::evaluate::{Assessment, SIGNIFICANCE, Verdict, assess, call, noise_floor};
use scx_baton::compare::plan::FEWEST_PAIRS;
use scx_baton::compare::statistics::holm;
use scx_baton::compare::workload::Better;

const TRIALS: usize = 2_000;
/// Fewer than a real comparison takes, for time; it makes the interval coarser, not narrower.
const RESAMPLES: usize = 400;
const NOISE: f64 = 0.02;

/// Two independent scores around 1 and around `mean`.
fn pair(rng: &mut Pcg64, mean: f64) -> (f64, f64) {
    // Box and Muller: two standard normal numbers from two uniform ones.
    let (u, v) = (1.0 - rng.random::<f64>(), rng.random::<f64>());
    let (radius, angle) = ((-2.0 * u.ln()).sqrt(), std::f64::consts::TAU * v);
    (1.0 + NOISE * radius * angle.cos(), mean * (1.0 + NOISE * radius * angle.sin()))
}

fn pairs(rng: &mut Pcg64, n: usize, mean: f64) -> Vec<(f64, f64)> {
    (0..n).map(|_| pair(rng, mean)).collect()
}

/// Verdicts of one comparison with that many rows.
fn verdicts(rng: &mut Pcg64, rows: usize, n: usize, noise_pairs: usize, mean: f64) -> Vec<Verdict> {
    let mut sampled = |n, mean| {
        let pairs = pairs(rng, n, mean);
        assess(&pairs, RESAMPLES, rng)
    };
    let all: Vec<_> = (0..rows).map(|_| (sampled(n, mean), sampled(noise_pairs, 1.0))).collect();
    let p: Vec<f64> = all.iter().map(|(a, _)| a.p).collect();
    let verdict =
        |((a, noise), p): (&(_, _), f64)| call(a, p, rows, noise_floor(noise), Better::Lower).0;
    all.iter().zip(holm(&p)).map(verdict).collect()
}

/// Share of comparisons with any false call.
fn false_calls(seed: u64, rows: usize, n: usize, noise_pairs: usize) -> f64 {
    let mut rng = Pcg64::seed_from_u64(seed);
    let wrong = (0..TRIALS)
        .filter(|_| {
            let verdicts = verdicts(&mut rng, rows, n, noise_pairs, 1.0);
            verdicts.iter().any(|v| *v != Verdict::NoCall)
        })
        .count();
    wrong as f64 / TRIALS as f64
}

#[test]
fn a_thing_compared_with_itself_is_seldom_called() {
    for (seed, n, noise_pairs) in [(1, 6, 6), (2, 10, 6), (3, 10, 3)] {
        let share = false_calls(seed, 1, n, noise_pairs);
        println!("{n} pairs, {noise_pairs} A/A pairs: {:.2} % false calls", 100.0 * share);
        assert!(share <= SIGNIFICANCE, "{n} pairs: {share}");
    }
}

#[test]
fn many_rows_do_not_add_up_to_a_false_call() {
    let share = false_calls(4, 4, 10, 6);
    println!("4 rows: {:.2} % of comparisons with a false call", 100.0 * share);
    assert!(share <= SIGNIFICANCE, "{share}");
}

/// As `--until 2%` does: looks after every other round from the sixth on, and ends when the
/// interval is narrow enough.
#[test]
fn looking_often_makes_no_difference_out_of_none() {
    const PRECISION: f64 = 0.02;
    const AT_MOST: usize = 40;
    let mut rng = Pcg64::seed_from_u64(6);
    let (mut wrong, mut rounds) = (0, 0);
    for _ in 0..TRIALS {
        let noise = pairs(&mut rng, 6, 1.0);
        let floor = noise_floor(&assess(&noise, RESAMPLES, &mut rng));
        let mut scores = pairs(&mut rng, FEWEST_PAIRS, 1.0);
        let mut assessment = assess(&scores, RESAMPLES, &mut rng);
        let wide = |a: &Assessment| a.interval.is_none_or(|i| i.half_width() > PRECISION);
        while wide(&assessment) && scores.len() < AT_MOST {
            scores.extend(pairs(&mut rng, 2, 1.0));
            assessment = assess(&scores, RESAMPLES, &mut rng);
        }
        rounds += scores.len();
        let (verdict, _) = call(&assessment, assessment.p, 1, floor, Better::Lower);
        wrong += usize::from(verdict != Verdict::NoCall);
    }
    let share = wrong as f64 / TRIALS as f64;
    let mean = rounds as f64 / TRIALS as f64;
    println!("until 2 %, {mean:.1} rounds on average: {:.2} % false calls", 100.0 * share);
    assert!(mean > 7.0 && share <= SIGNIFICANCE, "{mean} rounds: {share}");
}

#[test]
fn five_per_cent_are_found_with_ten_pairs() {
    for (noise_pairs, expected) in [(6, 0.9), (10, 0.95)] {
        let mut rng = Pcg64::seed_from_u64(5);
        let mut found = 0;
        for _ in 0..TRIALS {
            match verdicts(&mut rng, 1, 10, noise_pairs, 1.05)[0] {
                Verdict::Worse => found += 1,
                Verdict::Better => panic!("a slower thing was called better"),
                Verdict::NoCall => {}
            }
        }
        let share = f64::from(found) / TRIALS as f64;
        println!("a 5 % shift, {noise_pairs} A/A pairs: found in {:.1} %", 100.0 * share);
        assert!(share >= expected, "{noise_pairs} A/A pairs: {share}");
    }
}
