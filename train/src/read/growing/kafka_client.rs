//! The clients of Kafka that read one topic: how they are configured, and what they say of the brokers.

use crate::limits::{KAFKA_QUEUE_KIB, KAFKA_WARN_EVERY};
use crate::read::growing::kafka_address::KafkaAddress;
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Properties of librdkafka that a user gives: how to reach the brokers, and as whom. Its `Debug` shows no values, as
/// passwords are among them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KafkaConfig(Vec<(String, String)>);

impl KafkaConfig {
    /// What the names of properties begin with. All others are Gannet's own.
    const ALLOWED: [&str; 3] = ["security.", "sasl.", "ssl."];

    /// Reads lines of `name=value`, as in the file that Kafka's tools call client.properties. Empty lines and those
    /// that begin with # say nothing.
    ///
    /// # Errors
    /// What is wrong with a line, in words, without its value.
    pub fn parse(text: &str) -> Result<KafkaConfig, String> {
        let mut properties = Vec::new();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = (1..).zip(text.lines().map(str::trim));
        let is_name =
            |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let two = line.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
            // What is no name may be a part of a password.
            let Some((name, value)) = two.filter(|(name, _)| is_name(name)) else {
                return Err(format!("line {number} is no NAME=VALUE"));
            };
            if !Self::ALLOWED.iter().any(|allowed| name.starts_with(allowed)) {
                return Err(format!(
                    "line {number}: {name} cannot be set; only properties whose names begin with {} can",
                    Self::ALLOWED.join(", ")
                ));
            }
            properties.push((name.to_owned(), value.to_owned()));
        }
        Ok(KafkaConfig(properties))
    }

    /// Whether the brokers are reached otherwise than by plain TCP.
    fn is_secured(&self) -> bool {
        self.0.iter().any(|(name, _)| name == "security.protocol")
    }
}

impl fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// See the module.
pub(crate) struct KafkaClients {
    pub address: KafkaAddress,
    config: KafkaConfig,
    pub brokers: Arc<Brokers>,
}

/// See [`KafkaClients::consumer`].
pub(crate) type KafkaConsumer = BaseConsumer<BrokerLog>;

impl KafkaClients {
    pub fn new(address: KafkaAddress, config: KafkaConfig) -> KafkaClients {
        let brokers = Arc::new(Brokers { topic: address.to_string(), ..Brokers::default() });
        KafkaClients { address, config, brokers }
    }

    /// A consumer that joins no group and commits nothing by itself.
    ///
    /// # Errors
    /// The configuration is wrong, in words.
    pub fn consumer(&self) -> Result<KafkaConsumer, String> {
        let address = &self.address;
        let own = [
            ("bootstrap.servers", address.brokers.as_str()),
            ("group.id", address.group.as_deref().unwrap_or("gannet")),
            ("client.id", "gannet"),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            // A message that is gone is an error, and the training does not begin elsewhere.
            ("auto.offset.reset", "error"),
            ("enable.partition.eof", "true"),
            ("isolation.level", "read_committed"),
            ("allow.auto.create.topics", "false"),
            ("check.crcs", "true"),
            ("fetch.wait.max.ms", "100"),
            ("fetch.error.backoff.ms", "50"),
            ("reconnect.backoff.max.ms", "1000"),
            ("queued.max.messages.kbytes", KAFKA_QUEUE_KIB),
        ];
        let mut client = ClientConfig::new();
        let given = self.config.0.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in given.chain(own) {
            client.set(name, value);
        }
        let made = client.create_with_context(BrokerLog { brokers: self.brokers.clone() });
        made.map_err(|error| match error {
            // Its own text has the value.
            KafkaError::ClientConfig(_, why, name, _) => format!("{address}: --kafka-config: {name}: {why}"),
            error => format!("{address}: {error}"),
        })
    }

    /// What a failed question means: in words, what may pass.
    ///
    /// # Errors
    /// It does not pass: in words.
    pub fn failed(&self, error: &KafkaError) -> Result<String, String> {
        let address = &self.address;
        self.brokers.are_away.store(true, Relaxed);
        let notes = unlocked(&self.brokers.notes);
        if let Some(why) = &notes.refused {
            return Err(format!("{address}: {why}; see the properties of --kafka-config"));
        }
        if error.rdkafka_error_code().is_some_and(never_passes) {
            return Err(format!("{address}: {error}"));
        }
        let last = if notes.last.is_empty() { String::new() } else { format!(" ({})", notes.last) };
        let remedy = match self.config.is_secured() {
            true => "see that the brokers answer",
            false => "see that the brokers answer; if they need TLS or a password, name it in --kafka-config",
        };
        Ok(format!("{address}: {error}{last}; {remedy}"))
    }
}

