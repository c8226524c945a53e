//! `gannet status`: a job as its scheduler knows it, the runs that the servers know of, and whether the servers answer.

mod object;
mod words;

use super::args::{DEFAULT_RUN, StatusArgs};
use super::failure::{INPUT, PEER};
use super::{Failure, security, tasks};
use gannet::job::{ActivityKind, JobStatus, Member, WorkerIncarnation, WorkerState};
use gannet::runs::{CLIENT, Run, RunId};
use gannet::worker::WorkerError;
use gannet::{Transports, Worker, WorkerConfig};
use std::collections::BTreeSet;
use std::time::Duration;

/// Why a peer could not be queried.
#[derive(Debug, Clone)]
struct Trouble {
    /// In words that follow its address.
    why: String,
    /// It gave no answer at all.
    silent: bool,
}

/// A server, and what it answers over.
struct Reached {
    addr: String,
    transport: Result<String, Trouble>,
}

/// All that was heard.
struct StatusAnswers {
    servers: Vec<Reached>,
    /// The runs that the servers know of; `None`: no server was named.
    runs: Option<Result<Vec<Run>, Trouble>>,
    /// The run that is told of.
    run: String,
    scheduler: String,
    /// It was named by a flag of its own.
    named: bool,
    job: Result<Option<JobStatus>, Trouble>,
}

/// Runs the command.
pub fn run(args: &StatusArgs) -> Result<(), Failure> {
    let heard = hear(args)?;
    if let Some(name) = args.run.as_deref()
        && let Some(why) = heard.unknown(name)
    {
        return Err(Failure::input(why));
    }
    match args.json {
        true => say!("{}", object::of(&heard)),
        false => words::print(&heard),
    }
    heard.ended()
}

/// Asks everybody.
fn hear(args: &StatusArgs) -> Result<StatusAnswers, Failure> {
    let mut hosts: Vec<String> = Vec::new();
    for host in &args.ps_hosts {
        if !hosts.contains(host) {
            hosts.push(host.clone());
        }
    }
    let named = args.scheduler.as_deref();
    let scheduler = named.unwrap_or_else(|| tasks::default_scheduler(&hosts)).to_owned();
    let all: Vec<String> = hosts.iter().chain([&scheduler]).cloned().collect();
    let net = args.transport.transport.net(args.io);
    let secured = security::of_worker(net, &all, &args.security, &args.tls_client)?;
    let config = |addr: &String, run: &str| WorkerConfig {
        token: secured.token.clone(),
        peer_timeout: Duration::from_secs(args.peer_timeout),
        one_thread: true,
        run: Some(RunId { name: run.to_owned(), generation: 0, rows_since: 0, birth: 0 }),
        ..WorkerConfig::reader([addr.clone()])
    };
    let mut servers = Vec::new();
    for addr in &hosts {
        let worker = Worker::<Transports>::connect(secured.net.clone(), config(addr, DEFAULT_RUN));
        let transport = heard(worker)?.map(|worker| worker.transport());
        servers.push(Reached { addr: addr.clone(), transport });
    }
    let answer = servers.iter().filter(|server| server.transport.is_ok());
    let answering: Vec<String> = answer.map(|server| server.addr.clone()).collect();
    let runs = match hosts.first() {
        None => None,
        Some(addr) if answering.is_empty() => trouble_of(&servers, addr).map(Err),
        Some(addr) => {
            // Any server may keep the registry of a run: those that are down may be the ones that know some.
            let down = servers.iter().find_map(|server| server.transport.as_ref().err());
            let all = WorkerConfig { servers: answering, ..config(addr, DEFAULT_RUN) };
            match (heard(Run::all(secured.net.clone(), &all))?, down) {
                (Ok(known), Some(trouble)) if known.is_empty() => Some(Err(trouble.clone())),
                (known, _) => Some(known),
            }
        }
    };
    let run = choose(args.run.as_deref(), runs.as_ref().and_then(|runs| runs.as_deref().ok()));
    let job = match trouble_of(&servers, &scheduler) {
        Some(trouble) => Err(trouble),
        None => heard(JobStatus::of(secured.net.clone(), config(&scheduler, &run)))?,
    };
    Ok(StatusAnswers { servers, runs, run, scheduler, named: named.is_some(), job })
}

/// The answer of a peer, or why there is none. An error if the question itself is wrong.
fn heard<T>(answer: Result<T, WorkerError>) -> Result<Result<T, Trouble>, Failure> {
    match answer {
        Ok(answer) => Ok(Ok(answer)),
        Err(WorkerError::PeerLost { waited, why, .. }) => {
            let seconds = waited.as_secs_f64();
            let why = format!("has not answered for {seconds:.1} s (--peer-timeout): {why}");
            Ok(Err(Trouble { why, silent: true }))
        }
        Err(error) => {
            let why = error.to_string();
            let failure = Failure::from(error);
            if failure.code == INPUT { Err(failure) } else { Ok(Err(Trouble { why, silent: false })) }
        }
    }
}

fn trouble_of(servers: &[Reached], addr: &str) -> Option<Trouble> {
    servers.iter().find(|server| server.addr == addr)?.transport.as_ref().err().cloned()
}

