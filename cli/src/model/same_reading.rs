//! Whether the flags of data that a model scores fit how the model's own data was read.

use crate::failure::Failure;
use crate::flags::InputArgs;
use crate::input;
use gannet::optim::in_words;
use gannet::train::saved::{DataReading, SavedModel};
use gannet::train::{ColumnChoice, Data, Format, Labels};
use std::path::Path;

/// Makes `data` be read as the model's data was.
///
/// # Errors
/// A flag contradicts the model, or the data has another format.
pub fn read_as(saved: &SavedModel, data: &mut Data, folder: &Path, input: &InputArgs) -> Result<(), Failure> {
    let reading = &saved.reading;
    let model = folder.display().to_string();
    let was = |what: &str| {
        Err(Failure::input(format!("the model in {model} was trained on {what}; leave the flag out")))
    };
    if data.format != Format::Auto && !data.format.is_like(reading.format) {
        return was(&format!("{} and --format says {}", in_words(&reading.format), in_words(&data.format)));
    }
    if input.criteo_counts.is_some() && data.counts != reading.counts {
        return was(&format!("--criteo-counts {}", in_words(&reading.counts)));
    }
    if !data.fields.crosses.is_empty() && *data.fields.crosses != reading.crosses {
        return was("other crosses (--cross, --quadratic, --cubic)");
    }
    same_columns(reading, data, input, &model)?;
    saved.read_as(data)?;
    same_positive(reading, input, &format!("the model in {model}"))
}

/// Refuses flags that contradict the model's columns.
fn same_columns(reading: &DataReading, data: &Data, flags: &InputArgs, model: &str) -> Result<(), Failure> {
    let ColumnChoice { categorical, numeric, both, .. } = &data.columns;
    let lists = [("--categorical", categorical), ("--numeric", numeric), ("--both", both)];
    let first = lists.iter().find(|(_, names)| !names.is_empty());
    let flag = first.map(|(flag, names)| format!("{flag} {}", names.join(",")));
    let own = |flag: &str, names: &[String]| {
        if names.is_empty() { String::new() } else { format!(" {flag} {}", names.join(",")) }
    };
    let Some(columns) = &reading.columns else {
        let flag = flag.or_else(|| input::scale(flags).map(|_| "--scale".to_owned()));
        let of_examples = [("--offset", &flags.offset), ("--importance", &flags.importance)];
        let of_examples = of_examples.iter().find_map(|(flag, name)| Some((flag, name.as_ref()?)));
        let flag = flag.or_else(|| of_examples.map(|(flag, name)| format!("{flag} {name}")));
        return match flag {
            Some(flag) => Err(Failure::input(format!(
                "{flag}: the model in {model} was trained on {}, which has no columns; leave the flag out",
                reading.format_name()
            ))),
            None => Ok(()),
        };
    };
    let same = |typed: &[String], known: &[String]| {
        typed.is_empty() || (typed.len() == known.len() && typed.iter().all(|name| known.contains(name)))
    };
    let of_model = [&columns.categorical, &columns.numeric, &columns.both];
    if lists.iter().zip(of_model).any(|((_, typed), known)| !same(typed, known)) {
        let known: String = lists.iter().zip(of_model).map(|((flag, _), known)| own(flag, known)).collect();
        return Err(Failure::input(format!(
            "{}: the model in {model} knows its columns, which it was trained on as{known}; leave the flag out",
            flag.unwrap_or_default()
        )));
    }
    let of_examples = [
        ("--offset", &flags.offset, &columns.offset),
        ("--importance", &flags.importance, &columns.importance),
    ];
    for (flag, typed, known) in of_examples {
        if let Some(name) = typed.as_ref().filter(|name| known.as_ref() != Some(*name)) {
            let known = known.as_ref().map_or(format!("without {flag}"), |own| format!("with {flag} {own}"));
            return Err(Failure::input(format!(
                "{flag} {name}: the model in {model} was trained {known}; leave the flag out"
            )));
        }
    }
    let is_feature = |name: &&String| of_model.iter().any(|names| names.contains(name));
    if let Some(name) = flags.ignore.iter().find(is_feature) {
        return Err(Failure::input(format!(
            "--ignore {name}: the model in {model} was trained on this column; leave the flag out"
        )));
    }
    if let Some(kind) = input::scale(flags).filter(|kind| *kind != columns.scale.kind) {
        return Err(Failure::input(format!(
            "--scale {}: the model in {model} was trained with --scale {}, which it remembers; leave the flag out",
            kind.name(),
            columns.scale.kind.name()
        )));
    }
    Ok(())
}

/// Refuses a label for 1 that the model does not have.
fn same_positive(reading: &DataReading, flags: &InputArgs, model: &str) -> Result<(), Failure> {
    let Some(value) = &flags.positive else { return Ok(()) };
    let was = match reading.two.map(|two| two.positive()) {
        Some(positive) if positive == value => return Ok(()),
        Some(positive) => format!("with --positive {positive}"),
        None => "without it".to_owned(),
    };
    Err(Failure::input(format!("--positive {value}: {model} was trained {was}; leave the flag out")))
}

/// Sets the labels of a training to those of the model from which it starts.
///
/// # Errors
/// A flag contradicts the model.
pub fn labels(reading: &DataReading, data: &mut Data, flags: &InputArgs, model: &str) -> Result<(), Failure> {
    same_positive(reading, flags, model)?;
    if let Some(two) = reading.two {
        data.labels = Labels::Two(input::two(two.positive(), two.other().as_deref()));
    }
    Ok(())
}
