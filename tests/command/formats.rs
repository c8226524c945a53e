//! Data as users have it, tested from outside:
//! - Criteo's logs and Vowpal Wabbit text train the same model as the same examples in libsvm.
//! - Packed or split data, a folder and a pattern give the same result as one file.
//! - Workers of a job train each record once.
//! - Messages about bad lines name their place.

use crate::harness;

use gannet::train::{ColumnKeys, text_key};
use harness::*;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

/// splitmix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) % n
    }
}

fn gzip(text: &str) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(text.as_bytes()).unwrap();
    packer.finish().unwrap()
}

fn zst(text: &str) -> Vec<u8> {
    zstd::encode_all(text.as_bytes(), 1).unwrap()
}

/// Splits the text before these lines.
fn cut<'a>(text: &'a str, at: &[usize]) -> Vec<&'a str> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let offset = |n: usize| lines[..n].iter().map(|l| l.len()).sum::<usize>();
    let ends: Vec<usize> = at.iter().map(|&n| offset(n)).chain([text.len()]).collect();
    let starts = [0].into_iter().chain(ends.iter().copied());
    starts.zip(&ends).map(|(start, &end)| &text[start..end]).collect()
}

/// The result of a training: its report without everything that depends on time or the format's name, and the
/// probabilities of its model.
fn learned(folder: &Path, data: &str, test: &str, flags: &str) -> (Vec<String>, String) {
    let model = folder.join("model");
    let done = run(&format!("train {data} --test {test} --out {} --json {flags}", model.display()));
    assert_eq!(done.code, Some(0), "{data} {flags}: {done:?}");
    let report = done.json();
    let of = |name: &&str| report[*name].to_string();
    let numbers =
        ["examples", "rows", "logloss", "auc", "calibration", "test_logloss", "test_auc", "bad_lines"];
    let numbers: Vec<String> = numbers.iter().map(of).collect();
    let scores = run(&format!("predict --model {} {test}", model.display()));
    assert_eq!(scores.code, Some(0), "{data}: {scores:?}");
    (numbers, scores.out)
}

/// Lines in Criteo's format, and the same examples in libsvm, with the numbers as buckets and as logarithms.
fn criteo(n: usize, seed: u64) -> (String, String, String) {
    let mut rng = Rng(seed);
    let (mut tsv, mut buckets, mut logarithms) = (String::new(), String::new(), String::new());
    for _ in 0..n {
        let label = u8::from(rng.below(4) == 0);
        for text in [&mut tsv, &mut buckets, &mut logarithms] {
            write!(text, "{label}").unwrap();
        }
        for i in 1..=13 {
            let keys = ColumnKeys::new(&format!("I{i}"));
            let x = match rng.below(10) {
                0 => None,
                1 => Some(-(rng.below(30) as i64)),
                2 => Some(rng.below(1 << 40) as i64),
                _ => Some(rng.below(4) as i64 + 60 * i64::from(label) * rng.below(2) as i64),
            };
            let Some(x) = x else {
                tsv.push('\t');
                write!(buckets, " {}:1", keys.missing()).unwrap();
                write!(logarithms, " {}:1", keys.missing()).unwrap();
                continue;
            };
            write!(tsv, "\t{x}").unwrap();
            let category = if x > 2 { (x as f64).ln().powi(2).floor().to_string() } else { format!("SP{x}") };
            write!(buckets, " {}:1", keys.categorical(category.as_bytes())).unwrap();
            write!(logarithms, " {}:{}", keys.numeric(), (x.max(0) as f64).ln_1p() as f32).unwrap();
        }
        for i in 1..=26 {
            let keys = ColumnKeys::new(&format!("C{i}"));
            let value = match rng.below(8) {
                0 => String::new(),
                _ => {
                    let id = rng.below(20) + u64::from(label) * rng.below(3);
                    format!("{:08x}", id * 0x0bad_cafe % (1 << 32))
                }
            };
            write!(tsv, "\t{value}").unwrap();
            let key = keys.categorical(value.as_bytes());
            write!(buckets, " {key}:1").unwrap();
            write!(logarithms, " {key}:1").unwrap();
        }
        for text in [&mut tsv, &mut buckets, &mut logarithms] {
            text.push('\n');
        }
    }
    (tsv, buckets, logarithms)
}

