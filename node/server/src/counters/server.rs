//! A server's counters: the acceptor's, each thread's, and each table's on each thread.

use crate::counters::cut::CutCounters;
use crate::counters::request_kind::RequestKind;
use crate::counters::table::TableCounters;
use crate::limits::STUCK_TIME;
use gannet_wire::counters::{Buckets, Count, Histogram, MetricsSink};
use gannet_wire::refusal::Refusal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The transport of a session, for the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrier {
    Tcp,
    Shm,
    Verbs,
    /// A transport that no running server has: the simulated one.
    Other,
}

impl Carrier {
    const NAMES: [&str; 4] = ["tcp", "shm", "verbs", "other"];

    /// The carrier of a stream, from the name of its transport.
    pub(crate) fn of(transport: &str) -> Carrier {
        match transport {
            "tcp" => Carrier::Tcp,
            "shm" => Carrier::Shm,
            "verbs" => Carrier::Verbs,
            _ => Carrier::Other,
        }
    }
}

/// Counters of the sessions over one transport.
#[derive(Debug, Default)]
pub(crate) struct CarrierCounters {
    /// Bytes of requests handled and of their answers, including heads.
    pub(crate) received_bytes: Count,
    pub(crate) sent_bytes: Count,
    pub(crate) begun: Count,
    pub(crate) ended: Count,
}

/// What a server has done and what it holds. Its threads write it; any thread may read it at any time. [`MetricsSink`]
/// has an example.
#[derive(Debug)]
pub struct ServerCounters {
    since: Instant,
    pub(crate) acceptor: AcceptorCounters,
    pub(crate) threads: Vec<ThreadCounters>,
}

/// The acceptor's counters.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct AcceptorCounters {
    /// Connections accepted.
    pub(crate) accepted: Count,
    /// Connections that ended before they had a session: silent, invalid, or refused.
    pub(crate) dropped: Count,
    /// Connections whose greeting is not complete, or that wait for their thread, now.
    pub(crate) greeting: Count,
    /// Connections refused with a reason, by reason.
    pub(crate) refused: [Count; Refusal::COUNT],
}

/// The counters of one shard-owning thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ThreadCounters {
    /// Time from the receipt of a request to its answer in the out queue, by [`RequestKind`].
    pub(crate) took: [Histogram; RequestKind::COUNT],
    /// Counters by transport.
    carriers: [CarrierCounters; Carrier::NAMES.len()],
    /// Requests refused, by reason.
    pub(crate) refused: [Count; Refusal::COUNT],
    /// Sessions refused because the thread had as many as it may.
    pub(crate) refused_sessions: Count,
    /// Sessions ended, by reason: the peer stopped in a frame, left its answers, or was too slow; was silent for too
    /// long; sent bytes that are no frame; had more requests in flight than its credit.
    pub(crate) stalled: Count,
    pub(crate) silent: Count,
    pub(crate) bad_frames: Count,
    pub(crate) overruns: Count,
    /// Times that a session waited for memory for its buffers.
    pub(crate) memory_waits: Count,
    /// Turns in which an answer found the out queue full. The session then waits until its peer takes answers.
    pub(crate) full_turns: Count,
    /// Nanoseconds of polling or sleeping with nothing to do.
    pub(crate) idle_nanos: Count,
    /// Sums over all sessions at the last tick, here and below: bytes of unhandled requests, of pinned rings (RDMA), of
    /// buffers; sessions that wait for memory; bytes of untaken answers; sessions whose queue is full.
    pub(crate) unhandled_bytes: Count,
    /// Bytes of pinned rings of sessions over RDMA.
    pub(crate) pinned_bytes: Count,
    pub(crate) buffer_bytes: Count,
    pub(crate) sessions_waiting_for_memory: Count,
    pub(crate) queued_bytes: Count,
    pub(crate) full_sessions: Count,
    /// Sessions whose next request waits for other workers.
    pub(crate) parked_sessions: Count,
    pub(crate) keyset_bytes: Count,
    pub(crate) kept_bytes: Count,
    pub(crate) kept_limit_bytes: Count,
    /// Backups that have all rows, so that workers wait for them.
    pub(crate) backups_joined: Count,
    /// Bytes of commands and rows that backups have not acknowledged.
    pub(crate) backup_queue_bytes: Count,
    /// Commands that backups have not acknowledged, summed over the backups.
    pub(crate) backup_queue_commands: Count,
    /// Shards that backups are to have, and those of them whose rows they were told.
    pub(crate) backup_shards: Count,
    pub(crate) backup_shards_filled: Count,
    /// Parts of images that are registered for READs.
    pub(crate) regions: Count,
    pub(crate) cuts: CutCounters,
    pub(crate) tables: Mutex<Vec<Arc<TableCounters>>>,
    /// When the thread last checked its time limits, in nanoseconds after the server began.
    ticked_nanos: Count,
}

