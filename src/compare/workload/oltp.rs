//! Transactions on a real database server: sysbench on MariaDB, pgbench on PostgreSQL.

use super::{Invocation, LOGS, Load, Needed, Printed, first, number_after};
use crate::compare::statistics::quantile;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use url::Url;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Database {
    /// MariaDB (or MySQL, through a URL), loaded by sysbench.
    Mariadb,
    /// PostgreSQL, loaded by pgbench.
    Postgresql,
}

/// What the transactions do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OltpMix {
    /// Only read.
    ReadOnly,
    /// Read and write.
    ReadWrite,
}

/// Options of the OLTP workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Oltp {
    /// Which server.
    pub database: Database,
    /// What the transactions do.
    pub mix: OltpMix,
    /// Clients that ask at once.
    pub clients: u32,
    /// Length of a run, seconds.
    pub seconds: u32,
    /// MariaDB: tables.
    pub tables: u32,
    /// MariaDB: rows of each table. PostgreSQL: 100,000 of them make one unit of scale.
    pub rows: u32,
    /// A server that runs already, without its password; `None`: a private one is started.
    pub url: Option<String>,
}

impl Default for Oltp {
    fn default() -> Self {
        Self {
            database: Database::Mariadb,
            mix: OltpMix::ReadOnly,
            clients: 8,
            seconds: 12,
            tables: 2,
            rows: 2_000,
            url: None,
        }
    }
}

/// How the server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// A private one; its Unix socket is in this directory.
    Private {
        /// The directory.
        dir: PathBuf,
    },
    /// One that runs already.
    At(Url),
}

/// Name of the private server's database and of its socket for MariaDB.
pub(crate) const DATABASE: &str = "baton";
/// See [`DATABASE`].
pub(crate) const MARIADB_SOCKET: &str = "server.sock";
/// The private PostgreSQL's superuser.
pub(crate) const POSTGRES_USER: &str = "baton";

impl Oltp {
    pub(super) fn needs(&self) -> Vec<Needed> {
        let mut needed = vec![match self.database {
            Database::Mariadb => Needed { programs: &["sysbench"], package: "sysbench" },
            Database::Postgresql => {
                Needed { programs: &["pgbench"], package: "postgresql-contrib" }
            }
        }];
        if self.url.is_none() {
            needed.push(match self.database {
                Database::Mariadb => {
                    Needed { programs: &["mariadbd", "mysqld"], package: "mariadb-server" }
                }
                Database::Postgresql => Needed { programs: &["initdb"], package: "postgresql" },
            });
        }
        needed
    }

    pub(super) fn title(&self) -> String {
        let (program, name, unit) = match self.database {
            Database::Mariadb => {
                ("sysbench", "MariaDB", format!("{} tables of {} rows", self.tables, self.rows))
            }
            Database::Postgresql => ("pgbench", "PostgreSQL", format!("scale {}", self.scale())),
        };
        let mix = match self.mix {
            OltpMix::ReadOnly => "read only",
            OltpMix::ReadWrite => "read and write",
        };
        format!("{program} on {name}, {mix}, {} clients, {} s, {unit}", self.clients, self.seconds)
    }

    fn scale(&self) -> u32 {
        self.rows.div_ceil(100_000).max(1)
    }

    /// sysbench's script with everything that does not depend on the command.
    fn sysbench(&self, server: &Server) -> Result<Vec<String>> {
        let script = match self.mix {
            OltpMix::ReadOnly => "oltp_read_only",
            OltpMix::ReadWrite => "oltp_read_write",
        };
        let mut words = vec!["sysbench".into(), script.into(), "--db-driver=mysql".into()];
        match server {
            Server::Private { dir } => words.extend([
                format!("--mysql-socket={}", dir.join(MARIADB_SOCKET).display()),
                "--mysql-user=root".into(),
                format!("--mysql-db={DATABASE}"),
            ]),
            Server::At(url) => {
                let host = url.host_str().context("--db-url names no host")?;
                words.push(format!("--mysql-host={host}"));
                words.push(format!("--mysql-port={}", url.port().unwrap_or(3306)));
                words.push(format!("--mysql-user={}", url.username()));
                if let Some(password) = url.password() {
                    words.push(format!("--mysql-password={password}"));
                }
                words.push(format!("--mysql-db={}", url.path().trim_start_matches('/')));
            }
        }
        words.push(format!("--tables={}", self.tables));
        words.push(format!("--table-size={}", self.rows));
        Ok(words)
    }

    /// pgbench's options that say where the server is, and the database at the end.
    fn pgbench(&self, server: &Server) -> (Vec<String>, String) {
        match server {
            Server::Private { dir } => (
                vec!["-h".into(), dir.display().to_string(), "-U".into(), POSTGRES_USER.into()],
                DATABASE.into(),
            ),
            Server::At(url) => (Vec::new(), url.to_string()),
        }
    }

