//! The queue between a thread that reads ahead and the threads that take what it has read. Any of them may close it:
//! all others learn of that at once.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A bounded queue.
#[derive(Debug)]
pub struct Queue<T> {
    state: Mutex<State<T>>,
    /// Something was put or taken, or the end has changed.
    changed: Condvar,
    most: usize,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    end: End,
}

/// Whether there will be more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    /// The reading thread is gone, and has not put a last item in.
    Left,
    /// The last item was put in.
    Last,
    /// Nobody wants any more, also not what was read already.
    Closed,
}

/// What a thread gets that asks for an item.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken<T> {
    /// The next item.
    Item(T),
    /// There is none yet.
    Nothing,
    /// There are no more.
    Over,
    /// The reading thread is gone, and has not said why.
    Lost,
}

impl<T> Queue<T> {
    /// A queue of at most so many items.
    pub fn new(most: usize) -> Queue<T> {
        let state = State { items: VecDeque::new(), end: End::Open };
        Queue { state: Mutex::new(state), changed: Condvar::new(), most }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an item in when there is room. Returns whether somebody may still want it.
    pub fn put(&self, item: T) -> bool {
        self.put_and(item, End::Open)
    }

    /// Puts the last item in, when there is room. Nothing comes after it.
    pub fn put_last(&self, item: T) -> bool {
        self.put_and(item, End::Last)
    }

    fn put_and(&self, item: T, end: End) -> bool {
        let full = |state: &mut State<T>| state.end == End::Open && state.items.len() >= self.most;
        let waited = self.changed.wait_while(self.lock(), full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.end != End::Open {
            return false;
        }
        state.items.push_back(item);
        state.end = end;
        self.changed.notify_all();
        true
    }

    /// Takes the next item. It waits at most so long for it.
    pub fn take(&self, most: Duration) -> Taken<T> {
        let empty = |state: &mut State<T>| state.end == End::Open && state.items.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), most, empty);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (state.items.pop_front(), state.end) {
            (Some(item), _) => {
                self.changed.notify_all();
                Taken::Item(item)
            }
            (None, End::Open) => Taken::Nothing,
            (None, End::Left) => {
                // One thread tells of it.
                state.end = End::Last;
                Taken::Lost
            }
            (None, End::Last | End::Closed) => Taken::Over,
        }
    }

    /// The reading thread is gone.
    pub fn leave(&self) {
        let mut state = self.lock();
        if state.end == End::Open {
            state.end = End::Left;
        }
        self.changed.notify_all();
    }

    /// Nobody wants any more.
    pub fn close(&self) {
        let mut state = self.lock();
        state.end = End::Closed;
        let unwanted = std::mem::take(&mut state.items);
        drop(state);
        self.changed.notify_all();
        drop(unwanted);
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.lock().end == End::Closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn closing_wakes_those_who_wait() {
        let queue: Arc<Queue<u32>> = Arc::new(Queue::new(1));
        assert!(queue.put(1));
        let putter = thread::spawn({
            let queue = queue.clone();
            move || queue.put(2)
        });
        queue.close();
        assert!(!putter.join().unwrap_or(true));
        let empty: Arc<Queue<u32>> = Arc::new(Queue::new(1));
        let taker = thread::spawn({
            let empty = empty.clone();
            move || empty.take(LONG)
        });
        empty.close();
        assert!(matches!(taker.join(), Ok(Taken::Over)));
        // What was read before is not given any more.
        assert_eq!(queue.take(LONG), Taken::Over);
    }

    #[test]
    fn what_was_read_comes_before_the_loss() {
        let queue = Queue::new(2);
        assert!(queue.put(1));
        assert_eq!(queue.take(Duration::ZERO), Taken::Item(1));
        assert_eq!(queue.take(Duration::ZERO), Taken::Nothing);
        assert!(queue.put(2));
        queue.leave();
        assert_eq!(queue.take(LONG), Taken::Item(2));
        assert_eq!([queue.take(LONG), queue.take(LONG)], [Taken::Lost, Taken::Over]);
        assert!(!queue.is_closed() && !queue.put(3));
    }

    #[test]
    fn nothing_comes_after_the_last() {
        let queue = Queue::new(2);
        assert!(queue.put(1) && queue.put_last(2) && !queue.put(3));
        queue.leave();
        assert_eq!([queue.take(LONG), queue.take(LONG)], [Taken::Item(1), Taken::Item(2)]);
        assert_eq!([queue.take(LONG), queue.take(LONG)], [Taken::Over, Taken::Over]);
    }
}
