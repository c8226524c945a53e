//! What each part of the hot path costs: nanoseconds of one core for a key, from the bare copy of a row up to the
//! shards of a table. scripts/ladder.py runs it, and adds what a server's thread costs beside it.
//!
//! `cargo run --release -p gannet-bench --example ladder -- DIM ROWS ROUNDS`. It prints a line for each rung: its name,
//! and the medians of pulls and of pushes ("-": it has none). The rungs take turns within a round.
//!
//! Rows are 16 + 4 x DIM bytes, as a table has them, and a push is a step of SGD. Batches have 65,536 random keys. The
//! plain index is an array of 8 bytes a slot, at most half full, with linear probing: half of the hash, and the place
//! of the row.

use gannet_bench::{batches, key};
use gannet_core::{PushName, Read, Schema, Shards, Store, Write, hash, prefetch, push_parts};
use gannet_optim::{Rule, Sgd};
use memmap2::{Advice, MmapMut};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::error::Error;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const BATCH: usize = 65_536;
/// Keys of all batches: so many that their rows do not stay in the cache.
const KEYS: usize = 1 << 20;
const LR: f32 = 0.01;
const BLOCK: usize = 8;
/// Keys ahead whose index lines are prefetched.
const AHEAD: usize = 16;
/// The most pieces of a message that the kernel takes.
const IOV_MAX: usize = 1024;
const HUGE: usize = 2 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: ladder DIM ROWS ROUNDS";
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dim, rows, rounds] = &arguments[..] else { return Err(usage.into()) };
    let (dim, rows, rounds): (usize, u64, usize) = (dim.parse()?, rows.parse()?, rounds.parse()?);
    if dim == 0 || rows == 0 || rounds == 0 {
        return Err(usage.into());
    }
    let mut rungs: Vec<Box<dyn Rung>> = Vec::new();
    for (name, look_up, huge) in [
        ("rows at known places", false, true),
        ("a plain index", true, true),
        ("a plain index, pages of 4 KiB", true, false),
    ] {
        rungs.push(Box::new(Plain::new(name, dim, rows, look_up, huge)?));
    }
    for shards in [1, 4, 16, 64] {
        rungs.push(Box::new(Table::new(dim, rows, shards, false)?));
    }
    rungs.push(Box::new(Table::new(dim, rows, 64, true)?));
    for vectored in [false, true] {
        rungs.push(Box::new(Sends::new(dim, rows, vectored)?));
    }
    settle();
    let mut nanos = vec![[(); 2].map(|()| Vec::new()); rungs.len()];
    for _ in 0..rounds {
        for (rung, nanos) in rungs.iter_mut().zip(&mut nanos) {
            for (push, nanos) in [false, true].into_iter().zip(nanos) {
                if push && !rung.pushes() {
                    continue;
                }
                let begin = cpu();
                rung.pass(push);
                nanos.push((cpu() - begin).as_nanos() as f64 / rung.keys() as f64);
            }
        }
    }
    for (rung, nanos) in rungs.iter().zip(&mut nanos) {
        let [pull, push] = nanos.each_mut().map(|nanos| {
            nanos.sort_by(f64::total_cmp);
            nanos.get(nanos.len() / 2).map_or("-".into(), |median| format!("{median:.1}"))
        });
        println!("{}\t{pull}\t{push}", rung.name());
    }
    Ok(())
}

/// CPU time of this thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Waits until the tables no longer turn small pages into huge ones: until this process is idle for 0.3 s, but at most
/// a minute.
fn settle() {
    let process = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let (mut quiet, mut slices) = (0, 0);
    while quiet < 3 && slices < 600 {
        slices += 1;
        let before = process();
        std::thread::sleep(Duration::from_millis(100));
        quiet = if process() - before < Duration::from_millis(5) { quiet + 1 } else { 0 };
    }
}

trait Rung {
    fn name(&self) -> String;
    /// Keys of a pass.
    fn keys(&self) -> usize;
    /// Whether it can push.
    fn pushes(&self) -> bool {
        true
    }
    /// All batches once.
    fn pass(&mut self, push: bool);
}

