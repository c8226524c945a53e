//! A job of real processes, and the faults of a round.

mod counted;
mod round;

pub use counted::{Counting, SUMS, batches_by_key, counts_in_rows, records_by_key};
pub use round::{Dice, Round};
use round::{Limits, What};

use crate::harness::{Done, Process, Served, gannet, limit, run};
use gannet::WorkerConfig;
use gannet::job::{JobClient, JobStatus};
use gannet::runs::RunId;
use gannet::transport::Tcp;
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, Instant};

/// The passes of every job here.
pub const PASSES: u32 = 3;
const BATCH: u32 = 32;
const PIECE: u64 = 64 << 10;
const WORKER_TIMEOUT: Duration = Duration::from_secs(2);

/// The run of every job here.
pub fn default_run() -> RunId {
    RunId { name: "default".into(), generation: 1, rows_since: 1, birth: 0 }
}

/// A worker that has not been killed.
struct Running {
    index: u32,
    process: Process,
    slept: bool,
}

/// How a worker ended by itself.
#[derive(Debug)]
#[allow(dead_code)] // the index is shown
pub struct Ended {
    pub index: u32,
    /// It was stopped for a while, and may have been given up.
    pub slept: bool,
    pub done: Done,
}

/// A job of real processes in one round.
pub struct Job<'a> {
    round: &'a Round,
    line: String,
    folder: tempfile::TempDir,
    servers: Vec<Option<Served>>,
    addrs: Vec<String>,
    workers: Vec<Running>,
    asleep: Vec<(Instant, usize)>,
    /// Workers that were started.
    started: u64,
    /// Workers killed, replacements started, workers put to sleep, servers killed.
    pub dealt: [u32; 4],
}

impl<'a> Job<'a> {
    /// Starts servers and the first workers.
    pub fn start(round: &'a Round, train: &Path, flags: &str) -> Job<'a> {
        let (hosts, seconds) = (vec!["a:1"; round.declared() as usize].join(","), WORKER_TIMEOUT.as_secs());
        let line = format!(
            "train {} --worker-hosts {hosts} --job-name worker --json --tasks on --epochs {PASSES} --batch {BATCH} --task-bytes {PIECE} \
             --worker-timeout {seconds} --peer-timeout 30 --transport {} {flags}",
            train.display(),
            round.transport
        );
        let folder = tempfile::tempdir().unwrap();
        let mut job = Job {
            round,
            line,
            folder,
            servers: Vec::new(),
            addrs: Vec::new(),
            workers: Vec::new(),
            asleep: Vec::new(),
            started: 0,
            dealt: [0; 4],
        };
        for which in 0..round.servers {
            let served = job.server(which, "127.0.0.1:0", 2, &Limits::USUAL);
            job.addrs.push(served.addr.clone());
            job.servers.push(Some(served));
        }
        (0..round.workers).for_each(|index| job.worker(index));
        job
    }

    fn server(&self, which: usize, listen: &str, threads: u32, limits: &Limits) -> Served {
        let flags = format!("server --listen {listen} --threads {threads} {}", limits.flags());
        let mut command = gannet(&flags);
        if self.round.durable {
            command.arg("--data-dir").arg(self.folder.path().join(format!("server-{which}")));
        }
        if std::env::var_os("GANNET_LOG").is_none() {
            // There would be many messages about lost links.
            command.env("GANNET_LOG", "error");
        }
        Served::start(command)
    }

    fn worker(&mut self, index: u32) {
        let order = self.round.order(self.addrs.len(), self.started);
        self.started += 1;
        let hosts: Vec<&str> = order.into_iter().map(|server| &*self.addrs[server]).collect();
        let hosts = hosts.join(",");
        let process =
            Process::start(gannet(&format!("{} --ps-hosts {hosts} --task-index {index}", self.line)));
        self.workers.push(Running { index, process, slept: false });
    }

    /// The scheduler's status.
    pub fn status(&self) -> Option<JobStatus> {
        // Workers choose the scheduler in the same way.
        let scheduler = self.addrs.iter().min().unwrap().clone();
        let config = WorkerConfig { run: Some(default_run()), ..WorkerConfig::new([scheduler], 1 << 40, 1) };
        JobClient::status_of(Tcp::new(), config).unwrap()
    }

    pub fn addrs(&self) -> &[String] {
        &self.addrs
    }

    fn wake(&mut self) {
        let now = Instant::now();
        let (due, asleep) = self.asleep.iter().partition(|(at, _)| *at <= now);
        self.asleep = asleep;
        let due: Vec<(Instant, usize)> = due;
        due.iter().for_each(|&(_, worker)| self.workers[worker].process.signal(Signal::CONT));
    }

    fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            self.wake();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(5)));
        }
    }

    /// Waits until this percentage of the tasks is done.
    fn until(&mut self, percent: u64) {
        let start = Instant::now();
        loop {
            let job = self.status();
            if job.as_ref().is_some_and(|job| job.tasks_done * 100 >= job.tasks * percent) {
                return;
            }
            assert!(start.elapsed() < limit(), "{percent}% are not reached: {job:?}");
            self.pass(Duration::from_millis(5));
        }
    }

    /// The worker of this index that started last, if it still runs.
    fn running(&mut self, index: u32) -> Option<usize> {
        let at = self.workers.iter().rposition(|worker| worker.index == index)?;
        self.workers[at].process.child.0.try_wait().unwrap().is_none().then_some(at)
    }

    /// Causes the faults of the round.
    pub fn suffer(&mut self) {
        let round = self.round;
        for deed in &round.deeds {
            self.until(deed.percent);
            self.pass(deed.delay);
            match deed.what {
                What::Kill { index, then, after } => {
                    // Late in a round the job may have ended.
                    let Some(at) = self.running(index) else { continue };
                    self.workers[at].process.child.0.kill().unwrap();
                    let killed = self.workers.remove(at).process.wait();
                    assert_eq!(killed.code, None, "{killed:?}");
                    self.asleep.iter_mut().for_each(|(_, sleeper)| *sleeper -= usize::from(*sleeper > at));
                    self.pass(after);
                    self.worker(then);
                    self.dealt[0] += 1;
                    self.dealt[1] += 1;
                }
                What::Sleep { index, time } => {
                    let Some(at) = self.running(index) else { continue };
                    self.workers[at].process.signal(Signal::STOP);
                    self.workers[at].slept = true;
                    self.asleep.push((Instant::now() + time, at));
                    self.dealt[2] += 1;
                }
                What::KillServer { which, after, threads, limits } => {
                    self.servers[which].take().unwrap().kill();
                    self.pass(after);
                    self.servers[which] =
                        Some(self.server(which, &self.addrs[which].clone(), threads, &limits));
                    self.dealt[3] += 1;
                }
            }
        }
    }

    /// Waits until all workers have ended.
    pub fn end(&mut self) -> Vec<Ended> {
        while !self.asleep.is_empty() {
            self.pass(Duration::from_millis(5));
        }
        let ended = |Running { index, process, slept }| Ended { index, slept, done: process.wait() };
        self.workers.drain(..).map(ended).collect()
    }

    /// The output of `gannet status` about the job.
    pub fn reported(&self) -> serde_json::Value {
        run(&format!("status --ps-hosts {} --json", self.addrs.join(","))).json()["job"].clone()
    }

    /// Stops the servers.
    pub fn stop(self) {
        self.servers.into_iter().flatten().for_each(|served| drop(served.stop()));
    }
}
