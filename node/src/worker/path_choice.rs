//! Chooses how a worker gets the rows of a table: it reads them itself, it requests them, or it does both for parts of
//! one pull. Which costs less depends on the length of rows, on who else uses the server, and on whether the rows are
//! pushed back: the server's core then writes the lines that the worker reads. So the worker measures.
//!
//! Each table has one choice for pulls whose rows are pushed back, and one for other pulls. A choice is a number of
//! quarters: so many of four chunks are read, and the others are requested. From time to time a survey tries several
//! such numbers in turn and takes the cheapest. The cost of a trial is its active time for each pulled row: the time in
//! which requests were in flight, or rows were read. Pauses of the program do not count.
//!
//! Surveys of two choices are never at the same time: each would measure the other one's trials. The time between two
//! surveys is a multiple of the time that a survey takes. It grows as long as surveys agree.

use crate::limits::{
    SURVEY_ABANDONED_AFTER, SURVEY_REST_FACTOR_MAX, SURVEY_REST_FACTOR_MIN, TRIAL_PULLS, TRIAL_PULLS_MAX,
    TRIAL_SETTLING_PULLS, TRIAL_TIME,
};
use std::time::Duration;

/// All chunks of a pull.
pub(super) const ALL_QUARTERS: u8 = 4;
/// So often a survey tries each number of quarters. The median counts.
const ROUNDS: usize = 5;
/// Trials are noisy, also because other workers survey at the same time. So a survey changes the choice only for a
/// median cost below this share of the present one's, and if so many rounds agree that it is lower.
const BETTER: f64 = 0.95;
const ROUNDS_AGREE: usize = 4;

/// Which choice: of this table, for pulls whose rows are pushed back or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChoiceOf {
    pub(super) table: usize,
    pub(super) kept: bool,
}

/// The choices of a worker.
#[derive(Default)]
pub(super) struct PathChoices {
    /// By table: for pulls whose rows are not pushed back, and for those whose rows are.
    tables: Vec<[PathChoice; 2]>,
    survey: Option<Survey>,
    active: ActiveTime,
}

struct PathChoice {
    quarters: u8,
    /// Quarters of a chunk that are due to be read.
    due: u8,
    /// Whether a survey has ended.
    settled: bool,
    next_survey: Duration,
    /// The rest after a survey, in times of what the survey took.
    rest_factor: u32,
}

impl PathChoice {
    fn new(quarters: u8) -> PathChoice {
        let (due, settled, next_survey) = (0, false, Duration::ZERO);
        PathChoice { quarters, due, settled, next_survey, rest_factor: SURVEY_REST_FACTOR_MIN }
    }

    /// The numbers of quarters that the next survey tries: the present one first.
    fn arms(&self) -> Vec<u8> {
        let here = self.quarters;
        let around = [0, here.saturating_sub(1), here, (here + 1).min(ALL_QUARTERS), ALL_QUARTERS];
        let mut arms = if self.settled { around.to_vec() } else { vec![0, ALL_QUARTERS / 2, ALL_QUARTERS] };
        arms.dedup();
        let here = arms.iter().position(|&arm| arm == here);
        arms.rotate_left(here.unwrap_or(0));
        arms
    }
}

struct Survey {
    of: ChoiceOf,
    arms: Vec<u8>,
    began: Duration,
    latest_pull: Duration,
    /// Pulls of this trial, and rows and active time since its pulls count.
    pulls: u32,
    rows: u64,
    from: Duration,
    /// Nanoseconds a row of the trials so far. Each round tries all arms.
    costs: Vec<f64>,
}

impl Survey {
    fn quarters(&self) -> u8 {
        self.arms[self.costs.len() % self.arms.len()]
    }

    /// The costs of an arm, by round.
    fn costs(&self, arm: usize) -> impl Iterator<Item = f64> {
        self.costs.iter().skip(arm).step_by(self.arms.len()).copied()
    }

    /// The median cost of each arm.
    fn medians(&self) -> Vec<f64> {
        let median = |arm: usize| {
            let mut costs: Vec<f64> = self.costs(arm).collect();
            costs.sort_unstable_by(f64::total_cmp);
            costs[costs.len() / 2]
        };
        (0..self.arms.len()).map(median).collect()
    }

    /// The cheapest arm, or the first one, which is the present choice, if none is clearly cheaper.
    fn cheapest(&self) -> u8 {
        let medians = self.medians();
        let clearly = |&arm: &usize| {
            let rounds = self.costs(arm).zip(self.costs(0)).filter(|(cost, present)| cost < present).count();
            medians[arm] < BETTER * medians[0] && rounds >= ROUNDS_AGREE
        };
        let best = (1..self.arms.len()).filter(clearly).min_by(|&a, &b| medians[a].total_cmp(&medians[b]));
        self.arms[best.unwrap_or(0)]
    }
}

/// The time in which a worker did something, or waited for answers.
#[derive(Default)]
struct ActiveTime {
    total: Duration,
    since: Option<Duration>,
}

impl ActiveTime {
    fn at(&self, now: Duration) -> Duration {
        self.total + self.since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }
}