    /// Commands that fill the database, once.
    pub(crate) fn filling(&self, server: &Server) -> Result<Vec<Vec<String>>> {
        Ok(match self.database {
            Database::Mariadb => {
                let with = |command: &str| -> Result<Vec<String>> {
                    let mut words = self.sysbench(server)?;
                    words.push(command.into());
                    Ok(words)
                };
                // A database that is not ours may hold the tables of an earlier comparison.
                let cleanup =
                    matches!(server, Server::At(_)).then(|| with("cleanup")).transpose()?;
                cleanup.into_iter().chain([with("prepare")?]).collect()
            }
            Database::Postgresql => {
                let (place, database) = self.pgbench(server);
                let mut words = vec!["pgbench".to_string()];
                words.extend(place);
                words.extend([
                    "-i".into(),
                    "-q".into(),
                    "-s".into(),
                    self.scale().to_string(),
                    database,
                ]);
                vec![words]
            }
        })
    }

    /// Commands that remove what was filled in; a private server is removed as a whole.
    pub(crate) fn emptying(&self, server: &Server) -> Result<Vec<Vec<String>>> {
        let Server::At(_) = server else { return Ok(Vec::new()) };
        Ok(match self.database {
            Database::Mariadb => {
                let mut words = self.sysbench(server)?;
                words.push("cleanup".into());
                vec![words]
            }
            Database::Postgresql => {
                let (_, database) = self.pgbench(server);
                vec![["pgbench", "-i", "-I", "d", &database].map(String::from).into()]
            }
        })
    }

    pub(super) fn invocation(
        &self,
        load: Load,
        cpus: u32,
        server: Option<&Server>,
    ) -> Result<Invocation> {
        let Some(server) = server else { bail!("no database server is running") };
        let clients = load.count(cpus, 1, self.clients);
        Ok(match self.database {
            Database::Mariadb => {
                let mut words = self.sysbench(server)?;
                words.extend([
                    format!("--threads={clients}"),
                    format!("--time={}", self.seconds),
                    "--percentile=95".into(),
                    "run".into(),
                ]);
                Invocation::one(words)
            }
            Database::Postgresql => {
                let (place, database) = self.pgbench(server);
                let mut words = vec!["pgbench".to_string()];
                words.extend(place);
                // Without vacuum; a thread for each client, as sysbench has; latencies in a log.
                words.extend(["-n".into(), "-l".into()]);
                words.push(format!("--log-prefix={LOGS}/log"));
                for (option, value) in [("-c", clients), ("-j", clients), ("-T", self.seconds)] {
                    words.extend([option.to_string(), value.to_string()]);
                }
                if self.mix == OltpMix::ReadOnly {
                    words.push("-S".into());
                }
                words.push(database);
                Invocation { latency_logs: true, ..Invocation::one(words) }
            }
        })
    }

    pub(super) fn score(&self, printed: &Printed) -> Result<Vec<f64>, String> {
        let text = first(printed);
        match self.database {
            Database::Mariadb => {
                let transactions = text.split_once("transactions:").map(|(_, rest)| rest);
                let rate = transactions.and_then(|t| number_after(t, "("));
                let p95 = number_after(text, "95th percentile:");
                rate.zip(p95)
                    .map(|(rate, p95)| vec![rate, p95])
                    .ok_or_else(|| "sysbench printed no transactions or no percentile".into())
            }
            Database::Postgresql => {
                let rate = number_after(text, "tps =").ok_or("pgbench printed no `tps =`")?;
                let p95 =
                    quantile(&printed.latencies_ms, 0.95).ok_or("pgbench logged no latency")?;
                Ok(vec![rate, p95])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYSBENCH: &str = "SQL statistics:\n    transactions:                        1234   (102.83 per sec.)\n\
        Latency (ms):\n         95th percentile:                      215.44\n";

    #[test]
    fn scores_are_read_from_both_programs() {
        let mariadb = Printed { stdout: vec![SYSBENCH.into()], ..Printed::default() };
        assert_eq!(Oltp::default().score(&mariadb), Ok(vec![102.83, 215.44]));
        let postgresql = Oltp { database: Database::Postgresql, ..Oltp::default() };
        let text = "latency average = 2.1 ms\ntps = 475.25 (without initial connection time)\n";
        let mut printed = Printed { stdout: vec![text.into()], ..Printed::default() };
        assert!(postgresql.score(&printed).unwrap_err().contains("no latency"));
        printed.latencies_ms = vec![1.0, 2.0, 3.0];
        assert_eq!(postgresql.score(&printed), Ok(vec![475.25, 2.9]));
        assert!(Oltp::default().score(&printed).is_err());
    }

    #[test]
    fn a_running_server_is_reached_by_its_url() {
        let url = Url::parse("mysql://me:secret@db.example:3307/test").unwrap();
        let words = Oltp::default()
            .invocation(Load::Amount(16), 8, Some(&Server::At(url)))
            .unwrap()
            .words
            .join(" ");
        for part in [
            "--mysql-host=db.example",
            "--mysql-port=3307",
            "--mysql-user=me",
            "--mysql-password=secret",
            "--mysql-db=test",
            "--threads=16",
        ] {
            assert!(words.contains(part), "{words}");
        }
    }
}
