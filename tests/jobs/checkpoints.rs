//! Jobs with checkpoints, all of whose processes are killed with SIGKILL in the middle. Their servers keep everything
//! in memory. Started again, each job goes on from its newest checkpoint.

use crate::harness;

use gannet::storage::CheckpointDir;
use gannet::table::Read;
use gannet::{Transports, Worker, WorkerConfig};
use harness::ports::free_addr;
use harness::*;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LINES: u64 = 20_480;
const BATCH: u64 = 32;
const EPOCHS: u64 = 60;

/// A job of two servers and two workers.
struct Job {
    folder: tempfile::TempDir,
    data: PathBuf,
    ps_hosts: String,
    flags: &'static str,
    epochs: u64,
    /// L-BFGS has no batches.
    batch: Option<u64>,
}

/// The processes of a job.
struct Started {
    servers: Vec<Served>,
    workers: Vec<Process>,
}

impl Job {
    fn new(flags: &'static str) -> Job {
        let folder = tempfile::tempdir().unwrap();
        let data = clicks(&folder.path().join("train.svm"), LINES, 5);
        let ps_hosts = format!("{},{}", free_addr(), free_addr());
        Job { folder, data, ps_hosts, flags, epochs: EPOCHS, batch: Some(BATCH) }
    }

    fn checkpoints(&self) -> PathBuf {
        self.folder.path().join("checkpoints")
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("model")
    }

    /// The flags that all processes have.
    fn hosts(&self) -> String {
        let (ps_hosts, checkpoints) = (&self.ps_hosts, self.checkpoints());
        format!("--ps-hosts {ps_hosts} --worker-hosts w:0,w:1 --checkpoint {}", checkpoints.display())
    }

    fn server(&self, index: usize) -> Served {
        let hosts = self.hosts();
        Served::start(gannet(&format!("train --job-name ps --task-index {index} {hosts} --threads 2")))
    }

    /// A worker that saves a checkpoint after so many seconds, if it is worker 0.
    fn worker(&self, index: usize, seconds: u64) -> Process {
        let batches =
            self.batch.map_or(String::new(), |batch| format!("--epochs {} --batch {batch}", self.epochs));
        Process::start(gannet(&format!(
            "train {} --job-name worker --task-index {index} {} --checkpoint-secs {seconds} {batches} --json \
             --peer-timeout 30 --out {} {}",
            self.data.display(),
            self.hosts(),
            self.out().display(),
            self.flags
        )))
    }

    fn start(&self) -> Started {
        self.start_with(1)
    }

    /// Starts all processes. Worker 0 saves a checkpoint after so many seconds.
    fn start_with(&self, seconds: u64) -> Started {
        let servers = [0, 1].map(|index| self.server(index)).into();
        Started { servers, workers: [0, 1].map(|index| self.worker(index, seconds)).into() }
    }

