//! How a worker kept step.

use crate::report::numbers::Numbers;
use crate::report::words::counted;
use serde_json::{Map, Value, json};

/// Steps (the last with a plus: or more) and pulls, where there were any.
fn by_staleness(pulls: &[u64]) -> impl Iterator<Item = (String, u64)> + '_ {
    let last = pulls.len().saturating_sub(1);
    let named = pulls.iter().enumerate().filter(|(_, pulls)| **pulls > 0);
    named.map(move |(steps, &pulls)| (format!("{steps}{}", if steps == last { "+" } else { "" }), pulls))
}

/// Merges counts into bins that double: 0, 1, 2-3, 4-7 and so on.
fn binned(pulls: &[u64]) -> Vec<(String, u64)> {
    let last = pulls.len().saturating_sub(1);
    let mut bins = Vec::new();
    let mut from = 0;
    while from < pulls.len() {
        // A bin is 0, or goes from a power of two to just before the next.
        let end = (2 * from).saturating_sub(1).max(from).min(last);
        let sum: u64 = pulls[from..=end].iter().sum();
        let name = match (from == end, end == last && last > 0) {
            (_, true) => format!("{from}+"),
            (true, _) => from.to_string(),
            _ => format!("{from}-{end}"),
        };
        bins.extend((sum > 0).then_some((name, sum)));
        from = end + 1;
    }
    bins
}

/// Adds the pulls by staleness: by how many steps the slowest worker was behind. Null without other workers.
pub fn put_staleness(report: &mut Numbers, pulls: &[u64]) {
    let named: Map<String, Value> = by_staleness(pulls).map(|(steps, pulls)| (steps, pulls.into())).collect();
    if named.is_empty() {
        return report.add("staleness", Value::Null);
    }
    let behind = |(steps, pulls)| format!("{steps} behind {}", counted(pulls, "time", "times"));
    let stale: Vec<String> = binned(pulls).into_iter().map(behind).collect();
    report.line("staleness");
    report.words("batches that the slowest worker was behind, at each pull: ");
    report.words(stale.join(", "));
    report.add("staleness", named);
}

/// Adds the examples and the rows that came after the end of their step.
pub fn put_late(report: &mut Numbers, (examples, rows): (u64, u64)) {
    report.add("dropped_late", json!({ "records": examples, "rows": rows }));
    if (examples, rows) != (0, 0) {
        report.line("late");
        report.words(format_args!(
            "batches of {examples} examples ({rows} rows) came after the end of their step and were dropped"
        ));
    }
}
