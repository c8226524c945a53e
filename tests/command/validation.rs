//! `--validate-every` and `--save-secs`, tested from outside. Reports between the steps agree with the report at the
//! end. A model exists before its training ends. In a job with a scheduler its chief does both.

use crate::harness;

use harness::*;
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name}: {value}"))
}

/// Checks the validations of a report. The last one was after the last step.
fn check(report: &Value, every: u64, steps: u64) {
    let validations = report["validations"].as_array().unwrap();
    let at: Vec<u64> = validations.iter().map(|v| v["step"].as_u64().unwrap()).collect();
    assert_eq!(at, (1..=steps / every).map(|n| n * every).collect::<Vec<_>>(), "{report}");
    // All steps have the same number of examples, so the mean of their losses is the loss of the pass.
    let mean = validations.iter().map(|v| number(v, "loss")).sum::<f64>() / validations.len() as f64;
    assert!((mean - number(report, "logloss")).abs() < 1e-9, "{mean} {report}");
    let last = validations.last().unwrap();
    assert_eq!(last["validation_logloss"], report["test_logloss"], "{report}");
    assert_eq!(last["validation_auc"], report["test_auc"], "{report}");
    assert!((0.5..1.0).contains(&number(last, "validation_accuracy")), "{report}");
    assert!(number(&validations[0], "validation_logloss") > number(last, "validation_logloss"), "{report}");
}

#[test]
fn validations_agree_with_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 10_000, 1);
    let test = clicks(&folder.path().join("test.svm"), 1_000, 2);
    let line = format!("train {} --test {} --batch 50", data.display(), test.display());
    for flags in ["", "--push gradient", "--model fm", "--model deepfm --hidden 4"] {
        check(&run(&format!("{line} --validate-every 40 {flags} --json")).json(), 40, 200);
    }
    // Synchronous steps: after the chief's last step, all steps are done.
    let served = Served::start(gannet("server --listen 127.0.0.1:0 --threads 2"));
    for model in ["lr", "fm"] {
        let job = |index| {
            format!(
                "{line} --validate-every 25 --model {model} --run {model} --tasks off --sync bsp --ps-hosts {} --worker-hosts a:1,b:1 --job-name worker --task-index {index} --json",
                served.addr
            )
        };
        let second = Process::start(gannet(&job(1)));
        check(&run(&job(0)).json(), 25, 100);
        assert!(second.wait().json().get("validations").is_none());
    }

    let done = run(&format!("{line} --validate-every 40"));
    let lines: Vec<&str> = done.out.lines().filter(|line| line.starts_with("step ")).collect();
    assert_eq!(lines.len(), 5, "{done:?}");
    assert!(lines[0].starts_with("step 40  loss 0.") && lines[0].contains("accuracy 0."), "{done:?}");
    for (flags, said) in [
        ("--validate-every 10", "--test"),
        ("--save-secs 10", "--out"),
        ("--test x --validate-every 0", "--validate-every"),
        ("--model lda --save-secs 1 --out x", "--save-secs"),
        ("--optimizer lbfgs --save-secs 1 --out x", "--save-secs"),
        ("--optimizer lbfgs --test x --validate-every 5", "--validate-every"),
    ] {
        let refused = run(&format!("train {} {flags}", data.display()));
        assert!(refused.code == Some(2) && refused.err.contains(said), "{refused:?}");
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit(), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The log loss of a saved model on this data.
fn scored(model: &Path, data: &Path) -> f64 {
    number(&run(&format!("predict --model {} {} --json", model.display(), data.display())).json(), "logloss")
}

/// A training that is killed in the middle leaves the last model that it saved.
#[test]
fn a_model_is_saved_while_it_is_trained() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 5_000, 1);
    let served = Served::start(gannet("server --listen 127.0.0.1:0 --threads 2"));
    let job = format!("--ps-hosts {} --worker-hosts a:1 --job-name worker", served.addr);
    for (name, flags) in [("lr", ""), ("deepfm", "--hidden 4"), ("fm", &job)] {
        let out = folder.path().join(name);
        let line = format!("train {} --model {name} {flags} --epochs 10000 --save-secs 1", data.display());
        let training = Process::start(gannet(&format!("{line} --out {}", out.display())));
        until("no model was saved", || out.join("MANIFEST").exists());
        let first = std::fs::read(out.join("MANIFEST")).unwrap();
        until("it was saved once", || std::fs::read(out.join("MANIFEST")).is_ok_and(|now| now != first));
        training.signal(Signal::KILL);
        training.wait();
        assert!(scored(&out, &data) < 0.6, "{name}");
    }
}

/// Worker 0 dies. The scheduler makes worker 1 the chief, which validates and saves.
#[test]
fn the_chief_that_a_scheduler_has_looks_on() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 60_000, 1);
    let test = clicks(&folder.path().join("test.svm"), 1_000, 2);
    let out = folder.path().join("model");
    let served = Served::start(gannet("server --listen 127.0.0.1:0 --threads 2"));
    let worker = |index| {
        format!(
            "train {} --test {} --out {} --ps-hosts {} --worker-hosts a:1,b:1 --job-name worker --task-index {index} --tasks on \
             --task-bytes 64KiB --worker-timeout 2 --peer-timeout 20 --batch 64 --epochs 20 --json --validate-every 10",
            data.display(),
            test.display(),
            out.display(),
            served.addr
        )
    };
    let killed = Process::start(gannet(&worker(0)));
    until("worker 0 does nothing", || {
        let status = run(&format!("status --ps-hosts {} --json", served.addr));
        status.code == Some(0) && status.json()["job"]["tasks_done"].as_u64().is_some_and(|done| done > 2)
    });
    killed.signal(Signal::KILL);
    killed.wait();
    let report = run(&worker(1)).json();
    let validations = report["validations"].as_array().unwrap();
    assert!(
        !validations.is_empty() && number(validations.last().unwrap(), "validation_logloss") < 0.69,
        "{report}"
    );
    assert!((scored(&out, &test) - number(&report, "test_logloss")).abs() < 1e-9, "{report}");
}
