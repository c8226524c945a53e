//! A worker's counters: what it sent and received, what is in flight, and how long it took.

use crate::limits::STALENESS_BUCKETS;
use gannet_wire::counters::{Count, Histogram, MetricsSink, Outcomes};
use std::time::Duration;

/// What a worker has done and what it has in flight. Its thread writes it; any thread may read it at any time.
/// [`Worker::shared_counters`](crate::worker::Worker::shared_counters) returns it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerCounters {
    pub(crate) frames_sent: Count,
    pub(crate) frames_received: Count,
    pub(crate) bytes_sent: Count,
    pub(crate) bytes_received: Count,
    pub(crate) resends: Count,
    pub(crate) links_lost: Count,
    /// Rows read one-sidedly, and rows of the same pulls that were requested.
    pub(crate) near_rows: Count,
    pub(crate) near_requested_rows: Count,
    /// Rows of pulls through a cache: answered by it; requested; of these, requested with the cached version; of these,
    /// unchanged.
    pub(crate) cache_hits: Count,
    pub(crate) cache_requested: Count,
    pub(crate) cache_held: Count,
    pub(crate) cache_same: Count,
    /// Cached rows that servers sent without a request.
    pub(crate) cache_refreshed: Count,
    /// Rows in the cache.
    pub(crate) cache_rows: Count,
    /// Times that a request waited for credit; pings.
    pub(crate) credit_waits: Count,
    pub(crate) pings: Count,
    /// Links made again.
    pub(crate) reconnects: Count,
    /// Rows of acknowledged pushes, by outcome.
    pub(crate) pushed: Outcomes,
    /// Time from the start of a pull or push until its last answer was handled.
    pub(crate) pull_took: Histogram,
    pub(crate) push_took: Histogram,
    /// Turns of the event loop. If they stop, the worker is in no wait that has a limit of its own.
    pub(crate) turns: Count,
    /// Nanoseconds in which calls waited for peers.
    pub(crate) waited_nanos: Count,
    /// Links that exist, links that should exist, and pulls, pushes and bytes that are in flight or wait for a link.
    pub(crate) links: Count,
    pub(crate) links_wanted: Count,
    pub(crate) pulls: Count,
    pub(crate) pushes: Count,
    pub(crate) bytes: Count,
    /// Own pushes that the rows of the last pull finished do not include.
    pub(crate) staleness: Count,
    /// Rows that arrived after their synchronous step had been applied without them.
    pub(crate) late_rows: Count,
    /// Rows of f16 that were rounded by chance; pushes to tables of f16 that travelled as f32.
    pub(crate) rounded_by_chance: Count,
    pub(crate) wide_pushes: Count,
    /// The clock of a worker that keeps step.
    pub(crate) clock: Count,
    /// The worker that it waits for: index + 1 (0: none), and that worker's clock.
    pub(crate) waits_for: Count,
    pub(crate) waits_clock: Count,
    /// Pulls by how many steps the slowest worker was behind them. The last bucket: that many or more.
    pub(crate) behind: StepsBehind,
}

/// Pulls, by how many steps the slowest worker was behind.
#[derive(Debug)]
pub(crate) struct StepsBehind([Count; STALENESS_BUCKETS + 1]);

impl Default for StepsBehind {
    fn default() -> StepsBehind {
        StepsBehind(std::array::from_fn(|_| Count::default()))
    }
}

impl StepsBehind {
    /// Counts a pull that has been answered.
    pub(crate) fn observe(&self, steps: u64) {
        self.0[(steps as usize).min(STALENESS_BUCKETS)].add(1);
    }

    fn read(&self) -> Vec<u64> {
        self.0.iter().map(Count::get).collect()
    }
}

impl WorkerCounters {
    /// The counters that [`crate::worker::Worker::counters`] returns.
    pub(crate) fn counters(&self) -> Counters {
        Counters {
            frames_sent: self.frames_sent.get(),
            frames_received: self.frames_received.get(),
            bytes_sent: self.bytes_sent.get(),
            bytes_received: self.bytes_received.get(),
            resends: self.resends.get(),
            links_lost: self.links_lost.get(),
            near_rows: self.near_rows.get(),
            near_requested_rows: self.near_requested_rows.get(),
            cache_hits: self.cache_hits.get(),
            cache_requested: self.cache_requested.get(),
            cache_held: self.cache_held.get(),
            cache_same: self.cache_same.get(),
            cache_refreshed: self.cache_refreshed.get(),
            credit_waits: self.credit_waits.get(),
            pings: self.pings.get(),
            applied: self.pushed.applied.get(),
            duplicate: self.pushed.duplicate.get(),
            not_finite: self.pushed.not_finite.get(),
            not_admitted: self.pushed.not_admitted.get(),
            refused: self.pushed.refused.get(),
            late_rows: self.late_rows.get(),
            rounded_by_chance: self.rounded_by_chance.get(),
            wide_pushes: self.wide_pushes.get(),
        }
    }

