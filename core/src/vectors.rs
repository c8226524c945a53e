//! Tables whose columns are vectors: what an optimizer of the whole of the data (L-BFGS) keeps on the servers.
//!
//! A row has column 0, the sum of a pass, then `wide` columns of an f64 each, in two floats, then `narrow` ones of one float:
//! ```text
//! | pass 2 | sum 2 | column 1: 2 | columns 2, 3: 4 | columns 4 to wide: 2 each | narrow: 1 each |
//!   segment 0        segment 1     segment 2         segment 3                   segment 4
//! ```
//! [`Write::Sum`](crate::Write::Sum) adds to column 0. A [`Program`] makes columns of columns and answers dot products, for
//! all rows of a shard in the order of their slots. It never writes what it reads, so doing it again changes nothing;
//! and it is named like a push, so what comes again late, or from a life of its pusher that is over, is not done.

use crate::error::PushError;
use crate::layout::{HIGH_WATER, VERSION};
use crate::part_progress::PartStart;
use crate::program::{ColumnSum, Program, ProgramStep, reciprocal};
use crate::pushers::PushName;
use crate::row::LIVE;
use crate::schema::{Init, Schema};
use crate::segments::Segment;
use crate::shard::Shard;
use crate::table::Shards;
use gannet_optim::lbfgs::{Sum, align, dot, join, norm1, project, pseudo_gradient, split};
use gannet_optim::{Add, GradientTransform, Rule, all_finite};
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Rows that are worked on at a time: their columns stay in a near cache.
const BLOCK: usize = 64;
/// Floats of column 0.
const SUM_FLOATS: usize = 4;
/// What a program's part has instead of a number of rows: rows may come between a kill and the resend.
const ALL_ROWS: u32 = u32::MAX;
/// Bits of a push's sequence number that count the pushes of a pass.
const WITHIN_BITS: u32 = 16;

/// How many columns the rows of a table of vectors have, beside column 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vectors {
    /// Columns of an f64, numbered from 1; at least 4.
    pub wide: u16,
    /// Columns of a float, numbered after those.
    pub narrow: u16,
}

impl Vectors {
    /// The largest number of a pass.
    pub const PASS_MAX: u64 = (1 << (64 - WITHIN_BITS)) - 1;

    /// The first sequence number of a pass's pushes; the 65,536 from there on are its.
    pub fn first_seq(pass: u64) -> u64 {
        pass << WITHIN_BITS
    }

    /// The pass that a push is of.
    pub fn pass_of(seq: u64) -> u64 {
        seq >> WITHIN_BITS
    }

    /// The schema of such a table. [`Schema::check`] says whether rows can be so long.
    ///
    /// # Panics
    /// When there are fewer than 4 wide columns.
    pub fn schema(self, name: &str, shards: u32) -> Schema {
        assert!(self.wide >= 4, "{} wide columns: at least 4", self.wide);
        let (rule, shaping, init) = (Rule::Add(Add), GradientTransform::NONE, Init::Zero);
        let dims = [2, 4, 2 * (u32::from(self.wide) - 3), u32::from(self.narrow)];
        let more = dims.into_iter().filter(|&dim| dim > 0);
        let more = more.map(|dim| Segment { dim, rule, shaping, init }).collect();
        Schema { dim: SUM_FLOATS as u32, more, shards, ..Schema::scalar(name, rule) }
    }

    /// The other way round; `None` when it is no schema of vectors.
    pub fn of(schema: &Schema) -> Option<Vectors> {
        let wide = 3 + schema.more.get(2)?.dim / 2;
        let narrow = schema.more.get(3).map_or(0, |segment| segment.dim);
        let vectors = Vectors { wide: u16::try_from(wide).ok()?, narrow: u16::try_from(narrow).ok()? };
        (*schema == vectors.schema(&schema.name, schema.shards)).then_some(vectors)
    }

    /// Columns of a row, column 0 among them.
    pub fn columns(self) -> u16 {
        1 + self.wide + self.narrow
    }

    /// A column's value in a stored row; that of column 0 is the sum of `pass`, 0 when the row's is of another.
    ///
    /// # Panics
    /// When the row is shorter than the column's place.
    pub fn value(self, row: &[f32], column: u16, pass: u64) -> f64 {
        let pair = |at: usize| join([row[at], row[at + 1]]);
        match column {
            0 if pair(0) == pass as f64 => pair(2),
            0 => 0.0,
            column if column <= self.wide => pair(2 + 2 * column as usize),
            column => f64::from(row[self.narrow_at(column)]),
        }
    }

    fn narrow_at(self, column: u16) -> usize {
        SUM_FLOATS + 2 * self.wide as usize + (column - self.wide - 1) as usize
    }

    /// What a column keeps of a value.
    fn kept(self, column: u16, value: f64) -> f64 {
        if column <= self.wide { join(split(value)) } else { f64::from(value as f32) }
    }

    fn store(self, row: &mut [f32], column: u16, value: f64) {
        if column <= self.wide {
            row[2 + 2 * column as usize..][..2].copy_from_slice(&split(value));
        } else {
            row[self.narrow_at(column)] = value as f32;
        }
    }
}

