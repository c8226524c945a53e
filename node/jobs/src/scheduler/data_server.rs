//! In-graph data: a scheduler that has the data sends the bytes of a split to the worker that holds it, chunk by
//! chunk. It caches none of them. Each chunk is read into the session's out queue, which pushes back when it is full.
//!
//! ```text
//! the text of a split: the lines that begin in its bytes
//! file:  |..... line |line   line  line ...   line | line ...
//!               ^ start     the text ->        ^ end
//! ```

use crate::scheduler::job_state::{JobState, JobStateError};
use crate::scheduler::requests::{Scheduler, SchedulerRefusal};
use gannet_wire::frames::scheduler::{DataBytes, FedFrame};
use gannet_wire::limits::{PLAN_BYTES_MAX, READING_BYTES_MAX, TEXT_BYTES_MAX};
use gannet_wire::messages::control;
use gannet_wire::messages::data::{DataRequest, OfferV1};
use gannet_wire::messages::job_plan::{JobPlan, Split};
use gannet_wire::messages::jobs::JobStatus;
use gannet_wire::messages::member::WorkerIncarnation;
use gannet_wire::refusal::Refusal;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where the data of a job is, for the scheduler that sends it to the workers. The thread that serves the workers calls
/// it: a call takes about as long as reading [`FEED_BYTES_MAX`](gannet_wire::limits::FEED_BYTES_MAX) bytes.
///
/// ```
/// use gannet_jobs::DataSource;
/// use gannet_wire::Split;
/// use std::ops::Range;
///
/// struct OneText(&'static [u8]); // the text of the only split
/// impl DataSource for OneText {
///     fn text(&self, _: &Split) -> Result<Range<u64>, String> {
///         Ok(0..self.0.len() as u64)
///     }
///     fn read(&self, _: u32, at: u64, out: &mut [u8]) -> Result<(), String> {
///         let bytes = self.0.get(at as usize..).and_then(|rest| rest.get(..out.len()));
///         out.copy_from_slice(bytes.ok_or("the text is shorter now")?);
///         Ok(())
///     }
/// }
/// let mut label = [0];
/// OneText(b"1 7:1").read(0, 0, &mut label)?;
/// assert_eq!(label, *b"1");
/// # Ok::<(), String>(())
/// ```
pub trait DataSource: Send + Sync {
    /// The bytes of its file that are the text of a split: the lines that begin in it. A file that is one split is its
    /// own text.
    ///
    /// # Errors
    /// Why no worker can train on the data any more, in words: the file has changed, or is gone.
    fn text(&self, task: &Split) -> Result<Range<u64>, String>;

    /// Reads all of `out` from byte `at` of a file on.
    ///
    /// # Errors
    /// As [`text`](Self::text).
    fn read(&self, file: u32, at: u64, out: &mut [u8]) -> Result<(), String>;
}

/// What a scheduler needs to send the workers of one job their data.
///
/// ```
/// # use gannet_worker::DataLink;
/// # use gannet_jobs::{DataServerConfig, DataSource};
/// # use gannet_wire::{JobPlan, PlanFile};
/// # use gannet_server::{Server, ServerConfig};
/// # use gannet_wire::Split;
/// # use gannet_worker::WorkerConfig;
/// # use gannet_transport::multi::Transports;
/// # use std::{ops::Range, sync::Arc};
/// # let files = vec![PlanFile { name: "clicks.csv".into(), bytes: 1000, print: 0, whole: false }];
/// # let (workers, task_bytes, batch, epochs, worker_timeout_ms) = (1, 300, 64, 2, 10_000);
/// # let plan = JobPlan { workers, files, task_bytes, batch, epochs, worker_timeout_ms, settings: Vec::new() };
/// # struct OneText(&'static [u8]); // the text of the only split
/// # impl DataSource for OneText {
/// #     fn text(&self, _: &Split) -> Result<Range<u64>, String> {
/// #         Ok(0..self.0.len() as u64)
/// #     }
/// #     fn read(&self, _: u32, at: u64, out: &mut [u8]) -> Result<(), String> {
/// #         let bytes = self.0.get(at as usize..).and_then(|rest| rest.get(..out.len()));
/// #         out.copy_from_slice(bytes.ok_or("the text is shorter now")?);
/// #         Ok(())
/// #     }
/// # }
/// let (source, status) = (Arc::new(OneText(b"1 7:1")), Arc::default());
/// let data_server = Some(DataServerConfig { plan, reading: "libsvm".into(), source, status });
/// let config = ServerConfig { scheduler_only: true, data_server, ..ServerConfig::new("127.0.0.1:0") };
/// let client = Server::start(Transports::new(), config)?;
/// let config = WorkerConfig::builder([client.addr()]).incarnation(1).build();
/// assert_eq!(DataLink::connect(Transports::new(), config)?.offer()?.reading, "libsvm");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct DataServerConfig {
    /// The job. Workers of another job are refused.
    pub plan: JobPlan,
    /// How the data is read, for the workers, who have no flags for it: any text of at most [`READING_BYTES_MAX`]
    /// bytes.
    pub reading: String,
    /// Where the data is.
    pub source: Arc<dyn DataSource>,
    /// Where the scheduler reports the job's state.
    pub status: Arc<FeedStatus>,
}

