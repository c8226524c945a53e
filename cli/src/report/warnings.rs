//! Warnings about a model or its data.

use crate::input;
use crate::train::normalize;
use gannet::train::{BadLines, Columns, Options, Quality, ScaleKind};

/// So many examples a worker of a job must have read without a feature of a cross before it warns: the features may be
/// in the data of the others.
const EXAMPLES_WITHOUT_CROSS: u64 = 1_000;

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

/// How much lower the loss of the last pass must be than that of the first for a warning.
const FITS_BETTER: f64 = 0.1;

/// Warns if the last of several passes fits the data much better than the first, and nothing says whether it predicts
/// better, too: a pass predicts each example before it learns it, but a later one has learned it before.
pub fn warn_of_passes(first: Option<f64>, last: Option<f64>) {
    let (Some(first), Some(last)) = (first, last) else { return };
    let better = 1.0 - last / first;
    if better > FITS_BETTER {
        notice!(
            "gannet: the last pass fits the data {:.0}% better than the first. Part of that may be learned by heart: \
             hold back data (--test, or --validate with --patience) to see what it is worth, or train fewer passes",
            better * 100.0
        );
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
        None if normalize::is_on() => format!("{slowly}, or check the labels"),
        None => format!("{large} when the data is made, or {slowly}"),
        Some(columns) if columns.numbers().next().is_none() => format!(
            "{slowly}, or look at the columns: all are read as categories (--numeric names columns of numbers)"
        ),
        Some(columns) if columns.scale.kind == ScaleKind::None && normalize::is_on() => {
            format!("{slowly}, or check the type of each column")
        }
        Some(columns) if columns.scale.kind == ScaleKind::None => {
            format!("{large} (--scale standard), or {slowly}")
        }
        Some(columns) => format!(
            "the numbers are scaled already (--scale {}): {slowly}, or check the role of each column",
            columns.scale.kind.name()
        ),
    }
}

/// Warns of crosses that have made no feature: their names may be spelt wrong.
pub fn warn_of_crosses(options: &Options) {
    let has_all = options.share.workers == 1 && options.splits.is_none();
    let least = if has_all { 1 } else { EXAMPLES_WITHOUT_CROSS };
    let Some((crosses, examples)) = options.data.fields.unmade(least) else { return };
    for cross in crosses {
        notice!(
            "gannet: the cross {cross} made no feature in the {examples} examples that were read: none has a feature \
             of each of its fields; see how the data spells their names, and correct --cross, -q or --cubic"
        );
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
