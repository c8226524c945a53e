//! Compares the readers with the plain way (std's split and parse), and checks every kind of bad input by name.

use crate::model;

use gannet_train::{
    Block, ColumnChoice, ColumnKeys, Columns, Data, Format, INTERCEPT_KEY, ReadError, Reader, Share,
};
use model::{Row, examples, file, gzip, libsvm, read, rows_of};
use proptest::prelude::*;

fn plain(text: &str) -> Vec<Row> {
    text.lines()
        .map(|l| l.split('#').next().unwrap().trim())
        .filter(|l| !l.is_empty())
        .map(|line| {
            let mut tokens = line.split_ascii_whitespace();
            let label = if matches!(tokens.next().unwrap(), "1" | "+1") { 1.0 } else { 0.0 };
            let features = tokens.map(|t| match t.split_once(':') {
                Some((id, value)) => (id.parse().unwrap(), value.parse().unwrap()),
                None => (t.parse().unwrap(), 1.0),
            });
            (label, std::iter::once((INTERCEPT_KEY, 1.0)).chain(features).collect())
        })
        .collect()
}

fn line() -> impl Strategy<Value = String> {
    let id =
        prop_oneof![0u64..100_000_000, 0u64..3000, any::<u64>().prop_filter("reserved", |&k| k != u64::MAX)];
    let value = prop_oneof![
        Just(String::new()),
        Just(":1".to_owned()),
        any::<f32>().prop_filter("finite", |v| v.is_finite()).prop_map(|v| format!(":{v}")),
        any::<f32>().prop_filter("finite", |v| v.is_finite()).prop_map(|v| format!(":{v:e}")),
        (-9999i32..9999, 0u32..10_000).prop_map(|(a, b)| format!(":{a}.{b}")),
    ];
    let blank = prop::sample::select(vec![" ", "  ", "\t", " \t "]);
    let feature = (blank, id, value).prop_map(|(b, id, value)| format!("{b}{id}{value}"));
    let end = prop::sample::select(vec!["", " ", "\r", " # a comment: 1:2", " #"]);
    let label = prop::sample::select(vec!["0", "1", "+1", " 1"]);
    (label, prop::collection::vec(feature, 0..30), end).prop_map(|(l, f, e)| format!("{l}{}{e}", f.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn libsvm_is_the_plain_way(lines in prop::collection::vec(prop_oneof![9 => line(), 1 => Just(String::new())], 1..60),
                               first in line(), batch in 1usize..40, last_newline: bool, minus: bool) {
        let folder = tempfile::tempdir().unwrap();
        // A file has 0 or -1, not both.
        let signed = |line: &String| match line.strip_prefix('0') {
            Some(features) if minus => format!("-1{features}"),
            _ => line.clone(),
        };
        let lines: Vec<String> = std::iter::once(&first).chain(&lines).map(signed).collect();
        let mut text = lines.join("\n");
        if last_newline {
            text.push('\n');
        }
        let path = file(&folder, "a.svm", text.as_bytes());
        prop_assert_eq!(read(&Data::new(&path), batch).unwrap(), plain(&text));
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(prop_oneof![
        4 => prop::sample::select(b"01 :.-+#\t\r\n\"e,".to_vec()), 1 => any::<u8>()], 0..400), skip in 0u64..20) {
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, "a.dat", &bytes);
        for format in [Format::Auto, Format::Libsvm, Format::Csv] {
            let data = Data { format, skip_bad_lines: skip, ..Data::new(&path) };
            if let Ok(rows) = read(&data, 7) {
                prop_assert!(rows.iter().all(|(label, row)| matches!(label, 0.0 | 1.0) && row.iter().all(|f| f.1.is_finite())));
            }
        }
    }

    #[test]
    fn csv_is_the_plain_way(rows in prop::collection::vec((any::<bool>(), "[a-z\",\u{e9} ]{0,12}", -1000i32..1000, "[a-z]{0,4}"), 1..40),
                            batch in 1usize..20, tabs: bool, quote_all: bool) {
        let d = if tabs { "\t" } else { "," };
        let quoted = |field: &str| if quote_all || field.contains([',', '"', '\t']) {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            field.to_owned()
        };
        let mut text = format!("x{d}label{d}\"the n\"{d}skipped\r\n");
        for (y, x, n, s) in &rows {
            text += &format!("{}{d}{}{d}{}{d}{}\n", quoted(x), i32::from(*y), f64::from(*n) / 8.0, quoted(s));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, if tabs { "a.tsv" } else { "a.csv" }, text.as_bytes());
        let columns = ColumnChoice {
            categorical: vec!["x".into()],
            numeric: vec!["the n".into()],
            ..ColumnChoice::default()
        };
        let want: Vec<Row> = rows.iter().map(|(y, x, n, _)| {
            let features = vec![(INTERCEPT_KEY, 1.0), (ColumnKeys::new("x").categorical(x.as_bytes()), 1.0),
                (ColumnKeys::new("the n").numeric(), *n as f32 / 8.0)];
            (f32::from(u8::from(*y)), features)
        }).collect();
        prop_assert_eq!(read(&Data { columns, ..Data::new(&path) }, batch).unwrap(), want);
    }
}

#[test]
fn chunks_gzip_members_and_shares_read_the_same() {
    let folder = tempfile::tempdir().unwrap();
    // Longer than a chunk, with one line longer than that.
    let mut text = libsvm(&examples(8_000, 1));
    let long: String = (0..200_000).map(|id| format!(" {}", id * 7)).collect();
    text.push_str(&format!("1{long}\n"));
    text.push_str(&libsvm(&examples(300, 2)));
    let want = plain(&text);
    let whole = file(&folder, "a.txt", text.as_bytes());
    assert_eq!(read(&Data::new(&whole), 256).unwrap(), want);
    let (front, back) = text.as_bytes().split_at(text.len() / 3);
    let packed = file(&folder, "a.svm.gz", &[gzip(front), gzip(back)].concat());
    assert_eq!(read(&Data::new(&packed), 999).unwrap(), want);
    for workers in [2, 3, 7] {
        let mut batches: Vec<(u64, Vec<Row>)> = Vec::new();
        for worker in 0..workers {
            let mut reader = Reader::open(&Data::new(&packed), 100, Share { worker, workers }).unwrap();
            let mut block = Block::default();
            while reader.next(&mut block).unwrap() {
                assert_eq!(reader.batch_number() % u64::from(workers), u64::from(worker));
                batches.push((reader.batch_number(), rows_of(&block)));
            }
        }
        batches.sort_by_key(|b| b.0);
        assert!(batches.iter().all(|b| b.1.len() == 100 || b.0 == want.len() as u64 / 100));
        assert_eq!(batches.into_iter().flat_map(|b| b.1).collect::<Vec<_>>(), want);
    }
}

#[test]
fn bad_lines_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (line, expected) in [
        ("2 1:1", "a label 0, 1, +1 or -1"),
        ("x 1:1", "a label"),
        ("1:1 2:2", "a label"),
        ("10 1:1", "a label"),
        ("1 a:1", "id:value"),
        ("1 -1:1", "id:value"),
        ("1 1:1:1", "a number after the colon"),
        ("1 1:", "a number after the colon"),
        ("1 1: 2", "a number after the colon"),
        ("1 1:x", "a number after the colon"),
        ("1 1:nan", "a finite number"),
        ("1 1:inf", "a finite number"),
        ("1 1:1e39", "a finite number"),
        ("1 18446744073709551615:1", "an id of at most 18446744073709551614"),
        ("1 99999999999999999999:1", "an id of at most"),
        ("1 qid:x 1:1", "id:value"),
        ("1 1:1 qid:3", "id:value"),
        ("1 1;2", "id:value"),
        ("1 1:1 \0", "id:value"),
    ] {
        let path = file(&folder, "a.svm", format!("1 1:1 # fine\n\n0 2\n{line}\n1 3\n").as_bytes());
        let error = read(&Data::new(&path), 256).unwrap_err();
        let ReadError::BadLine(bad) = &error else { panic!("{line}: {error}") };
        assert_eq!((bad.line, bad.text.as_str()), (4, line));
        assert!(bad.expected.contains(expected), "{line}: {error}");
        let message = error.to_string();
        assert!(message.starts_with(&format!("{path}:4: expected ")) && message.contains("--skip-bad-lines"));
        let skipping = Data { skip_bad_lines: 1, ..Data::new(&path) };
        assert_eq!(read(&skipping, 2).unwrap().len(), 3, "{line}");
    }
    let path = file(&folder, "long.svm", format!("1 1\n1 {}\n", "y".repeat(500)).as_bytes());
    let ReadError::BadLine(bad) = read(&Data::new(&path), 256).unwrap_err() else { panic!() };
    assert_eq!(bad.text.len(), 83);
}

