//! `gannet export`: a trained model as a file of ONNX.

use crate::checkpoint::target::Target;
use crate::failure::{Failure, SYSTEM};
use crate::flags::ModelExportArgs;
use crate::model::saves;
use gannet::train::ScaleKind;
use gannet::train::onnx::{OnnxSource, onnx};
use gannet::train::saved::{SavedModel, load_model};
use std::io::{self, Write};

/// Runs the command.
pub fn run_export(args: &ModelExportArgs) -> Result<(), Failure> {
    let SavedModel { scorer, reading, kind, rows } = load_model(&args.model)?;
    saves::warn_of_early_end(&args.model, reading.ended.as_deref());
    let (model, tables) = scorer.into_tables();
    let columns = reading.columns.as_ref();
    let mut notes = vec![("format".to_owned(), reading.format_name().to_owned())];
    if let Some(columns) = columns {
        let lists =
            [("categorical", &columns.categorical), ("numeric", &columns.numeric), ("both", &columns.both)];
        notes.extend(lists.map(|(name, of)| (name.to_owned(), of.join("\n"))));
    }
    let source = OnnxSource {
        kind: &kind,
        task: model.task(),
        units: model.dense().iter().map(|(_, units)| *units).collect(),
        fields: reading.fields.as_deref(),
        normalization: reading.normalize.known(),
        offset: columns.is_some_and(|columns| columns.offset.is_some()),
        tables: &tables,
        notes,
    };
    let bytes =
        onnx(&source).map_err(|error| Failure::input(format!("{}: {error}", args.model.display())))?;
    let failed = |error: io::Error| Failure::new(SYSTEM, format!("writing {}: {error}", args.file.display()));
    let mut out = Target::open(&args.file)?;
    out.writer().write_all(&bytes).map_err(failed)?;
    let is_stdout = out.is_stdout();
    out.end().map_err(failed)?;
    if columns.is_some_and(|columns| columns.scale.kind != ScaleKind::None) {
        notice!(
            "gannet: the model was trained with --scale {}: the input `values` is for numbers that are scaled so",
            columns.map_or("none", |columns| columns.scale.kind.name())
        );
    }
    let file = args.file.display();
    match is_stdout {
        true => notice!("gannet: {kind} with {rows} rows"),
        false => say!("{kind} with {rows} rows, {} bytes of ONNX: {file}", bytes.len()),
    }
    Ok(())
}
