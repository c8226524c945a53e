//! A topic at the mock brokers of librdkafka: ranges are read once and in order, through a broker that goes away, and
//! what is gone ends by name.

use crate::limits::KAFKA_TIMEOUT;
use crate::read::bytes::stop_flag::StopFlag;
use crate::read::growing::folder::Until;
use crate::read::growing::kafka::KafkaTopic;
use crate::read::growing::kafka_address::KafkaAddress;
use crate::read::growing::kafka_client::KafkaConfig;
use crate::read::growing::looking::{GrowingSource, Sample};
use crate::read::growing::text_parts::TextParts;
use gannet_jobs::scheduler::growing::Growing;
use gannet_wire::{Found, GrownTask, PartitionStand, SourceStand};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::topic_partition_list::TopicPartitionListElem;
use rdkafka::{Offset, TopicPartitionList};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

type Brokers = MockCluster<'static, DefaultProducerContext>;

/// Two brokers with a topic of two partitions.
fn brokers() -> Brokers {
    let brokers = MockCluster::new(2).unwrap();
    brokers.create_topic("clicks", 2, 2).unwrap();
    brokers
}

/// Adds messages in turn to both partitions.
fn produce(brokers: &Brokers, messages: std::ops::Range<u32>) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers.bootstrap_servers());
    let producer: BaseProducer = config.create().unwrap();
    for at in messages {
        let text = format!("1 {at}:1");
        let record = BaseRecord::<(), str>::to("clicks").payload(&text).partition((at % 2) as i32);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(Duration::from_secs(30)).unwrap();
}

fn topic(brokers: &Brokers, until: Until) -> KafkaTopic {
    let address = format!("kafka://{}/clicks?group=g", brokers.bootstrap_servers());
    KafkaTopic::new(KafkaAddress::parse(&address).unwrap(), KafkaConfig::default(), until, || 0).unwrap()
}

/// All messages of a task as one part.
fn whole(task: &GrownTask) -> TextParts {
    let GrownTask::Messages { start, end, .. } = *task else { panic!("{task:?}") };
    TextParts::new(start..end, end - start, 0)
}

fn read(topic: &KafkaTopic, task: &GrownTask) -> Result<String, String> {
    let mut text = String::new();
    let mut lines = topic.text(task, whole(task), &StopFlag::default())?.text;
    lines.read_to_string(&mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

/// Looks, and reads all tasks that are new.
fn read_all(topic: &KafkaTopic, growing: &mut Growing) -> Vec<String> {
    growing.take_in(topic.look(&growing.stand()).unwrap());
    let mut lines = Vec::new();
    while let Some(number) = growing.hand_out() {
        let task = growing.task(number).cloned().unwrap();
        lines.extend(read(topic, &task).unwrap().lines().map(str::to_owned));
        growing.done(number);
    }
    lines.sort();
    lines
}

fn expected(messages: std::ops::Range<u32>) -> Vec<String> {
    let mut lines: Vec<String> = messages.map(|at| format!("1 {at}:1")).collect();
    lines.sort();
    lines
}

#[test]
fn each_message_is_read_once_also_when_a_broker_goes_away() {
    let (brokers, mut growing) = (brokers(), Growing::default());
    let topic = topic(&brokers, Until::Stopped);
    assert_eq!(read_all(&topic, &mut growing), Vec::<String>::new());
    produce(&brokers, 0..100);
    assert_eq!(read_all(&topic, &mut growing), expected(0..100));
    assert_eq!(read_all(&topic, &mut growing), Vec::<String>::new());
    produce(&brokers, 100..300);
    growing.take_in(topic.look(&growing.stand()).unwrap());
    brokers.broker_down(1).unwrap();
    let task = growing.hand_out().and_then(|number| growing.task(number).cloned()).unwrap();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(&topic, &task).unwrap());
        std::thread::sleep(Duration::from_millis(500));
        brokers.broker_up(1).unwrap();
        assert_eq!(reading.join().unwrap().lines().count(), 100);
    });
}

#[test]
fn a_range_is_its_messages_and_a_reader_goes_from_one_range_to_any_other() {
    let brokers = brokers();
    produce(&brokers, 0..100);
    let topic = topic(&brokers, Until::Stopped);
    for (start, end) in [(0, 10), (10, 30), (5, 6), (6, 50), (49, 50), (0, 50)] {
        let task = GrownTask::Messages { partition: 1, start, end };
        let lines: Vec<String> = read(&topic, &task).unwrap().lines().map(str::to_owned).collect();
        let expected: Vec<String> = (start..end).map(|at| format!("1 {}:1", 2 * at + 1)).collect();
        assert_eq!(lines, expected, "{start} to {end}");
    }
}

/// A look that failed ended the worker, although the brokers came back.
#[test]
fn brokers_that_do_not_answer_are_waited_for() {
    let (brokers, mut growing) = (brokers(), Growing::default());
    produce(&brokers, 0..10);
    let topic = topic(&brokers, Until::Stopped);
    [1, 2].into_iter().for_each(|broker| brokers.broker_down(broker).unwrap());
    assert_eq!(topic.look(&growing.stand()), Ok(Found::Nothing));
    assert_eq!(topic.sample(&StopFlag::default()), Ok(Sample::Unknown), "the first question of a worker");
    assert!(topic.is_away(), "a worker does not give its range back");
    [1, 2].into_iter().for_each(|broker| brokers.broker_up(broker).unwrap());
    assert_eq!(read_all(&topic, &mut growing), expected(0..10));
    assert!(!topic.is_away());
}

