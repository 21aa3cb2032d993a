//! `baton compare` through the real command line, on a scripted machine.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[path = "common/scratch.rs"]
mod scratch;

/// A scripted machine in a directory of its own.
struct Lab {
    dir: tempfile::TempDir,
}

impl Lab {
    fn new(script: Value) -> Self {
        let lab = Self { dir: scratch::scratch() };
        lab.script(script);
        lab
    }

    fn script(&self, mut script: Value) {
        script["log"] = self.path("log").to_str().into();
        std::fs::write(self.path("script.json"), script.to_string()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
        command.current_dir(self.dir.path()).arg("compare").args(args);
        command.args(["--scripted", "script.json"]).output().unwrap()
    }

    /// Runs, and returns the result as JSON.
    fn json(&self, args: &[&str]) -> Value {
        let out = self.run(&[args, &["--record", "r.jsonl", "--json", "r.json"]].concat());
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        read_json(&self.path("r.json"))
    }

    /// What was done, in order.
    fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("log")).unwrap();
        text.lines().map(String::from).collect()
    }

    /// Whether the kernel's scheduler was brought back and everything cleaned up at the end.
    fn is_restored(&self) -> bool {
        self.log().ends_with(&["stop".into(), "clean up".into()])
    }
}

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn script(kernel: f64, baton: f64) -> Value {
    serde_json::json!({ "means": { "kernel": kernel, "baton": baton }, "noise": 0.02, "seed": 5 })
}

fn verdicts(json: &Value) -> Vec<&str> {
    let rows = json["evaluation"]["rows"].as_array().unwrap();
    rows.iter().map(|r| r["verdict"].as_str().unwrap()).collect()
}

