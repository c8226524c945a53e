//! The addresses of the servers of a job, each at a free port of its host. Each host chooses and claims its own ports:
//! this machine in this process, another one in a `gannet claim-ports` that lives as long as the launcher.

use crate::failure::{Failure, PEER, SYSTEM};
use crate::flags::{ClaimPortsArgs, LaunchArgs};
use crate::launch::hosts::Hosts;
use crate::launch::place::{ProcessPlace, Remote};
use crate::launch::ports::Ports;
use crate::launch::role::{ProcessRole, system};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// The ports of a remote host. Dropping it releases them.
struct RemoteClaim {
    child: Child,
}

impl Drop for RemoteClaim {
    fn drop(&mut self) {
        // The end of its standard input ends the process there, and then ssh.
        drop(self.child.stdin.take());
        if !matches!(ends_in_time(&mut self.child), Ok(true)) {
            tracing::debug!("a host still claims its ports");
        }
    }
}

/// Waits for the end of a process for a second, then kills it. Returns whether it has ended by itself.
fn ends_in_time(child: &mut Child) -> std::io::Result<bool> {
    for _ in 0..50 {
        if child.try_wait()?.is_some() {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill()?;
    child.wait().map(|_| false)
}

/// See the module.
pub struct Addresses {
    /// Those of the servers, and then that of the coordinator, if there is one.
    pub addrs: Vec<String>,
    /// The cores of the host of each server, divided by its servers.
    pub threads: Vec<u32>,
    _here: Option<Ports>,
    _remote: Vec<RemoteClaim>,
}

/// How long a host may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(30);

fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, usize::from) as u32
}

impl Addresses {
    /// These addresses, which nobody claims.
    #[cfg(test)]
    pub fn of(addrs: Vec<String>) -> Addresses {
        let threads = vec![2; addrs.len()];
        Addresses { addrs, threads, _here: None, _remote: Vec::new() }
    }

    /// Addresses on this machine.
    ///
    /// # Errors
    /// There are not enough free ports.
    pub fn here(servers: u32, needs_coordinator: bool) -> Result<Addresses, Failure> {
        let ports = Ports::claim("127.0.0.1", servers as usize + usize::from(needs_coordinator))?;
        let threads = vec![(cores() / servers).max(1); servers as usize];
        Ok(Addresses { addrs: ports.addrs(), threads, _here: Some(ports), _remote: Vec::new() })
    }

    /// Addresses on the hosts of a job.
    ///
    /// # Errors
    /// A host cannot be reached, has another version of gannet, or has not enough free ports.
    pub fn on(
        hosts: &Hosts,
        places: &[Remote],
        args: &LaunchArgs,
        needs_coordinator: bool,
    ) -> Result<Addresses, Failure> {
        let servers = (0..args.servers).map(ProcessRole::Server);
        let roles: Vec<ProcessRole> =
            servers.chain(needs_coordinator.then_some(ProcessRole::Coordinator)).collect();
        let mut addrs = vec![String::new(); roles.len()];
        let (mut threads, mut claims) = (vec![1; args.servers as usize], Vec::new());
        for (number, (host, place)) in hosts.all().iter().zip(places).enumerate() {
            let here: Vec<usize> = (0..roles.len()).filter(|&at| hosts.place(roles[at]) == number).collect();
            let (claim, ports, cores) = claim(place, &host.address, here.len())?;
            claims.push(claim);
            let of_servers = here.iter().filter(|at| **at < args.servers as usize).count() as u32;
            for (&at, port) in here.iter().zip(&ports) {
                addrs[at] = format!("{}:{port}", host.address);
                if let Some(threads) = threads.get_mut(at) {
                    *threads = (cores / of_servers.max(1)).max(1);
                }
            }
        }
        Ok(Addresses { addrs, threads, _here: None, _remote: claims })
    }
}

/// Has a host claim so many ports. Returns them, and the number of its cores.
fn claim(place: &Remote, address: &str, count: usize) -> Result<(RemoteClaim, Vec<u64>, u32), Failure> {
    let target = &place.target;
    let failed = |error| system(&format!("starting ssh to {target}"), &error);
    let words = ["claim-ports".to_owned(), format!("--at={address}"), format!("--count={count}")];
    let place = ProcessPlace::Remote(place.clone());
    let mut command = place.command(&words.map(OsString::from)).map_err(failed)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut claim = RemoteClaim { child };
    let (send, receive) = channel();
    let read = move || {
        let mut line = String::new();
        let read = stdout.map_or(Ok(0), |stdout| BufReader::new(stdout).read_line(&mut line));
        let _ = send.send(read.map(|_| line));
    };
    std::thread::Builder::new().name("gannet-claim".into()).spawn(read).map_err(failed)?;
    let read = receive.recv_timeout(ANSWER_TIME).unwrap_or_else(|_| {
        let text = format!("it has not answered for {} s", ANSWER_TIME.as_secs());
        Err(std::io::Error::new(std::io::ErrorKind::TimedOut, text))
    });
    let line = read.as_deref().unwrap_or_default();
    let answer: Value = serde_json::from_str(line).unwrap_or(Value::Null);
    let Some(ports) = answer["ports"].as_array() else {
        // It has ended, or prints something else.
        drop(claim.child.stdin.take());
        let status = ends_in_time(&mut claim.child).and_then(|_| claim.child.wait()).ok();
        let mut printed = String::new();
        let _ = stderr.map(|stderr| stderr.take(4096).read_to_string(&mut printed));
        let hint = place.hint(status.and_then(|status| status.code()));
        let why = match (&read, printed.trim(), hint) {
            (Err(error), ..) => error.to_string(),
            (_, "", None) => format!("gannet there has printed {:?}", line.trim()),
            (_, "", Some(hint)) => hint,
            (_, printed, None) => printed.to_owned(),
            (_, printed, Some(hint)) => format!("{hint}: {printed}"),
        };
        return Err(Failure::new(PEER, format!("--hosts: {target}: {why}")));
    };
    let (theirs, ours) = (answer["version"].as_str().unwrap_or_default(), env!("CARGO_PKG_VERSION"));
    if theirs != ours {
        let text = format!(
            "--hosts: {target} has gannet {theirs}, and this is {ours}: install the same version, or name its program \
             (--remote-program)"
        );
        return Err(Failure::input(text));
    }
    let ports = ports.iter().filter_map(Value::as_u64).collect();
    Ok((claim, ports, answer["cores"].as_u64().unwrap_or(1) as u32))
}

/// Runs `gannet claim-ports`: prints free ports of this machine as JSON, and claims them until standard input ends.
///
/// # Errors
/// There are not enough free ports.
pub fn claim_ports(args: &ClaimPortsArgs) -> Result<(), Failure> {
    let ports = Ports::claim(&args.at, args.count as usize)?;
    say!("{}", json!({"version": env!("CARGO_PKG_VERSION"), "cores": cores(), "ports": ports.numbers()}));
    let mut rest = Vec::new();
    std::io::stdin()
        .read_to_end(&mut rest)
        .map_err(|error| Failure::new(SYSTEM, format!("reading standard input: {error}")))?;
    Ok(())
}
