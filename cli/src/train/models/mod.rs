//! `gannet train --model` of any model but logistic regression: in this process, or as a worker of a job.

pub mod topics;
pub mod worker;

use crate::failure::Failure;
use crate::flags::{InputArgs, JobArgs, ModelArgs, ModelName, OptimizerName, TrainArgs};
use crate::job::sync;
use crate::metrics::Metrics;
use crate::metrics::training::FitTraining;
use crate::model::lr::{Notes, ended_how};
use crate::model::optimizer::{RuleChoice, rule_choice};
use crate::model::tables::Shape;
use crate::model::{row_type, saves, tables, warm_start};
use crate::report::models;
use crate::report::training::{ProgressDisplay, warn_of_bad_lines};
use crate::runs::in_run;
use crate::runs::in_run::{Account, LocalRun};
use crate::train::tasks::InJob;
use crate::train::validation::{ModelInTraining, Validator};
use crate::train::{backend_failure, ended_early, options, print_saved, tasks, train_failure};
use crate::{input, server, signals};
use gannet::sync::{StepReduce, SyncConfig, SyncMode};
use gannet::table::Admission;
use gannet::train::models::{
    DeepFm, Factorization, FactorizationMachine, Fitted, Fitting, Linear, Measured, Model, ModelSettings,
    Objective, Softmax, fit_watched, push_of, score,
};
use gannet::train::{
    Data, FlatTables, Labels, LocalTables, Options, PushContent, Reduce, RemoteTables, Share, StepReport,
    Tables, TrainError,
};
use gannet::{Schema, Transports};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The flag of a setting, whether it was given, and the models that have it.
type Setting = (&'static str, bool, &'static [ModelName]);

fn settings(args: &ModelArgs) -> [Setting; 9] {
    use ModelName::{Deepfm, Fm, Lda, Mf, Softmax};
    [
        ("--classes", args.classes.is_some(), &[Softmax]),
        ("--factors", args.factors.is_some(), &[Fm, Deepfm, Mf]),
        ("--deviation", args.deviation.is_some(), &[Fm, Deepfm, Mf]),
        ("--hidden", !args.hidden.is_empty(), &[Deepfm]),
        ("--topics", args.topics.is_some(), &[Lda]),
        ("--document-prior", args.document_prior.is_some(), &[Lda]),
        ("--word-prior", args.word_prior.is_some(), &[Lda]),
        ("--vocabulary", args.vocabulary.is_some(), &[Lda]),
        ("--seed", args.seed.is_some(), &[Fm, Deepfm, Mf, Lda]),
    ]
}

/// Refuses settings that the model does not have.
pub fn check(args: &ModelArgs) -> Result<(), Failure> {
    let name = |model: &ModelName| format!("{model:?}").to_lowercase();
    for (flag, is_given, models) in settings(args) {
        if is_given && !models.contains(&args.model) {
            let whose: Vec<String> = models.iter().map(name).collect();
            return Err(Failure::input(format!(
                "{flag} is no setting of --model {}; it belongs to {}",
                name(&args.model),
                whose.join(", ")
            )));
        }
    }
    if let Some(x) = args.deviation.filter(|x| !(x.is_finite() && *x >= 0.0)) {
        return Err(Failure::input(format!("--deviation {x}: a finite number from 0 is needed")));
    }
    Ok(())
}

/// The kind of a model's labels. For click models it is `clicks`.
pub fn labels(args: &ModelArgs, input: &InputArgs, clicks: Labels) -> Result<Labels, Failure> {
    let labels = match args.model {
        ModelName::Lr | ModelName::Fm | ModelName::Deepfm => return Ok(clicks),
        ModelName::Linear | ModelName::Mf | ModelName::Lda => Labels::Numbers,
        ModelName::Softmax => Labels::Classes(args.classes.unwrap_or(CLASSES)),
    };
    let name = format!("{:?}", args.model).to_lowercase();
    match &input.positive {
        None => Ok(labels),
        Some(_) => Err(Failure::input(format!(
            "--positive: for models of two classes (lr, fm, deepfm); the labels of --model {name} are numbers"
        ))),
    }
}

