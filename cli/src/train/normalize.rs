//! `--normalize`: whether the values of features are brought to one size, and by which numbers. A saved model has them
//! in its notes. Rows that outlive a process have them in a table beside their own.

use crate::failure::Failure;
use crate::flags::{ModelName, NormalizeName, ScaleName, StartName, TrainArgs};
use crate::input;
use crate::model::warm_source::{WarmSource, job_table, open_warm_source};
use crate::report::words::first_few;
use gannet::runs::RunId;
use gannet::storage::{CheckpointWriter, Store};
use gannet::train::models::{NumberLoss, Objective};
use gannet::train::saved::{NORMALIZE, NORMALIZED_FEATURES, normalization};
use gannet::train::{
    AgreedNormalization, BackendError, ColumnKeys, Data, InterceptStart, NormAtServers, NormInStore,
    Normalization, Normalize, Reader, SurveyQuestions, lbfgs, norm_table, normalization_of,
};
use gannet::{Transports, WorkerConfig};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The normalization of the training of this process, which all its readers share.
static OF_PROCESS: OnceLock<Normalize> = OnceLock::new();

/// The normalization of the training, as its flags or the model from which it starts say. The first call decides.
///
/// # Errors
/// The model cannot be read, or the flag contradicts it.
pub fn of_training(args: &TrainArgs) -> Result<Normalize, Failure> {
    let of = of_flags(args)?;
    if args.job.task_index == 0 && args.output.tells() {
        let names = [&args.data.input.numeric[..], &args.data.input.both].concat();
        of.tell(move |known| tell_logarithms(known, &names));
    }
    Ok(of)
}

/// Names the columns whose numbers are learned as logarithms.
fn tell_logarithms(known: &Normalization, names: &[String]) {
    let is_logarithm = |name: &&String| {
        known.feature(ColumnKeys::new(name).numeric()).is_some_and(|feature| feature.unit > 0.0)
    };
    let names: Vec<String> = names.iter().filter(is_logarithm).cloned().collect();
    if !names.is_empty() {
        notice!(
            "gannet: learned by the logarithm, because few numbers are much larger than the others: {}; to learn the \
             numbers themselves: --scale none",
            first_few(names, ", ")
        );
    }
}

/// The name of a model's table.
fn spelt(model: ModelName) -> String {
    format!("{model:?}").to_lowercase()
}

/// Where the intercept starts: at the log odds of labels that are 1 and 0, if one is rare; of counts and quantiles at
/// what all labels say. How many labels a pipe gives in time is chance, which has no place in a deterministic job.
fn intercept_start(args: &TrainArgs) -> InterceptStart {
    let data = &args.data;
    let is_wanted = data.intercept_start == StartName::Odds && !data.no_intercept;
    let is_sure =
        || input::data(&data.files, &data.input, true).is_ok_and(|data| data.must_be_files("").is_ok());
    if !(is_wanted && (!args.job.sync.deterministic || is_sure())) {
        return InterceptStart::Zero;
    }
    match args.model.objective() {
        Some(Objective::Click) => InterceptStart::OddsOfRare,
        Some(Objective::Number(NumberLoss::Poisson)) => InterceptStart::LogMean,
        Some(Objective::Number(NumberLoss::Quantile(of))) => InterceptStart::Quantile(of),
        _ => InterceptStart::Zero,
    }
}

fn of_flags(args: &TrainArgs) -> Result<Normalize, Failure> {
    let (data, model) = (&args.data, args.model.model);
    if let Some(decided) = OF_PROCESS.get() {
        return Ok(decided.clone());
    }
    let of = match (&args.lbfgs.warm_start, data.normalize) {
        (Some(folder), given) => {
            let of_model = of_warm_start(folder, &spelt(model))?;
            let word = |is_on| if is_on { "on" } else { "off" };
            if given.is_some_and(|given| (given == NormalizeName::On) != of_model.is_on()) {
                return Err(Failure::input(format!(
                    "--warm-start {}: --normalize of the model: {}; of this training: {}; leave the flag out",
                    folder.display(),
                    word(of_model.is_on()),
                    word(!of_model.is_on())
                )));
            }
            keeps_logarithms(args, &of_model, folder)?;
            of_model
        }
        (None, Some(NormalizeName::Off)) => Normalize::off(),
        (None, _) if model == ModelName::Lda => Normalize::off(),
        (None, _) => Normalize::by_first_examples(SurveyQuestions {
            // Who says how numbers are scaled wants no logarithms of them.
            logarithms: data.input.scale == ScaleName::Auto,
            start: intercept_start(args),
        }),
    };
    Ok(OF_PROCESS.get_or_init(|| of).clone())
}

