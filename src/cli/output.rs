//! Where results go.

use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Prints to standard output. A reader that has seen enough (`| head`) is not an error.
pub(super) fn print(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}

/// Prints a value as JSON.
pub(super) fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value).context("cannot form JSON")?;
    text.push('\n');
    print(&text)
}

/// Writes a file so that nobody ever sees a half of it, and a failure leaves the old one. Devices
/// and pipes are written to, not replaced.
pub(super) fn write_file(path: &Path, text: &str) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    if path.metadata().is_ok_and(|m| !m.is_file()) {
        let written = File::options()
            .write(true)
            .open(path)
            .and_then(|mut file| file.write_all(text.as_bytes()));
        return written.with_context(context);
    }
    let name = path.file_name().with_context(context)?.to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // Best effort: what counts is the error that is reported.
        let _ = fs::remove_file(&temporary);
    }
    written.with_context(context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_a_device_never() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        for text in ["one", "two"] {
            write_file(&file, text).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        // Had it been replaced, the link would be a file now.
        let null = dir.path().join("null");
        symlink("/dev/null", &null).unwrap();
        write_file(&null, "text").unwrap();
        assert!(null.symlink_metadata().unwrap().is_symlink());
        assert!(write_file(dir.path(), "text").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
