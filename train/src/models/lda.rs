//! Topics of documents: latent Dirichlet allocation (Blei, Ng, Jordan 2003) by collapsed Gibbs sampling (Griffiths
//! and Steyvers, "Finding scientific topics", 2004). As in Newman et al. ("Distributed algorithms for topic models",
//! 2009), the counts are on the servers and each worker samples its own documents. A token of word w in document d is
//! drawn from
//!
//! p(topic k) ~ (n_dk + a) (n_wk + b) / (n_k + V b), where the counts leave the token itself out.
//!
//! The worker itself counts n_dk. Row w of table `lda` has n_wk (its dim is the number of topics), and row 0 of table
//! `lda.topics` has n_k. A worker pulls the rows of the words of some documents, samples these words with its copy of
//! the counts, and pushes the differences, which the servers add. One worker gives the sampler of the papers. Several
//! workers see each other's counts a batch late. A worker keeps its documents in memory, 8 bytes a token. Each worker
//! reads all documents once, to count the different words. Counts are whole numbers in f32, exact below 2^24.

use super::gamma::ln_gamma;
use crate::backend::error::BackendError;
use crate::backend::tables::Tables;
use crate::batch::{Batch, BatchKeys, Batcher};
use crate::learn::options::Options;
use crate::learn::report::TrainError;
use crate::limits::{BATCH_TOKENS_MAX, TOPIC_TOKENS_MAX, WORD_REPEATS_MAX};
use crate::read::data::Share;
use crate::read::error::BadLines;
use crate::read::reader::Reader;
use gannet_core::{Read, Schema, Write};
use gannet_optim::{Add, Rule};
use gannet_transport::Prng;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// The tables: a row for each word, one row of totals, a row for each worker.
const WORDS: usize = 0;
const TOPICS: usize = 1;
const WORKERS: usize = 2;

/// A topic model.
#[derive(Clone, Copy, Debug)]
pub struct Lda {
    /// The number of topics.
    pub topics: usize,
    /// Dirichlet prior of a document's topics, `a` in the formula.
    pub document_prior: f64,
    /// Dirichlet prior of a topic's words, `b` in the formula.
    pub word_prior: f64,
    /// Seed of the initial topics and of the draws.
    pub seed: u64,
}

/// The progress of a sampling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The current sweep, from 1.
    pub sweep: u32,
    /// Tokens drawn in all sweeps.
    pub tokens: u64,
    /// Seconds since the start.
    pub seconds: f64,
}

/// The results of a sampling.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// This worker's documents.
    pub documents: u64,
    /// The tokens of these documents.
    pub tokens: u64,
    /// Different words in all documents.
    pub words: u64,
    /// Sweeps over the documents.
    pub sweeps: u32,
    /// Wall time of the sweeps.
    pub seconds: f64,
    /// The number of pulls at each staleness. Staleness is by how many steps the slowest worker was behind the pull's
    /// clock. The last entry counts all larger ones. Empty without other workers.
    pub pulls_by_staleness: Vec<u64>,
    /// "embedded", "tcp", "shm".
    pub transport: String,
    /// "libsvm", "csv", "tsv", "criteo" or "vw".
    pub format: &'static str,
    /// Bad lines skipped.
    pub bad_lines: BadLines,
    /// Whether the stop flag ended the sampling early.
    pub stopped: bool,
}

/// The result of all workers' counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Topics {
    /// ln p(words, topics) of all documents, with the multinomials integrated out (Griffiths and Steyvers, equations
    /// 2 and 3).
    pub log_likelihood: f64,
    /// Tokens of all workers.
    pub tokens: u64,
    /// For each topic its tokens and its most frequent words, the most frequent first, with their counts.
    pub topics: Vec<(u64, Vec<(u64, u64)>)>,
}

/// A batch of documents.
struct Documents {
    keys: Vec<u64>,
    /// For each token the index of its word in `keys`, and its topic.
    tokens: Vec<(u32, u16)>,
    /// The end of each document's tokens.
    ends: Vec<u32>,
}

/// The state of a worker's sampling.
struct Sampler<'a, T> {
    model: Lda,
    tables: &'a mut T,
    documents: Vec<Documents>,
    words: f64,
    chance: Prng,
    /// Counts of the batch's words, and their values when they were pulled.
    counts: Vec<f32>,
    before: Vec<f32>,
    /// Counts of the topics, and their values when they were pulled.
    totals: Vec<f32>,
    totals_before: Vec<f32>,
    /// The current document's counts plus the prior.
    document: Vec<f32>,
    /// 1 / (n_k + V b).
    inverse: Vec<f32>,
    sums: Vec<f32>,
}

