//! Runs a program on the columns of a table of vectors: one block of rows at a time, in the order of their slots.

use crate::error::PushError;
use crate::image::layout::HIGH_WATER;
use crate::image::row_version::LIVE;
use crate::push_name::PushName;
use crate::table::commands::command_record::CommandChange;
use crate::table::commands::program::{ColumnSum, Program, ProgramStep, reciprocal};
use crate::table::owned::shard::Shard;
use crate::table::owned::shards::Shards;
use crate::table::owned::vectors::Vectors;
use crate::table::progress::part_progress::PartStart;
use gannet_optim::all_finite;
use gannet_optim::lbfgs::{Sum, dot, norm1, project, pseudo_gradient};
use std::sync::atomic::Ordering::Relaxed;

/// Rows of a block: few enough that their columns stay in the L1 cache.
const BLOCK: usize = 64;

/// The number of rows that a program's part claims. The real number may change between a kill and the resend.
const ALL_ROWS: u32 = u32::MAX;

/// The columns of one block of rows that a program works with.
struct Blocks {
    vectors: Vectors,
    /// The position of each column in `values`; `usize::MAX` for unused columns.
    places: Vec<usize>,
    values: Vec<[f64; BLOCK]>,
    /// The columns that are read from the rows.
    loaded: Vec<u16>,
    /// The columns that the program makes.
    written: Vec<u16>,
    sums: Vec<Sum>,
}

impl Blocks {
    fn new(program: &Program, vectors: Vectors) -> Blocks {
        let (loaded, written) = program.columns();
        let mut places = vec![usize::MAX; vectors.columns() as usize];
        for (place, &column) in loaded.iter().chain(&written).enumerate() {
            places[column as usize] = place;
        }
        let values = vec![[0.0; BLOCK]; loaded.len() + written.len()];
        Blocks { vectors, places, values, loaded, written, sums: vec![Sum::default(); program.sums.len()] }
    }

    fn column(&self, column: u16) -> &[f64; BLOCK] {
        &self.values[self.places[column as usize]]
    }

    fn set(&mut self, column: u16, values: [f64; BLOCK]) {
        let rounded = values.map(|value| self.vectors.rounded(column, value));
        self.values[self.places[column as usize]] = rounded;
    }

    /// Runs the program's steps on a block. `free` is the position of the row without penalties, if the block
    /// has that row.
    fn run(&mut self, program: &Program, free: Option<usize>) {
        for step in &program.steps {
            let mut to = [0.0; BLOCK];
            let column = match step {
                ProgramStep::Combine { to: column, terms } => {
                    for term in terms {
                        let from = self.column(term.column);
                        for (i, (to, from)) in to.iter_mut().zip(from).enumerate() {
                            let counts = !(term.penalised && free == Some(i));
                            *to += if counts { term.factor * from } else { 0.0 };
                        }
                    }
                    column
                }
                ProgramStep::Slope { to: column, gradient, weights, l1 } => {
                    let (gradient, weights) = (self.column(*gradient), self.column(*weights));
                    for (i, to) in to.iter_mut().enumerate() {
                        let l1 = if free == Some(i) { 0.0 } else { *l1 };
                        *to = pseudo_gradient(gradient[i], weights[i], l1);
                    }
                    column
                }
                ProgramStep::Support { to: column, of } => {
                    let of = self.column(*of);
                    (0..BLOCK).for_each(|i| to[i] = f64::from(u8::from(of[i] != 0.0)));
                    column
                }
                ProgramStep::Multiply { to: column, by } => {
                    let (from, by) = (self.column(*column), self.column(*by));
                    (0..BLOCK).for_each(|i| to[i] = from[i] * by[i]);
                    column
                }
                ProgramStep::Reciprocal { to: column, of, plus } => {
                    let of = self.column(*of);
                    for (i, to) in to.iter_mut().enumerate() {
                        *to = reciprocal(of[i] + if free == Some(i) { 0.0 } else { *plus });
                    }
                    column
                }
                ProgramStep::Project { to: column, weights, step, slope } => {
                    let (weights, step, slope) =
                        (self.column(*weights), self.column(*step), self.column(*slope));
                    for (i, to) in to.iter_mut().enumerate() {
                        let free = free == Some(i);
                        *to =
                            if free { weights[i] + step[i] } else { project(weights[i], step[i], slope[i]) };
                    }
                    column
                }
            };
            self.set(*column, to);
        }
    }

    /// Adds the block's first `rows` rows to the sums.
    fn reduce(&mut self, program: &Program, rows: usize, free: Option<usize>) {
        let mut sums = std::mem::take(&mut self.sums);
        // The latest weighted column: products with one column come one after the other.
        let (mut weighted, mut weighted_is) = ([0.0; BLOCK], None);
        for (sum, reduce) in sums.iter_mut().zip(&program.sums) {
            let mut of = |range: std::ops::Range<usize>| match *reduce {
                ColumnSum::Dot { a, b, .. } => dot(&self.column(a)[range.clone()], &self.column(b)[range]),
                ColumnSum::Weighted { a, b, by } => {
                    if weighted_is != Some((a, by)) {
                        weighted_is = Some((a, by));
                        let factors = self.column(a).iter().zip(self.column(by));
                        weighted.iter_mut().zip(factors).for_each(|(to, (a, by))| *to = a * by);
                    }
                    dot(&weighted[range.clone()], &self.column(b)[range])
                }
                ColumnSum::Norm1 { a, .. } => norm1(&self.column(a)[range]),
            };
            match free.filter(|_| reduce.is_penalised()) {
                None => sum.add(of(0..rows)),
                Some(at) => {
                    sum.add(of(0..at));
                    sum.add(of(at + 1..rows));
                }
            }
        }
        self.sums = sums;
    }
}

