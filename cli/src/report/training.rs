//! The results of a training of any model, and their report.

use crate::flags::TrainArgs;
use crate::report::account::Account;
use crate::report::measures::{measured, put_line, put_quality};
use crate::report::numbers::Numbers;
use crate::report::steps::{put_late, put_staleness};
use crate::report::words::put_size;
use gannet::train::Report;
use gannet::train::models::{Fitted, Measured};
use gannet::worker::Counters;
use serde_json::{Map, Value, json};

/// The results of a training.
pub struct Results {
    pub of: Fitted,
    /// What only logistic regression has.
    lr: Option<LrResults>,
}

struct LrResults {
    /// Log loss of the latest pass, where each example is predicted before it is learned.
    last_pass: Option<f64>,
    /// What went over the wire. `None` where the rows are in this process.
    wire: Option<Counters>,
}

impl From<Fitted> for Results {
    fn from(of: Fitted) -> Results {
        Results { of, lr: None }
    }
}

impl From<Report> for Results {
    fn from(report: Report) -> Results {
        let of = Fitted {
            examples: report.examples,
            steps: 0,
            seconds: report.seconds,
            progressive: report.progressive.map(measured),
            last_pass: None,
            test: report.test.map(measured),
            rows: report.rows,
            bytes: report.bytes,
            transport: report.transport,
            push: report.push,
            format: report.format,
            columns: report.columns,
            batches: report.batches,
            bad_lines: report.bad_lines,
            not_finite: report.not_finite,
            not_admitted: report.not_admitted,
            pulls_by_staleness: report.pulls_by_staleness,
            dropped_late: report.dropped_late,
            stopped: report.stopped,
        };
        Results { of, lr: Some(LrResults { last_pass: report.last_pass, wire: report.wire }) }
    }
}

impl Results {
    /// Prints the report. `weights`: by feature, of a model with few.
    pub fn print(
        &self,
        args: &TrainArgs,
        account: &Account,
        weights: &[(String, f32)],
        validations: Option<Vec<Value>>,
    ) {
        let (of, lr, mut report) = (&self.of, self.lr.as_ref(), Numbers::default());
        self.put_speed(&mut report);
        self.put_quality(&mut report, args.epochs > 1);
        put_size(&mut report, if lr.is_some() { "table" } else { "tables" }, of.rows, of.bytes);
        if !weights.is_empty() {
            let each: Vec<String> =
                weights.iter().map(|(name, weight)| format!("{name} {weight:.5}")).collect();
            report.line("weights");
            report.words(each.join("  "));
            let object: Map<String, Value> = weights.iter().map(|(n, w)| (n.clone(), json!(w))).collect();
            report.add("weights", object);
        }
        put_staleness(&mut report, &of.pulls_by_staleness);
        put_late(&mut report, of.dropped_late);
        match lr {
            Some(lr) => put_wire(&mut report, lr.wire.as_ref()),
            None => report.add("model", format!("{:?}", args.model.model).to_lowercase()),
        }
        self.put_dropped(&mut report);
        report.add("stopped", of.stopped);
        if let Some(validations) = validations {
            report.add("validations", validations);
        }
        account.put(&mut report);
        report.print(args.json);
    }

    fn put_speed(&self, report: &mut Numbers) {
        let of = &self.of;
        report.line("");
        report.show("examples", of.examples, " examples in ");
        report.show_float("seconds", of.seconds, 2, " s, ");
        report.show_float("examples_per_second", of.examples as f64 / of.seconds, 0, " examples/s");
        if self.lr.is_none() {
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
    fn put_quality(&self, report: &mut Numbers, passes: bool) {
        let of = &self.of;
        let progressive = of.progressive.as_ref();
        put_line(report, "progressive", "", progressive, self.lr.is_some());
        match (&self.lr, &of.last_pass) {
            (Some(lr), _) => {
                if let Some(loss) = lr.last_pass.filter(|_| passes) {
                    report.line("last pass");
                    report.words(format_args!("log loss {loss:.6}"));
                }
                report.add("last_pass_logloss", lr.last_pass);
            }
            (None, last) if passes => put_line(report, "last pass", "last_pass_", last.as_ref(), false),
            (None, last) => {
                let mut hidden = Numbers::default();
                put_quality(&mut hidden, "last_pass_", last.as_ref(), false);
                report.add_all(hidden.object());
            }
        }
        put_line(report, "test", "test_", of.test.as_ref(), self.lr.is_some());
        match progressive {
            Some(Measured::Click(quality)) => report.add("one_class", quality.one_class().is_some()),
            _ if self.lr.is_some() => report.add("one_class", false),
            _ => {}
        }
    }

    fn put_dropped(&self, report: &mut Numbers) {
        let of = &self.of;
        report.add("bad_lines", of.bad_lines.count);
        report.add_all(json!({ "not_admitted": of.not_admitted, "not_finite": of.not_finite }));
        if of.not_admitted > 0 {
            report.line("admission");
            report.words(format_args!("{} pushes to keys without a row were not admitted", of.not_admitted));
        }
        if of.not_finite > 0 {
            let what = match self.lr {
                Some(_) => "rows whose update was NaN or infinite",
                None => "examples or rows whose update was NaN, infinite or beyond the range of --row-type",
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
