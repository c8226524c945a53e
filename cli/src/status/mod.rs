//! `gannet status`: a job as its scheduler reports it, the runs that the servers report, and whether the servers
//! answer.

pub mod answers;
pub mod asking;
pub mod facts;
pub mod job;
pub mod known;
pub mod places;
pub mod report;

use crate::failure::{Failure, PEER};
use crate::flags::{DEFAULT_RUN, StatusArgs};
use crate::job::backups;
use crate::security;
use crate::status::answers::Answers;
use crate::status::asking::{Asking, Question, Round};
use crate::status::job::{JobAnswers, JobByPlaces};
use crate::status::known::{Reached, StatusAnswers};
use crate::status::places::{PlaceAnswers, Placement};
use crate::status::report::report_of;

/// Runs the command.
pub fn run_status(args: &StatusArgs) -> Result<(), Failure> {
    let answers = query(args)?;
    if let Some(name) = args.run.as_deref()
        && let Some(why) = answers.unknown(name)
    {
        return Err(Failure::input(why));
    }
    report_of(&answers).print(args.json);
    answers.ended()
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
