//! `--row-type bf16` and `--row-type f16` from outside: what they save, what goes on from them, and what refuses them.

use crate::harness;
use crate::saving::{rows, scratch};

use gannet::storage::Checkpoint;
use harness::*;
use std::collections::BTreeMap;
use std::path::Path;

/// The rows of a saved model with their weights as f32.
fn wide_rows(folder: &Path) -> BTreeMap<u64, Vec<f32>> {
    let (checkpoint, mut all) = (Checkpoint::open(folder).unwrap(), BTreeMap::new());
    let schema = checkpoint.schema().clone();
    let put = |keys: &[u64], rows: &[f32]| {
        for (&key, row) in keys.iter().zip(rows.chunks_exact(schema.floats())) {
            let mut wide = Vec::new();
            schema.put_f32_row(row, &mut wide);
            all.insert(key, wide);
        }
    };
    checkpoint.read(put).unwrap();
    all
}

fn loss(done: &Done, name: &str) -> f64 {
    done.json()[name].as_f64().unwrap_or_else(|| panic!("{done:?}"))
}

#[test]
fn models_in_16_bits_are_smaller_and_as_good() {
    let folder = scratch();
    let f = folder.path();
    let train = clicks(&f.join("train.svm"), 6_000, 1).display().to_string();
    let test = clicks(&f.join("test.svm"), 2_000, 2).display().to_string();
    let images = format!("--data-dir {}", f.join("images").display());
    for (model, more) in [
        // Large initial factors: rows that the model does not have must be scored as its table would.
        ("--model fm --factors 16 --deviation 0.5", ""),
        ("--model fm --factors 5 --optimizer adam --alpha 0.01", ""),
        ("--model fm --factors 8 --optimizer row-adagrad --l2 0.001 --clip-norm 1", ""),
        ("--model deepfm --factors 8 --hidden 4", ""),
        ("--model softmax --classes 2", images.as_str()),
    ] {
        let [wide, bf16, f16] = ["f32", "bf16", "f16"].map(|row_type| {
            let out = f.join(row_type);
            for left in [&out, &f.join("images")] {
                let _ = std::fs::remove_dir_all(left);
            }
            let flags = format!("{model} {more} --push gradient --row-type {row_type} --json");
            let done = ok(&format!("train {train} --test {test} {flags} --out {}", out.display()));
            let floats = Checkpoint::open(&out).unwrap().schema().floats();
            (loss(&done, "test_logloss"), floats)
        });
        for (name, small, share) in [("bf16", bf16, 0.005), ("f16", f16, 0.002)] {
            assert!((small.0 / wide.0 - 1.0).abs() < share, "{model}: {} and {}", small.0, wide.0);
            assert!(small.1 < wide.1, "{model}: {} and {} floats", small.1, wide.1);
            let scores = ok(&format!("predict --model {} {test} --json", f.join(name).display()));
            assert!((loss(&scores, "logloss") - small.0).abs() < 1e-12, "{model}: {scores:?}");
        }
    }
}

/// A training goes on from a model of the other type with its weights and its optimizer's state.
#[test]
fn a_warm_start_changes_the_type() {
    let folder = scratch();
    let f = folder.path();
    let train = clicks(&f.join("train.svm"), 2_000, 1).display().to_string();
    let one = clicks(&f.join("one.svm"), 1, 7).display().to_string();
    let flags = "--model fm --factors 5 --push gradient";
    let at = |name: &str| f.join(name).display().to_string();
    ok(&format!("train {train} {flags} --out {}", at("wide")));
    let done =
        ok(&format!("train {one} {flags} --row-type bf16 --warm-start {} --out {}", at("wide"), at("small")));
    assert!(!done.err.contains("starts from zero"), "{done:?}");
    ok(&format!("train {one} {flags} --warm-start {} --out {}", at("small"), at("again")));
    // Factors that an f16 cannot store are refused.
    ok(&format!("train {one} {flags} --deviation 1e6 --out {}", at("huge")));
    let huge = format!("train {one} {flags} --warm-start {} --out {}", at("huge"), at("none"));
    refused(&format!("{huge} --row-type f16"), &["beyond the range of --row-type f16", "use --row-type f32"]);
    ok(&format!("{huge} --row-type bf16"));
    let [wide, small, again] = ["wide", "small", "again"].map(|name| wide_rows(&f.join(name)));
    let mut rounded = 0;
    for (key, row) in &wide {
        // A linear weight and its sum; five factors and their sums.
        let (row, now) = (&row[..], &small[key][..]);
        if now[1] != row[1] {
            continue; // one of the few rows of the new example
        }
        assert_eq!(
            (now[0], &now[7..]),
            (row[0], &row[7..]),
            "key {key}: the linear weight and all state stay"
        );
        for (now, before) in now[2..7].iter().zip(&row[2..7]) {
            assert_eq!(now.to_bits() & 0xffff, 0, "key {key}");
            assert!((now / before - 1.0).abs() <= 1.0 / 256.0, "key {key}: {now} and {before}");
            rounded += usize::from(now != before);
        }
        assert!(again[key] == small[key] || again[key][1] != small[key][1], "key {key}");
    }
    assert!(rounded > 100, "{rounded} rounded weights: the test shows nothing");
    // The same flags give the same bits.
    ok(&format!("train {one} {flags} --row-type bf16 --warm-start {} --out {}", at("wide"), at("twin")));
    assert_eq!(rows(&f.join("twin")), rows(&f.join("small")));
}

