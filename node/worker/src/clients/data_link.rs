//! How a worker without data gets it from the client of its job. It uses a link of its own, so that heartbeats do not
//! wait behind bulk data. Every call may be repeated, and a lost link is made again within the peer timeout.

use crate::config::worker_config::WorkerConfig;
use crate::error::WorkerError;
use crate::limits::DATA_REQUESTS_MAX;
use crate::requests::control::{ControlRequest, Recipients};
use crate::worker::Worker;
use gannet_transport::{Head, Net};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::scheduler::{DataBytes, FedFrame, FeedFrame};
use gannet_wire::limits::FEED_BYTES_MAX;
use gannet_wire::messages::control;
use gannet_wire::messages::data::{DataRequest, OfferV1};
use gannet_wire::messages::job_plan::JobPlan;

/// A link to the client that has the data of a job.
/// [`DataServerConfig`](gannet_jobs::scheduler::data_server::DataServerConfig) has an example.
pub struct DataLink<N: Net> {
    worker: Worker<N>,
}

/// What a client offers to workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataOffer {
    /// The job.
    pub plan: JobPlan,
    /// How to read its data, in the client's words.
    pub reading: String,
}

/// Some bytes of a split's text, or of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextChunk {
    /// The byte of its file at which the text begins.
    pub start: u64,
    /// Length in bytes of the whole text, or of the file.
    pub whole: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl<N: Net> DataLink<N> {
    /// Connects to the client, which is `config`'s one server. `config` names this worker and its incarnation: the
    /// client gives bytes only to workers of the job.
    ///
    /// # Errors
    /// The client is lost.
    pub fn connect(net: N, config: WorkerConfig) -> Result<DataLink<N>, WorkerError> {
        Ok(DataLink { worker: Worker::connect(net, WorkerConfig { one_thread: true, ..config })? })
    }

    /// The job, for workers that do not have its data.
    ///
    /// # Errors
    /// The client is lost, or has no data to offer.
    pub fn offer(&mut self) -> Result<DataOffer, WorkerError> {
        let (_, payload) = self.ask(&[DataRequest::Offer])?.swap_remove(0);
        let OfferV1 { plan, reading } =
            control::open(&payload).map_err(|error| self.nonsense(error.to_string()))?;
        plan.check().map_err(|why| self.nonsense(why))?;
        Ok(DataOffer { plan, reading })
    }

    /// The first bytes of a file, at most `most`.
    ///
    /// # Errors
    /// The client is lost, or refuses: this worker is no longer in the job, or the data has changed.
    pub fn head(&mut self, file: u32, most: usize) -> Result<TextChunk, WorkerError> {
        let request = DataRequest::Head { file, bytes: most.min(FEED_BYTES_MAX) };
        let (head, payload) = self.ask(&[request])?.swap_remove(0);
        self.checked(request, &head, payload, 0)
    }

    /// The text of a task from its byte `from` on. Requests about `expected` bytes, as many of them as may be in flight
    /// at once. An empty answer means that nothing is left.
    ///
    /// # Errors
    /// As [`head`](Self::head); also when this worker does not hold the task.
    pub fn text(&mut self, index: u64, from: u64, expected: u64) -> Result<TextChunk, WorkerError> {
        let chunk = FEED_BYTES_MAX as u64;
        let chunks = expected.div_ceil(chunk).clamp(1, DATA_REQUESTS_MAX as u64);
        let request =
            |k: u64| DataRequest::Text { index, from: from.saturating_add(k * chunk), bytes: FEED_BYTES_MAX };
        let requests: Vec<DataRequest> = (0..chunks).map(request).collect();
        let answers = self.ask(&requests)?;
        let mut text = TextChunk::default();
        for (at, (request, (head, payload))) in requests.into_iter().zip(answers).enumerate() {
            let part = self.checked(request, &head, payload, from + at as u64 * chunk)?;
            if at > 0 && (part.start, part.whole) != (text.start, text.whole) {
                return Err(self.nonsense("a text whose length changed between two answers".into()));
            }
            (text.start, text.whole) = (part.start, part.whole);
            match text.bytes.is_empty() {
                true => text.bytes = part.bytes,
                false => text.bytes.extend_from_slice(&part.bytes),
            }
        }
        Ok(text)
    }

    fn ask(&mut self, requests: &[DataRequest]) -> Result<Vec<(Head, Vec<u8>)>, WorkerError> {
        let payload = |nth: usize, _: u32| requests[nth].payload();
        let answers = self.worker.ask(
            &ControlRequest::with_payload(&FeedFrame {}, None, &payload),
            Recipients::First(requests.len()),
        )?;
        match answers.len() == requests.len() {
            true => Ok(answers.into_iter().map(|answer| (answer.head, answer.payload)).collect()),
            false => Err(self.nonsense("fewer answers than requests".into())),
        }
    }

    /// Checks an answer: its length and its checksum.
    fn checked(
        &self,
        request: DataRequest,
        head: &Head,
        mut payload: Vec<u8>,
        from: u64,
    ) -> Result<TextChunk, WorkerError> {
        let answer = FedFrame::decode(head).map_err(|error| self.nonsense(error.to_string()))?;
        let FedFrame { start, whole, bytes: DataBytes(bytes), crc } = answer;
        let due = whole.saturating_sub(from).min(request.bytes() as u64);
        if bytes as u64 != due || payload.len() != bytes.next_multiple_of(8) {
            return Err(self.nonsense(format!("{bytes} bytes of the data where {due} were expected")));
        }
        payload.truncate(bytes);
        if crc32c::crc32c(&payload) != crc {
            return Err(self.nonsense("bytes of the data whose checksum is wrong".into()));
        }
        Ok(TextChunk { start, whole, bytes: payload })
    }

    fn nonsense(&self, what: String) -> WorkerError {
        self.worker.links.nonsense(0, what)
    }
}
