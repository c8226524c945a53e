//! A job with a scheduler, with real processes: workers and the scheduler are killed with SIGKILL, workers sleep too
//! long, and wrong commands are refused.

use crate::harness;

use harness::ports::free_addr;
use harness::*;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub const LINES: u64 = 60_000;

pub struct Job {
    _folder: tempfile::TempDir,
    data: PathBuf,
    pub store: PathBuf,
}

impl Job {
    pub fn new() -> Job {
        let folder = tempfile::tempdir().unwrap();
        let data = clicks(&folder.path().join("train.svm"), LINES, 1);
        let store = folder.path().join("ps");
        Job { data, store, _folder: folder }
    }

    fn server(&self, listen: &str) -> Served {
        let mut command = gannet(&format!("server --listen {listen} --threads 2"));
        command.arg("--data-dir").arg(&self.store);
        Served::start(command)
    }

    /// A worker of three.
    pub fn worker(&self, addr: &str, index: u32, more: &str) -> Process {
        Process::start(gannet(&self.line(addr, index, more)))
    }

    pub fn line(&self, addr: &str, index: u32, more: &str) -> String {
        let line = format!(
            "train {} --ps-hosts {addr} --worker-hosts a:1,b:1,c:1 --job-name worker --task-index {index} --json --batch 64 \
             --task-bytes 64KiB --worker-timeout 2 --peer-timeout 20 --epochs 2",
            self.data.display()
        );
        format!("{line} {}{more}", if more.contains("--tasks") { "" } else { "--tasks on " })
    }
}

fn status(addr: &str) -> serde_json::Value {
    run(&format!("status --ps-hosts {addr} --json")).json()["job"].clone()
}

