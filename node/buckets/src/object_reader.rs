//! Reads the bytes of an object in ranges, of which a few are on their way ahead of the reader.

use crate::limits::{OBJECT_FIRST_BYTES, OBJECT_RANGES_KEPT};
use crate::objects::{Object, ObjectFacts, changed, object, object_facts};
use crate::requests::{Pending, Requests};
use crate::web;
use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How far a reader asks ahead. It holds at most `at_once` + 2 ranges.
#[derive(Clone, Copy, Debug)]
pub struct ReadAhead {
    /// The most bytes of a range.
    pub bytes: u64,
    /// The most ranges that are on their way.
    pub at_once: usize,
}

/// A reader of a part of an object. The object must be as this process saw it first.
pub struct ObjectReader {
    object: Object,
    requests: Arc<Requests>,
    facts: Arc<ObjectFacts>,
    ahead: ReadAhead,
    stop: Arc<AtomicBool>,
    /// The next byte that is read, and the end.
    at: u64,
    end: u64,
    /// Ranges that have arrived, by their first bytes.
    arrived: VecDeque<(u64, Vec<u8>)>,
    sent: VecDeque<(Range<u64>, Pending<Vec<u8>>)>,
    /// Where the next request begins, and its length.
    next: (u64, u64),
}

impl ObjectReader {
    /// A reader of these bytes of an object; an end behind the object's is that of the object. `stop` ends waits. No
    /// bytes are asked for before the first read.
    ///
    /// # Errors
    /// There is no such object, or it cannot be read in parts.
    pub fn open(
        url: &str,
        part: Range<u64>,
        ahead: ReadAhead,
        stop: Arc<AtomicBool>,
    ) -> io::Result<ObjectReader> {
        let facts = object_facts(url)?;
        let Some(bytes) = facts.bytes.filter(|_| facts.ranges) else {
            let why = "its server sends no parts of it (it ignores the header Range); download it and name the file";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        };
        let (object, requests) = object(url)?;
        Ok(ObjectReader {
            object,
            requests,
            facts: Arc::new(facts),
            ahead,
            stop,
            at: part.start,
            end: part.end.min(bytes),
            arrived: VecDeque::new(),
            sent: VecDeque::new(),
            next: (part.start, OBJECT_FIRST_BYTES),
        })
    }

    /// The length of the object, or the end of the part that is read.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The bytes at the reader's position that have arrived.
    fn here(&self) -> Option<&[u8]> {
        self.arrived.iter().find_map(|(start, bytes)| {
            let skipped = usize::try_from(self.at.checked_sub(*start)?).ok()?;
            bytes.get(skipped..).filter(|bytes| !bytes.is_empty())
        })
    }

    /// Waits for the range with the reader's position.
    fn bring(&mut self) -> io::Result<()> {
        while self.sent.front().is_some_and(|(range, _)| !range.contains(&self.at)) {
            self.sent.pop_front();
        }
        if self.sent.is_empty() && self.next.0 != self.at {
            self.next = (self.at, OBJECT_FIRST_BYTES);
        }
        self.send();
        let Some((range, pending)) = self.sent.pop_front() else { return Ok(()) };
        let bytes = pending.wait_until(&self.stop)?;
        if self.arrived.len() >= OBJECT_RANGES_KEPT {
            self.arrived.pop_front();
        }
        self.arrived.push_back((range.start, bytes));
        Ok(())
    }

    /// Asks ahead. The first ranges are short and alone: a reader may want only the beginning.
    fn send(&mut self) {
        let longest = self.ahead.bytes.max(1);
        while self.sent.len() < self.ahead.at_once.max(1) && self.next.0 < self.end {
            let (start, bytes) = (self.next.0, self.next.1.min(longest));
            let range = start..self.end.min(start.saturating_add(bytes));
            let (object, of_it, facts) = (self.object.clone(), range.clone(), self.facts.clone());
            let pending = self.requests.send(async move { object.range(of_it, &facts).await });
            self.next = (range.end, bytes.saturating_mul(4).min(longest));
            self.sent.push_back((range, pending));
            if bytes <= OBJECT_FIRST_BYTES.min(longest - 1) {
                return;
            }
        }
    }
}

