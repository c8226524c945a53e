//! A table's counters on one of a server's threads.

use gannet_core::{Applied, Evicted, Shards};
use gannet_wire::counters::{Buckets, Count, Histogram, MetricsSink, Outcomes};
use std::time::Duration;

/// One table's counters on one thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct TableCounters {
    pub(crate) name: String,
    pub(crate) pulled_rows: Count,
    /// Rows of pulls that were not sent because the worker's copy had not changed.
    pub(crate) spared_rows: Count,
    /// Subscribed rows that were sent because they had changed.
    pub(crate) delta_rows: Count,
    pub(crate) scanned_rows: Count,
    /// Parts of pushes handled, and those of them that the shards had applied before, in part or whole.
    pub(crate) parts: Count,
    pub(crate) duplicate_parts: Count,
    /// Rows of pushes, by outcome.
    pub(crate) pushed: Outcomes,
    /// Rows that arrived after their step had been applied without them; bytes of pushes that wait for their step.
    pub(crate) late_rows: Count,
    pub(crate) kept_bytes: Count,
    /// Rows that were evicted, by reason.
    pub(crate) evicted_after: Count,
    pub(crate) evicted_below: Count,
    pub(crate) evicted_capacity: Count,
    /// Sizes at the last tick.
    pub(crate) rows: Count,
    pub(crate) bytes: Count,
    /// Time that growth has cost the thread, up to the last tick, and which thread prepared its steps.
    pub(crate) growth: Histogram,
    pub(crate) growth_longest_nanos: Count,
    pub(crate) grown_by_owner: Count,
    pub(crate) grown_by_grower: Count,
}

impl TableCounters {
    /// Copies the numbers of the shards.
    pub(crate) fn note(&self, shards: &Shards) {
        let (stats, growth) = (shards.stats(), shards.growth());
        self.rows.set(stats.rows);
        self.bytes.set(stats.bytes);
        self.growth.replace(&Buckets { counts: growth.stalls, sum_nanos: growth.total.as_nanos() as u64 });
        self.growth_longest_nanos.set(growth.longest.as_nanos() as u64);
        self.grown_by_owner.set(growth.by_owner);
        self.grown_by_grower.set(growth.by_grower);
    }

    /// Counts a push.
    pub(crate) fn count(&self, applied: &Applied) {
        self.parts.add(1);
        self.duplicate_parts.add(u64::from(applied.duplicate > 0));
        self.pushed.count(applied);
    }

    /// Counts rows that were evicted.
    pub(crate) fn count_evicted(&self, evicted: &Evicted) {
        self.evicted_after.add(evicted.after);
        self.evicted_below.add(evicted.below);
        self.evicted_capacity.add(evicted.capacity);
    }

    pub(crate) fn tell(&self, thread: &str, sink: &mut dyn MetricsSink) {
        let labels = [("table", self.name.as_str())];
        let mut counter = |name, help, count: &Count| sink.counter(name, help, &labels, count.get() as f64);
        counter("gannet_table_pulled_rows_total", "Rows answered to pulls.", &self.pulled_rows);
        counter(
            "gannet_table_spared_rows_total",
            "Rows of pulls that were not sent because the worker's copy is current.",
            &self.spared_rows,
        );
        counter(
            "gannet_table_delta_rows_total",
            "Changed rows sent to workers that have subscribed to them (--active-pull).",
            &self.delta_rows,
        );
        counter("gannet_table_scanned_rows_total", "Rows answered to scans.", &self.scanned_rows);
        counter("gannet_table_pushed_parts_total", "Parts of pushes handled.", &self.parts);
        counter(
            "gannet_table_duplicate_parts_total",
            "Parts that the shards had applied before, in part or whole; a lost link causes some.",
            &self.duplicate_parts,
        );
        self.tell_pushed(sink);
        self.tell_evicted(sink);
        sink.counter(
            "gannet_table_late_rows_total",
            "Rows of pushes that came after their synchronous step was applied without them: dropped.",
            &labels,
            self.late_rows.get() as f64,
        );
        sink.gauge(
            "gannet_table_kept_bytes",
            "Bytes of pushes that wait until their synchronous step is complete.",
            &labels,
            self.kept_bytes.get() as f64,
        );
        sink.gauge("gannet_table_rows", "Live rows.", &labels, self.rows.get() as f64);
        sink.gauge(
            "gannet_table_bytes",
            "Bytes of memory or disk: headers, indexes, rows.",
            &labels,
            self.bytes.get() as f64,
        );
        sink.histogram(
            "gannet_table_growth_seconds",
            "Uninterrupted time that a serving thread spent on growing the table.",
            &labels,
            &self.growth.read(),
        );
        sink.gauge(
            "gannet_table_growth_longest_seconds",
            "The longest uninterrupted time that a serving thread spent on growing the table.",
            &[labels[0], ("thread", thread)],
            Duration::from_nanos(self.growth_longest_nanos.get()).as_secs_f64(),
        );
        for (by, count) in [("grower", &self.grown_by_grower), ("owner", &self.grown_by_owner)] {
            sink.counter(
                "gannet_table_growth_steps_total",
                "Growth steps, by who prepared them: the grower ahead of time, or the owner itself.",
                &[labels[0], ("by", by)],
                count.get() as f64,
            );
        }
    }

    fn tell_pushed(&self, sink: &mut dyn MetricsSink) {
        for (outcome, count) in self.pushed.named() {
            sink.counter(
                "gannet_table_pushed_rows_total",
                "Rows of pushes: applied; duplicate (a resend, not applied again); not_finite (NaN, infinite \
                 or beyond the row type, dropped); not_admitted (not created); refused (a change of a row that \
                 had died, dropped).",
                &[("table", self.name.as_str()), ("outcome", outcome)],
                count.get() as f64,
            );
        }
    }

    fn tell_evicted(&self, sink: &mut dyn MetricsSink) {
        for (reason, count) in [
            ("after", &self.evicted_after),
            ("below", &self.evicted_below),
            ("capacity", &self.evicted_capacity),
        ] {
            sink.counter(
                "gannet_table_evicted_rows_total",
                "Rows that have died: after (not pushed for --evict-after), below (weights below --evict-below), \
                 capacity (pushed least recently while the table had more than --capacity).",
                &[("table", self.name.as_str()), ("reason", reason)],
                count.get() as f64,
            );
        }
    }
}
