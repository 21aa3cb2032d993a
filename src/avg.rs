//! Decaying averages on the kernel's terms: the twin of `src/bpf/avg.bpf.h`, for readers that
//! bring a stored average to now and for hosts without a BPF side.
//!
//! `avg(t + dt) = avg(t) · f + rate · (1 − f)` with `f = 2^(−dt / half-life)`; the half-life is
//! 32 periods of 2^20 ns, about 33.6 ms (kernel: `kernel/sched/pelt.c`).

use crate::units::Nanos;

/// Stored averages are in 1/1024 of their unit.
pub const AVG_SHIFT: u32 = 10;

const PERIOD_SHIFT: u32 = 20;
const HALF_LIFE_PERIODS: u64 = 32;

/// What is left of 1 after `dt`.
pub fn factor(dt: Nanos) -> f64 {
    let half_life = (HALF_LIFE_PERIODS << PERIOD_SHIFT) as f64;
    (-(dt.0 as f64) / half_life).exp2()
}

const ONE_SHIFT: u32 = 26;

/// 2^(-i/32) in 1/2^26, as in `avg.bpf.h`; one more entry than periods, to interpolate the last.
const DECAY: [u32; 33] = [
    67108864, 65670859, 64263668, 62886630, 61539100, 60220444, 58930044, 57667294, 56431603,
    55222390, 54039088, 52881142, 51748008, 50639155, 49554062, 48492221, 47453133, 46436310,
    45441276, 44467563, 43514715, 42582284, 41669834, 40776935, 39903169, 39048127, 38211406,
    37392614, 36591368, 35807290, 35040014, 34289178, 33554432,
];

/// The decay over a time, to be applied to any number of averages: a worker reads four of each CPU
/// in each round, and whole numbers are quick everywhere.
#[derive(Clone, Copy, Debug)]
pub struct Decay(u64);

impl Decay {
    /// The decay over `dt`.
    pub fn over(dt: Nanos) -> Self {
        let periods = dt.0 >> PERIOD_SHIFT;
        if periods >= HALF_LIFE_PERIODS * u64::from(ONE_SHIFT) {
            return Self(0);
        }
        let i = (periods % HALF_LIFE_PERIODS) as usize;
        let part = dt.0 & ((1 << PERIOD_SHIFT) - 1);
        let (here, next) = (u64::from(DECAY[i]), u64::from(DECAY[i + 1]));
        let between = here - (((here - next) * part) >> PERIOD_SHIFT);
        Self(between >> (periods / HALF_LIFE_PERIODS))
    }

    /// A stored average after that time, the rate having been `rate` (whole units) meanwhile. Returns
    /// whole units.
    pub fn read(self, stored: u64, rate: u64) -> u64 {
        let (left, gone) = (u128::from(self.0), u128::from((1 << ONE_SHIFT) - self.0));
        let value = u128::from(stored) * left + (u128::from(rate) << AVG_SHIFT) * gone;
        let whole = ONE_SHIFT + AVG_SHIFT;
        ((value + (1 << (whole - 1))) >> whole) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF_LIFE: Nanos = Nanos(32 << 20);

    fn read(stored: u64, rate: u64, dt: Nanos) -> u64 {
        Decay::over(dt).read(stored, rate)
    }

    #[test]
    fn whole_numbers_decay_as_the_formula() {
        for dt in (0..2_000_000_000u64).step_by(777_777).map(Nanos) {
            let (whole, exact) = (Decay::over(dt).0 as f64 / f64::from(1 << ONE_SHIFT), factor(dt));
            assert!((whole - exact).abs() < 1e-4, "{dt}: {whole} {exact}");
        }
        assert_eq!(read(u64::MAX >> 1, 0, Nanos::ZERO), 1 << 53);
    }

    #[test]
    fn halves_every_half_life() {
        assert_eq!(read(1024 << AVG_SHIFT, 0, HALF_LIFE), 512);
        assert_eq!(read(0, 1024, HALF_LIFE), 512);
        assert_eq!(read(0, 1024, Nanos(u64::MAX)), 1024);
    }

    #[test]
    fn many_steps_are_one_step() {
        let mut stored = 300.0;
        for _ in 0..64 {
            let f = factor(Nanos(1 << 20));
            stored = stored * f + 1024.0 * (1.0 - f);
        }
        let once = read(300 << AVG_SHIFT, 1024, Nanos(64 << 20));
        assert!((stored - once as f64).abs() < 1.0, "{stored} {once}");
    }
}
