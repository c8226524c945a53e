//! Splits of files with quotes and line breaks: whatever the cuts and the order, each record is read once.

use super::*;
use crate::read::block::Block;
use crate::read::data::Share;
use crate::read::formats::columns::ColumnChoice;
use crate::read::reader::Reader;
use crate::read::splits::file_data_source::FileDataSource;
use crate::read::splits::split::FileFingerprint;
use gannet_jobs::DataSource;
use proptest::prelude::*;

/// A file of CSV, and the ends of its splits.
#[derive(Clone, Debug)]
struct Case {
    text: String,
    cuts: Vec<usize>,
    /// The order in which the splits are read.
    order: Vec<u32>,
    parsers: usize,
}

/// Fields with quotes, delimiters and line breaks, some of them wrong.
fn field() -> impl Strategy<Value = String> {
    let inside = prop::collection::vec(prop::sample::select(vec!["a", "b", ",", "\n", "\"\"", "\r\n"]), 0..6);
    prop_oneof![
        4 => "[ab]{0,3}",
        4 => inside.prop_map(|parts| format!("\"{}\"", parts.concat())),
        1 => prop::sample::select(vec!["a\"b", "\"", "\"a\"b", "a\"\n\""]).prop_map(String::from),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let records = prop::collection::vec((field(), field(), any::<bool>()), 1..20);
    let header = prop::sample::select(vec!["label,a,b", "label,\"a\n\",b", "\u{feff}\"label\",a,b"]);
    (header, records, any::<bool>()).prop_flat_map(|(header, records, ends)| {
        let record = |(a, b, label): &(String, String, bool)| format!("{},{a},{b}", u8::from(*label));
        let records: Vec<String> = records.iter().map(record).collect();
        let text = format!("{header}\n{}{}", records.join("\n"), if ends { "\n" } else { "" });
        let cuts = prop::collection::vec(0..text.len() + 2, 0..5);
        let order = prop::collection::vec(any::<u32>(), 6);
        (cuts, order, 1usize..4).prop_map(move |(cuts, order, parsers)| Case {
            text: text.clone(),
            cuts,
            order,
            parsers,
        })
    })
}

/// The examples of a reader, and its bad lines.
fn examples(reader: Reader) -> (Vec<(u32, Vec<u64>)>, u64) {
    let (mut reader, mut block, mut all) = (reader, Block::default(), Vec::new());
    loop {
        match reader.next(&mut block) {
            Ok(true) => {}
            // All lines of a whole file may be bad: that is an error at its end.
            Ok(false) | Err(ReadError::NoExample { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        all.extend(
            (0..block.len()).map(|i| (block.labels[i].to_bits(), block.keys[block.range(i)].to_vec())),
        );
    }
    (all, reader.bad_lines().count)
}

proptest! {
    /// Each record is in one split, wherever splits begin, in whatever order they are read, on one machine or from the
    /// machine that has the files.
    #[test]
    fn splits_of_csv_have_each_record_once(case in cases()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.csv").display().to_string();
        std::fs::write(&path, &case.text).unwrap();
        let data = Data { skip_bad_lines: 1000, ..Data::new(&path) };
        let whole = examples(Reader::open(&data, 3, Share::ALL).unwrap().with_parsers(case.parsers).unwrap());
        let mut ends: Vec<u64> = case.cuts.iter().map(|&cut| cut as u64).collect();
        ends.extend([0, case.text.len() as u64]);
        ends.sort_unstable();
        ends.dedup();
        let mut splits: Vec<Split> = ends
            .windows(2)
            .enumerate()
            .map(|(index, ends)| Split { index: index as u64, epoch: 0, file: 0, start: ends[0], end: ends[1], from: 0, name: (0, 0) })
            .collect();
        splits.sort_by_key(|split| case.order[split.index as usize % case.order.len()]);
        let source = FileDataSource::new(&data, &[FileFingerprint::of(&path).unwrap()]);
        let (mut files, position) = (SplitFiles::default(), ReadPosition::default());
        let (mut read, mut texts) = (Vec::new(), Vec::new());
        for split in splits {
            if let Some(reader) = Reader::of_split(&data, 3, &split, false, &position, &mut files).unwrap() {
                read.push((split.index, examples(reader.with_parsers(case.parsers).unwrap())));
            }
            let task = gannet_wire::Split { number: 0, epoch: 0, file: 0, start: split.start, end: split.end };
            texts.push((split.index, source.text(&task).unwrap()));
        }
        read.sort_by_key(|part| part.0);
        let bad = read.iter().map(|(_, (_, bad))| bad).sum::<u64>();
        let all = read.into_iter().flat_map(|(_, (examples, _))| examples).collect::<Vec<_>>();
        prop_assert_eq!((all, bad), whole);
        // The bytes that a client sends are the file, once.
        texts.sort_by_key(|text| text.0);
        let mut at = 0;
        for (_, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            prop_assert_eq!(text.start, at);
            at = text.end;
        }
        prop_assert_eq!(at, case.text.len() as u64);
    }
}

/// The scan of a file for quotes ends when the training stops.
#[test]
fn a_stop_ends_the_scan_for_quotes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.csv").display().to_string();
    std::fs::write(&path, format!("label,a\n{}", "1,\"b\nc\"\n".repeat(1000))).unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let data = Data { stop: StopFlag::from(stop.clone()), ..Data::new(&path) };
    let mut file = SplitFile::open(&data, &path).unwrap().unwrap();
    let read = AtomicU64::default();
    let before = file.lines(4000..5000, u64::MAX, &read).unwrap();
    assert_eq!((before.start - 8) % 8, 0);
    assert!(read.load(Relaxed) >= 5000 - 8);
    stop.store(true, Relaxed);
    assert!(matches!(file.lines(6000..7000, u64::MAX, &read), Err(ReadError::Stopped { .. })));
}

/// Lines that begin as a packed file does, or with a byte order mark, were read otherwise where a split begins.
#[test]
fn a_split_was_read_as_if_a_file_began_there() {
    let folder = tempfile::tempdir().unwrap();
    for begin in [&b"\xEF\xBB\xBF"[..], b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\xff\xfe"] {
        let path = folder.path().join("x.csv").display().to_string();
        let line = |i: u8| [begin, &[b'a' + i, b',', b'0' + i % 2, b'\n']].concat();
        let text = [b"a,label\n".to_vec(), (0..9).flat_map(line).collect()].concat();
        std::fs::write(&path, &text).unwrap();
        let columns = ColumnChoice { label: Some("label".into()), ..ColumnChoice::default() };
        let data = Data { columns, ..Data::new(&path) };
        let whole = examples(Reader::open(&data, 3, Share::ALL).unwrap());
        assert_eq!(whole.0.len(), 9);
        let (mut files, position, mut all) = (SplitFiles::default(), ReadPosition::default(), Vec::new());
        let ends = [0, 30, 45, text.len() as u64];
        for (index, ends) in (0..).zip(ends.windows(2)) {
            let split =
                Split { index, epoch: 0, file: 0, start: ends[0], end: ends[1], from: 0, name: (0, 0) };
            let reader = Reader::of_split(&data, 3, &split, false, &position, &mut files).unwrap();
            all.extend(reader.into_iter().flat_map(|reader| examples(reader).0));
        }
        assert_eq!(all, whole.0, "{begin:?}");
    }
}
