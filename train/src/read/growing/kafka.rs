//! A topic of Kafka whose messages are trained while others are added. The job's scheduler hands out ranges of offsets,
//! and a worker reads its range itself: no consumer group decides who reads what, or from where.

use crate::limits::{KAFKA_PATIENCE, KAFKA_TASK_MESSAGES, KAFKA_TIMEOUT};
use crate::read::bytes::stop_flag::StopFlag;
use crate::read::growing::folder::Until;
use crate::read::growing::kafka_address::KafkaAddress;
use crate::read::growing::kafka_client::{KafkaClients, KafkaConfig, KafkaConsumer};
use crate::read::growing::kafka_commits::{Commits, SavedPartitions};
use crate::read::growing::kafka_text::KafkaLog;
use crate::read::growing::looking::{GrowingSource, Sample};
use crate::read::growing::message_text::{MessageText, RangeReader, SpareReaders};
use crate::read::growing::text_parts::{PartedText, TextParts};
use gannet_wire::{Found, FoundRange, GrownTask, PartitionStand, SourceStand};
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// See the module.
pub struct KafkaTopic {
    clients: Arc<KafkaClients>,
    until: Until,
    clock: fn() -> u64,
    /// Asks for offsets.
    asks: KafkaConsumer,
    /// Readers that no task uses.
    spare: SpareReaders<KafkaLog>,
    lags: Mutex<BTreeMap<u32, u64>>,
    commits: Commits,
    /// Since when no look succeeds, and how long that may last: it is another failure if it may last for another time.
    failing_since: Mutex<Option<(Instant, Duration)>>,
}

impl fmt::Debug for KafkaTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaTopic").field("address", self.address()).finish_non_exhaustive()
    }
}

/// Why a look found nothing.
enum LookError {
    /// A later look may succeed, and it must within this time.
    Passing(String, Duration),
    /// No later look will succeed.
    Final(String),
}

