//! The report and the progress of a training, in words and as JSON.

use crate::flags::{JobName, TrainArgs};
use crate::runs::in_run::Account;
use crate::{input, log};
use gannet::train::{BadLines, Columns, Progress, Quality, Report, ScaleKind};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// The JSON object of `train --json`. Missing numbers are null.
pub fn json(report: &Report, test: Option<&Quality>, account: &Account) -> Value {
    let first = report.progressive.as_ref();
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

/// The number of pulls by staleness: by how many steps the slowest worker was behind. Null without other workers.
pub fn staleness(pulls: &[u64]) -> Value {
    let named = by_staleness(pulls).map(|(steps, pulls)| (steps, pulls.into()));
    let named: serde_json::Map<String, Value> = named.collect();
    if named.is_empty() { Value::Null } else { named.into() }
}

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

/// Prints how a worker kept step. Prints nothing without other workers. `late`: examples and rows.
pub fn print_steps(pulls_by_staleness: &[u64], late: (u64, u64)) {
    let behind = |(steps, pulls)| format!("{steps} behind {}", counted(pulls, "time", "times"));
    let stale: Vec<String> = binned(pulls_by_staleness).into_iter().map(behind).collect();
    if !stale.is_empty() {
        say!("staleness    batches that the slowest worker was behind, at each pull: {}", stale.join(", "));
    }
    if late != (0, 0) {
        let (examples, rows) = late;
        say!(
            "late         batches of {examples} examples ({rows} rows) came after the end of their step and were dropped"
        );
    }
}

/// A number and its noun, in the singular or plural.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Below this number of rows the fixed size of a table dominates, so bytes a row say nothing about larger tables.
const ROWS_TO_MEASURE: u64 = 10_000;

/// The size of a table in words.
pub fn size_in_words(rows: u64, bytes_per_row: f64) -> String {
    match rows >= ROWS_TO_MEASURE {
        true => format!("{rows} rows, {bytes_per_row:.1} bytes a row"),
        false => format!("{rows} rows"),
    }
}

/// Prints the report of a training.
pub fn print(report: &Report, test: Option<&Quality>) {
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
    if let Some(quality) = test {
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

/// The quality in words.
pub fn words(q: &Quality) -> String {
    let auc = q.auc.map_or("-".into(), |auc| format!("{auc:.5}"));
    let calibration = q.calibration().map_or("-".into(), |c| format!("{c:.4}"));
    format!("log loss {:.6}  AUC {auc}  calibration {calibration}  accuracy {:.4}", q.log_loss, q.accuracy)
}

/// Warns if predictions of clicks are useless: there is one class only, or the loss is worse than that of predicting
/// the mean.
pub fn warn_of_quality(first: Option<&Quality>, test: Option<&Quality>, columns: Option<&Columns>) {
    if let Some(label) = first.and_then(Quality::one_class) {
        return warn_of_one_class(label);
    }
    // Learning the mean costs some loss at first (Krichevsky and Trofimov 1981).
    let first = first.map(|q| {
        let price = (0.5 * (q.examples.max(1) as f64).ln() + 1.0) / q.examples.max(1) as f64;
        ("progressive", q.log_loss, q.loss_of_mean(), price)
    });
    let test = test.filter(|q| q.one_class().is_none());
    let test = test.map(|q| ("test", q.log_loss, q.loss_of_mean(), 0.0));
    let worse = |&(_, loss, mean, price): &(&str, f64, f64, f64)| is_worse((loss, mean), price);
    if let Some((which, loss, mean, price)) = test.into_iter().chain(first).find(worse) {
        warn_of_loss((which, "log loss"), (loss, mean), price, columns);
    }
}

/// Warns that all examples had the same label.
pub fn warn_of_one_class(label: u8) {
    let what = match (input::known_two(), label) {
        (Some(two), 0) => format!(
            "every example that this process learned had the label {:?}, and none {:?} (--positive)",
            two.other().unwrap_or_default(),
            two.positive()
        ),
        (Some(two), _) => format!("every example had the label {:?} (--positive)", two.positive()),
        (None, _) => format!("every example had the label {label}"),
    };
    notice!(
        "gannet: {what}: a model of one class is useless; check whether lines were skipped, and which \
         column is the label"
    );
}

/// Warns a worker that is not the chief. Another worker may have read the missing class.
pub fn warn_of_no_positive(examples: u64) {
    if let Some(two) = input::known_two().filter(|two| examples > 0 && !two.positive_occurred()) {
        notice!(
            "gannet: no label that this worker read was {:?} (--positive): see how the data writes it",
            two.positive()
        );
    }
}

/// Whether a loss is worse than that of predicting the mean. NaN is.
fn is_worse((loss, mean): (f64, f64), price: f64) -> bool {
    loss.is_nan() || loss > mean + price
}

/// Warns of a loss that is worse than that of predicting the mean.
pub fn warn_of_loss(
    (which, name): (&str, &str),
    (loss, mean): (f64, f64),
    price: f64,
    columns: Option<&Columns>,
) {
    if !is_worse((loss, mean), price) {
        return;
    }
    let remedy = less_loss(columns);
    notice!(
        "gannet: the {which} {name}, {loss:.6}, is worse than {mean:.6}, that of predicting the mean label for every \
         example; {remedy}"
    );
}

/// Advice against a loss that is too high.
fn less_loss(columns: Option<&Columns>) -> String {
    let large = "numbers that are large or far apart may be the reason: scale them";
    let slowly = "learn more slowly (a lower --alpha)";
    match columns {
        None => format!("{large} when the data is made, or {slowly}"),
        Some(columns) if columns.numeric.is_empty() => format!(
            "{slowly}, or look at the columns: all are read as categories (--numeric names columns of numbers)"
        ),
        Some(columns) if columns.scale.kind == ScaleKind::None => {
            format!("{large} (--scale standard), or {slowly}")
        }
        Some(columns) => format!(
            "the numbers are scaled already (--scale {}): {slowly}, or check the role of each column",
            columns.scale.kind.name()
        ),
    }
}

/// Warns of skipped lines.
pub fn warn_of_bad_lines(bad: &BadLines) {
    if bad.count > 0 {
        let (s, were) = if bad.count == 1 { ("", "was") } else { ("s", "were") };
        notice!("gannet: {} bad line{s} {were} skipped (--skip-bad-lines):", bad.count);
        bad.first.iter().for_each(|line| notice!("  {line}"));
    }
}

fn log_progress(p: &Progress, epochs: u32, examples_per_second: f64) {
    let Progress { examples, bytes_read, bytes_total, log_loss, auc, .. } = *p;
    let epoch = p.epoch + 1;
    tracing::info!(
        target: "gannet::progress",
        epoch, epochs, examples, examples_per_second, bytes_read, bytes_total, log_loss, auc, "training"
    );
}

/// Shows progress: a bar on a terminal, elsewhere a line every few seconds (an object with `--log-json`). Shows
/// nothing with `--json`.
pub struct ProgressDisplay {
    bar: Option<ProgressBar>,
    quiet: bool,
    /// The words after the number of examples.
    whose: &'static str,
    last_line: Instant,
    started: bool,
}

/// The start of a progress line: the part that was read.
pub fn read(part: Option<f64>) -> String {
    part.map_or(String::new(), |part| format!("read {:.0}% of ", part * 100.0))
}

const LINE_EVERY: Duration = Duration::from_secs(5);

impl ProgressDisplay {
    /// A display for a training with these flags.
    pub fn of(args: &TrainArgs) -> ProgressDisplay {
        let quiet = args.json;
        let of_many = args.job.job_name == Some(JobName::Worker) && args.job.worker_hosts.len() > 1;
        let whose = if of_many { "by this worker" } else { "learned" };
        let bar = (!quiet && !log::is_json() && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{wide_bar} {msg}");
            ProgressBar::new(1000).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        ProgressDisplay { bar, quiet, whose, last_line: Instant::now(), started: false }
    }

    /// The number of learned examples, in words.
    pub fn learned(&self, examples: u64) -> String {
        format!("{} {}", counted(examples, "example", "examples"), self.whose)
    }

    /// Shows the progress of a training.
    pub fn update(&mut self, p: &Progress, epochs: u32) {
        let part = p.bytes_total.filter(|&t| t > 0).map(|total| p.bytes_read as f64 / total as f64);
        let speed = p.examples as f64 / p.seconds.max(1e-9);
        let pass = p.epoch + 1;
        // Later passes have no AUC of their own.
        let auc = p.auc.filter(|_| pass == 1).map_or(String::new(), |auc| format!("  AUC {auc:.4}"));
        let (read, learned) = (read(part), self.learned(p.examples));
        let text = format!(
            "{read}pass {pass} of {epochs}  {learned}  {speed:.0}/s  log loss of pass {pass} {:.5}{auc}",
            p.log_loss
        );
        self.show(part, text, || log_progress(p, epochs, speed));
    }

    /// Shows the part that is done: on the bar, as the line `text`, or through `log` with `--log-json`.
    pub fn show(&mut self, part: Option<f64>, text: String, log: impl FnOnce()) {
        if self.quiet {
            return;
        }
        match &self.bar {
            Some(bar) => {
                bar.set_position((part.unwrap_or(0.0) * 1000.0) as u64);
                bar.set_message(text);
            }
            None if !self.started || self.last_line.elapsed() >= LINE_EVERY => {
                self.last_line = Instant::now();
                self.started = true;
                if log::is_json() {
                    return log();
                }
                notice!("{text}");
            }
            None => {}
        }
    }

    /// Removes the bar.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Prints the report of a worker that neither tests nor saves.
pub fn print_or_json(as_json: bool, report: &Report, account: &Account) {
    if as_json {
        say!("{}", json(report, None, account));
    } else {
        print(report, None);
    }
}