fn stderr(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn a_faster_side_is_better_and_the_order_is_abba() {
    let lab = Lab::new(script(1.0, 0.9));
    let json = lab.json(&["kernel", "baton", "--rounds", "6"]);
    assert_eq!(verdicts(&json), ["better"]);
    let runs: Vec<String> = lab.log().into_iter().filter(|l| l.starts_with("run")).collect();
    assert_eq!(runs.len(), 2 + 12 + 12);
    assert!(
        runs[2..14].iter().all(|r| r == "run kernel"),
        "the baseline against itself comes first"
    );
    let sides: Vec<&str> = runs[14..].iter().map(|r| &r[4..]).collect();
    assert_eq!(sides[..4], ["kernel", "baton", "baton", "kernel"]);
    assert!(lab.is_restored());
    // Every side was started afresh for each of its runs.
    let log = lab.log();
    let starts = log.windows(2).filter(|w| w[0] == "start" && w[1] == "run baton").count();
    assert_eq!(starts, 7);
}

#[test]
fn a_slower_side_is_worse_and_equal_ones_are_not_called() {
    let lab = Lab::new(script(1.0, 1.1));
    assert_eq!(verdicts(&lab.json(&["kernel", "baton", "--rounds", "8"])), ["worse"]);
    let lab = Lab::new(script(1.0, 1.0));
    let json = lab.json(&["baton", "baton", "--rounds", "8"]);
    assert_eq!(verdicts(&json), ["no_call"]);
    assert_eq!(json["record"]["header"]["sides"][1]["name"], "baton #2");
}

#[test]
fn policy_settings_are_switched_on_the_running_scheduler() {
    let means = serde_json::json!({ "baton": 1.0, "baton --serialize-order=always": 1.2 });
    let lab = Lab::new(serde_json::json!({ "means": means, "noise": 0.02 }));
    let json = lab.json(&["baton", "baton:--serialize-order always", "--rounds", "6"]);
    assert_eq!(verdicts(&json), ["worse"]);
    let log = lab.log();
    assert_eq!(log.iter().filter(|l| *l == "start").count(), 1);
    assert!(log.contains(&"set serialize-order=always".into()));
    assert!(log.contains(&"set serialize-order=elected".into()));
    assert_eq!(json["record"]["header"]["switched_live"], true);
}

#[test]
fn invalid_runs_are_shown_and_never_averaged() {
    let mut faulty = script(1.0, 1.0);
    // The runs: 1-2 warm-up, 3-14 A/A, 15 A, 16 B, 17 B, 18 A, 19 A, 20 B, …
    faulty["faults"] = serde_json::json!({
        "16": "ejected", "17": "settings", "21": "charge", "23": "workload", "25": "start",
        "29": "killed"
    });
    let lab = Lab::new(faulty);
    let json = lab.json(&["kernel", "baton", "--rounds", "10"]);
    let runs = json["record"]["runs"].as_array().unwrap();
    let reasons: Vec<&str> = runs.iter().filter_map(|r| r["invalid"].as_str()).collect();
    assert_eq!(reasons.len(), 6, "{reasons:?}");
    for (reason, part) in reasons.iter().zip([
        "ejected",
        "changed during the run",
        "only 0 %",
        "the workload failed",
        "scripted not to start",
        "the scheduler was ejected: its process ended during the run",
    ]) {
        assert!(reason.contains(part), "{reason} lacks {part}");
    }
    let row = &json["evaluation"]["rows"][0];
    // Rounds 1, 2, 4, 5, 6 and 8 have lost a run.
    assert_eq!(row["pairs"], 4);
    assert_eq!(verdicts(&json), ["no_call"]);
    let valid = |side: &str| {
        let of = |r: &&Value| {
            r["invalid"].is_null() && r["phase"] == "sides" && r["side"] == side_number(side)
        };
        runs.iter().filter(of).count()
    };
    assert_eq!(row["baseline"]["values"].as_array().unwrap().len(), valid("kernel"));
    assert_eq!(row["samples"]["values"].as_array().unwrap().len(), valid("baton"));
    let out = lab.run(&["--from", "r.jsonl"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("6 of 34 runs are invalid") && text.contains("ejected"), "{text}");
}

fn side_number(side: &str) -> u64 {
    u64::from(side == "baton")
}

#[test]
fn a_side_that_never_works_ends_the_comparison() {
    let mut faulty = script(1.0, 1.0);
    faulty["faults"] =
        serde_json::json!({ "2": "start", "4": "start", "5": "start", "8": "start" });
    let lab = Lab::new(faulty);
    let out = lab.run(&["kernel", "baton", "--aa-rounds", "0", "--record", "r.jsonl"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        stderr(&out).contains("given up: the runs of `baton` kept being invalid"),
        "{}",
        stderr(&out)
    );
    assert!(lab.is_restored());
}

#[test]
fn interrupted_it_shows_what_there_is_and_restores() {
    let mut broken = script(1.0, 0.9);
    broken["faults"] = serde_json::json!({ "30": "interrupt" });
    let lab = Lab::new(broken);
    let out = lab.run(&["kernel", "baton", "--record", "r.jsonl"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(stderr(&out).contains("interrupted; go on with `baton compare --resume r.jsonl`"));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("7.3.4-scripted") && text.contains("better"), "{text}");
    assert!(lab.is_restored());
}

#[test]
fn a_crash_loses_one_run_and_the_rest_is_resumed() {
    let mut broken = script(1.0, 0.9);
    broken["faults"] = serde_json::json!({ "20": "crash" });
    let lab = Lab::new(broken);
    let out = lab.run(&["kernel", "baton", "--rounds", "8", "--record", "r.jsonl"]);
    assert!(!out.status.success());
    let record = lab.path("r.jsonl");
    let before = std::fs::read_to_string(&record).unwrap();
    assert_eq!(before.lines().count(), 1 + 19);
    // A crash may also leave half a line.
    std::fs::write(&record, format!("{before}{{\"entry\":\"run\",\"pha")).unwrap();
    lab.script(script(1.0, 0.9));
    let out = lab.run(&["--resume", "r.jsonl", "--json", "r.json"]);
    assert!(out.status.success(), "{}", stderr(&out));
    let json = read_json(&lab.path("r.json"));
    assert_eq!(json["evaluation"]["rows"][0]["pairs"], 8);
    assert_eq!(verdicts(&json), ["better"]);
    assert_eq!(json["record"]["runs"].as_array().unwrap().len(), 2 + 12 + 16);
    assert!(
        std::fs::read_to_string(&record).unwrap().starts_with(&before),
        "only ever appended to"
    );
    // Complete: nothing is left to do.
    let out = lab.run(&["--resume", "r.jsonl"]);
    assert!(out.status.success() && stderr(&out).is_empty(), "{}", stderr(&out));
}

#[test]
fn a_comparison_is_not_resumed_under_other_conditions() {
    let mut broken = script(1.0, 0.9);
    broken["faults"] = serde_json::json!({ "20": "interrupt" });
    let lab = Lab::new(broken);
    assert_eq!(lab.run(&["kernel", "baton", "--record", "r.jsonl"]).status.code(), Some(1));
    let text = std::fs::read_to_string(lab.path("r.jsonl")).unwrap();
    let other = text.replace("\"performance\":8", "\"powersave\":8");
    assert_ne!(text, other);
    std::fs::write(lab.path("r.jsonl"), &other).unwrap();
    let out = lab.run(&["--resume", "r.jsonl"]);
    assert_eq!(out.status.code(), Some(2));
    let part = "other conditions (governor: powersave 8, now performance 8)";
    assert!(stderr(&out).contains(part), "{}", stderr(&out));
    assert_eq!(std::fs::read_to_string(lab.path("r.jsonl")).unwrap(), other);
}

#[test]
fn what_changes_during_a_comparison_is_told() {
    let mut changing = script(1.0, 0.9);
    changing["faults"] = serde_json::json!({ "20": "governor" });
    let lab = Lab::new(changing);
    let out = lab.run(&["kernel", "baton", "--record", "r.jsonl"]);
    assert!(stderr(&out).contains("the machine changed meanwhile: governor"), "{}", stderr(&out));
    let told = "CHANGED MEANWHILE    governor: performance 8, now powersave 8";
    for text in [out.stdout, lab.run(&["--from", "r.jsonl"]).stdout] {
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains(told), "{text}");
    }
}

#[test]
fn it_goes_on_until_it_is_precise() {
    let mut noisy = script(1.0, 1.0);
    let lab = Lab::new(noisy.clone());
    let rounds = |json: &Value| json["evaluation"]["rows"][0]["pairs"].as_u64().unwrap();
    let narrow = rounds(&lab.json(&["kernel", "baton", "--until", "1%"]));
    assert!(narrow > 6 && narrow.is_multiple_of(2), "{narrow}");
    noisy["noise"] = 0.001.into();
    let lab = Lab::new(noisy);
    assert_eq!(rounds(&lab.json(&["kernel", "baton", "--until", "1%"])), 6);
}

#[test]
fn every_load_level_has_its_row() {
    let lab = Lab::new(script(1.0, 0.9));
    let json = lab.json(&["kernel", "baton", "--load", "below,at,above", "--rounds", "8"]);
    let loads: Vec<&Value> =
        json["evaluation"]["rows"].as_array().unwrap().iter().map(|r| &r["load"]).collect();
    assert_eq!(loads, ["below", "at", "above"]);
    assert_eq!(verdicts(&json), ["better"; 3]);
    // Six pairs cannot decide three rows, whatever they say.
    let lab = Lab::new(script(1.0, 0.5));
    let json = lab.json(&["kernel", "baton", "--load", "below,at,above", "--rounds", "6"]);
    assert_eq!(verdicts(&json), ["no_call"; 3]);
    let reason = json["evaluation"]["rows"][0]["reason"].as_str().unwrap();
    assert_eq!(reason, "3 rows need 7 pairs each");
}

#[test]
fn a_result_is_shown_again_the_same_from_record_and_report() {
    let lab = Lab::new(script(1.0, 0.97));
    lab.json(&["kernel", "baton", "--csv", "a.csv", "--html", "a.html"]);
    for from in ["r.jsonl", "r.json"] {
        let out = lab.run(&[
            "--from",
            from,
            "--json",
            "again.json",
            "--csv",
            "b.csv",
            "--html",
            "b.html",
        ]);
        assert!(out.status.success(), "{}", stderr(&out));
        for (a, b) in [("r.json", "again.json"), ("a.csv", "b.csv"), ("a.html", "b.html")] {
            let text = |name| std::fs::read_to_string(lab.path(name)).unwrap();
            assert!(text(a) == text(b), "{from}: {a} differs from {b}");
        }
    }
    let csv = std::fs::read_to_string(lab.path("a.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 2 + 12 + 20);
    assert!(csv.starts_with("phase,round,load,slot,side,at_s,elapsed_s,valid,reason,time s,"));
    let header = &read_json(&lab.path("r.json"))["record"]["header"];
    for part in ["kernel", "command_line", "topology", "governors", "switches", "versions"] {
        assert!(!header["environment"][part].is_null(), "{part}");
    }
    let out = lab.run(&["--from", "r.jsonl", "--json", "-"]);
    assert_eq!(serde_json::from_slice::<Value>(&out.stdout).unwrap()["version"], 1);
}

#[test]
fn scores_of_any_command_are_read() {
    let mut other = script(100.0, 120.0);
    other["prints"] = "noise 7\ntps: {score}\n".into();
    let lab = Lab::new(other);
    let args =
        ["kernel", "baton", "-w", "cmd:bench", "--score", r"tps: (\S+)", "--better", "higher"];
    assert_eq!(verdicts(&lab.json(&args)), ["better"]);
}

#[test]
fn bad_input_is_one_sentence() {
    let lab = Lab::new(script(1.0, 1.0));
    std::fs::write(lab.path("junk"), "junk\n").unwrap();
    std::fs::write(lab.path("there.jsonl"), "").unwrap();
    for (args, part) in [
        (vec!["kernel"], "needs two sides"),
        (vec!["kernel", "cfs"], "`cfs` is no side"),
        (vec!["kernel", "baton", "-w", "sleep"], "`sleep` is no workload"),
        (vec!["kernel", "baton", "--db-url", "mysql://h/d"], "belongs to the oltp workload"),
        (vec!["kernel", "baton", "--record", "there.jsonl"], "exists already"),
        (vec!["kernel", "baton", "-w", "cmd:x", "--load", "at"], "--load has no effect"),
        (vec!["--from", "junk"], "no header of `baton compare`"),
        (vec!["--from", "absent"], "cannot read absent"),
        (vec!["--resume", "junk"], "no header"),
    ] {
        let out = lab.run(&args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        let text = stderr(&out);
        assert!(text.lines().count() == 1 && text.contains(part), "{args:?}: {text}");
    }
    // Nothing was written for a comparison that did not begin.
    assert!(
        !std::fs::read_dir(lab.dir.path())
            .unwrap()
            .flatten()
            .any(|e| { e.file_name().to_string_lossy().starts_with("compare-") })
    );
}