fn unlocked<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl KafkaTopic {
    /// The topic at this address. `config` is for its clients; `clock` has the nanoseconds since 1970. Nothing is
    /// connected yet.
    ///
    /// # Errors
    /// The address or the configuration is wrong, in words.
    pub fn new(
        address: KafkaAddress,
        config: KafkaConfig,
        until: Until,
        clock: fn() -> u64,
    ) -> Result<KafkaTopic, String> {
        let clients = Arc::new(KafkaClients::new(address, config));
        let asks = clients.consumer()?;
        let (spare, lags, commits) = (Arc::default(), Mutex::default(), Commits::default());
        Ok(KafkaTopic { clients, until, clock, asks, spare, lags, commits, failing_since: Mutex::default() })
    }

    /// The topic of a job with checkpoints: until the end only what a checkpoint has is committed.
    pub fn with_checkpoints(mut self, saved: SavedPartitions) -> KafkaTopic {
        self.commits.saved = Some(saved);
        self
    }

    fn address(&self) -> &KafkaAddress {
        &self.clients.address
    }

    /// As if no look had succeeded for so long.
    #[cfg(test)]
    pub(crate) fn pretend_failing_for(&self, time: Duration) {
        *unlocked(&self.failing_since) = Instant::now().checked_sub(time).map(|since| (since, time));
    }

    #[cfg(test)]
    pub(crate) fn clients(&self) -> &KafkaClients {
        &self.clients
    }

    /// How many messages of each partition are not trained.
    pub fn lags(&self) -> BTreeMap<u32, u64> {
        unlocked(&self.lags).clone()
    }

    fn failed(&self, error: &KafkaError) -> LookError {
        // The client tells its reasons when it is polled.
        while let Some(polled) = self.asks.poll(Duration::ZERO) {
            polled.err().iter().for_each(|error| self.clients.brokers.note(error));
        }
        match self.clients.failed(error) {
            Ok(passing) => LookError::Passing(passing, KAFKA_PATIENCE),
            Err(why) => LookError::Final(why),
        }
    }

    fn partitions(&self) -> Result<Vec<i32>, LookError> {
        let topic = self.address().topic.as_str();
        let metadata =
            self.asks.fetch_metadata(Some(topic), KAFKA_TIMEOUT).map_err(|error| self.failed(&error))?;
        self.clients.brokers.answered();
        let of_topic = metadata.topics().iter().find(|of| of.name() == topic);
        let partitions = of_topic.map(|of| of.partitions().iter().map(|of| of.id()).collect::<Vec<_>>());
        match partitions.filter(|all| !all.is_empty()) {
            Some(all) => Ok(all),
            None => {
                let why = format!("{}: the brokers have no such topic; make it first", self.address());
                Err(LookError::Final(why))
            }
        }
    }

    /// The first offset of a partition, and the one behind its last message.
    fn watermarks(&self, partition: i32) -> Result<(u64, u64), LookError> {
        let marks = self.asks.fetch_watermarks(&self.address().topic, partition, KAFKA_TIMEOUT);
        let (low, high) = marks.map_err(|error| self.failed(&error))?;
        Ok((low.max(0) as u64, high.max(low).max(0) as u64))
    }

    /// Where the job ends in each partition.
    fn ends(&self, found: &[(FoundRange, u64)]) -> Result<Option<Vec<FoundRange>>, LookError> {
        let bounds = |end: &dyn Fn(u32, u64) -> u64| {
            let bound = |(of, high): &(FoundRange, u64)| FoundRange {
                end: end(of.partition, *high).max(of.start),
                ..*of
            };
            Some(found.iter().map(bound).collect())
        };
        match self.until {
            Until::Stopped => Ok(None),
            Until::End => Ok(bounds(&|_, high| high)),
            Until::Time(time) if (self.clock)() <= time => Ok(None),
            Until::Time(time) => {
                let mut at = TopicPartitionList::new();
                for (range, _) in found {
                    let milliseconds = Offset::Offset((time / 1_000_000) as i64 + 1);
                    let added =
                        at.add_partition_offset(&self.address().topic, range.partition as i32, milliseconds);
                    added.map_err(|error| self.failed(&error))?;
                }
                let at =
                    self.asks.offsets_for_times(at, KAFKA_TIMEOUT).map_err(|error| self.failed(&error))?;
                let later = |partition: u32| {
                    let of = at.find_partition(&self.address().topic, partition as i32)?;
                    of.offset().to_raw().filter(|&offset| offset >= 0).map(|offset| offset as u64)
                };
                Ok(bounds(&|partition, high| later(partition).unwrap_or(high).min(high)))
            }
        }
    }

    /// Looks for messages that are in no task.
    fn find(&self, stand: &SourceStand) -> Result<Found, LookError> {
        let has_end = stand.partitions.iter().any(|of| of.end.is_some());
        let (mut found, mut unknown) = (Vec::new(), Vec::new());
        for partition in self.partitions()? {
            let (low, high) = self.watermarks(partition)?;
            let known = stand.partitions.iter().find(|of| of.partition == partition as u32);
            // A partition that is added later has nothing that was there at the start.
            let begins_behind = self.address().latest && stand.partitions.is_empty();
            let start = known.map_or(if begins_behind { high } else { low }, |of| of.next);
            if let Some(PartitionStand { next, .. }) = known.filter(|of| of.next < low) {
                return Err(LookError::Final(format!(
                    "{}, partition {partition}: messages {next} to {} were deleted before they were trained; let the \
                     brokers keep messages for longer, and begin the training anew",
                    self.address(),
                    low - 1
                )));
            }
            if start > high.max(low) {
                // A broker that has just become the leader may not know all messages yet.
                let why = format!(
                    "{}, partition {partition}: it ends before message {high}, and the training is at message {start}; \
                     was the topic made anew? then begin the training anew, too",
                    self.address()
                );
                return Err(LookError::Passing(why, KAFKA_TIMEOUT));
            }
            let range = FoundRange { partition: partition as u32, start, end: start };
            if known.is_none() && !has_end {
                unknown.push(range);
            }
            unlocked(&self.lags)
                .insert(partition as u32, high.saturating_sub(known.map_or(start, |of| of.trained)));
            found.push((range, high));
        }
        let bounds = if has_end { None } else { self.ends(&found)? };
        // An empty range says where a partition begins.
        let room = (stand.room as usize).saturating_sub(unknown.len());
        let ranges = unknown.into_iter().chain(cut(&found, room)).collect::<Vec<_>>();
        match ranges.is_empty() && bounds.is_none() {
            true => Ok(Found::Nothing),
            false => Ok(Found::Messages { ranges, bounds }),
        }
    }

    /// Counts a failure that may pass: for how long does it last?
    ///
    /// # Errors
    /// It does not pass.
    fn passes(&self, failure: LookError) -> Result<(), String> {
        let (why, patience) = match failure {
            LookError::Final(why) => return Err(why),
            LookError::Passing(why, patience) => (why, patience),
        };
        let mut failing = unlocked(&self.failing_since);
        failing.take_if(|(_, of_other)| *of_other != patience);
        let (since, _) = *failing.get_or_insert_with(|| (Instant::now(), patience));
        drop(failing);
        if since.elapsed() >= patience {
            return Err(format!("{why} (for {} s)", since.elapsed().as_secs()));
        }
        self.clients.brokers.warn(&why);
        Ok(())
    }

    /// As [`sample`](GrowingSource::sample).
    fn first_messages(&self, stop: &StopFlag) -> Result<Sample, LookError> {
        for partition in self.partitions()? {
            let (low, high) = self.watermarks(partition)?;
            if low < high {
                let task = GrownTask::Messages { partition: partition as u32, start: low, end: high };
                let parts = TextParts::new(low..high, high - low, 0);
                let text = self.text(&task, parts, stop).map_err(LookError::Final)?;
                let mut first = vec![0; 1 << 20];
                let n = { text.text }.read(&mut first);
                first.truncate(n.map_err(|error| LookError::Final(error.to_string()))?);
                if !first.is_empty() {
                    return Ok(Sample::Text(first));
                }
            }
        }
        Ok(Sample::Nothing)
    }
}

