//! How a client reads its data, as its workers learn it.

use crate::flags::{ClassWeight, CountsName, DataArgs, FormatName, NormalizeName, StartName, TaskArgs};
use clap::ValueEnum;
use gannet::train::KeptNegatives;
use serde_json::{Value, json};

/// How the client reads its data, as JSON for its workers.
pub fn reading(data: &DataArgs, tasks: &TaskArgs) -> String {
    let input = &data.input;
    let name = |value: Option<clap::builder::PossibleValue>| value.map(|value| value.get_name().to_owned());
    json!({
        "format": name(input.format.to_possible_value()),
        "label": input.label,
        "categorical": input.categorical,
        "numeric": input.numeric,
        "both": input.both,
        "ignore": input.ignore,
        "delimiter": input.delimiter,
        "no_header": input.no_header,
        "columns": input.columns,
        "offset": input.offset,
        "importance": input.importance,
        "cross": input.cross,
        "quadratic": input.quadratic,
        "cubic": input.cubic,
        "criteo_counts": input.criteo_counts.and_then(|counts| name(counts.to_possible_value())),
        "positive": input.positive,
        "skip_bad_lines": input.skip_bad_lines,
        "normalize": data.normalize.and_then(|normalize| name(normalize.to_possible_value())),
        "class_weight": data.class_weight.map(|weight| weight.to_string()),
        "keep_negatives": data.keep_negatives.map(KeptNegatives::share),
        "no_intercept": data.no_intercept,
        "intercept_start": name(data.intercept_start.to_possible_value()),
        "start_together": tasks.start_together,
    })
    .to_string()
}

/// Takes the settings for reading the data from the client's JSON.
pub fn take_over(data: &mut DataArgs, tasks: &mut TaskArgs, reading: &str) -> Option<()> {
    let settings: Value = serde_json::from_str(reading).ok()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let list = |value: &Value| value.as_array()?.iter().map(text).collect::<Option<Vec<String>>>();
    let input = &mut data.input;
    input.format = FormatName::from_str(settings["format"].as_str()?, false).ok()?;
    input.label = text(&settings["label"]);
    input.categorical = list(&settings["categorical"])?;
    input.numeric = list(&settings["numeric"])?;
    input.both = list(&settings["both"])?;
    input.ignore = list(&settings["ignore"])?;
    let delimiter = &settings["delimiter"];
    input.delimiter = delimiter.as_u64().map(u8::try_from).transpose().ok()?;
    input.no_header = settings["no_header"].as_bool()?;
    input.columns = list(&settings["columns"])?;
    input.offset = text(&settings["offset"]);
    input.importance = text(&settings["importance"]);
    input.cross = list(&settings["cross"])?;
    input.quadratic = list(&settings["quadratic"])?;
    input.cubic = list(&settings["cubic"])?;
    let counts = settings["criteo_counts"].as_str().map(|counts| CountsName::from_str(counts, false));
    input.criteo_counts = counts.transpose().ok()?;
    input.positive = text(&settings["positive"]);
    input.skip_bad_lines = settings["skip_bad_lines"].as_u64()?;
    let normalize = settings["normalize"].as_str().map(|name| NormalizeName::from_str(name, false));
    data.normalize = normalize.transpose().ok()?;
    let weight = settings["class_weight"].as_str().map(ClassWeight::parse);
    data.class_weight = weight.transpose().ok()?;
    data.keep_negatives = settings["keep_negatives"].as_f64().and_then(KeptNegatives::new);
    data.no_intercept = settings["no_intercept"].as_bool()?;
    data.intercept_start = StartName::from_str(settings["intercept_start"].as_str()?, false).ok()?;
    tasks.start_together |= settings["start_together"].as_bool()?;
    Some(())
}
