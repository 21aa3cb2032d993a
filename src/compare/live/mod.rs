//! The machine this runs on.

mod database;
mod environment;
mod kernel;
mod process;
mod run;
mod scheduler;
mod watch;

use super::machine::{Environment, Job, Machine, Observation};
use super::side::{Scheduler, Side};
use super::workload::{Needed, Server, Workload};
use crate::control::{Request, ask};
use crate::topology::Topology;
use anyhow::{Result, bail};
use database::Running;
use scheduler::Started;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use url::Url;

/// How long the machine rests before each run. A fresh scheduler learns the machine meanwhile; the
/// other sides rest as long, so that none has cooler cores than another.
const REST: Duration = Duration::from_secs(1);

/// The real machine.
pub struct Live {
    /// The scx_baton to start.
    baton: PathBuf,
    /// The database to use in place of a private one.
    database_url: Option<Url>,
    /// For the node of a CPU; `None` if it cannot be read.
    topology: Option<Topology>,
    started: Option<Started>,
    database: Option<Running>,
}

impl Live {
    /// Nothing is started yet.
    ///
    /// # Errors
    /// One sentence: somebody else's scheduler is attached.
    pub fn new(database_url: Option<Url>) -> Result<Self> {
        let sight = kernel::sight();
        if !sight.state.is_empty() && sight.state != "disabled" {
            bail!(
                "{} schedules here already: stop it first (end its process, or `systemctl stop scx`)",
                if sight.ops.is_empty() { "a sched_ext scheduler" } else { &sight.ops }
            );
        }
        Ok(Self {
            baton: scheduler::baton(),
            database_url,
            topology: Topology::read(Path::new("/")).ok(),
            started: None,
            database: None,
        })
    }
}

impl Machine for Live {
    fn check(&mut self, workload: &Workload, sides: &[Side]) -> Result<()> {
        let missing = |n: &&Needed| n.programs.iter().all(|p| process::find(p).is_none());
        if let Some(needed) = workload.needs().iter().find(missing) {
            bail!(
                "{} is not installed: Debian has it in the package {} (apt install {})",
                needed.programs[0],
                needed.package,
                needed.package
            );
        }
        for side in sides {
            scheduler::check(&self.baton, &side.scheduler)?;
        }
        Ok(())
    }

    fn environment(&mut self, workload: &Workload) -> Result<Environment> {
        environment::read(&self.baton, workload)
    }

    fn prepare(&mut self, workload: &Workload, stop: &AtomicBool) -> Result<Option<Server>> {
        let Workload::Oltp(oltp) = workload else { return Ok(None) };
        let running = match &self.database_url {
            Some(url) => Running::at(url.clone(), oltp)?,
            None => database::start(oltp, stop)?,
        };
        let server = running.server();
        self.database = Some(running);
        database::fill(oltp, &server, stop)?;
        Ok(Some(server))
    }

    fn start(&mut self, scheduler: &Scheduler, stop: &AtomicBool) -> Result<()> {
        self.started = scheduler::start(&self.baton, scheduler, stop)?;
        Ok(())
    }

    fn set(&mut self, changes: &[String]) -> Result<()> {
        ask(&Request::Set(changes.to_vec())).map(drop)
    }

    fn stop(&mut self) -> Result<()> {
        self.started.take().map_or(Ok(()), Started::stop)
    }

    fn run(&mut self, job: &Job<'_>, stop: &AtomicBool) -> Result<Option<Observation>> {
        let rested = Instant::now() + REST;
        while Instant::now() < rested {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            std::thread::sleep(process::POLL);
        }
        let place = run::Place {
            topology: self.topology.as_ref(),
            scheduler: self.started.as_mut(),
            servers: self.database.as_ref().and_then(Running::group),
        };
        run::run(job, place, stop)
    }

    fn clean_up(&mut self) -> Result<()> {
        self.database.take().map_or(Ok(()), Running::end)
    }

    fn now_s(&self) -> f64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
    }
}
