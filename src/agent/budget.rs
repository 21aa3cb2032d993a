//! How much of the machine the agent may use. On real hardware a round takes microseconds and this
//! never matters; on a machine where it takes milliseconds (an emulated one, or one whose host is
//! crowded) the balance of busy CPUs comes later instead of taking their time.

use crate::units::Nanos;

/// What one worker owes its CPUs. Every round is a debt; it is paid off at the rate at which the
/// worker may use CPU time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// CPU time for each 1,000 of time; 0: no limit.
    permille: u64,
    /// CPU time spent beyond what was allowed by `at`.
    debt: Nanos,
    at: Nanos,
}

impl Budget {
    /// For a worker of `nr_cpus` CPUs that may use `permille` thousandths of their time.
    pub(crate) fn new(permille: u32, nr_cpus: usize) -> Self {
        Self { permille: u64::from(permille) * nr_cpus as u64, debt: Nanos::ZERO, at: Nanos::ZERO }
    }

    /// Notes at `now` that `cost` of CPU time was used.
    pub(crate) fn charge(&mut self, now: Nanos, cost: Nanos) {
        if self.permille > 0 {
            let paid = (now - self.at).0.saturating_mul(self.permille) / 1_000;
            self.debt = (self.debt - Nanos(paid)) + cost;
            self.at = now;
        }
    }

    /// When a round that is due at `due` may take place: once the debt is paid, but no more than
    /// `patience` late.
    pub(crate) fn put_off(&self, due: Nanos, patience: Nanos) -> Nanos {
        let paid = match self.permille {
            0 => Nanos::ZERO,
            rate => self.at + Nanos(self.debt.0.saturating_mul(1_000) / rate),
        };
        due.max(paid.min(due + patience))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Nanos {
        Nanos::from_ms(n)
    }

    /// Rounds that are due `every` so often and cost `cost` each; returns how many there were in 10 s.
    fn rounds(mut budget: Budget, every: Nanos, cost: Nanos) -> u64 {
        let (mut now, mut nr) = (Nanos::ZERO, 0);
        while now < ms(10_000) {
            budget.charge(now, cost);
            now = budget.put_off(now + every, every);
            nr += 1;
        }
        nr
    }

    #[test]
    fn cheap_rounds_are_never_late() {
        assert_eq!(rounds(Budget::new(6, 4), ms(64), Nanos::from_us(30)), 157);
    }

    #[test]
    fn dear_rounds_take_their_share_and_no_more() {
        // 2 ms a round against 24 thousandths: one every 83 ms.
        let nr = rounds(Budget::new(6, 4), ms(64), ms(2));
        assert!((119..=122).contains(&nr), "{nr}");
    }

    #[test]
    fn a_round_is_late_by_its_patience_at_most() {
        assert_eq!(rounds(Budget::new(6, 4), ms(64), ms(500)), 79);
    }

    #[test]
    fn without_a_limit_nothing_is_put_off() {
        assert_eq!(rounds(Budget::new(0, 4), ms(64), ms(500)), 157);
    }

    #[test]
    fn rest_pays_but_does_not_save() {
        let mut budget = Budget::new(10, 1);
        budget.charge(ms(100_000), ms(1));
        assert_eq!(budget.put_off(ms(100_001), ms(1_000)), ms(100_100));
        budget.charge(ms(100_050), Nanos::ZERO);
        assert_eq!(budget.put_off(ms(100_051), ms(1_000)), ms(100_100));
        assert_eq!(budget.put_off(ms(100_200), ms(1_000)), ms(100_200));
    }
}