impl Lda {
    /// The tables' schemas, in order.
    pub fn schemas(&self) -> [Schema; 3] {
        let table =
            |name: &str, dim: usize| Schema { dim: dim as u32, ..Schema::scalar(name, Rule::Add(Add)) };
        [table("lda", self.topics), table("lda.topics", self.topics), table("lda.workers", 4)]
    }

    /// Samples the documents of `options.data`, `options.epochs` sweeps, in batches of `options.batch` documents. An
    /// example is a document. Its features are its words, and a feature's value is how often the document has the
    /// word. Labels are ignored.
    ///
    /// # Errors
    /// The data cannot be read, a value is not a count, or the rows cannot be read.
    ///
    /// # Panics
    /// When `tables` has open tables already.
    pub fn sample<T: Tables>(
        &self,
        options: &Options,
        tables: &mut T,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&Sampling),
    ) -> Result<Sampled, TrainError> {
        let (documents, words, reader) = self.read(options, stop)?;
        let [words_table, topics_table, workers_table] = self.schemas();
        for (number, schema) in [(WORDS, &words_table), (TOPICS, &topics_table)] {
            assert_eq!(tables.open(schema)?, number, "the model's tables are the first");
        }
        tables.join()?;
        let start = Instant::now();
        let worker = u64::from(options.share.worker);
        let none = vec![0.0; self.topics];
        let mut sampler = Sampler {
            model: *self,
            tables,
            documents,
            words: words as f64,
            chance: Prng::new(gannet_core::hash(self.seed ^ worker << 32)),
            counts: Vec::new(),
            before: Vec::new(),
            totals: Vec::new(),
            totals_before: Vec::new(),
            document: none.clone(),
            inverse: none.clone(),
            sums: none,
        };
        let (mut sweeps, mut drawn, mut reported) = (0, 0, start);
        'sweeps: for sweep in 0..=options.epochs {
            for batch in 0..sampler.documents.len() {
                // The sweep that counts the initial topics must finish, or the counts mean nothing.
                if sweep > 0 && stop.load(Relaxed) {
                    break 'sweeps;
                }
                drawn += sampler.batch(batch, sweep == 0)?;
                if sweep > 0 && reported.elapsed() >= options.progress_every {
                    reported = Instant::now();
                    progress(&Sampling { sweep, tokens: drawn, seconds: start.elapsed().as_secs_f64() });
                }
            }
            sweeps = sweep;
        }
        sampler.tables.leave()?;
        // Each worker writes one row in this table, at its own time, so workers do not keep step over it.
        assert_eq!(sampler.tables.open(&workers_table)?, WORKERS, "the model's tables are the first");
        sampler.report(worker)?;
        let of = |f: fn(&Documents) -> usize| sampler.documents.iter().map(f).sum::<usize>() as u64;
        Ok(Sampled {
            documents: of(|d| d.ends.len()),
            tokens: of(|d| d.tokens.len()),
            words,
            sweeps,
            seconds: start.elapsed().as_secs_f64(),
            pulls_by_staleness: sampler.tables.pulls_by_staleness(),
            transport: sampler.tables.transport(),
            format: reader.format(),
            bad_lines: reader.bad_lines().clone(),
            stopped: stop.load(Relaxed),
        })
    }

    /// Reads all documents to find all words. Keeps those of this worker's share, and gives each token a random
    /// topic.
    fn read(
        &self,
        options: &Options,
        stop: &AtomicBool,
    ) -> Result<(Vec<Documents>, u64, Reader), TrainError> {
        let mut reader = Reader::open(&options.data, options.batch, Share::ALL)?;
        let mut batcher = Batcher::new(self.schemas()[0].shards, 0);
        let mut chance = Prng::new(self.seed);
        let (mut batch, mut words, mut own_share, mut number) =
            (Batch::default(), HashSet::new(), Vec::new(), 0);
        while !stop.load(Relaxed) && reader.next(&mut batch.block)? {
            batcher.complete(&mut batch);
            words.extend(batch.keys.iter().copied());
            let mine = batch.number % u64::from(options.share.workers) == u64::from(options.share.worker);
            let mut documents = Documents { keys: batch.keys.clone(), tokens: Vec::new(), ends: Vec::new() };
            for i in 0..batch.block.len() {
                number += 1;
                for j in batch.block.range(i) {
                    let count = batch.block.values[j];
                    if !(0.0..=WORD_REPEATS_MAX).contains(&count) || count.fract() != 0.0 {
                        let what = format!(
                            "a word's value is how often the document has it, 0 to 65535, and here it is {count}"
                        );
                        return Err(TrainError::Example { number, what });
                    }
                    let token = || (batch.local[j], chance.below(self.topics as u64) as u16);
                    documents.tokens.extend(std::iter::repeat_with(token).take(count as usize));
                }
                if documents.tokens.len() > BATCH_TOKENS_MAX {
                    let what = format!(
                        "its batch has more than {BATCH_TOKENS_MAX} tokens: choose a smaller --batch"
                    );
                    return Err(TrainError::Example { number, what });
                }
                documents.ends.push(documents.tokens.len() as u32);
            }
            if mine {
                own_share.push(documents);
            }
        }
        Ok((own_share, words.len() as u64, reader))
    }

    /// The likelihood and the `most` most frequent words of each topic, from the counts of all workers. All must have
    /// ended.
    ///
    /// # Errors
    /// The rows cannot be read, or the tables have counts of other workers.
    pub fn topics<T: Tables>(
        &self,
        tables: &mut T,
        workers: u64,
        words: u64,
        most: usize,
    ) -> Result<Topics, BackendError> {
        let (mut rows, mut totals) = (Vec::new(), Vec::new());
        tables.weights(WORKERS, &(0..workers).collect::<Vec<_>>(), &mut rows)?;
        tables.weights(TOPICS, &[0], &mut totals)?;
        let sum = |at: usize| {
            rows.chunks_exact(4).map(|row| f64::from(row[at]) + f64::from(row[at + 1])).sum::<f64>()
        };
        let (of_documents, tokens) = (sum(0), sum(2));
        let counted: f64 = totals.iter().map(|&n| f64::from(n)).sum();
        if counted != tokens {
            return Err(BackendError::Schema(format!(
                "the tables count {counted} tokens and the workers have {tokens}: counts of an earlier run, or of a worker that died, are \
                 among them; sample again with fresh servers or data folders"
            )));
        }
        let (b, smoothing) = (self.word_prior, ln_gamma(self.word_prior));
        let mut likelihood = of_documents;
        for &n in &totals {
            likelihood += ln_gamma(words as f64 * b) - ln_gamma(words as f64 * b + f64::from(n));
        }
        let mut best: Vec<Vec<(u64, u64)>> = vec![Vec::new(); self.topics];
        tables.scan(WORDS, &mut |keys, rows| {
            for (&key, row) in keys.iter().zip(rows.chunks_exact(self.topics)) {
                for (&n, best) in row.iter().zip(&mut best).filter(|(n, _)| **n > 0.0) {
                    likelihood += ln_gamma(b + f64::from(n)) - smoothing;
                    let place = best.partition_point(|&(other, count)| (count, other) > (n as u64, key));
                    if place < most {
                        best.truncate(most - 1);
                        best.insert(place, (key, n as u64));
                    }
                }
            }
        })?;
        let topics = totals.iter().map(|&n| n as u64).zip(best).collect();
        Ok(Topics { log_likelihood: likelihood, tokens: tokens as u64, topics })
    }
}

