//! The run of a process of a job: the rows it trains, the other workers, and the shares that are missing at the end.

use crate::failure::{Failure, INPUT, PEER, STOPPED};
use crate::flags::JobArgs;
use crate::job::connection::{POLL_EVERY, WorkerConnection, pusher};
use crate::job::sync;
use crate::report::account::Account;
use crate::report::numbers::Numbers;
use crate::report::words::counted;
use crate::runs::awaited_worker::AwaitedWorker;
use crate::runs::begin::{RunReading, check_begin, intent, print_decision, wall_clock};
use gannet::job::JobAnswer;
use gannet::runs::{RunClient, RunDecision, RunId, RunRequest, RunSetting};
use gannet::table::TableId;
use gannet::train::Data;
use gannet::worker::{Refusal, WorkerError};
use gannet::{Transports, Worker};
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time between two messages about whom a run waits for.
const MESSAGE_EVERY: Duration = Duration::from_secs(5);

/// A process in a run on servers.
pub struct InRun {
    client: RunClient<Transports>,
    /// How the data of the rows was read.
    reading: RunReading,
    rank: u32,
    hosts: Vec<String>,
    peer_timeout: Duration,
    allowed: bool,
    /// Batches of this worker's fixed share that the rows had when it began.
    batches_before: Cell<u64>,
}

/// Joins the run. Afterwards `line` opens the run's tables. `notes` are those of the run, if this process begins it.
/// `again`: which data is trained again. `None`: the run is finished, and the user knows.
pub fn join(
    job: &JobArgs,
    is_json: bool,
    line: &mut WorkerConnection,
    (settings, notes): (Vec<RunSetting>, String),
    tables: &[String],
    (rank, again): (u32, &str),
) -> Result<Option<InRun>, Failure> {
    let run = &job.run;
    check_begin(run)?;
    let request = RunRequest {
        name: run.name().to_owned(),
        want: intent(run),
        settings,
        tables: tables.to_vec(),
        at: wall_clock(),
        notes,
        worker_timeout: sync::timeout(&job.sync),
    };
    let joined = RunClient::join(line.net.clone(), &line.config, rank, request);
    let client = joined.map_err(|error| match error {
        // The text is for the user and does not need the server's name.
        WorkerError::Refused { refusal: Refusal::Mismatch, text, .. } => Failure::new(INPUT, text),
        error => error.into(),
    })?;
    client.watch(line.counters.clone());
    // A client prints first where it listens.
    if rank != gannet::runs::CLIENT {
        print_decision(client.id(), client.decided(), intent(run), again);
    }
    line.config.run = Some(client.id().clone());
    line.config.registry = Some(client.server().to_owned());
    let late = client.decided() == RunDecision::Late;
    let hosts = job.worker_hosts.clone();
    let peer_timeout = Duration::from_secs_f64(job.peer_timeout);
    let reading = RunReading::of(client.notes());
    let (allowed, batches_before) = (run.allow_missing_workers, Cell::new(0));
    let joined = InRun { client, reading, rank, hosts, peer_timeout, allowed, batches_before };
    if late {
        joined.print_late(is_json);
        return Ok(None);
    }
    Ok(Some(joined))
}

impl InRun {
    /// Makes the data be read as that of the run.
    pub fn keep_reading(&self, data: &mut Data, test: Option<&mut Data>) {
        self.reading.keep(self.client.id(), data, test);
    }

    /// Reports that this worker has trained so many batches.
    pub fn trained(&self, batches: u64) {
        self.client.trained(self.batches_before.get() + batches);
    }

    /// The run's part of the report.
    pub fn account(&self) -> Account {
        Account {
            run: Some((self.client.id().clone(), self.client.decided())),
            batches_before: self.batches_before.get(),
            missing: Vec::new(),
            untrained: Some(0),
        }
    }

    /// The membership of this process in the run.
    pub fn client(&self) -> &RunClient<Transports> {
        &self.client
    }

    /// The server that keeps the registry of the run.
    pub fn registry(&self) -> &str {
        self.client.server()
    }

    /// The run's id, and how this process has come to it.
    pub fn decision(&self) -> (&RunId, RunDecision) {
        (self.client.id(), self.client.decided())
    }

    /// A text that names this run and no other, also of the same name.
    pub fn tag(&self) -> String {
        let id = self.client.id();
        format!("{} {} {}", id.name, id.birth, id.generation)
    }

    /// Notes where this worker begins in its fixed share of the data.
    pub fn begins_after(&self, batches: u64) {
        self.batches_before.set(batches);
    }

