//! All answers of `gannet status`, and what they say together.

use crate::failure::{Failure, PEER};
use crate::status::asking::Trouble;
use crate::status::places::PlaceAnswers;
use gannet::job::{JobStatus, WorkerState};
use gannet::runs::{CLIENT, Run, TableUse};
use std::collections::BTreeSet;

/// A server, and the transport over which it answers.
pub struct Reached {
    pub addr: String,
    pub transport: Result<String, Trouble>,
}

/// All answers.
pub struct StatusAnswers {
    pub servers: Vec<Reached>,
    /// Who owns which place. `None`: no coordinator was named.
    pub places: Option<PlaceAnswers>,
    pub coordinator: String,
    /// The runs that the servers report. `None`: no server was named.
    pub runs: Option<Result<Vec<Run>, Trouble>>,
    /// How full the tables of the servers are, as far as these say so.
    pub tables: Vec<TableUse>,
    /// The run to print.
    pub run: String,
    pub scheduler: String,
    /// Whether a flag named the scheduler.
    pub named: bool,
    pub job: Result<Option<JobStatus>, Trouble>,
}

impl StatusAnswers {
    pub fn known_runs(&self) -> &[Run] {
        match &self.runs {
            Some(Ok(runs)) => runs,
            _ => &[],
        }
    }

    /// The printed run, as the servers report it.
    pub fn shown_run(&self) -> Option<&Run> {
        self.known_runs().iter().find(|run| run.name == self.run)
    }

    pub fn known_job(&self) -> Option<&JobStatus> {
        self.job.as_ref().ok().and_then(Option::as_ref)
    }

    /// The error for a requested run that nobody knows.
    pub fn unknown(&self, name: &str) -> Option<String> {
        const NAMED: usize = 8;
        // Servers of the run are there, and perhaps clients of a program that is in no run.
        if matches!(self.places, Some(Ok(_))) {
            return None;
        }
        let (Ok(None), None) = (&self.job, self.shown_run()) else { return None };
        let scheduler = &self.scheduler;
        match &self.runs {
            None => Some(format!(
                "--run {name}: the scheduler {scheduler} has had no job of it; --ps-hosts lists the runs"
            )),
            Some(Err(_)) => None,
            Some(Ok(runs)) if runs.is_empty() => {
                Some(format!("--run {name}: the servers know of no run so far"))
            }
            Some(Ok(runs)) => {
                let names: Vec<&str> = runs.iter().take(NAMED).map(|run| run.name.as_str()).collect();
                let more = match runs.len().saturating_sub(NAMED) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                let names = names.join(", ");
                Some(format!("--run {name}: the servers know of no such run; they know of {names}{more}"))
            }
        }
    }

    /// The live workers of a run, as the servers or the scheduler of its job report them, and whether its client is
    /// live.
    pub fn live(&self, run: &Run) -> (BTreeSet<u32>, bool) {
        let job = self.known_job().filter(|_| run.name == self.run);
        let of_job = job.iter().flat_map(|job| &job.members).filter(|m| m.state == WorkerState::Live);
        let of_run = run.members.iter().filter(|member| member.live);
        let mut all: BTreeSet<u32> =
            of_job.map(|m| m.incarnation.rank).chain(of_run.map(|m| m.incarnation.rank)).collect();
        let client = all.remove(&CLIENT);
        (all, client)
    }

    /// The result of the command: an error if a peer did not answer.
    pub fn ended(&self) -> Result<(), Failure> {
        let failed = |text: String| Err(Failure::new(PEER, text));
        let troubles = self.servers.iter().filter_map(|server| {
            let trouble = server.transport.as_ref().err()?;
            Some((server.addr.as_str(), trouble))
        });
        let troubles: Vec<(&str, &Trouble)> = troubles.collect();
        if let Some((addr, trouble)) = troubles.iter().find(|(_, trouble)| !trouble.silent) {
            return failed(format!("server {addr} cannot be queried: {}", trouble.why));
        }
        let silent: Vec<&str> = troubles.iter().map(|(addr, _)| *addr).collect();
        let coordinator = &self.coordinator;
        match (&silent[..], self.places.as_ref().and_then(|places| places.as_ref().err())) {
            ([], None) => {}
            ([], Some(why)) => {
                return failed(format!("the coordinator {coordinator} cannot be queried: {why}"));
            }
            ([one], None) => return failed(format!("server {one} does not answer")),
            (_, None) => return failed(format!("servers {} do not answer", silent.join(", "))),
            (_, Some(_)) => {
                let servers = silent.join(", ");
                return failed(format!("the coordinator {coordinator} does not answer, nor does {servers}"));
            }
        }
        match (&self.job, &self.runs) {
            (Err(trouble), _) if trouble.silent => {
                failed(format!("the scheduler {} does not answer", self.scheduler))
            }
            (Err(trouble), _) => {
                failed(format!("the scheduler {} cannot be queried: {}", self.scheduler, trouble.why))
            }
            (_, Some(Err(trouble))) => failed(format!("the runs are not known: {}", trouble.why)),
            _ => Ok(()),
        }
    }
}
