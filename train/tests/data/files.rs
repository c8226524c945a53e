//! Many files read as one: their names, the shares of readers, their packing, and their errors.

use crate::model;

use gannet_train::{Block, Data, Format, ReadError, Reader, Share, StopFlag, files};
use model::{examples, file, gzip, libsvm, read, rows_of, zst};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn named(folder: &tempfile::TempDir, names: &[&str]) -> Result<Vec<String>, ReadError> {
    let path = |name: &&str| format!("{}/{name}", folder.path().display());
    let short = |f: String| f.rsplit('/').next().unwrap().to_owned();
    Ok(files(&names.iter().map(path).collect::<Vec<_>>())?.into_iter().map(short).collect())
}

#[test]
fn names_folders_and_patterns_become_a_list() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["part-10", "part-9", "part-1", "x[1]", ".hidden", "_SUCCESS"] {
        file(&folder, name, b"1 1\n");
    }
    std::fs::create_dir_all(folder.path().join("day/deeper/still")).unwrap();
    std::fs::create_dir(folder.path().join("none")).unwrap();
    for name in ["day/b", "day/a", "day/.a", "day/_b"] {
        file(&folder, name, b"1 1\n");
    }
    // In the given order. A pattern's matches are in the order of their bytes.
    assert_eq!(named(&folder, &["part-9", "part-1"]).unwrap(), ["part-9", "part-1"]);
    assert_eq!(named(&folder, &["part-*"]).unwrap(), ["part-1", "part-10", "part-9"]);
    assert_eq!(named(&folder, &["x*", "part-?"]).unwrap(), ["x[1]", "part-1", "part-9"]);
    assert_eq!(named(&folder, &["x[1]"]).unwrap(), ["x[1]"], "a name that exists is no pattern");
    assert_eq!(named(&folder, &["nowhere"]).unwrap(), ["nowhere"], "whoever opens it says so");
    assert_eq!(files(&["-".into()]).unwrap(), ["-"]);
    let error = |names: &[&str]| named(&folder, names).unwrap_err();
    assert!(matches!(error(&["day"]), ReadError::NoFiles { what, .. } if what.contains("day/deeper")));
    std::fs::remove_dir_all(folder.path().join("day/deeper")).unwrap();
    assert_eq!(named(&folder, &["day"]).unwrap(), ["a", "b"]);
    assert_eq!(named(&folder, &["d*"]).unwrap(), ["a", "b"], "what a pattern matches is as if it were named");
    assert_eq!(named(&folder, &["*/a"]).unwrap(), ["a"]);
    for (pattern, expected) in [
        ("part-*.gz", "no file has a name like this"),
        ("none", "without data files"),
        ("[", "not a pattern"),
    ] {
        let text = error(&[pattern]).to_string();
        assert!(text.contains(pattern) && text.contains(expected) && text.contains("quote"), "{text}");
    }
    std::os::unix::fs::symlink(folder.path().join("part-1"), folder.path().join("link")).unwrap();
    for twice in [&["part-1", "part-*"][..], &["part-1", "link"], &["part-1", "day/../part-1"]] {
        let text = error(twice).to_string();
        assert!(text.contains("named twice") && text.contains("--epochs"), "{text}");
    }
    assert!(matches!(files(&["-".into(), "-".into()]), Err(ReadError::Twice { .. })));
}

/// Files of all packings: one without a newline at its end, one with a byte order mark, an empty one, one with
/// comments only.
fn parts(folder: &tempfile::TempDir) -> (Vec<String>, String) {
    let text = |n, seed| libsvm(&examples(n, seed));
    let whole: Vec<String> = (0..5).map(|seed| text(1 + 700 * seed as usize, seed)).collect();
    let paths = vec![
        file(folder, "a.svm", whole[0].trim_end().as_bytes()),
        file(folder, "b.svm.gz", &gzip(whole[1].as_bytes())),
        file(folder, "c.svm", b""),
        file(folder, "d.svm.zst", &zst(whole[2].as_bytes())),
        file(folder, "e.svm.gz", &gzip(b"")),
        file(folder, "f.svm", b"# nothing\n\n"),
        file(folder, "g.svm", &[b"\xEF\xBB\xBF", whole[3].as_bytes()].concat()),
        file(folder, "h.svm", &[zst(b""), zst(whole[4].as_bytes())].concat()),
    ];
    (paths, whole.concat())
}