    fn print_late(&self, as_json: bool) {
        let name = &self.client.id().name;
        notice!(
            "gannet: run {name:?} is finished: nothing was left to train for worker {}, which came too late (--continue trains the \
             rows further, --fresh begins with new rows)",
            self.rank
        );
        if as_json {
            let mut report = Numbers::default();
            report.add("examples", 0);
            report.add("stopped", false);
            self.account().put(&mut report);
            report.print(true);
        }
    }

    /// Reports that the share of this worker is trained.
    pub fn done(&self) -> Result<(), Failure> {
        Ok(self.client.done()?)
    }

    /// Marks the run as finished, with so many rows. With missing shares it is not, unless a flag allows it.
    pub fn finish(&self, rows: u64, account: &Account) -> Result<(), Failure> {
        if account.missing.is_empty() || self.allowed {
            self.client.finish(rows, wall_clock(), &account.missing)?;
        }
        Ok(())
    }

    fn named(&self, rank: u32) -> String {
        format!("worker {rank} ({})", self.hosts.get(rank as usize).map_or("", |host| host))
    }

    /// Notes which job trains the run by splits. Another one is refused: its scheduler has lost what was trained.
    pub fn note_job(&self, job: &JobAnswer) -> Result<(), Failure> {
        self.client.note_job(job).map_err(|error| match error {
            WorkerError::Refused { refusal: Refusal::Mismatch, text, .. } => Failure::new(INPUT, text),
            error => error.into(),
        })
    }

    /// Says for which workers the run still waits, when it begins.
    pub fn print_missing_workers(&self) -> Result<(), Failure> {
        let members = self.client.members()?;
        let all = 0..self.hosts.len() as u32;
        let missing: Vec<String> = all
            .filter(|&rank| !members.iter().any(|member| member.incarnation.rank == rank))
            .map(|rank| self.named(rank))
            .collect();
        if !missing.is_empty() {
            notice!(
                "gannet: run {:?} waits for {}: each worker has a fixed share of the data",
                self.client.id().name,
                missing.join(", ")
            );
        }
        Ok(())
    }

    /// With fixed shares, worker 0 waits for all others, and they wait for it. `share`: a worker's batches, if known.
    pub fn wait_for_shares(
        &self,
        worker: &mut Worker<Transports>,
        table: TableId,
        share: &dyn Fn(u32) -> Option<u64>,
        stop: &AtomicBool,
    ) -> Result<Account, Failure> {
        if self.rank == 0 { self.wait(worker, table, share, stop) } else { self.wait_for_chief(share, stop) }
    }

    /// Waits until every other worker has trained its share. A worker is missing if it does not come within
    /// `--peer-timeout`, or if it is dead, as the registry says. `share` returns the batches of a worker, if they are
    /// known.
    fn wait(
        &self,
        worker: &mut Worker<Transports>,
        table: TableId,
        share: &dyn Fn(u32) -> Option<u64>,
        stop: &AtomicBool,
    ) -> Result<Account, Failure> {
        let mut account = self.account();
        let mut watched: Vec<AwaitedWorker> = (0..self.hosts.len() as u32).map(AwaitedWorker::new).collect();
        let mut last_message: Option<Instant> = None;
        loop {
            let (members, pushers) = (self.client.members()?, worker.status(table)?.pushers);
            let mut waits = Vec::new();
            for one in watched.iter_mut().filter(|one| one.rank != self.rank) {
                if !one.is_done(&members, &pushers) && one.is_awaited(self.peer_timeout) {
                    waits.push(&*one);
                }
            }
            if waits.is_empty() || stop.load(Relaxed) {
                break;
            }
            if last_message.is_none_or(|time| time.elapsed() >= MESSAGE_EVERY) {
                last_message = Some(Instant::now());
                let whom: Vec<String> = waits
                    .iter()
                    .map(|one| format!("{}, which {}", self.named(one.rank), one.progress(share(one.rank))))
                    .collect();
                notice!("gannet: run {:?} waits for {}", self.client.id().name, whom.join("; "));
            }
            std::thread::sleep(POLL_EVERY);
        }
        let missing: Vec<&AwaitedWorker> =
            watched.iter().filter(|one| one.rank != self.rank && !one.done).collect();
        let left = |one: &&AwaitedWorker| share(one.rank).map(|share| share.saturating_sub(one.trained()));
        // The run ends without them. If one has only slept, it must not train on in the rows that are saved now.
        for one in missing.iter().filter(|_| self.allowed && !stop.load(Relaxed)) {
            if let Some(incarnation) = one.incarnation() {
                worker.fence(table, pusher(one.rank), incarnation)?;
            }
        }
        account.missing = missing.iter().map(|one| one.rank).collect();
        account.untrained = missing.iter().map(left).sum();
        Ok(account)
    }

