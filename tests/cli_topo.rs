//! `baton topo` and `baton check` through the real command line.

use std::process::{Command, Output};

#[path = "common/scratch.rs"]
mod scratch;

fn baton(args: &[&str]) -> Output {
    let run = Command::new(env!("CARGO_BIN_EXE_baton")).args(args).output();
    run.unwrap_or_else(|e| panic!("baton: {e}"))
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The only line on standard error.
fn error(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

fn write(dir: &std::path::Path, path: &str, text: &str) {
    let path = dir.join(path);
    std::fs::create_dir_all(path.parent().unwrap_or(&path))
        .and_then(|()| std::fs::write(&path, text))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

#[test]
fn a_wide_machine_is_readable() {
    let out = baton(&["topo", "--synthetic", "genoa-nps4"]);
    let text = stdout(&out);
    assert!(out.status.success());
    assert!(text.lines().all(|line| line.chars().count() <= 160), "a line is too long");
    assert!(text.lines().count() < 120, "too many lines");
    for part in [
        "384 CPUs online, 192 cores, 2 packages, 8 nodes, 24 LLCs",
        "0-23,192-215  {0-7,192-199} {8-15,200-207} {16-23,208-215}",
        "no balancing at level CLS: one group, the same CPUs as SMT (384 CPUs)",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn one_cpus_chain_starts_with_its_own_group() {
    let out = baton(&["topo", "--synthetic", "2x4", "--cpu", "5"]);
    assert!(stdout(&out).contains("groups      {5} {6} {7} {4}"), "{}", stdout(&out));
    let out = baton(&["topo", "--synthetic", "2x4", "--cpu", "8"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(error(&out).contains("CPU 8 is not online here; online are 0-7"));
}

#[test]
fn relaxed_levels_lose_newidle_and_are_named() {
    // Rows: 0 SMT, 1 CLS, 2 MC, 3 PKG, 4 NODE, 5 NUMA.
    let text = |n: &str| {
        let out = baton(&["topo", "--synthetic", "2x4 smt=2", "--relax-domain-level", n]);
        assert!(out.status.success());
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let with_newidle = |text: &str| text.lines().filter(|l| l.starts_with("  newidle ")).count();
    let some = text("3");
    assert!(some.contains("--relax-domain-level 3: no newidle balancing at NUMA 1\n"), "{some}");
    assert_eq!(with_newidle(&some), 2, "{some}");
    let all = text("0");
    assert!(all.contains("no newidle balancing at SMT, MC, NUMA 1\n"), "{all}");
    assert_eq!(with_newidle(&all), 0);
    let none = text("6");
    assert!(none.contains("--relax-domain-level 6 changes nothing"), "{none}");
    assert_eq!(with_newidle(&none), 3);
    let out = baton(&["topo", "--relax-domain-level", "-1"]);
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn json_is_versioned_and_complete() {
    let out = baton(&["topo", "--synthetic", "2x4 smt=2", "--cpu", "1", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["version"], 1);
    assert_eq!(json["topology"]["online"], "0-15");
    assert_eq!(json["domains"][0]["level"], "SMT");
    assert_eq!(json["chain"].as_array().map(Vec::len), Some(3));
    assert_eq!(json["violations"], serde_json::json!([]));
}

#[test]
fn the_picture_is_a_whole_file_or_none() {
    let dir = scratch::scratch();
    let file = dir.path().join("machine.svg");
    let path = file.to_str().unwrap();
    assert!(baton(&["topo", "--synthetic", "laptop-hybrid", "--svg", path]).status.success());
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(
        svg.matches("<rect").count(),
        svg.matches("/>").count() + svg.matches("</rect>").count()
    );
    // Nothing else is left beside it.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let nowhere = dir.path().join("absent/machine.svg");
    let out = baton(&["topo", "--synthetic", "4", "--svg", nowhere.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(2));
    assert!(error(&out).contains("cannot write"));
}

#[test]
fn the_kernels_view_decides_the_exit_status() {
    let dir = scratch::scratch();
    write(dir.path(), "sys/devices/system/cpu/online", "0-1\n");
    write(
        dir.path(),
        "proc/schedstat",
        "version 17\ntimestamp 1\ncpu0 0\ndomain0 MC 3 0\ncpu1 0\ndomain0 MC 3 0\n",
    );
    let root = dir.path().to_str().unwrap();
    let args = ["topo", "--sysroot", root, "--against-kernel"];
    let out = baton(&args);
    assert!(out.status.success() && stdout(&out).contains("has the same domains on every CPU"));
    write(
        dir.path(),
        "proc/schedstat",
        "version 17\ntimestamp 1\ncpu0 0\ndomain0 PKG 3 0\ncpu1 0\n",
    );
    let out = baton(&args);
    assert_eq!(out.status.code(), Some(1));
    assert!(stdout(&out).contains("MC 0-1      PKG 0-1"), "{}", stdout(&out));
    write(dir.path(), "proc/schedstat", "version 17\ncpuX\n");
    let out = baton(&args);
    assert_eq!(out.status.code(), Some(2));
    assert!(error(&out).contains("line 2 is not as expected"));
}

#[test]
fn mistakes_get_one_sentence() {
    for (args, part) in [
        (&["topo", "--synthetic", "2y4"][..], "2y4"),
        (&["topo", "--sysroot", "/nonexistent"], "holds no machine"),
        (&["sim", "--machine", "2", "--tick", "1us"], "give 10us or more"),
        (
            &["sim", "--machine", "2", "--seeds", "2", "--seed", "18446744073709551615"],
            "there are no 2 seeds",
        ),
    ] {
        let out = baton(args);
        assert_eq!(out.status.code(), Some(2));
        assert!(error(&out).contains(part), "{}", error(&out));
    }
    assert_eq!(baton(&["topo", "--synthetic", "4", "--sysroot", "/"]).status.code(), Some(2));
    assert_eq!(baton(&["topo", "--synthetic", "4", "--against-kernel"]).status.code(), Some(2));
}

#[test]
fn check_answers_by_exit_status() {
    let dir = scratch::scratch();
    let out = baton(&["check", "--sysroot", dir.path().to_str().unwrap(), "--json"]);
    assert_eq!(out.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&json["version"], &json["will_run"]), (&1.into(), &false.into()));
    let findings = json["findings"].as_array().unwrap();
    assert!(findings.iter().all(|f| f["verdict"] == "ok" || f["remedy"].is_string()));
}