#[test]
fn many_files_read_as_their_concatenation() {
    let folder = tempfile::tempdir().unwrap();
    let (paths, text) = parts(&folder);
    let one = file(&folder, "all.svm", text.as_bytes());
    let bytes: u64 = paths.iter().map(|p| std::fs::metadata(p).unwrap().len()).sum();
    for batch in [1, 100, 256, 5000] {
        let (mut one, mut many) = (
            Reader::open(&Data::new(&one), batch, Share::ALL).unwrap(),
            Reader::open(&Data::of(paths.clone()), batch, Share::ALL).unwrap(),
        );
        let (mut a, mut b) = (Block::default(), Block::default());
        while one.next(&mut a).unwrap() {
            assert!(many.next(&mut b).unwrap());
            assert!(a == b, "batch {} is the same", one.batch_number());
        }
        assert!(!many.next(&mut b).unwrap() && !many.next(&mut b).unwrap());
        assert_eq!((many.position().bytes_read(), many.position().bytes_total()), (bytes, Some(bytes)));
    }
}

#[test]
fn shares_of_many_files_hold_each_record_once() {
    let folder = tempfile::tempdir().unwrap();
    let (paths, text) = parts(&folder);
    let want = read(&Data::new(&file(&folder, "all.svm", text.as_bytes())), 256).unwrap();
    for (workers, batch) in [(2, 100), (3, 64), (8, 999), (40, 5000)] {
        let mut batches = Vec::new();
        for worker in 0..workers {
            let mut reader =
                Reader::open(&Data::of(paths.clone()), batch, Share { worker, workers }).unwrap();
            let mut block = Block::default();
            while reader.next(&mut block).unwrap() {
                assert_eq!(reader.batch_number() % u64::from(workers), u64::from(worker));
                batches.push((reader.batch_number(), rows_of(&block)));
            }
        }
        batches.sort_by_key(|b| b.0);
        assert_eq!(batches.into_iter().flat_map(|b| b.1).collect::<Vec<_>>(), want);
    }
}

#[test]
fn errors_name_the_file_and_its_own_line() {
    let folder = tempfile::tempdir().unwrap();
    let good = file(&folder, "a.svm", b"1 1\n0 2\n1 3\n");
    let bad = file(&folder, "b.svm", b"1 1\n0 x\n1 3\n");
    let data = Data::of(vec![good.clone(), bad.clone()]);
    let error = read(&data, 256).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{bad}:2: ")), "{error}");
    let skipping = Data { skip_bad_lines: 1, ..data };
    assert_eq!(read(&skipping, 2).unwrap().len(), 5);
    // The limit holds for all files together.
    let worse = file(&folder, "c.svm", b"y\n");
    let error = read(&Data { files: vec![bad, worse.clone()], ..skipping }, 2).unwrap_err();
    assert!(matches!(&error, ReadError::TooManyBadLines { last, .. } if last.file == worse), "{error}");
    // A missing file is an error before the first line is read.
    let missing = Reader::open(&Data::of(vec![good.clone(), "/no/such".into()]), 1, Share::ALL);
    assert!(matches!(missing, Err(ReadError::Io { file, .. }) if file == "/no/such"));
    let empty = |name| file(&folder, name, b"\n");
    let error = read(&Data::of(vec![empty("e"), empty("f"), empty("g")]), 1).unwrap_err();
    assert!(matches!(&error, ReadError::Empty { file } if file.ends_with("e and 2 more")), "{error}");
}

#[test]
fn files_are_of_one_format_with_the_same_columns() {
    let folder = tempfile::tempdir().unwrap();
    let csv = file(&folder, "a.csv", b"label,x,y\n1,p,q\n");
    let turned = file(&folder, "b.csv", b"y,x,label\nq,p,0\n");
    let header = file(&folder, "c.csv", b"label,x,y\n");
    let data = Data::of(vec![csv.clone(), header, turned]);
    assert_eq!(Reader::check(&data).unwrap(), Some("csv"));
    let rows = read(&data, 10).unwrap();
    assert_eq!(
        (rows.len(), rows[0].1[1], rows[1].1[2]),
        (2, rows[1].1[2], rows[0].1[1]),
        "columns go by name"
    );
    for (name, bytes, expected) in [
        ("d.csv", &b"label,x,z\n1,p,q\n"[..], "has label \"label\", categorical x,z, but"),
        ("e.tsv", b"label\tx\ty\n1\tp\tq\n", "is tsv, but"),
        ("f.svm", b"1 1\n", "is libsvm, but"),
        ("g", b"1 1\n", "is libsvm, but"),
        ("h.csv", b"1,p,q\n0,r,s\n", "a CSV file begins with a header"),
    ] {
        let data = Data::of(vec![csv.clone(), file(&folder, name, bytes)]);
        for error in [Reader::check(&data).unwrap_err(), read(&data, 10).unwrap_err()] {
            let text = error.to_string();
            assert!(text.contains(name) && text.contains(expected), "{name}: {text}");
        }
    }
    // A requested format is used without a guess.
    let forced = Data { format: Format::Libsvm, ..Data::of(vec![file(&folder, "i", b"1 1\n"), csv]) };
    assert!(read(&forced, 10).unwrap_err().to_string().contains("a.csv:1: expected a label"));
}

