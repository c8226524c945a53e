//! The log of messages that a consumer of Kafka reads.

use crate::limits::{KAFKA_ASK, KAFKA_TIMEOUT};
use crate::read::growing::kafka_client::{KafkaClients, KafkaConsumer, never_passes};
use crate::read::growing::message_text::{MessageLog, Waited};
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Message, Offset, TopicPartitionList};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// See the module.
pub(crate) struct KafkaLog {
    clients: Arc<KafkaClients>,
    consumer: KafkaConsumer,
    /// When the brokers last gave something, or were asked whether they are there.
    heard: Instant,
}

impl KafkaLog {
    /// A log that is not connected yet.
    ///
    /// # Errors
    /// The configuration is wrong.
    pub fn new(clients: &Arc<KafkaClients>) -> Result<KafkaLog, String> {
        Ok(KafkaLog { clients: clients.clone(), consumer: clients.consumer()?, heard: Instant::now() })
    }

    fn has_heard(&mut self) {
        self.heard = Instant::now();
        self.clients.brokers.answered();
    }

    /// A broker whose machine hangs says nothing, and its connections stay open.
    fn ask_if_silent(&mut self, partition: u32) {
        let [silence, patience] = KAFKA_ASK;
        if self.heard.elapsed() < silence {
            return;
        }
        match self.consumer.fetch_watermarks(&self.clients.address.topic, partition as i32, patience) {
            Ok(_) => self.has_heard(),
            Err(_) => {
                self.heard = Instant::now();
                self.clients.brokers.are_silent();
            }
        }
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
        code if matches!(error, KafkaError::MessageConsumptionFatal(_)) || code.is_some_and(never_passes) => {
            Err(error.to_string())
        }
        _ => {
            tracing::debug!(%error, "waiting for a broker");
            Ok(Waited::Nothing)
        }
    }
}

impl MessageLog for KafkaLog {
    fn name(&self) -> String {
        self.clients.address.to_string()
    }

    fn go_to(&mut self, partition: u32, offset: u64) -> Result<(), String> {
        let mut at = TopicPartitionList::new();
        let added = at.add_partition_offset(
            &self.clients.address.topic,
            partition as i32,
            Offset::Offset(offset as i64),
        );
        self.heard = Instant::now();
        let assigned = added.and_then(|()| self.consumer.assign(&at));
        assigned.map_err(|error| format!("{}, partition {partition}: {error}", self.clients.address))
    }

    fn wait(
        &mut self,
        partition: u32,
        most: Duration,
        take: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<Waited, String> {
        match self.consumer.poll(most) {
            None => {
                self.ask_if_silent(partition);
                Ok(Waited::Nothing)
            }
            Some(Ok(message)) => {
                let offset = message.offset();
                if message.partition() as u32 == partition && offset >= 0 {
                    take(offset as u64, message.payload().unwrap_or_default());
                }
                drop(message);
                self.has_heard();
                Ok(Waited::Message)
            }
            Some(Err(error)) => {
                self.clients.brokers.note(&error);
                let waited = waited(&error)?;
                if waited == Waited::EndOfLog {
                    self.has_heard();
                }
                Ok(waited)
            }
        }
    }

    fn end(&self, partition: u32) -> Option<u64> {
        let marks =
            self.consumer.fetch_watermarks(&self.clients.address.topic, partition as i32, KAFKA_TIMEOUT);
        marks.ok().and_then(|(_, high)| u64::try_from(high).ok())
    }
}
