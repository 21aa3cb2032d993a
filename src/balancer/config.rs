//! The running configuration, swapped as a whole.

use crate::policy::tunables::{TunableError, Tunables};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, lock};

/// A configuration and its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Rises by one with every change; counters are tagged with it.
    pub epoch: u64,
    /// The settings.
    pub tunables: Tunables,
}

/// Holds the running configuration. Readers see it whole: either before a change or after it.
/// With two writers the later one wins whole.
#[derive(Debug)]
pub struct ConfigCell {
    /// Mirrors the epoch inside the lock, so that a reader whose copy is current takes no lock.
    epoch: AtomicU64,
    inner: Mutex<Config>,
}

impl ConfigCell {
    /// A cell with these settings, epoch 0.
    pub fn new(tunables: Tunables) -> Self {
        Self { epoch: AtomicU64::new(0), inner: Mutex::new(Config { epoch: 0, tunables }) }
    }

    /// A copy of the running configuration.
    pub fn load(&self) -> Config {
        *lock(&self.inner)
    }

    /// Brings a copy up to date; one load if nothing changed. Meant for once per round.
    pub fn refresh(&self, copy: &mut Config) {
        if self.epoch.load(Ordering::Acquire) != copy.epoch {
            *copy = self.load();
        }
    }

    /// Replaces all settings; returns the new configuration.
    pub fn store(&self, tunables: Tunables) -> Config {
        let mut inner = lock(&self.inner);
        self.replace(&mut inner, tunables)
    }

    /// Applies `NAME=VALUE` changes to the running settings, all or none.
    pub fn update<'a>(
        &self,
        changes: impl IntoIterator<Item = &'a str>,
    ) -> Result<Config, TunableError> {
        let mut inner = lock(&self.inner);
        let mut tunables = inner.tunables;
        for change in changes {
            tunables.apply(change)?;
        }
        Ok(self.replace(&mut inner, tunables))
    }

    fn replace(&self, inner: &mut Config, tunables: Tunables) -> Config {
        *inner = Config { epoch: inner.epoch + 1, tunables };
        self.epoch.store(inner.epoch, Ordering::Release);
        *inner
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn changes_come_all_or_none() {
        let cell = ConfigCell::new(Tunables::default());
        let mut copy = cell.load();
        assert!(cell.update(["nohz=off", "ilb=last"]).is_err());
        cell.refresh(&mut copy);
        assert_eq!(copy, Config::default());
        cell.update(["nohz=off", "ilb=first"]).unwrap();
        cell.refresh(&mut copy);
        assert_eq!(copy.epoch, 1);
        assert_eq!(copy.tunables.get("ilb").unwrap(), "first");
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_reader_sees_one_writers_settings_whole_and_the_last_one_wins() {
        loom::model(|| {
            let cell = Arc::new(ConfigCell::new(Tunables::default()));
            let pairs = [["nohz=off", "ilb=first"], ["nohz=on", "ilb=round-robin"]];
            let writers: Vec<_> = pairs
                .into_iter()
                .map(|pair| {
                    let cell = Arc::clone(&cell);
                    loom::thread::spawn(move || cell.update(pair).unwrap())
                })
                .collect();
            let is_whole = |config: &Config| {
                let shown = ["nohz", "ilb"].map(|name| config.tunables.get(name).unwrap());
                let shown = [shown[0].as_str(), shown[1].as_str()];
                [["on", "idle-core"], ["off", "first"], ["on", "round-robin"]].contains(&shown)
            };
            let mut copy = Config::default();
            cell.refresh(&mut copy);
            assert!(is_whole(&copy), "{copy:?}");
            let written: Vec<Config> = writers.into_iter().map(|w| w.join().unwrap()).collect();
            cell.refresh(&mut copy);
            assert!(is_whole(&copy));
            let last = written.iter().max_by_key(|c| c.epoch).unwrap();
            assert_eq!((copy.epoch, &copy), (2, last));
        });
    }
}
