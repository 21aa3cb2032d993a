//! The text form of a workload: `KIND` or `KIND:OPTION,OPTION=VALUE,…`.

use super::{
    Better, CommandWorkload, Database, Extract, Hackbench, Oltp, OltpMix, Pipe, Wakeup, Workload,
};
use anyhow::{Result, bail};

/// What comes with `cmd:` beside the command.
#[derive(Clone, Debug, Default)]
pub struct Scoring {
    /// Regular expression for the score.
    pub regex: Option<String>,
    /// JSON path of the score.
    pub json: Option<String>,
    /// Unit of the score.
    pub unit: Option<String>,
    /// Which way is better.
    pub better: Option<Better>,
}

/// The options of one workload, taken out one by one so that what is left over is unknown.
struct Options<'a> {
    kind: &'a str,
    known: Vec<&'static str>,
    given: Vec<(&'a str, Option<&'a str>)>,
}

impl<'a> Options<'a> {
    fn new(kind: &'a str, text: &'a str) -> Self {
        let option = |o: &'a str| match o.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (o.trim(), None),
        };
        let given = text.split(',').filter(|o| !o.trim().is_empty()).map(option).collect();
        Self { kind, known: Vec::new(), given }
    }

    fn take(&mut self, name: &'static str) -> Option<Option<&'a str>> {
        self.known.push(name);
        let at = self.given.iter().rposition(|(n, _)| *n == name)?;
        let (_, value) = self.given.remove(at);
        self.given.retain(|(n, _)| *n != name);
        Some(value)
    }

    fn number(&mut self, name: &'static str, into: &mut u32) -> Result<()> {
        let Some(value) = self.take(name) else { return Ok(()) };
        match value.map(str::parse) {
            Some(Ok(n @ 1..=1_000_000_000)) => *into = n,
            _ => bail!("{} in {} takes a number from 1, such as {name}={into}", name, self.kind),
        }
        Ok(())
    }

    fn flag(&mut self, name: &'static str) -> Result<bool> {
        match self.take(name) {
            None => Ok(false),
            Some(None) => Ok(true),
            Some(Some(_)) => bail!("{name} in {} takes no value", self.kind),
        }
    }

    fn finish(self) -> Result<()> {
        match self.given.first() {
            None => Ok(()),
            Some((name, _)) => {
                bail!("{} has no option `{name}`; it has {}", self.kind, self.known.join(", "))
            }
        }
    }
}

/// Reads a workload.
///
/// # Errors
/// One sentence that names what would do.
pub fn parse_workload(text: &str, scoring: &Scoring) -> Result<Workload> {
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    let scored = scoring.regex.is_some() || scoring.json.is_some() || scoring.unit.is_some();
    if kind != "cmd" && (scored || scoring.better.is_some()) {
        bail!(
            "--score, --score-json, --unit and --better belong to a `cmd:` workload, not to {kind}"
        );
    }
    let mut o = Options::new(kind, rest);
    let workload = match kind {
        "hackbench" => {
            let mut h = Hackbench::default();
            o.number("groups", &mut h.groups)?;
            o.number("loops", &mut h.loops)?;
            o.number("fds", &mut h.fds)?;
            let (pipes, sockets) = (o.flag("pipes")?, o.flag("sockets")?);
            let (processes, threads) = (o.flag("processes")?, o.flag("threads")?);
            if pipes && sockets || processes && threads {
                bail!("hackbench uses pipes or sockets, and processes or threads, not both");
            }
            h.pipes = !sockets;
            h.threads = threads;
            Workload::Hackbench(h)
        }
        "oltp" => {
            let mut w = Oltp::default();
            let (mariadb, postgresql) = (o.flag("mariadb")?, o.flag("postgresql")?);
            let (read_only, read_write) = (o.flag("read_only")?, o.flag("read_write")?);
            if mariadb && postgresql || read_only && read_write {
                bail!("oltp runs on mariadb or postgresql, and read_only or read_write, not both");
            }
            o.number("clients", &mut w.clients)?;
            o.number("seconds", &mut w.seconds)?;
            o.number("tables", &mut w.tables)?;
            o.number("rows", &mut w.rows)?;
            w.database = if postgresql { Database::Postgresql } else { Database::Mariadb };
            w.mix = if read_write { OltpMix::ReadWrite } else { OltpMix::ReadOnly };
            Workload::Oltp(w)
        }
        "wakeup" => {
            let mut w = Wakeup::default();
            o.number("threads", &mut w.threads)?;
            o.number("interval_us", &mut w.interval_us)?;
            o.number("loops", &mut w.loops)?;
            w.hackbench = o.flag("hackbench")?;
            Workload::Wakeup(w)
        }
        "pipe" => {
            let mut p = Pipe::default();
            o.number("pairs", &mut p.pairs)?;
            o.number("loops", &mut p.loops)?;
            p.threads = o.flag("threads")?;
            Workload::Pipe(p)
        }
        "cmd" => return command(rest, scoring),
        _ => bail!("`{kind}` is no workload: use hackbench, oltp, wakeup, pipe or cmd:COMMAND"),
    };
    o.finish()?;
    Ok(workload)
}

