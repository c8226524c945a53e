//! `--warm-start` in a job: worker 0 puts the rows of the model on the servers before any worker trains, and the others
//! wait for that.

use crate::failure::{Failure, STOPPED};
use crate::flags::TrainArgs;
use crate::job::connection::WorkerConnection;
use crate::model::warm_source::open_warm_source;
use crate::report::words::counted;
use crate::runs::in_run::InRun;
use gannet::train::{StartAtServers, StartRows};
use gannet::{Schema, Transports, Worker};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Checks that this worker can read the model from which its job starts.
///
/// # Errors
/// It cannot.
pub fn must_be_here(args: &TrainArgs) -> Result<(), Failure> {
    let Some(folder) = &args.lbfgs.warm_start else { return Ok(()) };
    open_warm_source(folder).map(drop).map_err(|failure| {
        let text = format!(
            "{failure}. Each worker of a job reads there how the data was read and normalized: give worker {} that \
             model, too",
            args.job.task_index
        );
        Failure::new(failure.code, text)
    })
}

/// Sees to it that the rows of the model are in the tables of these schemas, before this worker opens them to train.
/// The connection over which it will train stays idle.
///
/// # Errors
/// The rows cannot be put, the run has other rows, worker 0 does not put them in time, or the servers are lost.
pub fn begin(
    rows: &dyn StartRows,
    (args, schemas): (&TrainArgs, &[Schema]),
    (run, line, idle): (&InRun, &WorkerConnection, &mut Worker<Transports>),
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let (rank, own) = (args.job.task_index, || (line.net.clone(), line.config.clone()));
    let (net, config) = own();
    let mut tables = StartAtServers::connect(net, config, schemas, rows.name())?;
    tables.check_rows()?;
    if tables.are_put()? {
        return Ok(());
    }
    if rank > 0 {
        let mut are_put = || -> Result<bool, Failure> {
            idle.poll()?;
            Ok(tables.are_put()?)
        };
        return run.wait_for_rows(&mut are_put, stop);
    }
    let (net, config) = own();
    let mut chief = StartAtServers::connect_chief(net, config, schemas, rows.name())?;
    let put = chief.put(rows, line.config.incarnation, stop).map_err(|error| match stop.load(Relaxed) {
        true => Failure::new(
            STOPPED,
            "stopped by a signal while the rows of --warm-start were put on the servers",
        ),
        false => error.into(),
    })?;
    if let (Some(count), Some(folder), true) = (put, &args.lbfgs.warm_start, args.output.tells()) {
        notice!("gannet: the job starts with {} of {}", counted(count, "row", "rows"), folder.display());
    }
    Ok(())
}
