//! A worker's examples in memory, with their margins, and the passes over them. Sums are f64. The sums of threads are
//! added in the order of the threads.

use crate::lbfgs::LbfgsError;
use crate::lbfgs::dictionary::Dictionary;
use crate::lbfgs::log_loss::LogLosses;
use crate::limits::LBFGS_BATCH;
use crate::read::block::Block;
use crate::read::data::{Data, Share};
use crate::read::error::BadLines;
use crate::read::formats::columns::Columns as CsvColumns;
use crate::read::reader::Reader;
use gannet_core::{hash, shard_of};
use gannet_optim::lbfgs::{Sum, split};
use std::ops::Range;

/// What the reader learned about the data.
#[derive(Debug, Clone)]
pub struct LoadedData {
    /// The format.
    pub format: &'static str,
    /// The columns of a CSV file.
    pub columns: Option<CsvColumns>,
    /// Lines that were skipped.
    pub bad_lines: BadLines,
}

/// Examples by row. Feature `j` of example `i` has the key `keys[places[offsets[i] + j]]`.
#[derive(Default)]
pub struct Examples {
    keys: Vec<u64>,
    offsets: Vec<u64>,
    places: Vec<u32>,
    /// Empty when all are 1.
    values: Vec<f32>,
    labels: Vec<f32>,
    /// Empty when all are 1.
    importances: Vec<f32>,
    /// The margin of each example without features. Empty: all are 0.
    bases: Vec<f32>,
    /// x w: the margins at the weights.
    margins: Vec<f64>,
    /// x d: the change of the margins along the direction.
    along: Vec<f64>,
    threads: usize,
    gradients: Vec<Vec<f64>>,
}

/// A pass over the examples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pass {
    /// Computes the margins x w, and the loss and gradient there.
    Weights,
    /// Moves the margins by `moved` along the old direction, and computes x d for the new one. Computes loss, slope
    /// and gradient at step 1.
    Direction { moved: f64 },
    /// Computes loss, slope and gradient at a step.
    Gradient { step: f64 },
    /// Computes loss and slope at a step. It needs the margins only, not the features.
    Try { step: f64 },
}

/// The sums of a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Losses {
    /// The sum of log losses.
    pub loss: f64,
    /// Its derivative along the direction.
    pub slope: f64,
}

impl Examples {
    /// Reads a share of the data into at most `limit` bytes. The keys are sorted for `shards` shards. If
    /// `threads` is more than 1, so many threads parse. As many go over the examples later.
    ///
    /// # Errors
    /// The data cannot be read, or needs more memory.
    pub fn read(
        data: &Data,
        share: Share,
        shards: u32,
        threads: usize,
        limit: u64,
    ) -> Result<(Examples, LoadedData), LbfgsError> {
        let mut reader = Reader::open(data, LBFGS_BATCH, share)?.with_parsers(threads)?;
        let (mut all, mut dictionary) =
            (Examples { offsets: vec![0], ..Examples::default() }, Dictionary::default());
        let (mut block, mut ones) = (Block::default(), true);
        while reader.next(&mut block)? {
            all.places.extend(block.keys.iter().map(|&key| dictionary.number(key)));
            ones &= block.values.iter().all(|&value| value == 1.0);
            all.values.extend_from_slice(&block.values);
            let before = all.places.len() as u64 - block.keys.len() as u64;
            all.offsets.extend(block.offsets[1..].iter().map(|&end| before + u64::from(end)));
            all.add_importances(&block);
            if !block.bases.is_empty() || !all.bases.is_empty() {
                all.bases.resize(all.labels.len(), 0.0);
                all.bases.extend((0..block.len()).map(|i| block.base(i)));
            }
            all.labels.extend_from_slice(&block.labels);
            let bytes = (all.bytes() + dictionary.bytes()) as u64;
            if bytes > limit {
                let (file, examples) = (data.name(), all.len() as u64);
                return Err(LbfgsError::Memory { file, examples, bytes, limit });
            }
        }
        if ones {
            all.values = Vec::new();
        }
        all.order_keys(dictionary.into_keys(), shards);
        (all.margins, all.along) = (vec![0.0; all.len()], vec![0.0; all.len()]);
        all.threads = threads.max(1);
        let (format, columns) = (reader.format(), reader.columns().cloned());
        Ok((all, LoadedData { format, columns, bad_lines: reader.bad_lines().clone() }))
    }

