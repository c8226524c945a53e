//! The log of messages that a consumer of Kafka reads.

use crate::limits::KAFKA_TIMEOUT;
use crate::read::growing::kafka::{KafkaAddress, KafkaConsumer, consumer};
use crate::read::growing::message_text::{MessageLog, Waited};
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Message, Offset, TopicPartitionList};
use std::time::Duration;

/// See the module.
pub(crate) struct KafkaLog {
    address: KafkaAddress,
    consumer: KafkaConsumer,
}

impl KafkaLog {
    /// A log that is not connected yet.
    ///
    /// # Errors
    /// The address is wrong.
    pub fn new(address: &KafkaAddress) -> Result<KafkaLog, String> {
        Ok(KafkaLog { address: address.clone(), consumer: consumer(address)? })
    }
}

/// Errors that pass are waited for. The learner has a limit for that.
fn waited(error: &KafkaError) -> Result<Waited, String> {
    use RDKafkaErrorCode::{AutoOffsetReset, OffsetOutOfRange, UnknownTopic, UnknownTopicOrPartition};
    match error.rdkafka_error_code() {
        _ if matches!(error, KafkaError::PartitionEOF(_)) => Ok(Waited::EndOfLog),
        Some(AutoOffsetReset | OffsetOutOfRange) => Err(
            "it was deleted before it was trained; let the brokers keep messages for longer, and begin the \
                 training anew"
                .into(),
        ),
        Some(UnknownTopic | UnknownTopicOrPartition) => {
            Err("the brokers no longer have it; was the topic deleted?".into())
        }
        _ if matches!(error, KafkaError::MessageConsumptionFatal(_)) => Err(error.to_string()),
        _ => {
            tracing::debug!(%error, "waiting for a broker");
            Ok(Waited::Nothing)
        }
    }
}

impl MessageLog for KafkaLog {
    fn name(&self) -> String {
        self.address.to_string()
    }

    fn go_to(&mut self, partition: u32, offset: u64) -> Result<(), String> {
        let mut at = TopicPartitionList::new();
        let added =
            at.add_partition_offset(&self.address.topic, partition as i32, Offset::Offset(offset as i64));
        let assigned = added.and_then(|()| self.consumer.assign(&at));
        assigned.map_err(|error| format!("{}, partition {partition}: {error}", self.address))
    }

    fn wait(
        &mut self,
        partition: u32,
        most: Duration,
        take: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<Waited, String> {
        match self.consumer.poll(most) {
            None => Ok(Waited::Nothing),
            Some(Ok(message)) => {
                let offset = message.offset();
                if message.partition() as u32 == partition && offset >= 0 {
                    take(offset as u64, message.payload().unwrap_or_default());
                }
                Ok(Waited::Message)
            }
            Some(Err(error)) => waited(&error),
        }
    }

    fn end(&self, partition: u32) -> Option<u64> {
        let marks = self.consumer.fetch_watermarks(&self.address.topic, partition as i32, KAFKA_TIMEOUT);
        marks.ok().and_then(|(_, high)| u64::try_from(high).ok())
    }
}
