//! Learning from requests: a folder takes labelled examples, each id once, and a training of it says what is learned.
//!
//! The folder has `journal/`, with every example that was taken and its id, and `examples/`, which
//! `gannet train --follow` trains. An example is taken when the journal has it. It is learned when the job has trained
//! the file that it is in, so that the servers have acknowledged its pushes.

mod body;
mod counters;
mod csv;
mod files;
mod form;
mod ids;
mod joins;
mod journal;
mod keeper;
#[cfg(test)]
mod keeper_tests;
mod kept;
mod learner;
mod record;

pub use body::LearnBody;
pub use counters::LearnCounters;
pub use form::LineForm;
pub use joins::JoinLimits;
pub use keeper::{IdOutcome, JobStand, KeeperLimits, Offered};
pub use kept::kept_lines;
pub use learner::{AskJob, Standing};

use crate::error::{RequestError, ServeError};
use crate::models::ServedModel;
use crate::scores::Deadline;
use body::check_id;
use gannet::storage::own_files;
use gannet::train::saved::SavedModel;
use joins::Joins;
use keeper::{Keeper, Refused};
use learner::LearnThreads;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Semaphore;

/// How a process learns.
pub struct LearnConfig {
    /// The folder.
    pub folder: PathBuf,
    /// Its limits.
    pub limits: KeeperLimits,
    /// How long predictions wait for their labels. `None`: none is kept.
    pub join: Option<JoinLimits>,
    /// Asks the job that trains the folder.
    pub ask: AskJob,
}

/// A folder that learns.
pub struct Learning {
    form: LineForm,
    learner: LearnThreads,
    joins: Option<Mutex<Joins>>,
    counters: Arc<LearnCounters>,
    /// The places of requests that may wait.
    pub places: Semaphore,
    _lock: File,
}

/// What a request offers: its examples, and which of them are labels of predictions.
pub struct Offer {
    /// All, in the order of the request.
    pub offered: Vec<Offered>,
    is_of_labels: bool,
}

/// Locks the folder: two processes would give the training the same numbers of files.
fn locked(config: &LearnConfig) -> Result<File, ServeError> {
    let path = config.folder.join("lock");
    let locked = std::fs::create_dir_all(&config.folder).and_then(|()| {
        let file = own_files::open_or_make(&path)?;
        Ok(own_files::lock_exclusive(&file)?.then_some(file))
    });
    match locked {
        Ok(Some(file)) => Ok(file),
        Ok(None) => Err(ServeError::Settings(format!(
            "--learn {}: another process learns in this folder; stop it, or name another folder",
            config.folder.display()
        ))),
        Err(error) => Err(journal::failed(&path, &error)),
    }
}

impl Learning {
    /// Opens the folder and starts its threads. At most half of so many `requests` may wait for their examples.
    ///
    /// # Errors
    /// The model's format cannot be learned from requests, or the folder cannot be used.
    pub fn start(
        config: LearnConfig,
        model: &SavedModel,
        counters: Arc<LearnCounters>,
        requests: usize,
    ) -> Result<Learning, ServeError> {
        let form =
            LineForm::of(&model.reading).map_err(|why| ServeError::Settings(format!("--learn: {why}")))?;
        let lock = locked(&config)?;
        let keeper = Keeper::open(&config.folder, form.names(), config.limits)?;
        let learner = LearnThreads::start(keeper, config.ask, counters.clone())?;
        let joins = config.join.map(|limits| Mutex::new(Joins::new(limits)));
        let places = Semaphore::new((requests / 2).max(1));
        Ok(Learning { form, learner, joins, counters, places, _lock: lock })
    }

    /// The form of its lines.
    pub fn form(&self) -> LineForm {
        self.form
    }

    /// Requests wait no more.
    pub fn end_waits(&self) {
        self.learner.end_waits();
    }

