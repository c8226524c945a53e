//! The readers' fuzz entries on bytes from a seed (`FUZZ_SEED`), for `FUZZ_SECONDS` (1 by default). The input is
//! correct lines of each format, and the same lines with bytes changed, removed and repeated. `scripts/fuzz.sh` runs
//! the long version.

#[path = "model/fuzzed.rs"]
mod entries;
mod model;
#[path = "model/plain.rs"]
mod plain;

use model::Rng;
use std::time::{Duration, Instant};

/// Words that make up lines.
const LIBSVM: &[&str] = &[
    "1 ",
    "0 ",
    "-1 ",
    "+1 ",
    "7:1 ",
    "12:0.5 ",
    "99999999:1e-3 ",
    "8:",
    "18446744073709551615 ",
    "123456789012:-2.25",
    "#",
    " ",
    "\t",
    "\r\n",
    "\n",
    "\n1 ",
    "nan",
    ":",
];
const VW: &[&str] = &[
    "1 |",
    "-1 |",
    "0 2.5 |",
    "1 0.5 0 'tag|",
    "'tag|",
    " ",
    "|",
    "| ",
    "|a ",
    "|b:0.5 ",
    "user=7 ",
    "7 ",
    "12:3 ",
    "x:-1.5 ",
    "1234567:1 ",
    "long_name_of_a_feature:0.25",
    ":",
    "\t",
    "\n",
    "\r\n",
    "shared |",
    "1:2:3 |",
    "\u{e9}",
    "1e39 ",
    "\n1 |",
];
const LIBFFM: &[&str] = &[
    "1 ",
    "0 ",
    "-1 ",
    "0:7:1 ",
    "3:12:0.5 ",
    "65535:9:1e-3 ",
    "65536:1:1 ",
    "1:8:",
    "2:18446744073709551615:1 ",
    "1:2 ",
    "#",
    " ",
    "\t",
    "\r\n",
    "\n",
    "\n1 ",
    "nan",
    ":",
];
const JSON: &[&str] = &[
    "{",
    "}",
    "{\"label\":1,",
    "{\"label\":0}",
    "\"a\":",
    "\"b\":",
    "\"x\"",
    "\"\\u00e9\"",
    "\"\\n\\\"\"",
    "1",
    "-2.5e3",
    "1e999",
    "true",
    "null",
    "[",
    "]",
    "[1,\"y\",null]",
    "{\"c\":2}",
    ",",
    ":",
    " ",
    "\n",
    "\r\n",
    "\u{e9}",
    "\\",
    "\"",
    "{\"label\":1,\"a\":\"x\",\"b\":[1,2]}\n",
    "\"\\ud800\"",
];
const VW_JSON: &[&str] = &[
    "{\"_label\":1",
    "{\"_label\":{\"Label\":0,\"Weight\":2,\"Initial\":-1}",
    "{\"_label\":\"1\"",
    "{",
    "}",
    "}\n",
    ",",
    ",\"ns\":{\"x\":1,\"color\":\"red\"}",
    ",\"list\":[1,2.5,-3]",
    ",\"words\":[\"x\",\"y\"]",
    ",\"_text\":\"big  red\"",
    ",\"_tag\":\"t\"",
    ",\"17\":2",
    ",\"a\":{\"b\":{\"c\":true}}",
    ",\"n\":1e99",
    ",\"z\":null",
    "[",
    "]",
    "\"\\u00e9\"",
    "\n",
    "\r\n",
    " ",
];
const CSV: &[&str] = &[
    "1,",
    "0,",
    "\t",
    ",",
    "\"",
    "\"a,b\"",
    "\"\"",
    "x",
    "NA",
    "1.5",
    "-2e3",
    "\n",
    "\r\n",
    "1,a,2,c,d\n",
    "1\ta\t2\tc\td\n",
    "0,\"q\"\"q\",,\"\",z\n",
    "label",
    "nan",
];
const CRITEO: &[&str] = &[
    "1\t",
    "0\t",
    "\t",
    "\t",
    "\t",
    "5\t",
    "-1\t",
    "4096\t",
    "9223372036854775807\t",
    "68fd1e64\t",
    "68fd1e64",
    "\n",
    "\r\n",
    "x\t",
    "1\t1\t\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2",
    "\t68fd1e64\t80e26c9b\tfb936136\t7b4723c4\t25c83c98\t7e0ccccf\tde7995b8\t1f89b562\ta73ee510\ta8cd5504\tb2cb9c98\t37c9c164\t2824a5f6\t1adce6ef\t8ba8b39a\t891b62e7\te5ba7672\tf54016b9\t21ddcdc9\tb1252a9d\t07b5194c\t\t3a171ecb\tc5c50484\te8b83407\t9727dd16",
];

/// Calls `entry` with words of the format, some of them changed.
fn feed(words: &[&str], entry: impl Fn(&[u8])) -> u64 {
    let number = |name, default| {
        std::env::var(name)
            .map_or(default, |text| text.parse().expect("FUZZ_SECONDS and FUZZ_SEED are numbers"))
    };
    let (seconds, seed) = (number("FUZZ_SECONDS", 1), number("FUZZ_SEED", 0));
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut rng, mut calls) = (Rng(0x6675_7A7A ^ seed), 0);
    // A busy machine does less in a second.
    while calls <= 100 || Instant::now() < end {
        let mut bytes: Vec<u8> = (0..4).map(|_| rng.next() as u8).collect();
        for _ in 0..rng.below(60) {
            bytes.extend_from_slice(words[rng.below(words.len() as u64) as usize].as_bytes());
        }
        for _ in 0..rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => bytes[at] = rng.next() as u8,
                1 => bytes.insert(at, rng.next() as u8),
                _ => bytes.truncate(at.max(4)),
            }
        }
        entry(&bytes);
        calls += 1;
    }
    calls
}

#[test]
fn libsvm_lines() {
    assert!(feed(LIBSVM, entries::libsvm) > 100);
}

#[test]
fn libffm_lines() {
    assert!(feed(LIBFFM, entries::libffm) > 100);
}

#[test]
fn json_lines() {
    assert!(feed(JSON, entries::json) > 100);
}

#[test]
fn vw_json_lines() {
    assert!(feed(VW_JSON, entries::vw_json) > 100);
}

#[test]
fn vw_lines() {
    assert!(feed(VW, entries::vw) > 100);
}

#[test]
fn csv_lines() {
    assert!(feed(CSV, entries::csv) > 100);
}

#[test]
fn criteo_lines() {
    assert!(feed(CRITEO, entries::criteo) > 100);
}

#[test]
fn packed_bytes() {
    assert!(feed(LIBSVM, entries::packed) > 100);
}
