//! `gannet inspect`: what a model has learned. The largest weights by the names of their features, and what each field
//! has.

use crate::failure::Failure;
use crate::flags::InspectArgs;
use crate::input;
use crate::model::same_reading::read_as;
use crate::report::numbers::Numbers;
use gannet::storage::Checkpoint;
use gannet::train::models::{Model, Objective};
use gannet::train::saved::NAMES;
use gannet::train::saved::{SavedModel, load_model};
use gannet::train::{FeatureNames, INTERCEPT_KEY, Normalization, SavedTables, ScaleKind};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// The most fields that are shown.
const FIELDS_SHOWN: usize = 40;

/// What the row of a feature says.
struct Learned {
    key: u64,
    /// The weight; of several classes the one that is farthest from 0.
    weight: f32,
    /// The class of that weight.
    class: usize,
    /// The length of the vector of factors.
    length: f32,
}

/// What the features of one field have learned.
#[derive(Default)]
struct OfField {
    features: u64,
    zeros: u64,
    largest: f32,
    squares: f64,
}

/// Runs the command.
pub fn run_inspect(args: &InspectArgs) -> Result<(), Failure> {
    let SavedModel { scorer, reading, kind, rows: count } = load_model(&args.model)?;
    let (model, tables) = scorer.into_tables();
    let mut rows: Vec<Learned> = learned(&*model, &tables);
    rows.sort_by(|a, b| b.size().total_cmp(&a.size()).then(a.key.cmp(&b.key)));
    let keys: HashSet<u64> = rows.iter().map(|row| row.key).collect();
    let is_learned = |key: u64| keys.contains(&key);
    let mut data = input::data(&args.data, &args.input, reading.intercept)?;
    let names = match args.data.is_empty() {
        true => kept_names(&args.model)?,
        false => {
            read_as(&reading, &mut data, &args.model, &args.input)?;
            if !model.task().is_of_two() {
                data.labels = model.task().labels();
            }
            Some(FeatureNames::of(&data, &is_learned).map_err(|e| Failure::input(e.to_string()))?)
        }
    };
    // With --scale the values are not those of DATA before they are normalized.
    let is_scaled = reading.columns.as_ref().is_some_and(|columns| columns.scale.kind != ScaleKind::None);
    let known = reading.normalize.known().filter(|_| !is_scaled);
    let mut report = Numbers::default();
    put_model(&mut report, args, (&kind, reading.format_name()), (&rows, count, known));
    let top = rows.iter().filter(|row| row.key != INTERCEPT_KEY && row.size() > 0.0).take(args.top as usize);
    let classes = matches!(model.task(), Objective::Class(_));
    report.list("features", top.map(|row| of_feature(row, names.as_ref(), known, classes)));
    if let Some(names) =
        names.as_ref().filter(|names| rows.iter().any(|row| names.field_of(row.key).is_some()))
    {
        put_fields(&mut report, &rows, names);
    } else if !args.json && names.is_none() {
        report.say(
            "name DATA to see the names of features: gannet inspect MODEL DATA; train --keep-names keeps them in the \
             model",
        );
    }
    report.print(args.json);
    Ok(())
}

/// The names that the model keeps (`--keep-names`).
fn kept_names(folder: &Path) -> Result<Option<FeatureNames<'static>>, Failure> {
    let model = Checkpoint::open_to_read(folder)?;
    let Some(lines) = model.note(NAMES) else { return Ok(None) };
    let damaged = || Failure::input(format!("{}: the names of its features are damaged", folder.display()));
    FeatureNames::of_lines(lines).map(Some).ok_or_else(damaged)
}

impl Learned {
    fn size(&self) -> f32 {
        self.weight.abs().max(self.length)
    }
}