#[test]
fn what_cannot_have_16_bits_is_refused_by_name() {
    let folder = scratch();
    let data = clicks(&folder.path().join("train.svm"), 100, 1);
    let data = data.display();
    for (flags, why) in [
        ("", "a row has one weight"),
        ("--model linear", "a row has one weight"),
        ("--model lda", "--model lda"),
        ("--optimizer lbfgs", "--optimizer lbfgs"),
        ("--model fm --optimizer ftrl", "ftrl takes no weights in bf16: it stores no weights"),
        ("--model softmax --optimizer group-ftrl", "group-ftrl takes no weights in bf16"),
        ("--model fm --push replay", "cannot replay"),
    ] {
        refused(&format!("train {data} {flags} --row-type bf16"), &[why]);
        refused(&format!("train {data} {flags} --row-type f16"), &[&why.replace("bf16", "f16")]);
    }
    refused(
        &format!("train {data} --model fm --row-type f8"),
        &["--row-type", "[possible values: f32, bf16, f16]"],
    );
    refused(&format!("train {data} --model fm --row-type f16 --deviation 1e5"), &["beyond the largest f16"]);
    refused("bench --row-type f16", &["--row-type f16", "--dims"]);
    refused("bench --grow 1000 --row-type bf16 --dims 16", &["--row-type bf16", "--grow"]);
    // A table keeps its type.
    let images = folder.path().join("images");
    let stored = format!("train {data} --model fm --push gradient --data-dir {}", images.display());
    ok(&format!("{stored} --row-type bf16"));
    refused(&format!("{stored} --continue"), &["--row-type", "bf16", "f32"]);
    refused(&format!("{stored} --continue --row-type f16"), &["--row-type", "bf16", "f16"]);
}

/// A chain of trainings on the same data, each from the model before: steps far smaller than the distance between two
/// bf16 must add up over the chain, in each row. With the same chances in each training, a row would always move or
/// never.
#[test]
fn small_steps_add_up_over_warm_starts() {
    let folder = scratch();
    let f = folder.path();
    let keys = 400;
    let text: String = (1..=keys).map(|key| format!("1 {key}:1\n")).collect();
    let data = write(f, "one.svm", text);
    let flags = "--model softmax --classes 2 --optimizer sgd --no-intercept --batch 1 --row-type bf16";
    let out = |n: usize| f.join(format!("{n}")).display().to_string();
    ok(&format!("train {data} {flags} --alpha 2 --out {}", out(0)));
    let (first, rounds) = (wide_rows(&f.join("0")), 30);
    for n in 0..rounds {
        ok(&format!("train {data} {flags} --alpha 0.02 --warm-start {} --out {}", out(n), out(n + 1)));
    }
    let last = wide_rows(&f.join(rounds.to_string()));
    let moved: Vec<f32> = first.iter().map(|(key, row)| last[key][1] - row[1]).collect();
    let still = moved.iter().filter(|&&step| step == 0.0).count();
    let mean = moved.iter().sum::<f32>() / moved.len() as f32;
    // The first step is 0.02 * 0.12, and the distance between two bf16 is 0.0078: about 30% of these steps move a row.
    // With the same chances in each training 70% of the rows would never move.
    assert!(mean > 0.02, "the rows moved by {mean}");
    assert!(still < keys / 20, "{still} of {keys} rows never moved");
}