/// The default of `--classes`.
const CLASSES: u32 = 10;

/// The default learning rate of AdaGrad for a model.
pub fn rate(model: ModelName) -> f32 {
    match model {
        ModelName::Linear => 0.5,
        _ => 0.05,
    }
}

/// The model that the flags choose.
pub fn model(args: &TrainArgs) -> Result<(Box<dyn Model>, Shape), Failure> {
    let of = &args.model;
    let rate = Some(rate(of.model));
    let RuleChoice { rule, shaping, l2 } = rule_choice(&args.optimizer, OptimizerName::Adagrad, rate)?;
    let settings = ModelSettings {
        rule,
        row_type: args.row_type.choice(),
        shaping,
        admission: args.admission.admission(),
        seed: of.seed.unwrap_or(1),
        deviation: of.deviation.unwrap_or(0.05),
        l2,
    };
    let default_factors = if of.model == ModelName::Mf { 40 } else { 8 };
    let hidden = if of.hidden.is_empty() { &[32, 16][..] } else { &of.hidden };
    let shape = Shape {
        model: format!("{:?}", of.model).to_lowercase(),
        classes: of.classes.unwrap_or(CLASSES) as usize,
        factors: of.factors.unwrap_or(default_factors) as usize,
        hidden: hidden.iter().map(|&units| units as usize).collect(),
        generation: warm_start::next_generation(args),
    };
    let model =
        build(&shape, settings).ok_or_else(|| Failure::input("--model lr is not one of these models"))?;
    let row_type = args.row_type.name();
    settings
        .check_row_type(&model.sparse())
        .map_err(|e| Failure::input(format!("--row-type {row_type}: {e}")))?;
    row_type::tell_of_gradients(args, &rule);
    for schema in std::iter::once(model.sparse()).chain(model.dense().into_iter().map(|d| d.0)) {
        schema.check().map_err(|e| Failure::input(e.to_string()))?;
    }
    Ok((model, shape))
}

/// A model of this shape. `None` when no such model has the name.
pub fn build(shape: &Shape, settings: ModelSettings) -> Option<Box<dyn Model>> {
    let Shape { model, classes, factors, hidden, .. } = shape;
    Some(match model.as_str() {
        "linear" => Box::new(Linear::new(settings)),
        "softmax" => Box::new(Softmax::new(settings, *classes)),
        "fm" => Box::new(FactorizationMachine::new(settings, *factors)),
        "deepfm" => Box::new(DeepFm::new(settings, *factors, hidden)),
        "mf" => Box::new(Factorization::new(settings, *factors)),
        _ => return None,
    })
}

/// The options of the training, with the labels that the model needs.
pub fn options_of(
    args: &TrainArgs,
    model: &dyn Model,
    share: Share,
    with_test: bool,
) -> Result<Options, Failure> {
    let mut options = options(args, share, with_test)?;
    options.push = options.push.or(sync::push_of_many(&args.job));
    debug_assert!(model.task() == Objective::Click || options.data.labels == model.task().labels());
    Ok(options)
}

/// Finds errors before the training that would otherwise stop it at the end.
pub fn preflight(args: &TrainArgs, options: &Options, model: &dyn Model) -> Result<(), Failure> {
    if options.epochs > 1 {
        options.data.must_be_files("a second epoch").map_err(|e| Failure::input(e.to_string()))?;
    }
    if let Some(folder) = &args.out {
        crate::model::lr::may_write(folder, &model.sparse())?;
    }
    Ok(())
}

