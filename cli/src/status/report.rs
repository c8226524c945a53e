//! What `gannet status` prints: a line for each server, run and worker, or one object. Unknown numbers are null there.

use crate::report::numbers::Numbers;
use crate::report::words::counted;
use crate::status::facts::{at, chief, loss, rate, standing, tasks_of};
use crate::status::known::{Reached, StatusAnswers};
use crate::status::places::put_places;
use gannet::job::{JobStatus, Member, WorkerState};
use gannet::runs::{CLIENT, Run, RunMember, TableUse};
use serde_json::{Value, json};

pub fn report_of(answers: &StatusAnswers) -> Numbers {
    let mut report = Numbers::default();
    report.list("servers", answers.servers.iter().map(of_server));
    put_places(&mut report, answers.places.as_ref());
    if let Some(Err(trouble)) = &answers.runs {
        let why = if trouble.silent { "the server that keeps them does not answer" } else { &trouble.why };
        report.say(format_args!("runs       not known: {why}"));
    }
    report.list("runs", answers.known_runs().iter().map(|run| of_run(answers, run)));
    report.list("tables", answers.tables.iter().map(of_table));
    report.add("scheduler", answers.scheduler.as_str());
    report.add("run", answers.run.as_str());
    match &answers.job {
        Ok(Some(job)) => report.part("job", of_job(answers, job)),
        Ok(None) => put_shares(&mut report, answers),
        Err(trouble) => {
            let scheduler = &answers.scheduler;
            let is_server = answers.servers.iter().any(|server| server.addr == *scheduler);
            let why = if is_server { "is that server: the job is not known" } else { &trouble.why };
            report.say(format_args!("scheduler  {scheduler}  {why}"));
            report.add("job", Value::Null);
        }
    }
    report
}

fn of_server(server: &Reached) -> Numbers {
    let mut of = Numbers::default();
    of.words("server     ");
    of.show("address", server.addr.as_str(), "  ");
    let trouble = server.transport.as_ref().err().map(|trouble| &trouble.why);
    match &server.transport {
        Ok(transport) => of.words(format_args!("answers over {transport}")),
        Err(trouble) => of.words(&trouble.why),
    }
    of.add_all(json!({ "transport": server.transport.as_ref().ok(), "trouble": trouble }));
    of
}

fn of_table(table: &TableUse) -> Numbers {
    let mut of = Numbers::default();
    of.words("table      ");
    of.show("name", table.name.as_str(), "  ");
    of.show("pushers", table.pushers, " of ");
    of.show("pushers_max", table.pushers_max, " pushers");
    match table.clients_gone {
        0 => of.add_all(json!({ "clients_gone": 0 })),
        gone => {
            of.words(", ");
            of.show("clients_gone", gone, " of them clients that are gone (gannet forget --clients)");
        }
    }
    of
}

fn of_run(answers: &StatusAnswers, run: &Run) -> Numbers {
    let (live, client) = answers.live(run);
    let (mut of, runs) = (Numbers::default(), !live.is_empty() || client);
    of.words("run        ");
    of.show("name", run.name.as_str(), "  ");
    of.words(match (run.finished, runs) {
        (true, _) => "finished, generation ",
        (false, true) => "running, generation ",
        (false, false) => "not finished, no worker is alive, generation ",
    });
    of.show("generation", run.generation, "");
    if run.finished {
        of.words(format_args!(", {}", counted(run.rows, "row", "rows")));
    } else if runs {
        let of_live = counted(live.len() as u64, "worker", "workers");
        of.words(format_args!(", {of_live}{} live", if client { " and the client" } else { "" }));
    }
    let workers: Vec<Value> = run.members.iter().map(|member| of_member(member).object()).collect();
    of.add_all(json!({
        "state": if run.finished { "finished" } else { "running" }, "rows_since": run.rows_since,
        "rows": run.finished.then_some(run.rows), "finished_at": run.finished.then_some(run.finished_at),
        "live_workers": live.len(), "workers": workers,
    }));
    of
}

/// A worker or the client of a run, as the servers report it.
fn of_member(RunMember { incarnation, done, live, lost, batches }: &RunMember) -> Numbers {
    let (mut of, rank) = (Numbers::default(), incarnation.rank);
    of.add_all(json!({ "worker": rank, "live": live, "done": done, "batches": batches }));
    match rank {
        CLIENT => of.words("client     "),
        rank => of.words(format_args!("worker {rank:<4}")),
    }
    of.words(match (live, done) {
        (true, true) => "live, done",
        (true, false) if *lost => "live, but makes no progress",
        (true, false) => "live",
        (false, true) => "done",
        (false, false) if *lost => "dead, not done",
        (false, false) => "gone, not done",
    });
    if rank != CLIENT {
        of.words(format_args!(", {} trained", counted(*batches, "batch", "batches")));
    }
    of
}

