//! `gannet status`: a job as its scheduler reports it, the runs that the servers report, and whether the servers
//! answer.

pub mod answers;
pub mod asking;
pub mod job;
pub mod object;
pub mod places;
pub mod words;

use crate::failure::{Failure, PEER};
use crate::flags::{DEFAULT_RUN, StatusArgs};
use crate::job::backups;
use crate::security;
use crate::security::Secured;
use crate::status::answers::Answers;
use crate::status::asking::{AskedServer, Question, Round};
use crate::status::job::{JobAnswers, JobByPlaces};
use crate::status::places::{PlaceAnswers, Placement};
use gannet::WorkerConfig;
use gannet::backups::Places;
use gannet::job::{ActivityKind, JobStatus, Member, WorkerIncarnation, WorkerState};
use gannet::runs::{CLIENT, Run, RunId, TableUse};
use std::collections::BTreeSet;

/// Why a peer gave no answer.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// The reason, in words that follow the peer's address.
    why: String,
    /// Whether it gave no answer at all.
    silent: bool,
}

/// A server, and the transport over which it answers.
struct Reached {
    addr: String,
    transport: Result<String, Trouble>,
}

/// All answers.
pub struct StatusAnswers {
    servers: Vec<Reached>,
    /// Who owns which place. `None`: no coordinator was named.
    places: Option<PlaceAnswers>,
    coordinator: String,
    /// The runs that the servers report. `None`: no server was named.
    runs: Option<Result<Vec<Run>, Trouble>>,
    /// How full the tables of the servers are, as far as these say so.
    tables: Vec<TableUse>,
    /// The run to print.
    run: String,
    scheduler: String,
    /// Whether a flag named the scheduler.
    named: bool,
    job: Result<Option<JobStatus>, Trouble>,
}

/// Runs the command.
pub fn run(args: &StatusArgs) -> Result<(), Failure> {
    let answers = query(args)?;
    if let Some(name) = args.run.as_deref()
        && let Some(why) = answers.unknown(name)
    {
        return Err(Failure::input(why));
    }
    match args.json {
        true => say!("{}", object::of(&answers)),
        false => words::print(&answers),
    }
    answers.ended()
}

/// How the command asks.
pub struct Asking<'a> {
    args: &'a StatusArgs,
    secured: Secured,
}

impl Asking<'_> {
    fn config(&self, addr: &str, run: &str) -> WorkerConfig {
        WorkerConfig {
            token: self.secured.token.clone(),
            one_thread: true,
            run: Some(RunId { name: run.to_owned(), generation: 0, rows_since: 0, birth: 0 }),
            ..WorkerConfig::reader([addr.to_owned()])
        }
    }

    fn server(&self, addr: &str, round: Round) -> Result<AskedServer, Failure> {
        AskedServer::ask(&self.secured.net, self.config(addr, DEFAULT_RUN), round)
    }

    /// The places of the job, if a coordinator is named.
    fn places(&self) -> Result<Option<Places>, Failure> {
        let Some(addr) = &self.args.coordinator else { return Ok(None) };
        let (args, net) = (self.args, (&self.secured.net, self.secured.token.as_ref()));
        let run = args.run.as_deref().unwrap_or(DEFAULT_RUN);
        backups::places_of(addr, run, net, (&args.security, &args.tls_client)).map(Some)
    }
}

/// Queries all servers, the coordinator and the scheduler.
fn query(args: &StatusArgs) -> Result<StatusAnswers, Failure> {
    let (first, second) = Round::both(args.peer_timeout);
    let mut hosts = each_once(&args.ps_hosts);
    let (named, seconds) = (args.scheduler.as_ref(), args.peer_timeout);
    if args.coordinator.is_some() {
        hosts.sort();
    }
    let coordinator = backups::server_of(args.coordinator.as_deref());
    let all: Vec<String> = hosts.iter().chain(named).chain(&coordinator).cloned().collect();
    let net = args.transport.transport.net(args.io);
    let secured = security::of_worker(net, &all, &args.security, &args.tls_client)?;
    let asking = Asking { args, secured };
    // All are asked at once. Servers that only the coordinator knows follow when it has answered.
    let (of_places, servers) = (asking.places()?, hosts.len());
    let places =
        of_places.clone().map(|of| Question::ask(move |say| places::query(&of, servers, first, say)));
    let places = places.transpose()?;
    let beginning = hosts.iter().chain(named.filter(|addr| !hosts.contains(addr)));
    let mut asked = beginning.map(|addr| asking.server(addr, first)).collect::<Result<Vec<_>, _>>()?;
    let places = places.map(|of| of.answer(first).unwrap_or_else(|| Err(places::silent(seconds))));
    let mut listed = hosts.clone();
    if let Some(known) = &places {
        (hosts, listed) = known_servers(args, known, hosts)?;
    }
    let by_places = match (of_places, &places) {
        (Some(of), Some(Ok(_))) => Some(JobByPlaces::ask(&asking, of, hosts.clone(), second)?),
        _ => None,
    };
    // A server of --ps-hosts that the coordinator has not heard of is not waited for.
    let wanted: Vec<&String> = listed.iter().chain(named).collect();
    asked.retain(|asked| wanted.contains(&&asked.addr));
    for addr in wanted {
        if asked.iter().all(|asked| asked.addr != *addr) {
            asked.push(asking.server(addr, first)?);
        }
    }
    let answers = Answers::of(asked, (first, seconds), by_places.is_some())?;
    let JobAnswers { runs, tables, run, scheduler, job } = match by_places {
        Some(by_places) => by_places.answer(second, args.run.as_deref(), seconds)?,
        None => asking.job_of_servers(&answers, &hosts, second)?,
    };
    let reached = |addr: String| Reached { transport: answers.transport(&addr), addr };
    let (servers, named) = (listed.into_iter().map(reached).collect(), named.is_some());
    let coordinator = args.coordinator.clone().unwrap_or_default();
    Ok(StatusAnswers { servers, places, coordinator, runs, tables, run, scheduler, named, job })
}