/// Ranges of about equal turns: every partition has some before the first has more.
fn cut(found: &[(FoundRange, u64)], room: usize) -> Vec<FoundRange> {
    let (mut ranges, mut at): (Vec<FoundRange>, Vec<u64>) =
        (Vec::new(), found.iter().map(|(of, _)| of.start).collect());
    loop {
        let before = ranges.len();
        for ((of, high), at) in found.iter().zip(&mut at) {
            if *at < *high && ranges.len() < room {
                let end = (*at + KAFKA_TASK_MESSAGES).min(*high);
                ranges.push(FoundRange { start: *at, end, ..*of });
                *at = end;
            }
        }
        if ranges.len() == before {
            return ranges;
        }
    }
}

impl GrowingSource for KafkaTopic {
    fn look(&self, stand: &SourceStand) -> Result<Found, String> {
        self.commits.while_training(self.address(), &self.asks, stand);
        match self.find(stand) {
            Err(failure) => self.passes(failure).map(|()| Found::Nothing),
            Ok(found) => {
                *unlocked(&self.failing_since) = None;
                Ok(found)
            }
        }
    }

    fn name_of(&self, task: &GrownTask) -> String {
        match task {
            GrownTask::Messages { partition, start, .. } => {
                format!("{}, partition {partition} from message {start} on", self.address())
            }
            GrownTask::Lines { file, .. } => file.name.clone(),
        }
    }

    fn path_of(&self, _task: &GrownTask) -> Option<String> {
        None
    }

    fn text(&self, task: &GrownTask, parts: TextParts, stop: &StopFlag) -> Result<PartedText, String> {
        let GrownTask::Messages { partition, .. } = *task else {
            return Err(format!("{} has no files", self.address()));
        };
        let spare = unlocked(&self.spare).pop();
        let reader = spare.map_or_else(|| KafkaLog::new(&self.clients).map(RangeReader::new), Ok)?;
        MessageText::begin(reader, (partition, parts), stop, self.spare.clone())
    }

    fn sample(&self, stop: &StopFlag) -> Result<Sample, String> {
        match self.first_messages(stop) {
            Err(failure) => self.passes(failure).map(|()| Sample::Unknown),
            Ok(sample) => {
                *unlocked(&self.failing_since) = None;
                Ok(sample)
            }
        }
    }

    fn is_away(&self) -> bool {
        self.clients.brokers.are_away()
    }

    fn end(&self, stand: &SourceStand) {
        unlocked(&self.lags).values_mut().for_each(|lag| *lag = 0);
        self.commits.at_the_end(self.address(), &self.asks, stand);
    }

    fn lags(&self) -> Vec<(u32, u64)> {
        KafkaTopic::lags(self).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_has_a_task_before_the_first_has_two() {
        let of = |partition, start, high| (FoundRange { partition, start, end: start }, high);
        let n = KAFKA_TASK_MESSAGES;
        let ranges = cut(&[of(0, 5, 5 + 2 * n + 1), of(1, 7, 7), of(2, 0, 1)], 3);
        let ranges: Vec<(u32, u64, u64)> = ranges.iter().map(|of| (of.partition, of.start, of.end)).collect();
        assert_eq!(ranges, [(0, 5, 5 + n), (2, 0, 1), (0, 5 + n, 5 + 2 * n)]);
    }
}
