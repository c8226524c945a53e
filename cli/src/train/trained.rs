//! The results of a worker's training, whatever it trains.

use crate::report::training::Results;
use gannet::train::BadLines;
use gannet::train::models::Measured;

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
}

impl Trained for Results {
    fn summary(&self) -> Summary<'_> {
        Summary {
            examples: self.of.examples,
            seconds: self.of.seconds,
            loss: self.of.progressive.as_ref().map(Measured::loss),
            batches: Some(self.of.batches),
            rows: self.of.rows,
            stopped: self.of.stopped,
            bad_lines: Some(&self.of.bad_lines),
        }
    }

    fn set_stopped(&mut self, stopped: bool) {
        self.of.stopped = stopped;
    }
}
