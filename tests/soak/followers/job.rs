//! The processes of a round: servers, trainers, a follower, and one that it feeds.

use super::asking::MAX_AGE;
use super::data::Training;
use super::faults::Round;
use super::state::State;
use crate::chaos::default_run;
use crate::harness::ports::free_addr;
use crate::harness::{Done, Owned, Process, Served, first_line, gannet, limit, ok, run};
use gannet::backups::{Places, RemoteCoordinator};
use gannet::storage::Follower;
use gannet::worker::NEXT_INCARNATION;
use gannet::{Schema, Transports, WorkerConfig};
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Of each server with backups, in seconds.
const LEASE: u64 = 2;

/// A running `gannet serve`.
pub struct Following {
    _process: Owned,
    /// Held, so that what it says later finds a reader.
    _out: BufReader<ChildStdout>,
}

pub struct Job {
    pub folder: tempfile::TempDir,
    pub backed: bool,
    threads: [u64; 2],
    pub training: Training,
    /// Of `--ps-hosts`, then those of spares.
    pub hosts: Vec<String>,
    pub servers: Vec<Option<Served>>,
    _coordinator: Option<Served>,
    coordinator: String,
    pub trainers: [Option<Process>; 2],
    pub followers: [Option<Following>; 2],
    pulls: String,
    /// How often the rows were restored.
    pub restored: u64,
    pub state: Arc<State>,
}

