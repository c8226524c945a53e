//! Chooses how a worker gets the rows of a table: it reads them itself, it requests them, or it does both for parts of
//! one pull. Which costs less depends on the length of rows, on who else uses the server, and on whether the rows are
//! pushed back: the server's core then writes the lines that the worker reads. A table with a cache of rows has another
//! choice: pulls go through the cache, or past it. Whether the look-ups cost less than requests depends on the network
//! and on the keys. So the worker measures.
//!
//! Each table has one choice for pulls whose rows are pushed back, one for other pulls, and one for its cache. A choice
//! is a number of quarters: so many of four chunks are read, and the others are requested. From time to time a survey
//! tries several such numbers in turn and takes the cheapest. The cost of a trial is its active time for each pulled
//! row: the time in which requests were in flight, or rows were read. Pauses of the program do not count.
//!
//! Surveys of two choices are never at the same time: each would measure the other one's trials. The time between two
//! surveys is a multiple of the time that a survey takes. It grows as long as surveys agree.

use crate::cache::settings::Staleness;
use crate::limits::{
    SURVEY_ABANDONED_AFTER, SURVEY_REST_FACTOR_MAX, SURVEY_REST_FACTOR_MIN, TRIAL_PULLS, TRIAL_PULLS_MAX,
    TRIAL_SETTLING_PULLS, TRIAL_TIME,
};
use std::time::Duration;

/// All chunks of a pull.
pub(crate) const ALL_QUARTERS: u8 = 4;

/// Trials are noisy, also because other workers survey at the same time. So a survey changes the choice only for a
/// median cost below this share of the present one's, and if enough rounds agree that it is lower.
const BETTER: f64 = 0.95;

/// Which choice of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathKind {
    /// How many quarters of the chunks are read, in pulls whose rows are not pushed back.
    Read,
    /// How many quarters of the chunks are read, in pulls whose rows are pushed back.
    ReadKept,
    /// Whether pulls go through the cache ([`ALL_QUARTERS`]) or past it (0).
    Cache,
}

/// Which choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChoiceOf {
    pub(crate) table: usize,
    pub(crate) kind: PathKind,
}

impl ChoiceOf {
    /// How many quarters of the chunks are read, in pulls whose rows are pushed back (`kept`) or not.
    pub(crate) fn reads(table: usize, kept: bool) -> ChoiceOf {
        ChoiceOf { table, kind: if kept { PathKind::ReadKept } else { PathKind::Read } }
    }

    /// Whether pulls go through the cache.
    pub(crate) fn cache(table: usize) -> ChoiceOf {
        ChoiceOf { table, kind: PathKind::Cache }
    }
}

/// How long surveys are.
#[derive(Clone, Copy, Debug)]
struct SurveyLength {
    /// So often a survey tries each number of quarters. The median counts.
    rounds: usize,
    /// So many rounds must agree that another number is better.
    agree: usize,
    /// The first pulls of a trial, and the first time, do not count: they overlap with the trial before, or fill the
    /// cache.
    settling: (u32, Duration),
    /// The pulls that count, and their time at least.
    counted: (u32, Duration),
}

impl SurveyLength {
    const READS: SurveyLength = SurveyLength {
        rounds: 5,
        agree: 4,
        settling: (TRIAL_SETTLING_PULLS, Duration::ZERO),
        counted: (TRIAL_PULLS, Duration::ZERO),
    };

    /// A trial of a cache fills it for one life of its rows. Then two lives count. Such trials are long, so there are
    /// few.
    fn of_cache(staleness: Staleness) -> SurveyLength {
        let (pulls, time) = match staleness {
            Staleness::Pulls(pulls) => (pulls.min(u64::from(TRIAL_PULLS_MAX) / 2) as u32, Duration::ZERO),
            Staleness::Time(time) => (0, time.min(SURVEY_ABANDONED_AFTER / 2)),
        };
        SurveyLength {
            rounds: 3,
            agree: 3,
            settling: (TRIAL_SETTLING_PULLS + pulls, time),
            counted: (TRIAL_PULLS.max(2 * pulls), 2 * time),
        }
    }
}

