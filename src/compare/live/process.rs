//! Child processes: found, started in a group of their own, ended for certain.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Where servers are that are not for everyone's PATH.
const MORE_PLACES: [&str; 4] = ["/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/sbin"];
/// How often a condition is looked at while waiting for it.
pub(super) const POLL: Duration = Duration::from_millis(50);
/// How long a process that was asked to end may take.
const GRACE: Duration = Duration::from_secs(20);

/// The path of a program.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.extend(MORE_PLACES.iter().map(PathBuf::from));
    places.extend(postgresql_places());
    places.into_iter().map(|dir| dir.join(program)).find(|p| is_program(p))
}

/// Debian keeps each version's programs in a place of its own; the newest first.
fn postgresql_places() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, e.path().join("bin"))))
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, path)| path).collect()
}

pub(super) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// A running child, its own process group, with its output in files that have no name.
pub(super) struct Process {
    child: Child,
    stdout: File,
    stderr: File,
    what: String,
}

/// Whom a program runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// How a program is started.
#[derive(Default)]
pub(super) struct Options<'a> {
    /// Whom it runs as; `None`: as this one.
    pub(super) user: Option<User>,
    /// Name of the signal that it is sent when this program dies, however it dies.
    pub(super) tied: Option<&'static str>,
    /// Its working directory.
    pub(super) dir: Option<&'a Path>,
    /// Ends it early when set; only [`complete`] looks.
    pub(super) stop: Option<&'a AtomicBool>,
}

impl Process {
    pub(super) fn start(words: &[String], options: &Options<'_>) -> Result<Self> {
        let (program, rest) = words.split_first().context("no program to start")?;
        let found = if program.contains('/') {
            Some(PathBuf::from(program)).filter(|p| is_program(p))
        } else {
            find(program)
        };
        let Some(found) = found else { bail!("there is no program `{program}` here") };
        let mut command = wrapped(&found, options);
        let (stdout, stderr) = (anonymous()?, anonymous()?);
        command
            .args(rest)
            .stdin(Stdio::null())
            .stdout(stdout.try_clone().context("no more files can be opened")?)
            .stderr(stderr.try_clone().context("no more files can be opened")?)
            .env("LC_ALL", "C.UTF-8")
            .process_group(0);
        if let Some(dir) = options.dir {
            command.current_dir(dir);
        }
        let child = command.spawn().with_context(|| format!("`{program}` cannot be started"))?;
        Ok(Self { child, stdout, stderr, what: program.clone() })
    }

    /// Its process group, and process id.
    pub(super) fn group(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub(super) fn wait(&mut self) -> Result<ExitStatus> {
        self.child.wait().with_context(|| format!("`{}` cannot be waited for", self.what))
    }

    /// Asks it and its children to end, and makes sure of it.
    pub(super) fn end(&mut self, signal: Signal) {
        if self.ended().is_none() {
            self.signal(signal);
            let patience = Instant::now() + GRACE;
            while self.ended().is_none() && Instant::now() < patience {
                std::thread::sleep(POLL);
            }
        }
        // Children may have stayed behind their parent.
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }

    fn signal(&self, signal: Signal) {
        signal_group(self.group(), signal);
    }

    pub(super) fn stdout(&mut self) -> String {
        text(&mut self.stdout)
    }

    /// What it said last on standard error, else on standard output; empty if nothing.
    pub(super) fn last_words(&mut self) -> String {
        let of = |text: String| {
            text.lines()
                .rev()
                .map(str::trim)
                .find(|l| !l.is_empty())
                .unwrap_or_default()
                .to_string()
        };
        Some(of(text(&mut self.stderr)))
            .filter(|t| !t.is_empty())
            .unwrap_or_else(|| of(text(&mut self.stdout)))
    }

    /// Why it did not end well; `None` if it did.
    pub(super) fn failure(&mut self, status: ExitStatus) -> Option<String> {
        if status.success() {
            return None;
        }
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("`{}` ended with status {code}", self.what),
            (None, signal) => {
                format!("`{}` was ended by signal {}", self.what, signal.unwrap_or(0))
            }
        };
        let words = self.last_words();
        Some(if words.is_empty() { how } else { format!("{how}: {words}") })
    }
}

/// Signals a process group; it fails only where nobody is left to hear it.
pub(super) fn signal_group(group: u32, signal: Signal) {
    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.end(Signal::TERM);
        }
    }
}

/// The command for a program, by way of util-linux's setpriv where it is needed: what runs in
/// this process between fork and exec would have to be unsafe.
fn wrapped(program: &Path, options: &Options<'_>) -> Command {
    let setpriv = find("setpriv").filter(|_| options.tied.is_some() || options.user.is_some());
    let Some(setpriv) = setpriv else { return Command::new(program) };
    let mut command = Command::new(setpriv);
    if let Some(User { uid, gid }) = options.user {
        command.args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".into()]);
    }
    if let Some(signal) = options.tied {
        command.arg(format!("--pdeathsig={signal}"));
    }
    command.arg("--").arg(program);
    command
}

fn anonymous() -> Result<File> {
    tempfile::tempfile().context("no temporary file can be made")
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    // What cannot be read is as good as not printed.
    let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs a command to its end.
pub(super) fn complete(words: &[String], options: &Options<'_>) -> Result<String> {
    let mut process = Process::start(words, options)?;
    let told = || options.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
    while options.stop.is_some() && process.ended().is_none() {
        if told() {
            process.end(Signal::TERM);
            bail!("told to stop");
        }
        std::thread::sleep(POLL);
    }
    let status = process.wait()?;
    match process.failure(status) {
        None => Ok(process.stdout()),
        Some(failure) => bail!("{failure}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Process {
        let words = ["sh", "-c", script].map(String::from);
        Process::start(&words, &Options { tied: Some("TERM"), ..Options::default() }).unwrap()
    }

    #[test]
    fn output_and_failure_are_told() {
        let mut process = sh("echo out; echo 'it hurts' >&2; exit 3");
        let status = process.wait().unwrap();
        assert_eq!(process.stdout(), "out\n");
        assert_eq!(process.failure(status).unwrap(), "`sh` ended with status 3: it hurts");
        let missing = Process::start(&["no-such-program-here".into()], &Options::default());
        assert!(missing.err().unwrap().to_string().contains("there is no program"));
    }

    #[test]
    fn a_whole_group_ends() {
        let mut process = sh("sleep 1000 & echo $!; wait");
        let pid = loop {
            let text = process.stdout();
            if let Some(pid) = text.trim().parse::<u32>().ok().filter(|_| text.ends_with('\n')) {
                break pid;
            }
            std::thread::sleep(POLL);
        };
        process.end(Signal::TERM);
        let gone = || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        };
        let patience = Instant::now() + Duration::from_secs(10);
        while !gone() && Instant::now() < patience {
            std::thread::sleep(POLL);
        }
        assert!(gone());
    }
}
