//! `gannet inspect`: what a model has learned. The largest weights by the names of their features, and what each field
//! has.

use crate::failure::Failure;
use crate::flags::InspectArgs;
use crate::input;
use crate::model::same_reading::read_as;
use crate::report::numbers::Numbers;
use gannet::train::models::Objective;
use gannet::train::saved::{LearnedFeature, SavedModel, intercept_of, load_model};
use gannet::train::{FeatureNames, INTERCEPT_KEY, Normalization};
use std::collections::{BTreeMap, HashSet};

/// The most fields that are shown.
const FIELDS_SHOWN: usize = 40;

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
    let model = load_model(&args.model)?;
    let rows = model.learned();
    let keys: HashSet<u64> = rows.iter().map(|row| row.key).collect();
    let is_learned = |key: u64| keys.contains(&key);
    let mut data = input::data(&args.data, &args.input, model.reading.intercept)?;
    let names = match args.data.is_empty() {
        true => model.names()?,
        false => {
            read_as(&model, &mut data, &args.model, &args.input)?;
            Some(FeatureNames::of(&data, &is_learned).map_err(|e| Failure::input(e.to_string()))?)
        }
    };
    let known = model.reading.normalization_of_data();
    let mut report = Numbers::default();
    put_model(&mut report, args, &model, &rows);
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

fn put_model(report: &mut Numbers, args: &InspectArgs, model: &SavedModel, rows: &[LearnedFeature]) {
    // Of a logistic regression only the weights that are not 0 are read.
    let zeros = model.rows - rows.iter().filter(|row| row.weight != 0.0).count() as u64;
    report.line("model");
    report.show("model", model.shape().model.as_str(), " in ");
    report.words(format_args!("{}, trained on {}", args.model.display(), model.reading.format_name()));
    report.line("rows");
    report.show("rows", model.rows, ", of which ");
    report.show("zero_weights", zeros, " have the weight 0");
    if let Some(intercept) = intercept_of(rows, &model.reading) {
        report.line("intercept");
        report.show_float("intercept", f64::from(intercept), 5, "");
    }
    if model.reading.normalization_of_data().is_some_and(|known| !known.features().is_empty()) {
        report.say(
            "weights are for values of one size, as they are learned; \"per unit\" and the intercept are for values as \
             DATA has them",
        );
    }
}

/// The line of a feature.
fn of_feature(
    row: &LearnedFeature,
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
fn put_fields(report: &mut Numbers, rows: &[LearnedFeature], names: &FeatureNames<'_>) {
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