/// The choices of a worker.
#[derive(Default)]
pub(crate) struct PathChoices {
    /// By table and [`PathKind`].
    tables: Vec<[PathChoice; 3]>,
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
    length: SurveyLength,
}

impl PathChoice {
    fn new(quarters: u8, length: SurveyLength) -> PathChoice {
        let (due, settled, next_survey) = (0, false, Duration::ZERO);
        PathChoice { quarters, due, settled, next_survey, rest_factor: SURVEY_REST_FACTOR_MIN, length }
    }

    /// The numbers of quarters that the next survey tries: the present one first.
    fn arms(&self, kind: PathKind) -> Vec<u8> {
        let here = self.quarters;
        let around = [0, here.saturating_sub(1), here, (here + 1).min(ALL_QUARTERS), ALL_QUARTERS];
        let mut arms = match (kind, self.settled) {
            (PathKind::Cache, _) => vec![0, ALL_QUARTERS],
            (_, true) => around.to_vec(),
            (_, false) => vec![0, ALL_QUARTERS / 2, ALL_QUARTERS],
        };
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
    /// Pulls of this trial, and the time of its first one.
    pulls: u32,
    first_pull: Duration,
    /// How many of them count, and their rows. When the first of them began, and the active time until then.
    counted: u32,
    rows: u64,
    from: (Duration, Duration),
    /// Nanoseconds a row of the trials so far. Each round tries all arms.
    costs: Vec<f64>,
}

impl Survey {
    fn quarters(&self) -> u8 {
        self.arms[self.costs.len() % self.arms.len()]
    }