fn write_refused(refused: &[Count; Refusal::COUNT], sink: &mut dyn MetricsSink) {
    for (reason, count) in Refusal::names().zip(refused) {
        sink.counter(
            "gannet_server_refused_total",
            "Requests and connections refused, by reason (docs/wire.md). Resends count again.",
            &[("reason", reason)],
            count.get() as f64,
        );
    }
}

impl AcceptorCounters {
    fn tell(&self, sink: &mut dyn MetricsSink) {
        sink.counter(
            "gannet_server_accepted_connections_total",
            "Connections accepted.",
            &[],
            self.accepted.get() as f64,
        );
        sink.counter(
            "gannet_server_dropped_connections_total",
            "Connections that ended before they had a session: silent, not from Gannet, or refused.",
            &[],
            self.dropped.get() as f64,
        );
        sink.gauge(
            "gannet_server_greeting_connections",
            "Connections that have not finished their greeting, or wait for their thread.",
            &[],
            self.greeting.get() as f64,
        );
        write_refused(&self.refused, sink);
    }
}

impl ThreadCounters {
    /// The counters of sessions over this transport.
    pub(crate) fn over(&self, carrier: Carrier) -> &CarrierCounters {
        &self.carriers[carrier as usize]
    }

    /// Sessions that began, and sessions that ended. The ended ones are read first: otherwise a session that begins and
    /// ends in between would make the difference negative.
    pub(crate) fn sessions(&self) -> (u64, u64) {
        let ended = self.carriers.iter().map(|over| over.ended.get()).sum();
        (self.carriers.iter().map(|over| over.begun.get()).sum(), ended)
    }

    /// Requests handled.
    pub(crate) fn requests(&self) -> u64 {
        self.took.iter().map(|took| took.read().count()).sum()
    }

