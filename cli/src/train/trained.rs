//! The results of a worker's training, whatever it trains.

use crate::failure::Failure;
use crate::train::ending::{ended_early, learned_something};
use gannet::train::models::Measured;
use gannet::train::{BadLines, Report};

/// What a training has brought, as far as the job must know it.
pub struct Summary<'a> {
    pub examples: u64,
    pub seconds: f64,
    pub loss: Option<f64>,
    /// Batches of one pass, over all shares, if they are known.
    pub batches: Option<u64>,
    pub rows: u64,
    pub stopped: bool,
    /// The bad lines, if a share of nothing else is an error.
    pub bad_lines: Option<&'a BadLines>,
}

/// The results of a training.
pub trait Trained {
    /// What the job must know of them.
    fn summary(&self) -> Summary<'_>;

    /// Notes whether a signal has ended the wait for other workers.
    fn set_stopped(&mut self, stopped: bool);

    /// Sets the quality on the test data: that of the model which is kept.
    fn set_test(&mut self, test: Option<Measured>) {
        let _ = test;
    }

    /// The failure of a training that a signal has stopped.
    fn ended(&self) -> Result<(), Failure> {
        let Summary { examples, stopped, .. } = self.summary();
        ended_early(stopped, examples)
    }

    /// The failure of a training in one process: a signal has stopped it, or it has learned nothing.
    fn ended_alone(&self) -> Result<(), Failure> {
        self.ended()?;
        let Summary { examples, bad_lines, .. } = self.summary();
        learned_something(examples, bad_lines, true)
    }
}

impl Trained for Report {
    fn summary(&self) -> Summary<'_> {
        Summary {
            examples: self.examples,
            seconds: self.seconds,
            loss: self.progressive.as_ref().map(Measured::loss),
            batches: Some(self.batches),
            rows: self.rows,
            stopped: self.stopped,
            bad_lines: Some(&self.bad_lines),
        }
    }

    fn set_stopped(&mut self, stopped: bool) {
        self.stopped = stopped;
    }

    fn set_test(&mut self, test: Option<Measured>) {
        self.test = test;
    }
}