/// Waits until this many tasks are done.
pub fn until_done(addr: &str, tasks: u64) -> serde_json::Value {
    let start = Instant::now();
    loop {
        let job = status(addr);
        if job["tasks_done"].as_u64().is_some_and(|done| done >= tasks) {
            return job;
        }
        assert!(start.elapsed() < limit(), "{job}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Checks that every record was trained once a pass.
pub fn check_end(addr: &str) {
    let job = status(addr);
    assert_eq!(job["tasks_done"], job["tasks"], "{job}");
    assert_eq!(job["examples"], 2 * LINES, "{job}");
    assert_eq!(job["failed"], serde_json::Value::Null);
}

fn a_worker_is_killed_and_another_sleeps(sync: &str) {
    let job = Job::new();
    let served = job.server("127.0.0.1:0");
    let killed = job.worker(&served.addr, 0, sync);
    let asleep = job.worker(&served.addr, 1, sync);
    until_done(&served.addr, 4);
    killed.signal(Signal::KILL);
    asleep.signal(Signal::STOP);
    let third = job.worker(&served.addr, 2, sync);
    // The killed worker comes back and trains at once.
    let again = job.worker(&served.addr, 0, sync);
    let (third, again) = (third.wait(), again.wait());
    assert_eq!((third.code, again.code), (Some(0), Some(0)), "{third:?} {again:?}");
    check_end(&served.addr);
    asleep.signal(Signal::CONT);
    let woken = asleep.wait();
    // It may have had no push left to make, or it learned that the scheduler had given it up.
    assert!(woken.code == Some(3) && woken.err.contains("start it again"), "{woken:?}");
    check_end(&served.addr);
    drop(killed);
}

#[test]
fn a_killed_worker_and_a_sleeping_one_lose_and_double_nothing() {
    a_worker_is_killed_and_another_sleeps("");
}

#[test]
fn nor_do_they_in_synchronous_steps() {
    a_worker_is_killed_and_another_sleeps("--sync bsp");
}

fn the_scheduler_is_killed(sync: &str) {
    let job = Job::new();
    let served = job.server("127.0.0.1:0");
    let addr = served.addr.clone();
    let workers = [job.worker(&addr, 0, sync), job.worker(&addr, 1, sync)];
    until_done(&addr, 4);
    served.kill();
    let served = job.server(&addr);
    until_done(&addr, 10);
    served.kill();
    let _served = job.server(&addr);
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    check_end(&addr);
    // A worker that comes when everything is done has nothing to do.
    let late = job.worker(&addr, 2, sync).wait();
    assert_eq!((late.code, &late.json()["examples"]), (Some(0), &0.into()), "{late:?}");
    check_end(&addr);
}

#[test]
fn a_scheduler_that_is_killed_goes_on_where_it_stood() {
    the_scheduler_is_killed("");
}

#[test]
fn also_in_the_middle_of_synchronous_steps() {
    the_scheduler_is_killed("--sync bsp");
}

/// While the server slept, it received no heartbeats. It must give no worker up for that.
#[test]
fn a_server_that_slept_longer_than_its_workers_may_gives_none_of_them_up() {
    let job = Job::new();
    let served = job.server("127.0.0.1:0");
    let line = "--sync ssp:8";
    let workers = [job.worker(&served.addr, 0, line), job.worker(&served.addr, 1, line)];
    until_done(&served.addr, 2);
    served.child.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(6));
    served.child.signal(Signal::CONT);
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    check_end(&served.addr);
}

/// Every table of a model of several tables gets its part of every batch. A worker dies between two tables.
#[test]
fn models_are_handed_their_data_too() {
    for model in ["--model fm --factors 4", "--model deepfm --factors 4 --hidden 8 --sync bsp"] {
        let job = Job::new();
        let served = job.server("127.0.0.1:0");
        let more = format!("{model} --tasks on --batch 256");
        let line = |index| job.line(&served.addr, index, &more).replace("--batch 64 ", "");
        let killed = Process::start(gannet(&line(0)));
        let other = Process::start(gannet(&line(1)));
        until_done(&served.addr, 4);
        killed.signal(Signal::KILL);
        let third = Process::start(gannet(&line(2)));
        let (other, third) = (other.wait(), third.wait());
        assert_eq!((other.code, third.code), (Some(0), Some(0)), "{model}: {other:?} {third:?}");
        check_end(&served.addr);
        drop(killed);
    }
    let job = Job::new();
    let topics = run(&job.line("127.0.0.1:1", 0, "--model lda --tasks on").replace("--epochs 2 ", ""));
    assert!(
        topics.code == Some(2) && topics.err.contains("--tasks on: does not work with --model lda"),
        "{topics:?}"
    );
}

/// Once two workers that listed the servers in different orders made two schedulers, and each handed out all of
/// the data.
#[test]
fn workers_that_name_the_servers_in_two_orders_have_one_scheduler() {
    let job = Job::new();
    let servers = [(); 2].map(|()| Served::start(gannet("server --listen 127.0.0.1:0 --threads 2")));
    let addrs = servers.each_ref().map(|served| &*served.addr);
    let orders = [addrs.join(","), [addrs[1], addrs[0]].join(",")];
    let workers = [job.worker(&orders[0], 0, ""), job.worker(&orders[1], 1, "")];
    let done = workers.map(Process::wait);
    assert!(done.iter().all(|done| done.code == Some(0)), "{done:?}");
    let examples: u64 = done.iter().map(|done| done.json()["examples"].as_u64().unwrap()).sum();
    assert_eq!(examples, 2 * LINES);
    orders.iter().for_each(|order| check_end(order));
}

/// Once a job that had begun with another scheduler began a second time.
#[test]
fn a_second_scheduler_is_refused_while_a_job_is_not_done() {
    let job = Job::new();
    let servers = [(); 2].map(|()| Served::start(gannet("server --listen 127.0.0.1:0 --threads 2")));
    let addrs = servers.each_ref().map(|served| &*served.addr);
    let (hosts, usual, other) = (addrs.join(","), addrs.iter().min().unwrap(), addrs.iter().max().unwrap());
    let named = format!("--scheduler {other}");
    let none = "none, so it is the server that keeps the run's registry";
    // In the second round the run begins from the start.
    for (scheduler, was, flag, other_flag) in
        [(other, *other, &*named, ""), (usual, none, "--fresh", &*named)]
    {
        let first = job.worker(&hosts, 0, flag);
        until_done(scheduler, 2);
        first.signal(Signal::KILL);
        let second = run(&job.line(&hosts, 1, other_flag));
        let says = format!("--scheduler: worker 0 has {was}, this worker (1) was given");
        assert!(second.code == Some(2) && second.err.contains(&says), "{second:?}");
        drop(first);
        let third = run(&job.line(&hosts, 1, flag));
        assert_eq!(third.code, Some(0), "{third:?}");
        check_end(scheduler);
    }
}

/// Once a scheduler that had lost its state handed all splits out again, on the rows that the run had trained.
#[test]
fn a_scheduler_without_the_state_of_its_job_trained_every_record_again() {
    let job = Job::new();
    let served = job.server("127.0.0.1:0");
    let forgets = free_addr();
    let scheduler = || Served::start(gannet(&format!("scheduler --listen {forgets}")));
    let more = format!("--tasks on --scheduler {forgets}");
    let done = || {
        let job = run(&format!("status --ps-hosts {} --scheduler {forgets} --json", served.addr)).json();
        job["job"]["tasks_done"].as_u64().unwrap_or(0)
    };
    let first_scheduler = scheduler();
    let first = job.worker(&served.addr, 0, &more);
    crate::world::until("tasks", || done() >= 2);
    first.signal(Signal::KILL);
    drop(first);
    first_scheduler.kill();
    let _scheduler = scheduler();
    let refused = run(&job.line(&served.addr, 0, &more));
    let says = ["was started without the state of the job", "--fresh"];
    assert!(refused.code == Some(2) && says.iter().all(|says| refused.err.contains(says)), "{refused:?}");
    // A run that begins anew has a job of its own.
    let fresh = run(&job.line(&served.addr, 0, &format!("{more} --fresh")));
    assert_eq!(fresh.code, Some(0), "{fresh:?}");
}

/// Once a job whose chief was killed before it had saved was trained a second time, by a scheduler that did not
/// know the job.
#[test]
fn a_job_that_is_trained_and_not_saved_is_not_begun_with_another_scheduler() {
    let job = Job::new();
    let servers = [(); 2].map(|()| Served::start(gannet("server --listen 127.0.0.1:0 --threads 2")));
    let addrs = servers.each_ref().map(|served| &*served.addr);
    let (hosts, other, test) = (addrs.join(","), addrs.iter().max().unwrap(), fifo(&job));
    let first = job.worker(&hosts, 0, &format!("--scheduler {other} --test {}", test.display()));
    assert_eq!(until_saving(other, None), 0);
    first.signal(Signal::KILL);
    let second = run(&job.line(&hosts, 1, ""));
    let says = format!("--scheduler: worker 0 has {other}");
    assert!(second.code == Some(2) && second.err.contains(&says), "{second:?}");
    drop(first);
}

#[test]
fn a_scheduler_of_its_own_keeps_no_shards() {
    let job = Job::new();
    let served = job.server("127.0.0.1:0");
    let mut command = gannet("scheduler --listen 127.0.0.1:0");
    let state_folder = job.store.with_extension("book");
    command.arg("--data-dir").arg(&state_folder);
    let scheduler = Served::start(command);
    let more = format!("--shards 8 --scheduler {}", scheduler.addr);
    let workers = [job.worker(&served.addr, 0, &more), job.worker(&served.addr, 2, &more)];
    let examples: u64 = workers.into_iter().map(|w| w.wait().json()["examples"].as_u64().unwrap()).sum();
    assert_eq!(examples, 2 * LINES);
    check_end(&scheduler.addr);
    assert_eq!(status(&served.addr), serde_json::Value::Null);
    let other = run(&job.line(&served.addr, 0, "--shards 16 --continue"));
    assert!(other.code != Some(0) && other.err.contains("shards"), "{other:?}");
    assert!(Path::new(&state_folder).join("scheduler.default.book").is_file());
    let wrong = run(&job.line(&scheduler.addr, 0, ""));
    assert!(wrong.code == Some(3) && wrong.err.contains("this is a scheduler"), "{wrong:?}");
    let said = scheduler.stop();
    assert!(said.contains("gannet scheduler stopped"), "{said}");
}

#[test]
fn status_says_who_waits_for_whom() {
    let job = Job::new();
    let served = job.server("127.0.0.1:0");
    let line = |index: u32| {
        job.line(&served.addr, index, "--sync ssp:1 --start-together").replace("a:1,b:1,c:1", "a:1,b:1")
    };
    let waiting = Process::start(gannet(&line(0)));
    std::thread::sleep(Duration::from_millis(500));
    // The second worker has not connected yet.
    assert_eq!(status(&served.addr)["tasks_done"], 0);
    let stopped = Process::start(gannet(&line(1)));
    until_done(&served.addr, 2);
    stopped.signal(Signal::STOP);
    let start = Instant::now();
    let whom = loop {
        let job = status(&served.addr);
        let worker = &job["workers"][0];
        if worker["waits_for"]["worker"] == 1 {
            break worker.clone();
        }
        assert!(start.elapsed() < limit(), "{job}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(whom["clock"].as_u64() > whom["waits_for"]["clock"].as_u64(), "{whom}");
    assert!(whom["staleness"].as_u64() <= Some(1), "{whom}");
    stopped.signal(Signal::CONT);
    let (first, second) = (waiting.wait(), stopped.wait());
    assert_eq!(first.code, Some(0), "{first:?}");
    // The scheduler may have given it up by then.
    assert!(matches!(second.code, Some(0 | 3)), "{second:?}");
    check_end(&served.addr);
    let alone = run(&line(1)
        .replace("--peer-timeout 20", "--run alone --peer-timeout 5")
        .replace("--epochs 2", "--epochs 1"));
    assert!(alone.code == Some(3) && alone.err.contains("workers [0] have not come"), "{alone:?}");
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let job = Job::new();
    let served = job.server("127.0.0.1:0");
    let addr = &served.addr;
    // A stopped worker stays in the job, however long the other commands take.
    let line =
        |index, more| job.line(addr, index, more).replace("--worker-timeout 2 ", "--worker-timeout 60 ");
    let first = Process::start(gannet(&line(1, "")));
    until_done(addr, 1);
    first.signal(Signal::STOP);
    let same = run(&line(1, ""));
    assert!(same.code == Some(2) && same.err.contains("two workers have the same --task-index"), "{same:?}");
    let other = run(&line(0, "--no-intercept"));
    assert!(other.code == Some(2) && other.err.contains("every worker of a run the same"), "{other:?}");
    let more = run(&line(0, "").replace("a:1,b:1,c:1", "a:1,b:1,c:1,d:1"));
    assert!(more.code == Some(2) && more.err.contains("--worker-hosts: worker 1 has 3 workers"), "{more:?}");
    let beyond = run(&line(3, ""));
    assert!(beyond.code == Some(2) && beyond.err.contains("--task-index 3"), "{beyond:?}");
    let pipe = run(&line(0, "").replace(job.data.to_str().unwrap(), "-"));
    assert!(pipe.code == Some(2) && pipe.err.contains("can be read only once"), "{pipe:?}");
    let off = run(&line(0, "--tasks off").replace("--worker-timeout 60 ", ""));
    assert!(off.code == Some(2) && off.err.contains("--task-bytes: works only with --tasks on"), "{off:?}");
    first.signal(Signal::CONT);
    // The data changes during the job: every worker gets the same message.
    let text = std::fs::read_to_string(&job.data).unwrap();
    std::fs::write(&job.data, text + "1 1:1\n").unwrap();
    let changed = first.wait();
    assert!(
        changed.code == Some(2) && changed.err.contains("has changed since the training began"),
        "{changed:?}"
    );
    let failed = status(addr)["failed"].as_str().unwrap_or_default().to_owned();
    assert!(failed.contains("has changed since the training began"), "{failed}");
}

/// Once a failed job failed for ever, although the cause was removed. Only new rows helped.
#[test]
fn a_job_that_failed_could_not_go_on_when_its_data_was_back() {
    let job = Job::new();
    let served = job.server("127.0.0.1:0");
    let text = std::fs::read_to_string(&job.data).unwrap();
    let first = job.worker(&served.addr, 1, "");
    until_done(&served.addr, 1);
    first.signal(Signal::STOP);
    std::fs::write(&job.data, text.clone() + "1 1:1\n").unwrap();
    first.signal(Signal::CONT);
    let changed = first.wait();
    assert!(changed.code == Some(2) && changed.err.contains("has changed"), "{changed:?}");
    // While the file has other data, the job is not the same.
    let other = run(&job.line(&served.addr, 1, ""));
    assert!(other.code == Some(2) && other.err.contains("DATA file 1"), "{other:?}");
    std::fs::write(&job.data, text).unwrap();
    let again = run(&job.line(&served.addr, 1, ""));
    assert_eq!(again.code, Some(0), "{again:?}");
    check_end(&served.addr);
}

/// A FIFO with the chief's test data. The chief waits there for lines, as long as the test wants.
fn fifo(job: &Job) -> PathBuf {
    let path = job.data.with_file_name("test.svm");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    path
}

/// Waits until a chief saves, after everything is trained. Returns its index, which must differ from `before`.
fn until_saving(addr: &str, before: Option<usize>) -> usize {
    let start = Instant::now();
    loop {
        let job = status(addr);
        let workers = job["workers"].as_array().cloned().unwrap_or_default();
        let saving =
            |worker: &&serde_json::Value| worker["at"] == "tests or saves" && worker["chief"] == true;
        if job["tasks_done"] == job["tasks"]
            && let Some(chief) = workers.iter().find(saving)
            && let chief = chief["worker"].as_u64().unwrap() as usize
            && Some(chief) != before
        {
            return chief;
        }
        assert!(start.elapsed() < limit(), "{job}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Once the other worker ended without an error before the chief was done.
#[test]
fn nobody_saved_the_model_when_the_chief_was_killed_while_it_tested() {
    let job = Job::new();
    let served = job.server("127.0.0.1:0");
    let (test, out) = (fifo(&job), job.data.with_file_name("model"));
    let more = format!("--test {} --out {}", test.display(), out.display());
    let mut workers = [0, 1].map(|index| Some(job.worker(&served.addr, index, &more)));
    let chief = until_saving(&served.addr, None);
    let killed = workers[chief].take().unwrap();
    killed.signal(Signal::KILL);
    // The other worker becomes the chief after the first was fenced.
    assert_eq!(until_saving(&served.addr, Some(chief)), 1 - chief);
    let lines = std::fs::read(&job.data).unwrap();
    let end = lines.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    std::fs::write(&test, &lines[..end]).unwrap();
    let other = workers[1 - chief].take().unwrap().wait();
    assert!(other.code == Some(0) && other.json()["test_logloss"].is_number(), "{other:?}");
    assert!(out.join("MANIFEST").is_file());
    check_end(&served.addr);
    assert_eq!(status(&served.addr)["saved"], true);
    drop(killed);
}

/// Once a worker that lost the scheduler after the last task ended without an error, and without a model.
#[test]
fn a_worker_that_waits_for_the_end_says_so_when_the_scheduler_dies() {
    let job = Job::new();
    let served = job.server("127.0.0.1:0");
    let scheduler = Served::start(gannet("scheduler --listen 127.0.0.1:0"));
    let (test, out) = (fifo(&job), job.data.with_file_name("model"));
    let more = format!("--scheduler {} --test {} --out {}", scheduler.addr, test.display(), out.display());
    let line = |index| job.line(&served.addr, index, &more).replace("--peer-timeout 20", "--peer-timeout 3");
    let mut workers = [0, 1].map(|index| Some(Process::start(gannet(&line(index)))));
    let chief = until_saving(&scheduler.addr, None);
    scheduler.kill();
    let other = workers[1 - chief].take().unwrap().wait();
    assert!(
        other.code == Some(3) && other.err.contains("does not know whether another one has saved the model"),
        "{other:?}"
    );
    // The chief knows that it is the chief, so it continues without the scheduler.
    let lines = std::fs::read(&job.data).unwrap();
    let end = lines.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    std::fs::write(&test, &lines[..end]).unwrap();
    let done = workers[chief].take().unwrap().wait();
    assert!(done.code == Some(0) && out.join("MANIFEST").is_file(), "{done:?}");
}

/// Makes a folder where a server makes a file now and then.
fn obstruct(path: &Path) {
    crate::world::until("no file of the server in the way", || std::fs::create_dir(path).is_ok());
}

/// Once a worker ended at once when the scheduler's disk was full. Pushes waited for `--peer-timeout`.
#[test]
fn a_full_disk_of_the_scheduler_ended_its_workers_at_once() {
    let job = Job::new();
    let served = job.server("127.0.0.1:0");
    // The file that is written before it is renamed: a folder of its name is in the way, as a full disk would be.
    let in_the_way = job.store.join("scheduler.default.new");
    let mut first = job.worker(&served.addr, 0, "");
    until_done(&served.addr, 2);
    obstruct(&in_the_way);
    std::thread::sleep(Duration::from_secs(2));
    let done = status(&served.addr)["tasks_done"].clone();
    std::thread::sleep(Duration::from_secs(1));
    assert!(first.child.0.try_wait().unwrap().is_none(), "the worker has ended: {:?}", first.wait());
    // Its lease does not end meanwhile, and nothing is handed out that is not saved.
    let job_now = status(&served.addr);
    assert!(job_now["tasks_done"] == done && job_now["tasks_done"] != job_now["tasks"], "{job_now}");
    std::fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(first.wait().code, Some(0));
    check_end(&served.addr);
    // One that stays full is named.
    obstruct(&in_the_way);
    let line = job.line(&served.addr, 0, "--continue").replace("--peer-timeout 20", "--peer-timeout 2");
    let ended = run(&line);
    let says = ["the scheduler's job state file", "scheduler.default.book", "--peer-timeout", "make space"];
    assert!(ended.code == Some(3) && says.iter().all(|says| ended.err.contains(says)), "{ended:?}");
}
