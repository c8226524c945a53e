//! Several runs on the same servers, tested from outside: which rows belong to which run, what a second start does, and
//! workers that disagree.

use crate::harness;

use crate::world::*;
use harness::{clicks, run};
use rustix::process::Signal;
use std::io::Write;
use std::path::Path;

/// Once the second training continued in the rows of the first, so its progressive loss was that of rows already
/// trained.
#[test]
fn a_second_job_went_on_in_the_rows_of_the_first_and_nobody_said_so() {
    let world = World::new(4_000);
    let (a, b) = (world.server("127.0.0.1:0", "a", 1), world.server("127.0.0.1:0", "b", 2));
    let hosts = format!("{},{}", a.addr, b.addr);
    let first = ok(&run(&world.line(&hosts, 1, 0, "")));
    refused(&run(&world.line(&hosts, 1, 0, "")), &["\"default\"", "--continue", "--fresh", "--run", "rows"]);
    // The message is the same if the hosts are in another order, whatever the other flags.
    let turned = format!("{},{}", b.addr, a.addr);
    refused(&run(&world.line(&turned, 1, 0, "--epochs 2")), &["--continue", "--fresh"]);
    let on = ok(&run(&world.line(&turned, 1, 0, "--continue")));
    assert_eq!((&on["rows"], &on["run"]["generation"]), (&first["rows"], &2.into()), "{on}");
    assert!(on["logloss"].as_f64() < first["logloss"].as_f64(), "{on} {first}");
    let fresh = ok(&run(&world.line(&hosts, 1, 0, "--fresh")));
    let (was, is) = (first["logloss"].as_f64().unwrap(), fresh["logloss"].as_f64().unwrap());
    assert!((was - is).abs() < 1e-6, "{fresh} {first}");
    // The earlier rows are freed.
    let tables = |folder: &str| -> Vec<String> {
        let entries = std::fs::read_dir(world.file(folder)).unwrap().map(|entry| entry.unwrap());
        let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
        folders.map(|entry| entry.file_name().into_string().unwrap()).collect()
    };
    let (mut all, mut norm) = (0, 0);
    for folder in ["a", "b"] {
        let tables = tables(folder);
        all += tables.len();
        norm += tables.iter().filter(|name| name.ends_with(".lr-norm")).count();
    }
    // The rows of both servers. One of them has the only shard of the other table.
    assert_eq!((all, norm), (3, 1));
    let other = ok(&run(&world.line(&hosts, 1, 0, "--run other")));
    assert!((was - other["logloss"].as_f64().unwrap()).abs() < 1e-6, "{other}");
    let known = runs(&turned);
    let known: Vec<_> = known.iter().map(|run| (&run["name"], &run["state"], &run["generation"])).collect();
    let (default, other) = ("default".into(), "other".into());
    let done = "finished".into();
    assert_eq!(known, [(&default, &done, &3.into()), (&other, &done, &1.into())]);
    refused(&run(&world.line(&hosts, 1, 0, "--run no/name")), &["--run", "no/name"]);
    refused(&run(&world.line(&hosts, 1, 0, "--fresh --continue")), &["--continue"]);
}

/// Once a job of one worker took the name of a running job's worker 0, and the servers then refused that worker.
#[test]
fn an_unrelated_job_fenced_a_running_one() {
    let world = World::new(6_000);
    let server = world.server("127.0.0.1:0", "a", 2);
    let (worker, mut pipe) = piped(&server.addr, 1, 0, "");
    let bytes = std::fs::read(&world.data).unwrap();
    pipe.write_all(&bytes[..bytes.len() / 2]).unwrap();
    until("the first job runs", || runs(&server.addr).iter().any(|run| run["state"] == "running"));
    refused(&run(&world.line(&server.addr, 1, 0, "")), &["DATA", "\"default\"", "--run"]);
    refused(&run(&world.line(&server.addr, 1, 0, "--fresh")), &["\"default\"", "worker 0", "--run"]);
    let same = run(&line_of("-", &server.addr, 1, 0, ""));
    refused(&same, &["worker 0", "--task-index"]);
    let other = ok(&run(&world.line(&server.addr, 1, 0, "--run second")));
    pipe.write_all(&bytes[bytes.len() / 2..]).unwrap();
    drop(pipe);
    let first = ok(&worker.wait());
    assert_eq!((&first["examples"], &first["rows"]), (&other["examples"], &other["rows"]), "{first} {other}");
}

