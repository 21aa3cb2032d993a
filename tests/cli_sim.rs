//! `baton sim` through the real command line: sweeps, shards and their merger.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

use std::process::{Command, Output};

#[path = "common/scratch.rs"]
mod scratch;

/// A sweep of six points that takes no time.
const SWEEP: [&str; 9] = [
    "sim",
    "--machine",
    "1x1x4",
    "--duration",
    "20ms",
    "--set",
    "serialize-order=due,elected",
    "--seeds",
    "3",
];

fn baton(args: &[&str]) -> Output {
    let run = Command::new(env!("CARGO_BIN_EXE_baton")).args(args).output();
    run.unwrap_or_else(|e| panic!("baton: {e}"))
}

fn stdout(args: &[&str]) -> String {
    let out = baton(args);
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{text}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SWEEP.iter().chain(more).copied().collect()
}

/// The sweep in so many parts, as files.
fn parts(dir: &std::path::Path, n: usize) -> Vec<String> {
    let part = |i| {
        let path = dir.join(format!("part{i}of{n}.json"));
        let shard = format!("{i}/{n}");
        std::fs::write(&path, stdout(&with(&["--shard", &shard]))).unwrap();
        path.to_str().unwrap().to_string()
    };
    (1..=n).map(part).collect()
}

fn merged(files: &[String], more: &[&'static str]) -> Output {
    let files = files.iter().map(String::as_str);
    let args: Vec<&str> =
        ["sim", "merge"].into_iter().chain(files).chain(more.iter().copied()).collect();
    baton(&args)
}

#[test]
fn shards_merge_into_the_whole_sweep_byte_for_byte() {
    let dir = scratch::scratch();
    let (table, json) = (stdout(&SWEEP), stdout(&with(&["--json"])));
    for n in [1, 2, 4, 9] {
        let mut files = parts(dir.path(), n);
        files.reverse();
        for (whole, more) in [(&table, &[][..]), (&json, &["--json"])] {
            let out = merged(&files, more);
            assert_eq!(out.status.code(), Some(0));
            assert_eq!(String::from_utf8_lossy(&out.stdout), whole.as_str(), "{n} parts {more:?}");
        }
    }
}

#[test]
fn a_sweep_has_one_point_for_each_combination_and_seed() {
    let json: serde_json::Value = serde_json::from_str(&stdout(&with(&["--json"]))).unwrap();
    let points = json["points"].as_array().unwrap();
    let point = |p: &serde_json::Value| (p["set"][0][1].clone(), p["seed"].as_u64().unwrap());
    let expected: Vec<_> = ["due", "elected"]
        .iter()
        .flat_map(|value| (1..=3).map(move |seed| (serde_json::Value::from(*value), seed)))
        .collect();
    assert_eq!(points.iter().map(point).collect::<Vec<_>>(), expected);
    let table = stdout(&SWEEP);
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.contains("serialize-order=elected      3"), "{table}");
}

#[test]
fn parts_that_do_not_fit_are_named() {
    let dir = scratch::scratch();
    let files = parts(dir.path(), 2);
    let missing = merged(&files[..1], &[]);
    assert_eq!(missing.status.code(), Some(1));
    let text = |out: &Output| String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(text(&missing).contains("3 of 6 points are missing"), "{}", text(&missing));
    let twice = merged(&[files[0].clone(), files[0].clone()], &[]);
    assert_eq!(twice.status.code(), Some(2));
    assert!(text(&twice).contains("two of the files hold point 0"), "{}", text(&twice));
    let other = dir.path().join("other.json");
    std::fs::write(
        &other,
        stdout(&["sim", "--machine", "1x1x4", "--duration", "5ms", "--shard", "1/1"]),
    )
    .unwrap();
    let mixed = merged(&[files[0].clone(), other.to_str().unwrap().into()], &[]);
    assert!(text(&mixed).contains("of another sweep"), "{}", text(&mixed));
    for shard in ["0/2", "3/2", "2", "a/b"] {
        let out = baton(&with(&["--shard", shard]));
        assert_eq!(out.status.code(), Some(2));
        assert!(text(&out).contains("is not I/N"), "{}", text(&out));
    }
}