#[test]
fn bad_lines_beyond_the_allowance_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "a.svm", "1 1\n1 x\n".repeat(10).as_bytes());
    let with = |n| read(&Data { skip_bad_lines: n, ..Data::new(&path) }, 3);
    assert_eq!(with(10).unwrap().len(), 10);
    let error = with(9).unwrap_err();
    let text = error.to_string();
    let ReadError::TooManyBadLines { last, count: 10, allowed: 9, first } = error else { panic!("{text}") };
    assert_eq!((last.line, first.len(), first[0].line), (20, 5, 2));
    assert!(text.contains("a.svm:20") && text.contains("a.svm:2:"), "{text}");
}

#[test]
fn files_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let text = libsvm(&examples(2_000, 1));
    let error = |name: &str, bytes: &[u8]| read(&Data::new(&file(&folder, name, bytes)), 256).unwrap_err();
    assert!(matches!(read(&Data::new("/no/such"), 1).unwrap_err(), ReadError::Io { .. }));
    let here = folder.path().to_str().unwrap();
    assert!(matches!(read(&Data::new(here), 1).unwrap_err(), ReadError::Io { .. }));
    assert!(matches!(error("e.svm", b""), ReadError::Empty { .. }));
    assert!(matches!(error("e.csv", b"\n\r\n"), ReadError::Empty { .. }));
    assert!(matches!(error("header.csv", b"label,a\n"), ReadError::Empty { .. }));
    assert!(matches!(error("comments.svm", b"# nothing\n\n"), ReadError::Empty { .. }));
    assert!(matches!(error("empty.gz", b""), ReadError::Empty { .. }));
    assert!(matches!(error("a.svm.gz", text.as_bytes()), ReadError::NotPacked { .. }));
    let mut packed = gzip(text.as_bytes());
    let middle = packed.len() / 2;
    let truncated = error("t.svm.gz", &packed[..middle]);
    assert!(matches!(truncated, ReadError::Truncated { bytes: 1.., .. }), "{truncated}");
    assert!(matches!(error("t2.svm.gz", &packed[..packed.len() - 3]), ReadError::Truncated { .. }));
    let end = packed.len() - 6;
    packed[end] ^= 0x55; // the checksum
    assert!(matches!(error("d.svm.gz", &packed), ReadError::Damaged { .. }));
    let unknown = error("a.dat", b"hello world\n1 2 3\n");
    assert!(matches!(&unknown, ReadError::UnknownFormat { text, .. } if text == "hello world"), "{unknown}");
    assert!(matches!(Reader::open(&Data::new(here), 0, Share::ALL), Err(ReadError::Limit { .. })));
}

