//! Ranges of offsets of a log that has gaps: which messages are in which batch, and where a range ends.

use crate::learn::options::Options;
use crate::learn::train::train;
use crate::models::{FactorizationMachine, ModelSettings, fit};
use crate::read::block::Block;
use crate::read::bytes::stop_flag::StopFlag;
use crate::read::bytes::stream::ReadPosition;
use crate::read::data::{Data, Format};
use crate::read::growing::local_tasks::LocalTasks;
use crate::read::growing::looking::{GrowingSource, Sample};
use crate::read::growing::message_text::{MessageLog, MessageText, RangeReader, SpareReaders, Waited};
use crate::read::growing::text_parts::{PartedText, TextParts};
use crate::read::splits::remote_data::parted;
use crate::{FlatTable, FlatTables};
use gannet_core::{Admission, RowType, Schema};
use gannet_optim::{AdaGrad, GradientTransform, Rule};
use gannet_wire::{Found, FoundRange, GrownTask, SourceStand};
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A log with some messages.
#[derive(Clone, Debug, Default)]
struct FakeLog {
    messages: BTreeMap<u64, String>,
    /// The offset behind its last message, or behind what has no message at its end.
    end: u64,
    at: u64,
    /// How often it went to an offset.
    went: Arc<AtomicU64>,
}

impl FakeLog {
    /// A log of these offsets, whose messages have the offset as a feature.
    fn of(offsets: impl IntoIterator<Item = u64>, end: u64) -> FakeLog {
        let messages = offsets.into_iter().map(|offset| (offset, format!("1 {offset}:1"))).collect();
        FakeLog { messages, end, ..FakeLog::default() }
    }
}

impl MessageLog for FakeLog {
    fn name(&self) -> String {
        "a log".into()
    }

    fn go_to(&mut self, _partition: u32, offset: u64) -> Result<(), String> {
        self.at = offset;
        self.went.fetch_add(1, Relaxed);
        Ok(())
    }

    fn wait(
        &mut self,
        _partition: u32,
        _most: Duration,
        take: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<Waited, String> {
        let Some((offset, value)) = self.messages.range(self.at..).next() else {
            return Ok(Waited::EndOfLog);
        };
        take(*offset, value.as_bytes());
        self.at = offset + 1;
        Ok(Waited::Message)
    }

    fn end(&self, _partition: u32) -> Option<u64> {
        Some(self.end)
    }
}

fn data() -> Data {
    Data { format: Format::Libsvm, intercept: false, ..Data::of(Vec::new()) }
}

/// The batches of a range from batch `from` on: the number of each, and the features of its messages.
fn batches(log: &FakeLog, offsets: Range<u64>, from: u64, parsers: usize) -> Vec<(u64, Vec<u64>)> {
    let (parts, spare) = (TextParts::new(offsets, 4, from), SpareReaders::default());
    let reader = RangeReader::new(log.clone());
    let text = MessageText::begin(reader, (0, parts), &StopFlag::default(), spare).unwrap();
    let data = Data { files: vec!["a log".into()], ..data() };
    let Some(reader) = parted(&data, &ReadPosition::default(), text).unwrap() else { return Vec::new() };
    let (mut reader, mut block, mut all) =
        (reader.with_parsers(parsers).unwrap(), Block::default(), Vec::new());
    while reader.next(&mut block).unwrap() {
        all.push((reader.batch_number(), block.keys.clone()));
    }
    all
}

impl GrowingSource for FakeLog {
    fn look(&self, stand: &SourceStand) -> Result<Found, String> {
        let all = vec![FoundRange { partition: 0, start: 0, end: self.end }];
        let found = Found::Messages { ranges: all.clone(), bounds: Some(all) };
        Ok(if stand.partitions.is_empty() { found } else { Found::Nothing })
    }

    fn name_of(&self, _task: &GrownTask) -> String {
        MessageLog::name(self)
    }

    fn path_of(&self, _task: &GrownTask) -> Option<String> {
        None
    }

    fn text(&self, _task: &GrownTask, parts: TextParts, stop: &StopFlag) -> Result<PartedText, String> {
        MessageText::begin(RangeReader::new(self.clone()), (0, parts), stop, SpareReaders::default())
    }

