//! What the flags of a model other than logistic regression say: the model, its options, and how workers keep step.

use crate::failure::Failure;
use crate::flags::{JobArgs, ModelName, OptimizerName, TrainArgs};
use crate::job::sync;
use crate::model::kinds::{build, schemas_of};
use crate::model::labels::{CLASSES, rate};
use crate::model::optimizer::{RuleChoice, rule_choice};
use crate::model::shape::Shape;
use crate::model::{row_type, warm_start};
use crate::train::options::options;
use gannet::Transports;
use gannet::sync::{StepReduce, SyncConfig, SyncMode};
use gannet::train::models::{Model, ModelSettings, Objective};
use gannet::train::{Options, PushContent, Reduce, RemoteTables, Share};

/// The model that the flags choose.
pub fn model(args: &TrainArgs) -> Result<(Box<dyn Model>, Shape), Failure> {
    let of = &args.model;
    if let Some(x) = of.deviation.filter(|x| !(x.is_finite() && *x >= 0.0)) {
        return Err(Failure::input(format!("--deviation {x}: a finite number from 0 is needed")));
    }
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
    row_type::tell_of_gradients(args.row_type, &args.optimizer, &args.job.sync, &rule);
    for schema in schemas_of(&*model) {
        schema.check().map_err(|e| Failure::input(e.to_string()))?;
    }
    Ok((model, shape))
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
        crate::model::folder::may_write(folder, &model.sparse())?;
    }
    Ok(())
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
