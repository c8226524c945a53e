//! Splits of files: every line is in one split, wherever the file is cut. A packed file is one split. A file that
//! changes is refused.

use gannet_core::Schema;
use gannet_optim::{Ftrl, Rule};
use gannet_train::{Data, FileFingerprint, FlatTable, Options, Split, Splits, train};
use proptest::prelude::*;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

fn schema() -> Schema {
    Schema::scalar("t", Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 }))
}

/// ListedSplits out these splits, and records the reports about them.
#[derive(Default)]
struct ListedSplits {
    left: Mutex<Vec<Split>>,
    done: Mutex<Vec<(u64, u64)>>,
    acked: Mutex<Vec<(u64, u64)>>,
}

impl Splits for ListedSplits {
    fn take(&self, stop: &dyn Fn() -> bool) -> Result<Option<Split>, String> {
        Ok(if stop() { None } else { self.left.lock().unwrap().pop() })
    }
    fn done(&self, index: u64, examples: u64) -> Result<(), String> {
        self.done.lock().unwrap().push((index, examples));
        Ok(())
    }
    fn acked(&self, index: u64, batches: u64) {
        self.acked.lock().unwrap().push((index, batches));
    }
    fn patience(&self) -> std::time::Duration {
        std::time::Duration::from_millis(500)
    }
}

fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

/// Splits that are cut at these bytes.
fn cut(bytes: u64, at: &[u64]) -> Vec<Split> {
    let mut cuts: Vec<u64> = at.iter().map(|at| at % (bytes + 1)).chain([0, bytes]).collect();
    cuts.sort_unstable();
    let ranges = cuts.windows(2).enumerate();
    ranges
        .map(|(i, range)| {
            let (start, end) = (range[0], range[1]);
            Split { index: i as u64, epoch: 0, file: 0, start, end, from: 0, name: (1 << 63 | i as u64, 7) }
        })
        .collect()
}

/// Trains on all splits. Returns the number of examples and the reports of finished splits. Each example has a key of
/// its own.
fn learned(path: &str, splits: Vec<Split>, batch: usize) -> (u64, Vec<(u64, u64)>) {
    let source = Arc::new(ListedSplits {
        left: Mutex::new(splits.into_iter().rev().collect()),
        ..ListedSplits::default()
    });
    let mut options = Options { batch, ..Options::new(Data { intercept: false, ..Data::new(path) }) };
    options.splits = Some((source.clone(), vec![FileFingerprint::of(path).unwrap()]));
    let mut backend = FlatTable::new(&schema()).unwrap();
    let report = train(&options, &mut backend, &AtomicBool::new(false), &mut |_| {}).unwrap();
    // A line that is learned twice adds an example without a row, and a missing line lacks its row.
    assert_eq!(report.rows, report.examples);
    let done = source.done.lock().unwrap().clone();
    (report.examples, done)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn every_line_is_in_one_split(
        lines in 1usize..60, at in prop::collection::vec(any::<u64>(), 0..8), csv in any::<bool>(), last in any::<bool>(),
        batch in 1usize..20, blanks in any::<bool>(),
    ) {
        let mut text = if csv { String::from("label,a\n") } else { String::new() };
        for i in 0..lines {
            let line = if csv { format!("{},v{i}", i % 2) } else { format!("{} {}:1", i % 2, i + 1) };
            text += &line;
            text += if blanks && i % 3 == 0 { "\n\n" } else { "\n" };
        }
        if !last {
            text.truncate(text.trim_end().len());
        }
        let (_folder, path) = file(if csv { "d.csv" } else { "d.svm" }, text.as_bytes());
        let splits = cut(text.len() as u64, &at);
        let count = splits.len();
        let (examples, done) = learned(&path, splits, batch);
        prop_assert_eq!(examples, lines as u64);
        prop_assert_eq!(done.iter().map(|(_, n)| n).sum::<u64>(), lines as u64);
        // Each split is reported once, empty ones as soon as they are read.
        let mut reported: Vec<u64> = done.iter().map(|(i, _)| *i).collect();
        reported.sort_unstable();
        prop_assert_eq!(reported, (0..count as u64).collect::<Vec<_>>());
    }
}

#[test]
fn a_split_goes_on_where_another_worker_left_it() {
    let text: String = (0..50).map(|i| format!("1 {}:1\n", i + 1)).collect();
    let (_folder, path) = file("d.svm", text.as_bytes());
    let splits = vec![Split { from: 3, ..cut(text.len() as u64, &[])[0] }];
    let (examples, done) = learned(&path, splits, 10);
    // The whole split has 50 lines, of which 20 were left.
    assert_eq!((examples, done), (20, vec![(0, 50)]));
}

#[test]
fn a_packed_file_is_one_split() {
    let text: String = (0..500).map(|i| format!("1 {}:1\n", i + 1)).collect();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    let (_folder, path) = file("d.svm.gz", &packed.finish().unwrap());
    let seen = FileFingerprint::of(&path).unwrap();
    assert!(seen.packed);
    assert_eq!(learned(&path, cut(seen.bytes, &[]), 64).0, 500);
}