/// Trains in this process.
pub fn embedded(args: &TrainArgs) -> Result<(), Failure> {
    if args.model.model == ModelName::Lda {
        return topics::embedded(args);
    }
    let (mut model, shape) = model(args)?;
    let mut options = options_of(args, &*model, Share::ALL, true)?;
    preflight(args, &options, &*model)?;
    options.begin = warm_start::begin(args, &schemas_of(&*model), Some(&shape))?;
    let (stop, metrics) = (signals::stop_flag()?, Metrics::start(&args.metrics, "train")?);
    options.stop_on(&stop);
    let push = push_of(&options, &*model).map_err(backend_failure)?;
    // Rows that must survive the process, or need admission, and gradients are for shards. Otherwise tables for one
    // process are faster.
    let is_flat = args.job.data_dir.is_none() && model.sparse().admission == Admission::All;
    if is_flat && push == PushContent::Replay {
        let limit = args.memory.memory_limit.map_or(u64::MAX, |size| size.as_u64());
        let mut tables = FlatTables::within(limit);
        in_run::none(&args.job.run)?;
        let account = Account::default();
        let fitted =
            train_in(args, &options, (&mut *model, &shape), &mut tables, (&stop, &metrics), &account)?;
        return ended_early(fitted.stopped, fitted.examples);
    }
    let store = server::own_store(args.job.data_dir.as_deref(), &args.memory)?;
    metrics.add_store(&store);
    let settings = || in_run::settings(args, &options.data.files, None, Some(&options));
    let schemas = schemas_of(&*model);
    let names: Vec<&str> = schemas.iter().map(|schema| schema.name.as_str()).collect();
    let run = in_run::alone(args, &store, (settings, &options.data.scale), &names)?;
    if let Some(run) = &run {
        run.scale(&mut options.data, options.test.as_mut());
    }
    let account = run.as_ref().map(LocalRun::account).unwrap_or_default();
    // Each training from the model of the one before has push names of its own, by which its steps are rounded.
    let tables = LocalTables::of_run(store, run.as_ref().map(|run| run.id().clone()), 1);
    let mut tables = tables.with_incarnation(1 + shape.generation);
    let fitted = train_in(args, &options, (&mut *model, &shape), &mut tables, (&stop, &metrics), &account)?;
    tables.close().map_err(backend_failure)?;
    ended_early(fitted.stopped, fitted.examples)?;
    run.map_or(Ok(()), |run| run.finish(fitted.rows))
}

/// Trains in these tables of this process, saves the model and prints the report.
fn train_in<T: Tables>(
    args: &TrainArgs,
    options: &Options,
    (model, shape): (&mut dyn Model, &Shape),
    tables: &mut T,
    (stop, metrics): (&AtomicBool, &Metrics),
    account: &Account,
) -> Result<Fitted, Failure> {
    let mut validator = Validator::new(args, options.test.as_ref(), model.task(), &|| true);
    let fitted = learn(options, (&mut *model, shape), tables, stop, (args, metrics, None), &mut validator)?;
    finish(args, shape, model, tables, (&fitted, account), validator.into_validations())?;
    Ok(fitted)
}

/// The schemas of all tables of a model.
pub fn schemas_of(model: &dyn Model) -> Vec<Schema> {
    std::iter::once(model.sparse()).chain(model.dense().into_iter().map(|(schema, _)| schema)).collect()
}

/// How this worker keeps step over the tables of a model.
pub fn membership(
    job: &JobArgs,
    model: &str,
    tables: usize,
    push: PushContent,
    reduce: Reduce,
) -> Result<SyncConfig, Failure> {
    let workers = job.worker_hosts.len() as u32;
    let member = sync::membership(&job.sync, job.task_index, workers, push, reduce);
    if let SyncMode::Bsp(StepReduce { aggregate, .. }) = member.mode
        && aggregate < workers
        && tables > 1
    {
        return Err(Failure::input(format!(
            "--replicas-to-aggregate {aggregate}: --model {model} has {tables} tables, and the tables could aggregate different \
             workers in a step; leave the flag out (all {workers} make a step)"
        )));
    }
    Ok(member)
}

