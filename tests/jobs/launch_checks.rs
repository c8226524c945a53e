//! What `gannet launch` sees to be wrong before it starts a process: it says that once, and starts none.

use crate::harness;

use harness::*;
use std::path::Path;

/// Runs a job that cannot be. Its error is one line of the launcher, with these words.
#[track_caller]
fn refused_once(line: &str, words: &[&str]) {
    let done = run(&format!("launch --servers 2 --workers 4 -- train {line}"));
    assert_eq!(done.code, Some(2), "{line}: {done:?}");
    assert_eq!(done.out, "", "{line}");
    let lines: Vec<&str> = done.err.lines().collect();
    assert_eq!(lines.len(), 1, "{line}: an error of one line: {done:?}");
    assert!(lines[0].starts_with("gannet: "), "a process was started: {done:?}");
    for word in words {
        assert!(lines[0].contains(word), "{word}: {done:?}");
    }
}

#[test]
fn an_error_of_all_processes_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let data = clicks(Path::new(&at("a.svm")), 300, 1).display().to_string();
    let csv = write(folder.path(), "a.csv", format!("label,a,b\n{}", "1,x,2\n0,y,3\n".repeat(100)));
    let other = write(folder.path(), "b.csv", format!("label,a,c\n{}", "1,x,2\n0,y,3\n".repeat(100)));
    let (lr, fm) = (at("lr"), at("fm"));
    ok(&format!("train {data} --out {lr}"));
    ok(&format!("train {data} --model fm --factors 4 --out {fm}"));
    // Files.
    refused_once(&format!("{}/no.svm", folder.path().display()), &["no.svm"]);
    refused_once(&format!("{data} --test {}", at("no-test.svm")), &["no-test.svm"]);
    refused_once(&format!("{data} --validate {}", at("no-more.svm")), &["no-more.svm"]);
    refused_once(&format!("{csv} {data}"), &["a.svm", "a.csv"]);
    refused_once(&format!("{csv} --test {other}"), &["b.csv"]);
    refused_once(&format!("{csv} --label cost"), &["cost", "a.csv"]);
    refused_once(&format!("{data} --numeric a"), &["--numeric", "a.svm"]);
    // Flags.
    refused_once(&format!("{data} --sync ssp:2 --deterministic"), &["--deterministic", "ssp:2"]);
    refused_once(&format!("{data} --damping on --push gradient"), &["--damping on", "--push gradient"]);
    refused_once(&format!("{data} --model mf --hidden 4"), &["--hidden", "mf"]);
    refused_once(&format!("{data} --model fm --factors 511 --optimizer lbfgs"), &["lbfgs", "--model lr"]);
    refused_once(&format!("{data} --model ffm"), &["--model ffm", "--model fm"]);
    refused_once(&format!("{data} --model lda --warm-start {lr}"), &["--warm-start", "--model lda"]);
    refused_once(&format!("{data} --optimizer lbfgs --tolerance 2"), &["--tolerance 2"]);
    // The model from which it starts.
    refused_once(&format!("{data} --warm-start {}", at("nowhere")), &["--warm-start", "nowhere"]);
    refused_once(&format!("{data} --warm-start {fm}"), &["--warm-start", "fm", "--model"]);
    refused_once(&format!("{data} --model fm --factors 8 --warm-start {fm}"), &["factors", "4", "8"]);
    refused_once(&format!("{csv} --warm-start {lr}"), &["format", "libsvm", "csv"]);
    refused_once(&format!("{data} --no-intercept --warm-start {lr}"), &["intercept"]);
    // Folders that are written.
    let pipe = at("pipe.svm");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    refused_once(&format!("{pipe} --keep-names --out {}", at("kept")), &["--keep-names", "pipe.svm"]);
    refused_once(&format!("{data} --out {data}"), &["--out", "a.svm", "is a file"]);
    refused_once(&format!("{data} --out {fm}"), &["--out", "holds a model of fm", "lr"]);
    refused_once(&format!("{data} --model fm --factors 8 --out {fm}"), &["--out", "holds a model of fm"]);
}

/// What is checked is not kept from the processes of the job, and nothing is said twice.
#[test]
fn a_job_that_is_checked_runs_and_says_each_thing_once() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let line = |i: u64| format!("{},{},{}\n", i % 2, i % 7, i as f64 / 3.0);
    let csv = write(folder.path(), "a.csv", format!("label,a,b\n{}", (0..300).map(line).collect::<String>()));
    let launch = format!("launch --servers 2 --workers 2 -- train {csv} --scale standard --deterministic");
    for out in ["one", "two"] {
        let warm =
            if out == "two" { format!("--optimizer adam --warm-start {}", at("one")) } else { String::new() };
        let done = ok(&format!("{launch} --out {} {warm}", at(out)));
        let times = |what: &str| done.err.lines().filter(|line| line.contains(what)).count();
        assert_eq!(times("gannet: columns: label label"), 1, "{done:?}");
        // Each worker says these itself.
        assert_eq!(times("takes a fixed share of the data"), 2, "{done:?}");
        assert_eq!(
            times("its weights are used, and the state of adam starts from zero"),
            2 * usize::from(out == "two")
        );
    }
}
