//! How a model's data was read, from its notes.

use crate::failure::Failure;
use crate::flags::InputArgs;
use crate::input;
use crate::model::notes::{CROSSES, LETTER_CROSSES};
use crate::model::saves;
use crate::model::shape::Shape;
use crate::train::normalize;
use gannet::optim::in_words;
use gannet::storage::Checkpoint;
use gannet::train::{
    ColumnChoice, Columns, Counts, Crosses, Data, FieldPlaces, Format, Labels, Normalize, Reader, Scale,
    ScaleKind,
};
use std::path::Path;
use std::sync::Arc;

/// How a model's data was read.
pub struct DataReading {
    /// Whether the model has an intercept.
    pub intercept: bool,
    /// The format that the model was trained on (for CSV possibly TSV).
    pub format: Format,
    /// The features that the numbers of Criteo's logs became.
    pub counts: Counts,
    /// Products of features.
    pub crosses: Crosses,
    /// The columns that the model was trained on, if it was trained on CSV.
    pub columns: Option<Columns>,
    /// The two values of the labels, if they were not numbers. The second is empty when no example had it.
    pub two: Option<(String, String)>,
    /// Whether the values of its features were normalized, and by what.
    pub normalize: Normalize,
    /// The fields for which the model has vectors, and their places.
    pub fields: Option<Arc<FieldPlaces>>,
    /// How its training ended, if it ended early.
    pub ended: Option<String>,
}

/// Reads the notes about the data.
pub fn reading(checkpoint: &Checkpoint, folder: &Path) -> Result<DataReading, Failure> {
    let list = |name: &str| -> Vec<String> {
        let text = checkpoint.note(name).unwrap_or_default();
        text.split('\n').filter(|s| !s.is_empty()).map(String::from).collect()
    };
    let columns = checkpoint.note("categorical").map(|_| Columns {
        label: checkpoint.note("label").filter(|s| !s.is_empty()).map(String::from),
        categorical: list("categorical"),
        numeric: list("numeric"),
        both: list("both"),
        ignored: list("ignored"),
        offset: checkpoint.note("offset").map(String::from),
        importance: checkpoint.note("importance").map(String::from),
        scale: scale(checkpoint),
        others: checkpoint.note("others") == Some("1"),
        nameless: Vec::new(),
    });
    let format = checkpoint.note("format").unwrap_or("libsvm");
    let Some(format) = Format::of_name(format) else {
        return Err(Failure::input(format!(
            "{}: was trained on {format}, a format that this version of gannet does not know; use the version that wrote it",
            folder.display()
        )));
    };
    let counts = if checkpoint.note("criteo-counts") == Some("log") { Counts::Log } else { Counts::Buckets };
    let crosses = Crosses::new(&list(CROSSES), &list(LETTER_CROSSES));
    let crosses =
        crosses.map_err(|what| Failure::input(format!("{}: the crosses: {what}", folder.display())))?;
    let intercept = checkpoint.note("intercept") != Some("0");
    let two = checkpoint
        .note("positive")
        .map(|positive| (positive.to_owned(), checkpoint.note("negative").unwrap_or_default().to_owned()));
    let (normalize, ended) = (normalize::noted(checkpoint, folder)?, saves::ended(checkpoint));
    let fields = Shape::of(checkpoint).field_places();
    Ok(DataReading { intercept, format, counts, crosses, columns, two, normalize, fields, ended })
}

/// The scaling in the notes.
pub fn scale(checkpoint: &Checkpoint) -> Scale {
    let kind = checkpoint.note("scale").and_then(ScaleKind::of_name).unwrap_or_default();
    Scale::of_lines(kind, checkpoint.note("scale-columns").unwrap_or_default())
}