/// Keeps step, unless there is nobody to keep step with.
pub fn keep_step(tables: &mut RemoteTables<Transports>, member: SyncConfig) {
    if member.workers > 1 || member.mode != SyncMode::Asp {
        tables.keep_step(member);
    }
}

/// Workers of --model lda keep the topics of their words from pass to pass, so each needs a fixed share.
pub fn refuse_tasks(args: &TrainArgs, options: &Options) -> Result<(), Failure> {
    if tasks::are_wanted(args, options)? {
        let what = "--tasks on: does not work with --model lda, whose workers keep the topics of their words; leave \
                    the flag out, so that each worker takes a fixed share";
        return Err(Failure::input(what));
    }
    Ok(())
}

/// Trains with a progress display.
pub fn learn<T: Tables>(
    options: &Options,
    (model, shape): (&mut dyn Model, &Shape),
    tables: &mut T,
    stop: &AtomicBool,
    (args, metrics, in_job): (&TrainArgs, &Metrics, Option<&InJob>),
    validator: &mut Validator<'_>,
) -> Result<Fitted, Failure> {
    let mut display = ProgressDisplay::of(args);
    let training = Arc::<FitTraining>::default();
    let shared = training.clone();
    metrics.add(move |page| shared.tell(page));
    let task = model.task();
    let mut progress = |f: &Fitting| {
        training.progress(f);
        if let Some(in_job) = in_job {
            in_job.report_progress(f.examples, f.loss, f.seconds);
        }
        models::progress(&mut display, f, args.epochs, task);
    };
    let mut watch = |step: &StepReport<'_>, model: &mut dyn Model, tables: &mut T| {
        validator.step(step, &mut InTables { model, shape, tables })
    };
    let fitted = fit_watched(options, model, tables, stop, &mut progress, &mut watch);
    display.finish();
    validator.failed()?;
    let fitted = fitted.map_err(train_failure)?;
    training.finish(&fitted, args.epochs);
    warn_of_bad_lines(&fitted.bad_lines);
    Ok(fitted)
}

/// A model during its training.
struct InTables<'a, T> {
    model: &'a mut dyn Model,
    shape: &'a Shape,
    tables: &'a mut T,
}

impl<T: Tables> ModelInTraining for InTables<'_, T> {
    fn score(&mut self, data: &Data) -> Result<Option<Measured>, TrainError> {
        score(data, self.model, self.tables)
    }

    fn save(&mut self, folder: &Path, notes: &Notes<'_>) -> Result<u64, Failure> {
        tables::save(folder, self.shape, self.model, self.tables, notes)
    }
}

/// Saves the model and prints the report.
pub fn finish<T: Tables>(
    args: &TrainArgs,
    shape: &Shape,
    model: &dyn Model,
    tables: &mut T,
    (fitted, account): (&Fitted, &Account),
    validations: Option<Vec<Value>>,
) -> Result<(), Failure> {
    let alone = args.job.job_name.is_none();
    let learned = (fitted.examples, fitted.rows, alone);
    let may_save = |folder: &Path| saves::may_save(folder, learned, fitted.stopped, &fitted.bad_lines);
    let rows = match &args.out {
        Some(folder) if may_save(folder)? => {
            let counts = input::counts(&args.input);
            let (format, columns) = (fitted.format, fitted.columns.as_ref());
            let ended = ended_how(fitted.stopped, fitted.examples, &account.missing);
            let notes = Notes { format, columns, counts, intercept: !args.no_intercept, ended };
            Some((folder.as_path(), tables::save(folder, shape, model, tables, &notes)?))
        }
        _ => None,
    };
    models::warn_of_quality(fitted);
    models::print(args, (fitted, account), &models::weights(model, tables, fitted)?, validations);
    if rows.is_some() || args.out.is_none() {
        print_saved(args, fitted.stopped, rows);
    }
    Ok(())
}
