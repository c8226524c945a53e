//! Tables of one process without shards: threads change nothing, and limits are named.

use crate::model::file;
use crate::models::{ADAGRAD, agreeing, options, settings, state};

use gannet_core::{Admission, Read};
use gannet_optim::{Adam, Rule};
use gannet_train::models::{FactorizationMachine, Model, ModelSettings, fit, fit_watched};
use gannet_train::{BatchKeys, Data, FlatTables, Labels, Options, StepReport, Tables};
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

/// An observer that pulls or restores rows changes nothing but those rows, with any number of threads: rows that were
/// found ahead are found again.
#[test]
fn a_pull_in_between_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let line = |i: u64| format!("{} {i}:1 {}:2\n", i % 2, i * 7 % 9_000);
    let path = file(&folder, "new.svm", (0..40_000).map(line).collect::<String>().as_bytes());
    let options = Options { batch: 100, ..options(&Data::new(&path), Labels::Signs, 1) };
    let learn = |threads: usize, restores: bool, steps: &[u64]| {
        let options = Options { threads, ..options.clone() };
        let (mut tables, mut machine) =
            (FlatTables::within(u64::MAX), FactorizationMachine::new(settings(ADAGRAD), 3));
        let watch = &mut |step: &StepReport<'_>, _: &mut dyn Model, tables: &mut FlatTables| {
            if steps.contains(&step.number) {
                let (mut rows, key) = (Vec::new(), 1 << 40 | step.number);
                tables.begin_pull(0, BatchKeys::unsorted(&[key]), Read::State).unwrap();
                tables.finish_pull(&mut rows).unwrap();
                if restores {
                    tables.restore(0, &[key | 1 << 41], &rows).unwrap();
                }
            }
            ControlFlow::Continue(())
        };
        let never = AtomicBool::new(false);
        let mut all = Vec::new();
        for _ in 0..2 {
            let fitted =
                fit_watched(&options, &mut machine, &mut tables, &never, &mut |_| {}, watch).unwrap();
            let rows = state(&mut tables, &machine);
            assert_eq!(fitted.rows, rows[0].len() as u64);
            all.push(rows);
        }
        all
    };
    for (restores, steps) in [(false, &[20][..]), (true, &[20, 21, 150])] {
        let one = learn(1, restores, steps);
        let more = steps.len() * (1 + usize::from(restores));
        assert_eq!(one[0][0].len(), 40_000 + 1 + more);
        for threads in [2, 3, 6] {
            assert!(learn(threads, restores, steps) == one, "{threads} threads, {steps:?}");
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