    fn joins(&self) -> Option<MutexGuard<'_, Joins>> {
        Some(self.joins.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn told(&self, joins: &Joins, expired: u64) {
        let (kept, bytes) = joins.held();
        self.counters.kept.store(kept as u64, Relaxed);
        self.counters.kept_bytes.store(bytes as u64, Relaxed);
        self.counters.expired.fetch_add(expired, Relaxed);
    }

    /// Reads a request, and checks that a training can read its examples.
    ///
    /// # Errors
    /// The body or one of its examples is wrong.
    pub fn read(&self, model: &ServedModel, body: &[u8]) -> Result<Offer, RequestError> {
        match LearnBody::read(body, self.form)? {
            LearnBody::Lines(lines) => {
                let texts: Vec<&str> = lines.iter().map(|(_, line)| &**line).collect();
                form::check(&model.saved, self.form, "the examples", &texts)?;
                let offered = lines.into_iter().map(|(id, line)| Offered { id, line: Some(line) });
                Ok(Offer { offered: offered.collect(), is_of_labels: false })
            }
            LearnBody::Labels(labels) => self.join(model, labels),
        }
    }

    /// The lines of predictions with their labels.
    fn join(&self, model: &ServedModel, labels: Vec<(String, String)>) -> Result<Offer, RequestError> {
        let Some(mut joins) = self.joins() else {
            return Err(RequestError::bad(
                "labels belong to predictions, and this server keeps none: start it with --join-window SECONDS, or send \
                 whole examples",
            ));
        };
        let expired = joins.expire(Instant::now());
        self.told(&joins, expired);
        let column = model.saved.reading.columns.as_ref().and_then(|columns| columns.label.as_deref());
        let mut offered = Vec::new();
        for (id, label) in labels {
            let kept = joins.line(&id).map(|line| self.form.with_label(column, line, &label)).transpose();
            let line = kept.map_err(|what| RequestError::Bad(format!("the label of {id:?}: {what}")))?;
            offered.push(Offered { id, line });
        }
        drop(joins);
        let texts: Vec<&str> = offered.iter().filter_map(|of| of.line.as_deref()).collect();
        form::check(&model.saved, self.form, "the labelled predictions", &texts)?;
        Ok(Offer { offered, is_of_labels: true })
    }

    /// Takes the examples of a request. When this returns, they are on the disk.
    ///
    /// # Errors
    /// There are too many, the time is over, or they cannot be written.
    pub async fn take(&self, offer: &Offer, deadline: Deadline) -> Result<Vec<IdOutcome>, RequestError> {
        let Some(taken) = self.learner.offer(offer.offered.clone()) else {
            return Err(RequestError::Busy("too many requests with examples at once"));
        };
        let taken = tokio::time::timeout(deadline.left(), taken).await.map_err(|_| deadline.error())?;
        let taken =
            taken.map_err(|_| RequestError::Failed("the server ends: send the request again".into()))?;
        let places = taken.map_err(|refused| match refused {
            Refused::Full => RequestError::Busy("too many examples wait to be learned (--learn-bytes)"),
            Refused::Unwritten(why) => {
                RequestError::Failed(format!("none of the request is taken: {why}, then send it again"))
            }
        })?;
        self.count(offer, &places);
        Ok(places)
    }

    fn count(&self, offer: &Offer, places: &[IdOutcome]) {
        let count = |of: fn(&IdOutcome) -> bool| places.iter().filter(|place| of(place)).count() as u64;
        let taken = count(|place| matches!(place, IdOutcome::New(_)));
        self.counters.taken.fetch_add(taken, Relaxed);
        self.counters.repeats.fetch_add(count(|place| matches!(place, IdOutcome::Known(_))), Relaxed);
        self.counters.unknown.fetch_add(count(|place| matches!(place, IdOutcome::Unknown)), Relaxed);
        if let Some(mut joins) = self.joins().filter(|_| offer.is_of_labels) {
            self.counters.joined.fetch_add(taken, Relaxed);
            offer.offered.iter().for_each(|Offered { id, .. }| joins.joined(id));
            self.told(&joins, 0);
        }
    }

    /// Waits until all examples before a number are learned, the time is over, or the process ends.
    pub async fn learned(&self, upto: u64, deadline: Deadline) -> Standing {
        let mut standing = self.learner.standing();
        let is_over = |standing: &Standing| standing.learned >= upto || standing.is_ending;
        let _ = tokio::time::timeout(deadline.left(), standing.wait_for(is_over)).await;
        standing.borrow().clone()
    }

    /// Whether predictions are kept.
    pub fn keeps(&self) -> bool {
        self.joins.is_some()
    }

    /// Keeps the lines of a request for predictions, for their labels. The first one, if it is the only one, has the id
    /// of the request; else they are `ID/1`, `ID/2` and so on. Returns how many it keeps: none if the id is too long.
    pub fn keep(&self, id: &str, lines: Vec<String>) -> usize {
        let Some(mut joins) = self.joins() else { return 0 };
        let (now, count, mut expired) = (Instant::now(), lines.len(), 0);
        let id_of = |at: usize| if count == 1 { id.to_owned() } else { format!("{id}/{at}") };
        if check_id(&id_of(count)).is_err() {
            return 0;
        }
        for (at, line) in (1..).zip(lines) {
            expired += joins.keep(&id_of(at), line, now);
        }
        self.told(&joins, expired);
        count
    }
}