/// Rows in one array.
struct Plain {
    name: &'static str,
    memory: MmapMut,
    index: Option<Index>,
    dim: usize,
    batches: Vec<Vec<u64>>,
    /// Where the rows of the batches are.
    places: Vec<Vec<u32>>,
    out: Vec<f32>,
}

/// Zeros, in huge pages or in small ones.
fn zeros(bytes: usize, huge: bool) -> io::Result<MmapMut> {
    let memory = MmapMut::map_anon(bytes.next_multiple_of(HUGE))?;
    memory.advise(if huge { Advice::HugePage } else { Advice::NoHugePage })?;
    Ok(memory)
}

/// The place of each key, plus 1, with the upper half of its hash. 0 is an empty slot.
struct Index {
    slots: MmapMut,
    mask: usize,
}

impl Index {
    fn new(rows: u64, huge: bool) -> io::Result<Index> {
        let slots = (2 * rows as usize).next_power_of_two();
        Ok(Index { slots: zeros(8 * slots, huge)?, mask: slots - 1 })
    }

    fn insert(&mut self, key: u64, place: u32) {
        let (hash, slots) = (hash(key), bytemuck::cast_slice_mut::<u8, u64>(&mut self.slots));
        let mut at = hash as usize & self.mask;
        while slots[at] != 0 {
            at = (at + 1) & self.mask;
        }
        slots[at] = (hash >> 32) << 32 | u64::from(place + 1);
    }

    #[inline(always)]
    fn prefetch(&self, key: u64) {
        prefetch(self.slots.as_ptr().wrapping_add(8 * (hash(key) as usize & self.mask)));
    }

    /// The place of a key, which is in the index.
    #[inline(always)]
    fn find(&self, key: u64) -> u32 {
        let (hash, slots) = (hash(key), bytemuck::cast_slice::<u8, u64>(&self.slots));
        let mut at = hash as usize & self.mask;
        while slots[at] >> 32 != hash >> 32 {
            at = (at + 1) & self.mask;
        }
        slots[at] as u32 - 1
    }
}

impl Plain {
    fn new(
        name: &'static str,
        dim: usize,
        rows: u64,
        look_up: bool,
        huge: bool,
    ) -> Result<Plain, Box<dyn Error>> {
        let memory = zeros(rows as usize * stride(dim) * 4, huge)?;
        let index = if look_up { Some(Index::new(rows, huge)?) } else { None };
        let (batches, out) = (batches(KEYS / BATCH, BATCH, rows, 64), vec![1e-6; BATCH * dim]);
        let mut plain = Plain { name, memory, index, dim, batches, places: Vec::new(), out };
        let mut place = HashMap::new();
        let all: &mut [f32] = bytemuck::cast_slice_mut(&mut plain.memory);
        for (n, row) in (0..rows).zip(all.chunks_exact_mut(stride(dim))) {
            row.fill(0.5);
            place.insert(key(n), n as u32);
            if let Some(index) = &mut plain.index {
                index.insert(key(n), n as u32);
            }
        }
        plain.places = plain.batches.iter().map(|keys| keys.iter().map(|key| place[key]).collect()).collect();
        Ok(plain)
    }