/// The columns that a program works with, for one block of rows.
struct Blocks {
    vectors: Vectors,
    /// The place of each column in `values`; `usize::MAX` for those that are not used.
    places: Vec<usize>,
    values: Vec<[f64; BLOCK]>,
    /// The columns that are read from the rows, and those that are written.
    loaded: Vec<u16>,
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
        let kept = values.map(|value| self.vectors.kept(column, value));
        self.values[self.places[column as usize]] = kept;
    }

    /// Does the program's steps with the columns of a block. `free`: where the row without penalties is.
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
                ProgramStep::Align { to: column, slope } => {
                    let (from, slope) = (self.column(*column), self.column(*slope));
                    (0..BLOCK).for_each(|i| to[i] = align(from[i], slope[i]));
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
        for (sum, reduce) in sums.iter_mut().zip(&program.sums) {
            let of = |range: std::ops::Range<usize>| match *reduce {
                ColumnSum::Dot { a, b, .. } => dot(&self.column(a)[range.clone()], &self.column(b)[range]),
                ColumnSum::Weighted { a, b, by } => {
                    let (a, by) = (&self.column(a)[range.clone()], &self.column(by)[range.clone()]);
                    let mut weighted = [0.0; BLOCK];
                    weighted.iter_mut().zip(a.iter().zip(by)).for_each(|(to, (a, by))| *to = a * by);
                    dot(&weighted[..range.len()], &self.column(b)[range])
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
    /// Does a program with all rows of one shard, as the push `name`, whose row must be 0; a shard that has the name
    /// already writes nothing. Answers its sums, over what the rows hold then.
    ///
    /// # Errors
    /// The table is none of vectors, the shard is not here, the program is not sound, or the name is not to be believed
    /// (see [`PushError`]).
    pub fn run_program(
        &mut self,
        shard: u32,
        name: &PushName,
        program: &Program,
    ) -> Result<Vec<f64>, PushError> {
        let table = || self.schema.name.clone();
        let unfit = |why: String| PushError::Program { table: table(), why };
        let vectors = Vectors::of(&self.schema).ok_or_else(|| unfit("its rows are no vectors".into()))?;
        program.check(vectors).map_err(unfit)?;
        if name.row != 0 {
            return Err(unfit(format!("a program begins at row 0 of a shard, {} was named", name.row)));
        }
        self.check_pusher(name.pusher, name.incarnation)?;
        let count = self.shards.len();
        let Some(own) = self.shards.get_mut(shard.wrapping_sub(self.first) as usize) else {
            let range = self.first..self.first + count as u32;
            return Err(PushError::Program {
                table: self.schema.name.clone(),
                why: format!("shard {shard} is not here, {} to {} are", range.start, range.end - 1),
            });
        };
        own.run_program(name, program, Blocks::new(program, vectors), self.schema.floats())
    }
}

impl Shard {
    fn run_program(
        &mut self,
        name: &PushName,
        program: &Program,
        mut blocks: Blocks,
        floats: usize,
    ) -> Result<Vec<f64>, PushError> {
        // A part that was cut short begins again: what it has written already comes out the same.
        let piece = match self.begin_part(name, ALL_ROWS)? {
            PartStart::From(piece) => Some(piece),
            PartStart::Doubled(_) => None,
        };
        let fresh = piece.is_some();
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
        if let Some(piece) = piece {
            self.end_part(piece, &Ok(()));
        }
        Ok(blocks.sums.iter().map(Sum::value).collect())
    }

    /// Reads a row's columns into place `i` of the block; those that the program writes too when they are not to be
    /// written again.
    fn load(&mut self, blocks: &mut Blocks, i: usize, slot: u32, floats: usize, pass: u64, fresh: bool) {
        let row = self.image.row(slot);
        let row = row.floats(floats);
        let Blocks { vectors, places, values, loaded, written, .. } = blocks;
        let written = if fresh { &[] } else { &written[..] };
        for &column in loaded.iter().chain(written) {
            values[places[column as usize]][i] = vectors.value(row, column, pass);
        }
    }

    /// Writes the columns that the program made, as one step of the journal. A row that would hold NaN or infinity stays as
    /// it is; the sums tell of it.
    fn store(&mut self, blocks: &Blocks, i: usize, slot: u32, floats: usize) {
        let made = blocks.written.iter().map(|&column| (column, blocks.column(column)[i]));
        if blocks.written.is_empty() || made.clone().any(|(_, value)| !value.is_finite()) {
            return;
        }
        if self.image.row(slot).version() >> 2 == self.version {
            self.version += 1;
            self.image.word(VERSION).store(self.version, Release);
        }
        if self.journal.on {
            self.journal.arm_row(&mut self.image, slot, 16 + floats * 4);
        }
        let (version, vectors) = (self.version, blocks.vectors);
        self.image.row(slot).write(floats, version, |row| {
            made.for_each(|(column, value)| vectors.store(row, column, value));
            debug_assert!(all_finite(row));
        });
        self.journal.done();
    }
}
