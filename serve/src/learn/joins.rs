//! Predictions whose labels come later: the lines of their features, by id, for a while.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Bytes that a prediction takes besides its id and its line.
const OVERHEAD: usize = 128;

/// Entries of the order that may be there for predictions that are kept no more, besides one for each that is.
const SPARE: usize = 16;

/// How long predictions are kept, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinLimits {
    /// How long a prediction waits for its label.
    pub window: Duration,
    /// Bytes of all of them.
    pub bytes: usize,
}

/// A prediction that waits.
#[derive(Debug)]
struct Kept {
    line: String,
    /// Which of the predictions it is: an id may be predicted again.
    number: u64,
}

/// The predictions that wait for their labels.
#[derive(Debug)]
pub struct Joins {
    limits: JoinLimits,
    kept: HashMap<String, Kept>,
    /// The number, the id and the time of each prediction, those first that came first. Some are kept no more.
    order: VecDeque<(u64, String, Instant)>,
    /// The number of the next prediction.
    next: u64,
    bytes: usize,
}

fn bytes_of(id: &str, line: &str) -> usize {
    2 * id.len() + line.len() + OVERHEAD
}

impl Joins {
    /// None so far.
    pub fn new(limits: JoinLimits) -> Joins {
        Joins { limits, kept: HashMap::new(), order: VecDeque::new(), next: 0, bytes: 0 }
    }

    /// Keeps a prediction. A later one with its id takes its place. Returns how many others went without a label.
    pub fn keep(&mut self, id: &str, line: String, now: Instant) -> u64 {
        self.bytes += bytes_of(id, &line);
        if let Some(former) = self.kept.insert(id.to_owned(), Kept { line, number: self.next }) {
            self.bytes -= bytes_of(id, &former.line);
        }
        self.order.push_back((self.next, id.to_owned(), now));
        self.next += 1;
        self.forget_joined();
        self.expire(now)
    }

    /// Drops the entries of the order whose predictions are kept no more, once they are most of it.
    fn forget_joined(&mut self) {
        if self.order.len() > 2 * self.kept.len() + SPARE {
            let kept = &self.kept;
            self.order.retain(|(number, id, _)| kept.get(id).is_some_and(|kept| kept.number == *number));
        }
    }

    /// Forgets those that are too old or too many. Returns how many.
    pub fn expire(&mut self, now: Instant) -> u64 {
        let mut expired = 0;
        while let Some((number, id, came)) = self.order.front() {
            let is_kept = self.kept.get(id).is_some_and(|kept| kept.number == *number);
            let is_old = now.saturating_duration_since(*came) >= self.limits.window;
            if is_kept && !is_old && self.bytes <= self.limits.bytes {
                break;
            }
            if is_kept && let Some(kept) = self.kept.remove(id) {
                self.bytes -= bytes_of(id, &kept.line);
                expired += 1;
            }
            self.order.pop_front();
        }
        expired
    }

    /// The line of a prediction.
    pub fn line(&self, id: &str) -> Option<&str> {
        self.kept.get(id).map(|kept| &*kept.line)
    }

    /// A prediction has its label.
    pub fn joined(&mut self, id: &str) {
        if let Some(kept) = self.kept.remove(id) {
            self.bytes -= bytes_of(id, &kept.line);
        }
        self.forget_joined();
    }

    /// Predictions that wait, and their bytes.
    pub fn held(&self) -> (usize, usize) {
        (self.kept.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limits(bytes: usize) -> JoinLimits {
        JoinLimits { window: Duration::from_secs(10), bytes }
    }

    #[test]
    fn a_prediction_is_kept_for_the_window() {
        let (mut joins, begin) = (Joins::new(limits(1 << 20)), Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(joins.keep("a", "x".into(), after(0)), 0);
        assert_eq!(joins.keep("b", "y".into(), after(5)), 0);
        assert_eq!((joins.expire(after(9)), joins.line("a")), (0, Some("x")));
        assert_eq!((joins.expire(after(10)), joins.line("a"), joins.line("b")), (1, None, Some("y")));
        joins.joined("b");
        assert_eq!((joins.line("b"), joins.held()), (None, (0, 0)));
        assert_eq!(joins.expire(after(20)), 0);
    }

    /// A prediction of the same id begins its time anew.
    #[test]
    fn the_last_prediction_of_an_id_counts() {
        let (mut joins, begin) = (Joins::new(limits(1 << 20)), Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        joins.keep("a", "x".into(), after(0));
        joins.keep("a", "y".into(), after(8));
        assert_eq!((joins.expire(after(12)), joins.line("a")), (0, Some("y")));
        assert_eq!((joins.expire(after(18)), joins.line("a")), (1, None));
    }

    proptest! {
        /// Whatever comes, the bytes stay within the limit, and are those of what is kept; the last ones are kept.
        #[test]
        fn the_bytes_stay_within_the_limit(
            most in 200usize..2000,
            steps in prop::collection::vec((0u32..20, 0usize..200, any::<bool>()), 1..200),
        ) {
            let (mut joins, now) = (Joins::new(limits(most)), Instant::now());
            for (id, length, is_joined) in steps {
                let id = id.to_string();
                if is_joined {
                    joins.joined(&id);
                    prop_assert_eq!(joins.line(&id), None);
                } else {
                    joins.keep(&id, "x".repeat(length), now);
                    let fits = bytes_of(&id, &"x".repeat(length)) <= most;
                    prop_assert_eq!(joins.line(&id).is_some(), fits);
                }
                let all: usize = joins.kept.iter().map(|(id, kept)| bytes_of(id, &kept.line)).sum();
                prop_assert_eq!(joins.held(), (joins.kept.len(), all));
                prop_assert!(all <= most && joins.order.len() <= 2 * joins.kept.len() + SPARE + 1);
            }
        }
    }
}
