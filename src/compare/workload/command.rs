//! Any command, its score found by a regular expression or a JSON path.

use super::{Better, Invocation, Load, Metric, Printed, first};
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json_path::JsonPath;

/// Stands for the load in [`CommandWorkload::command`].
const LOAD: &str = "{load}";

/// Where the score is in the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extract {
    /// The time the command takes.
    Elapsed,
    /// First group of this regular expression; the last match counts.
    Regex(String),
    /// This path (RFC 9535) in the output, which is JSON.
    Json(String),
}

/// A command to measure by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandWorkload {
    /// For `sh -c`; `{load}` stands for the load: a number as given, or the CPUs times ½, 1, 4.
    pub command: String,
    /// Where the score is.
    pub extract: Extract,
    /// What the score means.
    pub metric: Metric,
}

impl CommandWorkload {
    /// Checks the expression or path.
    ///
    /// # Errors
    /// One sentence.
    pub fn new(
        command: &str,
        extract: Extract,
        unit: &str,
        better: Better,
    ) -> Result<Self, String> {
        if command.trim().is_empty() {
            return Err("`cmd:` lacks its command".into());
        }
        match &extract {
            Extract::Elapsed => {}
            Extract::Regex(text) => {
                let regex = regex(text)?;
                if regex.captures_len() < 2 {
                    return Err(format!(
                        "the score's expression `{text}` has no group: put (…) around the number"
                    ));
                }
            }
            Extract::Json(text) => {
                json_path(text)?;
            }
        }
        let name = if extract == Extract::Elapsed { "time" } else { "score" };
        let metric = Metric::new(name, unit, better);
        Ok(Self { command: command.into(), extract, metric })
    }

    /// Whether the load changes the command.
    pub fn takes_load(&self) -> bool {
        self.command.contains(LOAD)
    }

    pub(super) fn invocation(&self, load: Load, cpus: u32) -> Invocation {
        let amount = load.count(cpus, 1, cpus).to_string();
        Invocation::one(["sh", "-c", &self.command.replace(LOAD, &amount)])
    }

    pub(super) fn score(&self, printed: &Printed) -> Result<Vec<f64>, String> {
        let text = first(printed);
        let score = match &self.extract {
            Extract::Elapsed => Some(printed.elapsed_s),
            Extract::Regex(pattern) => regex(pattern)?
                .captures_iter(text)
                .last()
                .and_then(|found| found.get(1)?.as_str().replace(',', "").parse().ok()),
            Extract::Json(path) => {
                let value: serde_json::Value = serde_json::from_str(text.trim())
                    .map_err(|e| format!("the output is no JSON: {e}"))?;
                let found = json_path(path)?.query(&value).first().cloned();
                found.and_then(|v| v.as_f64().or_else(|| v.as_str()?.parse().ok()))
            }
        };
        score.map(|s| vec![s]).ok_or_else(|| "the output holds no score".into())
    }
}

fn regex(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|_| format!("`{text}` is no regular expression (Rust's regex syntax)"))
}

fn json_path(text: &str) -> Result<JsonPath, String> {
    JsonPath::parse(text)
        .map_err(|e| format!("`{text}` is no JSON path (RFC 9535, such as $.tps): {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(extract: Extract, text: &str) -> Result<Vec<f64>, String> {
        let printed = Printed { stdout: vec![text.into()], elapsed_s: 2.5, ..Printed::default() };
        CommandWorkload::new("x", extract, "u", Better::Lower)?.score(&printed)
    }

    #[test]
    fn the_score_is_found_in_text_and_json() {
        assert_eq!(score(Extract::Elapsed, ""), Ok(vec![2.5]));
        let pattern = Extract::Regex(r"tps: ([\d.,]+)".into());
        assert_eq!(score(pattern.clone(), "tps: 1\ntps: 1,234.5\n"), Ok(vec![1234.5]));
        assert_eq!(score(pattern, "none"), Err("the output holds no score".into()));
        let path = Extract::Json("$.jobs[1].iops".into());
        assert_eq!(score(path.clone(), r#"{"jobs":[{"iops":1},{"iops":7.5}]}"#), Ok(vec![7.5]));
        assert!(score(path, "text").unwrap_err().contains("no JSON"));
    }

    #[test]
    fn a_bad_expression_is_refused_before_anything_runs() {
        assert!(score(Extract::Regex("a".into()), "").unwrap_err().contains("no group"));
        assert!(
            score(Extract::Regex("(".into()), "").unwrap_err().contains("no regular expression")
        );
        assert!(score(Extract::Json("tps".into()), "").unwrap_err().contains("no JSON path"));
    }

    #[test]
    fn the_load_takes_its_place_in_the_command() {
        let c =
            CommandWorkload::new("run -j {load}", Extract::Elapsed, "s", Better::Lower).unwrap();
        assert_eq!(c.invocation(Load::Above, 8).words[2], "run -j 32");
        assert_eq!(c.invocation(Load::Own, 8).words[2], "run -j 8");
        assert!(c.takes_load());
    }
}
