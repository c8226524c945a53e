//! `--wire f16` from outside: what it saves, and what refuses it.

use crate::harness;

use harness::*;

const ALONE: &str = "--worker-hosts 127.0.0.1:9 --job-name worker --json --transport tcp";

fn server() -> Served {
    Served::start(gannet("server --listen 127.0.0.1:0 --threads 2"))
}

#[test]
fn rows_have_half_of_the_bytes_and_the_loss_stays() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 6_000, 1);
    for model in ["--optimizer adagrad", "--model fm --factors 16", "--model deepfm --deviation 0.05"] {
        let [wide, narrow] = ["f32", "f16"].map(|wire| {
            let served = server();
            let flags = format!("--ps-hosts {} {ALONE} {model} --push gradient --wire {wire}", served.addr);
            let done = run(&format!("train {} --test {0} {flags}", data.display()));
            assert_eq!(done.code, Some(0), "{done:?}");
            let report = done.json();
            let bytes = report["wire"]["received_bytes"].as_f64();
            (bytes, report["logloss"].as_f64().unwrap(), done)
        });
        assert!((narrow.1 / wide.1 - 1.0).abs() < 0.0005, "{model}: {} and {}", narrow.1, wide.1);
        if let (Some(wide), Some(narrow)) = (wide.0, narrow.0) {
            assert!((narrow / wide - 0.5).abs() < 0.02, "{model}: {narrow} of {wide} bytes");
        }
    }
}

#[test]
fn what_cannot_be_f16_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 100, 1);
    let data = data.display();
    let job = "--ps-hosts 127.0.0.1:1";
    for (flags, why) in [
        (format!("{job} {ALONE} --wire f16"), "--push gradient"),
        (format!("{job} {ALONE} --wire f16 --push replay"), "--push gradient"),
        (format!("{job} {ALONE} --wire f16 --model fm --optimizer ftrl"), "--push gradient"),
        (format!("{job} {ALONE} --wire f16 --model lda"), "--model lda"),
        (format!("{job} {ALONE} --wire f16 --optimizer lbfgs"), "--optimizer lbfgs"),
        (format!("{job} {ALONE} --wire bf16"), "[possible values: f32, f16]"),
        (
            format!("{job} --worker-hosts 127.0.0.1:9 --job-name ps --wire f16"),
            "--wire: works only in a worker",
        ),
        ("--wire f16".to_owned(), "--wire: works only in a process of a job (--job-name)"),
    ] {
        let done = run(&format!("train {data} {flags}"));
        assert!(
            done.code == Some(2) && done.err.contains("--wire") && done.err.contains(why),
            "{flags}: {done:?}"
        );
        assert!(done.out.is_empty(), "{flags}: {done:?}");
    }
}
