//! Random streams: one for each purpose, so that a change in how one is used leaves the others as
//! they were.

use crate::units::Nanos;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Deserializer};

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Times between arrivals of a source, by source.
    Arrivals(u32),
    /// What tasks do, by the task's number: how long they run and sleep, which lock they take.
    Task(u32),
    /// Phase of each CPU's tick where ticks are skewed.
    TickSkew,
}

/// One stream.
#[derive(Clone, Debug)]
pub struct Stream(Pcg64);

impl Stream {
    /// The stream of a seed for a purpose.
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        let number = match purpose {
            Purpose::TickSkew => 1,
            Purpose::Arrivals(n) => 1 << 32 | u64::from(n),
            Purpose::Task(n) => 2 << 32 | u64::from(n),
        };
        // An odd factor: no two purposes of one seed get the same start.
        Self(Pcg64::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// Evenly from [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Evenly from `0..n`; 0 for an empty range.
    pub fn below(&mut self, n: u32) -> u32 {
        (self.unit() * f64::from(n)) as u32
    }

    /// A time from a distribution.
    pub fn time(&mut self, time: &Time) -> Nanos {
        match *time {
            Time::Fixed(t) => t,
            Time::Exponential(mean) => Nanos((-(1.0 - self.unit()).ln() * mean.0 as f64) as u64),
            Time::Uniform(from, to) => Nanos(from.0 + (self.unit() * (to - from).0 as f64) as u64),
        }
    }
}

/// A time to be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Always this.
    Fixed(Nanos),
    /// Exponential with this mean.
    Exponential(Nanos),
    /// Evenly between two times.
    Uniform(Nanos, Nanos),
}

impl Time {
    /// Its mean.
    pub fn mean(&self) -> Nanos {
        match *self {
            Self::Fixed(t) | Self::Exponential(t) => t,
            Self::Uniform(from, to) => Nanos((from.0 + to.0) / 2),
        }
    }

    /// Reads `5ms`, `exp 200us` or `1ms..3ms`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some(mean) = text.strip_prefix("exp ") {
            return Ok(Self::Exponential(parse_nanos(mean)?));
        }
        if let Some((from, to)) = text.split_once("..") {
            let (from, to) = (parse_nanos(from)?, parse_nanos(to)?);
            if from > to {
                return Err(format!("`{text}` ends before it begins"));
            }
            return Ok(Self::Uniform(from, to));
        }
        parse_nanos(text).map(Self::Fixed)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// Reads a time with its unit: `250ns`, `1.5us`, `10ms`, `2s`.
pub fn parse_nanos(text: &str) -> Result<Nanos, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ if number == "0" && unit.is_empty() => 1.0,
        _ => return Err(format!("`{text}` is not a time with a unit, such as 200us, 5ms or 1s")),
    };
    match number.parse::<f64>() {
        Ok(n) if n * scale <= 1e18 => Ok(Nanos((n * scale).round() as u64)),
        _ => Err(format!("`{text}` is not a time with a unit, such as 200us, 5ms or 1s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_unit() {
        assert_eq!(Time::parse("1.5us"), Ok(Time::Fixed(Nanos(1500))));
        assert_eq!(Time::parse("exp 2ms"), Ok(Time::Exponential(Nanos::from_ms(2))));
        let uniform = Time::Uniform(Nanos::from_us(1), Nanos::from_us(3));
        assert_eq!(Time::parse("1us..3us"), Ok(uniform));
        for bad in ["", "5", "5 m", "3us..1us", "ms", "1e9s", "-1ms"] {
            assert!(Time::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn streams_are_apart_and_repeat() {
        let draw = |purpose| {
            let mut s = Stream::new(7, purpose);
            [s.unit(), s.unit()]
        };
        assert_eq!(draw(Purpose::Task(3)), draw(Purpose::Task(3)));
        assert_ne!(draw(Purpose::Task(3)), draw(Purpose::Task(4)));
        assert_ne!(draw(Purpose::Task(0)), draw(Purpose::Arrivals(0)));
    }

    #[test]
    fn the_exponential_has_its_mean() {
        let mut s = Stream::new(1, Purpose::TickSkew);
        let time = Time::Exponential(Nanos(1_000_000));
        let mean = (0..100_000).map(|_| s.time(&time).0 as f64).sum::<f64>() / 1e5;
        // Standard error 0.3 %.
        assert!((mean / 1e6 - 1.0).abs() < 0.01, "{mean}");
    }
}
