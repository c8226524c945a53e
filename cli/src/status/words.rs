//! `gannet status` for people: a line for each server, run and worker.

use crate::report::words::counted;
use crate::status::facts::{at, chief, loss, rate, standing, tasks_of};
use crate::status::known::StatusAnswers;
use crate::status::places;
use gannet::job::{JobStatus, Member, WorkerState};
use gannet::runs::{CLIENT, Run, RunMember};

pub fn print(answers: &StatusAnswers) {
    for server in &answers.servers {
        match &server.transport {
            Ok(transport) => say!("server     {}  answers over {transport}", server.addr),
            Err(trouble) => say!("server     {}  {}", server.addr, trouble.why),
        }
    }
    if let Some(places) = &answers.places {
        places::print(places);
    }
    if let Some(Err(trouble)) = &answers.runs {
        let why = if trouble.silent { "the server that keeps them does not answer" } else { &trouble.why };
        say!("runs       not known: {why}");
    }
    for run in answers.known_runs() {
        say!("run        {}  {}", run.name, of_run(answers, run));
    }
    for table in &answers.tables {
        say!("table      {}  {} of {} pushers", table.name, table.pushers, table.pushers_max);
    }
    let scheduler = &answers.scheduler;
    let is_server = answers.servers.iter().any(|server| server.addr == *scheduler);
    match (&answers.job, answers.shown_run()) {
        (Ok(Some(job)), _) => print_job(answers, job),
        (Ok(None), Some(run)) => print_shares(answers, run),
        (Ok(None), None) if answers.known_runs().is_empty() => {
            say!("scheduler  {scheduler}  has had no job of run {}", answers.run);
        }
        (Ok(None), None) => {
            say!("scheduler  {scheduler}  has had no job of run {}; name another: --run NAME", answers.run);
        }
        (Err(_), _) if is_server => say!("scheduler  {scheduler}  is that server: the job is not known"),
        (Err(trouble), _) => say!("scheduler  {scheduler}  {}", trouble.why),
    }
}

fn of_run(answers: &StatusAnswers, run: &Run) -> String {
    let generation = run.generation;
    if run.finished {
        let rows = counted(run.rows, "row", "rows");
        return format!("finished, generation {generation}, {rows}");
    }
    let (live, client) = answers.live(run);
    let workers = counted(live.len() as u64, "worker", "workers");
    match (live.len(), client) {
        (0, false) => format!("not finished, no worker is alive, generation {generation}"),
        (_, false) => format!("running, generation {generation}, {workers} live"),
        (_, true) => format!("running, generation {generation}, {workers} and the client live"),
    }
}

/// Prints a run without a job at the scheduler: its members, as the servers report them.
fn print_shares(answers: &StatusAnswers, run: &Run) {
    let (scheduler, name) = (&answers.scheduler, &run.name);
    let is = if run.finished { "was" } else { "is" };
    let elsewhere = if answers.named { "" } else { " (or elsewhere: --scheduler HOST:PORT)" };
    say!("scheduler  {scheduler}  run {name}: fixed shares, no data {is} handed out{elsewhere}");
    for RunMember { incarnation, done, live, lost, batches } in &run.members {
        let state = match (live, done) {
            (true, true) => "live, done",
            (true, false) if *lost => "live, but makes no progress",
            (true, false) => "live",
            (false, true) => "done",
            (false, false) if *lost => "dead, not done",
            (false, false) => "gone, not done",
        };
        match incarnation.rank {
            CLIENT => say!("client     {state}"),
            rank => say!("worker {rank:<4}{state}, {} trained", counted(*batches, "batch", "batches")),
        }
    }
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

fn print_job(answers: &StatusAnswers, job: &JobStatus) {
    say!("scheduler  {}  job of run {}{}", answers.scheduler, answers.run, state(job));
    say!(
        "tasks      {} of {} done, {} held, {} free again; {}, {}/s",
        job.tasks_done,
        job.tasks,
        job.tasks_leased,
        job.tasks_returned,
        counted(job.examples, "record", "records"),
        rate(job).map_or("-".to_owned(), |rate| format!("{rate:.0}"))
    );
    for (place, member) in job.members.iter().enumerate() {
        say!("{}", of_worker(job, place, member));
    }
}

/// A worker's line, from its latest report. `-`: not reported yet.
fn of_worker(job: &JobStatus, place: usize, member: &Member) -> String {
    let (progress, rank) = (&member.progress, member.incarnation.rank);
    let (has_learned, live) = (progress.examples > 0, member.state == WorkerState::Live);
    let or_none = |is_known: bool, text: String| if is_known { text } else { "-".to_owned() };
    let mut state = standing(job, member).to_owned();
    if live && chief(job) == Some(rank) {
        state += ", chief";
    }
    if let Some(at) = at(job, place, member) {
        state = format!("{state}, {at}");
    }
    // The report of a worker that has left is final, even if it is 0.
    let stepped = has_learned || progress.clock > 0 || !live;
    let clock = or_none(stepped, progress.clock.to_string());
    let examples = or_none(has_learned || !live, progress.examples.to_string());
    let speed = or_none(has_learned, format!("{:.0}", progress.rate));
    let loss = loss(member).map_or("-".to_owned(), |loss| format!("{loss:.5}"));
    let staleness = or_none(stepped, progress.staleness.to_string());
    let tasks = task_list(&tasks_of(job, member.incarnation));
    let waits = progress.waits_for.filter(|_| live);
    let waits = waits.map(|(rank, clock)| format!("  waits for worker {rank}, at clock {clock}"));
    format!(
        "worker {rank:<4}{state}  clock {clock}  {examples} examples  {speed}/s  log loss {loss}  \
         staleness {staleness}  tasks {tasks}{}",
        waits.unwrap_or_default()
    )
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
