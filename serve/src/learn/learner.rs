//! The threads of a folder that learns. `gannet-learn` owns its state: it takes the examples of requests, those that
//! have come meanwhile with one sync of the disk. `gannet-learn-job` asks the job how far it is.

use super::counters::LearnCounters;
use super::keeper::{IdOutcome, JobStand, Keeper, Offered, Refused};
use crate::limits::{ASK_JOB_EVERY, ASK_JOB_IDLE, GROUP_REQUESTS, LEARN_QUEUE};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, JoinHandle, Thread};
use std::time::Instant;
use tokio::sync::{oneshot, watch};

/// Asks a job how far it is. The error is in words.
pub type AskJob = Box<dyn FnMut() -> Result<JobStand, String> + Send>;

/// The places of the examples of a request.
type Taken = Result<Vec<IdOutcome>, Refused>;

enum LearnMessage {
    Offer { offered: Vec<Offered>, answer: oneshot::Sender<Taken> },
    Job(Result<JobStand, String>),
    End,
}

/// How far the folder is, for requests that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// All examples before this number are learned.
    pub learned: u64,
    /// Why nothing goes on, in words.
    pub trouble: Option<Arc<str>>,
    /// The process ends: nobody should wait.
    pub is_ending: bool,
}

/// What the threads share.
struct Shared {
    is_waiting: AtomicBool,
    is_ending: AtomicBool,
    counters: Arc<LearnCounters>,
}

/// The threads. Dropping it ends them.
pub struct LearnThreads {
    messages: SyncSender<LearnMessage>,
    standing: watch::Sender<Standing>,
    shared: Arc<Shared>,
    asking: Option<JoinHandle<()>>,
    keeping: Option<JoinHandle<()>>,
}

impl LearnThreads {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system cannot start one.
    pub fn start(keeper: Keeper, ask: AskJob, counters: Arc<LearnCounters>) -> io::Result<LearnThreads> {
        let (messages, received) = sync_channel(LEARN_QUEUE);
        let standing = watch::Sender::new(Standing { learned: keeper.learned(), ..Standing::default() });
        let is_waiting = AtomicBool::new(keeper.waiting() > 0);
        let shared = Arc::new(Shared { is_waiting, is_ending: AtomicBool::new(false), counters });
        let (of_asking, say) = (shared.clone(), messages.clone());
        let asking = Builder::new().name("gannet-learn-job".into());
        let asking = asking.spawn(move || ask_on(ask, &of_asking, &say))?;
        let keeping = Keeping {
            since: VecDeque::from([(keeper.learned() + keeper.waiting(), Instant::now())]),
            keeper,
            standing: standing.clone(),
            shared: shared.clone(),
            asking: asking.thread().clone(),
        };
        let mut learner = LearnThreads { messages, standing, shared, asking: Some(asking), keeping: None };
        let run = move || keeping.run(&received);
        learner.keeping = Some(Builder::new().name("gannet-learn".into()).spawn(run)?);
        Ok(learner)
    }

    /// How far the folder is.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Offers examples. `None`: too many requests wait.
    pub fn offer(&self, offered: Vec<Offered>) -> Option<oneshot::Receiver<Taken>> {
        let (answer, answered) = oneshot::channel();
        match self.messages.try_send(LearnMessage::Offer { offered, answer }) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => Some(answered),
            Err(TrySendError::Full(_)) => None,
        }
    }

    /// Requests wait no more.
    pub fn end_waits(&self) {
        self.standing.send_modify(|standing| standing.is_ending = true);
    }
}

impl Drop for LearnThreads {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Relaxed);
        let _ = self.messages.send(LearnMessage::End);
        if let Some(asking) = &self.asking {
            asking.thread().unpark();
        }
        for thread in [self.keeping.take(), self.asking.take()].into_iter().flatten() {
            if thread.join().is_err() {
                tracing::error!("a thread that learns has panicked");
            }
        }
    }
}

