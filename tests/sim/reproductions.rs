//! Published results on small machines: the direction and the bounds of the factor. A regression
//! of the policy shows here.

use scx_baton::sim::reproduce::{NAMES, Size, reproduce};

fn check(name: &str) {
    let result = reproduce(name, Size::Small).unwrap();
    assert!(result.holds(), "{}", result.text());
}

#[test]
fn serialize() {
    check("serialize");
}

#[test]
fn nohz() {
    check("nohz");
}

#[test]
fn numa_imbalance() {
    check("numa-imbalance");
}

#[test]
fn wasted_cores() {
    check("wasted-cores");
}

#[test]
fn there_is_no_other() {
    assert!(
        NAMES.iter().all(|n| ["serialize", "nohz", "numa-imbalance", "wasted-cores"].contains(n))
    );
    assert!(reproduce("perpetual-motion", Size::Small).is_none());
}