/// Two jobs with a scheduler at the same time. Once the second replaced the first, or was refused without end.
#[test]
fn two_runs_could_not_have_their_data_handed_out_by_one_scheduler() {
    let world = World::new(20_000);
    let server = world.server("127.0.0.1:0", "a", 2);
    let more = "--tasks on --task-bytes 65536 --epochs 3";
    let one = start(&world.line(&server.addr, 2, 0, &format!("{more} --start-together --run one")));
    until("the first run is there", || !runs(&server.addr).is_empty());
    let two = ok(&run(&world.line(&server.addr, 1, 0, &format!("{more} --run two"))));
    assert_eq!(two["examples"], 60_000);
    let other = start(&world.line(&server.addr, 2, 1, &format!("{more} --start-together --run one")));
    let (one, other) = (ok(&one.wait()), ok(&other.wait()));
    assert_eq!(one["examples"].as_u64().unwrap() + other["examples"].as_u64().unwrap(), 60_000);
    assert_eq!(one["rows"], two["rows"], "{one} {two}");
    let status = ok(&run(&format!("status --ps-hosts {} --run two --json", server.addr)));
    assert_eq!(status["job"]["examples"], 60_000, "{status}");
}

/// Once worker 1 trained with other flags or data, and ended with exit code 0.
#[test]
fn workers_that_were_given_other_flags_trained_along() {
    let world = World::new(600);
    let server = world.server("127.0.0.1:0", "a", 1);
    let other = clicks(&world.file("other.svm"), 700, 8);
    let chief = start(&world.line(&server.addr, 2, 0, "--tasks off --epochs 3 --batch 64"));
    until("the run is there", || !runs(&server.addr).is_empty());
    let say = |data: &Path, more: &str| {
        let line = line_of(&data.display().to_string(), &server.addr, 2, 1, more);
        run(&if more.contains("--model") { line.replace("--damping off ", "") } else { line })
    };
    let cases = [
        ("--tasks off --epochs 4 --batch 64", "--epochs: worker 0 has 3, this worker (1) was given 4"),
        ("--tasks off --epochs 3 --batch 32", "--batch: worker 0 has 64, this worker (1) was given 32"),
        ("--tasks off --epochs 3 --batch 64 --no-intercept", "--no-intercept: worker 0 has no"),
        ("--tasks off --epochs 3 --batch 64 --model linear", "--model: worker 0 has lr"),
        ("--tasks off --epochs 3 --batch 64 --alpha 0.5", "--alpha: worker 0 has 0.1"),
        ("--tasks off --epochs 3 --batch 64 --numeric x", "--numeric: worker 0 has none"),
        ("--tasks on --epochs 3 --batch 64", "--tasks: worker 0 has off"),
        ("--tasks off --epochs 3 --batch 64 --sync ssp:3", "--sync: worker 0 has asp"),
    ];
    for (more, words) in cases {
        refused(&say(&world.data, more), &[words, "every worker of a run the same", "--run"]);
    }
    let more = "--tasks off --epochs 3 --batch 64";
    refused(&say(&other, more), &["DATA file 1: worker 0 has", "train.svm", "other.svm", "bytes)"]);
    let late = ok(&say(&world.data, more));
    let chief = ok(&chief.wait());
    assert_eq!(chief["examples"].as_u64().unwrap() + late["examples"].as_u64().unwrap(), 1_800);
    assert_eq!((&chief["missing_workers"], &chief["untrained_batches"]), (&serde_json::json!([]), &0.into()));
}

/// Once the share of a worker that never came was not trained, and the job ended with exit code 0.
#[test]
fn a_worker_that_never_came_lost_its_share_with_exit_code_0() {
    let world = World::new(1_000);
    let server = world.server("127.0.0.1:0", "a", 2);
    let out = world.file("model");
    let more = format!("--tasks off --epochs 2 --batch 64 --peer-timeout 5 --out {}", out.display());
    let line = |more: &str| world.line(&server.addr, 2, 0, more).replace("--peer-timeout 20 ", "");
    let done = run(&line(&more));
    assert_eq!(done.code, Some(3), "{done:?}");
    for words in ["waits for worker 1 (w1:9)", "16 batches", "--allow-missing-workers", "saved"] {
        assert!(done.err.contains(words), "{words}: {done:?}");
    }
    let report = done.json();
    assert_eq!(
        (&report["missing_workers"], &report["untrained_batches"]),
        (&serde_json::json!([1]), &16.into())
    );
    assert!(out.join("MANIFEST").is_file());
    // The run has not ended: the missing worker may still come, and the same worker may continue.
    assert_eq!(runs(&server.addr)[0]["state"], "running");
    let done = run(&line(&format!("{more} --allow-missing-workers")));
    let report = ok(&done);
    assert_eq!(
        (&report["missing_workers"], &report["untrained_batches"]),
        (&serde_json::json!([1]), &16.into())
    );
    assert!(done.err.contains("16 batches"), "{done:?}");
    assert_eq!(runs(&server.addr)[0]["state"], "finished");
}

