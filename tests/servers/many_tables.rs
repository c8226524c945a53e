//! Thousands of tables in one server: their memory and files are in proportion to their rows, and dropped tables leave
//! nothing.

use crate::harness;

use gannet::optim::Add;
use gannet::table::TableId;
use gannet::worker::WorkerError;
use gannet::{Read, Rule, Schema, Worker, WorkerConfig, Write};
use gannet_transport::multi::Transports;
use harness::{Served, gannet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const TABLES: u64 = 2000;
const ROWS: u64 = 10;
/// The most bytes that a table of few rows may take: with two server threads it has two shards.
const TABLE_BYTES: u64 = 128 << 10;

fn server(flags: &str) -> Served {
    Served::start(gannet(&format!("server --listen 127.0.0.1:0 --threads 2 {flags}")))
}

fn worker(served: &Served, incarnation: u64) -> Worker<Transports> {
    let config = WorkerConfig::builder([&*served.addr]).incarnation(incarnation).build();
    Worker::connect(Transports::new(), config).unwrap()
}

fn schema(number: u64) -> Schema {
    Schema::scalar(&format!("embedding-{number}"), Rule::Add(Add))
}

fn keys(number: u64) -> Vec<u64> {
    (0..ROWS).map(|row| number * ROWS + row).collect()
}

/// Adds `value` to each row of each table.
fn push_to_all(worker: &mut Worker<Transports>, tables: &[TableId], value: f32) {
    for (number, &table) in (0..).zip(tables) {
        worker.push(table, &keys(number), Write::Gradient, &[value; ROWS as usize]).unwrap();
    }
}

fn open_all(worker: &mut Worker<Transports>) -> Vec<TableId> {
    (0..TABLES).map(|number| worker.open_table(&schema(number)).unwrap()).collect()
}

fn check_all(worker: &mut Worker<Transports>, tables: &[TableId], want: f32) {
    for (number, &table) in (0..).zip(tables) {
        let mut rows = [0.0; ROWS as usize];
        worker.pull(table, &keys(number), Read::Weights, &mut rows).unwrap();
        assert_eq!(rows, [want; ROWS as usize], "table {number}");
        assert_eq!(worker.status(table).unwrap().stats.rows, ROWS);
    }
}

/// A number of bytes that the system says of a process.
fn bytes(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// The resident memory of a process, images included.
fn resident(pid: u32) -> u64 {
    bytes(pid, "VmRSS:")
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// The space that the files of a folder take.
fn space(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            if entry.path().is_dir() {
                space(&entry.path())
            } else {
                entry.metadata().unwrap().blocks() * 512
            }
        })
        .sum()
}

#[test]
fn two_thousand_tables_are_in_one_server_in_memory_in_proportion_to_their_rows() {
    let served = server("");
    let mut worker = worker(&served, 1);
    let before = resident(served.id());
    let tables = open_all(&mut worker);
    push_to_all(&mut worker, &tables, 1.0);
    check_all(&mut worker, &tables, 1.0);
    let used = resident(served.id()) - before;
    assert!(used < TABLES * TABLE_BYTES, "{} bytes a table", used / TABLES);
    // A table that has many rows among the others.
    let many: Vec<u64> = (1 << 40..(1 << 40) + 300_000).collect();
    for keys in many.chunks(10_000) {
        worker.push(tables[7], keys, Write::Gradient, &vec![2.0; keys.len()]).unwrap();
    }
    let mut rows = vec![0.0; many.len()];
    worker.pull(tables[7], &many, Read::Weights, &mut rows).unwrap();
    assert!(rows.iter().all(|row| *row == 2.0));
    assert_eq!(worker.status(tables[7]).unwrap().stats.rows, ROWS + 300_000);
    served.stop();
}

#[test]
fn two_thousand_tables_in_a_data_folder_survive_a_kill_and_an_orderly_end() {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let flags = format!("--data-dir {}", folder.path().display());
    let served = server(&flags);
    let mut first = worker(&served, 1);
    let tables = open_all(&mut first);
    push_to_all(&mut first, &tables, 1.0);
    let used = space(folder.path());
    assert!(used < TABLES * TABLE_BYTES, "{} bytes a table", used / TABLES);
    served.kill();
    let served = server(&flags);
    let mut second = worker(&served, 2);
    let tables = open_all(&mut second);
    check_all(&mut second, &tables, 1.0);
    push_to_all(&mut second, &tables, 2.0);
    served.stop();
    let served = server(&flags);
    let mut third = worker(&served, 3);
    let tables = open_all(&mut third);
    check_all(&mut third, &tables, 3.0);
    served.stop();
}

#[test]
fn a_table_of_64_shards_without_rows_does_not_reserve_a_hundredth_of_all_addresses() {
    let served = server("");
    let before = bytes(served.id(), "VmSize:");
    worker(&served, 1).open_table_exactly(&schema(0)).unwrap();
    let reserved = bytes(served.id(), "VmSize:") - before;
    assert!(reserved < 1 << 38, "{} GiB", reserved >> 30);
    served.stop();
}

#[test]
fn three_thousand_tables_that_were_made_and_dropped_cost_a_server_nothing() {
    let served = server("");
    let mut worker = worker(&served, 1);
    let mut fit = |number: u64| {
        let schema = Schema::scalar(&format!("fit-{number}"), Rule::Add(Add));
        let table = worker.open_table(&schema).unwrap();
        worker.push(table, &keys(number), Write::Gradient, &[1.0; ROWS as usize]).unwrap();
        let mut rows = [0.0; ROWS as usize];
        worker.pull(table, &keys(number), Read::Weights, &mut rows).unwrap();
        assert_eq!(rows, [1.0; ROWS as usize], "fit {number}");
        worker.drop_table(&schema.name).unwrap();
    };
    (0..200).for_each(&mut fit);
    let before = (descriptors(served.id()), resident(served.id()));
    (200..3000).for_each(&mut fit);
    let after = (descriptors(served.id()), resident(served.id()));
    assert!(after.0 <= before.0 && after.1 < before.1 + (4 << 20), "{before:?}, then {after:?}");
    // The name of a dropped table is free for another one.
    (0..2).for_each(|_| fit(7));
    served.stop();
}

/// The next table gets the place of a dropped one in the server's list, and another number.
#[test]
fn a_push_to_a_dropped_table_does_not_reach_the_table_that_has_its_place() {
    let served = server("");
    let mut first = worker(&served, 1);
    let dropped = first.open_table(&schema(0)).unwrap();
    first.push(dropped, &keys(0), Write::Gradient, &[1.0; ROWS as usize]).unwrap();
    let config = WorkerConfig::builder([&*served.addr]).worker(1).incarnation(1).build();
    let mut second = Worker::connect(Transports::new(), config).unwrap();
    second.drop_table(&schema(0).name).unwrap();
    let next = second.open_table(&schema(1)).unwrap();
    second.push(next, &keys(0), Write::Gradient, &[5.0; ROWS as usize]).unwrap();
    let refused = first.push(dropped, &keys(0), Write::Gradient, &[1.0; ROWS as usize]).unwrap_err();
    assert!(refused.to_string().contains("its rows were dropped"), "{refused}");
    let mut rows = [0.0; ROWS as usize];
    second.pull(next, &keys(0), Read::Weights, &mut rows).unwrap();
    assert_eq!(rows, [5.0; ROWS as usize]);
    served.stop();
}

#[test]
fn a_server_with_too_many_tables_says_the_limit_and_what_to_do() {
    let served = Served::start(gannet("server --listen 127.0.0.1:0 --threads 1"));
    let mut worker = worker(&served, 1);
    let schema = |number: u64| Schema { shards: 1, ..schema(number) };
    let refused = (0..).find_map(|number| worker.open_table(&schema(number)).err()).unwrap();
    let WorkerError::Refused { text, .. } = &refused else { panic!("{refused}") };
    assert!(text.contains("8192 tables are open, the limit") && text.contains("drop tables"), "{text}");
    worker.drop_table(&schema(11).name).unwrap();
    worker.open_table(&schema(1 << 20)).unwrap();
    served.stop();
}

#[test]
fn a_server_without_descriptors_for_one_more_table_says_the_limit_and_what_to_do() {
    let mut command = std::process::Command::new("sh");
    let line = "ulimit -n 200 && exec \"$0\" server --listen 127.0.0.1:0 --threads 2";
    command.args(["-c", line, env!("CARGO_BIN_EXE_gannet")]);
    let served = Served::start(command);
    let mut worker = worker(&served, 1);
    let refused = (0..).find_map(|number| worker.open_table_exactly(&schema(number)).err()).unwrap();
    let text = refused.to_string();
    assert!(text.contains("no more open files") && text.contains("(ulimit -n)"), "{text}");
    assert!(text.contains("fewer shards") && text.contains("drop tables"), "{text}");
    served.stop();
}
