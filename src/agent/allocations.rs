//! Counts a thread's heap allocations from outside the allocator.
//!
//! The allocator is scx_rustland_core's, which keeps no count. The kernel can count: a uprobe on
//! the allocator's entry, as a perf counter of one thread. It costs nothing while nothing is
//! allocated, which is the case to be proved.

use anyhow::{Context, Result, bail};
use std::ffi::CString;
use std::fs;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};

/// The first version of `struct perf_event_attr` that has room for a uprobe's two words.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
}
const _: () = assert!(size_of::<PerfEventAttr>() == 72);

/// From `linux/perf_event.h`.
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// Allocations of the thread that made it.
pub(crate) struct AllocationCounter(fs::File);

impl AllocationCounter {
    /// Starts counting calls of the function at `entry` by the calling thread.
    pub(crate) fn of_this_thread(entry: usize) -> Result<Self> {
        let kind = fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")
            .context("this kernel has no uprobes")?;
        let (path, offset) = file_offset(entry)?;
        let path = CString::new(path)?;
        let attr = PerfEventAttr {
            kind: kind.trim().parse()?,
            size: size_of::<PerfEventAttr>() as u32,
            config1: path.as_ptr() as u64,
            config2: offset,
            ..Default::default()
        };
        // SAFETY: `attr` and the path in it are valid for the call, which keeps neither: the
        // kernel copies both. This thread (0), any CPU (-1), no group (-1).
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attr,
                0,
                -1,
                -1,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        if fd < 0 {
            return Err(std::io::Error::last_os_error()).context("perf_event_open of a uprobe");
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(Self(fs::File::from(unsafe { OwnedFd::from_raw_fd(fd as i32) })))
    }

    /// Allocations since the start; `None` if the kernel does not say.
    pub(crate) fn count(&mut self) -> Option<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes).ok()?;
        Some(u64::from_ne_bytes(bytes))
    }
}

/// The file that is mapped at `address`, and the position in it.
fn file_offset(address: usize) -> Result<(String, u64)> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    for line in maps.lines() {
        // start-end perms offset dev inode path
        let mut words = line.split_whitespace();
        let (Some(range), Some(_), Some(offset)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let Some((start, end)) = range.split_once('-') else { continue };
        let start = usize::from_str_radix(start, 16)?;
        let end = usize::from_str_radix(end, 16)?;
        if !(start..end).contains(&address) {
            continue;
        }
        let Some(path) = words.nth(2) else { break };
        let offset = u64::from_str_radix(offset, 16)? + (address - start) as u64;
        return Ok((path.to_string(), offset));
    }
    bail!("no file is mapped at {address:#x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_itself_in_its_own_file() {
        let (path, offset) = file_offset(file_offset as *const () as usize).unwrap();
        assert_eq!(fs::canonicalize(path).unwrap(), std::env::current_exe().unwrap());
        assert!(offset > 0);
        assert!(file_offset(1).is_err());
    }
}