/// The run to tell of: the one that was named, the default one, or the only one that there is.
fn choose(named: Option<&str>, runs: Option<&[Run]>) -> String {
    let only = match runs {
        Some([only]) => Some(only.name.as_str()),
        _ => None,
    };
    named.or(only).unwrap_or(DEFAULT_RUN).to_owned()
}

impl StatusAnswers {
    fn known_runs(&self) -> &[Run] {
        match &self.runs {
            Some(Ok(runs)) => runs,
            _ => &[],
        }
    }

    /// The run that is told of, as the servers know it.
    fn told_run(&self) -> Option<&Run> {
        self.known_runs().iter().find(|run| run.name == self.run)
    }

    fn known_job(&self) -> Option<&JobStatus> {
        self.job.as_ref().ok().and_then(Option::as_ref)
    }

    /// Why a run that was asked for cannot be told of: nobody knows it.
    fn unknown(&self, name: &str) -> Option<String> {
        const NAMED: usize = 8;
        let (Ok(None), None) = (&self.job, self.told_run()) else { return None };
        let scheduler = &self.scheduler;
        match &self.runs {
            None => Some(format!(
                "--run {name}: the scheduler {scheduler} has had no job of it; --ps-hosts tells which runs there are"
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

    /// Workers of a run that live, as the servers or the scheduler of its job have it; and whether its client does.
    fn live(&self, run: &Run) -> (BTreeSet<u32>, bool) {
        let job = self.known_job().filter(|_| run.name == self.run);
        let of_job = job.iter().flat_map(|job| &job.members).filter(|m| m.standing == WorkerState::Live);
        let of_run = run.members.iter().filter(|member| member.live);
        let mut all: BTreeSet<u32> =
            of_job.map(|m| m.incarnation.rank).chain(of_run.map(|m| m.incarnation.rank)).collect();
        let client = all.remove(&CLIENT);
        (all, client)
    }

    /// The exit: everybody was to answer.
    fn ended(&self) -> Result<(), Failure> {
        let failed = |text: String| Err(Failure::new(PEER, text));
        let troubles = self.servers.iter().filter_map(|server| {
            let trouble = server.transport.as_ref().err()?;
            Some((server.addr.as_str(), trouble))
        });
        let troubles: Vec<(&str, &Trouble)> = troubles.collect();
        if let Some((addr, trouble)) = troubles.iter().find(|(_, trouble)| !trouble.silent) {
            return failed(format!("server {addr} cannot be asked: {}", trouble.why));
        }
        let silent: Vec<&str> = troubles.iter().map(|(addr, _)| *addr).collect();
        match (&silent[..], &self.job, &self.runs) {
            ([one], ..) => failed(format!("server {one} does not answer")),
            ([_, ..], ..) => failed(format!("servers {} do not answer", silent.join(", "))),
            (_, Err(trouble), _) if trouble.silent => {
                failed(format!("the scheduler {} does not answer", self.scheduler))
            }
            (_, Err(trouble), _) => {
                failed(format!("the scheduler {} cannot be asked: {}", self.scheduler, trouble.why))
            }
            (_, _, Some(Err(trouble))) => failed(format!("the runs are not known: {}", trouble.why)),
            _ => Ok(()),
        }
    }
}

/// The worker that tests and saves, as things are.
fn chief(job: &JobStatus) -> Option<u32> {
    job.chief.map(|chief| chief.rank)
}

fn standing(job: &JobStatus, member: &Member) -> &'static str {
    match member.standing {
        WorkerState::Live => "live",
        WorkerState::Left => "left",
        WorkerState::Dead if job.unfenced.contains(&member.incarnation) => "dead, not yet fenced",
        WorkerState::Dead => "dead",
    }
}

/// The tasks of a worker.
fn held(job: &JobStatus, incarnation: WorkerIncarnation) -> Vec<u64> {
    job.leases.iter().filter(|(_, of)| *of == incarnation).map(|(task, _)| *task).collect()
}

/// What a live worker at this index does.
fn at(job: &JobStatus, place: usize, member: &Member) -> Option<&'static str> {
    let doing = job.work.get(place).map(|work| work.doing).unwrap_or_default();
    let at = match doing {
        // It was given tasks since it said so.
        ActivityKind::Idle if job.leases.iter().any(|(_, of)| *of == member.incarnation) => "learns",
        ActivityKind::Learning => "learns",
        ActivityKind::Reading => "waits for its data",
        ActivityKind::Waiting => "waits for others",
        ActivityKind::Idle => "has no task",
        ActivityKind::Meeting => "waits at a barrier",
        ActivityKind::Saving => "tests or saves",
        ActivityKind::Ending => "waits for the end",
    };
    (member.standing == WorkerState::Live).then_some(at)
}

/// A worker's mean loss, once it has told one.
fn loss(member: &Member) -> Option<f64> {
    let told = &member.told;
    Some(told.loss).filter(|loss| told.examples > 0 && loss.is_finite() && *loss != 0.0)
}

/// Records a second of those who live; nothing while none of them has told any.
fn rate(job: &JobStatus) -> Option<f64> {
    let live = || job.members.iter().filter(|member| member.standing == WorkerState::Live);
    let untold = live().next().is_some() && live().all(|member| member.told.examples == 0);
    // From 0: the sum of nothing is -0.
    (!untold).then(|| live().fold(0.0, |sum, member| sum + member.told.rate))
}