fn command(command: &str, scoring: &Scoring) -> Result<Workload> {
    let extract = match (&scoring.regex, &scoring.json) {
        (Some(_), Some(_)) => bail!("a score is read by --score or by --score-json, not by both"),
        (Some(regex), None) => Extract::Regex(regex.clone()),
        (None, Some(path)) => Extract::Json(path.clone()),
        (None, None) => Extract::Elapsed,
    };
    let elapsed = extract == Extract::Elapsed;
    let better = match scoring.better {
        Some(better) => better,
        None if elapsed => Better::Lower,
        None => bail!("--better is missing: say whether a lower or a higher score is better"),
    };
    let unit = scoring.unit.as_deref().unwrap_or(if elapsed { "s" } else { "" });
    let workload =
        CommandWorkload::new(command, extract, unit, better).map_err(anyhow::Error::msg)?;
    Ok(Workload::Cmd(workload))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Workload> {
        parse_workload(text, &Scoring::default())
    }

    #[test]
    fn options_reach_the_workload() {
        let Workload::Hackbench(h) = parse("hackbench:groups=2,loops=50,sockets,threads").unwrap()
        else {
            panic!("not hackbench")
        };
        assert_eq!((h.groups, h.loops, h.fds, h.pipes, h.threads), (2, 50, 20, false, true));
        let Workload::Oltp(o) = parse("oltp:postgresql,read_write,clients=16").unwrap() else {
            panic!("not oltp")
        };
        assert_eq!((o.database, o.mix, o.clients), (Database::Postgresql, OltpMix::ReadWrite, 16));
        assert_eq!(parse("pipe").unwrap(), Workload::Pipe(Pipe::default()));
        assert_eq!(parse("wakeup:").unwrap(), Workload::Wakeup(Wakeup::default()));
    }

    #[test]
    fn what_is_wrong_is_told_in_one_sentence() {
        for (text, part) in [
            ("sleep", "use hackbench, oltp, wakeup, pipe or cmd:COMMAND"),
            ("hackbench:group=2", "it has groups, loops, fds, pipes"),
            ("hackbench:groups=0", "takes a number from 1, such as groups=4"),
            ("hackbench:groups", "takes a number"),
            ("hackbench:pipes=1", "takes no value"),
            ("hackbench:pipes,sockets", "not both"),
            ("cmd:", "lacks its command"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_score_needs_its_direction() {
        let mut scoring = Scoring { regex: Some("(x)".into()), ..Scoring::default() };
        assert!(parse_workload("cmd:x", &scoring).unwrap_err().to_string().contains("--better"));
        assert!(parse_workload("pipe", &scoring).unwrap_err().to_string().contains("belong to"));
        scoring.better = Some(Better::Higher);
        assert_eq!(parse_workload("cmd:x", &scoring).unwrap().metrics()[0].better, Better::Higher);
    }
}
