//! Followers of a model with several tables. One worker trains it deterministically, so the servers have the model of
//! the first batches, bit for bit. Each of these models was trained beforehand: an answer is that of one of them, or it
//! has a batch in some of the tables only. The worker is stopped every moment, also in the middle of a batch.

use super::asking;
use super::data::Training;
use super::deal::{Dealer, Dealt};
use super::faults::Round;
use super::http::{Answer, Client};
use super::job::{Job, until};
use super::state::State;
use crate::harness::{Served, gannet, ok};
use gannet::table::mix;
use rustix::process::Signal;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

const BATCHES: u64 = 120;
const BATCH: u64 = 8;
const FLAGS: &str =
    "--model deepfm --factors 2 --hidden 3 --deterministic --normalize off --intercept-start zero --batch 8";
/// How long the worker runs, and how long it stands then.
const RUNS: Duration = Duration::from_millis(1);
const STANDS: Duration = Duration::from_millis(60);

/// The answers after each number of batches.
pub struct Models {
    question: String,
    batches: HashMap<String, u64>,
}

fn records(count: u64) -> String {
    (0..count).fold(String::new(), |mut text, record| {
        let [label, one, other] = [0, 1, 2].map(|salt| mix(record * 3 + salt));
        writeln!(text, "{} {}:1 {}:1", label % 2, one % 40, 100 + other % 40).unwrap();
        text
    })
}

/// What the model after these batches predicts. At this rate one that has learned nothing is left as it began.
fn predicted(folder: &Path, batches: u64, question: &Path, server: &str) -> String {
    let data = folder.join(format!("{batches}.svm"));
    std::fs::write(&data, records(batches.max(1) * BATCH)).unwrap();
    let rate = if batches == 0 { "--alpha 1e-30" } else { "" };
    let model = folder.join(format!("{batches}.model")).display().to_string();
    // A training without servers does the same sums in another order.
    let job =
        format!("--run of-{batches} --ps-hosts {server} --worker-hosts a:1 --job-name worker --task-index 0");
    ok(&format!("train {} --out {model} {FLAGS} {rate} {job}", data.display()));
    ok(&format!("predict {} --model {model}", question.display())).out
}

impl Models {
    pub fn train() -> Models {
        let folder = tempfile::tempdir().unwrap();
        let (question, server) =
            (records(60), Served::start(gannet("server --listen 127.0.0.1:0 --threads 2")));
        let file = folder.path().join("question.svm");
        std::fs::write(&file, &question).unwrap();
        let batches = Mutex::new(HashMap::new());
        std::thread::scope(|scope| {
            for part in 0..2 {
                let (folder, file, batches, server) = (folder.path(), &file, &batches, &server.addr);
                scope.spawn(move || {
                    for number in (0..=BATCHES).filter(|number| number % 2 == part) {
                        let answer = predicted(folder, number, file, server);
                        batches.lock().unwrap().insert(answer, number);
                    }
                });
            }
        });
        let batches = batches.into_inner().unwrap();
        assert_eq!(batches.len() as u64, BATCHES + 1, "models that predict the same");
        Models { question, batches }
    }

    /// The number of batches whose model answers so. Later positions of a history have more of them.
    fn check(&self, seen: &Seen, Answer { version, text, .. }: &Answer) -> Result<(), String> {
        let (commands, history) = version.split_once('-').ok_or("no version")?;
        let batches = self.batches.get(text).copied();
        let batches = batches.ok_or_else(|| {
            format!("{version}: the model of no number of batches: {:.60}", text.replace('\n', " "))
        })?;
        let place = (history.to_owned(), commands.parse::<u64>().map_err(|error| error.to_string())?);
        let mut seen = seen.lock().unwrap();
        let is_of_history = |of: &(&(String, u64), &u64)| of.0.0 == place.0;
        let before = seen.range(..=&place).next_back().filter(is_of_history);
        let after = seen.range(&place..).next().filter(is_of_history);
        let fits = before.is_none_or(|of| *of.1 <= batches) && after.is_none_or(|of| *of.1 >= batches);
        if !fits {
            return Err(format!("{version} has {batches} batches, beside {before:?} and {after:?}"));
        }
        seen.insert(place, batches);
        Ok(())
    }
}

/// By history and commands, how many batches were there.
type Seen = Mutex<BTreeMap<(String, u64), u64>>;

/// Lets the worker run for a moment only, again and again.
fn drip(state: &State) {
    while !state.stop.load(SeqCst) {
        for (signal, time) in [(Signal::CONT, RUNS), (Signal::STOP, STANDS)] {
            if let Some(worker) = *state.dripped.lock().unwrap() {
                let _ = rustix::process::kill_process(worker, signal);
            }
            std::thread::sleep(time);
        }
    }
}

/// Runs one round. Returns the answers, and how many numbers of batches they had.
pub fn run(round: &Round, models: &Models, dealt: &mut Dealt) -> (u64, usize) {
    let training = Training { records: records(BATCHES * BATCH), workers: 1, flags: FLAGS.to_owned() };
    let mut job = Job::start(round, training);
    let (state, seen) = (job.state.clone(), Seen::default());
    std::thread::scope(|scope| {
        let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            scope.spawn(|| drip(&state));
            let mut dealer = Dealer::new(&mut job, false);
            (0..2).for_each(|which| dealer.job.start_follower(which));
            for which in 0..2 {
                let (state, seen) = (&state, &seen);
                scope.spawn(move || asking::watch(state, which));
                scope.spawn(move || {
                    asking::ask(state, which, &models.question, |answer, _, _| {
                        state.answers.fetch_add(1, SeqCst);
                        models.check(seen, answer)
                    });
                });
            }
            for blow in &round.blows {
                std::thread::sleep(Duration::from_millis(700));
                dealer.deal(blow);
            }
            dealer.end_of_training();
            dealer.dealt.iter().for_each(|(what, times)| *dealt.entry(what).or_default() += times);
            for follower in &state.followers {
                let mut client = Client::new(&follower.addr);
                until("the trained model", || {
                    let answer = client.predict(&models.question).unwrap();
                    (models.batches.get(&answer.text) == Some(&BATCHES)).then_some(())
                });
            }
        }));
        state.stop.store(true, SeqCst);
        passed.unwrap_or_else(|why| std::panic::resume_unwind(why));
    });
    state.check();
    let mut numbers: Vec<u64> = seen.into_inner().unwrap().into_values().collect();
    numbers.sort_unstable();
    numbers.dedup();
    (state.answers.load(SeqCst), numbers.len())
}
