//! Chaos: jobs whose workers are killed and started again or put to sleep, and whose servers are killed, as seeds have it. Every process
//! ends by itself, every record is trained once a pass, and the loss is that of a job which was left alone.
//!
//! A few rounds of each mode; `GANNET_SOAK_ROUNDS=20` for more (`make soak`), with seeds from `GANNET_SOAK_FROM` (1) on. A round that
//! fails names its mode and seed: `GANNET_SOAK_MODE=ssp:8 GANNET_SOAK_SEED=7 cargo test --test soak -- --nocapture` does it again, as
//! far as timing lets it.

mod chaos;
mod harness;

use chaos::{Job, PASSES, Round, batches_by_key, counts_in_rows};
use harness::clicks;
use std::collections::HashMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Instant;

const LINES: u64 = 60_000;
/// How far from the loss of a job that was left alone a loss may be, of that. Left alone it differs by up to 0.2% from run to run.
const LOSS: f64 = 0.01;

struct Mode {
    name: &'static str,
    flags: &'static str,
}

/// Damped, so that rows count their pushes.
const MODES: [Mode; 2] = [
    Mode { name: "asp", flags: "--sync asp --damping on" },
    Mode { name: "ssp:8", flags: "--sync ssp:8 --damping on" },
];

/// What came of a mode's rounds.
#[derive(Default)]
struct Tally {
    rounds: u32,
    ended: u32,
    exact: u32,
    /// The loss furthest from that of a job left alone, of that.
    worst: f64,
    /// Workers killed, workers started instead, workers put to sleep, servers killed.
    dealt: [u32; 4],
    failed: Vec<String>,
}

/// The data.
struct Soak {
    _folder: tempfile::TempDir,
    train: PathBuf,
    test: PathBuf,
    text: String,
}

impl Soak {
    fn new() -> Soak {
        let folder = tempfile::tempdir().unwrap();
        let train = clicks(&folder.path().join("train.svm"), LINES, 1);
        let test = clicks(&folder.path().join("test.svm"), 10_000, 2);
        let text = std::fs::read_to_string(&train).unwrap();
        Soak { train, test, text, _folder: folder }
    }

    /// Runs one job through a round; the loss of its model.
    fn job(&self, mode: &Mode, round: &Round, tally: &mut Tally) -> f64 {
        let flags = format!("{} --test {}", mode.flags, self.test.display());
        let mut job = Job::start(round, &self.train, &flags);
        job.suffer();
        let ended = job.end();
        tally.dealt.iter_mut().zip(job.dealt).for_each(|(all, dealt)| *all += dealt);
        let mut losses = Vec::new();
        for worker in &ended {
            match worker.done.code {
                Some(0) => losses.extend(worker.done.json()["test_logloss"].as_f64()),
                // It slept, and had been given up when it woke.
                Some(3) if worker.slept && worker.done.err.contains("start it again") => {}
                _ => panic!("{worker:?}"),
            }
        }
        assert!(round.deeds.is_empty() || job.dealt[0] > 0, "all was over before a worker was killed");
        tally.ended += 1;

        let said = job.reported();
        assert_eq!(said["tasks_done"], said["tasks"], "{said}");
        assert_eq!(said["examples"], u64::from(PASSES) * LINES, "{said}");
        assert_eq!(said["failed"], serde_json::Value::Null);
        // Counted once more, by the rows, which know nothing of tasks.
        let (data, rows) = (batches_by_key(&self.text, round), counts_in_rows(job.addrs()));
        let wrong: Vec<_> = data.iter().filter(|(key, batches)| rows.get(key) != Some(batches)).collect();
        let shown = wrong.iter().take(3).map(|(key, batches)| (key, batches, rows.get(key)));
        let shown: Vec<_> = shown.collect();
        assert!(wrong.is_empty(), "{} keys, as (key, batches, pushes): {shown:?}", wrong.len());
        assert_eq!(data.len(), rows.len(), "keys");
        job.stop();
        tally.exact += 1;
        *losses.first().expect("nobody has tested the model")
    }

    fn mode(&self, mode: &Mode, seeds: Range<u64>) -> Tally {
        let mut tally = Tally { worst: 1.0, ..Tally::default() };
        // Losses of jobs that are left alone, by their workers.
        let mut alone = HashMap::new();
        for seed in seeds {
            tally.rounds += 1;
            let (round, start) = (Round::draw(seed, mode.name), Instant::now());
            let workers = round.workers;
            let passed = catch_unwind(AssertUnwindSafe(|| {
                let left = || self.job(mode, &Round::undisturbed(workers), &mut Tally::default());
                let alone = *alone.entry(workers).or_insert_with(left);
                let loss = self.job(mode, &round, &mut tally);
                let ratio = loss / alone;
                if (ratio - 1.0).abs() > (tally.worst - 1.0).abs() {
                    tally.worst = ratio;
                }
                assert!((ratio - 1.0).abs() < LOSS, "loss {loss}, left alone {alone}");
                ratio
            }));
            let (name, seconds) = (mode.name, start.elapsed().as_secs_f64());
            match passed {
                Ok(ratio) => {
                    println!("{name} seed {seed} {round:?}\n  {seconds:.1} s, loss {ratio:.4} of alone")
                }
                Err(why) => {
                    let why = why.downcast_ref::<String>().map_or("see above", |why| why);
                    println!("{name} seed {seed} {round:?}\n  {seconds:.1} s, FAILED: {why}");
                    tally.failed.push(format!("GANNET_SOAK_MODE={name} GANNET_SOAK_SEED={seed}: {why}"));
                }
            }
        }
        tally
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
    let seeds = if seed > 0 { seed..seed + 1 } else { from..from + number("GANNET_SOAK_ROUNDS", 4) };
    let only = std::env::var("GANNET_SOAK_MODE").ok();
    let modes: Vec<&Mode> =
        MODES.iter().filter(|mode| only.as_deref().is_none_or(|name| name == mode.name)).collect();
    assert!(!modes.is_empty(), "GANNET_SOAK_MODE={only:?}: {:?}", MODES.map(|mode| mode.name));
    let soak = &Soak::new();
    // All at once: a round mostly waits until somebody is given up.
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let running: Vec<_> =
            modes.iter().map(|mode| scope.spawn(|| soak.mode(mode, seeds.clone()))).collect();
        running.into_iter().map(|mode| mode.join().unwrap()).collect()
    });
    println!("mode   rounds  ended  exact  worst loss  killed  started  asleep  servers killed");
    for (Mode { name, .. }, tally) in modes.iter().zip(&tallies) {
        let Tally { rounds, ended, exact, worst, dealt: [killed, started, asleep, servers], .. } = tally;
        println!(
            "{name:5}  {rounds:6}  {ended:5}  {exact:5}  {worst:10.4}  {killed:6}  {started:7}  {asleep:6}  {servers:14}"
        );
    }
    let failed: Vec<&String> = tallies.iter().flat_map(|tally| &tally.failed).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}
