//! Turning the sibling list that each CPU states into disjoint sets.

use super::files::Files;
use super::partition::Partition;
use crate::cpumask::Cpumask;
use crate::units::CpuId;
use std::collections::HashMap;

/// Collects one list per CPU. Each CPU ends up in exactly one set even when the lists contradict
/// each other: who is listed first belongs there, and the contradiction is noted.
pub(super) struct Lists<'a> {
    what: &'static str,
    online: &'a Cpumask,
    set_of: Vec<Option<u32>>,
    // Siblings state the same text: parsing it once keeps the cost linear in CPUs.
    by_text: HashMap<String, u32>,
    next: u32,
}

impl<'a> Lists<'a> {
    /// `what` names the sets in notes ("cores").
    pub(super) fn new(what: &'static str, online: &'a Cpumask) -> Self {
        Self { what, online, set_of: vec![None; online.width()], by_text: HashMap::new(), next: 0 }
    }

    fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    /// Takes the list that `cpu` states; whether it could be used.
    pub(super) fn add(&mut self, files: &mut Files, cpu: CpuId, path: &str, text: &str) -> bool {
        let text = text.trim();
        let known = self.by_text.get(text).copied();
        match (known, self.set_of[cpu.index()]) {
            (Some(set), Some(own)) if set == own => return true,
            (None, None) => {
                let width = self.online.width();
                let parsed = if path.ends_with("_list") {
                    files.parse_cpulist(path, text, width)
                } else {
                    files.parse_cpumap(path, text, width)
                };
                let Some(mask) = parsed.filter(|m| !m.is_empty()) else { return false };
                if !mask.test(cpu) {
                    files.note(path, "does not name its own CPU", "treated as missing".to_string());
                    return false;
                }
                let set = self.fresh();
                self.by_text.insert(text.to_string(), set);
                for member in mask.and(self.online).iter() {
                    self.set_of[member.index()].get_or_insert(set);
                }
                return true;
            }
            // The text was seen before and its members are placed, so it does not name this CPU.
            (Some(_), None) => {
                files.note(path, "does not name its own CPU", "treated as missing".to_string());
                return false;
            }
            (_, Some(_)) => {}
        }
        let consequence = format!("its {} are as the first CPU of each list says", self.what);
        files.note(path, "contradicts the list of a CPU it should agree with", consequence);
        true
    }

    /// Puts `cpu` and everyone else with this key into one set.
    pub(super) fn add_key(&mut self, cpu: CpuId, key: &str) {
        // No list of CPUs looks like this, so keys and lists cannot meet.
        let key = format!("#{key}");
        let set = match self.by_text.get(&key) {
            Some(&set) => set,
            None => {
                let set = self.fresh();
                self.by_text.insert(key, set);
                set
            }
        };
        self.set_of[cpu.index()].get_or_insert(set);
    }

    /// The set that `cpu` is in so far.
    pub(super) fn get(&self, cpu: CpuId) -> Option<u32> {
        self.set_of[cpu.index()]
    }

    pub(super) fn finish(self) -> Partition {
        let sets = self.set_of.iter().enumerate();
        Partition::by_key(
            self.online.width(),
            sets.filter_map(|(cpu, set)| set.map(|set| (CpuId::from(cpu), set))),
        )
    }
}