impl Shards {
    /// Runs a program on all rows of one shard. `name` is the name of this push; its row must be 0. A shard
    /// that has already applied this name writes nothing. Returns the program's sums over the rows as they are
    /// afterwards.
    ///
    /// # Errors
    /// The table is not one of vectors, the shard is not here, the program is not sound, or the name is refused (see
    /// [`PushError`]).
    pub fn run_program(
        &mut self,
        shard: u32,
        name: &PushName,
        program: &Program,
    ) -> Result<Vec<f64>, PushError> {
        self.check_pusher(name.pusher, name.incarnation)?;
        self.run_program_in(shard, name, program)
    }

    /// [`run_program`](Self::run_program). Only the shard itself decides whether the pusher is fenced.
    pub(crate) fn run_program_in(
        &mut self,
        shard: u32,
        name: &PushName,
        program: &Program,
    ) -> Result<Vec<f64>, PushError> {
        let table = || self.schema.name.clone();
        let unfit = |why: String| PushError::Program { table: table(), why };
        let vectors = Vectors::of(&self.schema)
            .ok_or_else(|| unfit("this is not a table of vectors, so no program can run on it".into()))?;
        program.check(vectors).map_err(unfit)?;
        if name.row != 0 {
            return Err(unfit(format!(
                "a program must start at row 0 of a shard, but its name says row {}",
                name.row
            )));
        }
        // A program is whole when each shard has run it.
        let total = u64::from(self.schema.shards) * u64::from(ALL_ROWS);
        let floats = self.schema.floats();
        let Shards { places, shards, listener, .. } = self;
        match shards.get_mut(places.place(shard) as usize) {
            Some(own) => {
                let before = own.command;
                let sums = own.run_program(name, total, program, Blocks::new(program, vectors), floats)?;
                if own.command > before {
                    listener.tell(own, before, || CommandChange::Program(*name, program));
                }
                Ok(sums)
            }
            None => {
                let why = format!("shard {shard} is not open here, only {}", self.set);
                Err(PushError::Program { table: self.schema.name.clone(), why })
            }
        }
    }
}

impl Shard {
    fn run_program(
        &mut self,
        name: &PushName,
        total: u64,
        program: &Program,
        mut blocks: Blocks,
        floats: usize,
    ) -> Result<Vec<f64>, PushError> {
        // A part that was interrupted begins again. The rows that it has already written get the same values again.
        let part = match self.begin_part(name, ALL_ROWS, total)? {
            PartStart::From(part) => Some(part),
            PartStart::Duplicate => None,
        };
        let fresh = part.is_some();
        let end = self.image.word(HIGH_WATER).load(Relaxed) as u32;
        let mut slots = Vec::with_capacity(BLOCK);
        let mut next = 0;
        while next < end {
            slots.clear();
            let mut free = None;
            while next < end && slots.len() < BLOCK {
                let row = self.image.row(next);
                if row.version() & LIVE != 0 {
                    free = free.or((program.free == Some(row.key())).then_some(slots.len()));
                    self.load(&mut blocks, slots.len(), next, floats, program.pass, fresh);
                    slots.push(next);
                }
                next += 1;
            }
            if fresh {
                blocks.run(program, free);
                for (i, &slot) in slots.iter().enumerate() {
                    self.store(&blocks, i, slot, floats);
                }
            }
            blocks.reduce(program, slots.len(), free);
        }
        if let Some(part) = part {
            self.end_part(part, None);
        }
        Ok(blocks.sums.iter().map(Sum::value).collect())
    }

    /// Reads a row's columns into position `i` of the block. Unless `fresh`, also reads the columns that the
    /// program has already written.
    fn load(&mut self, blocks: &mut Blocks, i: usize, slot: u32, floats: usize, pass: u64, fresh: bool) {
        let row = self.image.row(slot);
        let row = row.floats(floats);
        let Blocks { vectors, places, values, loaded, written, .. } = blocks;
        let written = if fresh { &[] } else { &written[..] };
        for &column in loaded.iter().chain(written) {
            values[places[column as usize]][i] = vectors.value(row, column, pass);
        }
    }

    /// Writes the columns that the program made, as one step of the journal. A row that would get NaN or
    /// infinity is not changed, and the sums show the NaN or infinity.
    fn store(&mut self, blocks: &Blocks, i: usize, slot: u32, floats: usize) {
        let made = blocks.written.iter().map(|&column| (column, blocks.column(column)[i]));
        if blocks.written.is_empty() || made.clone().any(|(_, value)| !value.is_finite()) {
            return;
        }
        let vectors = blocks.vectors;
        self.write_row::<true>(slot, floats, |row| {
            made.for_each(|(column, value)| vectors.store(row, column, value));
            debug_assert!(all_finite(row));
        });
    }
}