/// Counts what was sent so far. [`FeedStatus::served`] returns it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServedBytes {
    /// Requests for bytes that were answered.
    pub requests: u64,
    /// Bytes of data in those answers.
    pub bytes: u64,
}

/// Shared by the scheduler, which runs in a server's thread, and the process that has the data: the job's state, and
/// the text that ends the job.
///
/// ```
/// use gannet_jobs::{FeedStatus, ServedBytes};
/// use std::sync::Arc;
///
/// let status = Arc::<FeedStatus>::default(); // also given to DataServerConfig
/// assert!(status.job().is_none() && status.served() == ServedBytes::default());
/// status.end("stopped by its user"); // every worker gets this text
/// ```
#[derive(Debug, Default)]
pub struct FeedStatus {
    published: Mutex<PublishedJob>,
}

#[derive(Debug, Default)]
struct PublishedJob {
    job: Option<JobStatus>,
    served: ServedBytes,
    end: Option<String>,
    /// Whether the scheduler has read `end`, and has published the job since.
    has_taken_end: bool,
}

impl FeedStatus {
    fn lock(&self) -> MutexGuard<'_, PublishedJob> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job as it was at most about a second ago; `None` before the first worker has come.
    pub fn job(&self) -> Option<JobStatus> {
        self.lock().job.clone()
    }

    /// Counts what was sent.
    pub fn served(&self) -> ServedBytes {
        self.lock().served
    }

    /// Ends the job. Its workers get this text in the reply to their next heartbeat.
    pub fn end(&self, why: &str) {
        self.lock().end.get_or_insert_with(|| why.to_owned());
    }

    /// Whether [`end`](Self::end) was called, and the scheduler has not read it. It reads it about once a second, and
    /// then publishes the [`job`](Self::job) anew. An older one may lack a worker that has just come.
    pub fn is_ending(&self) -> bool {
        let published = self.lock();
        published.end.is_some() && !published.has_taken_end
    }
}

/// The part of a scheduler that sends data.
pub struct DataServer {
    config: DataServerConfig,
    /// The texts of splits that workers hold.
    texts: BTreeMap<u64, Range<u64>>,
    served: ServedBytes,
}

impl std::fmt::Debug for DataServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataServer").field("texts", &self.texts).finish_non_exhaustive()
    }
}

impl DataServerConfig {
    /// Refuses a job whose data cannot be sent, in words.
    ///
    /// # Errors
    /// The plan is not valid, or the offer is too long.
    pub fn check(&self) -> Result<(), String> {
        self.plan.check()?;
        let plan = control::seal(&self.plan).len();
        if plan > PLAN_BYTES_MAX {
            let files = self.plan.files.len();
            return Err(format!(
                "the names of {files} files are too long for one message: train on fewer, larger ones"
            ));
        }
        let bytes = self.reading.len();
        match bytes <= READING_BYTES_MAX {
            true => Ok(()),
            false => Err(format!(
                "{bytes} bytes say how the data is read; {READING_BYTES_MAX} are possible: name fewer columns"
            )),
        }
    }
}

impl DataServer {
    pub(crate) fn new(config: DataServerConfig) -> DataServer {
        DataServer { config, texts: BTreeMap::new(), served: ServedBytes::default() }
    }

    /// The offer for a worker without data.
    pub fn offer(&self) -> OfferV1 {
        OfferV1 { plan: self.config.plan.clone(), reading: self.config.reading.clone() }
    }

    /// How this plan differs from that of the data, in words.
    pub(crate) fn differs(&self, plan: &JobPlan) -> Option<String> {
        self.config.plan.differs(plan)
    }

