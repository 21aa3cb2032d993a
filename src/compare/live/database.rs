//! A database server of our own: in a directory of its own, on a Unix socket, removed afterwards.

use super::process::{Options, POLL, Process, User, complete, find};
use crate::compare::workload::{DATABASE, Database, MARIADB_SOCKET, Oltp, POSTGRES_USER, Server};
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use std::os::unix::fs::chown;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use url::Url;

/// How long a server may take to answer after its start.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that is ready.
pub(super) enum Running {
    /// Ours: its process and its data.
    Private(Process, TempDir, Database),
    /// Somebody else's, and the commands that remove what was filled in.
    Theirs(Url, Vec<Vec<String>>),
}

impl Running {
    /// One that somebody else runs.
    pub(super) fn at(url: Url, oltp: &Oltp) -> Result<Self> {
        let emptying = oltp.emptying(&Server::At(url.clone()))?;
        Ok(Self::Theirs(url, emptying))
    }

    pub(super) fn server(&self) -> Server {
        match self {
            Self::Private(_, dir, _) => Server::Private { dir: dir.path().to_path_buf() },
            Self::Theirs(url, _) => Server::At(url.clone()),
        }
    }

    /// Its process group, if it was started here.
    pub(super) fn group(&self) -> Option<u32> {
        match self {
            Self::Private(process, ..) => Some(process.group()),
            Self::Theirs(..) => None,
        }
    }

    /// Ends it and removes the data.
    pub(super) fn end(self) -> Result<()> {
        match self {
            Self::Private(mut process, dir, database) => {
                process.end(ending(database).0);
                dir.close().context("the private database's directory cannot be removed")
            }
            Self::Theirs(_, emptying) => {
                for words in &emptying {
                    complete(words, &Options::default())
                        .context("the database cannot be emptied")?;
                }
                Ok(())
            }
        }
    }
}

/// What ends a server at once. Its data go too, so nothing need be written: PostgreSQL's "immediate
/// shutdown" is SIGQUIT (on SIGTERM it would wait for its clients), MariaDB has none. The signal
/// and its name.
fn ending(database: Database) -> (Signal, &'static str) {
    match database {
        Database::Mariadb => (Signal::KILL, "KILL"),
        Database::Postgresql => (Signal::QUIT, "QUIT"),
    }
}

/// Fills the database, once.
pub(super) fn fill(oltp: &Oltp, server: &Server, stop: &AtomicBool) -> Result<()> {
    for words in oltp.filling(server)? {
        complete(&words, &Options { stop: Some(stop), ..Options::default() })
            .context("the database cannot be filled")?;
    }
    Ok(())
}

/// Starts a private server and waits until it answers.
pub(super) fn start(oltp: &Oltp, stop: &AtomicBool) -> Result<Running> {
    let dir = tempfile::Builder::new()
        .prefix("baton-db-")
        .tempdir()
        .context("no directory for a private database can be made")?;
    let process = match oltp.database {
        Database::Mariadb => mariadb(oltp, dir.path(), stop)?,
        Database::Postgresql => postgresql(oltp, dir.path(), stop)?,
    };
    Ok(Running::Private(process, dir, oltp.database))
}

/// Room for the clients of every load level, also on machines of very many CPUs.
fn connections(oltp: &Oltp) -> usize {
    let above_saturation = 4 * std::thread::available_parallelism().map_or(1, usize::from);
    above_saturation.max(oltp.clients as usize).max(1_000) + 100
}

fn path_of(programs: &[&str]) -> Result<String> {
    let found = programs.iter().find_map(|p| find(p));
    let found = found.with_context(|| format!("{} is not installed", programs[0]))?;
    Ok(found.display().to_string())
}

fn mariadb(oltp: &Oltp, dir: &Path, stop: &AtomicBool) -> Result<Process> {
    let data = dir.join("data");
    let socket = dir.join(MARIADB_SOCKET);
    let common = ["--no-defaults".to_string(), format!("--datadir={}", data.display())];
    let mut words = vec![path_of(&["mariadb-install-db", "mysql_install_db"])?];
    words.extend(common.clone());
    words.extend(["--auth-root-authentication-method=normal", "--skip-test-db"].map(String::from));
    words.extend(as_root());
    complete(&words, &Options::default()).context("MariaDB's data cannot be set up")?;
    let mut words = vec![path_of(&["mariadbd", "mysqld"])?];
    words.extend(common);
    words.extend([
        format!("--socket={}", socket.display()),
        format!("--pid-file={}", dir.join("pid").display()),
        "--skip-networking".into(),
        "--innodb-buffer-pool-size=256M".into(),
        format!("--max-connections={}", connections(oltp)),
        "--max-prepared-stmt-count=1000000".into(),
    ]);
    words.extend(as_root());
    let tied = Some(ending(Database::Mariadb).1);
    let options = Options { tied, dir: Some(dir), ..Options::default() };
    let mut process = Process::start(&words, &options)?;
    let mut client = vec![path_of(&["mariadb", "mysql"])?];
    client.extend(["--no-defaults".into(), "--user=root".into()]);
    client.push(format!("--socket={}", socket.display()));
    client.push(format!("--execute=CREATE DATABASE IF NOT EXISTS {DATABASE}"));
    answer(&mut process, "MariaDB", &client, stop)?;
    Ok(process)
}

