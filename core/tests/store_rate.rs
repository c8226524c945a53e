//! A measurement: how fast the local store takes a file of 2 GB.

use gannet_core::{CheckpointDir, RowFileHead, RowFileKind, RowFileWriter, TableUid, mix};

/// Prints the rate at which the local store takes a file of 2 GB. Run it by hand with TMPDIR on the disk:
/// `cargo test -p gannet-core --test store_rate -- --ignored --nocapture`. `ulimit -n 4` refuses io_uring to it.
#[test]
#[ignore = "a measurement"]
fn rate_of_the_local_store() {
    for round in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let directory = CheckpointDir::create(folder.path()).unwrap();
        let draft = directory.begin().unwrap();
        let (uid, kind) = (TableUid([7; 16]), RowFileKind::Full);
        let (table, shard, shards, floats) = (0, 0, 1, 2);
        let head = RowFileHead { number: draft.number(), uid, table, shard, shards, floats, kind };
        for level in [0, 1] {
            let head = RowFileHead { table: level as u32, ..head };
            let mut writer = RowFileWriter::create(&directory, head, level).unwrap();
            let start = std::time::Instant::now();
            let (mut keys, mut rows) = (vec![0_u64; 4096], vec![0.0_f32; 8192]);
            for block in 0..128 << 20 >> 12 {
                keys.iter_mut().enumerate().for_each(|(at, key)| *key = mix((block << 12) + at as u64));
                rows.iter_mut().zip(keys.iter().cycle()).for_each(|(row, key)| *row = (*key >> 40) as f32);
                writer.rows(&keys, &rows).unwrap();
            }
            let entry = writer.finish().unwrap();
            let mb = 128.0 * 16.0 * 1.048_576;
            let seconds = start.elapsed().as_secs_f64();
            println!("round {round} level {level}: {:.0} MB/s of rows, {} bytes", mb / seconds, entry.bytes);
            std::fs::remove_file(directory.folder(draft.number()).join(&entry.name)).unwrap();
        }
    }
}