    fn sample(&self, _stop: &StopFlag) -> Result<Sample, String> {
        let first = self.messages.values().next();
        Ok(first.map_or(Sample::Nothing, |value| Sample::Text(value.clone().into_bytes())))
    }
}

/// Models other than logistic regression looked for files, of which a topic has none.
#[test]
fn models_of_all_kinds_train_messages() {
    let log = FakeLog::of([3, 4, 5, 9, 10, 11, 12, 17], 20);
    for threads in [1, 2, 4] {
        let mut options = Options::new(data());
        options.splits = Some((Arc::new(LocalTasks::new(Arc::new(log.clone()))), Vec::new()));
        (options.batch, options.threads) = (4, threads);
        let never = AtomicBool::new(false);
        let rule = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-6, initial_accumulator: 0.1 });
        let mut rows = FlatTable::new(&Schema::scalar("lr", rule)).unwrap();
        let trained = train(&options, &mut rows, &never, &mut |_| {}).unwrap();
        assert_eq!((trained.examples, trained.rows, trained.steps), (8, 8, 5), "{threads}");
        options.splits = Some((Arc::new(LocalTasks::new(Arc::new(log.clone()))), Vec::new()));
        let settings = ModelSettings {
            rule,
            row_type: RowType::F32,
            shaping: GradientTransform::NONE,
            admission: Admission::All,
            seed: 1,
            deviation: 0.1,
            l2: 0.0,
        };
        let (mut machine, mut tables) =
            (FactorizationMachine::new(settings, 3), FlatTables::within(u64::MAX));
        let trained = fit(&options, &mut machine, &mut tables, &never, &mut |_| {}).unwrap();
        assert_eq!((trained.examples, trained.steps), (8, 5), "{threads}");
    }
}

/// A batch was a number of lines. After a compaction, who continued the range of a dead worker lost lines or trained
/// them again.
#[test]
fn a_message_that_is_compacted_away_moves_no_other_to_another_batch() {
    for parsers in [1, 2, 3] {
        let whole = batches(&FakeLog::of(10..26, 26), 10..26, 0, parsers);
        let expected: Vec<(u64, Vec<u64>)> =
            (0..4).map(|at| (at, (10 + 4 * at..14 + 4 * at).collect())).collect();
        assert_eq!(whole, expected, "{parsers}");
        // Afterwards messages of the first batch are gone, all of the second, and the last one of the third.
        let compacted = FakeLog::of([10, 18, 19, 20, 22, 25], 26);
        let all = [(0, vec![10]), (2, vec![18, 19, 20]), (3, vec![22, 25])];
        assert_eq!(batches(&compacted, 10..26, 0, parsers), all, "{parsers}");
        assert_eq!(batches(&compacted, 10..26, 1, parsers), all[1..], "{parsers}");
        assert_eq!(batches(&compacted, 10..26, 3, parsers), all[2..], "{parsers}");
        assert_eq!(batches(&compacted, 10..26, 4, parsers), [], "{parsers}");
    }
}

#[test]
fn a_range_without_messages_at_its_ends_or_anywhere_ends_with_the_log() {
    for parsers in [1, 2] {
        let log = FakeLog::of([7, 12], 30);
        assert_eq!(batches(&log, 0..30, 0, parsers), [(1, vec![7]), (3, vec![12])]);
        assert_eq!(batches(&log, 13..30, 0, parsers), []);
        assert_eq!(batches(&log, 0..7, 0, parsers), []);
        assert_eq!(batches(&log, 8..12, 0, parsers), []);
    }
}

#[test]
fn a_message_of_several_lines_is_in_the_batch_of_its_offset() {
    let mut log = FakeLog::of(0..8, 8);
    log.messages.insert(1, "1 100:1\n1 101:1\n\n1 102:1\n".into());
    log.messages.insert(2, String::new());
    for parsers in [1, 2] {
        let all = [(0, vec![0, 100, 101, 102, 3]), (1, vec![4, 5, 6, 7])];
        assert_eq!(batches(&log, 0..8, 0, parsers), all);
    }
}

#[test]
fn a_reader_goes_on_to_the_next_range_over_a_gap() {
    let (log, spare) = (FakeLog::of([0, 1, 2, 9, 10, 14], 15), SpareReaders::default());
    let went = log.went.clone();
    let mut reader = RangeReader::new(log);
    for (range, lines, times) in [
        (0..5, "1 0:1\n1 1:1\n1 2:1\n", 1),
        (5..8, "", 1),
        (8..10, "1 9:1\n", 1),
        (10..15, "1 10:1\n1 14:1\n", 1),
        (9..11, "1 9:1\n1 10:1\n", 2),
    ] {
        let parts = TextParts::new(range.clone(), 100, 0);
        let text = MessageText::begin(reader, (0, parts), &StopFlag::default(), spare.clone()).unwrap();
        let mut read = String::new();
        { text.text }.read_to_string(&mut read).unwrap();
        assert_eq!((read.as_str(), went.load(Relaxed)), (lines, times), "{range:?}");
        reader = spare.lock().unwrap().pop().unwrap();
    }
}
