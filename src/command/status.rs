//! `gannet status`: a job as its scheduler knows it, and whether its servers answer.

use super::args::StatusArgs;
use super::failure::PEER;
use super::{Failure, security, tasks};
use gannet::{Doing, JobStatus, Life, Member, Run, RunId, Standing, Wires, Worker, WorkerConfig};
use serde_json::{Value, json};
use std::time::Duration;

/// Whether a server answers, and over what.
struct Reached {
    addr: String,
    transport: Result<String, String>,
}

/// Runs the command.
pub fn run(args: &StatusArgs) -> Result<(), Failure> {
    let named = args.scheduler.as_deref();
    let scheduler = named.unwrap_or_else(|| tasks::default_scheduler(&args.ps_hosts)).to_owned();
    let scheduler = &scheduler;
    let all: Vec<String> = args.ps_hosts.iter().chain([scheduler]).cloned().collect();
    let net = args.transport.transport.net(args.io);
    let secured = security::of_worker(net, &all, &args.security, &args.believing)?;
    let config = |addr: &String| WorkerConfig {
        token: secured.token.clone(),
        peer_timeout: Duration::from_secs(args.peer_timeout),
        one_thread: true,
        run: Some(RunId { name: args.run.clone(), generation: 0, rows_since: 0, birth: 0 }),
        ..WorkerConfig::reader([addr.clone()])
    };
    let job = JobStatus::of(secured.net.clone(), config(scheduler))?;
    let servers: Vec<Reached> = args
        .ps_hosts
        .iter()
        .map(|addr| {
            let worker = Worker::<Wires>::connect(secured.net.clone(), config(addr));
            let transport = worker.map(|worker| worker.transport()).map_err(|error| error.to_string());
            Reached { addr: addr.clone(), transport }
        })
        .collect();
    let all = WorkerConfig { servers: args.ps_hosts.clone(), ..config(scheduler) };
    let runs = Run::all(secured.net.clone(), &all);
    let known = runs.as_deref().unwrap_or_default();
    if args.json {
        say!("{}", as_json(scheduler, job.as_ref(), &servers, known));
    } else {
        print(scheduler, job.as_ref(), &servers, (&args.run, known));
    }
    match servers.iter().find_map(|server| server.transport.as_ref().err()) {
        Some(why) => Err(Failure::new(PEER, why.clone())),
        None => Ok(runs.map(|_| ())?),
    }
}

fn standing(job: &JobStatus, member: &Member) -> &'static str {
    match member.standing {
        Standing::Live => "live",
        Standing::Left => "left",
        Standing::Dead if job.unfenced.contains(&member.life) => "dead, not yet fenced",
        Standing::Dead => "dead",
    }
}

fn held(job: &JobStatus, life: Life) -> Vec<u64> {
    job.leases.iter().filter(|(_, of)| *of == life).map(|(task, _)| *task).collect()
}

fn state(run: &Run) -> &'static str {
    if run.finished { "finished" } else { "running" }
}

