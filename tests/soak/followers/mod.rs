//! Followers of a training whose processes are killed, as seeds decide: `gannet serve --follow`, and one that this one
//! feeds. All the time requests go to both, and each answer is checked.
//!
//! An answer names a position. It has each push as a whole or not at all, and as many pushes as the position says. At
//! one position all answers have the same bytes. Later positions of a history have at least as much. The age is true:
//! an answer has all that was acknowledged before its rows were on the servers, and while servers are away the age
//! grows with the clock. When all is trained, the answers are those of the model that was saved.
//!
//! `GANNET_SOAK_ROUNDS` and `GANNET_SOAK_FROM` are those of the other rounds.
//! `GANNET_SOAK_SEED=7 cargo test --test soak followers -- --nocapture` runs one round again, as far as timing allows.

mod asking;
mod data;
mod deal;
mod faults;
mod http;
mod job;
mod pusher;
mod state;
mod tables;

use crate::harness::ok;
use crate::number;
use deal::{Dealer, Dealt};
use faults::Round;
use job::{Job, until};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// What rounds have shown.
#[derive(Default, Debug)]
struct Shown {
    rounds: u64,
    dealt: Dealt,
    answers: u64,
    positions: u64,
    /// Positions that both followers have answered.
    by_both: u64,
    histories: u64,
    /// Answers that were held against the log of pushes, and readings of ages.
    dated: u64,
    readings: u64,
    /// The longest time after faults until followers are new again.
    longest: Duration,
}

impl Job {
    /// Asks until an answer has all that was trained and pushed, and the bits of `gannet predict`.
    fn has_all(&self, which: usize) {
        let question = data::question();
        let file = self.folder.path().join("question.svm");
        std::fs::write(&file, &question).unwrap();
        let model = ok(&format!("predict {} --model {}", file.display(), self.model().display())).out;
        let trained = data::trained();
        // The last pushes may have come when the model was saved.
        let of_groups = trained.len() * 6;
        let start = |text: &str| text.lines().take(of_groups).map(str::to_owned).collect::<Vec<_>>();
        let mut client = http::Client::new(&self.state.followers[which].addr);
        until("the trained model", || {
            let answer = client.predict(&question).unwrap();
            let counts = self.state.take(which, &answer.version, &answer.text).unwrap();
            let lives = self.state.lives.lock().unwrap();
            let (number, life) = (lives.len() - 1, lives.last().unwrap());
            let pushed = life.acked.last().map_or(0, |(_, number)| *number);
            let has_all = counts.groups == trained && counts.lives[number].second == pushed;
            (has_all && start(&answer.text) == start(&model)).then_some(())
        });
    }
}

/// Runs one round.
fn run(round: &Round, shown: &mut Shown) {
    let mut job = Job::start(round, data::training());
    let (state, question) = (job.state.clone(), data::question());
    std::thread::scope(|scope| {
        let passed = catch_unwind(AssertUnwindSafe(|| {
            let mut dealer = Dealer::new(&mut job, true);
            (0..2).for_each(|which| dealer.job.start_follower(which));
            for which in 0..2 {
                scope.spawn({
                    let (state, question) = (&state, &question);
                    move || {
                        asking::ask(state, which, question, |answer, before, after| {
                            asking::check_counts(state, which, answer, before, after)
                        });
                    }
                });
                scope.spawn({
                    let state = &state;
                    move || asking::watch(state, which)
                });
            }
            let dealt = catch_unwind(AssertUnwindSafe(|| {
                round.blows.iter().for_each(|blow| dealer.deal(blow));
                dealer.finish();
            }));
            dealer.dealt.iter().for_each(|(what, times)| *shown.dealt.entry(what).or_default() += times);
            shown.longest = shown.longest.max(dealer.longest);
            dealt
        }));
        state.stop.store(true, SeqCst);
        passed.and_then(|dealt| dealt).unwrap_or_else(|why| std::panic::resume_unwind(why));
    });
    state.check();
    let seen = state.seen();
    shown.rounds += 1;
    shown.positions += seen.positions;
    shown.by_both += seen.by_both;
    shown.histories += seen.histories;
    shown.answers += state.answers.load(SeqCst);
    shown.dated += state.dated.load(SeqCst);
    shown.readings += state.readings.load(SeqCst);
}

/// The seeds of the rounds to run.
fn seeds() -> std::ops::Range<u64> {
    let (seed, from) = (number("GANNET_SOAK_SEED", 0), number("GANNET_SOAK_FROM", 1));
    if seed > 0 { seed..seed + 1 } else { from..from + number("GANNET_SOAK_ROUNDS", 3) }
}

/// Runs a round of each seed. Names those that fail.
fn rounds(draw: fn(u64) -> Round, mut run: impl FnMut(&Round) -> String) {
    let mut failed = Vec::new();
    for seed in seeds() {
        let (round, start) = (draw(seed), Instant::now());
        println!("followers seed {seed} {round:?}");
        let passed = catch_unwind(AssertUnwindSafe(|| run(&round)));
        let seconds = start.elapsed().as_secs_f64();
        match passed {
            Ok(shown) => println!("  {seconds:.1} s, so far {shown}"),
            Err(why) => {
                let why = why.downcast_ref::<String>().map_or("see above", |why| why);
                println!("  {seconds:.1} s, FAILED: {why}");
                failed.push(format!("GANNET_SOAK_SEED={seed}: {why}"));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn followers_answer_the_model_at_the_position_that_they_name() {
    let mut all = Shown::default();
    rounds(Round::draw, |round| {
        run(round, &mut all);
        format!("{all:?}")
    });
}

#[test]
fn followers_have_a_batch_in_all_tables_or_in_none() {
    let models = tables::Models::train();
    let (mut all, mut dealt) = ((0, 0), Dealt::new());
    rounds(Round::draw_of_tables, |round| {
        let (answers, models) = tables::run(round, &models, &mut dealt);
        all = (all.0 + answers, all.1 + models);
        format!("{} answers of {} models, {dealt:?}", all.0, all.1)
    });
}
