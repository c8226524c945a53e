//! What a server thread counts of its part of checkpoints.

use gannet_wire::counters::{Count, Histogram, MetricsSink};

/// The counters of the cuts of one thread.
#[derive(Debug, Default)]
pub(crate) struct CutCounters {
    /// For how long pushes were held back, a time for each cut.
    pub(crate) held: Histogram,
    /// For how long the thread read rows of a cut between requests, a time for each slice.
    pub(crate) slices: Histogram,
    /// Cuts whose rows here are all written, and cuts that were given up before.
    pub(crate) written: Count,
    pub(crate) given_up: Count,
    /// Rows that were read for cuts, and their bytes before compression.
    pub(crate) rows: Count,
    pub(crate) bytes: Count,
    /// Bytes of rows that have changed since the cut and are not written yet.
    pub(crate) saved_bytes: Count,
}

impl CutCounters {
    pub(crate) fn tell(&self, sink: &mut dyn MetricsSink) {
        sink.histogram(
            "gannet_server_cut_held_seconds",
            "Time for which a thread held pushes back for a cut of a checkpoint; a time for each cut and \
             thread.",
            &[],
            &self.held.read(),
        );
        sink.histogram(
            "gannet_server_cut_slice_seconds",
            "Uninterrupted time that a thread read rows of a cut between requests: how long a request may \
             wait while a checkpoint is written.",
            &[],
            &self.slices.read(),
        );
        for (outcome, count) in [("written", &self.written), ("given_up", &self.given_up)] {
            sink.counter(
                "gannet_server_cuts_total",
                "Cuts of a thread: written: all its rows are on the disk; given_up: the cut was given up \
                 before.",
                &[("outcome", outcome)],
                count.get() as f64,
            );
        }
        let rows = self.rows.get() as f64;
        sink.counter("gannet_server_cut_rows_total", "Rows read for checkpoints.", &[], rows);
        sink.counter(
            "gannet_server_cut_bytes_total",
            "Bytes of rows read for checkpoints, before compression.",
            &[],
            self.bytes.get() as f64,
        );
        sink.gauge(
            "gannet_server_cut_saved_bytes",
            "Bytes of rows that have changed since the cut and that no writer has taken yet; pushes wait \
             while they are too many.",
            &[],
            self.saved_bytes.get() as f64,
        );
    }
}
