//! `gannet status --json`: the answers as one object. Unknown numbers are null.

use crate::status::facts::{at, chief, loss, rate, standing, tasks_of};
use crate::status::known::StatusAnswers;
use crate::status::places;
use gannet::job::{JobStatus, Member};
use gannet::runs::Run;
use serde_json::{Value, json};

pub fn of(answers: &StatusAnswers) -> Value {
    let runs: Vec<Value> = answers.known_runs().iter().map(|run| of_run(answers, run)).collect();
    let servers = answers.servers.iter().map(|server| {
        let trouble = server.transport.as_ref().err();
        json!({
            "address": server.addr,
            "transport": server.transport.as_ref().ok(),
            "trouble": trouble.map(|trouble| &trouble.why),
        })
    });
    json!({
        "scheduler": answers.scheduler,
        "run": answers.run,
        "runs": runs,
        "tables": answers.tables.iter().map(|table| json!({
            "name": table.name,
            "pushers": table.pushers,
            "pushers_max": table.pushers_max,
        })).collect::<Vec<_>>(),
        "servers": servers.collect::<Vec<_>>(),
        "places": answers.places.as_ref().map(places::of),
        "members": answers.places.as_ref().map(places::of_members),
        "generation": answers.places.as_ref().map(places::of_generation),
        "job": answers.known_job().map(of_job),
    })
}

fn of_run(answers: &StatusAnswers, run: &Run) -> Value {
    let (live, _) = answers.live(run);
    json!({
        "name": run.name,
        "state": if run.finished { "finished" } else { "running" },
        "generation": run.generation,
        "rows_since": run.rows_since,
        "rows": run.finished.then_some(run.rows),
        "finished_at": run.finished.then_some(run.finished_at),
        "live_workers": live.len(),
        "workers": run.members.iter().map(|member| json!({
            "worker": member.incarnation.rank,
            "live": member.live,
            "done": member.done,
            "batches": member.batches,
        })).collect::<Vec<_>>(),
    })
}

fn of_job(job: &JobStatus) -> Value {
    let workers = job.members.iter().enumerate().map(|(place, member)| of_worker(job, place, member));
    json!({
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
        "workers": workers.collect::<Vec<_>>(),
    })
}

fn of_worker(job: &JobStatus, place: usize, member: &Member) -> Value {
    let progress = &member.progress;
    json!({
        "worker": member.incarnation.rank,
        "standing": standing(job, member),
        "chief": Some(member.incarnation.rank) == chief(job),
        "at": at(job, place, member),
        "clock": progress.clock,
        "examples": progress.examples,
        "examples_per_second": (progress.examples > 0).then_some(progress.rate),
        "logloss": loss(member),
        "staleness": progress.staleness,
        "waits_for": progress.waits_for.map(|(rank, clock)| json!({"worker": rank, "clock": clock})),
        "tasks": tasks_of(job, member.incarnation),
    })
}
