//! rt-app's JSON, its common subset: `tasks` with `instance`, `loop`, `delay`, `cpus`, `priority` and
//! either steps or `phases`; steps `run`/`runtime`, `sleep`, `timer`, `suspend`, `resume`, `wait`,
//! `signal`, `barrier`, `yield`, each with any suffix (`run0`); `global.duration`. Times are in
//! microseconds, as rt-app has them.

use super::program::{Op, Start, Workload};
use super::random::Time;
use super::scenario::{Scenario, nice_weight};
use crate::cpumask::Cpumask;
use crate::units::{CpuId, Nanos};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

struct Reader<'a> {
    text: &'a str,
    workload: Workload,
    semaphores: BTreeMap<String, u32>,
    barriers: BTreeMap<String, u32>,
}

/// Reads a file. The error names line, field and what was expected.
pub fn parse(text: &str) -> Result<Scenario, String> {
    let root: Value = serde_json::from_str(text)
        .map_err(|e| format!("line {}: expected JSON without comments: {e}", e.line()))?;
    let mut r = Reader {
        text,
        workload: Workload::default(),
        semaphores: BTreeMap::new(),
        barriers: BTreeMap::new(),
    };
    let root = r.object("the file", &root)?;
    let mut scenario = Scenario::default();
    for key in root.keys() {
        if !["tasks", "global", "resources"].contains(&key.as_str()) {
            return Err(r.bad(key, "expected tasks, global or resources"));
        }
    }
    if let Some(global) = root.get("global") {
        let global = r.object("global", global)?;
        if let Some(seconds) = global.get("duration") {
            let seconds = seconds.as_i64();
            let seconds =
                seconds.ok_or_else(|| r.bad("duration", "expected a number of seconds"))?;
            // -1: until the tasks end.
            scenario.duration = u64::try_from(seconds).ok().map(Nanos::from_secs);
        }
    }
    let tasks = root.get("tasks").ok_or("line 1: expected an object `tasks`")?;
    for (name, task) in r.object("tasks", tasks)? {
        r.task(name, task)?;
    }
    if r.workload.starts.is_empty() {
        return Err(r.bad("tasks", "expected at least one task"));
    }
    scenario.workload = r.workload;
    Ok(scenario)
}

