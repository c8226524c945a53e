//! Which checkpoint a server starts from.

use crate::checkpoint_place::directory_and_number;
use crate::checkpoint_place::{create_checkpoints, open_checkpoints};
use crate::failure::Failure;
use crate::flags::{JobArgs, RestoreArgs};
use crate::job::servers;
use gannet::server::RestoreSource;

/// The newest checkpoint of a ps of a job (`--checkpoint`), if the folder has one. One of another run is refused. With
/// a coordinator a ps looks for one when it begins a place.
pub fn newest(job: &JobArgs) -> Result<Option<RestoreSource>, Failure> {
    let folder = job.checkpoint.checkpoint.as_ref().filter(|_| job.backups.coordinator.is_none());
    let Some(folder) = folder else { return Ok(None) };
    let directory = create_checkpoints(folder)?;
    // A directory whose checkpoints are damaged is for the server: it may have the tables in its data folder.
    if matches!(directory.newest_valid(), Ok(None)) {
        return Ok(None);
    }
    let (server, servers) = (job.task_index, job.ps_hosts.len() as u32);
    let scheduler = servers::first_server(&job.ps_hosts) == job.ps_hosts[server as usize];
    let run = Some(job.run.name().to_owned());
    Ok(Some(RestoreSource { scheduler, run, ..RestoreSource::new(&directory, server, servers) }))
}

/// What `--restore` and the flags beside it name.
pub fn source(args: &RestoreArgs) -> Result<Option<RestoreSource>, Failure> {
    let Some(named) = &args.restore else { return Ok(None) };
    let (directory, number) = directory_and_number(named);
    let (hosts, server) = (&args.ps_hosts, args.task_index.unwrap_or(0));
    let servers = hosts.len().max(1);
    if server as usize >= servers {
        return Err(Failure::input(format!(
            "--task-index {server}: --ps-hosts names {servers}, so 0 to {} is allowed",
            servers - 1
        )));
    }
    // The scheduler is the server whose address comes first, in whatever order they are named.
    let scheduler = hosts.iter().min() == hosts.get(server as usize);
    let (shards, servers, directory) = (args.shards, servers as u32, open_checkpoints(&directory)?);
    Ok(Some(RestoreSource { number, shards, scheduler, ..RestoreSource::new(&directory, server, servers) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_address_is_the_scheduler() {
        let folder = tempfile::tempdir().unwrap();
        let of = |task_index, hosts: &[&str]| {
            let ps_hosts = hosts.iter().map(|&host| host.to_owned()).collect();
            let (restore, task_index) = (Some(folder.path().into()), Some(task_index));
            source(&RestoreArgs { restore, ps_hosts, task_index, shards: None })
        };
        let one = of(0, &[]).unwrap().unwrap();
        assert_eq!((one.server, one.servers, one.scheduler), (0, 1, true));
        let first = of(0, &["b:1", "a:1"]).unwrap().unwrap();
        assert_eq!((first.server, first.servers, first.scheduler), (0, 2, false));
        assert!(of(1, &["b:1", "a:1"]).unwrap().unwrap().scheduler);
        assert!(of(2, &["b:1", "a:1"]).unwrap_err().to_string().contains("--task-index 2"));
    }
}
