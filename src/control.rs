//! How `baton` talks to a running scheduler: one line of JSON each way over a Unix socket that
//! only root can open.

use crate::units::CpuId;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Where a running scheduler listens.
pub const SOCKET: &str = "/run/scx_baton/control";
/// Longest request that is read.
pub const MAX_REQUEST: u64 = 64 << 10;
/// How long either side waits for the other.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The running settings.
    Get,
    /// Change settings, `NAME=VALUE` each: all or none.
    Set(Vec<String>),
    /// Counters, costs and settings.
    Status,
    /// Decisions after the given numbers, one for each worker; empty: all that are kept.
    Why {
        /// Number of the last decision seen of each worker.
        after: Vec<u64>,
        /// Only those that concern this CPU.
        cpu: Option<CpuId>,
        /// Only those that name this task.
        pid: Option<u32>,
    },
}

/// The answer: a value, or a sentence that says what was wrong.
pub type Reply = Result<Value, String>;

/// Asks the running scheduler.
pub fn ask(request: &Request) -> Result<Value> {
    ask_at(Path::new(SOCKET), request)
}

fn ask_at(socket: &Path, request: &Request) -> Result<Value> {
    let mut stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            bail!("only root may talk to the scheduler: run this with sudo")
        }
        Err(_) => bail!("no scx_baton is running here ({} does not answer)", socket.display()),
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    stream.write_all(line.as_bytes()).context("the scheduler hung up")?;
    let mut answer = String::new();
    BufReader::new(stream)
        .read_line(&mut answer)
        .context("the scheduler does not answer: is its process stopped?")?;
    let reply: Reply = serde_json::from_str(&answer).context("the scheduler hung up")?;
    reply.map_err(anyhow::Error::msg)
}

/// Serves one connection: reads one request, writes what `answer` makes of it.
pub fn serve(stream: &UnixStream, answer: impl FnOnce(Request) -> Reply) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_REQUEST)).read_line(&mut line)?;
    let reply = match serde_json::from_str(&line) {
        Ok(request) => answer(request),
        Err(err) => Err(format!("not a request: {err}")),
    };
    let mut out = serde_json::to_string(&reply)?;
    out.push('\n');
    let mut stream = stream;
    stream.write_all(out.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn exchange(sent: &str) -> String {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(sent.as_bytes()).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        serve(&server, |request| serde_json::to_value(request).map_err(|e| e.to_string())).unwrap();
        drop(server);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn nonsense_gets_a_sentence() {
        assert!(exchange("hello\n").contains("not a request"));
        assert!(exchange("").contains("not a request"));
        assert!(exchange("{\"set\": 3}\n").contains("not a request"));
    }

    #[test]
    fn a_request_crosses_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            serve(&stream, |request| Err(format!("{request:?}"))).unwrap();
        });
        let why = Request::Why { after: vec![1], cpu: Some(CpuId(3)), pid: None };
        let err = ask_at(&path, &why).unwrap_err().to_string();
        assert_eq!(err, format!("{why:?}"));
        server.join().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(ask_at(&path, &Request::Get).unwrap_err().to_string().contains("no scx_baton"));
    }
}