    /// Waits for worker 0, which tests and saves. If it does not start within `--peer-timeout`, or is dead, its share
    /// is missing.
    fn wait_for_chief(
        &self,
        share: &dyn Fn(u32) -> Option<u64>,
        stop: &AtomicBool,
    ) -> Result<Account, Failure> {
        let (mut account, begun) = (self.account(), Instant::now());
        let mut last_message: Option<Instant> = None;
        loop {
            let members = self.client.members()?;
            let chief = members.iter().find(|member| member.incarnation.rank == 0);
            let come = chief.is_some_and(|chief| chief.live || chief.done);
            if come || stop.load(Relaxed) {
                return Ok(account);
            }
            if chief.map_or(begun.elapsed() >= self.peer_timeout, |chief| chief.lost) {
                let trained = chief.map_or(0, |chief| chief.batches);
                (account.missing, account.untrained) =
                    (vec![0], share(0).map(|all| all.saturating_sub(trained)));
                return Ok(account);
            }
            if last_message.is_none_or(|time| time.elapsed() >= MESSAGE_EVERY) {
                last_message = Some(Instant::now());
                let chief = self.named(0);
                notice!(
                    "gannet: run {:?} waits for {chief}, which tests and saves: start it",
                    self.client.id().name
                );
            }
            std::thread::sleep(POLL_EVERY);
        }
    }

    /// Waits until worker 0 has put the rows of --warm-start on the servers. It may take as long as it lives, and be
    /// away for `--peer-timeout`, in which it may be started again.
    pub fn wait_for_rows(
        &self,
        are_put: &mut dyn FnMut() -> Result<bool, Failure>,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        let (chief, mut seen) = (self.named(0), Instant::now());
        let mut last_message: Option<Instant> = None;
        while !are_put()? {
            if stop.load(Relaxed) {
                let text = "stopped by a signal, before the rows of --warm-start were on the servers";
                return Err(Failure::new(STOPPED, text));
            }
            let members = self.client.members()?;
            if members.iter().any(|member| member.incarnation.rank == 0 && member.live) {
                seen = Instant::now();
            } else if seen.elapsed() >= self.peer_timeout {
                return Err(Failure::new(
                    PEER,
                    format!(
                        "run {:?}: {chief} puts the rows of --warm-start on the servers, and it has been away for {} s \
                         (--peer-timeout): start it",
                        self.client.id().name,
                        self.peer_timeout.as_secs_f64()
                    ),
                ));
            }
            if last_message.is_none_or(|time| time.elapsed() >= MESSAGE_EVERY) {
                last_message = Some(Instant::now());
                notice!(
                    "gannet: run {:?} waits for {chief}, which puts the rows of --warm-start on the servers",
                    self.client.id().name
                );
            }
            std::thread::sleep(POLL_EVERY);
        }
        Ok(())
    }

    /// The result of a worker in a run with missing shares. `saved`: the folder where it saved the model.
    pub fn ended(&self, account: &Account, saved: Option<&Path>) -> Result<(), Failure> {
        if account.missing.is_empty() {
            return Ok(());
        }
        let whom: Vec<String> = account.missing.iter().map(|&rank| self.named(rank)).collect();
        let batches = match account.untrained {
            Some(batches) => counted(batches, "batch", "batches"),
            None => "an unknown number of batches".to_owned(),
        };
        let model = saved.map_or(String::new(), |folder| {
            format!("; the model without them is saved in {}", folder.display())
        });
        let text = format!(
            "run {:?}: {} did not come (--peer-timeout), gave no sign, or made no progress (--worker-timeout). Not trained: \
             {batches} of the data{model}",
            self.client.id().name,
            whom.join(", ")
        );
        if account.missing.contains(&0) {
            return Err(Failure::new(
                PEER,
                format!(
                    "{text}. Without worker 0 no model is saved: start it, or start the whole job again with --fresh"
                ),
            ));
        }
        if self.allowed {
            notice!("gannet: {text} (--allow-missing-workers)");
            return Ok(());
        }
        Err(Failure::new(
            PEER,
            format!(
                "{text}. Start all its workers again with --fresh, or with --tasks on --fresh, where other workers \
                 train the data of a missing one; --allow-missing-workers makes this a warning"
            ),
        ))
    }
}