/// The rows of a model's features.
fn learned(model: &dyn Model, tables: &SavedTables) -> Vec<Learned> {
    let is_of_classes = matches!(model.task(), Objective::Class(_));
    let row = |(key, weights): (u64, &[f32])| {
        if is_of_classes {
            let farther = |a: usize, b: usize| if weights[b].abs() > weights[a].abs() { b } else { a };
            let class = (1..weights.len()).fold(0, farther);
            return Learned { key, weight: weights[class], class, length: 0.0 };
        }
        let length = weights[1..].iter().map(|v| v * v).sum::<f32>().sqrt();
        Learned { key, weight: weights[0], class: 0, length }
    };
    tables.rows(0).map(row).collect()
}

fn put_model(
    report: &mut Numbers,
    args: &InspectArgs,
    (kind, format): (&str, &str),
    (rows, count, known): (&[Learned], u64, Option<&Normalization>),
) {
    // Of a logistic regression only the weights that are not 0 are read.
    let zeros = count - rows.iter().filter(|row| row.weight != 0.0).count() as u64;
    let (keys, mut weights): (Vec<u64>, Vec<f32>) = rows.iter().map(|row| (row.key, row.weight)).unzip();
    if let Some(known) = known {
        known.measured_as_given(&keys, &mut weights);
    }
    let intercept = keys.iter().position(|&key| key == INTERCEPT_KEY);
    report.line("model");
    report.show("model", kind, " in ");
    report.words(format_args!("{}, trained on {format}", args.model.display()));
    report.line("rows");
    report.show("rows", count, ", of which ");
    report.show("zero_weights", zeros, " have the weight 0");
    if let Some(intercept) = intercept {
        report.line("intercept");
        report.show_float("intercept", f64::from(weights[intercept]), 5, "");
    }
    if known.is_some_and(|known| !known.features().is_empty()) {
        report.say(
            "weights are for values of one size, as they are learned; \"per unit\" and the intercept are for values as \
             DATA has them",
        );
    }
}

/// The line of a feature.
fn of_feature(
    row: &Learned,
    names: Option<&FeatureNames<'_>>,
    known: Option<&Normalization>,
    classes: bool,
) -> Numbers {
    let name = names.map_or_else(|| row.key.to_string(), |names| names.name(row.key));
    let mut line = Numbers::default();
    line.words(format_args!("{:>12.5}  ", row.weight));
    line.add("weight", f64::from(row.weight));
    if row.length > 0.0 {
        line.words(format_args!("|v| {:<9.5}", row.length));
        line.add("factors", f64::from(row.length));
    }
    line.show("name", name, "");
    line.add("key", row.key);
    if classes {
        line.words("  for class ");
        line.show("class", row.class as u64, "");
    }
    if let Some(feature) = known.and_then(|known| known.feature(row.key)) {
        let unit = f64::from(row.weight) * f64::from(feature.factor);
        line.words(if feature.unit > 0.0 { "  per unit of the logarithm " } else { "  per unit " });
        line.add("per_unit", unit);
        line.words(format_args!("{unit:.6}"));
    }
    line
}

/// The lines of the fields, those with the longest weights first.
fn put_fields(report: &mut Numbers, rows: &[Learned], names: &FeatureNames<'_>) {
    let mut fields: BTreeMap<&str, OfField> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.key != INTERCEPT_KEY) {
        let of = fields.entry(names.field_of(row.key).unwrap_or("(not in DATA)")).or_default();
        of.features += 1;
        of.zeros += u64::from(row.weight == 0.0);
        of.largest = of.largest.max(row.weight.abs());
        of.squares += f64::from(row.weight).powi(2);
    }
    let mut fields: Vec<(&str, OfField)> = fields.into_iter().collect();
    fields.sort_by(|a, b| b.1.squares.total_cmp(&a.1.squares));
    report.say("fields:");
    report.list(
        "fields",
        fields.into_iter().take(FIELDS_SHOWN).map(|(name, of)| {
            let mut line = Numbers::default();
            line.words("  ");
            line.show("field", name, ": ");
            line.show_count("features", of.features, "feature", "features");
            line.words(", ");
            line.show("zero_weights", of.zeros, " of weight 0, largest ");
            line.show_float("largest", f64::from(of.largest), 5, ", length of all ");
            line.show_float("length", of.squares.sqrt(), 5, "");
            line
        }),
    );
}