fn as_json(scheduler: &str, job: Option<&JobStatus>, servers: &[Reached], runs: &[Run]) -> Value {
    let workers = |job: &JobStatus| -> Vec<Value> {
        let member = |(number, member): (usize, &Member)| {
            let told = &member.told;
            json!({
                "worker": member.life.rank,
                "standing": standing(job, member),
                "chief": Some(member.life.rank) == chief(job),
                "at": at(job, number),
                "clock": told.clock,
                "examples": told.examples,
                "examples_per_second": told.rate,
                "logloss": told.loss,
                "staleness": told.staleness,
                "waits_for": told.waits_for.map(|(rank, clock)| json!({"worker": rank, "clock": clock})),
                "tasks": held(job, member.life),
            })
        };
        job.members.iter().enumerate().map(member).collect()
    };
    json!({
        "scheduler": scheduler,
        "runs": runs.iter().map(|run| json!({
            "name": run.name,
            "state": state(run),
            "generation": run.generation,
            "rows_since": run.rows_since,
            "rows": run.finished.then_some(run.rows),
            "finished_at": run.finished.then_some(run.finished_at),
            "workers": run.members.iter().map(|member| json!({
                "worker": member.life.rank,
                "live": member.live,
                "done": member.done,
                "batches": member.batches,
            })).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "servers": servers.iter().map(|server| json!({
            "address": server.addr,
            "transport": server.transport.as_ref().ok(),
            "trouble": server.transport.as_ref().err(),
        })).collect::<Vec<_>>(),
        "job": job.map(|job| json!({
            "live": job.live,
            "failed": job.failed,
            "saved": job.saved,
            "files": job.files,
            "epochs": job.epochs,
            "declared_workers": job.workers,
            "tasks": job.tasks,
            "tasks_done": job.tasks_done,
            "tasks_held": job.tasks_leased,
            "tasks_returned": job.tasks_returned,
            "examples": job.examples,
            "examples_per_second": rate(job),
            "workers": workers(job),
        })),
    })
}

/// The worker that tests and saves, as things are.
fn chief(job: &JobStatus) -> Option<u32> {
    job.chief.map(|chief| chief.rank)
}

/// What a worker is at.
fn at(job: &JobStatus, member: usize) -> &'static str {
    match job.work.get(member).map(|work| work.doing).unwrap_or_default() {
        Doing::Learning => "learns",
        Doing::Reading => "waits for its data",
        Doing::Waiting => "waits for others",
        Doing::Idle => "has no task",
        Doing::Meeting => "waits at a barrier",
        Doing::Saving => "tests or saves",
        Doing::Ending => "waits for the end",
    }
}

/// Tasks by their numbers; of many the first few.
fn held_in_words(tasks: &[u64]) -> String {
    const NAMED: usize = 8;
    let named: Vec<String> = tasks.iter().take(NAMED).map(u64::to_string).collect();
    match tasks.len() {
        0 => "none".to_owned(),
        n if n > NAMED => format!("{} and {} more", named.join(", "), n - NAMED),
        _ => named.join(", "),
    }
}

fn rate(job: &JobStatus) -> f64 {
    // From 0: the sum of nothing is -0.
    job.members.iter().filter(|m| m.standing == Standing::Live).fold(0.0, |sum, m| sum + m.told.rate)
}

fn print(scheduler: &str, job: Option<&JobStatus>, servers: &[Reached], (name, runs): (&str, &[Run])) {
    for server in servers {
        match &server.transport {
            Ok(transport) => say!("server     {}  answers over {transport}", server.addr),
            Err(why) => say!("server     {}  {why}", server.addr),
        }
    }
    for run in runs {
        let live = run.members.iter().filter(|member| member.live).count();
        let more = match run.finished {
            true => format!("{} rows", run.rows),
            false => format!("{live} workers live"),
        };
        say!("run        {}  {}, generation {}, {more}", run.name, state(run), run.generation);
    }
    let Some(job) = job else {
        say!("scheduler  {scheduler}  has had no job of run {name}");
        return;
    };
    let state = match (&job.failed, job.live) {
        (Some(why), _) => format!("the job has failed: {why}"),
        (None, true) => "a job runs".to_owned(),
        (None, false) if job.saved => "the job is done".to_owned(),
        (None, false) if job.tasks_done == job.tasks => {
            "all is trained, and nobody has said that the model is saved".to_owned()
        }
        (None, false) => "the job was left by all its workers; it goes on when they come back".to_owned(),
    };
    say!("scheduler  {scheduler}  {state}");
    say!(
        "tasks      {} of {} done, {} held, {} free again; {} records, {:.0}/s",
        job.tasks_done,
        job.tasks,
        job.tasks_leased,
        job.tasks_returned,
        job.examples,
        rate(job)
    );
    for (number, member) in job.members.iter().enumerate() {
        let told = &member.told;
        let chief = if Some(member.life.rank) == chief(job) { ", chief" } else { "" };
        let waits =
            told.waits_for.map(|(rank, clock)| format!("  waits for worker {rank}, at clock {clock}"));
        let waits = waits.unwrap_or_default();
        say!(
            "worker {:<4}{}{chief}, {}  clock {}  {} examples  {:.0}/s  log loss {:.5}  staleness {}  tasks {}{waits}",
            member.life.rank,
            standing(job, member),
            at(job, number),
            told.clock,
            told.examples,
            told.rate,
            told.loss,
            told.staleness,
            held_in_words(&held(job, member.life))
        );
    }
}