    /// Adds the counters of a new table.
    pub(crate) fn add_table(&self, name: &str) -> Arc<TableCounters> {
        let table = Arc::new(TableCounters { name: name.to_owned(), ..TableCounters::default() });
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).push(table.clone());
        table
    }

    /// A table was dropped: nothing is reported of it any more.
    pub(crate) fn end_table(&self, table: &Arc<TableCounters>) {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|known| !Arc::ptr_eq(known, table));
    }

    fn tell(&self, thread: &str, sink: &mut dyn MetricsSink) {
        for (kind, took) in RequestKind::NAMES.iter().zip(&self.took) {
            let (labels, took): (_, Buckets) = ([("kind", *kind)], took.read());
            let requests = took.count() as f64;
            sink.counter("gannet_server_requests_total", "Requests handled, by kind.", &labels, requests);
            sink.histogram(
                "gannet_server_request_seconds",
                "Time from when a thread sees a request until its answer stands in the out queue; includes \
                 waits for other links and for a full out queue.",
                &labels,
                &took,
            );
        }
        self.write_ended(sink);
        let (begun, ended) = self.sessions();
        sink.counter("gannet_server_sessions_begun_total", "Sessions that began.", &[], begun as f64);
        sink.counter("gannet_server_sessions_ended_total", "Sessions that ended.", &[], ended as f64);
        self.write_carriers(sink);
        self.write_sizes(sink);
        sink.counter(
            "gannet_server_idle_seconds_total",
            "Time that a thread had nothing to do. Near 0 in a second: it is the bottleneck.",
            &[("thread", thread)],
            Duration::from_nanos(self.idle_nanos.get()).as_secs_f64(),
        );
        write_refused(&self.refused, sink);
        self.cuts.tell(sink);
        for table in self.tables.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            table.tell(thread, sink);
        }
    }

    /// Sessions that were ended or refused, by reason, and sessions that waited.
    fn write_ended(&self, sink: &mut dyn MetricsSink) {
        let mut counter = |name, help, count: &Count| sink.counter(name, help, &[], count.get() as f64);
        counter(
            "gannet_server_stalled_sessions_total",
            "Sessions ended because the peer stopped in a frame, left its answers, or was too slow.",
            &self.stalled,
        );
        counter(
            "gannet_server_silent_sessions_total",
            "Sessions ended because the peer said nothing for too long.",
            &self.silent,
        );
        counter(
            "gannet_server_bad_frame_sessions_total",
            "Sessions ended because of bytes that are no frame.",
            &self.bad_frames,
        );
        counter(
            "gannet_server_overrun_sessions_total",
            "Sessions ended because the peer had more requests open than its credit allows.",
            &self.overruns,
        );
        counter(
            "gannet_server_refused_sessions_total",
            "Sessions refused because a thread had its maximum (--sessions-max).",
            &self.refused_sessions,
        );
        counter(
            "gannet_server_memory_waits_total",
            "How often a session waited for memory for its buffers.",
            &self.memory_waits,
        );
        counter(
            "gannet_server_full_queue_turns_total",
            "Turns of a session in which the out queue had no space for an answer.",
            &self.full_turns,
        );
    }

    /// What the sessions held at the last tick.
    fn write_sizes(&self, sink: &mut dyn MetricsSink) {
        let mut gauge = |name, help, value: u64| sink.gauge(name, help, &[], value as f64);
        gauge("gannet_server_queued_bytes", "Bytes of answers in out queues.", self.queued_bytes.get());
        gauge(
            "gannet_server_full_queue_sessions",
            "Sessions whose out queue is full: nothing is read from them until peers read answers.",
            self.full_sessions.get(),
        );
        gauge(
            "gannet_server_parked_sessions",
            "Sessions whose next request, or whose push, waits for other workers (ssp, bsp).",
            self.parked_sessions.get(),
        );
        gauge(
            "gannet_server_backups_joined",
            "Backups that have all rows, summed over the threads; workers wait for these.",
            self.backups_joined.get(),
        );
        gauge(
            "gannet_server_backup_queue_bytes",
            "Bytes that backups have not acknowledged. Above 8 MiB a backup and thread pushes wait.",
            self.backup_queue_bytes.get(),
        );
        gauge(
            "gannet_server_backup_queue_commands",
            "Commands that backups have not acknowledged, summed over the backups.",
            self.backup_queue_commands.get(),
        );
        gauge(
            "gannet_server_backup_shards",
            "Shards that the connected backups are to have, all tables and backups together.",
            self.backup_shards.get(),
        );
        gauge(
            "gannet_server_backup_shards_filled",
            "Shards of these whose rows the backups were told. Fewer: a backup is being filled.",
            self.backup_shards_filled.get(),
        );
        gauge("gannet_server_regions", "Memory regions registered for READs.", self.regions.get());
        gauge("gannet_server_keyset_bytes", "Bytes of stored keysets.", self.keyset_bytes.get());
        gauge(
            "gannet_server_kept_bytes",
            "Bytes of pushes kept for synchronous steps, all tables together.",
            self.kept_bytes.get(),
        );
        gauge(
            "gannet_server_kept_limit_bytes",
            "The limit of bytes of pushes kept for synchronous steps, a part of --memory-limit.",
            self.kept_limit_bytes.get(),
        );
        gauge(
            "gannet_server_unhandled_bytes",
            "Bytes of requests received and not handled.",
            self.unhandled_bytes.get(),
        );
        gauge("gannet_server_buffer_bytes", "Bytes of buffers that sessions hold.", self.buffer_bytes.get());
        gauge(
            "gannet_server_pinned_bytes",
            "Bytes of rings pinned for RDMA sessions (--rdma-memory is the limit).",
            self.pinned_bytes.get(),
        );
        gauge(
            "gannet_server_sessions_waiting_for_memory",
            "Sessions that wait for memory now.",
            self.sessions_waiting_for_memory.get(),
        );
    }

    fn write_carriers(&self, sink: &mut dyn MetricsSink) {
        for (name, over) in Carrier::NAMES.iter().zip(&self.carriers) {
            if *name == "other" && over.begun.get() == 0 {
                continue;
            }
            let labels = [("transport", *name)];
            let mut counter =
                |name, help, count: &Count| sink.counter(name, help, &labels, count.get() as f64);
            counter(
                "gannet_server_received_bytes_total",
                "Bytes of requests handled, heads included.",
                &over.received_bytes,
            );
            counter(
                "gannet_server_sent_bytes_total",
                "Bytes of answers queued, heads included. One-sided reads do not count.",
                &over.sent_bytes,
            );
            let ended = over.ended.get();
            let open = over.begun.get().saturating_sub(ended) as f64;
            sink.gauge(
                "gannet_server_sessions",
                "Open sessions by transport; a worker has one to each thread.",
                &labels,
                open,
            );
        }
    }
}