    /// Checks that a loaded job state belongs to this data, and that the job can go on.
    pub(crate) fn check_job(&self, job: &JobState) -> Result<(), String> {
        const ELSE: &str = "name another --data-dir, or move its scheduler.book away, to start again";
        match (self.differs(job.plan()), job.failure()) {
            (Some(difference), _) => {
                Err(format!("the job state in --data-dir is of another job ({difference}): {ELSE}"))
            }
            (None, Some(why)) => Err(format!("the job in --data-dir has failed before ({why}): {ELSE}")),
            (None, None) => Ok(()),
        }
    }
}

impl Scheduler {
    /// The data server of this scheduler's jobs.
    ///
    /// # Errors
    /// It has no data.
    pub fn feeder(&self) -> Result<&DataServer, SchedulerRefusal> {
        self.data_server.as_ref().ok_or_else(|| {
            let why = "there is no data here to feed workers with: --feed names the client of a job (--job-name client)";
            (Refusal::Unknown, why.to_owned())
        })
    }

    /// Reads what `incarnation` requests into `out`, which has space for all of it.
    pub fn feed(
        &mut self,
        incarnation: WorkerIncarnation,
        request: DataRequest,
        out: &mut [u8],
    ) -> Result<FedFrame, SchedulerRefusal> {
        self.feeder()?;
        let unknown = || (Refusal::Unknown, JobStateError::Unknown(incarnation).to_string());
        let (job, data_server) = (self.job.as_mut().ok_or_else(unknown)?, self.data_server.as_mut());
        let Some(DataServer { config, texts, served }) = data_server else { return Err(unknown()) };
        let read = match request {
            DataRequest::Text { index, from, bytes } => {
                let task = job.holds(incarnation, index)?;
                let text = match texts.get(&index) {
                    Some(text) => Ok(text.clone()),
                    None => config.source.text(&task).inspect(|text| {
                        // Only held splits are in it, so the limit of leases bounds it.
                        texts.retain(|&index, _| job.is_leased(index));
                        texts.insert(index, text.clone());
                    }),
                };
                text.and_then(|text| {
                    let whole = text.end - text.start;
                    let bytes = whole.saturating_sub(from).min(bytes as u64) as usize;
                    config.source.read(task.file, text.start + from.min(whole), &mut out[..bytes])?;
                    Ok(FedFrame {
                        start: text.start,
                        whole,
                        bytes: DataBytes(bytes),
                        crc: crc32c::crc32c(&out[..bytes]),
                    })
                })
            }
            DataRequest::Head { file, bytes } => {
                job.live_member(incarnation)?;
                let Some(of) = config.plan.files.get(file as usize) else {
                    let files = config.plan.files.len();
                    return Err((Refusal::Malformed, format!("file {file} of {files}")));
                };
                let (whole, bytes) = (of.bytes, of.bytes.min(bytes as u64) as usize);
                let read = config.source.read(file, 0, &mut out[..bytes]);
                read.map(|()| FedFrame {
                    start: 0,
                    whole,
                    bytes: DataBytes(bytes),
                    crc: crc32c::crc32c(&out[..bytes]),
                })
            }
            DataRequest::Offer => {
                return Err((Refusal::Malformed, "the plan is not requested as bytes of data".into()));
            }
        };
        match read {
            Ok(read) => {
                (served.requests, served.bytes) = (served.requests + 1, served.bytes + read.bytes.0 as u64);
                Ok(read)
            }
            // No worker can go on. All learn why.
            Err(mut why) => {
                let end = (0..=TEXT_BYTES_MAX.min(why.len())).rev().find(|&end| why.is_char_boundary(end));
                why.truncate(end.unwrap_or(0));
                tracing::error!(why, "the job has failed");
                job.fail_all(&why);
                self.save_job()?;
                self.publish();
                Err((Refusal::Mismatch, why))
            }
        }
    }

    /// Takes the text that ends the job, if there is one, and publishes the job's state.
    pub fn publish(&mut self) {
        let (Some(data_server), job) = (&self.data_server, &mut self.job) else { return };
        let mut published = data_server.config.status.lock();
        if let (Some(why), Some(job)) = (&published.end, job.as_mut())
            && job.failure().is_none()
        {
            job.fail_all(why);
        }
        published.has_taken_end = published.end.is_some();
        published.served = data_server.served;
        published.job = self.job.as_ref().map(|job| self.status_of(job).into());
    }
}