/// Refuses a flag that wants the numbers themselves, where the model has logarithms.
fn keeps_logarithms(args: &TrainArgs, of_model: &Normalize, folder: &Path) -> Result<(), Failure> {
    let features = of_model.known().map(Normalization::features).unwrap_or_default();
    if args.data.input.scale != ScaleName::Auto && features.iter().any(|feature| feature.unit > 0.0) {
        return Err(Failure::input(format!(
            "--warm-start {}: the model has learned logarithms of numbers (--scale auto); leave --scale out",
            folder.display()
        )));
    }
    Ok(())
}

/// The normalization of a model, or of a checkpoint of a job with this table.
fn of_warm_start(folder: &Path, table: &str) -> Result<Normalize, Failure> {
    let job = match open_warm_source(folder)? {
        WarmSource::Model(checkpoint) => return Ok(normalization(&*checkpoint, folder)?),
        WarmSource::Job(job) => job,
    };
    let rows = job_table(&job, &norm_table(table)).or_else(|_| job_table(&job, &norm_table(lbfgs::TABLE)));
    let Ok(rows) = rows else { return Ok(Normalize::off()) };
    let of_rows = normalization_of(&mut |page| {
        rows.read(page).map_err(|failure| BackendError::Schema(failure.to_string()))
    });
    Ok(of_rows?.map_or_else(Normalize::off, Normalize::by))
}

/// The normalization of the training of this process, if it has begun.
pub fn of_process() -> Option<&'static Normalize> {
    OF_PROCESS.get()
}

/// Whether the values of the training of this process are normalized.
pub fn is_on() -> bool {
    OF_PROCESS.get().is_some_and(Normalize::is_on)
}

/// The names of all tables of a run: those of the model, and that of the normalization, if there is one.
pub fn with_table(tables: &[&str]) -> Vec<String> {
    let own = tables.iter().map(|table| (*table).to_owned());
    own.chain(tables.first().filter(|_| is_on()).map(|first| norm_table(first))).collect()
}

/// Keeps the normalization of rows that outlive this process: what an earlier training of the run has decided, or what
/// this one will.
pub fn keep_in_store(normalize: &Normalize, store: &Store, run: &RunId, model: &str) -> Result<(), Failure> {
    if !normalize.is_on() {
        return Ok(());
    }
    let kept = NormInStore::new(store, Some(run), model);
    match (kept.decided()?, normalize.known()) {
        (Some(decided), _) => normalize.settle(decided).map_err(in_words)?,
        // A model from which the training starts.
        (None, Some(known)) => drop(kept.agree(known.clone()).map_err(Failure::input)?),
        (None, None) => normalize.agree_with(Arc::new(kept)),
    }
    Ok(())
}

/// Agrees on the normalization with the other workers of a job, which has a table of this name. The first examples of
/// files say it before anybody learns. Where data can be read only once, it is said when they have been read.
pub fn agree_at_servers(
    data: &Data,
    (net, config): (&Transports, &WorkerConfig),
    model: &str,
    reads_files: bool,
) -> Result<(), Failure> {
    let normalize = &data.normalize;
    if !normalize.is_on() {
        return Ok(());
    }
    let kept = NormAtServers::new(net.clone(), config.clone(), model);
    if let Some(decided) = kept.decided()? {
        return normalize.settle(decided).map_err(in_words);
    }
    if let Some(known) = normalize.known() {
        kept.decide(known)?;
        return Ok(());
    }
    // What is wrong with the data, the training says.
    let may_survey = reads_files && data.must_be_files("").is_ok();
    let surveyed = if may_survey { Reader::survey(data).ok().flatten() } else { None };
    match surveyed {
        Some(own) => normalize.settle(kept.decide(&own)?).map_err(in_words),
        None => {
            normalize.agree_with(Arc::new(kept));
            Ok(())
        }
    }
}

fn in_words(error: impl std::fmt::Display) -> Failure {
    Failure::input(error.to_string())
}

/// Writes the notes of a model that this process has trained.
pub fn note(writer: &mut CheckpointWriter) {
    let known = OF_PROCESS.get().and_then(Normalize::known);
    writer.note(NORMALIZE, if known.is_some() { "on" } else { "off" });
    if let Some(known) = known {
        writer.note(NORMALIZED_FEATURES, &known.lines());
    }
}