    /// The label of all examples, if all have the same.
    pub fn one_class(&self) -> Option<u8> {
        let (&first, rest) = self.labels.split_first()?;
        rest.iter().all(|&label| label == first).then(|| u8::from(first > 0.5))
    }

    fn add_importances(&mut self, block: &Block) {
        if !block.importances.is_empty() || !self.importances.is_empty() {
            self.importances.resize(self.labels.len(), 1.0);
            self.importances.extend((0..block.len()).map(|i| block.importance(i)));
        }
    }

    /// Sorts the keys as pulls and pushes need them, and updates the examples' places.
    fn order_keys(&mut self, keys: Vec<u64>, shards: u32) {
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        order.sort_by_key(|&number| {
            let key = keys[number as usize];
            (shard_of(hash(key), shards), key)
        });
        let mut place = vec![0u32; keys.len()];
        for (to, &number) in (0..).zip(&order) {
            place[number as usize] = to;
        }
        self.places.iter_mut().for_each(|at| *at = place[*at as usize]);
        self.keys = order.into_iter().map(|number| keys[number as usize]).collect();
    }

    /// Bytes of the examples and of the buffers of passes, without the keys.
    fn bytes(&self) -> usize {
        // Labels, importances, offsets; margins and x d.
        let example = 4 + 4 + 8 + 16;
        self.places.len() * 4 + self.values.len() * 4 + self.labels.len() * example
    }

    /// The number of examples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no examples.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The keys of the examples, in shard order.
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// The sum of the examples' importance.
    pub fn importance(&self) -> f64 {
        if self.importances.is_empty() {
            return self.len() as f64;
        }
        self.importances.iter().map(|&x| f64::from(x)).collect::<Sum>().value()
    }