/// Messages of a topic that was made anew were taken for trained ones, and the job ended well.
#[test]
fn a_topic_that_ends_before_the_training_is_not_passed_over() {
    let brokers = brokers();
    produce(&brokers, 0..10);
    let topic = topic(&brokers, Until::End);
    let of = |partition, next| PartitionStand { partition, next, trained: next, end: None };
    let stand = SourceStand { partitions: vec![of(0, 5), of(1, 7)], room: 8, ..SourceStand::default() };
    assert_eq!(topic.look(&stand), Ok(Found::Nothing), "a new leader may not know all messages yet");
    topic.pretend_failing_for(KAFKA_TIMEOUT);
    let why = topic.look(&stand).unwrap_err();
    assert!(why.contains("partition 1: it ends before message 5"), "{why}");
    assert!(why.contains("the training is at message 7") && why.contains("made anew"), "{why}");
}

/// A partition that is added while a job trains has no message that was there at its start.
#[test]
fn the_latest_start_is_that_of_the_job() {
    let brokers = brokers();
    produce(&brokers, 0..10);
    let address = format!("kafka://{}/clicks?start=latest", brokers.bootstrap_servers());
    let address = KafkaAddress::parse(&address).unwrap();
    let topic = KafkaTopic::new(address, KafkaConfig::default(), Until::Stopped, || 0).unwrap();
    let starts = |stand: &SourceStand| match topic.look(stand).unwrap() {
        Found::Messages { ranges, .. } => ranges.iter().map(|of| (of.partition, of.start, of.end)).collect(),
        _ => Vec::new(),
    };
    let room = |partitions| SourceStand { partitions, room: 8, ..SourceStand::default() };
    assert_eq!(starts(&room(Vec::new())), [(0, 5, 5), (1, 5, 5)]);
    let first = PartitionStand { partition: 0, next: 5, trained: 5, end: None };
    assert_eq!(starts(&room(vec![first])), [(1, 0, 0), (1, 0, 5)]);
}

/// The offsets that the group has committed, in partitions 0 and 1.
fn committed(topic: &KafkaTopic) -> Vec<Offset> {
    let mut asked = TopicPartitionList::new();
    asked.add_partition_range("clicks", 0, 1);
    let asks = topic.clients().consumer().unwrap();
    let found = asks.committed_offsets(asked, Duration::from_secs(30)).unwrap();
    found.elements().iter().map(TopicPartitionListElem::offset).collect()
}

/// The group had the offsets of pushes that the next start from the checkpoint undid.
#[test]
fn the_group_has_the_offsets_of_the_newest_checkpoint_until_the_training_ends() {
    let (brokers, mut growing) = (brokers(), Growing::default());
    produce(&brokers, 0..100);
    let saved = PartitionStand { partition: 1, next: 50, trained: 30, end: None };
    let topic = topic(&brokers, Until::End).with_checkpoints(Box::new(move || Some(vec![saved])));
    assert_eq!(read_all(&topic, &mut growing).len(), 100);
    assert_eq!(growing.stand().partitions.iter().map(|of| of.trained).collect::<Vec<_>>(), [50, 50]);
    // The commit of the look is not waited for.
    let mut tries = 0..300;
    while committed(&topic) != [Offset::Invalid, Offset::Offset(30)] {
        assert!(tries.next().is_some(), "{:?}", committed(&topic));
        std::thread::sleep(Duration::from_millis(100));
    }
    topic.end(&growing.stand());
    assert_eq!(committed(&topic), [Offset::Offset(50), Offset::Offset(50)]);
}

#[test]
fn messages_that_are_gone_end_by_name() {
    let brokers = brokers();
    produce(&brokers, 0..10);
    let topic = topic(&brokers, Until::Stopped);
    let gone = GrownTask::Messages { partition: 0, start: 700, end: 800 };
    let why = read(&topic, &gone).unwrap_err();
    assert!(why.contains("clicks") && why.contains("partition 0, message 700"), "{why}");
    assert!(why.contains("deleted before it was trained"), "{why}");
}

#[test]
fn a_topic_ends_with_the_messages_of_its_start() {
    let (brokers, mut growing) = (brokers(), Growing::default());
    produce(&brokers, 0..10);
    let topic = topic(&brokers, Until::End);
    let found = topic.look(&growing.stand()).unwrap();
    produce(&brokers, 10..20);
    growing.take_in(found);
    assert!(growing.stand().complete);
    assert_eq!(read_all(&topic, &mut growing), expected(0..10));
    assert!(growing.is_trained());
    let Ok(Sample::Text(first)) = topic.sample(&StopFlag::default()) else { panic!("no text") };
    assert_eq!(first[..4], *b"1 0:");
}

#[test]
fn a_wait_for_messages_ends_when_the_training_is_stopped() {
    let brokers = brokers();
    produce(&brokers, 0..10);
    let topic = topic(&brokers, Until::Stopped);
    let stop = StopFlag::from(Arc::new(AtomicBool::new(true)));
    // These messages do not exist yet.
    let task = GrownTask::Messages { partition: 0, start: 5, end: 9 };
    let mut text = topic.text(&task, whole(&task), &stop).unwrap().text;
    assert!(text.read(&mut [0; 100]).is_err());
}