    #[inline(never)]
    fn pass_of<const DIM: usize>(&mut self, push: bool) {
        let dim = if DIM == 0 { self.dim } else { DIM };
        let stride = stride(dim);
        let rows: &mut [f32] = bytemuck::cast_slice_mut(&mut self.memory);
        for (keys, places) in self.batches.iter().zip(&self.places) {
            // Three blocks are on their way: the index, the row, the copy.
            let mut ring = [[0u32; BLOCK]; 2];
            for b in 0..BATCH / BLOCK + 2 {
                if b < BATCH / BLOCK
                    && let Some(index) = &self.index
                {
                    keys[b * BLOCK..][..BLOCK].iter().for_each(|&key| index.prefetch(key));
                }
                if let Some(b) = b.checked_sub(2) {
                    let values = self.out[b * BLOCK * dim..][..BLOCK * dim].chunks_exact_mut(dim);
                    for (place, values) in ring[b % 2].iter().zip(values) {
                        let row = &mut rows[*place as usize * stride + 4..][..dim];
                        match push {
                            true => row.iter_mut().zip(values).for_each(|(w, g)| *w -= LR * *g),
                            false => values.copy_from_slice(row),
                        }
                    }
                }
                if let Some(b) = b.checked_sub(1).filter(|&b| b < BATCH / BLOCK) {
                    for (i, place) in ring[b % 2].iter_mut().enumerate() {
                        let at = b * BLOCK + i;
                        *place = self.index.as_ref().map_or(places[at], |index| index.find(keys[at]));
                        prefetch_row(rows.as_ptr().wrapping_add(*place as usize * stride).cast(), 4 * stride);
                    }
                }
            }
        }
    }
}

impl Rung for Plain {
    fn name(&self) -> String {
        self.name.into()
    }

    fn keys(&self) -> usize {
        self.batches.len() * BATCH
    }

    fn pass(&mut self, push: bool) {
        // The compiler gets each dimension as a constant, as it does in a table.
        match self.dim {
            1 => self.pass_of::<1>(push),
            16 => self.pass_of::<16>(push),
            64 => self.pass_of::<64>(push),
            _ => self.pass_of::<0>(push),
        }
    }
}

/// Floats of a row with its two words.
const fn stride(dim: usize) -> usize {
    (16 + 4 * dim).next_multiple_of(8) / 4
}

#[inline(always)]
fn prefetch_row(row: *const u8, bytes: usize) {
    (0..bytes).step_by(64).for_each(|line| prefetch(row.wrapping_add(line)));
    prefetch(row.wrapping_add(bytes - 1));
}

/// Rows of the plain index that go to a socket, whose other end throws them away. There are no frames.
struct Sends {
    plain: Plain,
    /// From where they are: a piece of the message for each row. Otherwise they are copied into a buffer before.
    vectored: bool,
    socket: TcpStream,
}

impl Sends {
    fn new(dim: usize, rows: u64, vectored: bool) -> Result<Sends, Box<dyn Error>> {
        let plain = Plain::new("", dim, rows, true, true)?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let socket = TcpStream::connect(listener.local_addr()?)?;
        let (mut end, mut sink) = (listener.accept()?.0, vec![0; 1 << 20]);
        // The thread ends with the socket.
        std::thread::spawn(move || while end.read(&mut sink).is_ok_and(|bytes| bytes > 0) {});
        Ok(Sends { plain, vectored, socket })
    }

    fn send(&mut self) -> io::Result<()> {
        let Plain { memory, index, dim, batches, out, .. } = &mut self.plain;
        let (index, dim) = (index.as_ref().expect("an index"), *dim);
        let (rows, stride) = (bytemuck::cast_slice::<u8, f32>(memory), stride(dim));
        let mut places = Vec::new();
        for keys in batches.iter().flat_map(|keys| keys.chunks(part_keys(dim))) {
            places.clear();
            keys.iter().take(AHEAD).for_each(|&key| index.prefetch(key));
            for (i, &key) in keys.iter().enumerate() {
                keys.get(i + AHEAD).into_iter().for_each(|&key| index.prefetch(key));
                let at = index.find(key) as usize * stride;
                prefetch_row(rows.as_ptr().wrapping_add(at).cast(), 4 * stride);
                places.push(at + 4);
            }
            let row = |&at: &usize| bytemuck::cast_slice::<f32, u8>(&rows[at..at + dim]);
            if !self.vectored {
                let buffer: &mut [u8] = bytemuck::cast_slice_mut(&mut out[..keys.len() * dim]);
                buffer
                    .chunks_exact_mut(4 * dim)
                    .zip(&places)
                    .for_each(|(out, at)| out.copy_from_slice(row(at)));
                self.socket.write_all(buffer)?;
                continue;
            }
            for places in places.chunks(IOV_MAX) {
                let mut pieces: Vec<IoSlice<'_>> = places.iter().map(|at| IoSlice::new(row(at))).collect();
                let mut pieces = &mut pieces[..];
                while !pieces.is_empty() {
                    let sent = self.socket.write_vectored(pieces)?;
                    IoSlice::advance_slices(&mut pieces, sent);
                }
            }
        }
        Ok(())
    }
}