#[test]
fn criteo_logs_learn_what_the_same_examples_in_libsvm_do() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (train, test) = (criteo(3000, 1), criteo(500, 2));
    let (tsv, test_tsv) = (write(f, "train.txt", train.0), write(f, "test.txt", &test.0));
    for (flags, train, test) in [("", train.1, test.1), ("--criteo-counts log", train.2, test.2)] {
        let svm = learned(f, &write(f, "train.svm", train), &write(f, "test.svm", test), "");
        let found = learned(f, &tsv, &test_tsv, flags);
        assert_eq!(found, svm, "{flags}");
        assert_eq!(found.1.lines().count(), 500);
    }
    // Criteo's own test files have no label field. The model remembers how the numbers are read.
    let model = f.join("model").display().to_string();
    let bare: String = test.0.lines().map(|l| format!("{}\n", l.split_once('\t').unwrap().1)).collect();
    let bare = run(&format!("predict --model {model} {}", write(f, "bare.txt", bare)));
    assert_eq!(bare.out, run(&format!("predict --model {model} {test_tsv}")).out, "{bare:?}");
    let other = run(&format!("predict --model {model} {test_tsv} --criteo-counts buckets"));
    assert_eq!(other.code, Some(2), "{other:?}");
}

/// Lines in Vowpal Wabbit's format, and the same examples in libsvm. Each line's number has a key that occurs in this
/// line alone.
fn vw(n: u64, seed: u64) -> (String, String) {
    let (mut rng, mut text, mut svm) = (Rng(seed), String::new(), String::new());
    for i in 0..n {
        let label = rng.below(2);
        let (a, b) = (rng.below(50) + 20 * label * rng.below(2), rng.below(400));
        let value = rng.below(1000) as f32 / 300.0;
        let tag = ["", "'tag", "1.0 'tag "][rng.below(3) as usize];
        let sign = ["-1", "1"][label as usize];
        writeln!(text, "{sign} {tag}| {} {a}:{value} |user u{b} age:0.5", 1_000_000 + i).unwrap();
        let named = |name: &str| text_key(text_key(0, b"user"), name.as_bytes());
        let (user, age) = (named(&format!("u{b}")), named("age"));
        writeln!(svm, "{label} {}:1 {a}:{value} {user}:1 {age}:0.5", 1_000_000 + i).unwrap();
    }
    (text, svm)
}

#[test]
fn vw_text_learns_what_the_same_examples_in_libsvm_do() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (train, test) = (vw(3000, 1), vw(500, 2));
    let text = (write(f, "train.vw", train.0), write(f, "test.vw", &test.0));
    let svm = learned(f, &write(f, "train.svm", &train.1), &write(f, "test.svm", test.1), "");
    let found = learned(f, &text.0, &text.1, "");
    assert_eq!(found, svm);
    // Without labels the probabilities are the same.
    let bare: String = test.0.lines().map(|l| format!("{}\n", &l[l.find('|').unwrap()..])).collect();
    let model = f.join("model");
    let bare = run(&format!("predict --model {} {}", model.display(), write(f, "bare.vw", bare)));
    assert_eq!(bare.out, found.1, "{bare:?}");
    // If the negative examples have importance 0, only the positive ones count, and the intercept soon shows it.
    let mut weighted = String::new();
    for (label, rest) in train.1.lines().map(|l| l.split_once(' ').unwrap()) {
        let importance = if label == "1" { 2 } else { 0 };
        writeln!(weighted, "{label} {importance} | {rest}").unwrap();
    }
    let report = run(&format!("train {} --json", write(f, "weighted.vw", weighted))).json();
    assert_eq!(report["examples"], 3000);
    assert!(report["logloss"].as_f64().unwrap() < 0.2, "{report}");
}

