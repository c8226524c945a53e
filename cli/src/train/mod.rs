//! `gannet train`: in this process, or as one process of a job.

pub mod cache;
pub mod class_weight;
pub mod column_types;
pub mod ending;
pub mod feed;
pub mod fields;
pub mod follow;
pub mod in_store;
pub mod input_check;
pub mod lbfgs;
pub mod lr;
pub mod lr_worker;
pub mod models;
pub mod normalize;
pub mod options;
pub mod places;
pub mod start_rows;
pub mod tasks;
pub mod trained;
pub mod validation;
pub mod worker;

use crate::checkpoint::source;
use crate::failure::{Failure, STOPPED};
use crate::flags::{JobName, ModelName, OptimizerName, ScaleName, TrainArgs};
use crate::job::backups::Membership;
use crate::job::{backups, check, end};
use crate::log::without_notices;
use crate::model::{kept_names, out_folder};
use crate::report::plots;
use crate::server::{Serving, store};
use crate::train::lr_worker::run_lr_worker;
use crate::train::places::Process;
use crate::{launched, server};

/// Runs the command.
pub fn run_train(mut args: TrainArgs) -> Result<(), Failure> {
    launched::watch();
    let (model, lbfgs) = (args.model.model, args.optimizer.optimizer == Some(OptimizerName::Lbfgs));
    follow::take_topic(&mut args.data);
    tasks::settle(&mut args.job, &args.data, model, lbfgs);
    Process { args: &args, is_launched: launched::is_launched() }.check_places()?;
    check_folders(&args)?;
    if args.job.job_name != Some(JobName::Ps) {
        if !follow::wait_for_data(&mut args.data, &args.job.tasks)? {
            return Err(Failure::new(STOPPED, "stopped by a signal before there was a file to train"));
        }
        read_types(&mut args)?;
        kept_names::prepare(&args)?;
    }
    match args.job.job_name {
        Some(JobName::Client) => feed::client::client(&mut args),
        Some(JobName::Worker) if args.job.data_server.feed.is_some() => {
            let client = feed::worker::connect(&mut args.job, &mut args.data, &mut args.passes)?;
            run_lr_worker(&args, Some(client))
        }
        None if lbfgs => lbfgs::embedded(&args),
        None if model == ModelName::Lr => lr::embedded(&args),
        None => models::embedded::embedded(&args),
        Some(JobName::Ps) => {
            check::check_job(&args.job)?;
            let serving = Serving {
                listen: args.job.listen.as_deref().unwrap_or_else(|| backups::listens_at(&args.job)),
                threads: args.passes.threads,
                data_dir: args.job.data_dir.as_deref(),
                memory: &args.memory,
                sessions: &args.sessions,
                net: args.job.transport.transport.net(args.job.io),
                security: &args.job.security,
                metrics: &args.metrics,
                tls_server: &args.job.tls_server,
                scheduler_only: false,
                checkpoints: args.job.checkpoint.checkpoint.as_deref(),
                restore: source::newest(&args.job)?,
                tls_client: &args.job.tls_client,
                membership: Membership::of(&args.job),
            };
            end::watch(&args.job)?;
            server::serve(&serving)
        }
        Some(JobName::Worker) if lbfgs => lbfgs::worker(&args),
        Some(JobName::Worker) if model == ModelName::Lr => run_lr_worker(&args, None),
        Some(JobName::Worker) => models::worker::worker(&args),
    }
}

/// Checks the folders that this process writes.
fn check_folders(args: &TrainArgs) -> Result<(), Failure> {
    store::check_folders(args.output.out.as_deref(), args.job.data_dir.as_deref())?;
    match args.output.plots.as_deref().filter(|_| args.job.job_name != Some(JobName::Ps)) {
        Some(folder) => plots::may_write(folder),
        None => Ok(()),
    }
}

/// Finds the types of the columns, in the model from which a training starts or in its data.
fn read_types(args: &mut TrainArgs) -> Result<(), Failure> {
    if args.job.job_name == Some(JobName::Worker) {
        start_rows::must_be_here(args)?;
    }
    column_types::settle(args)
}

/// The checks that a worker makes before it connects, for `gannet launch`. Nothing is printed, and `--out` is free
/// again afterwards. Data that grows or comes once is not read.
///
/// # Errors
/// That of the worker.
pub fn check_worker(args: &mut TrainArgs) -> Result<(), Failure> {
    let checked = without_notices(|| {
        let (model, lbfgs) = (args.model.model, args.optimizer.optimizer == Some(OptimizerName::Lbfgs));
        tasks::settle(&mut args.job, &args.data, model, lbfgs);
        check_folders(args)?;
        kept_names::prepare(args)?;
        if args.data.follow.grows() || input_check::comes_once(&args.data) {
            return Ok(());
        }
        if matches!(args.data.input.scale, ScaleName::Standard | ScaleName::Minmax) {
            // It is a pass over all data, which the workers make.
            args.data.input.scale = ScaleName::Auto;
        }
        read_types(args)?;
        match model {
            _ if lbfgs => lbfgs::check(args),
            ModelName::Lr => lr_worker::check(args),
            _ => models::worker::check(args),
        }
    });
    out_folder::release();
    checked
}