/// As above, for a worker that was killed in the middle of its share. The missing worker may also be worker 0.
#[test]
fn a_killed_worker_lost_its_share_with_exit_code_0() {
    let world = World::new(1_000);
    let server = world.server("127.0.0.1:0", "a", 2);
    let bytes = std::fs::read(&world.data).unwrap();
    let (chief, mut one) = piped_for(3, &server.addr, 2, 0, "--batch 64");
    let (killed, mut two) = piped_for(3, &server.addr, 2, 1, "--batch 64");
    for pipe in [&mut one, &mut two] {
        pipe.write_all(&bytes).unwrap();
    }
    drop(one);
    until("both are there", || runs(&server.addr)[0]["workers"].as_array().is_some_and(|all| all.len() == 2));
    killed.signal(Signal::KILL);
    let _ = killed.wait();
    drop(two);
    // No worker replaces it within the peer timeout.
    let done = chief.wait();
    assert_eq!(done.code, Some(3), "{done:?}");
    let report = done.json();
    assert_eq!(report["missing_workers"], serde_json::json!([1]), "{report}");
    assert!(report["untrained_batches"].as_u64().is_some_and(|n| n <= 8), "{report}");
}

/// A worker slept until the run was finished without it. When it woke, it trained on in the rows that had been saved,
/// and ended with exit code 0.
#[test]
fn a_worker_that_slept_until_the_end_trained_on_in_a_finished_run() {
    let world = World::new(2_000);
    let server = world.server("127.0.0.1:0", "a", 2);
    let more = "--tasks off --batch 64 --worker-timeout 2 --allow-missing-workers";
    let (chief, mut one) = piped_for(20, &server.addr, 2, 0, more);
    let (sleeper, mut two) = piped_for(20, &server.addr, 2, 1, more);
    let bytes = std::fs::read(&world.data).unwrap();
    two.write_all(&bytes[..bytes.len() / 2]).unwrap();
    one.write_all(&bytes).unwrap();
    until("both are there", || runs(&server.addr)[0]["workers"].as_array().is_some_and(|all| all.len() == 2));
    sleeper.signal(Signal::STOP);
    drop(one);
    let done = chief.wait();
    assert_eq!((done.code, &done.json()["missing_workers"]), (Some(0), &serde_json::json!([1])), "{done:?}");
    sleeper.signal(Signal::CONT);
    let _ = two.write_all(&bytes[bytes.len() / 2..]);
    drop(two);
    let woken = sleeper.wait();
    assert_eq!(woken.code, Some(3), "{woken:?}");
    assert!(woken.err.contains("went on without"), "{woken:?}");
}

/// Once splits were handed out only with `--tasks on`, and a job without it lost the share of a worker that never came.
#[test]
fn splits_were_not_handed_out_by_default() {
    let world = World::new(3_000);
    let server = world.server("127.0.0.1:0", "a", 2);
    let done = run(&world.line(&server.addr, 2, 0, "--log info"));
    let report = ok(&done);
    assert_eq!(report["examples"], 3_000, "{done:?}");
    assert!(done.err.contains("hands out the data in splits (--tasks auto)"), "{done:?}");
    // A second worker with the same index comes late to a finished run. It must not begin the run again.
    let late = run(&world.line(&server.addr, 2, 1, ""));
    assert_eq!(ok(&late)["examples"], 0, "{late:?}");
    assert!(late.err.contains("is finished"), "{late:?}");
    refused(&run(&world.line(&server.addr, 2, 1, "")), &["--continue", "--fresh"]);
    for (more, why) in [
        ("--run d --deterministic --allow-missing-workers", "--deterministic"),
        ("--run l --model lda --topics 3 --allow-missing-workers", "--model lda"),
    ] {
        let line = world.line(&server.addr, 1, 0, more).replace("--damping off ", "");
        let done = run(&line);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.err.contains("fixed share") && done.err.contains(why), "{done:?}");
    }
}
