//! How fast the row files of a checkpoint take rows on a disk: a file of 2 GB before compression, uncompressed and with
//! zstd's level 1. Keys and floats are random.
//!
//! `TMPDIR=DISK cargo run --release -p gannet-bench --example store_rate -- [ROUNDS]`
//!
//! With a limit of 4 open files (RLIMIT_NOFILE) the system gives the process no ring of io_uring: plain writes do the
//! work.

use gannet_core::{CheckpointDir, RowFileHead, RowFileKind, RowFileWriter, TableUid, mix};
use std::error::Error;
use std::time::Instant;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 32_768;

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: u32 = std::env::args().nth(1).map_or(Ok(3), |text| text.parse())?;
    for round in 0..rounds {
        let folder = tempfile::tempdir()?;
        let directory = CheckpointDir::create(folder.path())?;
        let draft = directory.begin()?;
        let (uid, kind) = (TableUid([7; 16]), RowFileKind::Full);
        for level in [0, 1] {
            let (number, table) = (draft.number(), level as u32);
            let head = RowFileHead { number, uid, table, shard: 0, shards: 1, floats: 2, kind };
            let mut writer = RowFileWriter::create(&directory, head, level)?;
            let start = Instant::now();
            let (mut keys, mut rows) = (vec![0; BLOCK as usize], vec![0.0_f32; 2 * BLOCK as usize]);
            for block in 0..BLOCKS {
                keys.iter_mut().zip(block * BLOCK..).for_each(|(key, at)| *key = mix(at));
                rows.iter_mut().zip(keys.iter().cycle()).for_each(|(row, key)| *row = (*key >> 40) as f32);
                writer.rows(&keys, &rows)?;
            }
            let entry = writer.finish()?;
            let rate = (BLOCK * BLOCKS * 16) as f64 / 1e6 / start.elapsed().as_secs_f64();
            println!("round {round} level {level}: {rate:.0} MB/s of rows, {} bytes", entry.bytes);
            std::fs::remove_file(directory.folder(number).join(&entry.name))?;
        }
    }
    Ok(())
}