#[test]
fn a_file_that_changes_is_refused_by_name() {
    let text: String = (0..50).map(|i| format!("1 {}:1\n", i + 1)).collect();
    let (_folder, path) = file("d.svm", text.as_bytes());
    let seen = FileFingerprint::of(&path).unwrap();
    seen.check(&path).unwrap();
    std::fs::write(&path, text + "0 1:1\n").unwrap();
    let source = Arc::new(ListedSplits { left: Mutex::new(cut(seen.bytes, &[])), ..ListedSplits::default() });
    let mut options = Options::new(Data::new(&path));
    options.splits = Some((source, vec![seen.clone()]));
    let mut backend = FlatTable::new(&schema()).unwrap();
    let error = train(&options, &mut backend, &AtomicBool::new(false), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("has changed since the training began") && error.contains("d.svm"), "{error}");
    std::fs::remove_file(&path).unwrap();
    assert!(seen.check(&path).unwrap_err().to_string().contains("check the path"));
}

/// A file whose bytes never arrive, as on a dead network mount. It looks as it did when the training began.
fn hung(folder: &tempfile::TempDir) -> String {
    let path = folder.path().join("hung.svm");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let both = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    both.set_modified(std::time::UNIX_EPOCH).unwrap();
    path.to_str().unwrap().to_owned()
}

/// With any number of threads: one reads and parses, or one cuts lines and others parse them.
#[test]
fn a_worker_whose_reader_hung_held_its_split_for_ever() {
    for threads in [2, 3, 5] {
        let (folder, path) = file("good.svm", b"1 1:1\n0 2:1\n");
        let files = vec![path.clone(), hung(&folder)];
        let split = |index, file, end| Split {
            index,
            epoch: 0,
            file,
            start: 0,
            end,
            from: 0,
            name: (1 << 63 | index, 7),
        };
        let source = Arc::new(ListedSplits {
            left: Mutex::new(vec![split(1, 1, 100), split(0, 0, 12)]),
            ..ListedSplits::default()
        });
        let mut options =
            Options { threads, ..Options::new(Data { intercept: false, files, ..Data::new(&path) }) };
        options.splits = Some((
            source.clone(),
            vec![FileFingerprint::of(&path).unwrap(), FileFingerprint::remote(0, 0, false)],
        ));
        let (send, answer) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut backend = FlatTable::new(&schema()).unwrap();
            let _ = send.send(train(&options, &mut backend, &AtomicBool::new(false), &mut |_| {}));
        });
        let ended = answer.recv_timeout(std::time::Duration::from_secs(20)).expect("it waits for ever");
        let error = ended.unwrap_err().to_string();
        let says = error.contains("hung.svm") && error.contains("nothing could be read for");
        assert!(says, "{threads} threads: {error}");
        assert_eq!(*source.done.lock().unwrap(), [(0, 2)], "{threads} threads");
    }
}

/// One split, and no answer until it is done: a scheduler answers the only worker of a job in this way.
struct Last(ListedSplits);

impl Splits for Last {
    fn take(&self, stop: &dyn Fn() -> bool) -> Result<Option<Split>, String> {
        while self.0.left.lock().unwrap().is_empty() && self.0.done.lock().unwrap().is_empty() {
            if stop() {
                return Ok(None);
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.0.take(stop)
    }
    fn done(&self, index: u64, examples: u64) -> Result<(), String> {
        self.0.done(index, examples)
    }
    fn acked(&self, index: u64, batches: u64) {
        self.0.acked(index, batches)
    }
    fn patience(&self) -> std::time::Duration {
        self.0.patience()
    }
}

/// After servers refused a push, the worker must not wait for the split that it holds itself.
#[test]
fn a_learner_that_failed_waited_for_ever_for_its_own_split() {
    let text: String = (0..20_000).map(|i| format!("{} {}:1\n", i % 2, i + 1)).collect();
    let (_folder, path) = file("d.svm", text.as_bytes());
    let (done, failed) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let source =
            ListedSplits { left: Mutex::new(cut(text.len() as u64, &[])), ..ListedSplits::default() };
        let mut options = Options { batch: 64, ..Options::new(Data::new(&path)) };
        options.splits = Some((Arc::new(Last(source)), vec![FileFingerprint::of(&path).unwrap()]));
        let mut backend = FlatTable::within(&schema(), 64 << 10).unwrap();
        let report = train(&options, &mut backend, &AtomicBool::new(false), &mut |_| {});
        done.send(report.map(|report| report.examples).unwrap_err().to_string()).unwrap();
    });
    let why = failed.recv_timeout(std::time::Duration::from_secs(60)).expect("it ends");
    assert!(why.contains("65536"), "{why}");
}
