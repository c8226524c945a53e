//! Checkpoints that are restored: into data folders for servers, and by servers as they start.

use crate::harness::ports::free_addr;
use crate::harness::{Served, clicks, gannet, ok, refused, run};
use gannet::Schema;
use gannet::optim::{Add, Rule};
use gannet::storage::{CheckpointDir, Cursor, JobManifest, RowFileWriter, ShardCut, TableCut, TableUid};
use gannet::table::{Read, hash, shard_of};
use gannet::{Transports, Worker, WorkerConfig};
use std::path::Path;

const SHARDS: u32 = 4;

fn schema() -> Schema {
    Schema { shards: SHARDS, ..Schema::scalar("clicks", Rule::Add(Add)) }
}

/// Saves a checkpoint with the keys 0 to 999. The row of each is its key and `more`.
fn save(directory: &Path, more: f32) -> u64 {
    let directory = CheckpointDir::create(directory).unwrap();
    let draft = directory.begin().unwrap();
    let cut = |shard| ShardCut { shard, birth: 5, epoch: 1, from: 0, to: 9, file: None };
    let cursors = vec![Cursor { pusher: 1, incarnation: 3, seq: 7, closed: false }];
    let shards = (0..SHARDS).map(cut).collect();
    let table = TableCut { schema: schema(), uid: TableUid([7; 16]), shards, cursors };
    let mut manifest = JobManifest { tables: vec![table], ..JobManifest::new(draft.number(), "monday") };
    for shard in 0..SHARDS {
        let head = manifest.row_file_head(0, shard).unwrap();
        let mut writer = RowFileWriter::create(&directory, head, 1).unwrap();
        for key in (0..1000).filter(|&key| shard_of(hash(key), SHARDS) == shard) {
            writer.rows(&[key], &[key as f32 + more]).unwrap();
        }
        manifest.tables[0].shards[shard as usize].file = Some(writer.finish().unwrap());
    }
    let number = draft.number();
    draft.publish(&manifest).unwrap();
    number
}

/// Checks the rows that these servers have.
fn check(servers: &[&Served], shards: u32, more: f32) {
    let addrs = servers.iter().map(|server| server.addr.clone());
    let config = WorkerConfig::builder(addrs).worker(0).incarnation(1 << 40).build();
    let mut worker = Worker::connect(Transports::new(), config).unwrap();
    let table = worker.open_table(&Schema { shards, ..schema() }).unwrap();
    assert_eq!(worker.status(table).unwrap().stats.rows, 1000);
    let keys: Vec<u64> = (0..1000).collect();
    let mut rows = vec![0.0; 1000];
    worker.pull(table, &keys, Read::Weights, &mut rows).unwrap();
    assert!(keys.iter().zip(&rows).all(|(&key, &row)| row == key as f32 + more), "{rows:?}");
}

#[test]
fn data_folders_are_written_and_servers_start_on_them() {
    let folder = tempfile::tempdir().unwrap();
    let (from, out) = (folder.path().join("checkpoints"), folder.path().join("out"));
    assert_eq!((save(&from, 0.25), save(&from, 0.5)), (1, 2));
    let (from, out) = (from.display(), out.display());
    let done = ok(&format!("checkpoint restore {from} --data-dir {out} --servers 2 --shards 16 --threads 3"));
    assert!(done.out.ends_with("is restored: 1000 rows\n"), "{done:?}");
    assert!(done.out.contains("out/server-1: "), "{done:?}");
    let again = ok(&format!("checkpoint restore {from} --data-dir {out} --servers 2"));
    assert_eq!(again.out.matches("has these tables already, and stays as it is").count(), 2, "{again:?}");
    let start = |server: u32| {
        Served::start(gannet(&format!(
            "server --listen 127.0.0.1:0 --threads 2 --data-dir {out}/server-{server}"
        )))
    };
    let servers = [start(0), start(1)];
    check(&[&servers[0], &servers[1]], 16, 0.5);
}

#[test]
fn a_server_restores_itself_before_it_listens() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("checkpoints");
    save(&from, 0.25);
    save(&from, 0.5);
    let restore = format!("--restore {}@1 --ps-hosts b:1,a:1", from.display());
    let start = |server: u32| {
        let line = format!("server --listen 127.0.0.1:0 --threads 1 {restore} --task-index {server}");
        Served::start(gannet(&line))
    };
    let servers = [start(0), start(1)];
    check(&[&servers[0], &servers[1]], SHARDS, 0.25);
}

