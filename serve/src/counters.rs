//! What the process counts while it serves.

use crate::learn::LearnCounters;
use crate::models::Catalog;
use gannet::metrics::{BUCKETS, Buckets, MetricsSink, bucket_of_nanos};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// Kinds of requests that are counted apart.
pub const KINDS: [&str; 3] = ["infer", "predict", "learn"];

/// Times of requests. Many threads add to it.
struct Times {
    counts: [AtomicU64; BUCKETS],
    sum_nanos: AtomicU64,
}

impl Times {
    fn new() -> Times {
        Times { counts: std::array::from_fn(|_| AtomicU64::new(0)), sum_nanos: AtomicU64::new(0) }
    }

    fn observe(&self, took: Duration) {
        let nanos = took.as_nanos() as u64;
        self.counts[bucket_of_nanos(nanos)].fetch_add(1, Relaxed);
        self.sum_nanos.fetch_add(nanos, Relaxed);
    }

    fn read(&self) -> Buckets {
        let counts = std::array::from_fn(|at| self.counts[at].load(Relaxed));
        Buckets { counts, sum_nanos: self.sum_nanos.load(Relaxed) }
    }
}

/// Classes of answers by their status.
const STATUSES: [(u16, &str); 9] = [
    (200, "200"),
    (202, "202"),
    (400, "400"),
    (401, "401"),
    (404, "404"),
    (413, "413"),
    (500, "500"),
    (503, "503"),
    (504, "504"),
];

/// The place of status 400 among them, which stands for others.
const OTHER: usize = 2;

/// The counters of a process.
pub struct Counters {
    /// By kind and status.
    answers: [[AtomicU64; STATUSES.len()]; KINDS.len()],
    /// By kind: answered requests.
    times: [Times; KINDS.len()],
    /// Examples that were scored.
    pub examples: AtomicU64,
    /// Requests that are being answered.
    in_progress: AtomicU64,
    /// Connections that are open.
    connections: AtomicU64,
    /// Connections that were refused because there were too many.
    pub refused: AtomicU64,
    /// What a folder that learns counts. It is told only where there is one.
    pub learn: Arc<LearnCounters>,
    /// Whether there is one.
    pub learns: AtomicBool,
}

impl Default for Counters {
    fn default() -> Counters {
        let zero = || AtomicU64::new(0);
        Counters {
            answers: std::array::from_fn(|_| std::array::from_fn(|_| zero())),
            times: std::array::from_fn(|_| Times::new()),
            examples: zero(),
            in_progress: zero(),
            connections: zero(),
            refused: zero(),
            learn: Arc::default(),
            learns: AtomicBool::new(false),
        }
    }
}

/// Counts something while it lasts.
pub struct Lasting<'c>(&'c AtomicU64);

impl<'c> Lasting<'c> {
    fn begin(count: &'c AtomicU64) -> Lasting<'c> {
        count.fetch_add(1, Relaxed);
        Lasting(count)
    }
}

impl Drop for Lasting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Counters {
    /// Counts a request until this is dropped.
    pub fn begin(&self) -> Lasting<'_> {
        Lasting::begin(&self.in_progress)
    }

    /// Counts a connection until this is dropped.
    pub fn connected(&self) -> Lasting<'_> {
        Lasting::begin(&self.connections)
    }

    /// Counts an answer to a request of a kind, an index of the names of the metrics.
    pub fn answered(&self, kind: usize, status: u16, took: Duration) {
        let at = STATUSES.iter().position(|(of, _)| *of == status).unwrap_or(OTHER);
        self.answers[kind][at].fetch_add(1, Relaxed);
        self.times[kind].observe(took);
    }

    /// Writes all numbers.
    pub fn tell(&self, catalog: &Catalog, page: &mut dyn MetricsSink) {
        for (kind, name) in KINDS.iter().enumerate() {
            for ((_, status), count) in STATUSES.iter().zip(&self.answers[kind]) {
                page.counter(
                    "gannet_serve_requests_total",
                    "Requests for predictions that were answered, by the status of the answer.",
                    &[("kind", name), ("status", status)],
                    count.load(Relaxed) as f64,
                );
            }
            page.histogram(
                "gannet_serve_request_seconds",
                "The time of a request for predictions, from its head to its answer.",
                &[("kind", name)],
                &self.times[kind].read(),
            );
        }
        let examples = self.examples.load(Relaxed) as f64;
        page.counter("gannet_serve_examples_total", "Examples that were scored.", &[], examples);
        let now = self.in_progress.load(Relaxed) as f64;
        page.gauge("gannet_serve_requests_in_progress", "Requests that are being answered.", &[], now);
        let open = self.connections.load(Relaxed) as f64;
        page.gauge("gannet_serve_connections", "Open connections.", &[], open);
        let refused = self.refused.load(Relaxed) as f64;
        page.counter(
            "gannet_serve_refused_connections_total",
            "Connections that were closed because there were too many (--connections).",
            &[],
            refused,
        );
        if self.learns.load(Relaxed) {
            self.learn.tell(page);
        }
        catalog.slots().iter().for_each(|slot| tell_slot(slot, page));
    }
}

/// Writes the numbers of one model.
fn tell_slot(slot: &crate::models::Slot, page: &mut dyn MetricsSink) {
    let model = slot.current();
    let labels = [("model", &*slot.name), ("version", &*model.version)];
    // A version that changes several times a second is no label.
    let labels = if slot.origin.follows() { &labels[..1] } else { &labels[..] };
    let age = SystemTime::now().duration_since(model.saved_at).unwrap_or_default().as_secs_f64();
    page.gauge(
        "gannet_serve_model_age_seconds",
        "The time since the model was saved, or since the state of the servers that it has.",
        labels,
        age,
    );
    let rows = model.saved.rows as f64;
    page.gauge("gannet_serve_model_rows", "Rows of the model's features.", labels, rows);
    let name = [("model", &*slot.name)];
    page.counter(
        "gannet_serve_model_replacements_total",
        "How often a new model took the place of another.",
        &name,
        slot.replaced.load(Relaxed) as f64,
    );
    page.counter(
        "gannet_serve_model_refusals_total",
        "How often a new model could not be loaded, or servers not be followed, so that the former one stayed.",
        &name,
        slot.refused.load(Relaxed) as f64,
    );
    page.gauge(
        "gannet_serve_model_behind",
        "1 while the newest model cannot be loaded, or servers not be followed, and a former one is served.",
        &name,
        f64::from(u8::from(slot.is_behind.load(Relaxed))),
    );
    if slot.origin.follows() {
        page.counter(
            "gannet_serve_follow_changes_total",
            "How often the model took over the changes of the servers that it follows.",
            &name,
            slot.taken_over.load(Relaxed) as f64,
        );
        page.gauge(
            "gannet_serve_follow_lag_commands",
            "Commands of the servers that the model lacked before it took over changes the last time.",
            &name,
            slot.lag_commands.load(Relaxed) as f64,
        );
    }
}
