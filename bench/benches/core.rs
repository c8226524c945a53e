//! What do a pull and a push cost in the shards themselves, without a network? And what does durability cost? The same
//! work runs on memfd, whose images die with the process and keep no journal, and in a data folder on tmpfs, where
//! every row is a step of the journal. SGD, one thread, batches of 4,096 keys.
//!
//! - `runs` pushes the same keys cut into more and more parts. The difference is the cost of the pushers' cursors (one
//!   entry a part and shard).
//! - `view` reads the same rows through a mapping of the images, beside the owner's own pull and beside a gather that
//!   knows every row's place. The difference is the cost of a lookup and of the checks of a reader that is not the
//!   owner.
//! - `few` pulls 64 keys at a time: always the same ones (warm), or others each time (cold).
#![allow(missing_docs)]

mod settings;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gannet_bench::{DIMS, batches, cut, key, sized};
use gannet_core::{MappedShards, PushName, Read, Schema, Segments, Shards, Store, Write, mix, prefetch};
use gannet_optim::{Rule, Sgd};
use settings::criterion;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const BATCH: usize = 4096;
const BATCHES: usize = 64;
const SHARDS: u32 = 16;

/// Where the images are. The folder is removed with the value.
struct Place {
    name: &'static str,
    folder: Option<TempDir>,
}

fn places() -> Vec<Place> {
    let memory = Place { name: "memfd", folder: None };
    let shm = Path::new("/dev/shm");
    let folder = if shm.is_dir() { TempDir::new_in(shm) } else { TempDir::new() };
    vec![memory, Place { name: "tmpfs", folder: Some(folder.expect("a folder for the images")) }]
}

/// A table on one medium, and the names of its pushes.
struct Table {
    shards: Shards,
    seq: u64,
}

impl Table {
    fn new(place: &Place, dim: u32, shards: u32) -> Table {
        let store = place.folder.as_ref().map_or_else(Store::memory, |folder| {
            let store = Store::open_dir(folder.path()).expect("the folder of the images");
            store.drop_table("bench").expect("the table before is dropped");
            store
        });
        let rule = Rule::Sgd(Sgd { lr: 0.01 });
        let schema = Schema { dim, shards, ..Schema::scalar("bench", rule) };
        Table { shards: Shards::open(&store, &schema, 0..shards).expect("a table"), seq: 0 }
    }

    fn filled(place: &Place, dim: u32, shards: u32, rows: u64) -> Table {
        let mut table = Table::new(place, dim, shards);
        for from in (0..rows).step_by(BATCH) {
            let keys = cut((from..from + BATCH as u64).map(key).collect(), shards);
            table.push(&keys, None, &vec![0.5; BATCH * dim as usize]);
        }
        table
    }

    fn push(&mut self, keys: &[u64], slots: Option<&mut [u32]>, values: &[f32]) {
        self.seq += 1;
        let name = PushName { pusher: 1, incarnation: 1, seq: self.seq, row: 0 };
        let done = self.shards.push(&name, Write::Gradient, keys, slots, values).expect("a push");
        assert_eq!(done.applied as usize, keys.len());
    }
}

fn rows() -> u64 {
    sized(1 << 20, 1 << 13) as u64
}

fn pull_and_push(c: &mut Criterion) {
    for place in places() {
        for dim in DIMS {
            let mut table = Table::filled(&place, dim, SHARDS, rows());
            let batches = batches(BATCHES, BATCH, rows(), SHARDS);
            let mut out = vec![0.0; BATCH * dim as usize];
            let values = vec![1e-6; BATCH * dim as usize];
            let mut keysets: Vec<Vec<u32>> = Vec::new();
            for keys in &batches {
                let mut slots = Vec::new();
                table.shards.pull(keys, Read::Weights, &mut out, Some(&mut slots)).expect("a pull");
                keysets.push(slots);
            }
            let mut at = 0;
            let mut next = || {
                at = (at + 1) % BATCHES;
                at
            };
            let mut group = c.benchmark_group(format!("core/{}", place.name));
            group.throughput(Throughput::Elements(BATCH as u64));
            group.bench_function(BenchmarkId::new("pull", dim), |b| {
                b.iter(|| {
                    table.shards.pull(&batches[next()], Read::Weights, &mut out, None).expect("a pull");
                    black_box(&mut out);
                });
            });
            group.bench_function(BenchmarkId::new("push by key", dim), |b| {
                b.iter(|| table.push(&batches[next()], None, black_box(&values)));
            });
            group.bench_function(BenchmarkId::new("push by slots", dim), |b| {
                b.iter(|| {
                    let n = next();
                    table.push(&batches[n], Some(&mut keysets[n]), black_box(&values));
                });
            });
            group.finish();
        }
    }
}

/// Pushes new keys only. A full table is replaced by an empty one outside the measured time.
fn insert(c: &mut Criterion) {
    for place in places() {
        let mut group = c.benchmark_group(format!("core/{}", place.name));
        group.throughput(Throughput::Elements(BATCH as u64));
        for dim in DIMS {
            let values = vec![0.5; BATCH * dim as usize];
            let mut table = Some(Table::new(&place, dim, SHARDS));
            let mut n = 0;
            group.bench_function(BenchmarkId::new("insert", dim), |b| {
                b.iter_custom(|times| {
                    let mut spent = Duration::ZERO;
                    for _ in 0..times {
                        if n >= rows() {
                            n = 0;
                            drop(table.take());
                        }
                        let table = table.get_or_insert_with(|| Table::new(&place, dim, SHARDS));
                        let keys = cut((n..n + BATCH as u64).map(key).collect(), SHARDS);
                        n += BATCH as u64;
                        let start = Instant::now();
                        table.push(&keys, None, &values);
                        spent += start.elapsed();
                    }
                    spent
                });
            });
        }
        group.finish();
    }
}

