//! What is trained and what is asked: weights that count, so that an answer says which pushes it has.
//!
//! All records are positive, and at a rate of 2^-100 nothing is learned. So each record adds exactly 2^-100 to the
//! weight of each of its keys. A question has a line for each key, with the value 2^100: the answer is the count.
//! A batch is one record, so a position of the servers is a sum over the counts.

use gannet::table::{hash, mix, shard_of};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Records of a pass, and passes.
const RECORDS: u64 = 10_000;
const PASSES: u64 = 3;

/// Flags that make weights count.
const COUNTS: &str = "--model linear --loss squared --no-intercept --normalize off --optimizer sgd --push gradient \
                          --reduce sum --alpha 7.888609e-31 --batch 1 --sync asp";

/// Keys that are always pushed together.
const GROUPS: u64 = 12;
const TOGETHER: u64 = 6;

/// The lives of the servers' rows in one round: each restore begins another one.
pub const LIVES: usize = 4;

/// Keys of the pusher in one life. It pushes `first`, then it makes or deletes the row of `parity`, then it pushes
/// `second`.
pub struct OfLife {
    pub first: Vec<u64>,
    pub parity: u64,
    pub second: Vec<u64>,
}

pub fn of_life(life: usize) -> OfLife {
    let from = 500_000 + 100 * life as u64;
    OfLife { first: (from..from + 3).collect(), parity: from + 10, second: (from + 20..from + 23).collect() }
}

/// The keys of a group of records.
fn group(number: u64) -> Vec<u64> {
    (0..TOGETHER).map(|key| 1000 + 16 * number + key).collect()
}

/// The group of each record.
fn groups_of_records() -> impl Iterator<Item = u64> {
    (0..RECORDS).map(|record| mix(record) % GROUPS)
}

/// How often each group is trained in all passes.
pub fn trained() -> Vec<u64> {
    let mut all = vec![0; GROUPS as usize];
    groups_of_records().for_each(|group| all[group as usize] += PASSES);
    all
}

/// What a job trains.
pub struct Training {
    /// Lines of libsvm.
    pub records: String,
    pub workers: usize,
    pub flags: String,
}

/// The training of weights that count.
pub fn training() -> Training {
    let mut text = String::new();
    for number in groups_of_records() {
        text.push('1');
        group(number).iter().for_each(|key| write!(text, " {key}:1").unwrap());
        text.push('\n');
    }
    let flags = format!("{COUNTS} --epochs {PASSES} --tasks on --task-bytes 32KiB --worker-timeout 2");
    Training { records: text, workers: 2, flags }
}

/// All keys that are asked for: those of the groups, then those of each life.
fn asked() -> Vec<u64> {
    let of_lives = (0..LIVES).flat_map(|life| {
        let OfLife { first, parity, second } = of_life(life);
        first.into_iter().chain([parity]).chain(second)
    });
    (0..GROUPS).flat_map(group).chain(of_lives).collect()
}

/// The question: a line for each key.
pub fn question() -> String {
    asked().iter().fold(String::new(), |mut text, key| {
        writeln!(text, "1 {key}:1.2676506002282294e30").unwrap();
        text
    })
}

/// What an answer says of the pusher in one life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    pub first: u64,
    pub parity: u64,
    pub second: u64,
}

/// The counts of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Of each group.
    pub groups: Vec<u64>,
    /// Of each life.
    pub lives: Vec<Pushed>,
}

impl Counts {
    /// Reads an answer.
    ///
    /// # Errors
    /// It is not one count a key, or keys that were pushed together have different counts.
    pub fn of(answer: &str) -> Result<Counts, String> {
        let mut values = BTreeMap::new();
        let mut lines = answer.lines();
        for key in asked() {
            let line = lines.next().ok_or_else(|| format!("no line for key {key}: {answer}"))?;
            let value: f64 = line.trim().parse().map_err(|_| format!("key {key}: {line:?}"))?;
            if value < 0.0 || value.fract() != 0.0 {
                return Err(format!("key {key} counts {value}"));
            }
            values.insert(key, value as u64);
        }
        let same = |keys: &[u64]| {
            let all: Vec<u64> = keys.iter().map(|key| values[key]).collect();
            let equal = all.iter().all(|count| *count == all[0]);
            equal.then_some(all[0]).ok_or_else(|| format!("a part of a push: keys {keys:?} count {all:?}"))
        };
        let life = |life| {
            let OfLife { first, parity, second } = of_life(life);
            Ok(Pushed { first: same(&first)?, parity: values[&parity], second: same(&second)? })
        };
        Ok(Counts {
            groups: (0..GROUPS).map(|number| same(&group(number))).collect::<Result<_, String>>()?,
            lives: (0..LIVES).map(life).collect::<Result<_, String>>()?,
        })
    }

    /// The commands of all shards that these counts make.
    ///
    /// # Errors
    /// No order of the pusher's pushes has these counts.
    pub fn commands(&self, shards: u32) -> Result<u64, String> {
        let shards_of = |keys: &[u64]| {
            let mut all: Vec<u32> = keys.iter().map(|&key| shard_of(hash(key), shards)).collect();
            all.sort_unstable();
            all.dedup();
            all.len() as u64
        };
        let of_group = |(number, count): (u64, &u64)| count * shards_of(&group(number));
        let mut commands: u64 = (0..).zip(&self.groups).map(of_group).sum();
        for (life, &pushed) in self.lives.iter().enumerate() {
            let Pushed { first, parity, second } = pushed;
            let deletions_and_rows = match first.checked_sub(second) {
                Some(0) if parity == first % 2 => first,
                Some(1) if parity == first % 2 => first,
                Some(1) if parity == second % 2 => second,
                _ => return Err(format!("in life {life} no order of pushes makes {pushed:?}")),
            };
            let keys = of_life(life);
            commands +=
                first * shards_of(&keys.first) + second * shards_of(&keys.second) + deletions_and_rows;
        }
        Ok(commands)
    }

    /// Whether no count is lower than in an earlier answer of the same history.
    pub fn go_on_from(&self, before: &Counts) -> bool {
        let lives = self.lives.iter().zip(&before.lives);
        self.groups.iter().zip(&before.groups).all(|(now, then)| now >= then)
            && lives.clone().all(|(now, then)| now.first >= then.first && now.second >= then.second)
    }
}
