//! Chaos: jobs whose workers are killed, restarted or put to sleep, and whose servers are killed, as seeds
//! decide. Every process must end by itself. Every record must be trained once a pass. The loss must be that of
//! an undisturbed job.
//!
//! Each mode has a few rounds; `GANNET_SOAK_ROUNDS=20` runs more (`make soak`), with seeds from `GANNET_SOAK_FROM` (1)
//! on. A round that fails names its mode and seed. `GANNET_SOAK_MODE=ssp:8 GANNET_SOAK_SEED=7 cargo test --test soak
//! every_mode -- --nocapture` repeats it, as far as timing allows. Rounds of followers have their own module.

mod chaos;
mod followers;
#[path = "../harness/mod.rs"]
mod harness;

use chaos::{Counting, Job, PASSES, Round, SUMS, batches_by_key, counts_in_rows, records_by_key};
use harness::clicks;
use std::collections::HashMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Instant;

const LINES: u64 = 60_000;
/// The largest relative difference between a job's loss and that of an undisturbed job. Undisturbed jobs differ by up
/// to 0.2% from run to run.
const LOSS: f64 = 0.01;

struct Mode {
    name: &'static str,
    /// The jobs of a round. The first one trains a model.
    jobs: &'static [Kind],
}

/// What a job trains, and what its rows count.
struct Kind {
    flags: &'static str,
    counting: Option<Counting>,
}

const DAMPED: &[Kind] = &[Kind { flags: "--damping on", counting: Some(Counting::Pushes) }];
// Workers that keep step make one push together, so the rows of another job count.
const TOGETHER: &[Kind] =
    &[Kind { flags: "", counting: None }, Kind { flags: SUMS, counting: Some(Counting::Records) }];

const MODES: [Mode; 3] = [
    Mode { name: "asp", jobs: DAMPED },
    Mode { name: "ssp:8", jobs: DAMPED },
    Mode { name: "bsp", jobs: TOGETHER },
];

/// The result of a mode's rounds.
#[derive(Default)]
struct ModeResults {
    rounds: u32,
    jobs: u32,
    /// Jobs whose processes all ended as they should, and how many of those had exact counts.
    ended: u32,
    exact: u32,
    /// The largest relative difference between a loss and that of an undisturbed job.
    worst: f64,
    /// Workers killed, replacements started, workers put to sleep, servers killed.
    dealt: [u32; 4],
    failed: Vec<String>,
}

/// The data.
struct Soak {
    _folder: tempfile::TempDir,
    train: PathBuf,
    text: String,
    /// The data with all labels positive.
    positive: PathBuf,
    test: PathBuf,
}

impl Soak {
    fn new() -> Soak {
        let folder = tempfile::tempdir().unwrap();
        let train = clicks(&folder.path().join("train.svm"), LINES, 1);
        let test = clicks(&folder.path().join("test.svm"), 10_000, 2);
        let positive = folder.path().join("positive.svm");
        let text = std::fs::read_to_string(&train).unwrap();
        std::fs::write(
            &positive,
            text.replace("\n0", "\n1").replacen("0 ", "1 ", usize::from(text.starts_with('0'))),
        )
        .unwrap();
        Soak { train, text, positive, test, _folder: folder }
    }

    /// Runs one job through a round. Returns the losses that its chiefs report.
    fn job(&self, mode: &Mode, kind: &Kind, round: &Round, results: &mut ModeResults) -> Vec<f64> {
        results.jobs += 1;
        let data =
            if matches!(kind.counting, Some(Counting::Records)) { &self.positive } else { &self.train };
        let flags = format!("--sync {} {} --test {}", mode.name, kind.flags, self.test.display());
        let mut job = Job::start(round, data, &flags);
        job.suffer();
        let ended = job.end();
        results.dealt.iter_mut().zip(job.dealt).for_each(|(all, dealt)| *all += dealt);
        let mut losses = Vec::new();
        for worker in &ended {
            match worker.done.code {
                Some(0) => losses.extend(worker.done.json()["test_logloss"].as_f64()),
                // It slept, and the scheduler had given it up when it woke.
                Some(3) if worker.slept && worker.done.err.contains("start it again") => {}
                _ => panic!("{worker:?}"),
            }
        }
        assert!(!losses.is_empty(), "nobody has tested the model: {ended:?}");
        assert!(round.deeds.is_empty() || job.dealt[0] > 0, "all was over before a worker was killed");
        results.ended += 1;

        let said = job.reported();
        assert_eq!(said["tasks_done"], said["tasks"], "{said}");
        assert_eq!(said["examples"], u64::from(PASSES) * LINES, "{said}");
        assert_eq!(said["failed"], serde_json::Value::Null);
        if let Some(counting) = kind.counting {
            self.count(round, &job, counting);
        }
        job.stop();
        results.exact += 1;
        losses
    }