/// The servers in the order in which they are named, each once.
fn each_once(named: &[String]) -> Vec<String> {
    let first = |&(at, host): &(usize, &String)| !named[..at].contains(host);
    named.iter().enumerate().filter(first).map(|(_, host)| host.clone()).collect()
}

/// The server of each place, and all servers, as the coordinator knows them. `hosts`: those of --ps-hosts.
fn known_servers(
    args: &StatusArgs,
    placement: &PlaceAnswers,
    hosts: Vec<String>,
) -> Result<(Vec<String>, Vec<String>), Failure> {
    let known = placement.as_ref().ok();
    let owners = known.and_then(|known| known.owners(&hosts)).unwrap_or(hosts);
    if owners.is_empty() {
        let coordinator = args.coordinator.as_deref().unwrap_or_default();
        let run = args.run.as_deref().unwrap_or(DEFAULT_RUN);
        let why = match placement {
            Ok(_) => format!("it knows of no server of run {run}; name the servers: --ps-hosts"),
            Err(why) => why.clone(),
        };
        return Err(Failure::new(PEER, format!("--coordinator {coordinator}: {why}")));
    }
    // Servers die for good, and others come: the registry knows them.
    let listed = known.map(Placement::servers).filter(|known| !known.is_empty());
    Ok((owners.clone(), listed.unwrap_or(owners)))
}

/// The run to print: the named one, the default one, or the only one that exists.
pub fn choose(named: Option<&str>, runs: Option<&[Run]>) -> String {
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

    /// The printed run, as the servers report it.
    fn shown_run(&self) -> Option<&Run> {
        self.known_runs().iter().find(|run| run.name == self.run)
    }

    fn known_job(&self) -> Option<&JobStatus> {
        self.job.as_ref().ok().and_then(Option::as_ref)
    }

    /// The error for a requested run that nobody knows.
    fn unknown(&self, name: &str) -> Option<String> {
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
    fn live(&self, run: &Run) -> (BTreeSet<u32>, bool) {
        let job = self.known_job().filter(|_| run.name == self.run);
        let of_job = job.iter().flat_map(|job| &job.members).filter(|m| m.state == WorkerState::Live);
        let of_run = run.members.iter().filter(|member| member.live);
        let mut all: BTreeSet<u32> =
            of_job.map(|m| m.incarnation.rank).chain(of_run.map(|m| m.incarnation.rank)).collect();
        let client = all.remove(&CLIENT);
        (all, client)
    }

    /// The result of the command: an error if a peer did not answer.
    fn ended(&self) -> Result<(), Failure> {
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

/// The worker that tests and saves the model.
pub fn chief(job: &JobStatus) -> Option<u32> {
    job.chief.map(|chief| chief.rank)
}

pub fn standing(job: &JobStatus, member: &Member) -> &'static str {
    match member.state {
        WorkerState::Live => "live",
        WorkerState::Left => "left",
        WorkerState::Dead if job.unfenced.contains(&member.incarnation) => "dead, not yet fenced",
        WorkerState::Dead => "dead",
    }
}

/// The tasks that a worker trains.
pub fn tasks_of(job: &JobStatus, incarnation: WorkerIncarnation) -> Vec<u64> {
    job.leases.iter().filter(|(_, of)| *of == incarnation).map(|(task, _)| *task).collect()
}

/// What a live worker at this index does.
pub fn at(job: &JobStatus, place: usize, member: &Member) -> Option<&'static str> {
    let doing = job.work.get(place).map(|work| work.doing).unwrap_or_default();
    let at = match doing {
        // The worker got tasks after it reported to be idle.
        ActivityKind::Idle if job.leases.iter().any(|(_, of)| *of == member.incarnation) => "learns",
        ActivityKind::Learning => "learns",
        ActivityKind::Reading => "waits for its data",
        ActivityKind::Waiting => "waits for others",
        ActivityKind::Idle => "has no task",
        ActivityKind::Meeting => "waits at a barrier",
        ActivityKind::Saving => "tests or saves",
        ActivityKind::Ending => "waits for the end",
    };
    (member.state == WorkerState::Live).then_some(at)
}

/// A worker's mean loss, once it has reported one.
pub fn loss(member: &Member) -> Option<f64> {
    let progress = &member.progress;
    Some(progress.loss).filter(|loss| progress.examples > 0 && loss.is_finite() && *loss != 0.0)
}

/// Examples a second of all live workers. `None` while none of them has reported any.
pub fn rate(job: &JobStatus) -> Option<f64> {
    let live = || job.members.iter().filter(|member| member.state == WorkerState::Live);
    let none_reported = live().next().is_some() && live().all(|member| member.progress.examples == 0);
    // Starts at 0, because the sum of nothing is -0.
    (!none_reported).then(|| live().fold(0.0, |sum, member| sum + member.progress.rate))
}