    /// A pull of `rows` rows begins. It may be the first one after a trial.
    fn count(&mut self, rows: usize, now: Duration, active: Duration, length: SurveyLength) {
        self.latest_pull = now;
        let (passed, took) = (now.saturating_sub(self.from.0), active.saturating_sub(self.from.1));
        let (pulls, time) = length.counted;
        let long_enough = passed >= time && took >= TRIAL_TIME;
        if self.counted >= pulls && (long_enough || self.counted >= TRIAL_PULLS_MAX) {
            self.costs.push(took.as_nanos() as f64 / self.rows.max(1) as f64);
            (self.pulls, self.counted) = (0, 0);
        }
        if self.pulls == 0 {
            self.first_pull = now;
        }
        let (settling, time) = length.settling;
        let settled = self.pulls >= settling && now.saturating_sub(self.first_pull) >= time;
        self.pulls += 1;
        if self.counted > 0 || settled {
            if self.counted == 0 {
                (self.rows, self.from) = (0, (now, active));
            }
            self.counted += 1;
            self.rows += rows as u64;
        }
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
    fn cheapest(&self, agree: usize) -> u8 {
        let medians = self.medians();
        let clearly = |&arm: &usize| {
            let rounds = self.costs(arm).zip(self.costs(0)).filter(|(cost, present)| cost < present).count();
            medians[arm] < BETTER * medians[0] && rounds >= agree
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
    pub(crate) fn begin(&mut self, table: usize, kept: u8) {
        self.make_room(table);
        self.tables[table][PathKind::ReadKept as usize].quarters = kept;
    }

    /// The table has a cache. Until the worker has measured, pulls go through it.
    pub(crate) fn begin_cache(&mut self, table: usize, staleness: Staleness) {
        self.make_room(table);
        let length = SurveyLength::of_cache(staleness);
        self.tables[table][PathKind::Cache as usize] = PathChoice::new(ALL_QUARTERS, length);
    }

    /// Makes choices for all tables up to this one.
    fn make_room(&mut self, table: usize) {
        while self.tables.len() <= table {
            self.tables.push([(); 3].map(|()| PathChoice::new(ALL_QUARTERS, SurveyLength::READS)));
        }
    }

    fn choice(&mut self, of: ChoiceOf) -> &mut PathChoice {
        &mut self.tables[of.table][of.kind as usize]
    }

    fn trial(&self, of: ChoiceOf) -> Option<&Survey> {
        self.survey.as_ref().filter(|survey| survey.of == of)
    }

    /// How many quarters of the chunks are read now.
    pub(crate) fn quarters(&self, of: ChoiceOf) -> u8 {
        let known = self.tables.get(of.table).map(|choices| choices[of.kind as usize].quarters);
        self.trial(of).map_or(known.unwrap_or(0), Survey::quarters)
    }

    /// Whether a survey has ended.
    pub(crate) fn is_settled(&self, of: ChoiceOf) -> bool {
        self.tables.get(of.table).is_some_and(|choices| choices[of.kind as usize].settled)
    }

    /// Whether the next chunk is read. Unlike [`reads_next`](Self::reads_next) it stays the next chunk.
    pub(crate) fn would_read(&self, of: ChoiceOf) -> bool {
        let due = self.tables.get(of.table).map(|choices| choices[of.kind as usize].due);
        due.is_some_and(|due| due + self.quarters(of) >= ALL_QUARTERS)
    }

    /// Whether the next chunk is read.
    pub(crate) fn reads_next(&mut self, of: ChoiceOf) -> bool {
        let quarters = self.quarters(of);
        let choice = self.choice(of);
        choice.due += quarters;
        let reads = choice.due >= ALL_QUARTERS;
        choice.due %= ALL_QUARTERS;
        reads
    }

    /// The program begins a call. Its time counts from now on.
    pub(crate) fn enter(&mut self, now: Duration) {
        if self.survey.is_some() {
            self.active.since.get_or_insert(now);
        }
    }

    /// Whether the end of a call must be told, by [`leave`](Self::leave).
    pub(crate) fn is_timed(&self) -> bool {
        self.survey.is_some()
    }

    /// A call ends, and nothing is in flight.
    pub(crate) fn leave(&mut self, now: Duration) {
        self.active.total = self.active.at(now);
        self.active.since = None;
    }

    /// A pull of `rows` rows begins, of a table whose rows can be read, or are cached.
    pub(crate) fn begin_pull(&mut self, of: ChoiceOf, rows: usize, now: Duration) {
        let length = self.choice(of).length;
        match &mut self.survey {
            Some(survey) if survey.of == of => {
                survey.count(rows, now, self.active.at(now), length);
                if survey.costs.len() == length.rounds * survey.arms.len() {
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
        let arms = choice.arms(of.kind);
        let costs = Vec::with_capacity(choice.length.rounds * arms.len());
        let from = (now, Duration::ZERO);
        let (pulls, counted, rows) = (0, 0, 0);
        let (first_pull, latest_pull) = (now, now);
        self.survey =
            Some(Survey { of, arms, began: now, latest_pull, pulls, first_pull, counted, rows, from, costs });
        self.active = ActiveTime { since: Some(now), total: Duration::ZERO };
    }

    fn end_survey(&mut self, now: Duration) {
        let Some(survey) = self.survey.take() else { return };
        let choice = self.choice(survey.of);
        let best = survey.cheapest(choice.length.agree);
        let longer = (2 * choice.rest_factor).min(SURVEY_REST_FACTOR_MAX);
        choice.rest_factor = if best == choice.quarters { longer } else { SURVEY_REST_FACTOR_MIN };
        let ChoiceOf { table, kind } = survey.of;
        let (from, arms, costs) = (choice.quarters, &survey.arms, survey.medians());
        tracing::debug!(
            table,
            ?kind,
            from,
            to = best,
            ?arms,
            ?costs,
            "a survey chose how many quarters of chunks to read, or whether to use the cache"
        );
        if kind == PathKind::Cache && best != from {
            let way = if best > 0 { "through" } else { "past" };
            tracing::info!(table, ?costs, "the worker measured: pulls now go {way} the cache of rows");
        }
        (choice.quarters, choice.settled) = (best, true);
        choice.next_survey = now + now.saturating_sub(survey.began) * choice.rest_factor;
    }
}
