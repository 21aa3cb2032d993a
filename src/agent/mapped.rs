//! Memory shared with the BPF component: array maps, mapped into the agent.

use anyhow::{Context, Result};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// An mmapable BPF array of `T`, one entry for each index below `len`.
///
/// Both sides use it at the same time. Entries are copied in and out whole; a copy may mix
/// values from two moments, which every user of this type allows for (see `src/bpf/intf.h`).
pub(crate) struct Mapped<T> {
    base: NonNull<T>,
    len: usize,
}

// SAFETY: the mapping is plain shared memory that outlives no borrow; access is by volatile
// copies only, so handing the handle to another thread adds no new kind of race.
unsafe impl<T: Copy + Send> Send for Mapped<T> {}
// SAFETY: as above; no `&T` into the mapping is ever given out.
unsafe impl<T: Copy + Send> Sync for Mapped<T> {}

impl<T: Copy> Mapped<T> {
    /// Maps all `len` entries of the array behind `fd`. `T` must have the size of the map's
    /// values, which must be a multiple of 8 (the kernel's stride).
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize) -> Result<Self> {
        const { assert!(size_of::<T>().is_multiple_of(8)) };
        // SAFETY: asks for a fresh mapping at an address of the kernel's choice; nothing of ours
        // is replaced. The result is checked before use.
        let addr = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len * size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                0,
            )
        };
        let base = (addr != libc::MAP_FAILED).then(|| NonNull::new(addr.cast::<T>())).flatten();
        let base = base
            .ok_or_else(std::io::Error::last_os_error)
            .context("a table shared with the BPF component cannot be mapped")?;
        Ok(Self { base, len })
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A pointer to entry `i`, for access to one field. Panics beyond the end.
    pub(crate) fn ptr(&self, i: usize) -> *mut T {
        assert!(i < self.len, "entry {i} of {}", self.len);
        // SAFETY: `i` is inside the mapping, which is `len` entries long.
        unsafe { self.base.as_ptr().add(i) }
    }

    /// A copy of entry `i`.
    pub(crate) fn read(&self, i: usize) -> T {
        // SAFETY: `ptr` is inside the mapping and aligned (a page holds whole entries or the
        // stride is the type's size, a multiple of its alignment). Volatile, since the other
        // side writes.
        unsafe { self.ptr(i).read_volatile() }
    }

    /// Overwrites entry `i`.
    pub(crate) fn write(&self, i: usize, value: T) {
        // SAFETY: as in `read`.
        unsafe { self.ptr(i).write_volatile(value) }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: `base` and the length are those of the mapping made in `new`, unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len * size_of::<T>()) };
    }
}
