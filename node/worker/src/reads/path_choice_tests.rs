//! Choices against costs that the tests make up: the cheapest number of quarters wins, also when the costs change.

use crate::cache::settings::Staleness;
use crate::limits::SURVEY_ABANDONED_AFTER;
use crate::reads::path_choice::{ALL_QUARTERS, ChoiceOf, PathChoices, PathKind};
use gannet_transport::Prng;
use proptest::prelude::*;
use std::time::Duration;

/// A program that pulls. Each pull takes what `cost` says for a row, by the share of its chunks that are read, with
/// noise. Between two pulls the program does other things.
struct Program {
    choices: PathChoices,
    now: Duration,
    prng: Prng,
    spent: Duration,
}

impl Program {
    fn new(seed: u64) -> Program {
        let (mut choices, now, spent) = (PathChoices::default(), Duration::from_secs(1), Duration::ZERO);
        for table in [0, 1, 3] {
            choices.begin(table, 0);
        }
        Program { choices, now, prng: Prng::new(seed), spent }
    }

    /// Pulls of 8 chunks of 1,000 rows. `cost`: nanoseconds a row for so many read chunks.
    fn pull(&mut self, of: ChoiceOf, cost: impl Fn(f64) -> f64) {
        self.choices.enter(self.now);
        self.choices.begin_pull(of, 8_000, self.now);
        let read = (0..8).filter(|_| self.choices.reads_next(of)).count();
        assert_eq!(read, 2 * usize::from(self.choices.quarters(of)), "8 chunks have whole quarters");
        let noise = 0.99 + self.prng.below(2_000) as f64 / 1e5;
        let took = Duration::from_nanos((8_000.0 * cost(read as f64 / 8.0) * noise) as u64);
        self.now += took;
        self.spent += took;
        if self.choices.is_timed() {
            self.choices.leave(self.now);
        }
        // A pause, now and then a very long one.
        let pause = if self.prng.below(50) == 0 { 400_000_000 } else { self.prng.below(2_000_000) };
        self.now += Duration::from_nanos(pause);
    }
}

const KEPT: ChoiceOf = ChoiceOf { table: 1, kind: PathKind::ReadKept };

const OTHER: ChoiceOf = ChoiceOf { table: 0, kind: PathKind::Read };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The cheapest share is found wherever it is, and found again after it has moved.
    #[test]
    fn the_cheapest_share_wins(seed: u64, best in 0..=ALL_QUARTERS, then in 0..=ALL_QUARTERS, kept: bool) {
        let mut program = Program::new(seed);
        let of = ChoiceOf::reads(3, kept);
        for best in [best, then] {
            let cost = |read: f64| 50.0 * (1.0 + (read - f64::from(best) / 4.0).abs());
            for _ in 0..60_000 {
                program.pull(of, cost);
            }
            prop_assert!(program.choices.is_settled(of));
            // During a survey other numbers are tried.
            let found = (0..2_000).filter(|_| {
                program.pull(of, cost);
                program.choices.quarters(of) == best
            });
            prop_assert!(found.count() > 1_500, "{} quarters are best", best);
        }
    }
}

#[test]
fn surveys_cost_little() {
    let mut program = Program::new(1);
    let cost = |read: f64| 50.0 * (1.0 + 2.0 * read);
    for _ in 0..100_000 {
        program.pull(KEPT, cost);
    }
    let least = Duration::from_nanos(100_000 * 8_000 * 50);
    assert!(program.spent < least * 103 / 100, "{:?} instead of {least:?}", program.spent);
}

#[test]
fn one_choice_is_measured_at_a_time_and_an_abandoned_one_gives_way() {
    let mut program = Program::new(2);
    program.pull(KEPT, |_| 50.0);
    for _ in 0..1_000 {
        program.pull(OTHER, |_| 50.0);
        program.pull(KEPT, |_| 50.0);
        // The first survey is that of the table that was pulled first.
        assert!(!program.choices.is_settled(OTHER) || program.choices.is_settled(KEPT));
    }
    assert!(program.choices.is_settled(OTHER) && program.choices.is_settled(KEPT));

    let mut program = Program::new(3);
    program.pull(KEPT, |_| 50.0);
    program.now += SURVEY_ABANDONED_AFTER;
    for _ in 0..1_000 {
        program.pull(OTHER, |_| 50.0);
    }
    assert!(program.choices.is_settled(OTHER) && !program.choices.is_settled(KEPT));
}

