//! `gannet serve --checkpoint`: the model of a job, from its newest checkpoint.

use crate::client::{Connection, Served, get, post, predicted, served, table, trained};
use crate::harness::{Process, gannet, limit, ok, run};
use std::time::{Duration, Instant};

fn version(served: &Served) -> String {
    get(served, "/v2/models/default").json()["versions"][0].as_str().unwrap().to_owned()
}

/// Waits until the model of another checkpoint is served, or of this one.
fn await_version(served: &Served, mut is_it: impl FnMut(&str) -> bool) {
    let start = Instant::now();
    while !is_it(&version(served)) {
        assert!(start.elapsed() < limit(), "{}", version(served));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The last checkpoint of a job is the model that it saves: the same predictions, with any number of workers, with
/// columns of all types, crosses and fields.
#[test]
fn the_last_checkpoint_answers_what_the_saved_model_predicts() {
    let folder = tempfile::tempdir().unwrap();
    let lines = table(400, 40);
    let data = crate::harness::write(folder.path(), "a.csv", lines.as_bytes());
    let cases = [
        ("lr", "", 2),
        ("crossed", "--cross city*plan --scale standard", 1),
        ("deepfm", "--model deepfm --hidden 8 --factors 4", 2),
        ("ffm", "--model ffm --factors 2", 2),
        ("linear", "--model linear --loss poisson --optimizer adagrad", 1),
    ];
    for (name, flags, workers) in cases {
        let (out, saves) = (folder.path().join(format!("{name}.out")), folder.path().join(name));
        let (out, saves) = (out.display().to_string(), saves.display().to_string());
        ok(&format!(
            "launch --servers 2 --workers {workers} -- train {data} --checkpoint {saves} --out {out} --epochs 2 {flags}"
        ));
        let served = served(&format!("--checkpoint {saves}"));
        let answer = post(&served, "/v1/predict", lines.as_bytes());
        assert_eq!((answer.status, answer.text()), (200, predicted(&out, &data)), "{name}");
    }
}

/// While a job trains, each of its checkpoints takes the place of the one before.
#[test]
fn newer_checkpoints_take_the_place_of_older_ones() {
    let folder = tempfile::tempdir().unwrap();
    let lines = table(2000, 41);
    let data = crate::harness::write(folder.path(), "a.csv", lines.as_bytes());
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (saves, out) = (place("saves"), place("out"));
    let none = run(&format!("serve --checkpoint {saves} --listen 127.0.0.1:0"));
    assert!(none.code == Some(2) && none.err.contains(&saves), "{none:?}");
    let job = Process::start(gannet(&format!(
        "launch --servers 1 --workers 2 -- train {data} --checkpoint {saves} --checkpoint-secs 1 --out {out} --epochs 400 \
         --batch 32"
    )));
    let start = Instant::now();
    let is_there = || {
        std::fs::read_dir(&saves)
            .is_ok_and(|mut all| all.any(|of| of.is_ok_and(|of| of.path().join("MANIFEST").exists())))
    };
    while !is_there() {
        assert!(start.elapsed() < limit());
        std::thread::sleep(Duration::from_millis(10));
    }
    let served = served(&format!("--checkpoint {saves}"));
    let first = version(&served);
    let mut connection = Connection::open(&served);
    await_version(&served, |now| {
        assert_eq!(connection.ask("POST /v1/predict HTTP/1.1", b"{}").status, 200);
        now != first
    });
    let done = job.wait();
    assert_eq!(done.code, Some(0), "{done:?}");
    let expected = predicted(&out, &data);
    let start = Instant::now();
    while post(&served, "/v1/predict", lines.as_bytes()).text() != expected {
        assert!(start.elapsed() < limit());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Another job begins again with the number of a checkpoint that is served: its model takes the place.
#[test]
fn a_number_that_is_used_again_is_another_model() {
    let folder = tempfile::tempdir().unwrap();
    let data = crate::harness::write(folder.path(), "a.csv", table(300, 44).as_bytes());
    let place = |name: &str| folder.path().join(name).display().to_string();
    let job = |name: &str, flags: &str| {
        let (saves, out) = (place(name), place(&format!("{name}.out")));
        ok(&format!(
            "launch --servers 1 --workers 1 -- train {data} --checkpoint {saves} --out {out} {flags}"
        ));
        (saves, out)
    };
    let ((one, _), (other, out)) = (job("one", ""), job("other", "--alpha 0.3"));
    let served = served(&format!("--checkpoint {one}"));
    let number = |version: String| version.split('-').next().unwrap().to_owned();
    let first = version(&served);
    std::fs::rename(&one, place("gone")).unwrap();
    std::fs::rename(&other, &one).unwrap();
    await_version(&served, |now| now != first);
    assert_eq!(number(version(&served)), number(first));
    let answer = post(&served, "/v1/predict", table(300, 44).as_bytes());
    assert_eq!(answer.text(), predicted(&out, &data));
}

/// A job goes on from a checkpoint with the columns that the job had, though the new data alone would give others.
#[test]
fn a_warm_start_from_a_checkpoint_knows_the_columns() {
    let folder = tempfile::tempdir().unwrap();
    let (_, data) = trained(folder.path(), "a.csv", &table(300, 42), "");
    let saves = folder.path().join("saves").display().to_string();
    ok(&format!("launch --servers 1 --workers 1 -- train {data} --checkpoint {saves}"));
    let ages = table(300, 43).replace(".5,p", ",p");
    let next = crate::harness::write(folder.path(), "b.csv", ages.as_bytes());
    let out = folder.path().join("out").display().to_string();
    ok(&format!("train {next} --warm-start {saves} --out {out}"));
    let inspected = ok(&format!("inspect {out} {next} --top 1000")).out;
    assert!(inspected.contains("age") && !inspected.contains("age="), "{inspected}");
}