    /// Waits for a checkpoint with a number above this. Returns its number.
    fn until_saved(&self, above: u64) -> u64 {
        let start = Instant::now();
        loop {
            let newest =
                CheckpointDir::open(&self.checkpoints()).ok().and_then(|all| all.newest_valid().ok()?);
            match newest {
                Some(newest) if newest.number > above => return newest.number,
                _ => assert!(start.elapsed() < limit(), "no checkpoint above {above}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The highest number of a folder of a checkpoint, whether it is complete or not.
    fn newest_folder(&self) -> u64 {
        let names = std::fs::read_dir(self.checkpoints()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter_map(|name| name.to_str()?.parse().ok()).max().unwrap_or(0)
    }

    /// Waits for the folder of a checkpoint that is not complete.
    fn until_a_save_is_in_progress(&self) {
        let start = Instant::now();
        while self.newest_folder() <= self.until_saved(0) {
            assert!(start.elapsed() < limit(), "no save begins");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the workers have changed rows of the servers.
    fn until_trained(&self, addrs: &[&str]) {
        let newest = CheckpointDir::open(&self.checkpoints()).unwrap().newest_valid().unwrap().unwrap();
        let config = WorkerConfig::reader(addrs.iter().copied());
        let mut reader = Worker::connect(Transports::new(), config).unwrap();
        let table = reader.open_table(&newest.tables[0].schema).unwrap();
        let (keys, start) = ((0..12_000).collect::<Vec<u64>>(), Instant::now());
        let mut pull = || {
            let mut weights = vec![0.0; keys.len()];
            reader.pull(table, &keys, Read::Weights, &mut weights).unwrap();
            weights
        };
        let before = pull();
        while pull() == before {
            assert!(start.elapsed() < limit(), "nobody trains");
        }
    }

    /// The rows of the model, in the order of their keys, bit for bit.
    fn rows(&self) -> Vec<(u64, Vec<u32>)> {
        rows(&self.out())
    }
}

impl Started {
    /// Kills everything in the middle of the training.
    fn kill(self) {
        for mut worker in self.workers {
            assert!(worker.child.0.try_wait().unwrap().is_none(), "the job was over before it was killed");
        }
        self.servers.into_iter().for_each(Served::kill);
    }

    /// Waits for the end of the training. Returns the reports of the workers.
    fn end(&mut self) -> Vec<Done> {
        let done: Vec<Done> = self.workers.drain(..).map(Process::wait).collect();
        done.iter().for_each(|done| assert_eq!(done.code, Some(0), "{done:?}"));
        done
    }
}

fn rows(folder: &Path) -> Vec<(u64, Vec<u32>)> {
    let checkpoint = gannet::storage::Checkpoint::open(folder).unwrap();
    let (floats, mut all) = (checkpoint.schema().floats(), Vec::new());
    let bits = |row: &[f32]| row.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
    checkpoint
        .read(|keys, rows| all.extend(keys.iter().copied().zip(rows.chunks(floats).map(bits))))
        .unwrap();
    all.sort();
    all
}

/// Kills the job as many times, each time after another checkpoint, and lets it go on to its end.
fn killed(job: &Job, times: u64) -> Vec<Done> {
    let mut number = 0;
    for _ in 0..times {
        let started = job.start();
        number = job.until_saved(number);
        started.kill();
    }
    job.start().end()
}

/// A job whose tasks no checkpoint restores would train records twice. A model without a saver would save nothing.
#[test]
fn a_job_that_could_not_go_on_from_a_checkpoint_is_refused() {
    let job = "train clicks.svm --job-name worker --worker-hosts w:0 --checkpoint nowhere";
    for (flags, named) in [
        ("--ps-hosts b:1,a:1 --scheduler b:1", &["--checkpoint", "b:1", "a:1"][..]),
        ("--ps-hosts a:1 --scheduler c:1", &["--checkpoint", "c:1"]),
        ("--ps-hosts a:1 --model lda", &["--checkpoint", "--model lda"]),
    ] {
        let done = run(&format!("{job} {flags}"));
        assert_eq!(done.code, Some(2), "{flags}: {done:?}");
        assert!(named.iter().all(|name| done.err.contains(name)), "{flags}: {done:?}");
    }
}

fn number(done: &Done, name: &str) -> u64 {
    done.json()[name].as_u64().unwrap_or_else(|| panic!("{name}: {done:?}"))
}

/// Checks that each worker trained its share from the checkpoint's place on, and nothing before.
fn check_shares(job: &Job, done: &[Done]) {
    for done in done {
        let before = number(done, "batches_before");
        // Both workers have the same number of batches in each pass.
        let share = LINES / BATCH / 2 * job.epochs;
        assert!(before > 0 && before < share, "{done:?}");
        assert_eq!(number(done, "examples"), (share - before) * BATCH, "{done:?}");
        assert!(
            done.err.contains(&format!("goes on after the first {before} batches of its share")),
            "{done:?}"
        );
    }
}

#[test]
fn a_deterministic_job_that_was_killed_whole_has_the_same_bits() {
    compare_with_undisturbed("--deterministic --worker-timeout 50", EPOCHS / 2);
}

/// A batch pushes to three tables. A cut between them would give other bits.
#[test]
fn a_deterministic_job_of_several_tables_that_was_killed_whole_has_the_same_bits() {
    let flags = "--deterministic --worker-timeout 50 --model deepfm --factors 2 --hidden 4,2";
    compare_with_undisturbed(flags, EPOCHS / 5);
}

/// The chief keeps its pairs and the number of its iterations on the servers, so they are in each checkpoint. A job
/// that began anew would have made no iteration before.
#[test]
fn an_lbfgs_job_that_was_killed_whole_goes_on_with_its_pairs() {
    let flags = "--optimizer lbfgs --max-iter 1000 --tolerance 1e-10 --l2 1e-3 --pass-timeout 60";
    let job = || Job { batch: None, ..Job::new(flags) };
    let [undisturbed, disturbed] = [job(), job()];
    let all = undisturbed.start().end();
    let done = killed(&disturbed, 1);
    let objective = |done: &[Done]| done[0].json()["objective"].as_f64().unwrap();
    let (want, got) = (objective(&all), objective(&done));
    assert!((got - want).abs() <= 1e-6 * want, "{got} after a kill, {want} without: {done:?}");
    assert!(number(&done[0], "resumed_at") > 0, "{done:?}");
}

/// Kills a job twice, and checks that its model has the bits of a job that was not killed.
fn compare_with_undisturbed(flags: &'static str, epochs: u64) {
    let [undisturbed, disturbed] = [0, 1].map(|_| Job { epochs, ..Job::new(flags) });
    undisturbed.start().end();
    let done = killed(&disturbed, 2);
    check_shares(&disturbed, &done);
    // All workers have made the same number of steps.
    assert_eq!(number(&done[0], "batches_before"), number(&done[1], "batches_before"));
    let rows = disturbed.rows();
    assert!(!rows.is_empty() && rows == undisturbed.rows(), "the models differ");
}

#[test]
fn asynchronous_fixed_shares_go_on_where_the_checkpoint_ends() {
    let job = Job::new("--tasks off --sync asp");
    let done = killed(&job, 1);
    check_shares(&job, &done);
}

#[test]
fn tasks_are_trained_once_a_pass_in_a_job_that_was_killed_whole() {
    let job = Job::new("--tasks on");
    let started = job.start();
    job.until_saved(0);
    started.kill();
    let mut again = job.start();
    let examples: u64 = again.end().iter().map(|done| number(done, "examples")).sum();
    let scheduler = job.ps_hosts.split(',').min().unwrap();
    let status = run(&format!("status --ps-hosts {scheduler} --json")).json()["job"].clone();
    assert_eq!(
        (&status["tasks_done"], &status["examples"]),
        (&status["tasks"], &(EPOCHS * LINES).into()),
        "{status}"
    );
    assert!(examples < EPOCHS * LINES, "trained {examples} after the checkpoint");
}

/// Every process is killed while files of a checkpoint are written, each time a bit later than before. Whatever the
/// kill leaves, the newest valid checkpoint is whole, and the job goes on from it.
#[test]
fn a_kill_in_the_middle_of_a_save_leaves_a_whole_checkpoint() {
    let job = Job { epochs: 6 * EPOCHS, ..Job::new("--tasks on") };
    let (mut newest, mut unfinished) = (0, 0);
    for kill in 0..6 {
        let started = job.start();
        let number = job.until_saved(newest);
        job.until_a_save_is_in_progress();
        std::thread::sleep(Duration::from_millis(3 * kill));
        started.kill();
        unfinished += u64::from(job.newest_folder() > job.until_saved(0));
        newest = job.until_saved(number - 1);
        CheckpointDir::open(&job.checkpoints()).unwrap().verify(newest).unwrap();
    }
    assert!(unfinished > 0, "no kill came before a save had ended");
}

/// A ps without a data folder restored the same checkpoint a second time, beside one that had gone on from it. Workers
/// that were started afterwards trained rows of different times.
#[test]
fn a_ps_that_restores_its_checkpoint_again_beside_one_that_went_on_ends_the_job() {
    let job = Job::new("--tasks off --sync asp");
    let started = job.start();
    let number = job.until_saved(0);
    started.kill();
    let mut started = job.start_with(3600);
    let addrs: Vec<&str> = job.ps_hosts.split(',').collect();
    job.until_trained(&addrs);
    started.servers.remove(1).kill();
    let second = job.server(1);
    started.servers.push(second);
    for worker in started.workers.drain(..) {
        let done = worker.wait();
        assert!(done.code == Some(3) && done.err.contains(addrs[1]), "{done:?}");
    }
    let again = job.worker(1, 3600).wait();
    assert!(again.code == Some(3) && again.err.contains("are gone"), "{again:?}");
    assert!(again.err.contains(&format!("{} went on", addrs[0])), "{again:?}");
    started.servers.into_iter().for_each(Served::kill);
    assert_eq!(job.until_saved(0), number, "nobody has saved a checkpoint meanwhile");
    // What the message says helps.
    let done = job.start().end();
    check_shares(&job, &done);
}

/// The address of the scheduler was compared with that of the job before. So a job whose first server was lost could
/// not go on from its checkpoint.
#[test]
fn a_job_with_tasks_goes_on_at_other_addresses() {
    let mut job = Job::new("--tasks on");
    let started = job.start();
    job.until_saved(0);
    started.kill();
    job.ps_hosts = format!("{},{}", free_addr(), free_addr());
    let mut again = job.start();
    let examples: u64 = again.end().iter().map(|done| number(done, "examples")).sum();
    assert!(examples < EPOCHS * LINES, "trained {examples} after the checkpoint");
}

/// A server that was started again on a restored folder did not know that its rows came from a checkpoint: its workers
/// trained their shares from the first batch on.
#[test]
fn fixed_shares_go_on_from_restored_folders_that_were_served_before() {
    let job = Job::new("--tasks off --sync asp");
    let started = job.start();
    job.until_saved(0);
    started.kill();
    let (folders, dir) = (job.folder.path().join("servers"), job.checkpoints());
    let (folders, dir) = (folders.display(), dir.display());
    let restored = run(&format!("checkpoint restore {dir} --data-dir {folders} --servers 2"));
    assert_eq!(restored.code, Some(0), "{restored:?}");
    let hosts = job.hosts();
    let server = |index: usize, threads: usize| {
        let folder = format!("--data-dir {folders}/server-{index} --threads {threads}");
        Served::start(gannet(&format!("train --job-name ps --task-index {index} {hosts} {folder}")))
    };
    [0, 1].into_iter().for_each(|index| server(index, 2).kill());
    let _servers = [server(0, 1), server(1, 3)];
    let workers = [0, 1].map(|index| job.worker(index, 1));
    check_shares(&job, &workers.map(Process::wait));
}

/// The last checkpoint of a job was saved before the job was finished: restored, it was a job without anything to do.
#[test]
fn a_finished_job_is_finished_after_a_restore_too() {
    let job = Job { epochs: 2, ..Job::new("--tasks on") };
    job.start().end();
    let servers = [0, 1].map(|index| job.server(index));
    let done = job.worker(0, 60).wait();
    assert!(done.code == Some(2) && done.err.contains("is finished"), "{done:?}");
    drop(servers);
}

/// No job could train imported rows: no registry of runs knew them.
#[test]
fn a_job_trains_imported_rows() {
    let first = Job { epochs: 1, ..Job::new("--tasks on") };
    first.start().end();
    let (dir, rows) = (first.checkpoints(), first.folder.path().join("rows.npz"));
    let (dir, rows) = (dir.display(), rows.display());
    let exported = run(&format!("checkpoint export {dir} --table default.lr --format npz --state {rows}"));
    assert_eq!(exported.code, Some(0), "{exported:?}");
    let job = Job { epochs: 1, ..Job::new("--tasks on") };
    let imported = run(&format!(
        "checkpoint import {rows} --format npz --table default.lr --run default --optimizer ftrl --dim 1 --state {}",
        job.checkpoints().display()
    ));
    assert_eq!(imported.code, Some(0), "{imported:?}");
    let examples: u64 = job.start().end().iter().map(|done| number(done, "examples")).sum();
    assert_eq!(examples, LINES);
    // The weights are those of two passes, not of one.
    assert!(job.rows() != first.rows() && job.rows().len() >= first.rows().len());
}
