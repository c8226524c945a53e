//! The messages of a range of offsets as lines. An offset may have no message (it was compacted away, or belongs to a
//! transaction), so a range is at its end where a later message is seen, or where the log ends behind it.

use crate::limits::{KAFKA_POLL, KAFKA_TEXT_BYTES, KAFKA_TIMEOUT};
use crate::read::bytes::stop_flag::StopFlag;
use crate::read::growing::kafka::{KafkaAddress, KafkaConsumer, consumer};
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Message, Offset, TopicPartitionList};
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A consumer that reads one range after the other.
pub(crate) struct RangeReader {
    address: KafkaAddress,
    consumer: KafkaConsumer,
    /// The partition and the offset of the message that comes next. `None`: it must be assigned.
    next: Option<(u32, u64)>,
}

impl RangeReader {
    /// A reader that is not connected yet.
    pub fn new(address: &KafkaAddress) -> Result<RangeReader, String> {
        Ok(RangeReader { address: address.clone(), consumer: consumer(address)?, next: None })
    }

    fn assign(&self, partition: u32, offset: u64) -> Result<(), String> {
        let mut at = TopicPartitionList::new();
        let added =
            at.add_partition_offset(&self.address.topic, partition as i32, Offset::Offset(offset as i64));
        let assigned = added.and_then(|()| self.consumer.assign(&at));
        assigned.map_err(|error| format!("{}, partition {partition}: {error}", self.address))
    }
}

/// See the module.
pub(crate) struct KafkaText {
    reader: Option<RangeReader>,
    partition: u32,
    /// The first offset that was not seen.
    at: u64,
    end: u64,
    bytes: Vec<u8>,
    taken: usize,
    is_over: bool,
    /// The log ended, and afterwards the broker said that it goes on to the end of the range.
    is_confirmed: bool,
    stop: StopFlag,
    spare: Arc<Mutex<Vec<RangeReader>>>,
}

impl KafkaText {
    /// Begins to read a range of a partition. The reader goes to `spare` at the end.
    pub fn begin(
        mut reader: RangeReader,
        (partition, start, end): (u32, u64, u64),
        stop: &StopFlag,
        spare: Arc<Mutex<Vec<RangeReader>>>,
    ) -> Result<KafkaText, String> {
        if reader.next != Some((partition, start)) {
            reader.assign(partition, start)?;
        }
        reader.next = None;
        Ok(KafkaText {
            reader: Some(reader),
            partition,
            at: start,
            end,
            bytes: Vec::new(),
            taken: 0,
            is_over: start >= end,
            is_confirmed: false,
            stop: stop.clone(),
            spare,
        })
    }

    fn named(&self, why: &dyn std::fmt::Display) -> io::Error {
        let address = self.reader.as_ref().map(|reader| reader.address.to_string()).unwrap_or_default();
        io::Error::other(format!("{address}, partition {}, message {}: {why}", self.partition, self.at))
    }

    /// Takes a message.
    fn take(&mut self, offset: u64, payload: Option<&[u8]>) {
        if offset < self.at {
            return;
        }
        self.is_over = offset + 1 >= self.end;
        if offset < self.end {
            self.at = offset + 1;
            if let Some(payload) = payload.filter(|payload| !payload.is_empty()) {
                self.bytes.extend_from_slice(payload);
                if payload.last() != Some(&b'\n') {
                    self.bytes.push(b'\n');
                }
            }
        } else {
            // A message behind the range was seen, so the consumer is no longer at its end.
            self.at = offset + 1;
        }
    }

    /// The log has no more messages now. It is at the end of the range only if the broker knew of the end before this
    /// was so: otherwise messages of the range may be on their way.
    fn at_end_of_log(&mut self) -> io::Result<()> {
        if self.is_confirmed {
            self.is_over = true;
            return Ok(());
        }
        let Some(reader) = &self.reader else { return Ok(()) };
        let marks =
            reader.consumer.fetch_watermarks(&reader.address.topic, self.partition as i32, KAFKA_TIMEOUT);
        let knows_end = marks.is_ok_and(|(_, high)| high >= 0 && high as u64 >= self.end);
        if !knows_end {
            std::thread::sleep(KAFKA_POLL);
        }
        reader.assign(self.partition, self.at).map_err(io::Error::other)?;
        self.is_confirmed = knows_end;
        Ok(())
    }

    /// Waits for messages of the range.
    fn fill(&mut self) -> io::Result<()> {
        (self.taken, self.bytes) = (0, std::mem::take(&mut self.bytes));
        self.bytes.clear();
        while !self.is_over && self.bytes.len() < KAFKA_TEXT_BYTES {
            if self.stop.is_set() {
                return Err(io::Error::other("stopped"));
            }
            let wait = if self.bytes.is_empty() { KAFKA_POLL } else { Duration::ZERO };
            // The reader is taken out, because a message borrows it.
            let Some(reader) = self.reader.take() else { return Ok(()) };
            let polled = match reader.consumer.poll(wait) {
                None => Ok(false),
                Some(Ok(message)) => {
                    let offset = message.offset();
                    if message.partition() as u32 == self.partition && offset >= 0 {
                        self.take(offset as u64, message.payload());
                    }
                    Ok(true)
                }
                Some(Err(error)) => Err(error),
            };
            self.reader = Some(reader);
            match polled {
                Ok(true) => {}
                Ok(false) if self.bytes.is_empty() => {}
                Ok(false) => return Ok(()),
                Err(KafkaError::PartitionEOF(_)) => self.at_end_of_log()?,
                Err(error) => self.failed(&error)?,
            }
        }
        Ok(())
    }

    /// Errors that pass are waited for. The learner has a limit for that.
    fn failed(&self, error: &KafkaError) -> io::Result<()> {
        use RDKafkaErrorCode::{AutoOffsetReset, OffsetOutOfRange, UnknownTopic, UnknownTopicOrPartition};
        match error.rdkafka_error_code() {
            Some(AutoOffsetReset | OffsetOutOfRange) => Err(self.named(
                &"it was deleted before it was trained; let the brokers keep messages for longer, and begin the \
                  training anew",
            )),
            Some(UnknownTopic | UnknownTopicOrPartition) => {
                Err(self.named(&"the brokers no longer have it; was the topic deleted?"))
            }
            _ if matches!(error, KafkaError::MessageConsumptionFatal(_)) => Err(self.named(error)),
            _ => {
                tracing::debug!(%error, "waiting for a broker");
                Ok(())
            }
        }
    }
}

impl Read for KafkaText {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.bytes.len() {
            if self.is_over {
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

impl Drop for KafkaText {
    fn drop(&mut self) {
        if let Some(mut reader) = self.reader.take() {
            // A range that was read to its end is often continued.
            reader.next = (self.is_over && self.at == self.end).then_some((self.partition, self.end));
            self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
        }
    }
}