/// A run without a job at the scheduler, or no run at all.
fn put_shares(report: &mut Numbers, answers: &StatusAnswers) {
    report.add("job", Value::Null);
    let (scheduler, name) = (&answers.scheduler, &answers.run);
    let Some(run) = answers.shown_run() else {
        let other = if answers.known_runs().is_empty() { "" } else { "; name another: --run NAME" };
        return report.say(format_args!("scheduler  {scheduler}  has had no job of run {name}{other}"));
    };
    let is = if run.finished { "was" } else { "is" };
    let elsewhere = if answers.named { "" } else { " (or elsewhere: --scheduler HOST:PORT)" };
    report.say(format_args!(
        "scheduler  {scheduler}  run {name}: fixed shares, no data {is} handed out{elsewhere}"
    ));
    run.members.iter().for_each(|member| report.say(of_member(member).text()));
}

/// The state of a job, in words that follow its name.
fn state(job: &JobStatus) -> String {
    match (&job.failed, job.live) {
        (Some(why), _) => format!(" has failed: {why}"),
        (None, true) => " runs".to_owned(),
        (None, false) if job.saved => " is done".to_owned(),
        (None, false) if job.tasks_done == job.tasks => {
            ": all is trained, and no worker has reported that the model is saved".to_owned()
        }
        (None, false) => " was left by all its workers; it goes on when they come back".to_owned(),
    }
}

fn of_job(answers: &StatusAnswers, job: &JobStatus) -> Numbers {
    let mut of = Numbers::default();
    of.say(format_args!("scheduler  {}  job of run {}{}", answers.scheduler, answers.run, state(job)));
    of.say("tasks      ");
    of.show("tasks_done", job.tasks_done, " of ");
    of.show("tasks", job.tasks, " done, ");
    of.show("tasks_held", job.tasks_leased, " held, ");
    of.show("tasks_returned", job.tasks_returned, " free again; ");
    of.show_count("examples", job.examples, "record", "records");
    of.words(", ");
    of.show_known("examples_per_second", rate(job), 0, "/s");
    of.add_all(json!({
        "live": job.live, "failed": job.failed, "saved": job.saved, "files": job.files, "epochs": job.epochs,
        "declared_workers": job.workers,
    }));
    of.list("workers", job.members.iter().enumerate().map(|(place, member)| of_worker(job, place, member)));
    of
}

/// A worker's line, from its latest report. `-`: not reported yet.
fn of_worker(job: &JobStatus, place: usize, member: &Member) -> Numbers {
    let (progress, rank) = (&member.progress, member.incarnation.rank);
    let (has_learned, live) = (progress.examples > 0, member.state == WorkerState::Live);
    // The report of a worker that has left is final, even if it is 0.
    let stepped = has_learned || progress.clock > 0 || !live;
    let (is_chief, tasks) = (chief(job) == Some(rank), tasks_of(job, member.incarnation));
    let mut of = Numbers::default();
    of.words(format_args!("worker {rank:<4}"));
    of.add("worker", rank);
    of.show("standing", standing(job, member), if live && is_chief { ", chief" } else { "" });
    of.add("chief", is_chief);
    match at(job, place, member) {
        Some(at) => {
            of.words(", ");
            of.show("at", at, "");
        }
        None => of.add("at", Value::Null),
    }
    of.words("  clock ");
    of.show_if(stepped, "clock", progress.clock, "  ");
    of.show_if(has_learned || !live, "examples", progress.examples, " examples  ");
    of.show_known("examples_per_second", has_learned.then_some(progress.rate), 0, "/s  log loss ");
    of.show_known("logloss", loss(member), 5, "  staleness ");
    of.show_if(stepped, "staleness", progress.staleness, "  tasks ");
    of.words(task_list(&tasks));
    of.add("tasks", tasks);
    if let Some((rank, clock)) = progress.waits_for.filter(|_| live) {
        of.words(format_args!("  waits for worker {rank}, at clock {clock}"));
    }
    of.add("waits_for", progress.waits_for.map(|(rank, clock)| json!({"worker": rank, "clock": clock})));
    of
}

/// Tasks by number. Of many, the first few.
fn task_list(tasks: &[u64]) -> String {
    const NAMED: usize = 8;
    let named: Vec<String> = tasks.iter().take(NAMED).map(u64::to_string).collect();
    match tasks.len() {
        0 => "none".to_owned(),
        n if n > NAMED => format!("{} and {} more", named.join(", "), n - NAMED),
        _ => named.join(", "),
    }
}
