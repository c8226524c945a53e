//! Trains several models side by side on one reading of the data, and drops the worse half of them again and again
//! (successive halving: Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter
//! optimization", 2016). Each example is predicted before it is learned, so the loss of one pass says how well a model
//! predicts data that it has not seen.

use super::fit::ModelLearner;
use super::{Model, push_of};
use crate::backend::tables::FlatTables;
use crate::batch::Batch;
use crate::batch::batches::{Batches, OpenData, ReadPlan};
use crate::learn::options::Options;
use crate::learn::report::TrainError;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The share of the data behind which the last halving is. Each halving before is at half of that share.
const LAST_HALVING: f64 = 0.5;

/// The fewest examples before the first halving: fewer say little. Before each later one there are at least twice as
/// many as before the one before, also where a small file is read at once.
const WINDOW_MIN: u64 = 1_000;

/// When the next halving is due.
struct Halvings {
    left: u32,
    /// The share of the data behind which the next one is.
    at_share: f64,
    /// Examples since the last one, and how many there must be.
    window: u64,
    window_min: u64,
}

impl Halvings {
    /// So many halvings leave one or two of the models.
    fn of(models: usize) -> Halvings {
        let left = models.next_power_of_two().ilog2().saturating_sub(1);
        let at_share = LAST_HALVING * 2f64.powi(1 - left as i32);
        Halvings { left, at_share, window: 0, window_min: WINDOW_MIN }
    }

    /// Notes a batch. Returns whether a halving is due.
    fn add(&mut self, batch: &Batch) -> bool {
        self.window += batch.block.len() as u64;
        let is_far = match batch.bytes_total {
            Some(total) => batch.bytes_read as f64 >= self.at_share * total as f64,
            None => true,
        };
        if self.left == 0 || !is_far || self.window < self.window_min {
            return false;
        }
        (self.left, self.window) = (self.left - 1, 0);
        (self.at_share, self.window_min) = (2.0 * self.at_share, 2 * self.window_min);
        true
    }
}

/// How one model did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialResult {
    /// Examples that it learned.
    pub examples: u64,
    /// Its loss over all of them, as reports show it.
    pub loss: f64,
    /// Its loss since the last halving that it survived: what it was dropped or chosen by.
    pub window_loss: f64,
    /// How many halvings it survived.
    pub survived: u32,
}

/// A reading on which models are compared.
pub struct SideBySide<'a> {
    /// The data, for one pass. Tests and passes are those of a training afterwards.
    pub options: &'a Options,
    /// When to end the reading.
    pub limit: Duration,
    /// Ends the reading, as a signal does.
    pub stop: &'a AtomicBool,
}

/// A model that is still trained, or was dropped.
struct Trial<'a> {
    learner: ModelLearner<'a, FlatTables>,
    /// The sums of importance and losses at the last halving.
    before: (f64, f64),
    survived: u32,
    is_dropped: bool,
}

impl Trial<'_> {
    fn window_loss(&self) -> f64 {
        let (mass, loss) = self.learner.sums();
        self.learner.mean((loss - self.before.1) / (mass - self.before.0))
    }

    fn result(&self) -> TrialResult {
        let (mass, loss) = self.learner.sums();
        TrialResult {
            examples: self.learner.examples(),
            loss: self.learner.mean(loss / mass),
            window_loss: self.window_loss(),
            survived: self.survived,
        }
    }
}

impl SideBySide<'_> {
    /// Trains these models, in tables of this process of at most so many bytes each. Returns the result of each, in
    /// their order. `progress` gets the examples that were read, and the number of models that are left.
    ///
    /// # Errors
    /// The data cannot be read, or a model cannot learn it.
    pub fn train(
        &self,
        models: &mut [Box<dyn Model>],
        bytes: u64,
        progress: &mut dyn FnMut(u64, usize),
    ) -> Result<Vec<TrialResult>, TrainError> {
        let (options, start) = (self.options, Instant::now());
        let mut tables: Vec<FlatTables> = models.iter().map(|_| FlatTables::within(bytes)).collect();
        let mut trials = Vec::new();
        let shards = models.first().map_or(1, |model| model.sparse().shards);
        for (model, tables) in models.iter_mut().zip(&mut tables) {
            let push = push_of(options, &**model)?;
            let learner = ModelLearner::new(options, &mut **model, tables, push)?;
            trials.push(Trial { learner, before: (0.0, 0.0), survived: 0, is_dropped: false });
        }
        let opened = OpenData::new(&options.data, options.batch, options.share, None)?;
        let plan = ReadPlan { epochs: 1, ..ReadPlan::of(options, shards) };
        let mut batches = Batches::start(opened, plan, options.threads > 1, None)?;
        let (mut halvings, mut examples) = (Halvings::of(trials.len()), 0);
        let mut read = || -> Result<bool, TrainError> {
            while let Some(batch) = batches.next() {
                if self.stop.load(Relaxed) || start.elapsed() >= self.limit {
                    return Ok(true);
                }
                for trial in trials.iter_mut().filter(|trial| !trial.is_dropped) {
                    trial.learner.step(&batch)?;
                }
                examples += batch.block.len() as u64;
                if halvings.add(&batch) {
                    halve(&mut trials);
                }
                progress(examples, trials.iter().filter(|trial| !trial.is_dropped).count());
                batches.recycle(batch);
            }
            Ok(false)
        };
        let ended = read();
        batches.close(ended)?;
        Ok(trials.iter().map(Trial::result).collect())
    }
}

/// Drops the worse half of the trials, by their losses since the last halving.
fn halve(trials: &mut [Trial<'_>]) {
    let mut alive: Vec<&mut Trial<'_>> = trials.iter_mut().filter(|trial| !trial.is_dropped).collect();
    // A loss that is no number is the worst.
    let loss =
        |trial: &Trial<'_>| Some(trial.window_loss()).filter(|loss| !loss.is_nan()).unwrap_or(f64::MAX);
    alive.sort_by(|a, b| loss(a).total_cmp(&loss(b)));
    let kept = alive.len().div_ceil(2).max(1);
    for (at, trial) in alive.into_iter().enumerate() {
        if at < kept {
            trial.before = trial.learner.sums();
            trial.survived += 1;
        } else {
            trial.is_dropped = true;
        }
    }
}
