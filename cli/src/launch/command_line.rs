//! The command lines of the processes of a job: the command of the user, and the flags that say which process it is.

use crate::failure::Failure;
use crate::flags::{Cli, Command, LaunchArgs, TrainArgs, spelled};
use crate::job::check;
use crate::launch::addresses::Addresses;
use crate::launch::role::ProcessRole;
use crate::train;
use crate::train::follow;
use crate::train::places::Process;
use std::ffi::OsString;
use std::path::PathBuf;

/// The command behind `--`, in words.
pub struct JobCommand {
    words: Vec<OsString>,
}

/// Flags that the launcher gives, each with what to do instead.
const GIVEN: [(&str, &str); 10] = [
    ("--job-name", "the launcher gives each process its role"),
    ("--task-index", "the launcher numbers the processes"),
    ("--ps-hosts", "--servers says how many, before the --"),
    ("--worker-hosts", "--workers says how many, before the --"),
    ("--data-dir", "write it before the --"),
    ("--exit-with-job", "the launcher stops the servers"),
    ("--listen", "the launcher chooses the ports"),
    ("--spare", "the launcher starts no spare servers"),
    ("--feed", "the workers of a launcher read the data themselves"),
    ("--scheduler", "the first server of a launcher is the scheduler"),
];

/// Flags that `gannet status` has, too.
const OF_STATUS: [&str; 8] =
    ["--run", "--token-file", "--tls-cert", "--tls-key", "--tls-ca", "--tls-name", "--transport", "--io"];

/// Flags that `gannet scheduler` has, too.
const OF_SCHEDULER: [&str; 5] = ["--token-file", "--tls-cert", "--tls-key", "--tls-client-ca", "--io"];

impl JobCommand {
    /// Reads the words behind `--`.
    pub fn of(words: &[OsString]) -> Result<JobCommand, Failure> {
        if words.first().is_none_or(|first| first != "train") {
            let first = words.first().map(|first| first.to_string_lossy().into_owned()).unwrap_or_default();
            return Err(Failure::input(format!(
                "gannet launch starts jobs of `gannet train`: write train DATA .. behind the --, not {first:?}"
            )));
        }
        let command = JobCommand { words: spelled(words.iter().cloned()) };
        for (flag, instead) in GIVEN {
            if command.has(flag) {
                return Err(Failure::input(format!("{flag}: {instead}")));
            }
        }
        Ok(command)
    }

    /// The value of a flag, written as `--flag VALUE` or `--flag=VALUE`.
    fn value(&self, flag: &str) -> Option<String> {
        let words = || self.words.iter().map(|word| word.to_string_lossy());
        let mut all = words().zip(words().skip(1).map(Some).chain([None]));
        all.find_map(|(word, next)| match word.split_once('=') {
            Some((of, value)) if of == flag => Some(value.to_owned()),
            _ if word == flag => Some(next.unwrap_or_default().into_owned()),
            _ => None,
        })
    }

    /// Those of these flags that were written, with their values.
    fn those<'a>(&'a self, flags: &'a [&'static str]) -> impl Iterator<Item = (&'static str, String)> + 'a {
        flags.iter().filter_map(|flag| Some((*flag, self.value(flag)?)))
    }

    fn has(&self, flag: &str) -> bool {
        self.value(flag).is_some()
    }

    /// The host and the port of `--metrics`.
    fn metrics(&self) -> Option<(String, u64)> {
        let addr = self.value("--metrics")?;
        let (host, port) = addr.rsplit_once(':')?;
        Some((host.to_owned(), port.parse().ok()?))
    }

    /// Whether the servers have backups.
    fn has_backups(&self) -> bool {
        self.value("--backups").is_some_and(|count| count != "0")
    }

    /// Whether the launcher starts the coordinator.
    pub fn needs_coordinator(&self) -> bool {
        self.has_backups() && !self.has("--coordinator")
    }

    /// The job of this command.
    pub fn job(self, args: &LaunchArgs, addresses: &Addresses) -> Job {
        let (servers, coordinator) = addresses.addrs.split_at(args.servers as usize);
        Job {
            servers: servers.to_vec(),
            workers: args.workers,
            coordinator: coordinator.first().cloned(),
            data_dir: args.data_dir.clone(),
            is_json: self.has("--json"),
            threads: addresses.threads.clone(),
            command: self,
        }
    }
}

/// A job: its processes, and where its servers listen.
pub struct Job {
    command: JobCommand,
    servers: Vec<String>,
    workers: u32,
    coordinator: Option<String>,
    data_dir: Option<PathBuf>,
    /// Of each server, unless the command says how many.
    threads: Vec<u32>,
    /// The report is to be JSON.
    pub is_json: bool,
}

impl Job {
    /// All processes, in the order in which they are started.
    pub fn roles(&self) -> impl Iterator<Item = ProcessRole> + use<> {
        let coordinator = self.coordinator.as_ref().map(|_| ProcessRole::Coordinator);
        let servers = (0..self.servers.len() as u32).map(ProcessRole::Server);
        coordinator.into_iter().chain(servers).chain((0..self.workers).map(ProcessRole::Worker))
    }