    /// For a worker that keeps step: the number of pulls by how many steps the slowest worker was behind the pull's
    /// clock. The last element counts all larger distances.
    pub fn pulls_by_staleness(&self) -> Vec<u64> {
        self.behind.read()
    }

    /// For a worker that keeps step: its clock, the largest staleness of its pulls, and the worker that it waits for
    /// with that worker's clock.
    pub fn step(&self) -> (u64, u64, Option<(u32, u64)>) {
        let stalest = self.behind.read().iter().rposition(|pulls| *pulls > 0).unwrap_or(0);
        let whom = (self.waits_for.get() as u32).checked_sub(1).map(|rank| (rank, self.waits_clock.get()));
        (self.clock.get(), stalest as u64, whom)
    }

    /// Grows while the worker pulls, pushes, or waits for servers and other workers. Those waits have limits of their
    /// own.
    pub fn turns(&self) -> u64 {
        self.turns.get()
    }

    /// Writes all counters to `sink`.
    pub fn tell(&self, sink: &mut dyn MetricsSink) {
        self.write_links(sink);
        self.write_rows(sink);
        self.write_times(sink);
        self.write_in_flight(sink);
    }

    fn write_links(&self, sink: &mut dyn MetricsSink) {
        let mut counter = |name, help, count: &Count| sink.counter(name, help, &[], count.get() as f64);
        counter("gannet_worker_requests_total", "Requests sent, resends included.", &self.frames_sent);
        counter("gannet_worker_answers_total", "Answers received.", &self.frames_received);
        counter("gannet_worker_sent_bytes_total", "Payload bytes of requests.", &self.bytes_sent);
        counter("gannet_worker_received_bytes_total", "Payload bytes of rows.", &self.bytes_received);
        counter("gannet_worker_resends_total", "Requests sent again after a lost link.", &self.resends);
        counter("gannet_worker_lost_links_total", "Links lost.", &self.links_lost);
        counter(
            "gannet_worker_credit_waits_total",
            "How often a request waited because the open ones had used up the credit.",
            &self.credit_waits,
        );
        counter("gannet_worker_pings_total", "Pings sent over quiet links.", &self.pings);
        counter("gannet_worker_reconnects_total", "Links opened again.", &self.reconnects);
    }

    fn write_rows(&self, sink: &mut dyn MetricsSink) {
        let near = "Rows of pulls from a server whose memory the worker can read (shared memory, RDMA). read: \
             read there. asked: requested, because the row was not found so, or because an own push to it \
             is not acknowledged. Rows of chunks that were not to be read, because requests cost less, do \
             not count.";
        for (how, count) in [("read", &self.near_rows), ("asked", &self.near_requested_rows)] {
            sink.counter("gannet_worker_near_rows_total", near, &[("how", how)], count.get() as f64);
        }
        let cached = "Rows of pulls through a cache (--cache-bytes): had: cached and fresh enough; same: the server \
             said that it has not changed; sent: the server sent it.";
        let sent = self.cache_requested.get().saturating_sub(self.cache_same.get());
        for (how, count) in [("had", self.cache_hits.get()), ("same", self.cache_same.get()), ("sent", sent)]
        {
            sink.counter("gannet_worker_cache_rows_total", cached, &[("how", how)], count as f64);
        }
        sink.counter(
            "gannet_worker_cache_refreshed_rows_total",
            "Rows of the cache that servers refreshed by themselves (--active-pull).",
            &[],
            self.cache_refreshed.get() as f64,
        );
        for (outcome, count) in self.pushed.named() {
            sink.counter(
                "gannet_worker_pushed_rows_total",
                "Rows of acknowledged pushes: applied; duplicate (a resend, not applied again); not_finite \
                 (NaN, infinite or beyond the row type, dropped); not_admitted (not created); refused (a change \
                 of a row that had died, dropped).",
                &[("outcome", outcome)],
                count.get() as f64,
            );
        }
        sink.counter(
            "gannet_worker_late_rows_total",
            "Rows of this worker's pushes that came too late for their synchronous step.",
            &[],
            self.late_rows.get() as f64,
        );
        sink.counter(
            "gannet_worker_rounded_by_chance_rows_total",
            "Rows of pushes as f16 (--wire f16) that were rounded by chance, because the memory for \
             rounding errors was full.",
            &[],
            self.rounded_by_chance.get() as f64,
        );
        sink.counter(
            "gannet_worker_wide_pushes_total",
            "Pushes under --wire f16 that travelled as f32, because a gradient was too large or not \
             finite.",
            &[],
            self.wide_pushes.get() as f64,
        );
    }

