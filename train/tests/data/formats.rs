//! Examples written in each format by a naive writer and read back. They equal those of the plain way, wherever the
//! bytes are cut. Also the meaning of each format, by example.

use crate::entries;
use crate::model;
use crate::plain;

use entries::{ByteChunks, read, same};
use gannet_train::{
    ColumnChoice, ColumnKeys, Counts, CsvForm, Data, Format, INTERCEPT_KEY, ReadError, text_key,
};
use model::{Rng, file};
use plain::{Line, Plain, Role};
use proptest::prelude::*;

fn pick<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
    of[rng.below(of.len() as u64) as usize]
}

fn value(rng: &mut Rng) -> String {
    match rng.below(5) {
        0 => "1".into(),
        1 => format!("{}.{}", rng.below(30), rng.below(1000)),
        2 => format!("-{:.3}", rng.unit()),
        3 => format!("{:e}", rng.unit() as f32),
        _ => format!("{}", (rng.unit() * 1e6) as f32),
    }
}

fn id(rng: &mut Rng) -> u64 {
    let bits = rng.below(64);
    (rng.next() >> bits).min(u64::MAX - 1)
}

fn libsvm_line(rng: &mut Rng) -> String {
    let mut line = pick(rng, &["0", "1", "-1", "+1"]).to_owned();
    for _ in 0..rng.below(6) {
        line += pick(rng, &[" ", " ", "\t", "  "]);
        line += &id(rng).to_string();
        if rng.below(3) > 0 {
            line += &format!(":{}", value(rng));
        }
    }
    line + pick(rng, &["", "", " ", "\r", " # 1:1"])
}

fn vw_line(rng: &mut Rng) -> String {
    let mut line = pick(rng, &["0", "1", "-1", "+1", "1.0", ""]).to_owned();
    if !line.is_empty() && rng.below(3) == 0 {
        line += &format!(" {:.2}{}", rng.unit() * 3.0, pick(rng, &["", " 0", " 0.5", " -1e3"]));
    }
    line += pick(rng, &[" ", " ", " 'tag ", " 'tag", " tag"]);
    for _ in 0..1 + rng.below(3) {
        line += pick(rng, &["|", "|", "|user", "|user:0.5", "|a_longer_name", "|caf\u{e9}:2"]);
        line += pick(rng, &[" ", " ", "  ", "\t"]);
        for _ in 0..rng.below(5) {
            line += &match rng.below(4) {
                0 => id(rng).to_string(),
                1 => rng.below(5000).to_string(),
                2 => format!("word{}", rng.below(100)),
                _ => pick(rng, &["x", "eight_by", "a=b", "18446744073709551615", "\u{fc}ber", "007"])
                    .to_owned(),
            };
            if rng.below(2) == 0 {
                let text = pick(rng, &["red", "1a", "caf\u{e9}", "x^y"]).to_owned();
                line += &format!(":{}", if rng.below(4) == 0 { text } else { value(rng) });
            }
            line += pick(rng, &[" ", " ", "  ", "\t"]);
        }
    }
    line + pick(rng, &["", " ", "\r"])
}

fn csv_line(rng: &mut Rng) -> String {
    let text = |rng: &mut Rng| {
        pick(
            rng,
            &[
                "",
                "x",
                "17",
                "-2.5",
                " 3 ",
                "NA",
                "1e99",
                "\"a,b\"",
                "\"say \"\"no\"\"\"",
                " y ",
                "\u{e9}t\u{e9}",
                "\"\"",
            ],
        )
        .to_owned()
    };
    let number = match rng.below(4) {
        0 => pick(rng, &["", "NA", " NA "]).to_owned(),
        1 => format!("\"{}\"", value(rng)),
        _ => value(rng),
    };
    let (a, b) = (text(rng), text(rng));
    format!("{},{a},{number},\"not, this\",{b}{}", pick(rng, &["0", "1", "-1", " 1"]), pick(rng, &["", "\r"]))
}

fn criteo_line(rng: &mut Rng) -> String {
    let mut line = pick(rng, &["0", "1"]).to_owned();
    for _ in 0..13 {
        line += &match rng.below(6) {
            0 => "\t".to_owned(),
            1 => format!("\t-{}", rng.below(30)),
            2 => format!("\t{}", rng.next() >> (1 + rng.below(63))),
            _ => format!("\t{}", rng.below(20)),
        };
    }
    for _ in 0..26 {
        line += &match rng.below(8) {
            0 => "\t".to_owned(),
            1 => format!("\t{:x}", rng.below(1 << 20)),
            _ => format!("\t{:08x}", rng.next() as u32),
        };
    }
    line + pick(rng, &["", "\r"])
}

const COLUMNS: [(&str, Role); 5] = [
    ("label", Role::Label),
    ("a", Role::Categorical),
    ("n", Role::Numeric),
    ("not", Role::Skipped),
    ("b", Role::Both),
];