impl Rung for Sends {
    fn name(&self) -> String {
        let how = if self.vectored { "from where they are" } else { "from a buffer" };
        format!("a plain index, rows sent over tcp {how}")
    }

    fn keys(&self) -> usize {
        self.plain.keys()
    }

    fn pushes(&self) -> bool {
        false
    }

    fn pass(&mut self, _: bool) {
        self.send().expect("a socket");
    }
}

/// Keys that a server gets in a frame.
fn part_keys(dim: usize) -> usize {
    ((256 << 10) / (12 + 4 * dim)).clamp(1, 8192)
}

/// A table of this library, in memory.
struct Table {
    shards: Shards,
    count: u32,
    dim: usize,
    /// Keys of a call: as many as a server gets in a frame.
    part: usize,
    /// A push has the slots that a pull found.
    keyset: bool,
    batches: Vec<Vec<u64>>,
    slots: Vec<Vec<u32>>,
    values: Vec<f32>,
    out: Vec<f32>,
    seq: u64,
}

impl Table {
    fn new(dim: usize, rows: u64, count: u32, keyset: bool) -> Result<Table, Box<dyn Error>> {
        let rule = Rule::Sgd(Sgd { lr: LR });
        let schema = Schema { dim: dim as u32, shards: count, ..Schema::scalar("ladder", rule) };
        let shards = Shards::open(&Store::memory(), &schema, 0..count)?;
        let (values, out) = (vec![1e-6; BATCH * dim], vec![0.0; BATCH * dim]);
        let batches = batches(KEYS / BATCH, BATCH, rows, count);
        let part = part_keys(dim);
        let mut table =
            Table { shards, count, dim, part, keyset, batches, slots: Vec::new(), values, out, seq: 0 };
        for begin in (0..rows).step_by(BATCH) {
            let end = rows.min(begin + BATCH as u64);
            let keys = gannet_bench::cut((begin..end).map(key).collect(), count);
            table.seq += 1;
            let name = PushName { pusher: 1, incarnation: 1, seq: table.seq, row: 0 };
            table.shards.push(&name, Write::Gradient, &keys, None, &table.values[..keys.len() * dim])?;
        }
        for keys in &table.batches {
            let mut slots = Vec::new();
            table.shards.pull(keys, Read::Weights, &mut table.out, Some(&mut slots))?;
            table.slots.push(slots);
        }
        Ok(table)
    }
}

impl Rung for Table {
    fn name(&self) -> String {
        let keyset = if self.keyset { ", pushes with keysets" } else { "" };
        format!("a table of {} shards{keyset}", self.count)
    }

    fn keys(&self) -> usize {
        self.batches.len() * BATCH
    }

    fn pass(&mut self, push: bool) {
        for (keys, slots) in self.batches.iter().zip(&mut self.slots) {
            if !push {
                for (keys, out) in keys.chunks(self.part).zip(self.out.chunks_mut(self.part * self.dim)) {
                    self.shards.pull(keys, Read::Weights, out, None).expect("a pull");
                }
                continue;
            }
            self.seq += 1;
            for (part, row) in push_parts(keys, self.part, self.count) {
                let name = PushName { pusher: 1, incarnation: 1, seq: self.seq, row };
                let values = &self.values[part.start * self.dim..part.end * self.dim];
                let slots = self.keyset.then_some(&mut slots[part.clone()]);
                self.shards.push(&name, Write::Gradient, &keys[part], slots, values).expect("a push");
            }
        }
    }
}
