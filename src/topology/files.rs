//! Reading small files under a root directory, and noting what is wrong with them.

use super::{MAX_CPUS, Note};
use crate::cpumask::Cpumask;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest file that is read; sysfs files are shorter, and `/proc/cpuinfo` is only needed in part.
const MAX_FILE: u64 = 1 << 20;

/// The files below one root directory. Nothing here fails: what cannot be read is `None`.
pub(super) struct Files {
    root: PathBuf,
    notes: Vec<Note>,
    seen: HashMap<(String, String), usize>,
}

impl Files {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf(), notes: Vec::new(), seen: HashMap::new() }
    }

    /// Records a fault. The same fault with the same consequence is kept once, with a count.
    pub(super) fn note(&mut self, path: &str, what: impl Into<String>, consequence: String) {
        let what = what.into();
        if let Some(&i) = self.seen.get(&(what.clone(), consequence.clone())) {
            self.notes[i].times += 1;
            return;
        }
        self.seen.insert((what.clone(), consequence.clone()), self.notes.len());
        self.notes.push(Note { path: path.to_string(), what, consequence, times: 1 });
    }

    pub(super) fn into_notes(self) -> Vec<Note> {
        self.notes
    }

    /// A file's text; `None` if it cannot be read. Bytes that are no text are replaced, so that
    /// parsing fails, not reading.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::with_capacity(256);
        File::open(self.root.join(path)).ok()?.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
        let mut text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
        };
        // Some captured files end in a NUL.
        text.truncate(text.trim_end_matches('\0').len());
        Some(text)
    }

    /// A whole number, possibly negative; a note if there is text that is none.
    pub(super) fn number(&mut self, path: &str) -> Option<i64> {
        let text = self.read(path)?;
        let number = text.trim().parse().ok();
        if number.is_none() {
            self.note(path, "not a number", "treated as missing".to_string());
        }
        number
    }

    /// A CPU list of the given width. Ids beyond it are dropped with a note; a malformed list is
    /// noted and is `None`.
    pub(super) fn cpulist(&mut self, path: &str, width: usize) -> Option<Cpumask> {
        let text = self.read(path)?;
        self.parse_cpulist(path, &text, width)
    }

    /// [`Files::cpulist`] on text that has been read already.
    pub(super) fn parse_cpulist(
        &mut self,
        path: &str,
        text: &str,
        width: usize,
    ) -> Option<Cpumask> {
        self.clipped(path, width, |width| Cpumask::parse_list(text, width))
    }

    /// A CPU mask in hexadecimal words; as [`Files::cpulist`] otherwise.
    pub(super) fn parse_cpumap(&mut self, path: &str, text: &str, width: usize) -> Option<Cpumask> {
        self.clipped(path, width, |width| Cpumask::parse_hex(text, width))
    }

    fn clipped(
        &mut self,
        path: &str,
        width: usize,
        parse: impl Fn(usize) -> Result<Cpumask, crate::cpumask::ParseError>,
    ) -> Option<Cpumask> {
        let error = match parse(width) {
            Ok(mask) => return Some(mask),
            Err(error) => error,
        };
        if let Ok(wide) = parse(MAX_CPUS) {
            let consequence = format!("CPU ids from {width} on are ignored there");
            self.note(path, "names CPUs that are not possible", consequence);
            return Some(Cpumask::from_cpus(
                width,
                wide.iter().take_while(|cpu| cpu.index() < width),
            ));
        }
        self.note(path, error.to_string(), "treated as missing".to_string());
        None
    }

    /// Highest id + 1 of a CPU list, if the file exists and is believable.
    pub(super) fn list_width(&mut self, path: &str) -> Option<usize> {
        let text = self.read(path)?;
        match Cpumask::parse_list(&text, MAX_CPUS) {
            Ok(mask) => mask.iter().last().map(|cpu| cpu.index() + 1),
            Err(error) => {
                self.note(path, error.to_string(), "treated as missing".to_string());
                None
            }
        }
    }

    /// The numbers N of the entries called `prefixN` in a directory, rising.
    pub(super) fn numbered(&self, dir: &str, prefix: &str) -> Vec<u32> {
        let entries = std::fs::read_dir(self.root.join(dir)).into_iter().flatten().flatten();
        let mut numbers: Vec<u32> = entries
            .filter_map(|e| e.file_name().to_str()?.strip_prefix(prefix)?.parse().ok())
            .collect();
        numbers.sort_unstable();
        numbers
    }
}