    fn write_times(&self, sink: &mut dyn MetricsSink) {
        sink.counter(
            "gannet_worker_waited_seconds_total",
            "Time in calls that wait for servers and handle their answers; if it grows by almost 1 a \
             second, the servers or the network are the bottleneck.",
            &[],
            Duration::from_nanos(self.waited_nanos.get()).as_secs_f64(),
        );
        for (kind, took) in [("pull", &self.pull_took), ("push", &self.push_took)] {
            sink.histogram(
                "gannet_worker_round_trip_seconds",
                "Time from the start of a pull or push until its last answer is handled. A worker handles \
                 answers only while it waits or sends, so the time in which it learns counts too.",
                &[("kind", kind)],
                &took.read(),
            );
        }
        for (steps, &pulls) in
            self.behind.read().iter().enumerate().filter(|(steps, pulls)| **pulls > 0 || *steps == 0)
        {
            let steps = if steps == STALENESS_BUCKETS { format!("{steps}+") } else { steps.to_string() };
            sink.counter(
                "gannet_worker_pulls_by_staleness_total",
                "Pulls by staleness: how many steps the slowest worker was behind; 64+ for all larger ones.",
                &[("steps", &steps)],
                pulls as f64,
            );
        }
    }

    fn write_in_flight(&self, sink: &mut dyn MetricsSink) {
        let mut gauge = |name, help, count: &Count| sink.gauge(name, help, &[], count.get() as f64);
        gauge("gannet_worker_links", "Open links to server threads.", &self.links);
        gauge(
            "gannet_worker_cached_rows",
            "Rows in the cache; 0 while pulls go past it (--cache-use auto).",
            &self.cache_rows,
        );
        gauge(
            "gannet_worker_links_wanted",
            "Server threads known so far; with fewer links than this the worker waits or connects.",
            &self.links_wanted,
        );
        gauge("gannet_worker_clock", "Step number of a worker under ssp or bsp.", &self.clock);
        gauge("gannet_worker_pulls_in_flight", "Pulls started and not finished.", &self.pulls);
        gauge("gannet_worker_pushes_in_flight", "Pushes not completely acknowledged.", &self.pushes);
        gauge("gannet_worker_bytes_in_flight", "Bytes of requests and answers in flight.", &self.bytes);
        gauge(
            "gannet_worker_staleness",
            "Own pushes that were missing in the rows of the last pull.",
            &self.staleness,
        );
    }
}

/// Counters of what a worker has done so far.
///
/// ```
/// # use gannet_core::{Schema, Write};
/// # use gannet_optim::{Add, Rule};
/// # use gannet_server::{Server, ServerConfig};
/// # use gannet_worker::{Worker, WorkerConfig};
/// # use gannet_transport::multi::Transports;
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// # let mut worker = Worker::connect(Transports::new(), config)?;
/// # let table = worker.open_table(&Schema::scalar("clicks", Rule::Add(Add)))?;
/// worker.push(table, &[7, 8], Write::Gradient, &[1.0, f32::NAN])?;
/// let counters = worker.counters();
/// assert_eq!((counters.applied, counters.not_finite), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Requests posted, resends included.
    pub frames_sent: u64,
    /// Answers received.
    pub frames_received: u64,
    /// Payload bytes of requests.
    pub bytes_sent: u64,
    /// Payload bytes of rows.
    pub bytes_received: u64,
    /// Requests posted again after a link was lost.
    pub resends: u64,
    /// Links lost.
    pub links_lost: u64,
    /// Rows read without a request, in images or over RDMA.
    pub near_rows: u64,
    /// Rows of such pulls that were requested: they were not found, or an own push to them was in flight.
    pub near_requested_rows: u64,
    /// Rows that the cache answered.
    pub cache_hits: u64,
    /// Rows of pulls through a cache that were requested.
    pub cache_requested: u64,
    /// Of these, rows whose request named the cached version.
    pub cache_held: u64,
    /// Of these, rows that had not changed, and were not sent.
    pub cache_same: u64,
    /// Cached rows that servers sent without a request, because they had changed.
    pub cache_refreshed: u64,
    /// Times that a request waited because the link's credit was used up.
    pub credit_waits: u64,
    /// Pings sent over otherwise silent links.
    pub pings: u64,
    /// Rows applied.
    pub applied: u64,
    /// Rows of pushes that a server had applied before.
    pub duplicate: u64,
    /// Rows dropped because a value was NaN, infinite or beyond the row type.
    pub not_finite: u64,
    /// Rows not created because they were not admitted.
    pub not_admitted: u64,
    /// Changes of state that were dropped because their row had died.
    pub refused: u64,
    /// Rows that arrived after their synchronous step had been applied without them.
    pub late_rows: u64,
    /// Rows of pushes as f16 that were rounded by chance, because there was no memory for their rounding errors.
    pub rounded_by_chance: u64,
    /// Pushes to tables of f16 that travelled as f32, because a gradient was not finite or beyond the range of f16.
    pub wide_pushes: u64,
}