#[test]
fn packed_split_and_named_in_any_way_the_data_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (text, test) = (vw(4000, 3).1, vw(500, 4).1);
    let test = write(f, "test.svm", test);
    let whole = learned(f, &write(f, "whole.svm", &text), &test, "");
    let parts = cut(&text, &[1, 700, 701, 2500]);
    let members = parts.iter().flat_map(|part| gzip(part)).collect::<Vec<u8>>();
    let frames = parts.iter().flat_map(|part| zst(part)).collect::<Vec<u8>>();
    let bytes: [Vec<u8>; 5] = [
        parts[0].trim_end().as_bytes().to_vec(),
        gzip(parts[1]),
        zst(parts[2]),
        [gzip(cut(parts[3], &[9])[0]), gzip(cut(parts[3], &[9])[1])].concat(),
        parts[4].as_bytes().to_vec(),
    ];
    let names = ["0.svm", "1.svm.gz", "2.svm.zst", "3.gz", "4.svm"];
    let files: Vec<String> =
        names.iter().zip(bytes).map(|(name, bytes)| write(f, &format!("days/part-{name}"), bytes)).collect();
    write(f, "days/_SUCCESS", "");
    let named = [
        write(f, "members.svm.gz", members),
        write(f, "frames.svm.zst", &frames),
        write(f, "called-wrongly", &frames),
        files.join(" "),
        f.join("days").display().to_string(),
        format!("{}/part-*", f.join("days").display()),
        format!("{}/**/part-[01]* {}/d?ys/part-[2-4]*", f.display(), f.display()),
    ];
    for data in &named {
        assert_eq!(learned(f, data, &test, ""), whole, "{data}");
    }
    // Predictions of many files are those of one file, in order.
    let model = f.join("model").display().to_string();
    let of = |data: &str| run(&format!("predict --model {model} {data}")).out;
    let expected = of(&format!("{}/whole.svm", f.display()));
    assert_eq!(expected.lines().count(), 4000);
    named.iter().for_each(|data| assert_eq!(of(data), expected, "{data}"));
    // A test set may have many files too.
    let parts = cut(&text, &[2000]);
    let halves = [write(f, "half/a.zst", zst(parts[0])), write(f, "half/b.gz", gzip(parts[1]))];
    let whole = learned(f, &test, &format!("{}/whole.svm", f.display()), "").0;
    for tests in [halves.join(" --test "), format!("{}/half", f.display())] {
        let done = run(&format!("train {test} --json --test {tests}")).json();
        assert_eq!(
            [&whole[5], &whole[6]],
            [&done["test_logloss"].to_string(), &done["test_auc"].to_string()]
        );
    }
}

/// Each record has a key of its own. So the rows show that each record came, and the examples show that none came
/// twice.
#[test]
fn workers_of_a_job_train_each_record_of_many_files_once() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let text = vw(6000, 5).0;
    let pack = [|t: &str| t.as_bytes().to_vec(), gzip, zst];
    for (i, part) in cut(&text, &[1, 2, 130, 131, 1000, 3999, 5990]).into_iter().enumerate() {
        write(f, &format!("days/{i}.vw"), pack[i % 3](part));
    }
    let days = f.join("days").display().to_string();
    let alone = run(&format!("train {days} --json --batch 100")).json();
    assert!(alone["rows"].as_u64().unwrap() > 6000 && alone["examples"] == 6000, "{alone}");
    let served = Served::start(gannet("server --listen 127.0.0.1:0 --threads 1"));
    let worker = |index| {
        gannet(&format!(
            "train {days}/*.vw --json --batch 100 --ps-hosts {} --worker-hosts 127.0.0.1:9,127.0.0.1:10 \
             --job-name worker --task-index {index} --tasks off --peer-timeout 20",
            served.addr
        ))
    };
    let workers = [Process::start(worker(0)), Process::start(worker(1))];
    let reports = workers.map(|w| w.wait().json());
    let examples = reports.each_ref().map(|r| r["examples"].as_u64().unwrap());
    assert_eq!(examples, [3000, 3000], "every other batch of 100");
    // The worker that ends last has seen all the rows.
    let rows = reports.iter().map(|r| r["rows"].as_u64().unwrap()).max();
    assert_eq!(rows, alone["rows"].as_u64(), "{reports:?}");
}

#[test]
fn bad_lines_are_named_in_their_file_and_counted_over_all() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let tsv = criteo(40, 7).0;
    let (good, vw) = (cut(&tsv, &[20]), vw(40, 8).0);
    // The fourth line without its last field.
    let short = cut(&tsv, &[3, 4])[1].rsplit_once('\t').unwrap().0;
    let spoiled = [cut(&tsv, &[3])[0], short, "\n", good[1]].concat();
    let cases = [
        (write(f, "c/a.txt", good[0]), write(f, "c/b.gz", gzip(&spoiled)), 4, "found 39"),
        (
            write(f, "v/a.vw", &vw),
            write(f, "v/b.vw.zst", zst(&format!("{vw}7 | 1:1\n{vw}"))),
            41,
            "expected a label -1, 0 or 1",
        ),
        (write(f, "s/a.svm", "1 1:1\n0 2:1\n"), write(f, "s/b.svm", "# comment\n\n1 3:x\n0 1:1\n"), 3, "3:x"),
    ];
    for (a, b, line, expected) in &cases {
        let done = run(&format!("train {a} {b}"));
        assert_eq!((done.code, done.err.trim().lines().count()), (Some(2), 1), "{done:?}");
        assert!(done.err.contains(&format!("{b}:{line}: ")) && done.err.contains(expected), "{done:?}");
    }
    // Two bad lines in each of three files.
    let some = |name| write(f, name, "1 1:1\nx\n0 2:1\n1 3:y\n");
    let files = ["t/1.svm", "t/2.svm", "t/3.svm"].map(some);
    let all = f.join("t").display().to_string();
    let done = run(&format!("train {all} --skip-bad-lines 6 --json"));
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!((&done.json()["bad_lines"], &done.json()["examples"]), (&6.into(), &6.into()));
    // The first five are shown.
    for (file, line) in files.iter().flat_map(|file| [(file, 2), (file, 4)]).take(5) {
        assert!(done.err.contains(&format!("{file}:{line}: ")), "{file}:{line} in {done:?}");
    }
    let done = run(&format!("train {all} --skip-bad-lines 4"));
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains(&format!("{}:2: ", files[2])), "the fifth: {done:?}");
}