#[test]
fn formats_are_told_by_name_or_first_line() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text, format) in [
        ("a", "1 1:1\n", "libsvm"),
        ("b", "# a comment\n1 1:1\n", "libsvm"),
        ("c", "label,x\n1,y\n", "csv"),
        ("d", "label\tx\n1\ty\n", "tsv"),
        ("e.csv", "label\n1\n", "none"),
        ("f.csv", "\u{feff}label,x\n1,y\n", "csv"),
        ("g.tsv", "label\tx,z\n1\ty\n", "tsv"),
        ("h.svm", "x,y,z\n", "libsvm"),
        ("i.csv.gz", "label,x\n1,y\n", "csv"),
    ] {
        let bytes = if name.ends_with("gz") { gzip(text.as_bytes()) } else { text.as_bytes().to_vec() };
        match Reader::open(&Data::new(&file(&folder, name, &bytes)), 1, Share::ALL) {
            Ok(reader) => assert_eq!(reader.format(), format, "{name}"),
            Err(error) => {
                assert!(format == "none" && error.to_string().contains("no feature columns"), "{error}")
            }
        }
    }
}

#[test]
fn columns_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path =
        file(&folder, "a.csv", b"late,carrier,hour,dist\n1,UA,5,1400.5\n0,AA,,NA\n0,\"a \"\"b\"\"\",6,\n");
    let strings = |names: &[&str]| names.iter().map(|n| n.to_string()).collect::<Vec<_>>();
    let choose = |label: Option<&str>, categorical: &[&str], numeric: &[&str]| ColumnChoice {
        label: label.map(str::to_owned),
        categorical: strings(categorical),
        numeric: strings(numeric),
        ..ColumnChoice::default()
    };
    // The first column is the label, the others are categories.
    let reader = Reader::open(&Data::new(&path), 1, Share::ALL).unwrap();
    let (label, categorical) = (Some("late".to_owned()), strings(&["carrier", "hour", "dist"]));
    assert_eq!(reader.columns(), Some(&Columns { label, categorical, ..Columns::default() }));
    let data = |columns| Data { columns, ..Data::new(&path) };
    let rows = read(&data(choose(Some("late"), &["carrier"], &["dist"])), 1).unwrap();
    let (carrier, dist) = (ColumnKeys::new("carrier"), ColumnKeys::new("dist"));
    assert_eq!(rows[0].1[1..], [(carrier.categorical(b"UA"), 1.0), (dist.numeric(), 1400.5)]);
    assert_eq!(rows[1].1[2], (dist.missing(), 1.0));
    assert_eq!(rows[2].1[1..], [(carrier.categorical(b"a \"b\""), 1.0), (dist.missing(), 1.0)]);
    let message = |columns| read(&data(columns), 1).unwrap_err().to_string();
    let no_column = message(choose(Some("late"), &["carier"], &[]));
    assert!(
        no_column.contains("\"carier\"") && no_column.contains("late, carrier, hour, dist"),
        "{no_column}"
    );
    assert!(message(choose(Some("late"), &["late"], &[])).contains("chosen twice"));
    assert!(
        message(choose(Some("carrier"), &["hour"], &[])).contains("a.csv:2: column \"carrier\" has \"UA\"")
    );
    assert!(message(choose(None, &[], &["carrier"])).contains("expected a number"));
    // Without labels the label's column may be missing.
    let bare = file(&folder, "bare.csv", b"carrier,dist\nUA,3\n");
    let columns = choose(Some("late"), &["carrier"], &["dist"]);
    let data = Data { columns, unlabelled: true, ..Data::new(&bare) };
    assert!(read(&data, 1).unwrap()[0].0.is_nan());
    let lines = file(&folder, "bare.svm", b"3:1 4:2\n1 3:1\n");
    let labels: Vec<f32> =
        read(&Data { unlabelled: true, ..Data::new(&lines) }, 1).unwrap().iter().map(|r| r.0).collect();
    assert!(labels[0].is_nan() && labels[1] == 1.0);
}

