//! The report of a training of logistic regression, in words and as JSON.

use crate::report::account::Account;
use crate::report::steps::{print_steps, staleness};
use crate::report::words::{size_in_words, words};
use gannet::train::{Quality, Report};
use serde_json::{Value, json};

/// The JSON object of `train --json`. Missing numbers are null.
pub fn json(report: &Report, account: &Account) -> Value {
    let (first, test) = (report.progressive.as_ref(), report.test.as_ref());
    let mut object = json!({
        "examples": report.examples,
        "seconds": report.seconds,
        "examples_per_second": report.examples_per_second,
        "logloss": first.map(|q| q.log_loss),
        "auc": first.and_then(|q| q.auc),
        "calibration": first.and_then(Quality::calibration),
        "accuracy": first.map(|q| q.accuracy),
        "last_pass_logloss": report.last_pass,
        "one_class": first.is_some_and(|q| q.one_class().is_some()),
        "test_logloss": test.map(|q| q.log_loss),
        "test_auc": test.and_then(|q| q.auc),
        "test_calibration": test.and_then(Quality::calibration),
        "rows": report.rows,
        "bytes_per_row": report.bytes_per_row,
        "transport": report.transport,
        "push": report.push.name(),
        "format": report.format,
        "bad_lines": report.bad_lines.count,
        "not_finite": report.not_finite,
        "not_admitted": report.not_admitted,
        "staleness": staleness(&report.pulls_by_staleness),
        "dropped_late": { "records": report.dropped_late.0, "rows": report.dropped_late.1 },
        "wire": report.wire.map(|wire| json!({
            "requests": wire.frames_sent,
            "sent_bytes": wire.bytes_sent,
            "received_bytes": wire.bytes_received,
        })),
        "cache": report.wire.filter(|wire| wire.cache_hits + wire.cache_requested > 0).map(|wire| json!({
            "had": wire.cache_hits,
            "same": wire.cache_same,
            "sent": wire.cache_requested - wire.cache_same,
            "refreshed": wire.cache_refreshed,
        })),
        "stopped": report.stopped,
    });
    account.put(&mut object);
    object
}

/// Prints the report of a training.
pub fn print(report: &Report) {
    say!(
        "{} examples in {:.2} s, {:.0} examples/s ({}, {}, {})",
        report.examples,
        report.seconds,
        report.examples_per_second,
        report.transport,
        report.push.name(),
        report.format
    );
    if let Some(quality) = &report.progressive {
        say!("progressive  {}", words(quality));
    }
    if let Some(loss) = report.last_pass.filter(|_| report.passes > 1) {
        say!("last pass    log loss {loss:.6}");
    }
    if let Some(quality) = &report.test {
        say!("test         {}", words(quality));
    }
    say!("table        {}", size_in_words(report.rows, report.bytes_per_row));
    print_steps(&report.pulls_by_staleness, report.dropped_late);
    if let Some(wire) = report.wire.filter(|wire| wire.cache_hits + wire.cache_requested > 0) {
        let rows = wire.cache_hits + wire.cache_requested;
        let percent = |rows_of: u64| 100.0 * rows_of as f64 / rows.max(1) as f64;
        say!(
            "cache        {rows} rows pulled: {:.1} % cached, {:.1} % validated as unchanged, {:.1} % sent",
            percent(wire.cache_hits),
            percent(wire.cache_same),
            percent(wire.cache_requested - wire.cache_same)
        );
        if wire.cache_refreshed > 0 {
            say!("             {} rows sent without a request (--active-pull)", wire.cache_refreshed);
        }
    }
    if report.not_admitted > 0 {
        say!("admission    {} pushes to keys without a row were not admitted", report.not_admitted);
    }
    if report.not_finite > 0 {
        say!(
            "dropped      {} rows whose update was NaN or infinite: a smaller --alpha may help",
            report.not_finite
        );
    }
}

/// Prints the report of a worker that neither tests nor saves.
pub fn print_or_json(as_json: bool, report: &Report, account: &Account) {
    if as_json {
        say!("{}", json(report, account));
    } else {
        print(report);
    }
}