impl ServerCounters {
    pub(crate) fn new(threads: usize) -> Arc<ServerCounters> {
        let threads = (0..threads).map(|_| ThreadCounters::default()).collect();
        Arc::new(ServerCounters { since: Instant::now(), acceptor: AcceptorCounters::default(), threads })
    }

    /// Notes that the thread checks its time limits.
    pub(crate) fn tick(&self, thread: u32) {
        self.threads[thread as usize].ticked_nanos.set(self.since.elapsed().as_nanos() as u64);
    }

    /// How long ago a thread last checked its time limits. It does that each second.
    fn silent(&self, thread: &ThreadCounters) -> Duration {
        self.since.elapsed().saturating_sub(Duration::from_nanos(thread.ticked_nanos.get()))
    }

    /// A thread that is stuck or dead, and for how long.
    pub fn stuck(&self) -> Option<(usize, Duration)> {
        let silent = self.threads.iter().map(|thread| self.silent(thread)).enumerate();
        silent.max_by_key(|(_, silent)| *silent).filter(|(_, silent)| *silent > STUCK_TIME)
    }

    /// Writes all counters of all threads.
    pub fn tell(&self, sink: &mut dyn MetricsSink) {
        self.acceptor.tell(sink);
        for (number, thread) in self.threads.iter().enumerate() {
            let name = number.to_string();
            thread.tell(&name, sink);
            sink.gauge(
                "gannet_server_silent_seconds",
                "Time since a thread last checked its time limits, which it does each second.",
                &[("thread", &name)],
                self.silent(thread).as_secs_f64(),
            );
        }
        sink.gauge("gannet_server_threads", "Shard-owning threads.", &[], self.threads.len() as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_tick_is_stuck() {
        let threads = vec![ThreadCounters::default(), ThreadCounters::default()];
        let since = Instant::now().checked_sub(2 * STUCK_TIME).unwrap();
        let counters = ServerCounters { since, acceptor: AcceptorCounters::default(), threads };
        counters.tick(0);
        assert!(counters.stuck().is_some_and(|(thread, silent)| thread == 1 && silent >= 2 * STUCK_TIME));
        counters.tick(1);
        assert_eq!(counters.stuck(), None);
    }
}
