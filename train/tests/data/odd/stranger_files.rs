//! The files of public reports (2026-11-27), and Criteo's logs.

use super::run::{Case, Count, Error, Rows, text, with};

/// Thirteen numbers and 26 categories, with one field changed.
fn criteo(field: usize, value: &str) -> Vec<u8> {
    let mut fields: Vec<&str> = vec!["1"; 14];
    fields.extend(["68fd1e64"; 26]);
    fields[field] = value;
    fields.join("\t").into_bytes()
}

/// Numbers that look as if drawn.
fn drawn(at: u64) -> u64 {
    let x = at.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (x ^ x >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 20
}

pub fn cases() -> Vec<Case> {
    [reports(), criteo_logs(), no_data()].into_iter().flatten().collect()
}

fn reports() -> Vec<Case> {
    let lines = |n: u64, line: &dyn Fn(u64) -> String| (0..n).map(line).collect::<String>();
    let breaks = "\u{feff}label,a,b\r\n1,\"x, \"\"y\"\"\nz\",3\r\n0,w,\r\n1,\"q\",4\r\n";
    let index = ",label,a,b\n".to_owned()
        + &lines(2000, &|i| format!("{i},{},a{},{}.25\n", drawn(i) % 2, drawn(i + 9) % 50, drawn(i)));
    let rare = lines(20_000, &|i| {
        format!("{} {}:1 {}:1\n", u8::from(i % 2000 == 7), drawn(i) % 1000, 1000 + drawn(i) % 50)
    });
    let unscaled = lines(5000, &|i| {
        format!(
            "{} 1:{} 2:2610 4:1 11:0.{:06}\n",
            drawn(i) % 2,
            500_000 + drawn(i) % 40_000,
            drawn(i) % 1_000_000
        )
    });
    let wide = lines(40, &|i| {
        format!(
            "{} {}\n",
            i % 2,
            (0..1500)
                .map(|at| format!("{at}:0.{:04}", drawn(i * 1500 + at) % 10_000))
                .collect::<Vec<_>>()
                .join(" ")
        )
    });
    let counts = "label,n0,n1,c0\n".to_owned()
        + &lines(3000, &|i| match i % 3 {
            0 => format!("{},,,a{}\n", i % 2, i % 30),
            _ => format!("{},{},,a{}\n", i % 2, drawn(i), i % 30),
        });
    vec![
        text(
            "a file for ranking",
            "qid.svm",
            "1 qid:1 1:0.5 2:1\n0 qid:1 3:1\n1 qid:2 1:1 3:2\n",
            Rows("1¦1:0.5¦2:1§0¦3:1§1¦1:1¦3:2"),
        ),
        text(
            "libffm",
            "fields.ffm",
            "1 1:10:0.5 2:70:1\n0 1:30:1 2:80:1\n1 1:10:1 2:70:0.25\n",
            Rows("1¦10:0.5¦70:1§0¦30:1¦80:1§1¦10:1¦70:0.25"),
        ),
        text(
            "breaks, quotes, commas, CRLF and a mark",
            "breaks.csv",
            breaks,
            Rows("1¦a=x, \"y\"\nz¦b=3§0¦a=w¦b=§1¦a=q¦b=4"),
        ),
        with(
            "the same, with a number",
            "breaks.csv",
            breaks,
            "numeric=b",
            Rows("1¦a=x, \"y\"\nz¦b#3§0¦a=w¦b?§1¦a=q¦b#4"),
        ),
        text(
            "JSON lines",
            "clicks.jsonl",
            "{\"label\":1,\"a\":\"x\",\"n\":0.5,\"tags\":[\"u\",\"v\"]}\n{\"label\":0,\"a\":\"y\",\"n\":null,\"tags\":[]}\n",
            Rows("1¦a=x¦n=0.5¦tags=u¦tags=v§0¦a=y¦n="),
        ),
        text("the index of pandas", "index.csv", index, Count(2000)),
        text("one click in 2,000", "rare.svm", rare, Count(20_000)),
        text("numbers of different sizes", "unscaled.svm", unscaled, Count(5000)),
        text("dense and wide", "wide.svm", wide, Count(40)),
        with("counts, half missing", "counts.csv", counts, "numeric=n0,n1", Count(3000)),
    ]
}

fn criteo_logs() -> Vec<Case> {
    vec![
        text("Criteo", "day_0", criteo(0, "1"), Count(1)),
        with("Criteo: a fraction", "day_0", criteo(3, "1.5"), "format=criteo", Error(&[":1: ", "column I3"])),
        text("Criteo: an empty label", "day_0", criteo(0, ""), Error(&[":1: ", "a label"])),
        text("Criteo: a label that is text", "day_0", criteo(0, "x"), Error(&["day_0"])),
        text(
            "Criteo: 39 fields behind a good line",
            "day_0",
            [criteo(0, "1"), b"\n1\t2\t3\n".to_vec()].concat(),
            Error(&[":2: ", "found 3"]),
        ),
        text("Criteo: CRLF", "day_0", [criteo(0, "1"), b"\r\n".to_vec()].concat().repeat(3), Count(3)),
        text(
            "Criteo: too large a number",
            "day_0",
            criteo(1, "9223372036854775808"),
            Error(&[":1: ", "fits 64 bits"]),
        ),
        text(
            "Criteo: NaN",
            "day_0",
            [criteo(0, "1"), b"\n".to_vec(), criteo(13, "nan")].concat(),
            Error(&[":2: ", "column I13"]),
        ),
    ]
}

fn no_data() -> Vec<Case> {
    vec![
        text("an unknown format", "z", "label|a|b\n", Error(&["unknown format", "--format"])),
        text("a word", "z", "hello\n", Error(&["unknown format"])),
        text("a picture", "z.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", Error(&["z.png"])),
        text("NULs alone", "z", [0u8; 4096], Error(&["unknown format"])),
        text("YAML", "z", "- label: 1\n  a: x\n", Error(&["unknown format"])),
        text("XML", "z", "<?xml version=\"1.0\"?>\n<rows/>\n", Error(&["unknown format"])),
    ]
}
