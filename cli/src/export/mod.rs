//! `gannet export`: a trained model as a file of ONNX.

use crate::checkpoint::target::Target;
use crate::failure::{Failure, SYSTEM};
use crate::flags::ModelExportArgs;
use crate::model::saves;
use gannet::storage::Checkpoint;
use gannet::train::ScaleKind;
use gannet::train::saved::load_model;
use std::io::{self, Write};
use std::path::Path;

/// Runs the command.
pub fn run_export(args: &ModelExportArgs) -> Result<(), Failure> {
    let model = load_model(&args.model)?;
    saves::warn_of_early_end(&args.model, model.reading.ended.as_deref());
    let (kind, rows) = (&model.shape().model, model.rows);
    let bytes = model.onnx().map_err(|error| Failure::input(format!("{}: {error}", args.model.display())))?;
    let parent = args.file.parent().unwrap_or(Path::new(""));
    let is_of_model = Checkpoint::open_to_read(parent).is_ok() && args.file.exists();
    if is_of_model && args.file.extension() != Some("onnx".as_ref()) {
        return Err(Failure::input(format!(
            "{}: is a file in the folder of a model, which may need it: name another",
            args.file.display()
        )));
    }
    let failed = |error: io::Error| Failure::new(SYSTEM, format!("writing {}: {error}", args.file.display()));
    let mut out = Target::open(&args.file)?;
    out.writer().write_all(&bytes).map_err(failed)?;
    let is_stdout = out.is_stdout();
    out.end().map_err(failed)?;
    let scale = model.reading.columns.as_ref().map_or(ScaleKind::None, |columns| columns.scale.kind);
    if scale != ScaleKind::None {
        notice!(
            "gannet: the model was trained with --scale {}: the input `values` is for numbers that are scaled so",
            scale.name()
        );
    }
    let file = args.file.display();
    match is_stdout {
        true => notice!("gannet: {kind} with {rows} rows"),
        false => say!("{kind} with {rows} rows, {} bytes of ONNX: {file}", bytes.len()),
    }
    Ok(())
}
