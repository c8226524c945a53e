//! Tables of bad input for every reader: the bytes, where the error is, and what it says. Also odd input that is
//! correct.

use crate::model;

use gannet_train::{Data, Format};
use model::{file, read};

/// Where the input is wrong: in the file, or in line `.0`. The text is part of the error.
enum Wrong {
    File(&'static str),
    Line(u64, &'static str),
    /// Nowhere: the input has so many examples.
    No(usize),
}
use Wrong::{File, Line, No};

/// Thirteen numbers and 26 categories, with one field changed.
fn criteo(field: usize, text: &str) -> Vec<u8> {
    let mut fields: Vec<&str> = vec!["1"; 14];
    fields.extend(["68fd1e64"; 26]);
    fields[field] = text;
    fields.join("\t").into_bytes()
}

fn check(format: Format, name: &str, cases: Vec<(&str, Vec<u8>, Wrong)>) {
    let folder = tempfile::tempdir().unwrap();
    for (what, bytes, wrong) in cases {
        let path = file(&folder, name, &bytes);
        let data = Data { format, ..Data::new(&path) };
        let result = read(&data, 4);
        match wrong {
            No(examples) => match result {
                Ok(rows) => assert_eq!(rows.len(), examples, "{name}, {what}"),
                Err(error) => panic!("{name}, {what}: {error}"),
            },
            File(expected) => {
                let error = result.unwrap_err().to_string();
                assert!(error.starts_with(&path) && error.contains(expected), "{name}, {what}: {error}");
            }
            Line(line, expected) => {
                let error = result.unwrap_err().to_string();
                assert!(error.starts_with(&format!("{path}:{line}: ")), "{name}, {what}: {error}");
                assert!(error.contains(expected), "{name}, {what}: {expected:?} is not in {error}");
                assert!(
                    error.contains("correct the line, or skip such lines with --skip-bad-lines N"),
                    "{error}"
                );
                // Only one line is bad: the others can be read without it.
                let good = bytes.split(|&b| b == b'\n').count() - 1;
                let skipping = Data { skip_bad_lines: 1, ..data };
                match read(&skipping, 4) {
                    Ok(rows) => assert!(rows.len() <= good, "{name}, {what}"),
                    Err(error) => {
                        assert!(error.to_string().contains("lines is an example"), "{name}, {what}: {error}")
                    }
                }
            }
        }
    }
}

fn long_line(start: &str) -> Vec<u8> {
    let mut bytes = start.as_bytes().to_vec();
    bytes.resize(gannet_train::limits::LINE_BYTES_MAX + 10, b'1');
    bytes.push(b'\n');
    bytes
}

fn many_features(start: &str, feature: &str) -> Vec<u8> {
    format!("{start}{}\n", feature.repeat(gannet_train::limits::FEATURES_PER_EXAMPLE_MAX)).into_bytes()
}

#[test]
fn libsvm() {
    let text = |t: &str| t.as_bytes().to_vec();
    check(
        Format::Libsvm,
        "a.svm",
        vec![
            ("empty", vec![], File("no examples in it")),
            ("only blank lines", text("\n \r\n"), File("no examples in it")),
            ("only comments", text("# 1 1:1\n"), File("no examples in it")),
            ("no newline at the end", text("1 1:1\n0 2:1"), No(2)),
            ("CRLF", text("1 1:1\r\n0 2:1\r\n"), No(2)),
            ("a mark", text("\u{feff}1 1:1\n"), No(1)),
            ("a key twice", text("1 1:1 1:2\n"), No(1)),
            ("no features", text("1\n"), No(1)),
            ("NUL", text("1 1:1\n\0\0\0\n"), Line(2, "a label")),
            ("NUL in a value", text("1 1:1\0\n"), Line(1, "a number after the colon")),
            ("not UTF-8", b"1 1:1\n1 2:\xff\n".to_vec(), Line(2, "a number after the colon")),
            ("a long line", long_line("1 1:"), File(":1: the line is longer than 16777216 bytes")),
            ("too large a number", text("1 1:1e39\n"), Line(1, "a finite number that fits f32")),
            ("NaN", text("1 1:NaN\n"), Line(1, "a finite number")),
            ("infinity", text("1 1:-inf\n"), Line(1, "a finite number")),
            ("a negative id", text("1 -3:1\n"), Line(1, "id:value (id a whole number from 0)")),
            (
                "a huge id",
                text("1 18446744073709551615:1\n"),
                Line(1, "an id of at most 18446744073709551614"),
            ),
            ("too many features", many_features("1", " 1"), Line(1, "at most 262143 features")),
            ("another class", text("1 1\n3 1\n"), Line(2, "a label 0, 1, +1 or -1")),
            ("a label that is text", text("yes 1\n"), Line(1, "a label")),
            ("no label", text("1:1 2:1\n"), Line(1, "a label")),
            ("no value", text("1 1:\n"), Line(1, "a number after the colon")),
        ],
    );
}

#[test]
fn csv() {
    let text = |t: &str| t.as_bytes().to_vec();
    check(
        Format::Csv,
        "a.csv",
        vec![
            ("empty", vec![], File("no examples in it")),
            ("only a header", text("label,x\n"), File("no examples in it")),
            ("no newline at the end", text("label,x\n1,a"), No(1)),
            ("CRLF", text("label,x\r\n1,a\r\n"), No(1)),
            ("a mark", text("\u{feff}label,x\n1,a\n"), No(1)),
            ("not UTF-8 in a category", b"label,x\n1,\xff\n".to_vec(), No(1)),
            ("NUL in a category", text("label,x\n1,\0\n"), No(1)),
            (
                "NUL for a label",
                text("label,x\n\0,a\n"),
                Line(2, "column \"label\" has \"\\0\", which is not 0, 1 or -1"),
            ),
            ("a long line", long_line("label,x\n1,"), File(":2: the line is longer than")),
            ("another class", text("label,x\n2,a\n"), Line(2, "which is not 0, 1 or -1")),
            (
                "an empty label",
                text("label,x\n,a\n"),
                Line(2, "column \"label\" is empty: the line has no label"),
            ),
            ("a column too few", text("label,x,y\n1,a\n"), Line(2, "3 fields, found 2")),
            ("a column too many", text("label,x\n1,a,b\n"), Line(2, "2 fields, found more")),
            ("an open quote", text("label,x\n1,\"a\n"), Line(2, "the closing quote of a field")),
            (
                "text after a quote",
                text("label,x\n1,\"a\"b\n"),
                Line(2, "the delimiter after the closing quote"),
            ),
            ("no header", text("1,a\n0,b\n"), File("a CSV file begins with a header")),
            ("a column twice", text("label,x,x\n1,a,b\n"), File("twice; rename one")),
            ("only a label", text("label\n1\n"), File("no feature columns")),
            ("another delimiter", text("label;x\n1;a\n"), File("is the delimiter right")),
            (
                "an open quote in the header",
                text("label,\"x\n1,a\n"),
                File("the closing quote of a field before the end of the file, in the header"),
            ),
        ],
    );
    let folder = tempfile::tempdir().unwrap();
    for (number, expected) in [
        ("x", "a number, or nothing or NA"),
        ("1e39", "a finite number"),
        ("inf", "a finite number"),
        ("1,5", "2 fields"),
    ] {
        let path = file(&folder, "n.csv", format!("label,n\n1,0.5\n0,{number}\n").as_bytes());
        let mut data = Data::new(&path);
        data.columns.numeric = vec!["n".into()];
        let error = read(&data, 4).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{path}:3: expected ")) && error.contains(expected), "{error}");
    }
}

#[test]
fn criteo_logs() {
    let lines = |lines: &[Vec<u8>]| lines.join(&b'\n');
    let good = || criteo(0, "1");
    check(
        Format::Criteo,
        "day_0",
        vec![
            ("empty", vec![], File("no examples in it")),
            ("no newline at the end", good(), No(1)),
            ("CRLF", [good(), b"\r\n".to_vec()].concat().repeat(2), No(2)),
            ("a mark", [b"\xef\xbb\xbf".to_vec(), good()].concat(), No(1)),
            ("empty fields", vec![b'0'].into_iter().chain([b'\t'; 39]).collect(), No(1)),
            ("not UTF-8 in a category", lines(&[good(), criteo(20, "caf\u{e9}")]), No(2)),
            ("NUL", lines(&[good(), vec![0; 8]]), Line(2, "a label 0, 1, +1 or -1 and a tab")),
            ("a long line", long_line("1\t"), File(":1: the line is longer than")),
            ("another class", lines(&[good(), criteo(0, "2")]), Line(2, "a label")),
            ("an empty label", criteo(0, ""), Line(1, "a label")),
            ("no label", good()[2..].to_vec(), Line(1, "a whole number, or nothing, in column I13")),
            (
                "a fraction",
                lines(&[good(), criteo(3, "1.5")]),
                Line(2, "a whole number, or nothing, in column I3"),
            ),
            ("NaN", criteo(13, "nan"), Line(1, "in column I13")),
            (
                "too large a number",
                criteo(1, "9223372036854775808"),
                Line(1, "a whole number that fits 64 bits"),
            ),
            (
                "far too large",
                criteo(1, "99999999999999999999"),
                Line(1, "that fits 64 bits, or nothing, in column I1"),
            ),
            ("a column too few", lines(&[good(), good()[..good().len() - 9].to_vec()]), Line(2, "found 39")),
            ("few columns", b"1\t2\t3".to_vec(), Line(1, "found 3")),
            ("a column too many", [good(), b"\tx".to_vec()].concat(), Line(1, "40 fields by tabs")),
            ("a header", lines(&[b"label\tI1".to_vec(), good()]), Line(1, "a label")),
            ("commas", b"1,2,3\n".to_vec(), Line(1, "a label 0, 1, +1 or -1 and a tab")),
        ],
    );
}

#[test]
fn vw() {
    let text = |t: &str| t.as_bytes().to_vec();
    check(
        Format::Vw,
        "a.vw",
        vec![
            ("empty", vec![], File("no examples in it")),
            ("no newline at the end", text("1 |a x\n-1 |a y"), No(2)),
            ("CRLF", text("1 |a x\r\n\r\n-1 | y:2\r\n"), No(2)),
            ("a mark", text("\u{feff}1 | x\n"), No(1)),
            ("a name twice", text("1 | x x:2\n"), No(1)),
            ("not UTF-8 in a name", b"1 | caf\xe9\n".to_vec(), No(1)),
            ("NUL in a name", text("1 | x\0y\n"), Line(1, "a name without control characters")),
            ("a long line", long_line("1 | x:"), File(":1: the line is longer than")),
            ("no bar", text("1 | x\n1 3:1 4:1\n"), Line(2, "a | before the features")),
            ("too large a number", text("1 | x:1e39\n"), Line(1, "a finite number that fits f32")),
            ("too large when scaled", text("1 |a:1e30 x:1e30\n"), Line(1, "a finite number that fits f32")),
            ("NaN", text("1 | x:nan\n"), Line(1, "a finite number")),
            ("text for a number", text("1 | x:red\n"), No(1)),
            ("text with a colon", text("1 | x:a:b\n"), Line(1, "a number after the colon")),
            ("no number", text("1 | x: y\n"), Line(1, "a number after the colon")),
            ("no name", text("1 | :2\n"), Line(1, "a name before the colon")),
            ("a huge number for a name", text("1 | 99999999999999999999:1\n"), No(1)),
            ("too many features", many_features("1 |", " 1"), Line(1, "at most 262143 features")),
            ("another class", text("1 | x\n3 | x\n"), Line(2, "a label -1, 0 or 1")),
            ("a number to predict", text("0.5 | x\n"), Line(1, "a label -1, 0 or 1")),
            ("no label", text("|a x\n1 |a x\n"), No(1)),
            (
                "no label at all",
                text("|a x\n"),
                File("none of its 1 lines is an example: no line has a label"),
            ),
            (
                "a label that touches the bar",
                text("1|a x\n"),
                File("no line has a label; a training needs labels"),
            ),
            (
                "contextual bandits",
                text("1:2:0.4 | x\n"),
                Line(1, "contextual-bandit and cost-sensitive labels"),
            ),
            ("several lines", text("shared | x\n"), Line(1, "examples of several lines (shared")),
            ("several labels", text("1,2 | x\n"), Line(1, "not several")),
            (
                "a negative importance",
                text("1 -2 | x\n"),
                Line(1, "an importance: a finite number that is not negative"),
            ),
            ("an endless importance", text("1 inf | x\n"), Line(1, "an importance")),
            ("a base", text("1 1 0.3 | x\n"), No(1)),
            ("a base without an end", text("1 1 inf | x\n"), Line(1, "a base that is a finite number")),
            ("a base that is no number", text("1 2 x | x\n"), Line(1, "finite number, at character 5")),
            (
                "too much before the bar",
                text("1 1 0 2 'tag | x\n"),
                Line(1, "at most a label, an importance, a base"),
            ),
        ],
    );
}
