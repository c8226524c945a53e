//! The flags of `gannet export`.

use clap::Args;
use std::path::PathBuf;

/// `gannet export`.
#[derive(Args, Debug)]
pub struct ModelExportArgs {
    /// The folder that `train --out` wrote.
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// The file of ONNX to write; - is standard output. An existing file is replaced when the new one is whole.
    pub file: PathBuf,
}
