//! The messages of a range of offsets as lines. An offset may have no message (it was compacted away, or belongs to a
//! transaction), so a range is at its end where a later message is seen, or where the log ends behind it.

use crate::limits::{MESSAGE_PATIENCE, MESSAGE_POLL, MESSAGE_TEXT_BYTES};
use crate::read::bytes::stop_flag::StopFlag;
use crate::read::growing::text_parts::{PartedText, TextParts};
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a wait for a message brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    Message,
    /// The log has no more messages now.
    EndOfLog,
    Nothing,
}

/// A log of messages. Its errors are in words.
pub(crate) trait MessageLog: Send {
    /// What it is called in messages.
    fn name(&self) -> String;

    /// Goes to an offset of a partition: the next message is the first that is there or later.
    fn go_to(&mut self, partition: u32, offset: u64) -> Result<(), String>;

    /// Waits for the next message of the partition. `take` gets its offset and its value.
    fn wait(
        &mut self,
        partition: u32,
        most: Duration,
        take: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<Waited, String>;

    /// The offset at which a partition ends, if the log says it.
    fn end(&self, partition: u32) -> Option<u64>;
}

/// A reader of one range after the other.
pub(crate) struct RangeReader<L> {
    log: L,
    /// The partition, and the offsets of which the log has only the last one, or none: it goes on from any of them.
    /// `None`: it must go to an offset first.
    next: Option<(u32, RangeInclusive<u64>)>,
    /// A message behind the range, or behind the part of it that is read.
    ahead: Option<(u64, Vec<u8>)>,
}

impl<L: MessageLog> RangeReader<L> {
    /// A reader at no offset.
    pub fn new(log: L) -> RangeReader<L> {
        RangeReader { log, next: None, ahead: None }
    }

    /// Goes to an offset. Returns the first one that may have a message.
    fn begin(&mut self, partition: u32, offset: u64) -> Result<u64, String> {
        match self.next.take() {
            Some((at, free)) if at == partition && free.contains(&offset) => Ok(*free.end()),
            _ => {
                self.ahead = None;
                self.log.go_to(partition, offset)?;
                Ok(offset)
            }
        }
    }
}

/// Readers that no text uses.
pub(crate) type SpareReaders<L> = Arc<Mutex<Vec<RangeReader<L>>>>;

/// See the module.
pub(crate) struct MessageText<L: MessageLog + 'static> {
    reader: Option<RangeReader<L>>,
    partition: u32,
    parts: TextParts,
    /// All messages before this offset were seen. With a message ahead it is that one's.
    at: u64,
    bytes: Vec<u8>,
    taken: usize,
    /// The log ended, and afterwards it said that it goes on to the end of the range.
    is_confirmed: bool,
    stop: StopFlag,
    spare: SpareReaders<L>,
}

/// Appends a message as lines.
fn append(bytes: &mut Vec<u8>, value: &[u8]) {
    bytes.extend_from_slice(value);
    if value.last().is_some_and(|&last| last != b'\n') {
        bytes.push(b'\n');
    }
}

impl<L: MessageLog + 'static> MessageText<L> {
    /// Begins to read a range of a partition. The reader goes to `spare` at the end.
    ///
    /// # Errors
    /// Of the log.
    pub fn begin(
        mut reader: RangeReader<L>,
        (partition, parts): (u32, TextParts),
        stop: &StopFlag,
        spare: SpareReaders<L>,
    ) -> Result<PartedText, String> {
        let at = reader.begin(partition, parts.start())?;
        let text = MessageText {
            reader: Some(reader),
            partition,
            parts: parts.clone(),
            at,
            bytes: Vec::new(),
            taken: 0,
            is_confirmed: false,
            stop: stop.clone(),
            spare,
        };
        Ok(PartedText { text: Box::new(text), parts })
    }

    fn named(&self, why: String) -> io::Error {
        let log = self.reader.as_ref().map(|reader| reader.log.name()).unwrap_or_default();
        io::Error::other(format!("{log}, partition {}, message {}: {why}", self.partition, self.at))
    }

    /// Waits for the next message, and takes it.
    fn wait(&mut self, most: Duration) -> io::Result<Waited> {
        let end = self.parts.end();
        let MessageText { reader, bytes, at, partition, .. } = self;
        let Some(RangeReader { log, ahead, .. }) = reader else { return Ok(Waited::Nothing) };
        let waited = log.wait(*partition, most, &mut |offset, value| {
            if offset >= end {
                *ahead = Some((offset, value.to_vec()));
                *at = offset;
            } else if offset >= *at {
                append(bytes, value);
                *at = offset + 1;
            }
        });
        waited.map_err(|why| self.named(why))
    }

    /// The log has no more messages now. It is at the end of the range only if it knew of the end before this was so:
    /// otherwise messages of the range may be on their way.
    fn at_end_of_log(&mut self) -> io::Result<()> {
        let (partition, end, at) = (self.partition, self.parts.offsets().end, self.at);
        if self.is_confirmed {
            self.at = end;
            return Ok(());
        }
        let Some(reader) = &mut self.reader else { return Ok(()) };
        let knows_end = reader.log.end(partition).is_some_and(|known| known >= end);
        if !knows_end {
            std::thread::sleep(MESSAGE_POLL);
        }
        let gone = reader.log.go_to(partition, at);
        self.is_confirmed = knows_end;
        gone.map_err(|why| self.named(why))
    }

    /// Waits for messages of the part.
    fn fill(&mut self) -> io::Result<()> {
        self.taken = 0;
        self.bytes.clear();
        if let Some((offset, value)) = self.reader.as_mut().and_then(|reader| reader.ahead.take()) {
            append(&mut self.bytes, &value);
            self.at = offset + 1;
        }
        let mut waited = Duration::ZERO;
        while self.at < self.parts.end() && self.bytes.len() < MESSAGE_TEXT_BYTES {
            if waited >= MESSAGE_PATIENCE {
                return Err(self.named(format!("nothing came for {} s", waited.as_secs())));
            }
            if self.stop.is_set() {
                return Err(io::Error::other("stopped"));
            }
            let most = if self.bytes.is_empty() { MESSAGE_POLL } else { Duration::ZERO };
            match self.wait(most)? {
                Waited::Nothing if !self.bytes.is_empty() => return Ok(()),
                Waited::Message => waited = Duration::ZERO,
                Waited::Nothing => waited += most,
                Waited::EndOfLog => {
                    waited += MESSAGE_POLL;
                    self.at_end_of_log()?;
                }
            }
        }
        Ok(())
    }
}

impl<L: MessageLog + 'static> Read for MessageText<L> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.bytes.len() {
            if self.at >= self.parts.end() {
                return Ok(0);
            }
            self.fill()?;
        }
        let n = out.len().min(self.bytes.len() - self.taken);
        out[..n].copy_from_slice(&self.bytes[self.taken..self.taken + n]);
        self.taken += n;
        Ok(n)
    }
}

impl<L: MessageLog + 'static> Drop for MessageText<L> {
    fn drop(&mut self) {
        if let Some(mut reader) = self.reader.take() {
            // A range that was read to its end is often continued.
            let end = self.parts.offsets().end;
            reader.next = (self.at >= end).then_some((self.partition, end..=self.at));
            self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
        }
    }
}