#[test]
fn packed_files_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let text = libsvm(&examples(20_000, 1));
    let error = |name: &str, bytes: &[u8]| read(&Data::new(&file(&folder, name, bytes)), 256).unwrap_err();
    for (packing, extension, pack) in
        [("gzip", "gz", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", "zst", zst as fn(&[u8]) -> Vec<u8>)]
    {
        let packed = pack(text.as_bytes());
        let name = format!("a.svm.{extension}");
        let want = read(&Data::new(&file(&folder, "a.svm", text.as_bytes())), 256).unwrap();
        assert_eq!(read(&Data::new(&file(&folder, &name, &packed)), 256).unwrap(), want);
        assert_eq!(read(&Data::new(&file(&folder, "a", &packed)), 256).unwrap(), want, "known by its bytes");
        // Cut anywhere, also in the second of two members, and once inside a header.
        let two = [packed.clone(), packed.clone()].concat();
        for cut in [5, packed.len() / 2, packed.len() - 1, packed.len() + 3, two.len() / 4 * 3, two.len() - 2]
        {
            let error = error(&name, &two[..cut]);
            let ReadError::Truncated { packing: found, at, .. } = &error else { panic!("{cut}: {error}") };
            assert_eq!((*found, *at), (packing, cut as u64));
            let text = error.to_string();
            assert!(text.contains(&name) && text.contains("truncated at its byte"), "{text}");
        }
        // A flipped bit in the middle or in the checksum, and bytes after the end.
        let mut flipped = packed.clone();
        flipped[packed.len() / 2] ^= 0x10;
        let mut sum = packed.clone();
        sum[packed.len() - 2] ^= 0x10;
        for (what, bytes) in
            [("bit", flipped), ("checksum", sum), ("tail", [packed, b"1 1\n0 2\n1 3\n".to_vec()].concat())]
        {
            match error(&name, &bytes) {
                ReadError::Damaged { packing: found, at, .. } => {
                    assert!(found == packing && at <= bytes.len() as u64, "{what}");
                }
                // Damage can change the text before the reader notices it, so an example may be wrong first.
                ReadError::BadLine(_) if what == "bit" => {}
                other => panic!("{what}: {other}"),
            }
        }
        assert!(matches!(error(&format!("p.{extension}"), b"1 1\n"),
            ReadError::NotPacked { packing: found, .. } if found == packing));
    }
    for (bytes, expected) in [
        (&b"\xfd7zXZ\0\0\0"[..], "packed by xz"),
        (b"BZh91AY&SY", "packed by bzip2"),
        (b"PK\x03\x04", "zip"),
        (b"\x04\x22\x4d\x18", "lz4"),
        (b"PAR1\x15\x04", "Parquet"),
        (b"\xff\xfe1\0 \0", "UTF-16"),
    ] {
        let text = error("b.svm", bytes).to_string();
        assert!(text.contains("b.svm") && text.contains(expected), "{text}");
    }
    // A window larger than 128 MiB would take that much memory.
    let far = error("far.zst", b"\x28\xb5\x2f\xfd\x00\xa0\x01\x00\x00");
    assert!(matches!(&far, ReadError::Damaged { why, .. } if why.contains("memory")), "{far}");
}

#[test]
fn a_line_is_too_long_wherever_it_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let limit = gannet_train::limits::LINE_BYTES_MAX;
    for (extra, fits) in [(0, true), (1, false)] {
        let mut text = b"1 1\n0 2".to_vec();
        text.resize(4 + limit + extra, b' ');
        text.extend_from_slice(b"\n1 3\n");
        match read(&Data::new(&file(&folder, "a.svm", &text)), 256) {
            Ok(rows) => assert!(fits && rows.len() == 3),
            Err(error) => {
                assert!(!fits && matches!(error, ReadError::LineTooLong { line: 2, .. }), "{error}")
            }
        }
    }
}

#[test]
fn a_stop_ends_the_wait_for_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let flag = Arc::new(AtomicBool::new(false));
    let data = Data { stop: StopFlag::from(flag.clone()), ..Data::new(path.to_str().unwrap()) };
    assert!(matches!(data.must_be_files("a second epoch"), Err(ReadError::ReadOnce { .. })));
    assert_eq!(Reader::check(&data).unwrap(), None, "a look would take what is in it");
    let reading = std::thread::spawn(move || {
        let mut reader = Reader::open(&data, 1, Share::ALL).unwrap();
        let (mut block, mut rows) = (Block::default(), 0);
        let error = loop {
            match reader.next(&mut block) {
                Ok(more) => {
                    assert!(more && rows < 2);
                    rows += 1;
                }
                Err(error) => break error,
            }
        };
        (rows, error)
    });
    let mut pipe = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::io::Write::write_all(&mut pipe, b"1 1\n0 2\n1 ").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!reading.is_finished());
    flag.store(true, Ordering::Relaxed);
    let (rows, error) = reading.join().unwrap();
    assert!(rows == 2 && matches!(error, ReadError::Stopped { .. }), "{rows} {error}");
}