#[test]
fn what_cannot_be_restored_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("checkpoints");
    let out = folder.path().join("out").display().to_string();
    save(&from, 0.25);
    let number = save(&from, 0.5);
    let dir = from.display().to_string();
    refused(&format!("checkpoint restore {dir}/no --data-dir {out}"), &["no such folder"]);
    refused(&format!("checkpoint restore {dir} 7 --data-dir {out}"), &["checkpoint 7", "is 2"]);
    refused(&format!("checkpoint restore {dir} --data-dir {out} --shards 3"), &["3 shards"]);
    refused(
        &format!("checkpoint restore {dir} --data-dir {out} --servers 2 --scheduler 2"),
        &["--scheduler 2", "0 to 1"],
    );
    refused(&format!("server --restore {dir} --ps-hosts a:1,b:1 --task-index 2"), &["--task-index 2"]);
    refused(&format!("server --listen 127.0.0.1:0 --restore {dir}@7"), &["checkpoint 7"]);
    let small = run(&format!("server --listen 127.0.0.1:0 --restore {dir} --memory-limit 32KB"));
    assert_eq!(small.code, Some(2), "{small:?}");
    assert!(small.err.contains("--memory-limit"), "{small:?}");

    let unsound = folder.path().join("unsound");
    save(&unsound, f32::NAN);
    let named = ["-000", ".rows: the row of key ", "\"clicks\" has values that its rule cannot have made"];
    refused(&format!("server --listen 127.0.0.1:0 --restore {}", unsound.display()), &named);

    let broken = from.join(format!("{number:010}/t00-0002.rows"));
    let mut bytes = std::fs::read(&broken).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    std::fs::write(&broken, bytes).unwrap();
    refused(&format!("checkpoint restore {dir} --data-dir {out}"), &["t00-0002.rows", "checksum"]);
    // The folder that was begun is not served, and the older checkpoint can be restored into it.
    refused(
        &format!("server --listen 127.0.0.1:0 --data-dir {out}/server-0"),
        &["did not come to its end", "restore it again"],
    );
    let done = ok(&format!("checkpoint restore {dir} 1 --data-dir {out}"));
    assert!(done.out.contains("1000 rows"), "{done:?}");
}

#[test]
fn checkpoint_restore_takes_the_name_that_its_error_offers() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("checkpoints");
    save(&from, 0.25);
    save(&from, 0.5);
    let (dir, out) = (from.display(), folder.path().join("out"));
    for (name, of, more) in [("@1", "1", 0.25), (" 1", "1", 0.25), ("@2", "2", 0.5), ("", "2", 0.5)] {
        let out = out.join(format!("{of}{name}").replace(' ', "-"));
        let done = ok(&format!("checkpoint restore {dir}{name} --data-dir {}", out.display()));
        assert!(
            done.out.ends_with(&format!("checkpoint {of} of {dir} is restored: 1000 rows\n")),
            "{done:?}"
        );
        let folder = out.join("server-0");
        let line = format!("server --listen 127.0.0.1:0 --threads 1 --data-dir {}", folder.display());
        check(&[&Served::start(gannet(&line))], SHARDS, more);
    }
    refused(
        &format!("checkpoint restore {dir}@1 2 --data-dir {}", out.display()),
        &["@1 2", "two checkpoints"],
    );
    refused(&format!("checkpoint restore {dir}@7 --data-dir {}", out.display()), &["checkpoint 7"]);
}

/// A job whose --checkpoint had the checkpoints of another run restored them, and pruned them when it saved.
#[test]
fn a_job_takes_no_checkpoint_directory_of_another_run() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("checkpoints");
    save(&from, 0.25);
    save(&from, 0.5);
    let dir = from.display().to_string();
    let hosts =
        |addr: &str| format!("--ps-hosts {addr} --worker-hosts w:0 --task-index 0 --checkpoint {dir}");
    let ps = |flags: &str| format!("train --job-name ps {} {flags}", hosts(&free_addr()));
    let named = ["of the run \"monday\"", "0000000002", "a checkpoint directory of its own"];
    refused(&ps(""), &named);
    refused(&ps("--run tuesday"), &[&named[..], &["not of the run \"tuesday\""]].concat());
    let own = Served::start(gannet(&ps("--run monday")));
    drop(own);
    // Neither does its worker 0 save there, nor does anybody else.
    let server =
        Served::start(gannet(&format!("server --listen 127.0.0.1:0 --threads 2 --checkpoint {dir}")));
    let data = clicks(&folder.path().join("train.svm"), 500, 5);
    let train = format!("train {} --job-name worker --checkpoint-keep 1", data.display());
    refused(&format!("{train} {}", hosts(&server.addr)), &named);
    ok(&format!(
        "train {} --job-name worker --ps-hosts {} --worker-hosts w:0 --task-index 0",
        data.display(),
        server.addr
    ));
    let done = run(&format!("checkpoint save {dir} --ps-hosts {}", server.addr));
    assert!(done.code != Some(0) && named.iter().all(|word| done.err.contains(word)), "{done:?}");
    let listed = CheckpointDir::open(&from).unwrap().list().unwrap();
    assert_eq!(listed.iter().map(|listed| listed.number).collect::<Vec<_>>(), [1, 2]);
    // A ps has no other use for the name of a run.
    let alone = format!("train --job-name ps --ps-hosts {} --worker-hosts w:0 --run monday", free_addr());
    refused(&alone, &["--run", "a ps with --checkpoint"]);
}
