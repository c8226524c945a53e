//! A cache of parsed data: passes from it have the blocks of the files. One that is old, torn or damaged is never used.

use flate2::Compression;
use flate2::write::GzEncoder;
use gannet_train::{Block, Cache, ColumnChoice, Data, Reader, Share};
use proptest::prelude::*;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What a pass gives: each batch with its number, then the batches of the pass and the bad lines.
type Pass = (Vec<(u64, Block)>, u64, u64);

fn pass(data: &Data, share: Share) -> Pass {
    let mut reader = Reader::open(data, 16, share).unwrap();
    let (mut all, mut block) = (Vec::new(), Block::default());
    while reader.next(&mut block).unwrap() {
        all.push((reader.batch_number(), block.clone()));
    }
    (all, reader.batches(), reader.bad_lines().count)
}

fn libsvm(lines: usize) -> String {
    let line = |i: usize| match i % 50 {
        49 => "no example\n".to_owned(),
        _ => format!(
            "{} {}:1 {}:{} {}:2\n",
            i % 2,
            i % 100,
            100 + i % 77,
            i as f32 / 8.0,
            (1u64 << 40) + i as u64
        ),
    };
    (0..lines).map(line).collect()
}

fn csv(lines: usize) -> String {
    let line = |i: usize| format!("{},city {},{}\n", i % 2, i % 9, i % 13);
    "label,city,x\n".to_owned() + &(0..lines).map(line).collect::<String>()
}

fn file(folder: &Path, name: &str, bytes: &[u8]) -> Data {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    Data { skip_bad_lines: 1000, ..Data::new(path.to_str().unwrap()) }
}

fn cached(data: &Data, folder: &Path) -> Data {
    Data { cache: Some(Cache::in_folder(&folder.join("cache")).unwrap()), ..data.clone() }
}

/// The files of the cache.
fn kept(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder.join("cache")).unwrap();
    files.map(|entry| entry.unwrap().path()).collect()
}

fn packed(text: &str) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(text.as_bytes()).unwrap();
    packer.finish().unwrap()
}

#[test]
fn passes_from_a_cache_have_the_blocks_of_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let numeric = ColumnChoice { numeric: vec!["x".into()], ..ColumnChoice::default() };
    for data in [
        file(f, "a.svm", libsvm(500).as_bytes()),
        file(f, "a.svm.gz", &packed(&libsvm(500))),
        file(f, "a.csv", csv(500).as_bytes()),
        Data { columns: numeric, intercept: false, ..file(f, "b.csv", csv(500).as_bytes()) },
    ] {
        for share in [Share::ALL, Share { worker: 1, workers: 3 }] {
            let want = pass(&data, share);
            assert!(want.0.len() > 5 && data.files[0].contains("svm") == (want.2 > 0), "{want:?}");
            let data = cached(&data, f);
            let before = kept(f).len();
            for number in 0..3 {
                assert!(pass(&data, share) == want, "{:?}, pass {number}", data.files);
                assert_eq!(kept(f).len(), before + 1);
            }
            // Another process.
            assert!(pass(&cached(&data, f), share) == want);
            // That was the cache: of a file that has the same length and time, other bytes are not seen.
            if share == Share::ALL && data.files[0].ends_with("a.svm") {
                let path = &data.files[0];
                let time = std::fs::metadata(path).unwrap().modified().unwrap();
                std::fs::write(path, libsvm(500).replace(":2\n", ":3\n")).unwrap();
                std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
                assert!(pass(&data, share) == want, "the files were read");
                std::fs::write(path, libsvm(500)).unwrap();
            }
        }
    }
}

#[test]
fn a_changed_file_or_flag_makes_it_anew() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let data = file(f, "a.csv", csv(300).as_bytes());
    pass(&cached(&data, f), Share::ALL);
    let ignored = ColumnChoice { ignored: vec!["x".into()], ..ColumnChoice::default() };
    for changed in [
        Data { intercept: false, ..data.clone() },
        Data { columns: ignored, ..data.clone() },
        Data { skip_bad_lines: 1, ..data.clone() },
        file(f, "a.csv", csv(301).as_bytes()),
    ] {
        let want = pass(&changed, Share::ALL);
        for _ in 0..2 {
            assert!(pass(&cached(&changed, f), Share::ALL) == want, "{changed:?}");
        }
        assert_eq!(kept(f).len(), 1, "the old one is replaced");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Blocks before the damage are good. From there on the files are read.
    #[test]
    fn a_damaged_or_torn_cache_is_never_trained(at: prop::sample::Index, with in 1u8.., torn: bool) {
        let folder = tempfile::tempdir().unwrap();
        let f = folder.path();
        let data = file(f, "a.svm", libsvm(200).as_bytes());
        let want = pass(&data, Share::ALL);
        let data = cached(&data, f);
        pass(&data, Share::ALL);
        let path = kept(f).remove(0);
        let mut bytes = std::fs::read(&path).unwrap();
        let whole = bytes.clone();
        // A file that begins otherwise is none of Gannet.
        let at = 8 + at.index(bytes.len() - 8);
        bytes[at] ^= with;
        if torn {
            bytes.truncate(at);
        }
        std::fs::write(&path, &bytes).unwrap();
        let found = pass(&data, Share::ALL);
        prop_assert_eq!(&found.0, &want.0);
        prop_assert_eq!(found.1, want.1);
        // The next one is whole.
        prop_assert!(pass(&data, Share::ALL) == want);
        prop_assert!(pass(&data, Share::ALL) == want);
        prop_assert!(std::fs::read(&path).unwrap() == whole);
    }
}

#[test]
fn a_file_of_the_user_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let data = file(f, "a.svm", libsvm(200).as_bytes());
    let want = pass(&data, Share::ALL);
    let data = cached(&data, f);
    pass(&data, Share::ALL);
    let path = kept(f).remove(0);
    std::fs::write(&path, "a note").unwrap();
    for _ in 0..3 {
        assert!(pass(&data, Share::ALL) == want);
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"a note");
    assert_eq!(kept(f).len(), 1);
}

#[test]
fn two_writers_in_one_folder_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let data = file(f, "a.svm", libsvm(2000).as_bytes());
    let want = pass(&data, Share::ALL);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    assert!(pass(&cached(&data, f), Share::ALL) == want);
                }
            });
        }
    });
    assert_eq!(kept(f).len(), 1, "{:?}", kept(f));
}

#[test]
fn what_a_killed_writer_left_is_removed_and_a_living_one_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let data = cached(&file(f, "a.svm", libsvm(500).as_bytes()), f);
    let left = f.join("cache/of-1-0-00.gannet-cache-part");
    std::fs::write(&left, b"GANNET\0C\x01").unwrap();
    let mut living = Reader::open(&data, 16, Share::ALL).unwrap();
    let mut block = Block::default();
    assert!(living.next(&mut block).unwrap());
    assert_eq!(kept(f).len(), 2);
    cached(&data, f);
    assert_eq!(kept(f).len(), 1, "{:?}", kept(f));
    while living.next(&mut block).unwrap() {}
    assert!(kept(f)[0].extension().is_some_and(|name| name == "gannet-cache"));
    // A pass that is given up leaves nothing.
    let other = cached(&file(f, "b.svm", libsvm(500).as_bytes()), f);
    let mut given_up = Reader::open(&other, 16, Share::ALL).unwrap();
    assert!(given_up.next(&mut block).unwrap());
    drop(given_up);
    assert_eq!(kept(f).len(), 1, "{:?}", kept(f));
}