/// Whether an error is the same at each try.
pub(crate) fn never_passes(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode::{
        Authentication, BadCompression, BadMessage, ClusterAuthorizationFailed, GroupAuthorizationFailed,
        NotImplemented, SaslAuthenticationFailed, TopicAuthorizationFailed,
    };
    matches!(
        code,
        Authentication
            | BadCompression
            | BadMessage
            | ClusterAuthorizationFailed
            | GroupAuthorizationFailed
            | NotImplemented
            | SaslAuthenticationFailed
            | TopicAuthorizationFailed
    )
}

fn unlocked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the clients of a topic know of its brokers.
#[derive(Default)]
pub(crate) struct Brokers {
    topic: String,
    are_away: AtomicBool,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    /// The last reason why a broker could not be reached.
    last: String,
    /// Why the brokers do not let this client in.
    refused: Option<String>,
    warned: Option<Instant>,
}

impl Brokers {
    /// Nothing comes from a broker that is needed.
    pub fn are_silent(&self) {
        self.are_away.store(true, Relaxed);
        self.warn("it does not answer");
    }

    /// Whether no broker can be reached, or one that is needed does not answer.
    pub fn are_away(&self) -> bool {
        self.are_away.load(Relaxed)
    }

    /// Notes what an error of a client says of the brokers.
    pub fn note(&self, error: &KafkaError) {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AllBrokersDown) => self.are_away.store(true, Relaxed),
            Some(
                code @ (RDKafkaErrorCode::Authentication
                | RDKafkaErrorCode::SaslAuthenticationFailed
                | RDKafkaErrorCode::UnsupportedSASLMechanism),
            ) => {
                let mut notes = unlocked(&self.notes);
                let why = if notes.last.is_empty() { code.to_string() } else { notes.last.clone() };
                notes.refused = Some(why);
                self.are_away.store(true, Relaxed);
            }
            _ => {}
        }
    }

    /// A broker has answered.
    pub fn answered(&self) {
        if self.are_away.swap(false, Relaxed) {
            let mut notes = unlocked(&self.notes);
            notes.last.clear();
            notes.refused = None;
        }
    }

    /// Says what is waited for, from time to time.
    pub fn warn(&self, why: &str) {
        let mut notes = unlocked(&self.notes);
        if notes.warned.is_none_or(|at| at.elapsed() >= KAFKA_WARN_EVERY) {
            notes.warned = Some(Instant::now());
            tracing::warn!(topic = self.topic, why, "waiting for Kafka");
        }
    }
}

/// What a client of Kafka says besides its answers.
pub(crate) struct BrokerLog {
    brokers: Arc<Brokers>,
}

impl ClientContext for BrokerLog {
    /// The client tries again by itself.
    fn error(&self, error: KafkaError, _reason: &str) {
        self.brokers.note(&error);
    }

    /// Only the log says why a broker cannot be reached: `[thrd:NAME]: NAME/ID: WHY`.
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(facility, message, "librdkafka");
        if facility == "FAIL" {
            let why = message.split_once("]: ").map_or(message, |(_, why)| why);
            why.clone_into(&mut unlocked(&self.brokers.notes).last);
        }
    }
}

impl ConsumerContext for BrokerLog {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_read_and_their_values_are_not_shown() {
        let text = "# Confluent\n\n security.protocol = SASL_SSL\nsasl.password=a=b\n";
        let config = KafkaConfig::parse(text).unwrap();
        assert_eq!(format!("{config:?}"), r#"["security.protocol", "sasl.password"]"#);
        assert_eq!(config.0[1], ("sasl.password".into(), "a=b".into()));
        assert!(config.is_secured() && !KafkaConfig::default().is_secured());
        for (text, part) in [
            ("sasl.password", "line 1 is no NAME=VALUE"),
            ("sasl.password: secret==", "line 1 is no NAME=VALUE"),
            ("sasl.password secret=", "line 1 is no NAME=VALUE"),
            ("\nisolation.level=read_uncommitted", "line 2: isolation.level cannot be set"),
            ("group.id=mine", "line 1: group.id cannot be set"),
        ] {
            assert!(KafkaConfig::parse(text).unwrap_err().contains(part), "{text}");
        }
        let address = KafkaAddress::parse("kafka://127.0.0.1:1/t").unwrap();
        let unknown = KafkaConfig::parse("sasl.passwort=secret").unwrap();
        let error = KafkaClients::new(address, unknown).consumer().map(drop).unwrap_err();
        assert!(error.contains("sasl.passwort") && !error.contains("secret"), "{error}");
    }
}