#[test]
fn costs_that_do_not_differ_change_nothing() {
    for (of, first) in [(KEPT, 0), (OTHER, ALL_QUARTERS)] {
        let mut program = Program::new(4);
        let mut elsewhere = 0;
        for _ in 0..50_000 {
            program.pull(of, |_| 50.0);
            elsewhere += u32::from(program.choices.quarters(of) != first);
        }
        assert!(program.choices.is_settled(of) && elsewhere < 3_000, "{elsewhere} of 50,000 pulls");
    }
}

/// A program whose pulls go through a cache, or past it. A cache that was empty needs `filling` pulls until it saves
/// anything.
struct Cached {
    program: Program,
    filled: u32,
}

impl Cached {
    fn new(seed: u64, staleness: Staleness) -> Cached {
        let mut program = Program::new(seed);
        program.choices.begin_cache(3, staleness);
        Cached { program, filled: 0 }
    }

    /// A pull, which costs so many nanoseconds a row past the cache, through it while it fills, and then. Returns
    /// whether it went through.
    fn pull(&mut self, costs: [f64; 3], filling: u32) -> bool {
        let of = ChoiceOf::cache(3);
        let (choices, now) = (&mut self.program.choices, self.program.now);
        choices.enter(now);
        choices.begin_pull(of, 8_000, now);
        let through = choices.quarters(of) > 0;
        assert!(!through || choices.quarters(of) == ALL_QUARTERS);
        self.filled = if through { self.filled + 1 } else { 0 };
        let cost = costs[usize::from(through) + usize::from(self.filled > filling)];
        let took = Duration::from_nanos((8_000.0 * cost) as u64);
        (self.program.now, self.program.spent) = (now + took, self.program.spent + took);
        if self.program.choices.is_timed() {
            self.program.choices.leave(self.program.now);
        }
        through
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The cache is used if it saves time once it is full, although it costs time before. It is left where it does not,
    /// and tried again after the costs have changed.
    #[test]
    fn a_cache_is_used_where_it_saves_time(seed: u64, pays: bool, pulls in 0..100u64) {
        let mut cached = Cached::new(seed, Staleness::Pulls(pulls));
        for pays in [pays, !pays, pays] {
            let costs = [50.0, 200.0, if pays { 25.0 } else { 100.0 }];
            let through = |cached: &mut Cached| cached.pull(costs, pulls as u32);
            let settled = (0..400_000).filter(|_| through(&mut cached)).count();
            prop_assert!(settled > 0 && settled < 400_000, "a survey tries both");
            let often = (0..20_000).filter(|_| through(&mut cached)).count();
            prop_assert!(if pays { often > 18_000 } else { often < 2_000 }, "{often} of 20,000 pulls");
        }
    }
}

/// A trial can also end because another choice takes over. Nothing but the present choice then tells so.
#[test]
fn a_trial_of_a_cache_that_is_abandoned_ends_without_a_word() {
    let mut cached = Cached::new(1, Staleness::Pulls(8));
    let of = ChoiceOf::cache(3);
    let mut pull = || cached.pull([50.0, 200.0, 100.0], 8) && cached.program.choices.is_settled(of);
    assert!((0..100_000).any(|_| pull()), "the choice is to go past the cache, and a survey tries it again");
    assert_eq!(cached.program.choices.quarters(of), ALL_QUARTERS);
    cached.program.now += SURVEY_ABANDONED_AFTER;
    cached.program.pull(KEPT, |_| 50.0);
    assert_eq!(cached.program.choices.quarters(of), 0);
}

#[test]
fn surveys_of_a_cache_cost_little() {
    for (costs, least) in [([50.0, 150.0, 100.0], 50), ([50.0, 60.0, 25.0], 25)] {
        let mut cached = Cached::new(1, Staleness::Pulls(8));
        let through = (0..100_000).filter(|_| cached.pull(costs, 8)).count();
        assert!(through > 0 && through < 100_000, "a survey tries both");
        let (spent, least) = (cached.program.spent, Duration::from_nanos(100_000 * 8_000 * least));
        assert!(spent < least * 106 / 100, "{spent:?} instead of {least:?}");
    }
}
