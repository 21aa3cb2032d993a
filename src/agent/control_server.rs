//! The agent's end of the control socket.

use super::live::Live;
use crate::control::{SOCKET, serve};
use anyhow::{Context, Result};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

/// Listens until dropped; the socket is then gone.
pub(crate) struct ControlServer {
    listener: UnixListener,
    /// Which file the socket is: a scheduler that took over has its own at the same place.
    inode: u64,
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
        let inode = fs::metadata(path)?.ino();
        let accepting = listener.try_clone()?;
        let thread = std::thread::Builder::new()
            .name("baton-control".into())
            .spawn(move || {
                // Ends when the socket is shut down.
                while let Ok((stream, _)) = accepting.accept() {
                    // A client that is not root, or hangs up, or sends nothing, costs only itself.
                    if peer_is_root(&stream) {
                        let _ = serve(&stream, |request| live.answer(request));
                    }
                }
            })
            .context("the control thread cannot be started")?;
        Ok(Self { listener, inode, thread: Some(thread) })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        // SAFETY: the descriptor is open. Shutting a listening socket down ends `accept`.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if fs::metadata(SOCKET).is_ok_and(|m| m.ino() == self.inode) {
            let _ = fs::remove_file(SOCKET);
        }
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
