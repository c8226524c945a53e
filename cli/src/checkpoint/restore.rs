//! `gannet checkpoint restore`: writes the data folders of servers from a checkpoint.

use crate::checkpoint_place::directory_and_number;
use crate::checkpoint_place::open_checkpoints;
use crate::failure::Failure;
use crate::flags::RestoreFoldersArgs;
use crate::report::words::counted;
use crate::server::store;
use gannet::ServerConfig;
use gannet::server::{RestoreSource, Restored, restore_folder};
use std::path::Path;

/// Writes the data folders of all servers.
pub fn run_restore(args: &RestoreFoldersArgs) -> Result<(), Failure> {
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
    let directory = open_checkpoints(&dir)?;
    let (mut rows, mut kept) = (0, 0);
    for server in 0..*servers {
        let folder = data_dir.join(format!("server-{server}"));
        let store = store::store(Some(&folder), &args.memory)?;
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
