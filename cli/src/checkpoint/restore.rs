//! Restores from a checkpoint: the data folders of servers (`gannet checkpoint restore`), and the source for a server
//! that restores itself (`--restore`).

use crate::failure::Failure;
use crate::flags::{JobArgs, RestoreArgs, RestoreFoldersArgs};
use crate::report::training::counted;
use crate::train::tasks;
use crate::{checkpoint_place, server};
use gannet::ServerConfig;
use gannet::server::{RestoreSource, Restored, restore_folder};
use std::path::{Path, PathBuf};

/// Writes the data folders of all servers.
pub fn run(args: &RestoreFoldersArgs) -> Result<(), Failure> {
    let RestoreFoldersArgs { dir, data_dir, servers, shards, scheduler, .. } = args;
    if scheduler >= servers {
        let last = servers - 1;
        return Err(Failure::input(format!(
            "--scheduler {scheduler}: with --servers {servers}, 0 to {last} is allowed"
        )));
    }
    let threads = args.threads.map_or_else(|| ServerConfig::new("").threads, |threads| threads as usize);
    let (dir, named) = directory_and_number(dir);
    let mut number = match (named, args.number) {
        (Some(named), Some(number)) => {
            return Err(Failure::input(format!(
                "{}@{named} {number}: this names two checkpoints; name one",
                dir.display()
            )));
        }
        (named, number) => named.or(number),
    };
    let directory = checkpoint_place::open(&dir)?;
    let (mut rows, mut kept) = (0, 0);
    for server in 0..*servers {
        let folder = data_dir.join(format!("server-{server}"));
        let store = server::store(Some(&folder), &args.memory)?;
        let (shards, scheduler) = (*shards, server == *scheduler);
        let source = RestoreSource {
            number,
            shards,
            scheduler,
            goes_on: false,
            ..RestoreSource::new(&directory, server, *servers)
        };
        let restored = restore_folder(&store, threads, &source)?;
        // All servers take the same one, also if a newer one is finished meanwhile.
        number = Some(restored.checkpoint);
        rows += restored.rows;
        kept += u32::from(restored.kept);
        report(&restored, &folder);
    }
    let (number, all) = (number.unwrap_or(0), counted(rows, "row", "rows"));
    match kept == *servers {
        true => say!("nothing was restored: every folder has the tables of checkpoint {number} already"),
        false => say!("checkpoint {number} of {} is restored: {all}", dir.display()),
    }
    Ok(())
}

fn report(restored: &Restored, folder: &Path) {
    let folder = folder.display();
    let Restored { checkpoint, tables, rows, kept } = restored;
    match kept {
        true => say!("{folder}: has these tables already, and stays as it is"),
        false => {
            let (rows, tables) =
                (counted(*rows, "row", "rows"), counted(tables.len() as u64, "table", "tables"));
            say!("{folder}: {rows} of {tables} from checkpoint {checkpoint}");
        }
    }
}

/// The newest checkpoint of a ps of a job (`--checkpoint`), if the folder has one. One of another run is refused. With
/// a coordinator a ps looks for one when it begins a place.
pub fn newest(job: &JobArgs) -> Result<Option<RestoreSource>, Failure> {
    let folder = job.checkpoint.checkpoint.as_ref().filter(|_| job.backups.coordinator.is_none());
    let Some(folder) = folder else { return Ok(None) };
    let directory = checkpoint_place::create(folder)?;
    // A directory whose checkpoints are damaged is for the server: it may have the tables in its data folder.
    if matches!(directory.newest_valid(), Ok(None)) {
        return Ok(None);
    }
    let (server, servers) = (job.task_index, job.ps_hosts.len() as u32);
    let scheduler = tasks::first_server(&job.ps_hosts) == job.ps_hosts[server as usize];
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
    let (shards, servers, directory) = (args.shards, servers as u32, checkpoint_place::open(&directory)?);
    Ok(Some(RestoreSource { number, shards, scheduler, ..RestoreSource::new(&directory, server, servers) }))
}

/// Divides `DIR@N`. A folder whose own name ends like that is taken whole.
pub fn directory_and_number(named: &Path) -> (PathBuf, Option<u64>) {
    let divided = named.to_str().and_then(|text| text.rsplit_once('@')).filter(|_| !named.is_dir());
    let divided = divided.and_then(|(directory, number)| Some((directory, number.parse().ok()?)));
    divided.map_or((named.into(), None), |(directory, number)| (directory.into(), Some(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_behind_the_folder_names_the_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("a@7");
        std::fs::create_dir(&odd).unwrap();
        assert_eq!(directory_and_number(&odd), (odd.clone(), None));
        let numbered = PathBuf::from(format!("{}@12", odd.display()));
        assert_eq!(directory_and_number(&numbered), (odd, Some(12)));
        assert_eq!(directory_and_number(Path::new("x")), ("x".into(), None));
        assert_eq!(directory_and_number(Path::new("x@y")), ("x@y".into(), None));
    }

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