impl DataReading {
    /// The name of the model's format.
    pub fn format_name(&self) -> &'static str {
        match self.format {
            Format::Auto | Format::Libsvm => "libsvm",
            Format::Libffm => "libffm",
            Format::Csv => "csv",
            Format::Criteo => "criteo",
            Format::Vw => "vw",
            Format::VwJson => "vw-json",
            Format::Json => "json",
            Format::Parquet => "parquet",
            Format::Arrow => "arrow",
        }
    }

    /// Makes `data` be read as the model's data was.
    ///
    /// # Errors
    /// A flag contradicts the model, or the data has another format. The keys of a model have a meaning in its own
    /// format only.
    pub fn of(&self, data: &mut Data, model: &Path, input: &InputArgs) -> Result<(), Failure> {
        data.unlabelled = true;
        data.normalize = self.normalize.clone();
        let model = model.display();
        let was = |what: &str| {
            Err(Failure::input(format!("the model in {model} was trained on {what}; leave the flag out")))
        };
        if data.format != Format::Auto && !data.format.is_like(self.format) {
            return was(&format!("{} and --format says {}", in_words(&self.format), in_words(&data.format)));
        }
        if input.criteo_counts.is_some() && data.counts != self.counts {
            return was(&format!("--criteo-counts {}", in_words(&self.counts)));
        }
        if !data.fields.crosses.is_empty() && *data.fields.crosses != self.crosses {
            return was("other crosses (--cross, --quadratic, --cubic)");
        }
        data.fields.crosses = Arc::default();
        self.same_columns(data, input, &model.to_string())?;
        (data.format, data.counts) = (self.same_format(data, &model.to_string())?, self.counts);
        data.fields.crosses = Arc::new(self.crosses.clone());
        data.fields.say(self.fields.clone());
        if let Some(columns) = &self.columns {
            let label = data.columns.label.take().or_else(|| columns.label.clone());
            data.columns = ColumnChoice { label, ..columns.into() };
            data.scale.clone_from(&columns.scale);
        }
        self.labels(data, input, &format!("the model in {model}"))
    }

    /// Refuses flags that contradict the model's columns.
    fn same_columns(&self, data: &Data, flags: &InputArgs, model: &str) -> Result<(), Failure> {
        let ColumnChoice { categorical, numeric, both, .. } = &data.columns;
        let lists = [("--categorical", categorical), ("--numeric", numeric), ("--both", both)];
        let first = lists.iter().find(|(_, names)| !names.is_empty());
        let flag = first.map(|(flag, names)| format!("{flag} {}", names.join(",")));
        let own = |flag: &str, names: &[String]| {
            if names.is_empty() { String::new() } else { format!(" {flag} {}", names.join(",")) }
        };
        let Some(columns) = &self.columns else {
            let flag = flag.or_else(|| input::scale(flags).map(|_| "--scale".to_owned()));
            let of_examples = [("--offset", &flags.offset), ("--importance", &flags.importance)];
            let of_examples = of_examples.iter().find_map(|(flag, name)| Some((flag, name.as_ref()?)));
            let flag = flag.or_else(|| of_examples.map(|(flag, name)| format!("{flag} {name}")));
            return match flag {
                Some(flag) => Err(Failure::input(format!(
                    "{flag}: the model in {model} was trained on {}, which has no columns; leave the flag out",
                    self.format_name()
                ))),
                None => Ok(()),
            };
        };
        let same = |typed: &[String], known: &[String]| {
            typed.is_empty() || (typed.len() == known.len() && typed.iter().all(|name| known.contains(name)))
        };
        let of_model = [&columns.categorical, &columns.numeric, &columns.both];
        if lists.iter().zip(of_model).any(|((_, typed), known)| !same(typed, known)) {
            let known: String =
                lists.iter().zip(of_model).map(|((flag, _), known)| own(flag, known)).collect();
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
                let known =
                    known.as_ref().map_or(format!("without {flag}"), |own| format!("with {flag} {own}"));
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

    /// The format of the data. Refuses one in which the features of the model mean nothing.
    fn same_format(&self, data: &Data, model: &str) -> Result<Format, Failure> {
        if data.format != Format::Auto {
            return Ok(data.format);
        }
        // Data whose format its first line does not show is read in the model's format.
        let Ok(Some(found)) = Reader::look(&Data { columns: ColumnChoice::default(), ..data.clone() }) else {
            return Ok(self.format);
        };
        let own = self.format_name();
        let format = Format::of_name(found.format).unwrap_or(self.format);
        if !format.is_like(self.format) {
            return Err(Failure::input(format!(
                "{} is {}, and the model in {model} was trained on {own}: the features of one mean nothing in \
                 the other; score {own}, or say --format {own} if it is that",
                found.file, found.format
            )));
        }
        Ok(format)
    }

    /// Sets the labels that the model was trained on.
    pub fn labels(&self, data: &mut Data, flags: &InputArgs, model: &str) -> Result<(), Failure> {
        let wrong = |value: &str, was: String| {
            Err(Failure::input(format!("--positive {value}: {model} was trained {was}; leave the flag out")))
        };
        match (&self.two, &flags.positive) {
            (Some((positive, _)), Some(value)) if positive != value => {
                wrong(value, format!("with --positive {positive}"))
            }
            (None, Some(value)) => wrong(value, "without it".to_owned()),
            (None, None) => Ok(()),
            (Some((positive, other)), _) => {
                data.labels =
                    Labels::Two(input::two(positive, Some(other.as_str()).filter(|o| !o.is_empty())));
                Ok(())
            }
        }
    }
}
