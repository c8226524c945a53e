//! The hosts of a job: the file that names them, and which process runs where.

use crate::failure::Failure;
use crate::launch::role::ProcessRole;
use std::path::Path;

/// The most processes that one line of the file may ask for in a round.
const SLOTS_MAX: u32 = 256;

/// A machine on which processes of the job run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// What ssh connects to: `NAME` or `USER@NAME`, or a name of its configuration.
    pub target: String,
    /// The name or address at which the other processes reach its servers.
    pub address: String,
    /// How many processes it gets in a round.
    slots: u32,
}

impl Host {
    /// Reads a line: `[USER@]HOST [slots=N] [addr=ADDRESS]`. `None`: it names no host.
    fn of(line: &str) -> Result<Option<Host>, String> {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(target) = words.next() else { return Ok(None) };
        // ssh would take it for an option.
        if target.starts_with('-') {
            return Err(format!("{target:?} is no host"));
        }
        let name = target.rsplit_once('@').map_or(target, |(_, name)| name);
        let mut host = Host { target: target.to_owned(), address: name.to_owned(), slots: 1 };
        for word in words {
            match word.split_once('=') {
                Some(("slots", count)) => {
                    let slots = count.parse().ok().filter(|slots| (1..=SLOTS_MAX).contains(slots));
                    host.slots = slots.ok_or_else(|| format!("{word}: 1 to {SLOTS_MAX} are possible"))?;
                }
                Some(("addr", address)) if !address.is_empty() => host.address = address.to_owned(),
                _ => {
                    return Err(format!("{word:?}: slots=N or addr=ADDRESS is possible behind the host"));
                }
            }
        }
        Ok(Some(host))
    }
}

/// The hosts of a job.
#[derive(Debug)]
pub struct Hosts {
    hosts: Vec<Host>,
    /// The hosts in the order in which processes go to them, again and again.
    round: Vec<usize>,
}

impl Hosts {
    /// Reads a file of hosts.
    ///
    /// # Errors
    /// It cannot be read, or a line is wrong.
    pub fn read(file: &Path) -> Result<Hosts, Failure> {
        let shown = file.display();
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::input(format!("--hosts {shown}: cannot read it: {error}")))?;
        let mut hosts: Vec<Host> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let host = Host::of(line)
                .map_err(|why| Failure::input(format!("--hosts {shown}, line {number}: {why}")))?;
            let Some(host) = host else { continue };
            if hosts.iter().any(|other| other.address == host.address) {
                let text = format!(
                    "--hosts {shown}, line {number}: {} is named twice; slots=N gives it more processes",
                    host.address
                );
                return Err(Failure::input(text));
            }
            hosts.push(host);
        }
        if hosts.is_empty() {
            return Err(Failure::input(format!("--hosts {shown}: it names no host")));
        }
        let round = (0..hosts.len()).flat_map(|at| vec![at; hosts[at].slots as usize]).collect();
        Ok(Hosts { hosts, round })
    }

    /// All of them.
    pub fn all(&self) -> &[Host] {
        &self.hosts
    }

    /// The number of the host on which a process runs. Servers are dealt to the hosts in turn, and so are workers. The
    /// coordinator is on the first host.
    pub fn place(&self, role: ProcessRole) -> usize {
        match role {
            ProcessRole::Coordinator => self.round[0],
            ProcessRole::Server(index) | ProcessRole::Worker(index) => {
                self.round[index as usize % self.round.len()]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Hosts, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Hosts::read(file.path()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn processes_are_dealt_to_hosts_in_turn() {
        let hosts = read("# two machines\nbig slots=2   # 16 cores\n\nme@small addr=10.0.0.7\n").unwrap();
        assert_eq!(hosts.all().len(), 2);
        assert_eq!(
            (hosts.all()[1].target.as_str(), hosts.all()[1].address.as_str()),
            ("me@small", "10.0.0.7")
        );
        let of = |roles: &dyn Fn(u32) -> ProcessRole| -> Vec<usize> {
            (0..5).map(|index| hosts.place(roles(index))).collect()
        };
        assert_eq!(of(&ProcessRole::Server), [0, 0, 1, 0, 0]);
        assert_eq!(of(&ProcessRole::Worker), [0, 0, 1, 0, 0]);
        assert_eq!(hosts.place(ProcessRole::Coordinator), 0);
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, part) in [
            ("a\nb slots=0", "line 2: slots=0: 1 to 256 are possible"),
            ("a cores=3", "line 1: \"cores=3\": slots=N or addr=ADDRESS"),
            ("-oProxyCommand=x", "line 1: \"-oProxyCommand=x\" is no host"),
            ("a\nme@a", "line 2: a is named twice; slots=N gives it more"),
            ("# nobody\n", "it names no host"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        let why = Hosts::read(Path::new("not-there")).unwrap_err().to_string();
        assert!(why.contains("--hosts not-there: cannot read it"), "{why}");
    }
}