    /// The flags of a process.
    fn flags(&self, role: ProcessRole) -> Result<Option<TrainArgs>, Failure> {
        let words = std::iter::once(OsString::from("gannet")).chain(self.words(role));
        let cli =
            Cli::of(words.collect()).map_err(|error| Failure::input(error.to_string().trim().to_owned()))?;
        let Command::Train(mut train) = cli.command else { return Ok(None) };
        follow::take_topic(&mut train.data);
        Ok(Some(*train))
    }

    /// Refuses what worker 0 would refuse before it connects: in its flags, its data, the model from which it starts,
    /// and the folders that it writes. They must be on this machine.
    pub fn check_worker(&self) -> Result<(), Failure> {
        self.flags(ProcessRole::Worker(0))?.map_or(Ok(()), |mut train| train::check_worker(&mut train))
    }

    /// Refuses a command line that the processes would refuse.
    pub fn check(&self) -> Result<(), Failure> {
        for role in [ProcessRole::Server(0), ProcessRole::Worker(0)] {
            let Some(train) = &self.flags(role)? else { continue };
            if role.is_worker() && train.data.files.is_empty() && !train.data.follow.grows() {
                return Err(Failure::input("no DATA: write train DATA .. behind the --"));
            }
            if train.data.files.iter().chain(&train.data.test).any(|path| path.as_os_str() == "-") {
                let text = "-: several processes cannot read one standard input: write the data to a file";
                return Err(Failure::input(text));
            }
            Process { args: train, is_launched: true }.check_places()?;
            check::check_job(&train.job)?;
        }
        Ok(())
    }

    /// Whether a server that is started again has its rows, or others have them.
    pub fn keeps_rows(&self) -> bool {
        self.data_dir.is_some() || self.command.has_backups()
    }

    /// Whether a coordinator that is started again knows what it knew.
    pub fn keeps_keys(&self) -> bool {
        self.data_dir.is_some()
    }

    /// Servers, workers.
    pub fn size(&self) -> (usize, u32) {
        (self.servers.len(), self.workers)
    }

    /// The words of a process, without the program.
    pub fn words(&self, role: ProcessRole) -> Vec<OsString> {
        let flag = |flag: &str, value: String| OsString::from(format!("{flag}={value}"));
        let folder = |name: String| {
            let mut word = OsString::from("--data-dir=");
            word.push(self.data_dir.as_ref()?.join(name));
            Some(word)
        };
        let Some(coordinator) = self.coordinator.as_ref().filter(|_| role == ProcessRole::Coordinator) else {
            return self.words_of_train(role, &flag, &folder);
        };
        let mut words: Vec<OsString> = vec!["scheduler".into(), flag("--listen", coordinator.clone())];
        words.extend(folder("coordinator".into()));
        words.extend(self.command.those(&OF_SCHEDULER).map(|(name, value)| flag(name, value)));
        words.extend(self.command.has("--metrics-public").then(|| "--metrics-public".into()));
        self.with_own_metrics(role, words)
    }

    fn words_of_train(
        &self,
        role: ProcessRole,
        flag: &dyn Fn(&str, String) -> OsString,
        folder: &dyn Fn(String) -> Option<OsString>,
    ) -> Vec<OsString> {
        let hosts: Vec<String> = (0..self.workers).map(|index| format!("worker-{index}:0")).collect();
        let (name, index) = match role {
            ProcessRole::Worker(index) => ("worker", index),
            ProcessRole::Server(index) => ("ps", index),
            ProcessRole::Coordinator => ("ps", 0),
        };
        let mut words = vec![OsString::from("train")];
        words.push(flag("--job-name", name.into()));
        words.push(flag("--task-index", index.to_string()));
        words.push(flag("--ps-hosts", self.servers.join(",")));
        words.push(flag("--worker-hosts", hosts.join(",")));
        words.extend(self.coordinator.clone().map(|addr| flag("--coordinator", addr)));
        match role.is_worker() {
            true if self.is_json => {}
            // The launcher reads the report.
            true => words.push("--json".into()),
            false => {
                words.extend(folder(format!("ps-{index}")));
                if !self.command.has("--threads") {
                    words.push(flag("--threads", self.threads[index as usize].to_string()));
                }
            }
        }
        words.extend(self.command.words.iter().skip(1).cloned());
        self.with_own_metrics(role, words)
    }

    /// Each process serves its metrics at a port of its own: the one that was named, and those behind it.
    fn with_own_metrics(&self, role: ProcessRole, words: Vec<OsString>) -> Vec<OsString> {
        let Some((host, port)) = self.command.metrics() else { return words };
        let place = self.roles().position(|of| of == role).unwrap_or(0);
        let port = if port == 0 { 0 } else { port + place as u64 };
        let (mut own, mut is_value) = (Vec::new(), false);
        for word in words {
            let is_flag = word == "--metrics";
            let is_whole = word.to_string_lossy().starts_with("--metrics=");
            if !is_flag && !is_whole && !is_value {
                own.push(word);
            }
            is_value = is_flag;
        }
        own.insert(1, format!("--metrics={host}:{port}").into());
        own
    }