impl<T: Tables> Sampler<'_, T> {
    /// Draws new topics for a batch, or counts its initial ones. Returns the number of tokens drawn.
    fn batch(&mut self, number: usize, first: bool) -> Result<u64, TrainError> {
        self.tables.begin_pull(WORDS, BatchKeys::unsorted(&self.documents[number].keys), Read::Weights)?;
        self.tables.begin_pull(TOPICS, BatchKeys::unsorted(&[0]), Read::Weights)?;
        self.tables.finish_pull(&mut self.counts)?;
        self.tables.finish_pull(&mut self.totals)?;
        self.before.clone_from(&self.counts);
        self.totals_before.clone_from(&self.totals);
        if self.totals.iter().any(|&n| n >= TOPIC_TOKENS_MAX) {
            let text = "a topic has 16,777,216 tokens or more, which its row cannot count exactly: choose more --topics";
            return Err(BackendError::Schema(text.to_owned()).into());
        }
        match first {
            true => self.count(number),
            false => self.draw(number),
        }
        let change = |before: &mut Vec<f32>, after: &[f32]| {
            before.iter_mut().zip(after).for_each(|(b, a)| *b = a - *b)
        };
        change(&mut self.before, &self.counts);
        change(&mut self.totals_before, &self.totals);
        self.tables.push(WORDS, &mut self.before, Write::Gradient, None)?;
        self.tables.push(TOPICS, &mut self.totals_before, Write::Gradient, None)?;
        Ok(if first { 0 } else { self.documents[number].tokens.len() as u64 })
    }

    fn count(&mut self, number: usize) {
        for &(word, topic) in &self.documents[number].tokens {
            self.counts[word as usize * self.model.topics + usize::from(topic)] += 1.0;
            self.totals[usize::from(topic)] += 1.0;
        }
    }

    fn draw(&mut self, number: usize) {
        let Lda { topics, document_prior, word_prior, .. } = self.model;
        let (a, b, smoothing) = (document_prior as f32, word_prior as f32, (self.words * word_prior) as f32);
        let Sampler { counts, totals, document, inverse, sums, chance, .. } = self;
        inverse.iter_mut().zip(&*totals).for_each(|(inverse, n)| *inverse = 1.0 / (n + smoothing));
        let Documents { tokens, ends, .. } = &mut self.documents[number];
        let mut start = 0;
        for &end in &*ends {
            let tokens = &mut tokens[start..end as usize];
            start = end as usize;
            document.fill(a);
            tokens.iter().for_each(|&(_, topic)| document[usize::from(topic)] += 1.0);
            for (word, topic) in tokens {
                let row = &mut counts[*word as usize * topics..][..topics];
                let mut step =
                    |row: &mut [f32], document: &mut [f32], inverse: &mut [f32], k: usize, by: f32| {
                        row[k] += by;
                        document[k] += by;
                        totals[k] += by;
                        inverse[k] = 1.0 / (totals[k] + smoothing);
                    };
                step(row, document, inverse, usize::from(*topic), -1.0);
                let mut sum = 0.0;
                for (((total, d), w), inverse) in sums.iter_mut().zip(&*document).zip(&*row).zip(&*inverse) {
                    sum += d * (w + b) * inverse;
                    *total = sum;
                }
                let at = (chance.next_u64() >> 40) as f32 / (1u64 << 24) as f32 * sum;
                let k = sums.partition_point(|&total| total <= at).min(topics - 1);
                *topic = k as u16;
                step(row, document, inverse, k, 1.0);
            }
        }
    }

    /// Writes the documents' part of the likelihood and the number of tokens into the worker's row, each as two
    /// floats. Waits until all counts are applied.
    fn report(&mut self, worker: u64) -> Result<(), BackendError> {
        let Lda { topics, document_prior: a, .. } = self.model;
        let (whole, one) = (a * topics as f64, ln_gamma(a));
        let (mut likelihood, mut tokens, mut counts) = (0.0, 0.0, vec![0u32; topics]);
        for documents in &self.documents {
            let mut start = 0;
            for &end in &documents.ends {
                counts.fill(0);
                let own = &documents.tokens[start..end as usize];
                own.iter().for_each(|&(_, topic)| counts[usize::from(topic)] += 1);
                likelihood += ln_gamma(whole) - ln_gamma(whole + own.len() as f64);
                likelihood +=
                    counts.iter().filter(|n| **n > 0).map(|&n| ln_gamma(a + f64::from(n)) - one).sum::<f64>();
                (start, tokens) = (end as usize, tokens + own.len() as f64);
            }
        }
        let high = |x: f64| (x as f32, (x - f64::from(x as f32)) as f32);
        let ((l0, l1), (t0, t1)) = (high(likelihood), high(tokens));
        self.tables.begin_pull(WORKERS, BatchKeys::unsorted(&[worker]), Read::Weights)?;
        self.tables.finish_pull(&mut self.before)?;
        let target = [l0, l1, t0, t1];
        self.before.iter_mut().zip(target).for_each(|(before, target)| *before = target - *before);
        self.tables.push(WORKERS, &mut self.before, Write::Gradient, None)?;
        self.tables.drain()
    }
}
