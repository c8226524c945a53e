//! Importance weights: an example counts as often as its line says, in its gradient and in the measures, with every
//! way to learn.

use crate::model;

use gannet_core::Schema;
use gannet_optim::{Ftrl, Rule, Sgd};
use gannet_train::{Backend, Data, FlatTable, Format, Options, PushContent, Report, train};
use model::{Example, MapRows, Rng, examples, file};
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

const RULE: Ftrl = Ftrl { alpha: 0.1, beta: 1.0, l1: 0.3, l2: 0.5 };

/// The examples as vw text. `importance` returns the text after the label.
fn vw(examples: &[Example], importance: impl Fn(usize) -> String) -> String {
    let line = |(i, (label, features)): (usize, &Example)| {
        let features: String = features.iter().map(|(key, value)| format!(" {key}:{value}")).collect();
        format!("{}{} |{features}\n", if *label > 0.5 { "1" } else { "-1" }, importance(i))
    };
    examples.iter().enumerate().map(line).collect()
}

fn run<B: Backend>(mut backend: B, path: &str, batch: usize, push: Option<PushContent>) -> (Report, B) {
    let data = Data { format: Format::Vw, ..Data::new(path) };
    let options = Options { batch, push, ..Options::new(data) };
    let report = train(&options, &mut backend, &AtomicBool::new(false), &mut |_| {}).unwrap();
    (report, backend)
}

fn flat() -> FlatTable {
    FlatTable::new(&Schema::scalar("lr", Rule::Ftrl(RULE))).unwrap()
}

/// FTRL as the paper writes it, in f64, with an intercept that has no penalty: its weighted mean log loss.
fn online(examples: &[Example], importances: &[f64]) -> f64 {
    let mut rows: HashMap<u64, [f64; 2]> = HashMap::new();
    let [alpha, beta, l1, l2] = [RULE.alpha, RULE.beta, RULE.l1, RULE.l2].map(f64::from);
    let weight = |key: u64, [z, n]: [f64; 2]| {
        let [l1, l2] = if key == u64::MAX { [0.0; 2] } else { [l1, l2] };
        -(z.abs() - l1).max(0.0).copysign(z) / ((beta + n.sqrt()) / alpha + l2)
    };
    let (mut loss, mut mass) = (0.0, 0.0);
    for ((label, features), importance) in examples.iter().zip(importances) {
        let mut merged: HashMap<u64, f64> = HashMap::from([(u64::MAX, 1.0)]);
        features.iter().for_each(|&(key, value)| *merged.entry(key).or_default() += f64::from(value));
        let weights: HashMap<u64, f64> =
            merged.keys().map(|k| (*k, weight(*k, rows.get(k).copied().unwrap_or_default()))).collect();
        let margin: f64 = merged.iter().map(|(k, v)| weights[k] * v).sum();
        let p = 1.0 / (1.0 + (-margin).exp());
        loss -= importance * if *label > 0.5 { p.ln() } else { (1.0 - p).ln() };
        mass += importance;
        for (key, value) in merged {
            let g = importance * (p - f64::from(*label)) * value;
            let [z, n] = rows.entry(key).or_default();
            *z += g - ((*n + g * g).sqrt() - n.sqrt()) / alpha * weights[&key];
            *n += g * g;
        }
    }
    loss / mass
}

/// Every row, bit by bit.
fn bits<B: Backend>(backend: &mut B) -> HashMap<u64, Vec<u32>> {
    let (floats, mut found) = (backend.schema().floats(), HashMap::new());
    backend
        .scan(&mut |keys, rows| {
            let rows = rows.chunks_exact(floats).map(|row| row.iter().map(|v| v.to_bits()).collect());
            found.extend(keys.iter().copied().zip(rows));
        })
        .unwrap();
    found
}

#[test]
fn they_multiply_the_gradient_and_weigh_the_loss() {
    let folder = tempfile::tempdir().unwrap();
    let data = examples(4_000, 3);
    let mut rng = Rng(9);
    let importances: Vec<f64> =
        (0..data.len()).map(|_| [0.0, 0.25, 1.0, 1.0, 2.5, 7.0][rng.below(6) as usize]).collect();
    let path = file(&folder, "a.vw", vw(&data, |i| format!(" {}", importances[i])).as_bytes());
    let want = online(&data, &importances);
    let unweighted = online(&data, &vec![1.0; data.len()]);
    assert!((want / unweighted - 1.0).abs() > 1e-3, "the weights matter here");
    let rows = |depth| MapRows::new(Rule::Ftrl(RULE), depth, false);
    let gradient = Some(PushContent::Gradient);
    for (what, report) in [
        ("in place", run(flat(), &path, 64, None).0),
        ("replay", run(rows(2), &path, 256, None).0),
        ("gradients one by one", run(rows(0), &path, 1, gradient).0),
    ] {
        let quality = report.progressive.unwrap();
        let quality = quality.click().unwrap();
        assert!((quality.log_loss / want - 1.0).abs() < 1e-5, "{what}: {}, not {want}", quality.log_loss);
        assert_eq!((report.examples, quality.examples), (4_000, 4_000), "{what}");
    }
}

#[test]
fn an_importance_of_one_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let data = examples(1_000, 4);
    let plain = file(&folder, "plain.vw", vw(&data, |_| String::new()).as_bytes());
    let ones = file(
        &folder,
        "ones.vw",
        vw(&data, |i| if i % 3 == 0 { " 1.0".into() } else { String::new() }).as_bytes(),
    );
    let scan = |path: &str| {
        let (report, mut rows) = run(flat(), path, 64, None);
        (report.progressive.unwrap().loss().to_bits(), bits(&mut rows))
    };
    assert!(scan(&plain) == scan(&ones), "the same bits");
}

/// With any reduction, the other examples of the batch move the rows as if an example of importance 0 were not there.
#[test]
fn an_example_of_importance_zero_is_only_predicted() {
    let folder = tempfile::tempdir().unwrap();
    let data = examples(1_000, 5);
    // Next to each example is one with the same features and the other label.
    let beside = data.iter().flat_map(|example| [example.clone(), (1.0 - example.0, example.1.clone())]);
    let beside: Vec<Example> = beside.collect();
    let zero = |i| if i % 2 == 1 { " 0".into() } else { String::new() };
    let alone = file(&folder, "alone.vw", vw(&data, |_| String::new()).as_bytes());
    let beside = file(&folder, "beside.vw", vw(&beside, zero).as_bytes());
    for rule in [Rule::Sgd(Sgd { lr: 0.05 }), Rule::Ftrl(RULE)] {
        let learn = |path: &str, batch: usize| {
            let rows = FlatTable::new(&Schema::scalar("lr", rule)).unwrap();
            let (report, mut rows) = run(rows, path, batch, Some(PushContent::Gradient));
            (report.progressive.unwrap().loss().to_bits(), bits(&mut rows))
        };
        assert!(learn(&alone, 64) == learn(&beside, 128), "{}", rule.name());
    }
}
