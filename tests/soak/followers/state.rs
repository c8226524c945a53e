//! What all threads of a round know: who is down, what was pushed, what was answered.

use super::data::Counts;
use super::pusher::Life;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How far the clock of a follower's metrics and that of this process may differ.
pub const SLACK: Duration = Duration::from_millis(100);

/// A follower of the round: the one that feeds the other, or that one.
pub struct FollowerState {
    pub addr: String,
    /// How often it was killed, and whether it is dead now.
    pub deaths: AtomicU64,
    pub is_down: AtomicBool,
    /// Times in which nothing new could reach it.
    pub cut_off: Mutex<Vec<(Instant, Option<Instant>)>>,
    /// The latest moment whose rows it has, according to its age.
    pub rows_of: Mutex<Option<Instant>>,
}

/// By history and place in it.
type Positions = Mutex<BTreeMap<(String, u64), Position>>;

/// A position, and the answer there.
struct Position {
    answer: String,
    counts: Counts,
    /// Commands that are no pushes of rows, such as the ends of tasks, less the pushes before a restore.
    other: i64,
    /// Which followers have answered so.
    by: [bool; 2],
}

/// What was seen of the positions of a round.
pub struct Seen {
    pub positions: u64,
    /// Positions that both followers have answered.
    pub by_both: u64,
    pub histories: u64,
    /// The most commands of a history that are no pushes of rows.
    pub other: u64,
}

/// What the threads share.
pub struct State {
    pub followers: [FollowerState; 2],
    pub lives: Mutex<Vec<Life>>,
    /// Shards of the table. 0: not known yet.
    pub shards: AtomicU64,
    /// By history and commands.
    positions: Positions,
    /// The same by life of the rows and commands of the counts.
    by_life: Positions,
    pub answers: AtomicU64,
    /// Answers whose age was held against the log of pushes.
    pub dated: AtomicU64,
    /// Readings of age and readiness.
    pub readings: AtomicU64,
    pub stop: AtomicBool,
    /// The trainer that runs for moments only, in a round where one does.
    pub dripped: Mutex<Option<rustix::process::Pid>>,
    wrong: Mutex<Vec<String>>,
}

impl State {
    pub fn new(addrs: [String; 2]) -> State {
        let follower = |addr| FollowerState {
            addr,
            deaths: AtomicU64::new(0),
            is_down: AtomicBool::new(true),
            cut_off: Mutex::default(),
            rows_of: Mutex::default(),
        };
        State {
            followers: addrs.map(follower),
            lives: Mutex::default(),
            shards: AtomicU64::new(0),
            positions: Mutex::default(),
            by_life: Mutex::default(),
            answers: AtomicU64::new(0),
            dated: AtomicU64::new(0),
            readings: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            dripped: Mutex::default(),
            wrong: Mutex::default(),
        }
    }

    pub fn is_wrong(&self, what: String) {
        let mut wrong = self.wrong.lock().unwrap();
        if wrong.len() < 10 {
            wrong.push(what);
        }
    }

    /// Fails if anything was wrong.
    pub fn check(&self) {
        // A failure must not hold the lock.
        let wrong = self.wrong.lock().unwrap().clone();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// Holds an answer of either follower against the position that it names, and against the answers there and around
    /// it. Returns its counts.
    pub fn take(&self, which: usize, version: &str, answer: &str) -> Result<Counts, String> {
        let counts = Counts::of(answer).map_err(|why| format!("{version}: {why}"))?;
        let (commands, history) = version.split_once('-').ok_or_else(|| format!("version {version:?}"))?;
        let commands: u64 = commands.parse().map_err(|_| format!("version {version:?}"))?;
        let of_counts = self.commands(&counts).map_err(|why| format!("{version}: {why}"))?;
        self.answers.fetch_add(1, SeqCst);
        let other = commands as i64 - of_counts as i64;
        if other < 0 && self.lives.lock().unwrap().len() < 2 {
            return Err(format!("{version} answers {of_counts} commands: {counts:?}"));
        }
        let by = [which == 0, which == 1];
        let position = Position { answer: answer.to_owned(), counts: counts.clone(), other, by };
        self.put(&self.positions, (history.to_owned(), commands), position)?;
        Ok(counts)
    }

    /// Holds an answer against those of both followers in one life of the rows. They have the same pushes in the same
    /// order.
    pub fn take_in_life(
        &self,
        which: usize,
        life: usize,
        answer: &str,
        counts: &Counts,
    ) -> Result<(), String> {
        let place = (format!("life {life}"), self.commands(counts)?);
        let by = [which == 0, which == 1];
        let position = Position { answer: answer.to_owned(), counts: counts.clone(), other: 0, by };
        self.put(&self.by_life, place, position)
    }

    fn commands(&self, counts: &Counts) -> Result<u64, String> {
        counts.commands(self.shards.load(SeqCst) as u32)
    }

    /// Puts an answer in its place, between those of the same history.
    fn put(&self, positions: &Positions, place: (String, u64), position: Position) -> Result<(), String> {
        let mut positions = positions.lock().unwrap();
        if let Some(known) = positions.get_mut(&place) {
            known.by = std::array::from_fn(|which| known.by[which] || position.by[which]);
            let differ =
                || format!("{place:?} has two answers: {:?} and {:?}", known.counts, position.counts);
            return if known.answer == position.answer { Ok(()) } else { Err(differ()) };
        }
        let is_of_history = |of: &(&(String, u64), &Position)| of.0.0 == place.0;
        let before = positions.range(..&place).next_back().filter(is_of_history);
        let after = positions.range(&place..).next().filter(is_of_history);
        let around = [before.map(|of| (of, true)), after.map(|of| (of, false))];
        for ((at, other), is_before) in around.into_iter().flatten() {
            let (first, last) = if is_before { (other, &position) } else { (&position, other) };
            if !last.counts.go_on_from(&first.counts) || last.other < first.other {
                let [first, last] = [first, last].map(|of| (of.other, &of.counts));
                return Err(format!("{place:?} does not fit {at:?}: {first:?} then {last:?}"));
            }
        }
        positions.insert(place, position);
        Ok(())
    }

    /// What was seen of the positions.
    pub fn seen(&self) -> Seen {
        let positions = self.positions.lock().unwrap();
        let mut histories = BTreeMap::<&str, (i64, i64)>::new();
        for ((history, _), Position { other, .. }) in positions.iter() {
            let (least, most) = histories.entry(history).or_insert((*other, *other));
            (*least, *most) = ((*least).min(*other), (*most).max(*other));
        }
        let most = histories.values().map(|(least, most)| most - least).max().unwrap_or(0);
        let by_both = positions.values().filter(|position| position.by == [true; 2]).count() as u64;
        Seen {
            positions: positions.len() as u64,
            by_both,
            histories: histories.len() as u64,
            other: most.unsigned_abs(),
        }
    }
}