impl PathChoices {
    /// The rows of a table can be read. Until the worker has measured, it reads all chunks of pulls whose rows are not
    /// pushed back, and `kept` quarters of the others.
    pub(super) fn begin(&mut self, table: usize, kept: u8) {
        while self.tables.len() <= table {
            self.tables.push([PathChoice::new(ALL_QUARTERS), PathChoice::new(kept)]);
        }
    }

    fn choice(&mut self, of: ChoiceOf) -> &mut PathChoice {
        &mut self.tables[of.table][usize::from(of.kept)]
    }

    fn trial(&self, of: ChoiceOf) -> Option<&Survey> {
        self.survey.as_ref().filter(|survey| survey.of == of)
    }

    /// How many quarters of the chunks are read now.
    pub(super) fn quarters(&self, of: ChoiceOf) -> u8 {
        let known = self.tables.get(of.table).map(|choices| choices[usize::from(of.kept)].quarters);
        self.trial(of).map_or(known.unwrap_or(0), Survey::quarters)
    }

    /// Whether a survey has ended.
    pub(super) fn is_settled(&self, of: ChoiceOf) -> bool {
        self.tables.get(of.table).is_some_and(|choices| choices[usize::from(of.kept)].settled)
    }

    /// Whether the next chunk is read. Unlike [`reads_next`](Self::reads_next) it stays the next chunk.
    pub(super) fn would_read(&self, of: ChoiceOf) -> bool {
        let due = self.tables.get(of.table).map(|choices| choices[usize::from(of.kept)].due);
        due.is_some_and(|due| due + self.quarters(of) >= ALL_QUARTERS)
    }

    /// Whether the next chunk is read.
    pub(super) fn reads_next(&mut self, of: ChoiceOf) -> bool {
        let quarters = self.quarters(of);
        let choice = self.choice(of);
        choice.due += quarters;
        let reads = choice.due >= ALL_QUARTERS;
        choice.due %= ALL_QUARTERS;
        reads
    }

    /// The program begins a call. Its time counts from now on.
    pub(super) fn enter(&mut self, now: Duration) {
        if self.survey.is_some() {
            self.active.since.get_or_insert(now);
        }
    }

    /// Whether the end of a call must be told, by [`leave`](Self::leave).
    pub(super) fn is_timed(&self) -> bool {
        self.survey.is_some()
    }

    /// A call ends, and nothing is in flight.
    pub(super) fn leave(&mut self, now: Duration) {
        self.active.total = self.active.at(now);
        self.active.since = None;
    }

    /// A pull of `rows` rows begins, of a table whose rows can be read.
    pub(super) fn begin_pull(&mut self, of: ChoiceOf, rows: usize, now: Duration) {
        match &mut self.survey {
            Some(survey) if survey.of == of => {
                let active = self.active.at(now);
                survey.latest_pull = now;
                if survey.pulls == TRIAL_SETTLING_PULLS {
                    (survey.rows, survey.from) = (0, active);
                }
                let (took, pulls) =
                    (active.saturating_sub(survey.from), survey.pulls.saturating_sub(TRIAL_SETTLING_PULLS));
                if pulls >= TRIAL_PULLS && (took >= TRIAL_TIME || pulls >= TRIAL_PULLS_MAX) {
                    survey.costs.push(took.as_nanos() as f64 / survey.rows.max(1) as f64);
                    survey.pulls = 0;
                }
                survey.pulls += 1;
                survey.rows += rows as u64;
                if survey.costs.len() == ROUNDS * survey.arms.len() {
                    self.end_survey(now);
                }
            }
            Some(survey) if now.saturating_sub(survey.latest_pull) < SURVEY_ABANDONED_AFTER => {}
            _ => self.begin_survey(of, now),
        }
    }

    fn begin_survey(&mut self, of: ChoiceOf, now: Duration) {
        let choice = self.choice(of);
        if now < choice.next_survey {
            return;
        }
        let arms = choice.arms();
        let costs = Vec::with_capacity(ROUNDS * arms.len());
        self.survey = Some(Survey {
            of,
            arms,
            began: now,
            latest_pull: now,
            pulls: 0,
            rows: 0,
            from: Duration::ZERO,
            costs,
        });
        self.active = ActiveTime { since: Some(now), total: Duration::ZERO };
    }

    fn end_survey(&mut self, now: Duration) {
        let Some(survey) = self.survey.take() else { return };
        let choice = self.choice(survey.of);
        let best = survey.cheapest();
        let longer = (2 * choice.rest_factor).min(SURVEY_REST_FACTOR_MAX);
        choice.rest_factor = if best == choice.quarters { longer } else { SURVEY_REST_FACTOR_MIN };
        let ChoiceOf { table, kept } = survey.of;
        let (from, arms, costs) = (choice.quarters, &survey.arms, survey.medians());
        tracing::debug!(
            table,
            kept,
            from,
            to = best,
            ?arms,
            ?costs,
            "a survey chose how many quarters of chunks to read"
        );
        (choice.quarters, choice.settled) = (best, true);
        choice.next_survey = now + now.saturating_sub(survey.began) * choice.rest_factor;
    }
}
