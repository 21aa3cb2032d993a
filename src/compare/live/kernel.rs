//! What the kernel says about itself.

use crate::compare::machine::Sight;
use crate::control::{Request, ask};
use crate::sched_ext;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The text of a small file without the space around it; `None` if it cannot be read.
pub(super) fn read(path: impl AsRef<Path>) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_string())
}

/// The state of sched_ext now, without scx_baton's settings.
pub(super) fn sight() -> Sight {
    let root = Path::new("/");
    Sight {
        state: sched_ext::state(root).unwrap_or_default(),
        ops: sched_ext::ops(root).unwrap_or_default(),
        enable_seq: sched_ext::enable_seq(root),
        settings: None,
        epoch: None,
    }
}

/// The same with scx_baton's settings.
pub(super) fn sight_with_settings() -> Sight {
    let mut sight = sight();
    let Ok(reply) = ask(&Request::Get) else { return sight };
    let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_string);
    sight.epoch = reply["epoch"].as_u64();
    sight.settings = reply["settings"]
        .as_object()
        .map(|all| all.iter().map(|(name, v)| (name.clone(), text(v))).collect::<BTreeMap<_, _>>());
    sight
}
