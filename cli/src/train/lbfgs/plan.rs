//! What the flags of a training by L-BFGS say.

use crate::failure::Failure;
use crate::flags::{DataArgs, LbfgsArgs, OptimizerArgs};
use crate::input;
use crate::model::lr::TABLE;
use crate::model::{folder, lr, optimizer};
use crate::train::{cache, input_check};
use gannet::train::lbfgs::{Layout, LbfgsSettings};
use gannet::train::{Options, Share};
use gannet::{Rule, Schema};
use std::path::{Path, PathBuf};
use std::time::Duration;

const HISTORY: u16 = 10;

/// Both defaults are scikit-learn's.
const ITERATIONS: u32 = 100;

const TOLERANCE: f64 = 1e-4;

const DATA_BYTES: u64 = 8 << 30;

const PASS_SECONDS: f64 = 600.0;

/// What the flags request.
pub struct LbfgsPlan {
    pub settings: LbfgsSettings,
    pub layout: Layout,
    /// Bytes that the examples may take.
    pub data_bytes: u64,
    /// The model from which the training starts.
    pub warm: Option<PathBuf>,
}

/// The data to read. `quiet`: it is read without words about its columns.
pub fn options(
    data: &DataArgs,
    warm: Option<&Path>,
    threads: Option<u32>,
    share: Share,
    quiet: bool,
) -> Result<Options, Failure> {
    let read = |files: &[PathBuf]| input::data(files, &data.input, !data.no_intercept);
    let test = if data.test.is_empty() { None } else { Some(read(&data.test)?) };
    let threads = threads.unwrap_or(2) as usize;
    let mut options = Options { test, share, threads, ..Options::new(read(&data.files)?) };
    // L-BFGS reads the data once and keeps it in memory.
    options.data.cache = cache::cache(&data.cache, 1, false)?;
    let chief = share.worker == 0;
    if chief || input::scale(&data.input).is_some() || warm.is_some() {
        input_check::look(data, warm, &mut options.data, options.test.as_mut(), chief && !quiet)?;
    }
    Ok(options)
}

/// The plan for so many workers.
pub fn plan(
    own: &LbfgsArgs,
    optimizer: &OptimizerArgs,
    intercept: bool,
    workers: u32,
) -> Result<LbfgsPlan, Failure> {
    let (l1, l2) = optimizer::penalties(optimizer)?;
    let tolerance = own.tolerance.unwrap_or(TOLERANCE);
    if !(0.0..1.0).contains(&tolerance) {
        return Err(Failure::input(format!("--tolerance {tolerance}: at least 0 and below 1")));
    }
    let seconds = own.pass_timeout.unwrap_or(PASS_SECONDS);
    if !(seconds > 0.0 && seconds <= 86_400.0) {
        return Err(Failure::input(format!("--pass-timeout {seconds}: more than 0 s and at most a day")));
    }
    let settings = LbfgsSettings {
        l1,
        l2,
        intercept,
        iterations: own.iterations.unwrap_or(ITERATIONS),
        tolerance,
        workers,
        patience: Duration::from_secs_f64(seconds),
    };
    let layout = Layout { history: own.history.unwrap_or(HISTORY) };
    let data_bytes = own.data_memory.map_or(DATA_BYTES, |size| size.as_u64());
    let warm = own.warm_start.clone();
    Ok(LbfgsPlan { settings, layout, data_bytes, warm })
}

/// Finds errors before the training that would otherwise stop it at the end.
pub fn preflight(warm: Option<&Path>, out: Option<&Path>) -> Result<(), Failure> {
    if let Some(folder) = warm {
        lr::check_warm_start(folder)?;
    }
    if let Some(folder) = out {
        folder::may_write(folder, &Schema::scalar(TABLE, Rule::Add(gannet::optim::Add)))?;
    }
    Ok(())
}
