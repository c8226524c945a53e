//! How far a topic is trained, committed for the group of its address. Others look at it; the job never reads it.

use crate::limits::KAFKA_COMMIT_EVERY;
use crate::read::growing::kafka_address::KafkaAddress;
use crate::read::growing::kafka_client::KafkaConsumer;
use gannet_wire::{PartitionStand, SourceStand};
use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// How far the newest checkpoint of the job is. `None`: it has none yet, or this process cannot read it.
pub type SavedPartitions = Box<dyn Fn() -> Option<Vec<PartitionStand>> + Send + Sync>;

/// See the module.
#[derive(Default)]
pub(crate) struct Commits {
    /// Only what a checkpoint has is committed.
    pub saved: Option<SavedPartitions>,
    last: Mutex<Option<Instant>>,
}

impl Commits {
    /// Commits, if it is time to. A failure is a warning.
    pub fn while_training(&self, address: &KafkaAddress, asks: &KafkaConsumer, stand: &SourceStand) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if address.group.is_none() || last.is_some_and(|at| at.elapsed() < KAFKA_COMMIT_EVERY) {
            return;
        }
        *last = Some(Instant::now());
        drop(last);
        let of_checkpoint = self.saved.as_ref().map(|saved| saved().unwrap_or_default());
        let partitions = of_checkpoint.as_deref().unwrap_or(&stand.partitions);
        commit(address, asks, partitions, CommitMode::Async);
    }

    /// Commits all: the training is over.
    pub fn at_the_end(&self, address: &KafkaAddress, asks: &KafkaConsumer, stand: &SourceStand) {
        if address.group.is_some() {
            commit(address, asks, &stand.partitions, CommitMode::Sync);
        }
    }
}

fn commit(address: &KafkaAddress, asks: &KafkaConsumer, partitions: &[PartitionStand], mode: CommitMode) {
    let try_to = || -> Result<(), KafkaError> {
        let mut trained = TopicPartitionList::new();
        for of in partitions {
            let offset = Offset::Offset(of.trained as i64);
            trained.add_partition_offset(&address.topic, of.partition as i32, offset)?;
        }
        asks.commit(&trained, mode)
    };
    if !partitions.is_empty()
        && let Err(error) = try_to()
    {
        tracing::warn!(topic = %address, %error, "how far the training is could not be committed");
    }
}