    /// Counts once more, from the rows, which are independent of the splits.
    fn count(&self, round: &Round, job: &Job<'_>, counting: Counting) {
        let data = match counting {
            Counting::Pushes => batches_by_key(&self.text, round),
            Counting::Records => records_by_key(&self.text),
        };
        let rows = counts_in_rows(job.addrs(), counting);
        let wrong: Vec<_> = data.iter().filter(|(key, count)| rows.get(key) != Some(count)).collect();
        let shown = wrong.iter().take(3).map(|(key, count)| (key, count, rows.get(key)));
        let shown: Vec<_> = shown.collect();
        assert!(wrong.is_empty(), "{} keys, as (key, of the data, of the row): {shown:?}", wrong.len());
        assert_eq!(data.len(), rows.len(), "keys");
    }

    /// Runs one round. Returns the relative difference between its loss and that of an undisturbed job.
    fn round(
        &self,
        mode: &Mode,
        round: &Round,
        alone: &mut HashMap<u32, f64>,
        results: &mut ModeResults,
    ) -> f64 {
        let left = || {
            let undisturbed = Round::undisturbed(round.workers);
            self.job(mode, &mode.jobs[0], &undisturbed, &mut ModeResults::default())[0]
        };
        let alone = *alone.entry(round.workers).or_insert_with(left);
        let mut furthest = 1.0f64;
        for (kind, learns) in mode.jobs.iter().zip([true, false]) {
            let losses = self.job(mode, kind, round, results);
            for loss in losses.into_iter().filter(|_| learns) {
                if (loss / alone - 1.0).abs() >= (furthest - 1.0).abs() {
                    furthest = loss / alone;
                }
            }
        }
        if (furthest - 1.0).abs() > (results.worst - 1.0).abs() {
            results.worst = furthest;
        }
        assert!((furthest - 1.0).abs() < LOSS, "the loss is {furthest} of {alone}");
        furthest
    }

    fn mode(&self, mode: &Mode, seeds: Range<u64>) -> ModeResults {
        let mut results = ModeResults { worst: 1.0, ..ModeResults::default() };
        // Losses of undisturbed jobs, by their number of workers.
        let mut alone = HashMap::new();
        for seed in seeds {
            results.rounds += 1;
            let (round, start) = (Round::draw(seed, mode.name), Instant::now());
            let passed =
                catch_unwind(AssertUnwindSafe(|| self.round(mode, &round, &mut alone, &mut results)));
            let (name, seconds) = (mode.name, start.elapsed().as_secs_f64());
            match passed {
                Ok(ratio) => {
                    println!("{name} seed {seed} {round:?}\n  {seconds:.1} s, loss {ratio:.4} of alone")
                }
                Err(why) => {
                    let why = why.downcast_ref::<String>().map_or("see above", |why| why);
                    println!("{name} seed {seed} {round:?}\n  {seconds:.1} s, FAILED: {why}");
                    results.failed.push(format!("GANNET_SOAK_MODE={name} GANNET_SOAK_SEED={seed}: {why}"));
                }
            }
        }
        results
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number")))
}

#[test]
fn every_mode_trains_every_record_once_whoever_is_killed() {
    let seed = number("GANNET_SOAK_SEED", 0);
    let from = number("GANNET_SOAK_FROM", 1);
    let seeds = if seed > 0 { seed..seed + 1 } else { from..from + number("GANNET_SOAK_ROUNDS", 3) };
    let only = std::env::var("GANNET_SOAK_MODE").ok();
    let modes: Vec<&Mode> =
        MODES.iter().filter(|mode| only.as_deref().is_none_or(|name| name == mode.name)).collect();
    assert!(!modes.is_empty(), "GANNET_SOAK_MODE={only:?}: {:?}", MODES.map(|mode| mode.name));
    let soak = &Soak::new();
    // All at once: a round mostly waits until the scheduler gives up a worker.
    let all_results: Vec<ModeResults> = std::thread::scope(|scope| {
        let running: Vec<_> =
            modes.iter().map(|mode| scope.spawn(|| soak.mode(mode, seeds.clone()))).collect();
        running.into_iter().map(|mode| mode.join().unwrap()).collect()
    });
    println!("mode   rounds  jobs  ended  exact  worst loss  killed  started  asleep  servers killed");
    for (Mode { name, .. }, results) in modes.iter().zip(&all_results) {
        let ModeResults {
            rounds, jobs, ended, exact, worst, dealt: [killed, started, asleep, servers], ..
        } = results;
        println!(
            "{name:5}  {rounds:6}  {jobs:4}  {ended:5}  {exact:5}  {worst:10.4}  {killed:6}  {started:7}  {asleep:6}  {servers:14}"
        );
    }
    let failed: Vec<&String> = all_results.iter().flat_map(|results| &results.failed).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}
