//! Servers that come back without their rows, with real processes. Lost rows end a job with a message, also for later
//! incarnations of its workers and of its scheduler.

use crate::harness;

use harness::*;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LINES: u64 = 30_000;

/// A job of two workers. The test starts the first.
struct Job {
    folder: tempfile::TempDir,
    data: PathBuf,
    model: &'static str,
}

impl Job {
    fn new(model: &'static str) -> Job {
        let folder = tempfile::tempdir().unwrap();
        let data = clicks(&folder.path().join("train.svm"), LINES, 1);
        Job { folder, data, model }
    }

    fn server(&self, kind: &str, listen: &str, folder: Option<&str>) -> Served {
        let threads = if kind == "server" { " --threads 2" } else { "" };
        let mut command = gannet(&format!("{kind} --listen {listen}{threads}"));
        if let Some(folder) = folder {
            command.arg("--data-dir").arg(self.folder.path().join(folder));
        }
        Served::start(command)
    }

    /// Starts a worker of this index that runs until it is killed: it has more passes than it can finish.
    fn worker(&self, index: u32, hosts: &[&str], scheduler: &str) -> Process {
        // A step of several tables costs more: with few of them a busy machine ends the job within the limit, too.
        let batch = if self.model == "lr" { 64 } else { 256 };
        Process::start(gannet(&format!(
            "train {} --model {} --ps-hosts {} --worker-hosts a:1,b:1 --job-name worker --task-index {index} --json --batch {batch} \
             --task-bytes 64KiB --worker-timeout 2 --peer-timeout 20 --epochs 20 --tasks on --scheduler {scheduler}",
            self.data.display(),
            self.model,
            hosts.join(",")
        )))
    }
}

/// Waits until this is true for the job.
fn until(scheduler: &str, what: impl Fn(&serde_json::Value) -> bool) {
    let start = Instant::now();
    loop {
        let job = run(&format!("status --scheduler {scheduler} --json")).json()["job"].clone();
        if what(&job) {
            return;
        }
        assert!(start.elapsed() < limit(), "{job}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn has_begun(job: &serde_json::Value) -> bool {
    job["tasks_done"].as_u64().is_some_and(|done| done >= 3)
}

fn says(done: &Done, texts: &[&str]) {
    let said = texts.iter().all(|text| done.err.contains(text));
    assert!(done.code == Some(3) && said, "{texts:?}: {done:?}");
}

/// The job's state file is in the first server's folder and does not know the second server's rows, which were in
/// memory.
#[test]
fn a_restarted_worker_continued_with_the_remaining_splits_when_rows_were_lost() {
    let job = Job::new("lr");
    // The registry of runs is at the lower address: the server with the folder.
    let start = |folder| job.server("server", "127.0.0.1:0", folder);
    let mut pairs = std::iter::repeat_with(|| (start(Some("first")), start(None)));
    let (first, second) = pairs.find(|(first, second)| first.addr < second.addr).unwrap();
    let (first, addr) = ((first.addr.clone(), first), second.addr.clone());
    let worker = job.worker(0, &[&first.0, &addr], &first.0);
    until(&first.0, has_begun);
    drop(worker);
    second.kill();
    let _second = job.server("server", &addr, None);
    // In either order of hosts: the folders record which server has which rows.
    for hosts in [[&*first.0, &*addr], [&*addr, &*first.0]] {
        let again = job.worker(0, &hosts, &first.0).wait();
        says(&again, &["the rows of shards 2 to 3 are gone", &addr]);
    }
    // All workers learn of it.
    until(&first.0, |job| job["failed"].as_str().is_some_and(|why| why.contains("shards 2 to 3")));
}

/// Once the scheduler's state file outlived the folders of all servers, and the job continued with new, empty tables.
fn scheduler_file_over_emptied_folders(model: &'static str) {
    let job = Job::new(model);
    let scheduler = job.server("scheduler", "127.0.0.1:0", Some("book"));
    let start = |number: usize, listen: &str| job.server("server", listen, Some(["a", "b"][number]));
    let servers = [start(0, "127.0.0.1:0"), start(1, "127.0.0.1:0")];
    let addrs = servers.each_ref().map(|server| server.addr.clone());
    let hosts = addrs.each_ref().map(|addr| addr.as_str());
    let worker = job.worker(0, &hosts, &scheduler.addr);
    until(&scheduler.addr, has_begun);
    // Everything is killed, and only the state file is left.
    let (scheduler_addr, at) = (scheduler.addr.clone(), job.folder.path());
    drop(worker);
    scheduler.kill();
    servers.into_iter().for_each(Served::kill);
    ["a", "b"].iter().for_each(|folder| empty(&at.join(folder)));
    let _servers = [start(1, hosts[1]), start(0, hosts[0])];
    let _scheduler = job.server("scheduler", &scheduler_addr, Some("book"));
    // The state file belongs to a run whose workers may still run. When they are known to be dead, the run
    // begins again with its first record.
    let done = loop {
        let done = job.worker(1, &[hosts[1], hosts[0]], &scheduler_addr).wait();
        if done.code == Some(0) {
            break done;
        }
        says(&done, &["a registry began after it had lost the one whose workers are still in this job"]);
    };
    assert_eq!(done.json()["examples"], 20 * LINES, "{done:?}");
}

fn empty(folder: &Path) {
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_schedulers_book_goes_on_over_emptied_folders() {
    scheduler_file_over_emptied_folders("lr");
}

#[test]
fn the_schedulers_file_continued_over_emptied_folders_of_several_tables() {
    scheduler_file_over_emptied_folders("deepfm --hidden 4");
}
