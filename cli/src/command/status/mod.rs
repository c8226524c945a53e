//! `gannet status`: a job as its scheduler reports it, the runs that the servers report, and whether the servers
//! answer.

mod object;
mod places;
mod words;

use super::args::{DEFAULT_RUN, StatusArgs};
use super::failure::{INPUT, PEER};
use super::{Failure, backups, security, tasks};
use gannet::job::{ActivityKind, JobStatus, Member, WorkerIncarnation, WorkerState};
use gannet::runs::{CLIENT, Run, RunId, TableUse};
use gannet::worker::WorkerError;
use gannet::{Transports, Worker, WorkerConfig};
use places::{PlaceAnswers, Placement};
use std::collections::BTreeSet;
use std::time::Duration;

/// Why a peer gave no answer.
#[derive(Debug, Clone)]
struct Trouble {
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
struct StatusAnswers {
    servers: Vec<Reached>,
    /// Who owns which place. `None`: no coordinator was named.
    places: Option<PlaceAnswers>,
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

/// Queries all servers and the scheduler.
fn query(args: &StatusArgs) -> Result<StatusAnswers, Failure> {
    let mut hosts = each_once(&args.ps_hosts);
    let named = args.scheduler.as_deref();
    let mut scheduler = named.unwrap_or_else(|| tasks::first_server(&hosts)).to_owned();
    if args.coordinator.is_some() {
        hosts.sort();
    }
    let coordinator = backups::server_of(args.coordinator.as_deref());
    let all: Vec<String> = hosts.iter().chain(&args.scheduler).chain(&coordinator).cloned().collect();
    let net = args.transport.transport.net(args.io);
    let secured = security::of_worker(net, &all, &args.security, &args.tls_client)?;
    let config = |addr: &String, run: &str| WorkerConfig {
        token: secured.token.clone(),
        peer_timeout: Duration::from_secs(args.peer_timeout),
        one_thread: true,
        run: Some(RunId { name: run.to_owned(), generation: 0, rows_since: 0, birth: 0 }),
        ..WorkerConfig::reader([addr.clone()])
    };
    let name = args.run.as_deref().unwrap_or(DEFAULT_RUN);
    let net = (&secured.net, secured.token.as_ref());
    let of_run = |addr| backups::places_of(addr, name, net, (&args.security, &args.tls_client));
    let places = args.coordinator.as_deref().map(of_run).transpose()?;
    let placement = places.as_ref().map(|places| places::query(places, hosts.len(), args.peer_timeout));
    let mut listed = hosts.clone();
    if let Some(placement) = &placement {
        (hosts, listed) = known_servers(args, name, placement, hosts)?;
        scheduler.clone_from(&hosts[0]);
    }
    let mut servers = Vec::new();
    for addr in &listed {
        let worker = Worker::<Transports>::connect(secured.net.clone(), config(addr, DEFAULT_RUN));
        let transport = answered(worker)?.map(|worker| worker.transport());
        servers.push(Reached { addr: addr.clone(), transport });
    }
    let answer = servers.iter().filter(|server| server.transport.is_ok());
    let answering: Vec<String> = answer.map(|server| server.addr.clone()).collect();
    let asked = if places.is_some() { hosts.clone() } else { answering.clone() };
    let registries = hosts.first().map(|addr| WorkerConfig {
        servers: asked,
        places: places.clone(),
        ..config(addr, DEFAULT_RUN)
    });
    let runs = match &registries {
        Some(all) => runs_of(&secured.net, all, &servers, &hosts[0])?,
        None => None,
    };
    let tables = match (&registries, &runs) {
        (Some(all), Some(Ok(_))) => answered(TableUse::all(secured.net.clone(), all))?.unwrap_or_default(),
        _ => Vec::new(),
    };
    let run = choose(args.run.as_deref(), runs.as_ref().and_then(|runs| runs.as_deref().ok()));
    if named.is_none() && places.is_none() {
        let all = WorkerConfig { servers: answering, ..config(&scheduler, &run) };
        scheduler = registry(&secured.net, &all, (runs.as_ref(), &run))?.unwrap_or(scheduler);
    }
    let job = match trouble_of(&servers, &scheduler).filter(|_| places.is_none()) {
        Some(trouble) => Err(trouble),
        None => {
            let config = WorkerConfig { places: places.clone(), ..config(&scheduler, &run) };
            answered(JobStatus::of(secured.net.clone(), config))?
        }
    };
    let (places, named) = (placement, named.is_some());
    Ok(StatusAnswers { servers, places, runs, tables, run, scheduler, named, job })
}

/// The runs that the servers of `all` know.
fn runs_of(
    net: &Transports,
    all: &WorkerConfig,
    servers: &[Reached],
    first: &str,
) -> Result<Option<Result<Vec<Run>, Trouble>>, Failure> {
    if all.servers.is_empty() {
        return Ok(trouble_of(servers, first).map(Err));
    }
    // Any server may store a run's registry, so a server that is down may have runs that the others do not know.
    let down = servers.iter().find_map(|server| server.transport.as_ref().err());
    let down = down.filter(|_| all.places.is_none());
    Ok(match (answered(Run::all(net.clone(), all))?, down) {
        (Ok(known), Some(trouble)) if known.is_empty() => Some(Err(trouble.clone())),
        (known, _) => Some(known),
    })
}

/// The servers in the order in which they are named, each once.
fn each_once(named: &[String]) -> Vec<String> {
    let first = |&(at, host): &(usize, &String)| !named[..at].contains(host);
    named.iter().enumerate().filter(first).map(|(_, host)| host.clone()).collect()
}

/// The server with the registry of a run. It is the scheduler of the run, at whatever address it is.
fn registry(
    net: &Transports,
    all: &WorkerConfig,
    (runs, run): (Option<&Result<Vec<Run>, Trouble>>, &str),
) -> Result<Option<String>, Failure> {
    let is_known = matches!(runs, Some(Ok(runs)) if runs.iter().any(|known| known.name == run));
    match is_known {
        true => Ok(answered(Run::server(net.clone(), all, run))?.ok().flatten()),
        false => Ok(None),
    }
}

/// The server of each place, and all servers, as the coordinator knows them. `hosts`: those of --ps-hosts.
fn known_servers(
    args: &StatusArgs,
    run: &str,
    placement: &PlaceAnswers,
    hosts: Vec<String>,
) -> Result<(Vec<String>, Vec<String>), Failure> {
    let known = placement.as_ref().ok();
    let owners = known.and_then(|known| known.owners(&hosts)).unwrap_or(hosts);
    if owners.is_empty() {
        let coordinator = args.coordinator.as_deref().unwrap_or_default();
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

/// The answer of a peer, or why there is none. A wrong request is an error of the command.
fn answered<T>(answer: Result<T, WorkerError>) -> Result<Result<T, Trouble>, Failure> {
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

/// The run to print: the named one, the default one, or the only one that exists.
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
        match (&silent[..], &self.job, &self.runs) {
            ([one], ..) => failed(format!("server {one} does not answer")),
            ([_, ..], ..) => failed(format!("servers {} do not answer", silent.join(", "))),
            (_, Err(trouble), _) if trouble.silent => {
                failed(format!("the scheduler {} does not answer", self.scheduler))
            }
            (_, Err(trouble), _) => {
                failed(format!("the scheduler {} cannot be queried: {}", self.scheduler, trouble.why))
            }
            (_, _, Some(Err(trouble))) => failed(format!("the runs are not known: {}", trouble.why)),
            _ => Ok(()),
        }
    }
}

/// The worker that tests and saves the model.
fn chief(job: &JobStatus) -> Option<u32> {
    job.chief.map(|chief| chief.rank)
}

fn standing(job: &JobStatus, member: &Member) -> &'static str {
    match member.state {
        WorkerState::Live => "live",
        WorkerState::Left => "left",
        WorkerState::Dead if job.unfenced.contains(&member.incarnation) => "dead, not yet fenced",
        WorkerState::Dead => "dead",
    }
}

/// The tasks that a worker trains.
fn tasks_of(job: &JobStatus, incarnation: WorkerIncarnation) -> Vec<u64> {
    job.leases.iter().filter(|(_, of)| *of == incarnation).map(|(task, _)| *task).collect()
}

/// What a live worker at this index does.
fn at(job: &JobStatus, place: usize, member: &Member) -> Option<&'static str> {
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
fn loss(member: &Member) -> Option<f64> {
    let progress = &member.progress;
    Some(progress.loss).filter(|loss| progress.examples > 0 && loss.is_finite() && *loss != 0.0)
}

/// Examples a second of all live workers. `None` while none of them has reported any.
fn rate(job: &JobStatus) -> Option<f64> {
    let live = || job.members.iter().filter(|member| member.state == WorkerState::Live);
    let none_reported = live().next().is_some() && live().all(|member| member.progress.examples == 0);
    // Starts at 0, because the sum of nothing is -0.
    (!none_reported).then(|| live().fold(0.0, |sum, member| sum + member.progress.rate))
}
