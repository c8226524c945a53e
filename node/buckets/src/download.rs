//! Reads an object in ranges, of which a few are on their way at a time.

use crate::limits::{BUCKET_PARTS_AT_ONCE, BUCKET_RANGE_BYTES};
use crate::requests::Pending;
use crate::upload::Place;
use object_store::ObjectStoreExt;
use std::collections::VecDeque;
use std::io;
use std::io::Read;

/// Reads an object from its first byte.
pub(crate) struct Download {
    place: Place,
    bytes: u64,
    /// Where the next request begins.
    next: u64,
    sent: VecDeque<Pending<Vec<u8>>>,
    /// Bytes that have arrived, and how many of them were read.
    range: (Vec<u8>, usize),
}

impl Download {
    /// Reads an object of this length. The first requests are sent with the first read.
    pub(crate) fn new(place: Place, bytes: u64) -> Download {
        Download { place, bytes, next: 0, sent: VecDeque::new(), range: (Vec::new(), 0) }
    }
}

impl Read for Download {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.range.1 == self.range.0.len() {
            while self.sent.len() < BUCKET_PARTS_AT_ONCE && self.next < self.bytes {
                let (requests, objects, path) = &self.place;
                let (objects, path) = (objects.clone(), path.clone());
                let range = self.next..self.bytes.min(self.next + BUCKET_RANGE_BYTES);
                self.next = range.end;
                let get = async move { objects.get_range(&path, range).await.map(Vec::from) };
                self.sent.push_back(requests.begin(get));
            }
            let Some(first) = self.sent.pop_front() else { return Ok(0) };
            self.range = (first.wait()?, 0);
        }
        let (range, done) = &mut self.range;
        let some = (&range[*done..]).read(buffer)?;
        *done += some;
        Ok(some)
    }
}
