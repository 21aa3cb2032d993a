//! Where tests keep many small files.

/// A directory for many small files: in memory where that is possible.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap_or_else(|e| panic!("no temporary directory: {e}"))
}