/// Reads the same text as one chunk, in single bytes, in two chunks cut at every byte, and from a file.
fn everywhere(data: Data, text: &str, line: impl Fn(&[u8]) -> Line) {
    let (mut want, wrong) = plain::all(text.as_bytes(), data.csv.delimiter, line);
    assert_eq!(wrong, 0, "{text:?}");
    let mixed = plain::settle(&mut want);
    let check = |sizes: &[usize], batch| {
        let found = read(&data, ByteChunks::new(text.as_bytes(), sizes), batch);
        if mixed {
            assert!(matches!(found, Err(ReadError::MixedLabels { .. })), "{sizes:?} {text:?}: {found:?}");
            return;
        }
        let (rows, bad) = found.unwrap();
        assert!(bad == 0 && same(&rows, &want), "{sizes:?} {text:?}: {rows:?}, not {want:?}");
    };
    check(&[usize::MAX], 256);
    check(&[1], 2);
    (1..text.len()).for_each(|cut| check(&[cut, usize::MAX], 3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn each_format_is_the_plain_way_wherever_it_is_cut(seed: u64, n in 1usize..4, newline: bool, mark: bool) {
        let mut rng = Rng(seed);
        let mut text = |line: fn(&mut Rng) -> String| {
            let lines: Vec<String> = (0..n).map(|_| line(&mut rng)).collect();
            format!("{}{}{}", if mark { "\u{feff}" } else { "" }, lines.join("\n"), if newline { "\n" } else { "" })
        };
        let of = |format| Data { format, ..Data::new("some") };
        everywhere(of(Format::Libsvm), &text(libsvm_line), |l| plain::libsvm(l, false));
        everywhere(of(Format::Vw), &text(vw_line), |l| plain::vw(l, false));
        everywhere(of(Format::Criteo), &text(criteo_line), |l| plain::criteo(l, false, Counts::Buckets));
        let log = Data { counts: Counts::Log, ..of(Format::Criteo) };
        everywhere(log, &text(criteo_line), |l| plain::criteo(l, false, Counts::Log));
        let names = |names: &[&str]| names.iter().map(|n| n.to_string()).collect::<Vec<_>>();
        let (categorical, numeric, both) = (names(&["a"]), names(&["n"]), names(&["b"]));
        let columns = ColumnChoice { categorical, numeric, both, ..ColumnChoice::default() };
        let header = "label,a,n,not,b";
        let text = format!("{header}\n{}", text(csv_line).trim_start_matches('\u{feff}'));
        let csv = CsvForm { delimiter: Some(b','), names: None };
        everywhere(Data { columns, csv, ..of(Format::Csv) }, &text,
            |l| if l == header.as_bytes() { None } else { plain::csv(l, b',', &COLUMNS) });
    }
}

fn one(format: Format, text: &str) -> Plain {
    let data = Data { format, unlabelled: true, ..Data::new("some") };
    let (mut rows, _) = read(&data, std::io::Cursor::new(text.to_owned()), 1).unwrap();
    assert_eq!(rows.len(), 1, "{text}");
    rows.pop().unwrap()
}

#[test]
fn vw_lines_mean_what_they_say() {
    let key = |space: &str, name: &str| text_key(text_key(0, space.as_bytes()), name.as_bytes());
    for (text, label, importance, base, features) in [
        ("1 | 7 12:0.5", 1.0, 1.0, 0.0, vec![(7, 1.0), (12, 0.5)]),
        ("-1 |", 0.0, 1.0, 0.0, vec![]),
        ("0 2.5 'id|u x:2", 0.0, 2.5, 0.0, vec![(key("u", "x"), 2.0)]),
        ("1 0.5 0 |u:3 x:2 y", 1.0, 0.5, 0.0, vec![(key("u", "x"), 6.0), (key("u", "y"), 3.0)]),
        ("1 0 tag|u 7", 1.0, 0.0, 0.0, vec![(key("u", "7"), 1.0)]),
        (
            "1 'a-tag |u x |v x |u y",
            1.0,
            1.0,
            0.0,
            vec![(key("u", "x"), 1.0), (key("v", "x"), 1.0), (key("u", "y"), 1.0)],
        ),
        (
            "| x 007 18446744073709551615",
            f32::NAN,
            1.0,
            0.0,
            vec![(key("", "x"), 1.0), (7, 1.0), (key("", "18446744073709551615"), 1.0)],
        ),
        ("'tag | 1", f32::NAN, 1.0, 0.0, vec![(1, 1.0)]),
        ("1|u x", f32::NAN, 1.0, 0.0, vec![(key("u", "x"), 1.0)]),
        ("1 |a|b x:1|c y", 1.0, 1.0, 0.0, vec![(key("b", "x"), 1.0), (key("c", "y"), 1.0)]),
        ("1 || 3 |\t4", 1.0, 1.0, 0.0, vec![(3, 1.0), (4, 1.0)]),
        ("1.0 1e0 | 3:1e1", 1.0, 1.0, 0.0, vec![(3, 10.0)]),
        // As in vw's first tutorial.
        (
            "0 1 0.5 'third_house | price:.53 age:.87",
            0.0,
            1.0,
            0.5,
            vec![(key("", "price"), 0.53), (key("", "age"), 0.87)],
        ),
        // A text is hashed under the key of the name, as in vw.
        (
            "1 |u:2 color:red size:3 | 7:x",
            1.0,
            1.0,
            0.0,
            vec![
                (text_key(key("u", "color"), b"red"), 2.0),
                (key("u", "size"), 6.0),
                (text_key(7, b"x"), 1.0),
            ],
        ),
    ] {
        let got = one(Format::Vw, text);
        let features = std::iter::once((INTERCEPT_KEY, 1.0)).chain(features).collect();
        assert!(
            same(std::slice::from_ref(&got), &[(label, [importance, base], features)]),
            "{text}: {got:?}"
        );
    }
}

#[test]
fn criteo_lines_have_the_keys_of_a_csv_file_with_these_columns() {
    let numbers = ["5", "-2", "", "1382", "0", "2", "3", "4096", "1", "7", "20", "8", "9"];
    let categories = [&["68fd1e64", ""], &["80e26c9b"; 2][..]].concat();
    let categories: Vec<&str> = categories.iter().copied().cycle().take(26).collect();
    let fields = [&numbers[..], &categories].concat().join("\t");
    let (label, _, features) = one(Format::Criteo, &format!("1\t{fields}\n"));
    assert_eq!((label, features.len()), (1.0, 40));
    let keys = |column: &str| ColumnKeys::new(column);
    assert_eq!(features[1], (keys("I1").categorical(b"2"), 1.0)); // floor(ln(5)^2)
    assert_eq!(features[2], (keys("I2").categorical(b"SP-2"), 1.0));
    assert_eq!(features[3], (keys("I3").missing(), 1.0));
    assert_eq!(features[4], (keys("I4").categorical(b"52"), 1.0));
    assert_eq!(features[14], (keys("C1").categorical(b"68fd1e64"), 1.0));
    // The categories have the keys of a CSV file.
    let header: Vec<String> = (1..=26).map(|i| format!("C{i}")).collect();
    let text = format!("label,{}\n1,{}\n", header.join(","), categories.join(","));
    assert_eq!(one(Format::Csv, &text).2[1..], features[14..]);
    // Without a label, with an empty label, and with the numbers as logarithms.
    assert_eq!(one(Format::Criteo, &fields).2, features);
    assert!(one(Format::Criteo, &format!("\t{fields}\r\n")).0.is_nan());
    let log = Data { format: Format::Criteo, counts: Counts::Log, ..Data::new("some") };
    let (rows, _) = read(&log, std::io::Cursor::new(format!("0\t{fields}")), 1).unwrap();
    assert_eq!(rows[0].2[1], (keys("I1").numeric(), 5f64.ln_1p() as f32));
    assert_eq!(rows[0].2[2], (keys("I2").numeric(), 0.0));
    assert_eq!(rows[0].2[3], (keys("I3").missing(), 1.0));
}

#[test]
fn formats_are_told_by_name_or_first_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = Rng(7);
    let criteo = criteo_line(&mut rng);
    let unlabelled = criteo.split_once('\t').unwrap().1.to_owned();
    for (name, text, format) in [
        ("a", criteo.as_str(), "criteo"),
        ("b.tsv", &criteo, "criteo"),
        ("c", &unlabelled, "criteo"),
        ("d", "1 | 1:2 3\n", "vw"),
        ("e", "-1 2 'x|ns a b:2\n", "vw"),
        ("f", "|ns a\n", "vw"),
        ("g", "1 1:1 |ns a:x\n", "vw"), // went wrong: vw says how
        ("h.vw", "1 1:2\n", "vw"),
        ("i.vw.zst", "1 1:2\n", "vw"),
        ("j", "1 1:2\n", "libsvm"),
        ("k", "a,b|c\n", "csv"),
    ] {
        let bytes =
            if name.ends_with("zst") { model::zst(text.as_bytes()) } else { text.as_bytes().to_vec() };
        let data = Data::new(&file(&folder, name, &bytes));
        assert_eq!(gannet_train::Reader::check(&data).unwrap(), Some(format), "{name}");
    }
    let unknown = Data::new(&file(&folder, "z", b"label|a|b\n"));
    let error = gannet_train::Reader::check(&unknown).unwrap_err().to_string();
    assert!(error.contains("unknown format") && error.contains("--format"), "{error}");
}