impl Reader<'_> {
    fn bad(&self, field: &str, problem: &str) -> String {
        let at = self.text.find(&format!("\"{field}\"")).unwrap_or(0);
        let line = self.text[..at].matches('\n').count() + 1;
        format!("line {line}: {field}: {problem}")
    }

    fn object<'v>(&self, field: &str, value: &'v Value) -> Result<&'v Map<String, Value>, String> {
        value.as_object().ok_or_else(|| self.bad(field, "expected an object"))
    }

    fn number(&self, field: &str, value: &Value) -> Result<u64, String> {
        value.as_u64().ok_or_else(|| self.bad(field, "expected a whole number, 0 or more"))
    }

    fn us(&self, field: &str, value: &Value) -> Result<Nanos, String> {
        self.number(field, value).map(|n| Nanos(n.saturating_mul(1000)))
    }

    fn loops(&self, value: &Value) -> Result<u32, String> {
        match value.as_i64() {
            Some(-1) => Ok(0),
            Some(n) if n > 0 && n <= i64::from(u32::MAX) => Ok(n as u32),
            _ => Err(self.bad("loop", "expected -1 or a number above 0")),
        }
    }

    fn task(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let task = self.object(name, value)?;
        let mut program = Vec::new();
        let (mut nr, mut delay, mut times) = (1, Nanos::ZERO, 0);
        let (mut weight, mut allowed) = (None, None);
        for (key, value) in task {
            match key.as_str() {
                "instance" => nr = self.number(key, value)? as u32,
                "delay" => delay = self.us(key, value)?,
                "loop" => times = self.loops(value)?,
                "policy" if value == "SCHED_OTHER" => {}
                "policy" => return Err(self.bad(key, "expected SCHED_OTHER")),
                "priority" => {
                    let nice = value.as_i64().and_then(|n| nice_weight(n as i32));
                    weight = Some(nice.ok_or_else(|| self.bad(key, "expected -20 to 19"))?);
                }
                "cpus" => allowed = Some(self.cpus(value)?),
                "phases" => {
                    for (phase, steps) in self.object(key, value)? {
                        let steps = self.object(phase, steps)?.clone();
                        self.phase(&steps, &mut program)?;
                    }
                }
                _ => self.step(key, value, &mut program)?,
            }
        }
        if program.is_empty() {
            return Err(self.bad(name, "expected steps or phases"));
        }
        program.push(Op::Done);
        program.push(Op::Repeat { from: 0, times, counter: 0 });
        let template = self.workload.template(name, program);
        let kind = &mut self.workload.templates[template as usize];
        kind.weight = weight.unwrap_or(kind.weight);
        kind.allowed = allowed;
        self.workload.starts.push(Start { template, nr, at: delay, on: None });
        Ok(())
    }

    fn phase(&mut self, steps: &Map<String, Value>, program: &mut Vec<Op>) -> Result<(), String> {
        let from = program.len() as u32;
        let mut times = 1;
        for (key, value) in steps {
            match key.as_str() {
                "loop" => times = self.loops(value)?,
                "cpus" => program.push(Op::Pin(Some(self.cpus(value)?))),
                _ => self.step(key, value, program)?,
            }
        }
        if times != 1 {
            program.push(Op::Repeat { from, times, counter: 1 });
        }
        Ok(())
    }

    fn cpus(&self, value: &Value) -> Result<Cpumask, String> {
        let cpus: Option<Vec<u64>> =
            value.as_array().and_then(|a| a.iter().map(Value::as_u64).collect());
        let cpus = cpus.filter(|c| !c.is_empty() && c.iter().all(|&c| c < 65_536));
        let cpus = cpus.ok_or_else(|| self.bad("cpus", "expected a list of CPU numbers"))?;
        let width = cpus.iter().max().map_or(0, |&c| c as usize + 1);
        Ok(Cpumask::from_cpus(width, cpus.iter().map(|&c| CpuId(c as u32))))
    }

    fn name<'v>(&self, key: &str, value: &'v Value) -> Result<&'v str, String> {
        value.as_str().ok_or_else(|| self.bad(key, "expected a name"))
    }

    fn semaphore(&mut self, name: &str) -> u32 {
        if let Some(&known) = self.semaphores.get(name) {
            return known;
        }
        let number = self.workload.semaphore(0);
        self.semaphores.insert(name.to_string(), number);
        number
    }

    fn step(&mut self, key: &str, value: &Value, program: &mut Vec<Op>) -> Result<(), String> {
        let verb = key.trim_end_matches(|c: char| c.is_ascii_digit());
        program.push(match verb {
            "run" | "runtime" => Op::Run(Time::Fixed(self.us(key, value)?)),
            "sleep" => Op::Sleep(Time::Fixed(self.us(key, value)?)),
            "timer" => {
                let timer = self.object(key, value)?;
                let period =
                    timer.get("period").ok_or_else(|| self.bad(key, "expected a `period`"))?;
                Op::Period(self.us("period", period)?)
            }
            "suspend" | "wait" => {
                let name = self.name(key, value)?;
                Op::Wait(self.semaphore(name))
            }
            "resume" | "signal" => {
                let name = self.name(key, value)?;
                Op::Post(self.semaphore(name))
            }
            "barrier" => {
                let name = self.name(key, value)?.to_string();
                let next = self.workload.barriers.len() as u32;
                let number = *self.barriers.entry(name).or_insert(next);
                if number == next {
                    self.workload.barriers.push(0);
                }
                self.workload.barriers[number as usize] += 1;
                Op::Barrier(number)
            }
            "yield" => Op::Sleep(Time::Fixed(Nanos(1))),
            _ => {
                return Err(self.bad(
                    key,
                    "is not read; expected run, runtime, sleep, timer, suspend, resume, wait, \
                     signal, barrier, yield, phases, loop, instance, delay, cpus, policy or priority",
                ));
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_subset_is_read() {
        let file = r#"{"global": {"duration": 2}, "tasks": {
            "a": {"instance": 2, "loop": -1, "priority": 5, "cpus": [0, 2],
                  "phases": {"p": {"loop": 3, "run": 1000, "sleep": 500, "run1": 10},
                             "q": {"timer": {"ref": "t", "period": 20000}}}},
            "b": {"delay": 100, "run": 10, "resume": "x", "suspend": "y"}}}"#;
        let scenario = parse(file).unwrap();
        assert_eq!(scenario.duration, Some(Nanos::from_secs(2)));
        let w = &scenario.workload;
        assert_eq!((w.starts[0].nr, w.templates[0].weight.0), (2, 335));
        let expected = [
            Op::Run(Time::Fixed(Nanos::from_ms(1))),
            Op::Sleep(Time::Fixed(Nanos::from_us(500))),
            Op::Run(Time::Fixed(Nanos::from_us(10))),
            Op::Repeat { from: 0, times: 3, counter: 1 },
            Op::Period(Nanos::from_ms(20)),
        ];
        assert_eq!(w.templates[0].program[..5], expected);
        assert_eq!(w.starts[1].at, Nanos::from_us(100));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (file, expected) in [
            ("{\n\"tasks\": {\"a\": {\n\"run\": \"x\"}}}", "line 3: run: expected a whole number"),
            ("{\"tasks\": {\"a\": {\"mem\": 3}}}", "line 1: mem: is not read; expected run"),
            ("{\"tasks\": {\"a\": {}}}", "line 1: a: expected steps or phases"),
            ("{", "line 1: expected JSON"),
            ("{}", "line 1: expected an object `tasks`"),
        ] {
            let error = parse(file).unwrap_err();
            assert!(error.starts_with(expected), "{file}: {error}");
        }
    }
}
