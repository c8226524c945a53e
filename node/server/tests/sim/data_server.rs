//! A job whose data comes from the client, in the simulation: the client has the data, workers have none.
//! Workers are killed and fall asleep, the client is killed and restarted on its folder, and links break in the
//! middle of answers. Every line must be learned exactly once a pass, as it is in the file.

use crate::members::join_run;
use crate::model::start;
use crate::stepping::Seed;

use gannet_core::Store;
use gannet_jobs::{DataServerConfig, DataSource, FeedStatus};
use gannet_server::{LocalServer, ServerConfig};
use gannet_sim::{Faults, Sim};
use gannet_transport::{Net, Prng};
use gannet_wire::{Activity, JobPlan, PlanFile, Progress, Split, SplitGrant};
use gannet_worker::{DataLink, JobClient, RunSession, WorkerConfig, WorkerError};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const WORKERS: u32 = 3;
const TIMEOUT: Duration = Duration::from_secs(4);

/// Files in memory.
struct Memory(Vec<Vec<u8>>);

impl Memory {
    /// Where the first line begins at or after `at`.
    fn line_from(&self, file: u32, at: u64) -> u64 {
        let bytes = &self.0[file as usize];
        let begins = |&i: &usize| i == 0 || i == bytes.len() || bytes[i - 1] == b'\n';
        (at as usize..=bytes.len()).find(begins).unwrap() as u64
    }
}

impl DataSource for Memory {
    fn text(&self, task: &Split) -> Result<Range<u64>, String> {
        Ok(self.line_from(task.file, task.start)..self.line_from(task.file, task.end))
    }

    fn read(&self, file: u32, at: u64, out: &mut [u8]) -> Result<(), String> {
        out.copy_from_slice(&self.0[file as usize][at as usize..][..out.len()]);
        Ok(())
    }
}

/// Lines of any length, some longer than a split; the last line has no line end.
fn files(prng: &mut Prng) -> Vec<Vec<u8>> {
    let line = |prng: &mut Prng, file: usize, i: usize| {
        let long = if prng.below(40) == 0 { 40_000 } else { 400 };
        let filler = "x".repeat(prng.below(long) as usize);
        format!("{file} {i} {filler}\n").into_bytes()
    };
    let mut files: Vec<Vec<u8>> =
        (0..3).map(|file| (0..200).flat_map(|i| line(prng, file, i)).collect()).collect();
    // One split with more bytes than one answer carries.
    files.push((0..20_000).flat_map(|i| format!("3 {i} packed\n").into_bytes()).collect());
    files[1].pop();
    files
}

fn plan(files: &[Vec<u8>]) -> JobPlan {
    let file = |(i, bytes): (usize, &Vec<u8>)| PlanFile {
        name: format!("part-{i}"),
        bytes: bytes.len() as u64,
        print: i as u64,
        whole: i == 3,
    };
    JobPlan {
        workers: WORKERS,
        files: files.iter().enumerate().map(file).collect(),
        task_bytes: 3000,
        batch: 8,
        epochs: 2,
        worker_timeout_ms: TIMEOUT.as_millis() as u64,
        settings: Vec::new(),
    }
}

/// A worker, its current split, and the bytes of the split that it has received.
struct Learner {
    run: RunSession<Sim>,
    job: JobClient<Sim>,
    link: DataLink<Sim>,
    at: Option<(u64, Split, Vec<u8>)>,
    asleep_until: Duration,
    /// Its heartbeats report them as progress.
    turns: u64,
}

impl Learner {
    /// The registry of runs is at `server`, which decides who is dead.
    fn start(
        sim: &Sim,
        (server, client): (&str, &str),
        rank: u32,
        incarnation: u64,
    ) -> Result<Learner, WorkerError> {
        let of_run = WorkerConfig::new([server], u64::from(rank) + 1, incarnation);
        let run = join_run(sim.clone(), &of_run, rank, TIMEOUT)?;
        let config = || WorkerConfig::new([client], u64::from(rank) + 1, incarnation);
        let mut link = DataLink::connect(sim.clone(), config())?;
        let offer = link.offer()?;
        assert_eq!(offer.reading, "as it is");
        let of_job = WorkerConfig { run: Some(run.id().clone()), ..config() };
        let job = JobClient::join(sim.clone(), of_job, rank, offer.plan)?;
        run.note_job(job.joined())?;
        Ok(Learner { run, job, link, at: None, asleep_until: Duration::ZERO, turns: 0 })
    }

    /// Takes a split, fetches some of it, or ends it. Adds the learned lines to `learned`. Returns true when
    /// all is trained.
    fn step(&mut self, learned: &mut HashMap<Vec<u8>, u32>) -> Result<bool, WorkerError> {
        self.turns += 1;
        let work = Activity { progress: self.turns, ..Activity::default() };
        for dead in self.run.beat(0, work, Some(Progress::default()))?.fence {
            self.job.fenced(dead.incarnation, &dead.acked)?;
            self.run.fenced(dead.incarnation)?;
        }
        let Some((index, task, bytes)) = &mut self.at else {
            return Ok(match self.job.take(&[])? {
                SplitGrant::Over => true,
                SplitGrant::Wait => false,
                SplitGrant::Grown { .. } => panic!("the data of this job does not grow"),
                SplitGrant::Task { index, task, .. } => {
                    self.at = Some((index, task, Vec::new()));
                    false
                }
            });
        };
        let text = self.link.text(*index, bytes.len() as u64, task.end - task.start)?;
        bytes.extend_from_slice(&text.bytes);
        if (bytes.len() as u64) < text.whole {
            return Ok(false);
        }
        self.job.done(*index, 1)?;
        for line in bytes.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
            *learned.entry(line.to_vec()).or_default() += 1;
        }
        self.at = None;
        Ok(false)
    }
}