    /// The words of a `gannet status` of this job.
    pub fn words_of_status(&self) -> Vec<OsString> {
        let flag = |flag: &str, value: String| OsString::from(format!("{flag}={value}"));
        let mut words: Vec<OsString> = vec!["status".into(), "--json".into(), "--peer-timeout=5".into()];
        words.push(flag("--ps-hosts", self.servers.join(",")));
        let coordinator = self.coordinator.clone().or_else(|| self.command.value("--coordinator"));
        words.extend(coordinator.map(|addr| flag("--coordinator", addr)));
        words.extend(self.command.those(&OF_STATUS).map(|(name, value)| flag(name, value)));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn job_of(launch: &[&str], command: &[&str]) -> Result<Job, Failure> {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: LaunchArgs,
        }
        let words = ["launch"].iter().chain(launch).chain(&["--"]).chain(command);
        let args = Line::parse_from(words).args;
        let command = JobCommand::of(&args.command)?;
        let count = args.servers as usize + usize::from(command.needs_coordinator());
        let addrs = (0..count).map(|index| format!("127.0.0.1:{}", 10_000 + index)).collect();
        let job = command.job(&args, &Addresses::of(addrs));
        job.check().map(|()| job)
    }

    fn line(job: &Job, role: ProcessRole) -> String {
        let words = job.words(role);
        words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_process_is_told_which_one_it_is() {
        let job = job_of(
            &["--servers", "2", "--workers", "2", "--data-dir", "d"],
            &["train", "x.svm", "--epochs", "3"],
        );
        let job = job.unwrap();
        let hosts = "--ps-hosts=127.0.0.1:10000,127.0.0.1:10001 --worker-hosts=worker-0:0,worker-1:0";
        let worker = format!("train --job-name=worker --task-index=1 {hosts} --json x.svm --epochs 3");
        assert_eq!(line(&job, ProcessRole::Worker(1)), worker);
        let threads = job.threads[0];
        let server = format!(
            "train --job-name=ps --task-index=0 {hosts} --data-dir=d/ps-0 --threads={threads} x.svm --epochs 3"
        );
        assert_eq!(line(&job, ProcessRole::Server(0)), server);
        assert_eq!(job.roles().count(), 4);
    }

    #[test]
    fn a_job_with_backups_has_a_coordinator() {
        let with =
            job_of(&["--servers", "2", "--data-dir", "d"], &["train", "x.svm", "--backups=1"]).unwrap();
        assert_eq!(
            line(&with, ProcessRole::Coordinator),
            "scheduler --listen=127.0.0.1:10002 --data-dir=d/coordinator"
        );
        assert!(line(&with, ProcessRole::Worker(0)).contains("--coordinator=127.0.0.1:10002"));
        assert_eq!(with.roles().next(), Some(ProcessRole::Coordinator));
        let own = ["train", "x.svm", "--backups", "1", "--coordinator", "127.0.0.1:1"];
        assert_eq!(job_of(&["--servers", "2"], &own).unwrap().roles().next(), Some(ProcessRole::Server(0)));
    }

    #[test]
    fn each_process_has_a_port_of_its_own_for_its_metrics() {
        let job =
            job_of(&["--workers", "2"], &["train", "x.svm", "--metrics", "127.0.0.1:9000", "--l1", "1"])
                .unwrap();
        for (role, port) in
            [(ProcessRole::Server(0), 9000), (ProcessRole::Worker(0), 9001), (ProcessRole::Worker(1), 9002)]
        {
            let line = line(&job, role);
            assert!(line.contains(&format!(" --metrics=127.0.0.1:{port} ")), "{line}");
            assert!(line.ends_with("x.svm --l1 1") && line.matches("metrics").count() == 1, "{line}");
        }
        let backed = ["train", "x.svm", "--metrics=0.0.0.0:9000", "--metrics-public", "--backups", "1"];
        let job = job_of(&["--servers", "2"], &backed).unwrap();
        assert_eq!(
            line(&job, ProcessRole::Coordinator),
            "scheduler --metrics=0.0.0.0:9000 --listen=127.0.0.1:10002 --metrics-public"
        );
        assert!(line(&job, ProcessRole::Server(0)).contains(" --metrics=0.0.0.0:9001 "));
    }

    #[test]
    fn flags_that_the_launcher_gives_are_refused_by_name() {
        for flag in ["--ps_hosts=a:1", "--task-index=1", "--job-name=ps", "--data-dir=d"] {
            let why = job_of(&[], &["train", "x.svm", flag]).err().unwrap();
            let name = flag.split('=').next().unwrap().replace('_', "-");
            assert!(why.to_string().contains(&name) && why.code == 2, "{why}");
        }
        let lines = [
            (&["predict", "x"][..], "train DATA"),
            (&["train"], "no DATA"),
            (&["train", "-"], "standard input"),
        ];
        for (command, what) in lines {
            assert!(job_of(&[], command).err().unwrap().to_string().contains(what));
        }
        let why = job_of(&[], &["train", "x.svm", "--alpah", "1"]).err().unwrap().to_string();
        assert!(why.contains("--alpah"), "{why}");
    }
}
