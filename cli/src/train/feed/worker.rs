//! A worker whose data comes from a client (`--feed`).

use crate::failure::Failure;
use crate::flags::{DataArgs, JobArgs, PassArgs, TasksName};
use crate::job::{check, connection};
use crate::train::feed::data_client::DataClient;
use crate::train::feed::reading::take_over;
use gannet::WorkerConfig;
use gannet::job::DataLink;

/// Connects to the client, and takes over what it says of its data.
pub fn connect(job: &mut JobArgs, data: &mut DataArgs, passes: &mut PassArgs) -> Result<DataClient, Failure> {
    job.tasks.tasks = TasksName::On;
    check::check_job(job)?;
    let line = connection::line(job, None)?;
    let client = job.data_server.feed.clone().unwrap_or_default();
    let own = WorkerConfig { servers: vec![client.clone()], ..line.config.clone() };
    let mut link = DataLink::connect(line.net.clone(), own)?;
    let offer = link.offer()?;
    let nonsense = || {
        Failure::input(format!(
            "the client {client} describes its data in a way that this version does not know: run the same version of gannet everywhere"
        ))
    };
    take_over(data, &mut job.tasks, &offer.reading).ok_or_else(nonsense)?;
    let plan = offer.plan;
    passes.batch = passes.batch.or(Some(plan.batch));
    if passes.epochs == 1 {
        passes.epochs = plan.epochs;
    }
    let sync = &mut job.sync;
    sync.worker_timeout = sync.worker_timeout.or(Some(plan.worker_timeout_ms as f64 / 1000.0));
    Ok(DataClient { link, plan, line })
}