    /// Runs a pass. `column` has a value for each key, where the pass needs one.
    ///
    /// # Panics
    /// When the column has another length.
    pub fn pass(&mut self, pass: Pass, column: &[f64]) -> Losses {
        let needs = matches!(pass, Pass::Weights | Pass::Direction { .. });
        assert!(!needs || column.len() == self.keys.len(), "a value for each key");
        let cuts = self.cuts();
        let with_gradient = !matches!(pass, Pass::Try { .. });
        self.gradients.resize_with(cuts.len(), Vec::new);
        let Examples {
            keys,
            offsets,
            places,
            values,
            labels,
            importances,
            bases,
            margins,
            along,
            gradients,
            ..
        } = self;
        let rows = ExampleRows { offsets, places, values, labels, importances, bases };
        let (mut margins, mut along) = (&mut margins[..], &mut along[..]);
        let mut tasks = Vec::with_capacity(cuts.len());
        for (range, gradient) in cuts.into_iter().zip(gradients) {
            let (own_margins, rest_margins) = margins.split_at_mut(range.len());
            let (own_along, rest_along) = along.split_at_mut(range.len());
            (margins, along) = (rest_margins, rest_along);
            if with_gradient {
                gradient.clear();
                gradient.resize(keys.len(), 0.0);
            }
            tasks.push((range, own_margins, own_along, gradient));
        }
        let run = |(range, margins, along, gradient): (_, _, _, &mut Vec<f64>)| {
            let gradient = with_gradient.then_some(&mut gradient[..]);
            rows.pass(pass, column, range, margins, along, gradient)
        };
        let mut parts = Vec::with_capacity(tasks.len());
        std::thread::scope(|scope| {
            let first = tasks.remove(0);
            let others: Vec<_> = tasks.into_iter().map(|task| scope.spawn(move || run(task))).collect();
            parts.push(run(first));
            for other in others {
                match other.join() {
                    Ok(part) => parts.push(part),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
        let loss = parts.iter().map(|part| part.loss).collect::<Sum>().value();
        let slope = parts.iter().map(|part| part.slope).collect::<Sum>().value();
        Losses { loss, slope }
    }

    /// The gradient of the latest pass that computed one, two floats a key.
    pub fn gradient(&self) -> Vec<f32> {
        let mut out = Vec::with_capacity(2 * self.keys.len());
        for key in 0..self.keys.len() {
            out.extend(split(self.gradients.iter().map(|part| part[key]).sum()));
        }
        out
    }

    /// An upper bound of the loss's curvature along each weight, two floats a key. It is a quarter of the sum of
    /// squares, because the logistic function's slope is at most a quarter. The bound is limited so that sums over
    /// many workers stay in the range of f32.
    pub fn curvatures(&self) -> Vec<f32> {
        const MOST: f64 = 1e34;
        let mut sums = vec![0.0; self.keys.len()];
        for i in 0..self.len() {
            let features = self.offsets[i] as usize..self.offsets[i + 1] as usize;
            let importance = self.importances.get(i).map_or(1.0, |&x| f64::from(x));
            for j in features {
                let value = self.values.get(j).map_or(1.0, |&value| f64::from(value));
                sums[self.places[j] as usize] += 0.25 * importance * value * value;
            }
        }
        sums.into_iter().flat_map(|sum: f64| split(sum.min(MOST))).collect()
    }

    /// One range of examples for each thread, with about the same number of features.
    fn cuts(&self) -> Vec<Range<usize>> {
        let features = self.places.len() as u64;
        let mut from = 0;
        let end = |thread: usize| {
            let target = features * (thread as u64 + 1) / self.threads as u64;
            self.offsets.partition_point(|&offset| offset < target).min(self.len())
        };
        let threads = 0..self.threads;
        threads
            .map(|thread| {
                let to = if thread + 1 == self.threads { self.len() } else { end(thread).max(from) };
                let range = from..to;
                from = to;
                range
            })
            .collect()
    }
}

/// The examples, for a thread.
#[derive(Clone, Copy)]
struct ExampleRows<'a> {
    offsets: &'a [u64],
    places: &'a [u32],
    values: &'a [f32],
    labels: &'a [f32],
    importances: &'a [f32],
    bases: &'a [f32],
}

impl ExampleRows<'_> {
    fn pass(
        self,
        pass: Pass,
        column: &[f64],
        range: Range<usize>,
        margins: &mut [f64],
        along: &mut [f64],
        mut gradient: Option<&mut [f64]>,
    ) -> Losses {
        let (mut loss, mut slope) = (LogLosses::default(), Sum::default());
        for ((i, margin), along) in range.zip(margins).zip(along) {
            let features = self.offsets[i] as usize..self.offsets[i + 1] as usize;
            let at = match pass {
                Pass::Weights => {
                    let base = self.bases.get(i).map_or(0.0, |&base| f64::from(base));
                    *margin = self.dot(features.clone(), column) + base;
                    *margin
                }
                Pass::Direction { moved } => {
                    // Before the first step there is no old direction.
                    *margin += if moved == 0.0 { 0.0 } else { moved * *along };
                    *along = self.dot(features.clone(), column);
                    *margin + *along
                }
                Pass::Gradient { step } | Pass::Try { step } => *margin + step * *along,
            };
            let (label, importance) = (f64::from(self.labels[i]), self.importance(i));
            let error = loss.add(at, label, importance);
            slope.add(importance * error * *along);
            if let Some(gradient) = gradient.as_deref_mut() {
                self.add(features, importance * error, gradient);
            }
        }
        Losses { loss: loss.value(), slope: slope.value() }
    }

    #[inline(always)]
    fn importance(self, i: usize) -> f64 {
        self.importances.get(i).map_or(1.0, |&x| f64::from(x))
    }

    #[inline(always)]
    fn dot(self, features: Range<usize>, column: &[f64]) -> f64 {
        let places = &self.places[features.clone()];
        if self.values.is_empty() {
            return four_sums(places.len(), |j| column[places[j] as usize]);
        }
        let values = &self.values[features];
        four_sums(places.len(), |j| column[places[j] as usize] * f64::from(values[j]))
    }

    #[inline(always)]
    fn add(self, features: Range<usize>, error: f64, gradient: &mut [f64]) {
        let places = &self.places[features.clone()];
        if self.values.is_empty() {
            places.iter().for_each(|&at| gradient[at as usize] += error);
        } else {
            let values = &self.values[features];
            places
                .iter()
                .zip(values)
                .for_each(|(&at, &value)| gradient[at as usize] += error * f64::from(value));
        }
    }
}

/// The sum of `count` terms, as four sums side by side: a chain of additions would wait for each of them.
#[inline(always)]
fn four_sums(count: usize, term: impl Fn(usize) -> f64) -> f64 {
    let (mut sums, whole) = ([0.0; 4], count & !3);
    for j in (0..whole).step_by(4) {
        (0..4).for_each(|lane| sums[lane] += term(j + lane));
    }
    (whole..count).for_each(|j| sums[j & 3] += term(j));
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// Compares three examples with values, one of them with a repeated key, with losses and gradients that are
    /// written out.
    #[test]
    fn passes_compute_what_the_formulas_say() {
        let mut file = tempfile::Builder::new().suffix(".svm").tempfile().unwrap();
        writeln!(file, "1 1:0.5 2:2\n0 2:1\n1 7:1 7:1").unwrap();
        let mut data = Data::new(file.path().to_str().unwrap());
        data.intercept = false;
        for threads in [1, 2, 5] {
            let (mut all, _) = Examples::read(&data, Share::ALL, 64, threads, 1 << 20).unwrap();
            let place = |key: u64| all.keys().iter().position(|&k| k == key).unwrap();
            let (one, two, seven) = (place(1), place(2), place(7));
            let column = |a: f64, b: f64, c: f64| {
                let mut column = vec![0.0; 3];
                (column[one], column[two], column[seven]) = (a, b, c);
                column
            };
            let loss = |m: [f64; 3]| {
                (1.0 + (-m[0]).exp()).ln() + (1.0 + m[1].exp()).ln() + (1.0 + (-m[2]).exp()).ln()
            };
            let error = |m: [f64; 3]| {
                [-1.0 / (1.0 + m[0].exp()), 1.0 / (1.0 + (-m[1]).exp()), -1.0 / (1.0 + m[2].exp())]
            };
            let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
            // w = (0.2, -0.4, 0.3): margins 0.1 - 0.8, -0.4, 0.6.
            let at = [-0.7, -0.4, 0.6];
            let got = all.pass(Pass::Weights, &column(0.2, -0.4, 0.3));
            near(got.loss, loss(at));
            // d = (1, 1, -1): along it 2.5, 1, -2.
            let squares = all.curvatures();
            let of = |at: usize| f64::from(squares[2 * at]) + f64::from(squares[2 * at + 1]);
            near(of(one), 0.25 * 0.25);
            near(of(two), 0.25 * (4.0 + 1.0));
            near(of(seven), 0.25 * (1.0 + 1.0));
            let along = [2.5, 1.0, -2.0];
            let moved = |t: f64| [at[0] + t * along[0], at[1] + t * along[1], at[2] + t * along[2]];
            let slope = |t: f64| error(moved(t)).iter().zip(along).map(|(e, a)| e * a).sum::<f64>();
            let got = all.pass(Pass::Direction { moved: 0.0 }, &column(1.0, 1.0, -1.0));
            near(got.loss, loss(moved(1.0)));
            near(got.slope, slope(1.0));
            let got = all.pass(Pass::Try { step: 0.5 }, &[]);
            near(got.loss, loss(moved(0.5)));
            near(got.slope, slope(0.5));
            all.pass(Pass::Gradient { step: 0.25 }, &[]);
            let e = error(moved(0.25));
            let gradient = all.gradient();
            let of = |at: usize| f64::from(gradient[2 * at]) + f64::from(gradient[2 * at + 1]);
            near(of(one), 0.5 * e[0]);
            near(of(two), 2.0 * e[0] + e[1]);
            near(of(seven), 2.0 * e[2]);
            // After a step of 0.25, a new direction.
            let got = all.pass(Pass::Direction { moved: 0.25 }, &column(0.0, 0.0, 1.0));
            let now = moved(0.25);
            near(got.loss, loss([now[0], now[1], now[2] + 2.0]));
        }
        let refused = Examples::read(&data, Share::ALL, 64, 1, 100).err().unwrap().to_string();
        assert!(refused.contains("--data-memory"), "{refused}");
    }
}