/// Asks the job, often while examples wait.
fn ask_on(mut ask: AskJob, shared: &Shared, say: &SyncSender<LearnMessage>) {
    while !shared.is_ending.load(Relaxed) {
        if say.send(LearnMessage::Job(ask())).is_err() {
            return;
        }
        let every = if shared.is_waiting.load(Relaxed) { ASK_JOB_EVERY } else { ASK_JOB_IDLE };
        std::thread::park_timeout(every);
    }
}

/// The state, and who hears of it.
struct Keeping {
    keeper: Keeper,
    standing: watch::Sender<Standing>,
    shared: Arc<Shared>,
    asking: Thread,
    /// When the examples before a number were taken.
    since: VecDeque<(u64, Instant)>,
}

impl Keeping {
    fn run(mut self, received: &Receiver<LearnMessage>) {
        while let Ok(first) = received.recv() {
            let (mut offers, mut job, mut is_end) = (Vec::new(), None, false);
            let more = std::iter::from_fn(|| received.try_recv().ok()).take(GROUP_REQUESTS);
            for message in std::iter::once(first).chain(more) {
                match message {
                    LearnMessage::Offer { offered, answer } => offers.push((offered, answer)),
                    LearnMessage::Job(said) => job = Some(said),
                    LearnMessage::End => is_end = true,
                }
            }
            self.take(offers);
            if let Some(said) = job {
                self.hear(said);
            }
            self.tell();
            if is_end {
                return;
            }
        }
    }

    fn take(&mut self, offers: Vec<(Vec<Offered>, oneshot::Sender<Taken>)>) {
        if offers.is_empty() {
            return;
        }
        let (requests, answers): (Vec<_>, Vec<_>) = offers.into_iter().unzip();
        let all = self.keeper.take(&requests);
        self.since.push_back((self.keeper.learned() + self.keeper.waiting(), Instant::now()));
        for (answer, taken) in answers.into_iter().zip(all) {
            if let Err(Refused::Unwritten(why)) = &taken {
                tracing::error!(why, "examples cannot be taken");
            }
            // Who asked may have gone. The examples stay.
            let _ = answer.send(taken);
        }
        // So that the job gets the examples soon.
        if self.keeper.base().is_none() && self.keeper.waiting() > 0 {
            self.asking.unpark();
        }
    }

    fn hear(&mut self, said: Result<JobStand, String>) {
        let trouble = match said {
            Ok(job) => match (self.keeper.goes_on(job), self.keeper.base()) {
                (Err(why), _) => Some(why),
                (Ok(()), _) if job.is_over && self.keeper.waiting() > 0 => {
                    Some("the job that learns has ended: start its workers again with --continue".to_owned())
                }
                (Ok(()), Some(base)) if job.found < base => Some(format!(
                    "the job has found {} tasks, and had found {base} before the last file: it trains files again after \
                     going back to a checkpoint, or it is another job, which needs a new folder (--learn)",
                    job.found
                )),
                _ => None,
            },
            Err(why) => Some(why),
        };
        let (learned, trouble) = (self.keeper.learned(), trouble.map(Arc::<str>::from));
        let former = self.standing.borrow().trouble.clone();
        if trouble != former
            && let Some(why) = &trouble
        {
            tracing::warn!(why = &**why, "examples wait to be learned");
        }
        self.standing.send_modify(|standing| (standing.learned, standing.trouble) = (learned, trouble));
    }

    /// Tells the counters.
    fn tell(&mut self) {
        let learned = self.keeper.learned();
        while self.since.front().is_some_and(|(upto, _)| *upto <= learned) {
            self.since.pop_front();
        }
        self.shared.is_waiting.store(self.keeper.waiting() > 0, Relaxed);
        self.shared.counters.waiting.store(self.keeper.waiting(), Relaxed);
        *self.shared.counters.oldest.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            self.since.front().map(|(_, since)| *since);
    }
}
