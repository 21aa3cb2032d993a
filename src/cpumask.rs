//! A set of CPUs of explicit width, with the kernel's list format (`0-3,8`) in and out.
//!
//! The width is the machine's highest possible CPU id + 1. A CPU outside it is an error when a
//! list is parsed and a panic-free `false` when asked for; nothing is dropped in silence.

use crate::units::CpuId;
use serde::{Serialize, Serializer};
use std::fmt;

/// A fixed-width set of CPUs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpumask {
    width: u32,
    words: Box<[u64]>,
}

/// Why a CPU list could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// This part is neither `N`, `N-M` nor `N-M:USED/GROUP`.
    Syntax(String),
    /// The CPU lies outside the machine of this width.
    OutOfRange {
        /// The CPU that was named.
        cpu: u64,
        /// Number of CPU ids there are: valid ones are below it.
        width: u32,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(part) => write!(f, "`{part}` is not a CPU or a range of CPUs (`0-3,8`)"),
            Self::OutOfRange { cpu, width } => {
                write!(f, "CPU {cpu} does not exist here: ids end at {}", width.saturating_sub(1))
            }
        }
    }
}

impl std::error::Error for ParseError {}

/// One part of a CPU list, both ends included: `4-7` is `(4, 7, 1, 1)`; the kernel's
/// `0-7:2/4` (the first 2 of every 4) is `(0, 7, 2, 4)`.
fn parse_part(part: &str) -> Option<(u64, u64, u64, u64)> {
    let (range, used, group) = match part.split_once(':') {
        Some((range, stride)) => {
            let (used, group) = stride.split_once('/')?;
            (range, used.parse().ok()?, group.parse().ok()?)
        }
        None => (part, 1, 1),
    };
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
        None => (range.parse().ok()?, range.parse().ok()?),
    };
    (first <= last && used > 0 && used <= group).then_some((first, last, used, group))
}

impl Cpumask {
    /// The empty set over CPUs `0..width`.
    pub fn new(width: usize) -> Self {
        Self {
            width: u32::try_from(width).unwrap_or(u32::MAX),
            words: vec![0; width.div_ceil(64)].into_boxed_slice(),
        }
    }

    /// All of `0..width`.
    pub fn full(width: usize) -> Self {
        Self::from_cpus(width, (0..width).map(CpuId::from))
    }

    /// The set of `cpus`. CPUs outside the width are a caller's error and are caught in debug
    /// builds.
    pub fn from_cpus(width: usize, cpus: impl IntoIterator<Item = CpuId>) -> Self {
        let mut mask = Self::new(width);
        for cpu in cpus {
            mask.set(cpu);
        }
        mask
    }