/// Once such a training ended with `0 examples` and exit code 0.
#[test]
fn lines_of_which_none_is_an_example_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let out = f.join("m").display().to_string();
    let bad = write(f, "bad.svm", "1 1:x\n".repeat(50));
    let bare = write(f, "bare.vw", "|a x\n 'tag |a y\n".repeat(25));
    let both = write(f, "both.vw", "|a x\n7 |a x\n".repeat(25));
    let json = write(f, "bare.json", "{\"a\": 1}\n{\"_tag\": 1, \"b\": {\"c\": 2}}\n");
    for (data, says) in [
        (
            format!("{bad} --skip-bad-lines 60"),
            &["bad.svm: none of its 50 lines", "all were skipped", "bad.svm:1:"][..],
        ),
        (bare.clone(), &["bare.vw: none of its 50 lines", "no line has a label", "gannet predict"]),
        (
            format!("{both} --skip-bad-lines 60"),
            &["none of its 50 lines", "25 were skipped", "the others have no label"],
        ),
        (format!("{json} --format vw-json"), &["none of its 2 lines", "no line has a label"]),
        (
            format!("{bare} {json} --format vw --skip-bad-lines 9"),
            &["bare.vw and 1 more", "the others have no label"],
        ),
    ] {
        for flags in ["", "--threads 3 --batch 7", "--model fm --epochs 2", "--optimizer lbfgs --l2 1"] {
            refused(&format!("train {data} {flags}"), says);
        }
        refused(&format!("train {data} --out {out}"), says);
        assert_eq!(std::fs::read_dir(&out).map_or(0, Iterator::count), 0, "{data}: no model is saved");
    }
    // Some lines are enough, and a test set without labels ends no training.
    let some = write(f, "some.vw", "|a x\n1 |a y\n");
    let done = ok(&format!("train {some} --test {bare} --json"));
    assert!(done.err.contains("nothing to test on") && done.json()["test_logloss"].is_null(), "{done:?}");
    let scored = ok(&format!("train {some} --out {out}"));
    assert!(scored.out.contains("1 examples"), "{scored:?}");
    assert_eq!(ok(&format!("predict --model {out} {bare}")).out.lines().count(), 50);
}

/// As [`lines_of_which_none_is_an_example_are_an_error`], in jobs. Once such a job ended well.
#[test]
fn a_job_that_learned_nothing_fails_and_a_worker_without_a_share_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let bare = write(f, "bare.vw", "|a x\n".repeat(600));
    let few = write(f, "few.vw", "1 |a x\n-1 |a y\n");
    for (data, model, tasks, chiefs) in [
        (&bare, "lr", "off", 1),
        (&bare, "fm", "off", 1),
        (&bare, "lr", "on", 1),
        (&few, "lr", "off", 0),
        (&few, "lr", "on", 0),
    ] {
        let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 1"));
        let hosts = format!("--ps-hosts {} --worker-hosts 127.0.0.1:1,127.0.0.1:2", server.addr);
        let worker = |i: u32| {
            let line = format!("train {data} --model {model} --batch 64 --tasks {tasks} {hosts}");
            Process::start(gannet(&format!("{line} --job-name worker --task-index {i} --peer-timeout 30")))
        };
        let done = [worker(0), worker(1)].map(Process::wait);
        let failed: Vec<_> = done.iter().filter(|done| done.code != Some(0)).collect();
        let says =
            |done: &&Done| done.code == Some(2) && done.err.contains("no line that was read is an example");
        assert!(failed.len() == chiefs && failed.iter().all(says), "{data} {model} {tasks}: {done:?}");
        server.stop();
    }
}
