//! Mapped shards while their owner writes, in another thread or another process, and while it is killed. A
//! reader never gets a torn row, another key's row, or a row of another incarnation. No row is lost,
//! and no access faults.

use crate::viewing;

use gannet_core::*;
use gannet_optim::{Add, Rule};
use std::fs::File;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use viewing::*;

/// Stops the other thread when this one ends, even by a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn rows_are_whole_while_their_owner_writes() {
    for (dim, enough) in [(1, 100_000), (16, 300_000), (64, 300_000), (200, 300_000)] {
        let schema = Schema { init: Init::Zero, ..schema(Rule::Add(Add), dim, 4) };
        let mut table = Shards::open(&Store::memory(), &schema, 0..4).unwrap();
        let mut view = view(&table);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stop = Stop(&stop);
            let writer = scope.spawn(|| {
                write_on(&mut table, 1, || !stop.load(Relaxed));
            });
            let (mut hits, mut rounds) = (0, 0);
            while hits < enough && !writer.is_finished() {
                hits += read_on(&mut view, 100).0;
                rounds += 1;
                assert!(rounds < 1000, "the view finds nothing");
            }
        });
        agree(&mut table, &mut view, &(0..KEYS + 100).collect::<Vec<_>>());
        drop(table);
        assert!(!view.is_current());
        assert_eq!(read_on(&mut view, 1).0, 0, "rows of an owner that has gone");
    }
}

/// Rows that are never freed, in a table that grows all the time: the owner has every row that the reader misses, and
/// the reader misses few.
#[test]
fn what_a_view_misses_its_owner_has() {
    let schema = Schema { init: Init::Zero, ..schema(Rule::Add(Add), 8, 2) };
    let table = Shards::open(&Store::memory(), &schema, 0..2).unwrap();
    let mut view = view(&table);
    let (table, rows, stop) = (Mutex::new(table), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let writer = scope.spawn(|| {
            for seq in 1.. {
                let known = rows.load(Relaxed);
                if known > 150_000 || stop.load(Relaxed) {
                    break;
                }
                let old = (0..48).map(|i| mix(seq * 48 + i) % known.max(1));
                let keys = cut(old.chain(known..known + 48).collect(), 2);
                let values: Vec<f32> =
                    keys.iter().flat_map(|&key| (0..8).map(move |i| value(key, i))).collect();
                table.lock().unwrap().push(&name(seq), Write::Gradient, &keys, None, &values).unwrap();
                rows.store(known + 48, Release);
            }
        });
        let (mut out, mut slots, mut seen) = (vec![0.0; 256 * 8], Vec::new(), [0; 2]);
        for round in 0.. {
            let known = rows.load(Acquire);
            let keys: Vec<u64> = (0..256).map(|i| mix(round * 256 + i) % known.max(1)).collect();
            if known == 0 {
                continue;
            }
            let missed = view.pull(&keys, Read::Weights, Segments::ALL, &mut out, &mut slots).unwrap();
            for ((&key, &slot), row) in keys.iter().zip(&slots).zip(out.chunks(8)) {
                assert!(slot == NO_SLOT || is_whole(key, row), "key {key} at {slot}: {row:?}");
            }
            let requested: Vec<u64> =
                keys.iter().zip(&slots).filter(|(_, slot)| **slot == NO_SLOT).map(|(key, _)| *key).collect();
            let (answers, found) = (&mut out[..requested.len() * 8], &mut slots);
            found.clear();
            table.lock().unwrap().pull(&requested, Read::Weights, answers, Some(found)).unwrap();
            for ((&key, &slot), row) in requested.iter().zip(&slots).zip(out.chunks(8)) {
                assert!(slot != NO_SLOT && is_whole(key, row), "key {key} is lost: {row:?}");
            }
            seen[0] += keys.len() - missed;
            seen[1] += missed;
            if writer.is_finished() && round > 200 {
                break;
            }
        }
        assert!(seen[0] > seen[1], "{seen:?}");
    });
    let known = rows.load(Acquire);
    agree(
        &mut table.lock().unwrap(),
        &mut view,
        &(0..known + 100).collect::<Vec<_>>()[known as usize - 60_000..],
    );
}

/// The server of the next test. Its images are in a folder, or in memory and found through /proc by their descriptors.
#[test]
fn child() {
    let Ok(place) = std::env::var("VIEW_CHILD") else { return };
    let store = match place.as_str() {
        "memory" => Store::memory(),
        folder => Store::open_dir(folder.as_ref()).unwrap(),
    };
    let mut table = Shards::open(&store, &child_schema(), 0..2).unwrap();
    let images = table.images(table.set()).unwrap();
    let fds: Vec<String> =
        images.iter().map(|(_, fd, incarnation)| format!("{}:{incarnation}", raw(fd))).collect();
    println!("\nimages {}", fds.join(" "));
    std::io::stdout().flush().unwrap();
    write_on(&mut table, 1, || true);
}

fn raw(fd: &impl std::os::fd::AsRawFd) -> i32 {
    fd.as_raw_fd()
}

fn child_schema() -> Schema {
    Schema { init: Init::Zero, ..schema(Rule::Add(Add), 24, 2) }
}

struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a child that writes without end, and maps its images.
fn spawn(place: &str) -> (Child, MappedShards) {
    use std::io::BufRead;
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["mapped_shards_races::child", "--exact", "--nocapture"]).env("VIEW_CHILD", place);
    let mut child = Child(command.stdout(std::process::Stdio::piped()).spawn().unwrap());
    let out = std::io::BufReader::new(child.0.stdout.take().unwrap());
    let line = out.lines().map(Result::unwrap).find(|line| line.starts_with("images ")).unwrap();
    let files = line["images ".len()..].split(' ').map(|image| {
        let (fd, incarnation) = image.split_once(':').unwrap();
        let path = format!("/proc/{}/fd/{fd}", child.0.id());
        (File::open(path).unwrap(), incarnation.parse().unwrap())
    });
    let view = MappedShards::open(&child_schema(), 0..child_schema().shards, files.collect()).unwrap();
    (child, view)
}

/// kill -9 of the server at any moment. Its mapped images can still be read without a fault, and every row that is
/// found is whole. The next incarnation of the shards ends the reading before it changes a byte.
#[test]
fn a_killed_server_leaves_whole_rows_and_no_fault() {
    for n in 0..12 {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let durable = n % 3 != 0;
        let (mut child, mut view) = spawn(if durable { folder.path().to_str().unwrap() } else { "memory" });
        let mut hits = 0;
        for _ in 0..10_000 {
            hits += read_on(&mut view, 5 + n).0;
            if hits > 2000 {
                break;
            }
        }
        assert!(hits > 2000, "the view found {hits} rows");
        child.0.kill().unwrap();
        read_on(&mut view, 50);
        child.0.wait().unwrap();
        assert!(read_on(&mut view, 50).0 > 0, "nothing says yet that the server has gone");
        if durable {
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let (view, stop) = (&mut view, &stop);
                let stopping = Stop(stop);
                let reader = scope.spawn(move || {
                    while !stop.load(Relaxed) {
                        read_on(view, 20);
                    }
                    view
                });
                let store = Store::open_dir(folder.path()).unwrap();
                let mut table = Shards::open(&store, &child_schema(), 0..2).unwrap();
                let mut rounds = 0..200;
                write_on(&mut table, 2, || rounds.next().is_some());
                drop(stopping);
                let view = reader.join().unwrap();
                assert!(!view.is_current());
                assert_eq!(read_on(view, 3).0, 0, "rows of another incarnation");
            });
        }
    }
}