struct Client {
    sim: Sim,
    store: Store,
    data_server: DataServerConfig,
    actor: u64,
    addr: String,
    /// The server that keeps the registry of runs.
    server: String,
}

impl Client {
    fn start(sim: &Sim, addr: &str, store: &Store, data_server: &DataServerConfig) -> (u64, String) {
        let (store, data_server) = (store.clone(), Some(data_server.clone()));
        let config =
            ServerConfig { threads: 1, store, data_server, scheduler_only: true, ..ServerConfig::new(addr) };
        let mut server = LocalServer::new(sim.clone(), config).unwrap();
        let addr = server.addr().to_owned();
        (sim.add_actor(move || server.run().unwrap()), addr)
    }

    fn restart(&mut self) {
        self.sim.remove_actor(self.actor);
        self.sim.reset_all(&self.addr);
        (self.actor, _) = Client::start(&self.sim, &self.addr, &self.store, &self.data_server);
    }
}

#[test]
fn every_line_is_fed_and_learned_once_a_pass_whoever_dies() {
    let mut seen = Seen::default();
    for seed in 0..8 {
        let _seed = Seed::begin(seed);
        let mut prng = Prng::new(seed);
        let faults = Faults {
            reset_per_million: [0, 2_000, 10_000][seed as usize % 3],
            refuse_per_million: 50_000,
            window_bytes: 50_000,
            ..Faults::none()
        };
        let (sim, folder, files) = (Sim::new(seed, faults), crate::folder_in_memory(), files(&mut prng));
        let mut due: HashMap<Vec<u8>, u32> = HashMap::new();
        for line in files.iter().flat_map(|file| file.split(|&b| b == b'\n')).filter(|line| !line.is_empty())
        {
            *due.entry(line.to_vec()).or_default() += 2;
        }
        let (plan, source) = (plan(&files), Arc::new(Memory(files)));
        let status = Arc::<FeedStatus>::default();
        let data_server =
            DataServerConfig { plan, reading: "as it is".into(), source, status: status.clone() };
        let store = Store::open_dir(folder.path()).unwrap();
        let (actor, addr) = Client::start(&sim, "sim:0", &store, &data_server);
        let (_, server) = start(&sim, "sim:0", &Store::memory(), 1);
        let mut client = Client { sim: sim.clone(), store, data_server, actor, addr, server };
        let learned = run(seed, &mut prng, &mut client, &mut seen);
        assert_eq!(learned.len(), due.len(), "seed {seed}");
        assert!(learned == due, "seed {seed}: a line was learned twice, or as it is not");
        sim.run(Duration::from_secs(2));
        let job = status.job().unwrap();
        assert_eq!((job.tasks_done, job.examples), (job.tasks, job.tasks), "seed {seed}");
    }
    let Seen { killed, restarts, lost } = seen;
    assert!(killed > 10 && restarts > 10 && lost > 2, "{killed} killed, {restarts} restarts, {lost} lost");
}

/// What happened to workers and client.
#[derive(Default)]
struct Seen {
    killed: u32,
    restarts: u32,
    /// Workers that the scheduler gave up while they slept.
    lost: u32,
}

/// Runs a job of three workers until all is trained. Returns how often each line was learned.
fn run(seed: u64, prng: &mut Prng, client: &mut Client, seen: &mut Seen) -> HashMap<Vec<u8>, u32> {
    let (sim, mut learned) = (client.sim.clone(), HashMap::new());
    let mut learners: Vec<Option<Learner>> = (0..WORKERS).map(|_| None).collect();
    let (mut incarnation, mut over) = (0, false);
    for round in 0.. {
        assert!(round < 20_000, "seed {seed}: the job does not end");
        for (rank, place) in learners.iter_mut().enumerate() {
            let now = sim.now();
            let Some(learner) = place else {
                if rank == round % WORKERS as usize || prng.below(40) == 0 {
                    incarnation += 1;
                    match Learner::start(&sim, (&client.server, &client.addr), rank as u32, incarnation) {
                        Ok(learner) => *place = Some(learner),
                        Err(error) => {
                            assert!(error.to_string().contains("two workers have the same"), "{error}");
                        }
                    }
                }
                continue;
            };
            if learner.asleep_until > now {
                continue;
            }
            match learner.step(&mut learned) {
                Ok(ended) => over |= ended,
                // It slept for too long, or another process has taken its place.
                Err(WorkerError::Refused { .. }) => {
                    seen.lost += 1;
                    *place = None;
                }
                Err(error) => panic!("seed {seed} round {round}: {error}"),
            }
        }
        if over {
            break;
        }
        sim.run(Duration::from_millis(prng.below(300)));
        let victim = prng.below(u64::from(WORKERS)) as usize;
        match prng.below(40) {
            0 | 1 => seen.killed += u32::from(learners[victim].take().is_some()),
            2..6 => {
                if let Some(learner) = &mut learners[victim] {
                    learner.asleep_until = sim.now() + Duration::from_secs(prng.below(20));
                }
            }
            6 => {
                client.restart();
                seen.restarts += 1;
            }
            _ => {}
        }
    }
    learned
}
