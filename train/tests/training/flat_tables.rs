//! Tables of one process without shards: threads change nothing, and limits are named.

use crate::model::file;
use crate::models::{ADAGRAD, agreeing, options, settings, state};

use gannet_core::Admission;
use gannet_optim::{Adam, Rule};
use gannet_train::models::{FactorizationMachine, Model, ModelSettings, fit, fit_watched};
use gannet_train::{Data, FlatTables, Labels, Options, StepReport};
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

/// A training that is stopped leaves no rows of batches that were read ahead, and the next training goes on from its
/// rows: with any number of threads.
#[test]
fn a_stopped_training_leaves_only_rows_that_it_learned() {
    let folder = tempfile::tempdir().unwrap();
    // Every batch has new keys, so batches that were read ahead have rows of their own.
    let line = |i: u64| format!("{} {}:1 {}:0.5\n", i % 2, i, 100_000 + i * 7 % 9_000);
    let path = file(&folder, "new.svm", (0..40_000).map(line).collect::<String>().as_bytes());
    let options = options(&Data::new(&path), Labels::Signs, 1);
    let learn = |threads: usize, steps: &[u64]| {
        let options = Options { threads, batch: 100, ..options.clone() };
        let (mut tables, mut machine) =
            (FlatTables::within(u64::MAX), FactorizationMachine::new(settings(ADAGRAD), 3));
        let mut all = Vec::new();
        for &steps in steps {
            let watch = &mut |step: &StepReport<'_>, _: &mut dyn Model, _: &mut FlatTables| match step.number
                < steps
            {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            };
            let never = AtomicBool::new(false);
            let fitted =
                fit_watched(&options, &mut machine, &mut tables, &never, &mut |_| {}, watch).unwrap();
            let rows = state(&mut tables, &machine);
            assert_eq!((fitted.steps, fitted.rows), (steps, rows[0].len() as u64));
            all.push(rows);
        }
        all
    };
    for steps in [&[1, 30, 400][..], &[60, 45]] {
        let one = learn(1, steps);
        // More rows than a piece of the list has.
        assert!(one.iter().any(|rows| rows[0].len() > 5_000));
        for threads in [2, 3, 6] {
            assert!(learn(threads, steps) == one, "{threads} threads, {steps:?} steps");
        }
    }
}

/// The memory limit ends a training at the same row, with any number of threads.
#[test]
fn the_memory_limit_does_not_depend_on_threads() {
    let folder = tempfile::tempdir().unwrap();
    let line = |i: u64| format!("{} {i}:1\n", i % 2);
    let path = file(&folder, "new.svm", (0..60_000).map(line).collect::<String>().as_bytes());
    let options = options(&Data::new(&path), Labels::Signs, 1);
    for limit in [1u64 << 20, 3 << 20, (3 << 20) + 123_456] {
        let outcome = |threads: usize| {
            let options = Options { threads, batch: 100, ..options.clone() };
            let (mut tables, mut machine) =
                (FlatTables::within(limit), FactorizationMachine::new(settings(ADAGRAD), 3));
            let failed = fit(&options, &mut machine, &mut tables, &AtomicBool::new(false), &mut |_| {});
            (failed.unwrap_err().to_string(), state(&mut tables, &machine))
        };
        let one = outcome(1);
        assert!(one.0.contains("--memory-limit"), "{}", one.0);
        assert!([2, 3, 6].iter().all(|&threads| outcome(threads) == one), "{limit}");
    }
}

#[test]
fn tables_without_shards_say_what_they_cannot_do() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(&agreeing(&folder, "train.svm", 2_000, 1), Labels::Signs, 1);
    let adam = Rule::Adam(Adam { lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.0 });
    let fails = |settings: ModelSettings, limit: u64| {
        let mut machine = FactorizationMachine::new(settings, 3);
        let stop = AtomicBool::new(false);
        let fitted = fit(&options, &mut machine, &mut FlatTables::within(limit), &stop, &mut |_| {});
        fitted.unwrap_err().to_string()
    };
    assert!(fails(settings(adam), u64::MAX).contains("which replays"));
    let few = ModelSettings {
        admission: Admission::Count { pushes: 2, sketch_bytes: 1 << 16 },
        ..settings(ADAGRAD)
    };
    assert!(fails(few, u64::MAX).contains("admits every key"));
    assert!(fails(settings(ADAGRAD), 1 << 10).contains("--memory-limit"));
}