/// MariaDB runs as root only if it is told so.
fn as_root() -> Option<String> {
    rustix::process::geteuid().is_root().then(|| "--user=root".to_string())
}

fn postgresql(oltp: &Oltp, dir: &Path, stop: &AtomicBool) -> Result<Process> {
    let user = unprivileged()?;
    if let Some(User { uid, gid }) = user {
        chown(dir, Some(uid), Some(gid))
            .context("the private database's directory cannot be given away")?;
    }
    let data = dir.join("data");
    let data = data.display().to_string();
    let mut words = vec![path_of(&["initdb"])?, "--pgdata".into(), data.clone()];
    words.extend(
        ["--auth=trust", "--no-locale", "--encoding=UTF8", "--username", POSTGRES_USER]
            .map(String::from),
    );
    complete(&words, &Options { user, dir: Some(dir), ..Options::default() })
        .context("PostgreSQL's data cannot be set up")?;
    let words = [
        path_of(&["postgres"])?,
        "-D".into(),
        data,
        "-k".into(),
        dir.display().to_string(),
        "-h".into(),
        String::new(),
        "-c".into(),
        "shared_buffers=256MB".into(),
        "-c".into(),
        format!("max_connections={}", connections(oltp)),
    ];
    let mut process = Process::start(
        &words,
        &Options { user, tied: Some(ending(Database::Postgresql).1), dir: Some(dir), stop: None },
    )?;
    let place = ["-h".to_string(), dir.display().to_string(), "-U".into(), POSTGRES_USER.into()];
    let mut client = vec![path_of(&["createdb"])?];
    client.extend(place);
    client.push(DATABASE.into());
    answer(&mut process, "PostgreSQL", &client, stop)?;
    Ok(process)
}

/// PostgreSQL does not run as root: its own user, or nobody; `None` if this is not root.
fn unprivileged() -> Result<Option<User>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    let ids = |name: &str| {
        let line = users.lines().find(|l| l.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some(User { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
    };
    let user = ids("postgres").or_else(|| ids("nobody"));
    Ok(Some(user.context("there is no user to run PostgreSQL as: add one named postgres")?))
}

/// Waits until the client's command succeeds.
fn answer(process: &mut Process, name: &str, client: &[String], stop: &AtomicBool) -> Result<()> {
    let patience = Instant::now() + PATIENCE;
    loop {
        let Err(error) = complete(client, &Options::default()) else { return Ok(()) };
        if process.ended().is_some() {
            bail!("{name} ended at once: {}", process.last_words());
        }
        if stop.load(Ordering::Relaxed) {
            bail!("told to stop while {name} was starting");
        }
        if Instant::now() > patience {
            return Err(error.context(format!("{name} does not answer")));
        }
        std::thread::sleep(4 * POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server's stand-in, its directory and a process id in its group.
    fn running() -> (Running, std::path::PathBuf, u32) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_path_buf();
        std::fs::write(path.join("data"), "rows").unwrap();
        let words = ["sh", "-c", "sleep 1000 & wait"].map(String::from);
        let process = Process::start(&words, &Options::default()).unwrap();
        let group = process.group();
        (Running::Private(process, dir, Database::Mariadb), path, group)
    }

    fn is_gone(group: u32) -> bool {
        let group = rustix::process::Pid::from_raw(group as i32).unwrap();
        rustix::process::test_kill_process_group(group).is_err()
    }

    #[test]
    fn a_private_server_ends_with_its_data_also_after_an_error() {
        for end in [|r: Running| r.end().unwrap(), |r: Running| drop(r)] {
            let (running, dir, group) = running();
            assert!(dir.exists() && !is_gone(group));
            end(running);
            assert!(!dir.exists());
            // Orphans are reaped by init in their own time.
            let patience = Instant::now() + Duration::from_secs(10);
            while !is_gone(group) && Instant::now() < patience {
                std::thread::sleep(POLL);
            }
            assert!(is_gone(group));
        }
    }

    #[test]
    fn every_client_finds_a_connection() {
        assert!(connections(&Oltp::default()) >= 1_000);
        assert_eq!(connections(&Oltp { clients: 50_000, ..Oltp::default() }), 50_100);
    }
}
