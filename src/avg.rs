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

/// A stored average `dt` later, the rate having been `rate` (whole units) meanwhile. Returns
/// whole units.
pub fn read(stored: u64, rate: u64, dt: Nanos) -> u64 {
    let f = factor(dt);
    let value = stored as f64 * f + (rate << AVG_SHIFT) as f64 * (1.0 - f);
    (value / f64::from(1u32 << AVG_SHIFT)).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF_LIFE: Nanos = Nanos(32 << 20);

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