impl Read for ObjectReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.end || out.is_empty() {
            return Ok(0);
        }
        if self.here().is_none() {
            self.bring()?;
        }
        let Some(mut here) = self.here() else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let most = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(out.len());
        let some = here.read(&mut out[..most])?;
        self.at += some as u64;
        Ok(some)
    }
}

impl Seek for ObjectReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.end.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// Reads an object of a web server that sends no parts, from its beginning. If its answer is cut, the object is asked
/// for again and read over up to there.
pub struct WholeObject {
    object: Object,
    requests: Arc<Requests>,
    facts: ObjectFacts,
    stop: Arc<AtomicBool>,
    /// The bytes that were read, and how many the answer begins with that must be read over.
    at: u64,
    skip: u64,
    answer: Option<reqwest::Response>,
    /// Bytes that have arrived, and how many of them were read.
    chunk: (Vec<u8>, usize),
    /// Tries without a new byte.
    tries: usize,
    over: bool,
}

impl WholeObject {
    /// A reader of an object. `stop` ends waits.
    ///
    /// # Errors
    /// There is no such object.
    pub fn open(url: &str, stop: Arc<AtomicBool>) -> io::Result<WholeObject> {
        let facts = object_facts(url)?;
        let (object, requests) = object(url)?;
        Ok(WholeObject {
            object,
            requests,
            facts,
            stop,
            at: 0,
            skip: 0,
            answer: None,
            chunk: (Vec::new(), 0),
            tries: 0,
            over: false,
        })
    }

    /// Asks for the object, if it is not being read.
    fn answer(&mut self) -> io::Result<reqwest::Response> {
        if let Some(answer) = self.answer.take() {
            return Ok(answer);
        }
        let Object::Web(client, url) = &self.object else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it is an object of a bucket"));
        };
        let (client, url) = (client.clone(), url.clone());
        let asked = self.requests.send(async move { web::whole(&client, &url).await });
        let answer = asked.wait_until(&self.stop)?;
        let now = web::facts(&answer);
        let same = |one: &ObjectFacts, other: &ObjectFacts| {
            one.version == other.version && (one.bytes == other.bytes || other.bytes.is_none())
        };
        if !same(&self.facts, &now) {
            return Err(changed(&self.facts, &now));
        }
        if self.at > 0 && self.facts.version.is_empty() {
            let at = self.at;
            return Err(io::Error::other(format!(
                "the server ended its answer after {at} bytes, and says of no part whether it is of the same version; \
                 download the object and name the file"
            )));
        }
        self.skip = self.at;
        Ok(answer)
    }

    /// Waits for more bytes. Without any, the object has ended.
    fn bring(&mut self) -> io::Result<()> {
        while self.chunk.1 == self.chunk.0.len() && !self.over {
            let mut answer = self.answer()?;
            let got = self.requests.send(async move {
                let chunk = answer.chunk().await.map_err(web::words);
                Ok((answer, chunk))
            });
            let (answer, chunk) = got.wait_until(&self.stop)?;
            let short = |at: u64| self.facts.bytes.is_some_and(|bytes| at < bytes);
            let why = match chunk {
                Ok(Some(chunk)) => {
                    let over = self.skip.min(chunk.len() as u64);
                    self.skip -= over;
                    self.answer = Some(answer);
                    if over < chunk.len() as u64 {
                        (self.tries, self.chunk) = (0, (chunk[over as usize..].to_vec(), 0));
                    }
                    continue;
                }
                Ok(None) if self.skip > 0 || short(self.at) => {
                    "the server ends its answer too early".to_owned()
                }
                Ok(None) => {
                    self.over = true;
                    return Ok(());
                }
                Err(why) => why,
            };
            let mut tries = self.tries;
            let paused = self.requests.send(async move { web::pause(&mut tries, why).await.map(|()| tries) });
            self.tries = paused.wait_until(&self.stop)?;
        }
        Ok(())
    }
}

impl Read for WholeObject {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.bring()?;
        let (chunk, done) = &mut self.chunk;
        let some = (&chunk[*done..]).read(out)?;
        *done += some;
        self.at += some as u64;
        Ok(some)
    }
}
