//! A worker whose data comes from a client (`--feed`).

use crate::failure::Failure;
use crate::flags::{TasksName, TrainArgs};
use crate::job::{check, connection};
use crate::train::feed::data_client::DataClient;
use crate::train::feed::reading::take_over;
use crate::train::lr_worker::run_lr_worker;
use gannet::WorkerConfig;
use gannet::job::DataLink;

/// Runs a worker whose data comes from a client.
pub fn worker(args: &mut TrainArgs) -> Result<(), Failure> {
    args.job.tasks.tasks = TasksName::On;
    check::check_job(&args.job)?;
    let line = connection::line(&args.job, None)?;
    let client = args.job.data_server.feed.clone().unwrap_or_default();
    let own = WorkerConfig { servers: vec![client.clone()], ..line.config.clone() };
    let mut link = DataLink::connect(line.net.clone(), own)?;
    let offer = link.offer()?;
    let nonsense = || {
        Failure::input(format!(
            "the client {client} describes its data in a way that this version does not know: run the same version of gannet everywhere"
        ))
    };
    take_over(args, &offer.reading).ok_or_else(nonsense)?;
    let plan = offer.plan;
    args.batch = args.batch.or(Some(plan.batch));
    if args.epochs == 1 {
        args.epochs = plan.epochs;
    }
    let sync = &mut args.job.sync;
    sync.worker_timeout = sync.worker_timeout.or(Some(plan.worker_timeout_ms as f64 / 1000.0));
    run_lr_worker(args, Some(DataClient { link, plan, line }))
}
