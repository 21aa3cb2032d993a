//! The agent's end of the control socket.

use super::live::Live;
use crate::control::{SOCKET, serve};
use anyhow::{Context, Result};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Listens until dropped; the socket is then gone.
pub(crate) struct ControlServer {
    quit: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ControlServer {
    /// Starts answering. Only one scheduler can be attached, so what an earlier one left behind is
    /// replaced.
    pub(crate) fn start(live: Arc<Live>) -> Result<Self> {
        let path = Path::new(SOCKET);
        let dir = path.parent().unwrap_or(Path::new("/run"));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
        match fs::remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        let quit = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&quit);
        let thread = std::thread::Builder::new()
            .name("baton-control".into())
            .spawn(move || {
                for stream in listener.incoming() {
                    if flag.load(Ordering::Relaxed) {
                        break;
                    }
                    let Ok(stream) = stream else { continue };
                    // A client that is not root, or hangs up, or sends nothing, costs only itself.
                    if peer_is_root(&stream) {
                        let _ = serve(&stream, |request| live.answer(request));
                    }
                }
            })
            .context("the control thread cannot be started")?;
        Ok(Self { quit, thread: Some(thread) })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.quit.store(true, Ordering::Relaxed);
        // Wakes the thread from its wait.
        let woken = UnixStream::connect(SOCKET).is_ok();
        if let (true, Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
        let _ = fs::remove_file(SOCKET);
    }
}

/// The socket's permissions already keep others out; a descriptor that was handed on does not.
fn peer_is_root(stream: &UnixStream) -> bool {
    let mut cred = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of_val(&cred) as libc::socklen_t;
    // SAFETY: the descriptor is open; `cred` and `len` are valid for the kernel to write, and
    // `len` says how much room there is.
    let ret = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &mut len,
        )
    };
    ret == 0 && cred.uid == 0
}