    /// Reads the kernel's list format. Blank text is the empty set.
    pub fn parse_list(text: &str, width: usize) -> Result<Self, ParseError> {
        let mut mask = Self::new(width);
        for part in text.trim().split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (first, last, used, group) =
                parse_part(part).ok_or_else(|| ParseError::Syntax(part.to_string()))?;
            if last >= u64::from(mask.width) {
                return Err(ParseError::OutOfRange { cpu: last, width: mask.width });
            }
            for cpu in (first..=last).filter(|c| (c - first) % group < used) {
                mask.set(CpuId(cpu as u32));
            }
        }
        Ok(mask)
    }

    /// The width a list needs: highest CPU named + 1 (0 for blank text).
    pub fn width_of_list(text: &str) -> Result<usize, ParseError> {
        let mut width = 0;
        for part in text.trim().split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (_, last, ..) =
                parse_part(part).ok_or_else(|| ParseError::Syntax(part.to_string()))?;
            let end = usize::try_from(last).ok().and_then(|last| last.checked_add(1));
            let limit = ParseError::OutOfRange { cpu: last, width: u32::MAX };
            width = width.max(end.filter(|&end| end <= u32::MAX as usize).ok_or(limit)?);
        }
        Ok(width)
    }

    /// Reads the kernel's mask format: comma-separated 32-bit hexadecimal words, highest first.
    pub fn parse_hex(text: &str, width: usize) -> Result<Self, ParseError> {
        let mut mask = Self::new(width);
        for (i, word) in text.trim().split(',').rev().enumerate() {
            let bits = u32::from_str_radix(word.trim(), 16)
                .map_err(|_| ParseError::Syntax(word.to_string()))?;
            for bit in (0..32).filter(|b| bits >> b & 1 == 1) {
                let cpu = i as u64 * 32 + bit;
                if cpu >= u64::from(mask.width) {
                    return Err(ParseError::OutOfRange { cpu, width: mask.width });
                }
                mask.set(CpuId(cpu as u32));
            }
        }
        Ok(mask)
    }

    /// Number of CPU ids the set ranges over.
    pub fn width(&self) -> usize {
        self.width as usize
    }

    /// The 64-bit words, lowest CPUs first.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Adds a CPU.
    pub fn set(&mut self, cpu: CpuId) {
        debug_assert!(cpu.0 < self.width, "CPU {cpu} in a mask of width {}", self.width);
        if let Some(word) = self.words.get_mut(cpu.index() / 64) {
            *word |= 1 << (cpu.0 % 64);
        }
    }

    /// Adds the CPUs of a 64-bit word, by its position; those outside the width are a caller's error,
    /// as for [`Cpumask::set`].
    pub fn or_word(&mut self, i: usize, word: u64) {
        debug_assert!(i * 64 + 64 - word.leading_zeros() as usize <= self.width());
        if let Some(w) = self.words.get_mut(i) {
            *w |= word;
        }
    }

    /// Removes a CPU.
    pub fn clear(&mut self, cpu: CpuId) {
        if let Some(word) = self.words.get_mut(cpu.index() / 64) {
            *word &= !(1 << (cpu.0 % 64));
        }
    }

    /// Empties the set, keeping its width and storage.
    pub fn clear_all(&mut self) {
        self.words.fill(0);
    }

    /// Whether the CPU is in the set; `false` outside the width.
    pub fn test(&self, cpu: CpuId) -> bool {
        self.words.get(cpu.index() / 64).is_some_and(|w| w >> (cpu.0 % 64) & 1 == 1)
    }

    /// Number of CPUs in the set.
    pub fn weight(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }

    /// The lowest CPU.
    pub fn first(&self) -> Option<CpuId> {
        self.iter().next()
    }

    /// The lowest CPU from `from` on (kernel: `cpumask_next`).
    pub fn next(&self, from: CpuId) -> Option<CpuId> {
        let first = from.index() / 64;
        let words = self.words.iter().enumerate().skip(first);
        words
            .map(|(i, &w)| (i, if i == first { w >> (from.0 % 64) << (from.0 % 64) } else { w }))
            .find(|&(_, w)| w != 0)
            .map(|(i, w)| CpuId(i as u32 * 64 + w.trailing_zeros()))
    }

    /// The CPUs in rising order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.words.iter().enumerate().flat_map(|(i, &word)| {
            std::iter::successors((word != 0).then_some(word), |w| {
                let rest = w & (w - 1);
                (rest != 0).then_some(rest)
            })
            .map(move |w| CpuId(i as u32 * 64 + w.trailing_zeros()))
        })
    }

    /// The CPUs from `start` up, then from 0 to `start` (kernel: `for_each_cpu_wrap`).
    pub fn iter_wrap(&self, start: CpuId) -> impl Iterator<Item = CpuId> + '_ {
        self.iter()
            .skip_while(move |&c| c < start)
            .chain(self.iter().take_while(move |&c| c < start))
    }

    fn zip(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        debug_assert_eq!(self.width, other.width);
        let words = self.words.iter().zip(&other.words).map(|(&a, &b)| f(a, b)).collect();
        Self { width: self.width, words }
    }

    /// CPUs in both.
    pub fn and(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    /// CPUs in either.
    pub fn or(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    /// CPUs in `self` but not in `other`.
    pub fn and_not(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    /// Adds all CPUs of `other`.
    pub fn or_assign(&mut self, other: &Self) {
        debug_assert_eq!(self.width, other.width);
        for (a, &b) in self.words.iter_mut().zip(&other.words) {
            *a |= b;
        }
    }

    /// Whether the sets share a CPU.
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Whether every CPU of `self` is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & !b == 0)
    }
}

