//! The address of a topic of Kafka.

use std::fmt;

/// Where a topic is, and how it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaAddress {
    /// The brokers, with commas.
    pub brokers: String,
    /// The topic.
    pub topic: String,
    /// The group in whose name it is committed how far the training is, for others to look at.
    pub group: Option<String>,
    /// Begin behind the messages that are there at the start.
    pub latest: bool,
}

impl KafkaAddress {
    /// What an address of this kind begins with.
    pub const SCHEME: &str = "kafka://";

    /// Reads `kafka://broker[,broker]/topic[?group=NAME&start=earliest|latest]`.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn parse(text: &str) -> Result<KafkaAddress, String> {
        let wrong = |what: &str| {
            format!(
                "{text}: {what}; kafka://BROKER:PORT[,BROKER:PORT]/TOPIC[?group=NAME&start=latest] is needed"
            )
        };
        let rest = text.strip_prefix(Self::SCHEME).ok_or_else(|| wrong("this is no topic of Kafka"))?;
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (brokers, topic) = place.split_once('/').ok_or_else(|| wrong("the topic is missing"))?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if brokers.is_empty() || brokers.split(',').any(str::is_empty) {
            return Err(wrong("a broker is missing"));
        }
        if topic.is_empty() || !topic.bytes().all(is_name) {
            return Err(wrong(
                "the name of the topic has other characters than letters, digits, dots, _ and -",
            ));
        }
        let (brokers, topic) = (brokers.to_owned(), topic.to_owned());
        let mut address = KafkaAddress { brokers, topic, group: None, latest: false };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("group", name)) if !name.is_empty() => address.group = Some(name.to_owned()),
                Some(("start", "earliest")) => address.latest = false,
                Some(("start", "latest")) => address.latest = true,
                _ => return Err(wrong(&format!("{option:?} is no option"))),
            }
        }
        Ok(address)
    }
}

impl fmt::Display for KafkaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "topic {} at {}", self.topic, self.brokers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_wrong_ones_say_what_is_wrong() {
        let address = KafkaAddress::parse("kafka://a:9092,b:9092/clicks.v1?group=g&start=latest").unwrap();
        let (brokers, topic, group) = ("a:9092,b:9092".into(), "clicks.v1".into(), Some("g".into()));
        assert_eq!(address, KafkaAddress { brokers, topic, group, latest: true });
        assert_eq!(KafkaAddress::parse("kafka://a/t").unwrap().group, None);
        for wrong in [
            "http://a/t",
            "kafka://a",
            "kafka:///t",
            "kafka://a,/t",
            "kafka://a/",
            "kafka://a/t/u",
            "kafka://a/t?x=1",
        ] {
            assert!(KafkaAddress::parse(wrong).unwrap_err().contains(" is needed"), "{wrong}");
        }
    }
}