/// Waits for something.
pub fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(start.elapsed() < limit(), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

impl Job {
    /// Starts all processes.
    pub fn start(round: &Round, training: Training) -> Job {
        let folder = tempfile::tempdir().unwrap();
        let mut hosts = vec![free_addr(), free_addr()];
        // The first one is the scheduler, also after a restore.
        hosts.sort();
        let coordinator = free_addr();
        let line = format!("scheduler --listen {coordinator}");
        let mut job = Job {
            training,
            folder,
            backed: round.backed,
            threads: round.threads,
            hosts,
            servers: Vec::new(),
            _coordinator: round.backed.then(|| Served::start(gannet(&line))),
            coordinator,
            trainers: [None, None],
            followers: [None, None],
            pulls: free_addr(),
            restored: 0,
            state: Arc::new(State::new([free_addr(), free_addr()])),
        };
        std::fs::write(job.data(), &job.training.records).unwrap();
        job.servers = (0..2).map(|which| Some(job.server(which))).collect();
        (0..job.training.workers).for_each(|which| job.start_trainer(which));
        job
    }

    /// Flags of every process of the job.
    fn flags(&self) -> String {
        let workers = vec!["a:1"; self.training.workers].join(",");
        let hosts = format!("--ps-hosts {} --worker-hosts {workers}", self.hosts[..2].join(","));
        match self.backed {
            true => format!("{hosts} --backups 1 --coordinator {}", self.coordinator),
            false => hosts,
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("records.svm")
    }

    /// Where checkpoints are. A job with backups has none.
    pub fn checkpoints(&self) -> PathBuf {
        self.folder.path().join("checkpoints")
    }

    /// The data folders of all servers.
    pub fn rows(&self) -> PathBuf {
        self.folder.path().join(format!("rows-{}", self.restored))
    }

    pub fn server(&self, which: usize) -> Served {
        let (addr, threads) = (&self.hosts[which], self.threads[which % 2]);
        let line = match (self.backed, which) {
            (true, 0 | 1) => {
                format!(
                    "train --job-name ps --task-index {which} --lease {LEASE} --threads 2 {}",
                    self.flags()
                )
            }
            (true, _) => {
                format!("train --job-name ps --spare {addr} --lease {LEASE} --threads 2 {}", self.flags())
            }
            (false, _) => format!(
                "server --listen {addr} --threads {threads} --data-dir {}/server-{which} --checkpoint {}",
                self.rows().display(),
                self.checkpoints().display()
            ),
        };
        Served::start(quiet(&line))
    }

    pub fn start_trainer(&mut self, which: usize) {
        let checkpoints = match self.backed {
            true => String::new(),
            false => {
                format!(
                    "--checkpoint {} --checkpoint-secs 1 --checkpoint-keep 6",
                    self.checkpoints().display()
                )
            }
        };
        let line = format!(
            "train {} --job-name worker --task-index {which} {} {} --peer-timeout 30 --json --out {} {checkpoints}",
            self.data().display(),
            self.flags(),
            self.training.flags,
            self.model().display()
        );
        let trainer = Process::start(quiet(&line));
        *self.state.dripped.lock().unwrap() = Some(rustix::process::Pid::from_child(&trainer.child.0));
        self.trainers[which] = Some(trainer);
    }

    pub fn model(&self) -> PathBuf {
        self.folder.path().join("model")
    }

    pub fn start_follower(&mut self, which: usize) {
        let state = &self.state.followers[which];
        let from = match (which, self.backed) {
            (0, true) => format!(
                "{} --coordinator {} --pulls {}",
                self.hosts[..2].join(","),
                self.coordinator,
                self.pulls
            ),
            (0, false) => format!("{} --pulls {}", self.hosts.join(","), self.pulls),
            _ => self.pulls.clone(),
        };
        let max_age = MAX_AGE.as_secs();
        let mut command =
            quiet(&format!("serve --listen {} --follow {from} --max-age {max_age}", state.addr));
        if std::env::var_os("GANNET_LOG").is_none() {
            command.stderr(Stdio::null());
        }
        let mut process = Owned(command.stdout(Stdio::piped()).spawn().unwrap());
        let (line, out) = first_line(process.0.stdout.take().unwrap());
        assert!(line.contains(" listening on "), "follower {which}: {line:?}");
        self.followers[which] = Some(Following { _process: process, _out: out });
        state.is_down.store(false, SeqCst);
    }

    pub fn kill_follower(&mut self, which: usize) {
        let state = &self.state.followers[which];
        state.is_down.store(true, SeqCst);
        state.deaths.fetch_add(1, SeqCst);
        drop(self.followers[which].take());
    }

    /// The settings of a client that pushes.
    pub fn client(&self) -> WorkerConfig {
        let config = WorkerConfig::new(&self.hosts[..2], (1 << 40) + self.restored, NEXT_INCARNATION);
        let remote = || RemoteCoordinator::new(Transports::new(), &self.coordinator, None);
        let places =
            self.backed.then(|| Places { coordinator: Arc::new(remote()), job: "default".to_owned() });
        WorkerConfig { run: Some(default_run()), places, ..config }
    }

    /// The schema of the table, under its name in the run. Notes its shards.
    pub fn schema(&self) -> Schema {
        let cut = until("the table", || {
            let reader =
                WorkerConfig { places: self.client().places, ..WorkerConfig::reader(&self.hosts[..2]) };
            let cut = Follower::new(Transports::new(), &reader, "default").cut(&[]).ok();
            cut.filter(|cut| !cut.tables.is_empty() && cut.run.is_some())
        });
        let schema = &cut.tables[0];
        self.state.shards.store(schema.shards.into(), SeqCst);
        Schema { name: schema.name.trim_start_matches("default.").to_owned(), ..schema.clone() }
    }

    /// What the job says of itself. Notes how many records are trained.
    pub fn status(&self) -> serde_json::Value {
        let of = match self.backed {
            true => format!("--coordinator {}", self.coordinator),
            false => format!("--ps-hosts {}", self.hosts.join(",")),
        };
        let Done { out, .. } = run(&format!("status {of} --peer-timeout 2 --json"));
        let status: serde_json::Value = serde_json::from_str(out.trim()).unwrap_or_default();
        if let (Some(trained), Some(life)) =
            (status["job"]["examples"].as_u64(), self.state.lives.lock().unwrap().last_mut())
        {
            life.trained.push((Instant::now(), trained));
        }
        status
    }

    /// Waits until this part of the tasks is done.
    pub fn until_done(&self, percent: u64) {
        until("tasks", || {
            self.state.check();
            let job = &self.status()["job"];
            let (done, tasks) = (job["tasks_done"].as_u64()?, job["tasks"].as_u64()?);
            (tasks > 0 && done * 100 >= tasks * percent).then_some(())
        });
    }

    /// Waits until the rows of each place survive a death.
    pub fn until_backed(&self) {
        until("backups", || {
            let status = self.status();
            let places = status["places"].as_array().filter(|places| places.len() == 2)?;
            let is_safe = |place: &serde_json::Value| {
                place["state"] == "serves" && place["survives_deaths"].as_u64() >= Some(1)
            };
            places.iter().all(is_safe).then_some(())
        });
    }

    /// Goes back to a checkpoint that is not the newest one, if there are several. Everything that trains is dead.
    pub fn restore(&mut self, chance: u64) {
        let numbers = std::fs::read_dir(self.checkpoints()).unwrap().filter_map(|entry| {
            let path = entry.unwrap().path();
            path.join("MANIFEST").exists().then(|| path.file_name()?.to_str()?.parse::<u64>().ok())?
        });
        let mut numbers: Vec<u64> = numbers.collect();
        numbers.sort_unstable();
        let older = numbers.len().saturating_sub(1).max(1) as u64;
        let number = numbers[(chance % older) as usize];
        self.restored += 1;
        let (from, to) = (self.checkpoints(), self.rows());
        ok(&format!(
            "checkpoint restore {}@{number} --data-dir {} --servers 2",
            from.display(),
            to.display()
        ));
    }
}

/// A command that does not speak of lost links, unless it is asked to.
fn quiet(line: &str) -> std::process::Command {
    let mut command = gannet(line);
    if std::env::var_os("GANNET_LOG").is_none() {
        command.env("GANNET_LOG", "error");
    }
    command
}