#[test]
fn bad_records_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (record, expected) in [
        ("1,a", "expected 3 fields, found 2"),
        ("1,a,b,c", "expected 3 fields, found more"),
        ("1,\"a,b", "expected the closing quote"),
        ("1,\"a\"x,b", "expected the delimiter after the closing quote, in column \"x\""),
        (
            "yes,a,b",
            "column \"label\" has \"yes\", which is not 0, 1 or -1: say which value means 1 with --positive yes",
        ),
        (",a,b", "column \"label\" is empty: the line has no label"),
        ("NA,a,b", "column \"label\" has \"NA\": the line has no label"),
    ] {
        let path = file(&folder, "a.csv", format!("label,x,y\n0,p,q\n\n{record}\n1,r,s\n").as_bytes());
        let error = read(&Data::new(&path), 10).unwrap_err().to_string();
        assert!(error.contains("a.csv:4: ") && error.contains(expected), "{record}: {error}");
        // A quote that is open takes the line behind it.
        let lines = if record.contains("\"a,b") { 2 } else { 1 };
        let skipping = Data { skip_bad_lines: lines, ..Data::new(&path) };
        assert_eq!(read(&skipping, 10).unwrap().len() as u64, 3 - lines, "{record}");
    }
    let no_header = file(&folder, "twice.csv", b"label,x,x\n1,a,b\n");
    assert!(read(&Data::new(&no_header), 1).unwrap_err().to_string().contains("twice"));
}
