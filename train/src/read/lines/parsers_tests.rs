//! Several parsers against the one thread of [`LineBlocks`]: the same batches, bad lines, counts and errors.

use super::*;
use crate::read::data::Share;
use crate::read::reader::Reader;
use crate::read::splits::split::Split;
use crate::read::splits::split_file::SplitFiles;
use proptest::prelude::*;
use std::io::Write;

/// What a reader returned: the blocks, with the numbers after each, and how it ended.
type Outcome = (Vec<(Block, u64, u64, BadLines)>, String);

fn outcome(reader: Result<Option<Reader>, ReadError>) -> Outcome {
    let mut all = Vec::new();
    let mut reader = match reader {
        Ok(Some(reader)) => reader,
        Ok(None) => return (all, "no lines".into()),
        Err(error) => return (all, error.to_string()),
    };
    let mut block = Block::default();
    let end = loop {
        match reader.next(&mut block) {
            Ok(true) => {
                let (batch, lines) = (reader.batch_number(), reader.data_lines());
                all.push((block.clone(), batch, lines, reader.bad_lines().clone()));
            }
            Ok(false) => break format!("{} batches, {} lines", reader.batches(), reader.data_lines()),
            Err(error) => break error.to_string(),
        }
    };
    (all, end)
}

/// A line of a data file, by its number.
fn line(kind: u8, number: u64) -> String {
    let key = gannet_core::hash(number) % 50;
    match kind % 12 {
        0 => String::new(),
        1 => "# a comment".into(),
        2 => format!("1 {key}:x"),
        3 => format!("-1 {key}:1"),
        4 => format!("1 {key}:0.5 {key}:1.5 3:1"),
        5 => format!("{} {}", number % 2, (0..key).map(|i| format!("{i}:{number} ")).collect::<String>()),
        _ => format!("{} {key}:1 {}:2.5", number % 2, key + 1),
    }
}

#[derive(Debug, Clone)]
struct Case {
    /// The kinds of the lines of each file.
    files: Vec<Vec<u8>>,
    /// The most of these kinds that occur: without 2 no line is bad, without 3 no labels are mixed.
    faults: bool,
    ends_in_newline: bool,
    packed: bool,
    batch: usize,
    share: (u32, u32),
    skip: u64,
    parsers: usize,
}

fn cases() -> impl Strategy<Value = Case> {
    let lines = prop::collection::vec(0u8..12, 0..120);
    let files = prop::collection::vec(lines, 1..4);
    let share = (0u32..3, 1u32..4).prop_map(|(worker, workers)| (worker % workers, workers));
    (files, any::<bool>(), any::<bool>(), any::<bool>(), 1usize..40, share, 0u64..12, 2usize..6).prop_map(
        |(files, faults, ends_in_newline, packed, batch, share, skip, parsers)| Case {
            files,
            faults,
            ends_in_newline,
            packed,
            batch,
            share,
            skip,
            parsers,
        },
    )
}

/// Writes the files of a case.
fn data_of(case: &Case, folder: &tempfile::TempDir) -> Data {
    let mut names = Vec::new();
    for (at, kinds) in case.files.iter().enumerate() {
        let kinds = kinds.iter().map(|&kind| if !case.faults && matches!(kind, 2 | 3) { 7 } else { kind });
        let lines = kinds.enumerate().map(|(number, kind)| line(kind, number as u64));
        let mut text = lines.collect::<Vec<_>>().join("\n");
        text.extend(case.ends_in_newline.then_some('\n'));
        let name = format!("{at}.svm{}", if case.packed { ".gz" } else { "" });
        let path = folder.path().join(name);
        let file = std::fs::File::create(&path).unwrap();
        match case.packed {
            true => {
                let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
                packed.write_all(text.as_bytes()).unwrap();
                packed.finish().unwrap();
            }
            false => (&file).write_all(text.as_bytes()).unwrap(),
        }
        names.push(path.to_str().unwrap().to_owned());
    }
    Data { skip_bad_lines: case.skip, ..Data::of(names) }
}

proptest! {
    #[test]
    fn several_parsers_read_what_one_thread_reads(case in cases()) {
        let folder = tempfile::tempdir().unwrap();
        let data = data_of(&case, &folder);
        let share = Share { worker: case.share.0, workers: case.share.1 };
        let open = || Reader::open(&data, case.batch, share);
        let one = outcome(open().map(Some));
        let several = outcome(open().and_then(|reader| reader.with_parsers(case.parsers)).map(Some));
        prop_assert_eq!(several, one);
    }

    #[test]
    fn several_parsers_read_a_split_as_one_thread_does(case in cases(), start in 0u64..1500, length in 0u64..3000, from in 0u64..4) {
        let case = Case { packed: false, ..case };
        let folder = tempfile::tempdir().unwrap();
        let data = data_of(&case, &folder);
        let split = Split { index: 0, epoch: 0, file: 0, start, end: start + length, from, name: (0, 0) };
        let open = || {
            Reader::of_split(&data, case.batch, &split, false, &ReadPosition::default(), &mut SplitFiles::default())
        };
        let one = outcome(open());
        let with_parsers = |reader: Option<Reader>| reader.map(|reader| reader.with_parsers(case.parsers)).transpose();
        prop_assert_eq!(outcome(open().and_then(with_parsers)), one);
    }
}

/// Of two values of labels, the other one is the first that is read: one thread must find it.
#[test]
fn an_unknown_label_is_found_by_one_thread() {
    use crate::read::formats::labels::TwoLabels;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.svm");
    let text: String =
        (0..400).map(|i| format!("{} {i}:1\n", if i % 3 == 0 { "yes" } else { "no" })).collect();
    std::fs::write(&path, text).unwrap();
    for settled in [None, Some("no")] {
        let read = |parsers: usize| {
            let labels = Labels::Two(TwoLabels::new("yes", settled));
            let data = Data { labels, ..Data::new(path.to_str().unwrap()) };
            let reader = Reader::open(&data, 7, Share::ALL).unwrap().with_parsers(parsers).unwrap();
            outcome(Ok(Some(reader)))
        };
        assert_eq!(read(3), read(1));
    }
}

/// A reader that nobody reads to its end, or that nobody reads at all, ends its threads.
#[test]
fn a_dropped_reader_ends_its_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.svm");
    std::fs::write(&path, (0..20_000).map(|i| format!("1 {i}:1\n")).collect::<String>()).unwrap();
    for read in [0, 1, 5] {
        let data = Data::new(path.to_str().unwrap());
        let lines = LineBlocks::open(&data, 10, Share::ALL).unwrap();
        let Ok(mut blocks) = ParsedBlocks::start(lines, 3).unwrap() else { panic!("the labels are known") };
        for _ in 0..read {
            assert!(blocks.next(&mut Block::default()).unwrap());
        }
        let mut threads: Vec<JoinHandle<()>> = blocks.threads.parsers.drain(..).flatten().collect();
        threads.extend(blocks.threads.cutter.take());
        drop(blocks);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
