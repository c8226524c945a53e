//! Prints the report of a training of any model but lda, by gradients.

use crate::flags::ModelName;
use crate::report::account::Account;
use crate::report::measures::{put_line, put_quality};
use crate::report::numbers::Numbers;
use crate::report::steps::{put_late, put_staleness};
use crate::report::words::put_size;
use gannet::train::Report;
use gannet::train::models::Measured;
use gannet::worker::Counters;
use serde_json::{Map, Value, json};

/// A report in the making, and what it is of.
struct Page<'a> {
    of: &'a Report,
    /// Whether it is of logistic regression.
    lr: bool,
    numbers: Numbers,
}

/// Prints the report of a training of this model, as JSON or as text. `weights`: by feature, of a model with few.
/// `more` comes at its end.
pub fn print_report(
    (model, epochs, is_json): (ModelName, u32, bool),
    (of, account): (&Report, &Account),
    weights: &[(String, f32)],
    more: Numbers,
) {
    let lr = model == ModelName::Lr;
    let mut page = Page { of, lr, numbers: Numbers::default() };
    page.put_speed();
    page.put_quality(epochs > 1);
    let report = &mut page.numbers;
    put_size(report, if lr { "table" } else { "tables" }, of.rows, of.bytes);
    if !weights.is_empty() {
        let each: Vec<String> = weights.iter().map(|(name, weight)| format!("{name} {weight:.5}")).collect();
        report.line("weights");
        report.words(each.join("  "));
        let object: Map<String, Value> = weights.iter().map(|(n, w)| (n.clone(), json!(w))).collect();
        report.add("weights", object);
    }
    put_staleness(report, &of.pulls_by_staleness);
    put_late(report, of.dropped_late);
    match lr {
        true => put_wire(report, of.wire.as_ref()),
        false => report.add("model", format!("{model:?}").to_lowercase()),
    }
    page.put_dropped();
    let mut report = page.numbers;
    report.add("stopped", of.stopped);
    let more = report.take(more);
    report.add_all(more);
    account.put(&mut report);
    report.print(is_json);
}

impl Page<'_> {
    fn put_speed(&mut self) {
        let Page { of, lr, numbers: report } = self;
        report.line("");
        report.show("examples", of.examples, " examples in ");
        report.show_float("seconds", of.seconds, 2, " s, ");
        report.show_float("examples_per_second", of.examples_per_second(), 0, " examples/s");
        if !*lr {
            report.add("steps", of.steps);
            report.words(", ");
            report.show_float("steps_per_second", of.steps as f64 / of.seconds, 0, " steps/s");
        }
        report.words(" (");
        report.show("transport", of.transport.as_str(), ", ");
        report.show("push", of.push.name(), ", ");
        report.show("format", of.format, ")");
    }

    /// Adds the qualities. With one pass the text does not repeat that of the last one.
    fn put_quality(&mut self, passes: bool) {
        let Page { of, lr, numbers: report } = self;
        let (progressive, last) = (of.progressive.as_ref(), of.last_pass.as_ref());
        put_line(report, "progressive", "", progressive, *lr);
        match (*lr, passes) {
            (true, _) => {
                if let Some(loss) = of.last_loss.filter(|_| passes) {
                    report.line("last pass");
                    report.words(format_args!("log loss {loss:.6}"));
                }
                report.add("last_pass_logloss", of.last_loss);
            }
            (false, true) => put_line(report, "last pass", "last_pass_", last, false),
            (false, false) => {
                let mut hidden = Numbers::default();
                put_quality(&mut hidden, "last_pass_", last, false);
                report.add_all(hidden.object());
            }
        }
        put_line(report, "test", "test_", of.test.as_ref(), *lr);
        match progressive.and_then(Measured::click) {
            Some(quality) => report.add("one_class", quality.one_class().is_some()),
            None if *lr => report.add("one_class", false),
            None => {}
        }
    }

    fn put_dropped(&mut self) {
        let Page { of, lr, numbers: report } = self;
        report.add("bad_lines", of.bad_lines.count);
        report.add_all(json!({ "not_admitted": of.not_admitted, "not_finite": of.not_finite }));
        report.add_all(json!({ "evicted": of.evicted, "refused": of.refused }));
        if of.evicted > 0 {
            report.line("eviction");
            report.words(format_args!("{} rows have died", of.evicted));
        }
        if of.refused > 0 {
            report.line("refused");
            report.words(format_args!("{} changes of rows that had died after they were pulled", of.refused));
        }
        if of.not_admitted > 0 {
            report.line("admission");
            report.words(format_args!("{} pushes to keys without a row were not admitted", of.not_admitted));
        }
        if of.not_finite > 0 {
            let what = match *lr {
                true => "rows whose update was NaN or infinite",
                false => "examples or rows whose update was NaN, infinite or beyond the range of --row-type",
            };
            report.line("dropped");
            report.words(format_args!("{} {what}: a smaller --alpha may help", of.not_finite));
        }
    }
}

/// Adds what went over the wire, and what the cache has spared.
fn put_wire(report: &mut Numbers, wire: Option<&Counters>) {
    let sent = wire.map(|wire| {
        json!({
            "requests": wire.frames_sent,
            "sent_bytes": wire.bytes_sent,
            "received_bytes": wire.bytes_received,
        })
    });
    report.add("wire", sent);
    let Some(wire) = wire.filter(|wire| wire.cache_hits + wire.cache_requested > 0) else {
        return report.add("cache", Value::Null);
    };
    let (had, same, sent) = (wire.cache_hits, wire.cache_same, wire.cache_requested - wire.cache_same);
    let rows = wire.cache_hits + wire.cache_requested;
    let percent = |of: u64| 100.0 * of as f64 / rows as f64;
    let refreshed = wire.cache_refreshed;
    report.add("cache", json!({ "had": had, "same": same, "sent": sent, "refreshed": refreshed }));
    report.line("cache");
    report.words(format_args!(
        "{rows} rows pulled: {:.1} % cached, {:.1} % validated as unchanged, {:.1} % sent",
        percent(had),
        percent(same),
        percent(sent)
    ));
    if refreshed > 0 {
        report.line(" ");
        report.words(format_args!("{refreshed} rows sent without a request (--active-pull)"));
    }
}
