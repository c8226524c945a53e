//! What the flags of a model other than logistic regression say: the model, its options, and how workers keep step.

use crate::failure::Failure;
use crate::flags::model::RowTypeArgs;
use crate::flags::{AdmissionArgs, JobArgs, ModelArgs, OptimizerArgs, OptimizerName, SyncArgs};
use crate::job::sync;
use crate::model::labels::rate;
use crate::model::optimizer::{RuleChoice, rule_choice, spelt};
use crate::model::{row_type, warm_start};
use crate::train::fields;
use gannet::Transports;
use gannet::sync::{StepReduce, SyncConfig, SyncMode};
use gannet::train::models::{Model, ModelSettings, Objective};
use gannet::train::saved::{Shape, build, schemas_of};
use gannet::train::{Data, Options, PushContent, Reduce, RemoteTables};
use std::path::Path;

/// A model that is to be trained.
pub struct PlannedModel {
    pub model: Box<dyn Model>,
    pub shape: Shape,
    settings: ModelSettings,
}

impl PlannedModel {
    /// Gives the model the fields that the readers of its data say.
    pub fn take_fields(&mut self, data: &Data) -> Result<(), Failure> {
        let fields = fields::of_readers(data);
        if self.shape.fields != fields {
            self.shape.fields = fields.to_vec();
            self.model = built(&self.shape, self.settings)?;
        }
        Ok(())
    }
}

/// Builds a model, and checks that its tables can be.
fn built(shape: &Shape, settings: ModelSettings) -> Result<Box<dyn Model>, Failure> {
    let model =
        build(shape, settings).ok_or_else(|| Failure::input("--model lr is not one of these models"))?;
    for schema in schemas_of(&*model) {
        schema.check().map_err(|e| Failure::input(e.to_string()))?;
    }
    Ok(model)
}

/// The model that the flags choose, for data that is read as `data` says.
pub fn model(
    of: &ModelArgs,
    optimizer: &OptimizerArgs,
    (row_type, admission): (RowTypeArgs, &AdmissionArgs),
    warm: Option<&Path>,
    (sync, data): (&SyncArgs, &Data),
) -> Result<PlannedModel, Failure> {
    if let Some(x) = of.deviation.filter(|x| !(x.is_finite() && *x >= 0.0)) {
        return Err(Failure::input(format!("--deviation {x}: a finite number from 0 is needed")));
    }
    let rate = Some(rate(of.model));
    let RuleChoice { rule, shaping, l2 } = rule_choice(optimizer, OptimizerName::Adagrad, rate)?;
    let settings = ModelSettings {
        rule,
        row_type: row_type.choice(),
        shaping,
        admission: admission.admission(),
        seed: of.seed.unwrap_or(1),
        deviation: of.deviation(),
        l2,
    };
    let classes = match of.objective() {
        Some(Objective::Class(classes)) => classes,
        _ => 0,
    };
    let shape = Shape {
        model: spelt(&of.model),
        classes,
        factors: of.factors() as usize,
        hidden: of.hidden().iter().map(|&units| units as usize).collect(),
        fields: fields::of_readers(data).to_vec(),
        loss: of.loss,
        generation: warm_start::next_generation(warm),
    };
    let model = built(&shape, settings)?;
    let name = row_type.name();
    settings
        .check_row_type(&model.sparse())
        .map_err(|e| Failure::input(format!("--row-type {name}: {e}")))?;
    row_type::tell_of_gradients(row_type, optimizer, sync, &rule);
    Ok(PlannedModel { model, shape, settings })
}

/// Finds errors before the training that would otherwise stop it at the end.
pub fn preflight(out: Option<&Path>, options: &Options, model: &dyn Model) -> Result<(), Failure> {
    if options.epochs > 1 {
        options.data.must_be_files("a second epoch").map_err(|e| Failure::input(e.to_string()))?;
    }
    if let Some(folder) = out {
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