/// The kernel's list format, `0-3,8`; `-` for the empty set.
impl fmt::Display for Cpumask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut cpus = self.iter().map(|c| c.0).peekable();
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(&first.to_string());
            if last > first {
                text.push_str(&format!("-{last}"));
            }
        }
        f.pad(if text.is_empty() { "-" } else { &text })
    }
}

impl fmt::Debug for Cpumask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cpumask({self} of {})", self.width)
    }
}

impl Serialize for Cpumask {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_empty() { serializer.serialize_str("") } else { serializer.collect_str(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(text: &str) -> Cpumask {
        Cpumask::parse_list(text, 130).unwrap()
    }

    #[test]
    fn lists_read_and_print_alike() {
        for text in ["0", "0-3,8", "1,3,5", "63-65,129"] {
            assert_eq!(list(text).to_string(), text);
        }
        assert_eq!(list(" 0-3,\n").to_string(), "0-3");
        assert_eq!(list("0-7:2/4").to_string(), "0-1,4-5");
        assert_eq!(list("").to_string(), "-");
    }

    #[test]
    fn bad_lists_are_named() {
        assert_eq!(
            Cpumask::parse_list("0-130", 130),
            Err(ParseError::OutOfRange { cpu: 130, width: 130 })
        );
        for text in ["a", "3-1", "-1", "0-7:0/4", "0-7:5/4", "1--2", "0-7:1"] {
            assert!(matches!(Cpumask::parse_list(text, 8), Err(ParseError::Syntax(_))), "{text}");
        }
    }

    #[test]
    fn a_width_beyond_all_numbers_is_an_error() {
        assert_eq!(Cpumask::width_of_list("0-3,8"), Ok(9));
        assert_eq!(Cpumask::width_of_list(""), Ok(0));
        for cpu in [u64::MAX, u64::from(u32::MAX)] {
            let limit = ParseError::OutOfRange { cpu, width: u32::MAX };
            assert_eq!(Cpumask::width_of_list(&format!("0-{cpu}")), Err(limit));
        }
    }

    #[test]
    fn hex_masks_read_highest_word_first() {
        assert_eq!(Cpumask::parse_hex("00000001,0000000f\n", 64).unwrap().to_string(), "0-3,32");
        assert!(Cpumask::parse_hex("10", 4).is_err());
        assert!(Cpumask::parse_hex("zz", 64).is_err());
    }

    #[test]
    fn wrap_starts_where_asked() {
        let order: Vec<u32> = list("1,5,64,100").iter_wrap(CpuId(6)).map(|c| c.0).collect();
        assert_eq!(order, [64, 100, 1, 5]);
    }

    #[test]
    fn the_next_one_is_from_there_on() {
        let mask = list("1,5,64,100");
        let next = |from| mask.next(CpuId(from)).map(|c| c.0);
        assert_eq!([0, 1, 2, 6, 65, 100].map(next), [1, 1, 5, 64, 100, 100].map(Some));
        assert_eq!([101, 129, 4_000].map(next), [None; 3]);
    }

    #[test]
    fn outside_the_width_is_not_in_the_set() {
        assert!(!list("0-3").test(CpuId(4_000)));
    }

    proptest! {
        #[test]
        fn set_algebra_agrees_with_btreeset(
            a in proptest::collection::btree_set(0u32..200, 0..60),
            b in proptest::collection::btree_set(0u32..200, 0..60),
        ) {
            let mask = |s: &std::collections::BTreeSet<u32>| {
                Cpumask::from_cpus(200, s.iter().map(|&c| CpuId(c)))
            };
            let ids = |m: Cpumask| m.iter().map(|c| c.0).collect::<std::collections::BTreeSet<_>>();
            let (ma, mb) = (mask(&a), mask(&b));
            prop_assert_eq!(ids(ma.and(&mb)), &a & &b);
            prop_assert_eq!(ids(ma.or(&mb)), &a | &b);
            prop_assert_eq!(ids(ma.and_not(&mb)), &a - &b);
            prop_assert_eq!(ma.intersects(&mb), !a.is_disjoint(&b));
            prop_assert_eq!(ma.is_subset(&mb), a.is_subset(&b));
            prop_assert_eq!(ma.weight(), a.len());
            prop_assert_eq!(Cpumask::parse_list(&ma.to_string().replace('-', if a.is_empty() { "" } else { "-" }), 200).unwrap(), ma);
        }
    }
}