fn runs(c: &mut Criterion) {
    for place in places() {
        let mut group = c.benchmark_group(format!("runs/{}", place.name));
        group.throughput(Throughput::Elements(BATCH as u64));
        let values = vec![1e-6; BATCH];
        for shards in [1, 64, 512] {
            let mut table = Table::filled(&place, 1, shards, rows());
            let batches = batches(BATCHES, BATCH, rows(), shards);
            let mut at = 0;
            group.bench_function(BenchmarkId::new("push by key", shards), |b| {
                b.iter(|| {
                    at = (at + 1) % BATCHES;
                    table.push(&batches[at], None, black_box(&values));
                });
            });
        }
        group.finish();
    }
}

fn view_of(shards: &Shards) -> MappedShards {
    let images = shards.images(shards.set()).expect("the images").into_iter();
    let files = images.map(|(_, fd, incarnation)| (fd.into(), incarnation)).collect();
    MappedShards::open(shards.schema(), shards.set().clone(), files).expect("a view of them")
}

/// Rows as wide as the table's in one allocation, in huge pages if there are any.
struct Heap {
    memory: memmap2::MmapMut,
    start: usize,
    stride: usize,
}

impl Heap {
    fn new(rows: u64, dim: u32) -> Heap {
        let stride = (16 + 4 * dim as usize).next_multiple_of(8);
        let mut memory = memmap2::MmapMut::map_anon(rows as usize * stride + (2 << 20)).expect("memory");
        let _ = memory.advise(memmap2::Advice::HugePage);
        memory.fill(1);
        let start = memory.as_ptr().align_offset(2 << 20);
        Heap { memory, start, stride }
    }

    /// Copies the floats of each row whose place is known, and prefetches the row that comes 16 later.
    fn gather(&self, places: &[u32], out: &mut [u8]) {
        let width = out.len() / places.len();
        let at = |place: u32| self.start + place as usize * self.stride;
        for (i, answer) in out.chunks_exact_mut(width).enumerate() {
            if let Some(&next) = places.get(i + 16) {
                let first = self.memory.as_ptr().wrapping_add(at(next));
                (0..self.stride).step_by(64).for_each(|line| prefetch(first.wrapping_add(line)));
                prefetch(first.wrapping_add(self.stride - 1));
            }
            let row = at(places[i]) + 16;
            answer.copy_from_slice(&self.memory[row..row + width]);
        }
    }
}

fn view(c: &mut Criterion) {
    for dim in DIMS {
        let rows = sized(if dim == 64 { 1 << 20 } else { 1 << 22 }, 1 << 13) as u64;
        let mut table = Table::filled(&places()[0], dim, SHARDS, rows);
        let mut view = view_of(&table.shards);
        let many = batches(BATCHES, BATCH, rows, SHARDS);
        let mut out = vec![0.0; BATCH * dim as usize];
        let mut slots = Vec::new();
        let mut at = 0;
        let mut next = |batches: usize| {
            at = (at + 1) % batches;
            at
        };
        let mut group = c.benchmark_group("view");
        group.throughput(Throughput::Elements(BATCH as u64));
        group.bench_function(BenchmarkId::new("pull by the owner", dim), |b| {
            b.iter(|| {
                let keys = &many[next(BATCHES)];
                table.shards.pull(keys, Read::Weights, &mut out, None).expect("a pull");
            });
        });
        group.bench_function(BenchmarkId::new("pull", dim), |b| {
            b.iter(|| {
                let keys = &many[next(BATCHES)];
                let missed = view.pull(keys, Read::Weights, Segments::ALL, &mut out, &mut slots);
                assert_eq!(missed, Ok(0));
            });
        });
        let heap = Heap::new(rows, dim);
        let place = |i: u64| (mix(i) % rows) as u32;
        let places: Vec<Vec<u32>> = (0..BATCHES as u64)
            .map(|b| (0..BATCH as u64).map(|i| place(b * BATCH as u64 + i)).collect())
            .collect();
        let mut gathered = vec![0; BATCH * dim as usize * 4];
        group.bench_function(BenchmarkId::new("gather", dim), |b| {
            b.iter(|| heap.gather(&places[next(BATCHES)], black_box(&mut gathered)));
        });
        group.finish();
        let mut group = c.benchmark_group("few");
        let few = batches(sized(1 << 14, 1 << 4), 64, rows, SHARDS);
        let out = &mut out[..64 * dim as usize];
        for (name, batches) in [("warm", &few[..1]), ("cold", &few[..])] {
            group.bench_function(BenchmarkId::new(name, dim), |b| {
                b.iter(|| {
                    let keys = &batches[next(batches.len())];
                    let missed = view.pull(keys, Read::Weights, Segments::ALL, out, &mut slots);
                    assert_eq!(missed, Ok(0));
                });
            });
        }
        group.finish();
    }
}

criterion_group! { name = benches; config = criterion(); targets = pull_and_push, insert, runs, view }
criterion_main!(benches);
