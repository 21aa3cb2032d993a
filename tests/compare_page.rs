//! The page of `baton compare` in a real browser: pictures present, nothing on the console, no
//! request to the outside.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[path = "common/scratch.rs"]
mod scratch;

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// It must not reach for the network on its own account.
const OPTIONS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--enable-logging=stderr",
    "--hide-scrollbars",
];

fn browser() -> Option<&'static str> {
    let runs = |name: &&&str| {
        Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success())
    };
    let found = BROWSERS.iter().find(runs).copied();
    if found.is_none() {
        // Not println: that is shown for failed tests only.
        let what = "skipped: no browser to look at the page with (Debian package chromium)";
        let _ = writeln!(std::io::stderr(), "{what}");
    }
    found
}

/// A result with everything that can be on a page: three sides, two loads, invalid runs.
fn page(dir: &Path) -> PathBuf {
    let script = serde_json::json!({
        "means": { "kernel": 1.0, "baton": 0.93, "./other --x": 1.08 },
        "noise": 0.02,
        "faults": { "35": "ejected", "40": "workload", "50": "killed", "60": "governor" },
    });
    std::fs::write(dir.join("script.json"), script.to_string()).unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_baton"))
        .current_dir(dir)
        .args(["compare", "kernel", "baton", "cmd:./other --x", "--load", "below,above", "--quiet"])
        .args(["--scripted", "script.json", "--record", "r.jsonl", "--html", "page.html"])
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    dir.join("page.html")
}

/// Opens the page without a way to the network; returns also the addresses that the page, not
/// the browser by itself, asked for.
fn open(browser: &str, dir: &Path, page: &Path, args: &[&str]) -> (Output, Vec<String>) {
    let profile = tempfile::tempdir_in(dir).unwrap();
    let log = profile.path().join("net.json");
    let output = Command::new(browser)
        .args(OPTIONS)
        .arg(format!("--user-data-dir={}", profile.path().display()))
        // Nobody listens on the discard port.
        .args(["--proxy-server=http://127.0.0.1:9", "--proxy-bypass-list=<-loopback>"])
        .arg(format!("--log-net-log={}", log.display()))
        .args(args)
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let log: Value = serde_json::from_str(&std::fs::read_to_string(log).unwrap()).unwrap();
    let start = &log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"];
    assert!(start.is_u64(), "the browser's log has another form");
    let of_the_page = |event: &&Value| {
        let initiator = event["params"]["initiator"].as_str();
        event["type"] == *start && initiator.is_some_and(|i| i != "not an origin")
    };
    let events = log["events"].as_array().unwrap().iter().filter(of_the_page);
    let asked = events.map(|event| event["params"]["url"].to_string()).collect();
    (output, asked)
}

#[test]
fn the_page_shows_its_pictures_and_asks_nobody() {
    let Some(browser) = browser() else { return };
    let dir = scratch::scratch();
    let page = page(dir.path());
    let (output, requests) = open(browser, dir.path(), &page, &["--dump-dom"]);
    assert!(output.status.success());
    let dom = String::from_utf8_lossy(&output.stdout);
    // An overview; for each of two loads: over time, two sides' differences, percentiles.
    assert_eq!(dom.matches("<svg ").count(), 1 + 2 * 4);
    assert!(dom.matches("<circle ").count() > 100);
    // Each invalid run is a cross in its load's picture, and an entry below.
    assert_eq!(dom.matches(" cross\"").count(), 3);
    assert_eq!(dom.matches("<li class=").count(), 3);
    assert!(dom.contains("href=\"#invalid\"") && dom.contains("id=\"invalid\""));
    for part in [
        "Invalid runs",
        "ejected",
        "its process ended during the run",
        "The machine changed meanwhile: governor",
        "better",
        "worse",
        "7.3.4-scripted",
    ] {
        assert!(dom.contains(part), "{part} is not on the page");
    }
    for broken in ["NaN", "Infinity", "undefined", ">inf<"] {
        assert!(!dom.contains(broken), "{broken} is on the page");
    }
    let log = String::from_utf8_lossy(&output.stderr);
    let console: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert_eq!(console, [""; 0]);
    assert_eq!(requests, [""; 0]);
}

#[test]
fn a_complaint_and_a_request_would_be_noticed() {
    let Some(browser) = browser() else { return };
    let dir = scratch::scratch();
    let page = dir.path().join("bad.html");
    let text = "<img src=\"http://host.invalid/x.png\"><script>console.error('ouch')</script>";
    std::fs::write(&page, text).unwrap();
    let (output, requests) = open(browser, dir.path(), &page, &["--dump-dom"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("ouch"));
    assert_eq!(requests, ["\"http://host.invalid/x.png\""]);
}

#[test]
fn nothing_is_wider_than_a_phone() {
    let Some(browser) = browser() else { return };
    let dir = scratch::scratch();
    let page = page(dir.path());
    // A frame of a phone's width tells how wide its content is.
    let text = std::fs::read_to_string(&page).unwrap();
    let measured =
        text.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';");
    let measured = measured.replace(
        "</body>",
        "<script>document.title = 'wide ' + document.documentElement.scrollWidth</script></body>",
    );
    std::fs::write(dir.path().join("measured.html"), measured).unwrap();
    let frame = dir.path().join("frame.html");
    let text = "<iframe id=f src=measured.html width=360 height=800></iframe><script>\
                f.onload = () => { document.title = f.contentDocument.title }</script>";
    std::fs::write(&frame, text).unwrap();
    let args = ["--allow-file-access-from-files", "--virtual-time-budget=3000", "--dump-dom"];
    let (output, _) = open(browser, dir.path(), &frame, &args);
    let dom = String::from_utf8_lossy(&output.stdout);
    let width = dom.split_once("<title>wide ").and_then(|(_, rest)| rest.split_once('<'));
    let width: u32 = width.unwrap_or_else(|| panic!("{dom}")).0.parse().unwrap();
    assert!(width <= 360, "{width} pixels wide");
}
