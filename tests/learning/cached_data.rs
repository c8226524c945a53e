//! A cache of parsed data changes no bit of a model.

use crate::harness::*;

#[test]
fn passes_from_a_cache_train_the_same_model() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let data = clicks(&f.join("train.svm"), 3000, 7);
    let temporary = f.join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    for (name, flags) in [("lr", ""), ("fm", "--model fm --factors 3"), ("ftrl", "--threads 3 --batch 100")] {
        let train = |out: &str, more: &str| {
            let out = f.join(format!("{name}-{out}"));
            let line =
                format!("train {} --epochs 3 {flags} {more} --json --out {}", data.display(), out.display());
            let mut command = gannet(&line);
            command.env("TMPDIR", &temporary);
            let done = Process::start(command).wait();
            assert_eq!(done.code, Some(0), "{line}: {done:?}");
            let report = done.json();
            (report["examples"].clone(), report["logloss"].as_f64().unwrap(), model_rows(&out))
        };
        let want = train("text", "--no-cache");
        let kept = format!("--cache {}", f.join(name).display());
        for (out, more) in [("own", ""), ("new", kept.as_str()), ("old", kept.as_str())] {
            assert!(train(out, more) == want, "{name}, {out}");
        }
        assert_eq!(std::fs::read_dir(f.join(name)).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "a cache without a folder was left");
    }
}

#[test]
fn a_cache_that_cannot_be_kept_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 100, 1);
    let (file, data) = (data.display(), data.display());
    refused(
        &format!("train {data} --cache {file}"),
        &["--cache", "name a folder that this process may write"],
    );
    refused(&format!("train {data} --cache {file} --no-cache"), &["--cache", "--no-cache"]);
    let job = "--job-name worker --worker-hosts a:1 --ps-hosts 127.0.0.1:1";
    let cache = folder.path().join("cache");
    refused(
        &format!("train {data} {job} --tasks on --cache {}", cache.display()),
        &["--cache: with --tasks on", "--tasks off"],
    );
}
