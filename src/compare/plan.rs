//! Which runs are made, in which order.
//!
//! First each side warms up. Then the baseline is compared with itself (A/A): what differs there is
//! noise. Then the sides take turns; the order is turned round with every round (A B, B A, …), so
//! that a drift of the machine falls on all alike. Within a round each load level has its turn.

use super::workload::Load;
use serde::{Deserialize, Serialize};

/// Fewest pairs from which a verdict is drawn.
pub const FEWEST_PAIRS: usize = 6;

/// Most rounds of a part that can be asked for.
pub const MOST_ROUNDS: u32 = 10_000;

/// Part of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Not counted.
    WarmUp,
    /// The baseline against itself.
    Noise,
    /// The sides against each other.
    Sides,
}

impl Phase {
    /// All, in order.
    pub const ALL: [Self; 3] = [Self::WarmUp, Self::Noise, Self::Sides];

    /// As shown.
    pub fn title(self) -> &'static str {
        match self {
            Self::WarmUp => "warm-up",
            Self::Noise => "A/A",
            Self::Sides => "A/B",
        }
    }
}

/// When the comparison is long enough.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// After so many rounds.
    Rounds(u32),
    /// When every interval is at most plus or minus `precision` (0.02 is 2 %), or after `at_most`
    /// rounds. The width alone decides, never the verdict, so that looking often does no harm.
    Until {
        /// Largest half-width, as a share.
        precision: f64,
        /// Most rounds.
        at_most: u32,
    },
}

impl Length {
    /// Most rounds.
    pub fn at_most(self) -> u32 {
        match self {
            Self::Rounds(n) | Self::Until { at_most: n, .. } => n,
        }
    }
}

/// The plan of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Number of sides; the first is the baseline.
    pub sides: usize,
    /// Load levels.
    pub loads: Vec<Load>,
    /// Runs of each side and load that are not counted.
    pub warmup: u32,
    /// Rounds of the baseline against itself.
    pub noise_rounds: u32,
    /// Rounds of the sides against each other.
    pub length: Length,
}

/// One run to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The part it belongs to.
    pub phase: Phase,
    /// Counted from 0 within the phase.
    pub round: u32,
    /// The load level.
    pub load: Load,
    /// The column it fills: in [`Phase::Noise`] 0 or 1, elsewhere the side.
    pub slot: usize,
    /// The side it runs.
    pub side: usize,
}

impl Plan {
    /// Rounds of a phase, at most.
    pub fn rounds(&self, phase: Phase) -> u32 {
        match phase {
            Phase::WarmUp => self.warmup,
            Phase::Noise => self.noise_rounds,
            Phase::Sides => self.length.at_most(),
        }
    }

    /// The runs of one round.
    pub fn round(&self, phase: Phase, round: u32) -> Vec<Step> {
        let slots = if phase == Phase::Noise { 2 } else { self.sides };
        let mut order: Vec<usize> = (0..slots).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        let step = |load, slot| {
            let side = if phase == Phase::Noise { 0 } else { slot };
            Step { phase, round, load, slot, side }
        };
        let order = &order;
        self.loads
            .iter()
            .flat_map(|&load| order.iter().map(move |&slot| step(load, slot)))
            .collect()
    }

    /// All runs, if none of the rounds is saved.
    pub fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        Phase::ALL.into_iter().flat_map(move |phase| {
            (0..self.rounds(phase)).flat_map(move |round| self.round(phase, round))
        })
    }

    /// Whether the comparison may end after this many rounds of sides: only when each order has
    /// been used as often as the other, and the verdict has its pairs.
    pub fn may_end_after(&self, rounds: u32) -> bool {
        rounds as usize >= FEWEST_PAIRS && rounds.is_multiple_of(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(sides: usize, loads: &[Load]) -> Plan {
        let length = Length::Rounds(2);
        Plan { sides, loads: loads.to_vec(), warmup: 1, noise_rounds: 2, length }
    }

    fn text(plan: &Plan) -> String {
        let letter = |s: Step| match (s.phase, s.slot) {
            (Phase::WarmUp, slot) => ["w", "x"][slot],
            (Phase::Noise, slot) => ["1", "2"][slot],
            (Phase::Sides, slot) => ["A", "B", "C"][slot],
        };
        plan.steps().map(letter).collect()
    }

    #[test]
    fn the_order_turns_round_with_each_round() {
        assert_eq!(text(&plan(2, &[Load::Own])), "wx1221ABBA");
        let three = Plan { warmup: 0, noise_rounds: 0, ..plan(3, &[Load::Own]) };
        assert_eq!(text(&three), "ABCCBA");
    }

    #[test]
    fn every_level_has_its_turn_in_every_round() {
        let plan = plan(2, &[Load::Below, Load::Above]);
        let loads: Vec<Load> = plan.round(Phase::Sides, 1).iter().map(|s| s.load).collect();
        assert_eq!(loads, [Load::Below, Load::Below, Load::Above, Load::Above]);
        assert_eq!(plan.steps().count(), 2 * (2 + 4 + 4));
    }

    #[test]
    fn the_noise_is_that_of_the_baseline() {
        assert!(plan(2, &[Load::Own]).round(Phase::Noise, 0).iter().all(|s| s.side == 0));
    }

    #[test]
    fn it_ends_with_both_orders_used_alike() {
        let plan = plan(2, &[Load::Own]);
        let ends: Vec<u32> = (0..10).filter(|&r| plan.may_end_after(r)).collect();
        assert_eq!(ends, [6, 8]);
    }
}
