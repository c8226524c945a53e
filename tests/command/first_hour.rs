//! What a user meets in the first hour, tested from outside: flags known from other programs, help, and messages.

use crate::harness;

use harness::ports::free_addr;
use harness::*;
use std::fmt::Write as _;

/// Rows of a CSV file with a header.
fn table(rows: usize) -> String {
    let mut text = String::from("label,a,b\n");
    (0..rows).for_each(|i| writeln!(text, "{},{},x{}", i % 2, i % 7, i % 13).unwrap());
    text
}

/// The start of a job's documentation: a ps without DATA, and a worker with the flags of TensorFlow's scripts.
#[test]
fn flags_of_tensorflow_scripts_were_refused_and_a_ps_wanted_data() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 500, 1);
    for issync in ["true", "0"] {
        let job = format!("--ps_hosts={} --worker_hosts=127.0.0.1:9 --issync {issync}", free_addr());
        let ps = Served::start(gannet(&format!("train {job} --job_name=ps --task_index=0")));
        let done = run(&format!(
            "train {} {job} --job_name worker --task_index 0 --peer_timeout 30 --json",
            data.display()
        ));
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(done.json()["examples"], 500);
        assert!(ps.stop().contains("stopped after"));
    }
    let done = run(&format!("train {} --issync maybe", data.display()));
    assert!(done.code == Some(2) && done.err.contains("true, false, 1 or 0"), "{done:?}");
    let done = run("train --model lr");
    assert!(done.code == Some(2) && done.err.contains("DATA is missing"), "{done:?}");
}

const COMMANDS: [&str; 7] = ["train", "server", "scheduler", "status", "predict", "bench", "doctor"];

/// Once `-h` of training had 213 lines.
#[test]
fn the_short_help_filled_several_screens() {
    for command in COMMANDS.iter().chain([&""]) {
        let done = run(&format!("{command} -h"));
        assert_eq!(done.code, Some(0));
        let lines = done.out.lines().count();
        assert!(lines <= 40, "{command}: {lines} lines:\n{}", done.out);
        assert!(done.out.contains("Usage: gannet"), "{}", done.out);
    }
    for command in ["train", "server", "scheduler"] {
        let done = run(&format!("{command} -h"));
        assert!(done.out.contains(&format!("`gannet {command} --help` shows all")), "{}", done.out);
    }
}

/// Once all flags of a job were under "Metrics:".
#[test]
fn the_help_listed_the_job_under_metrics() {
    let help = run("train --help").out;
    let at = |text: &str| {
        let found =
            help.lines().position(|line| line.trim_end() == text || line.trim_start().starts_with(text));
        found.unwrap_or_else(|| panic!("{text} is missing"))
    };
    let sections = [
        "Data:",
        "Model:",
        "Optimizer:",
        "Training:",
        "Output:",
        "Job:",
        "Server:",
        "Transport:",
        "Security:",
    ];
    let sections: Vec<usize> = sections.iter().chain(&["Metrics:", "Logs:"]).map(|name| at(name)).collect();
    assert!(sections.is_sorted(), "{sections:?}");
    for (flag, section) in [
        ("--format <", 0),
        ("--factors <", 1),
        ("--alpha <", 2),
        ("--max-iter <", 2),
        ("--epochs <", 3),
        ("--out <", 4),
        ("--job-name <", 5),
        ("--memory-limit <", 6),
        ("--transport <", 7),
        ("--token-file <", 8),
        ("--metrics <", 9),
    ] {
        let line = at(flag);
        assert!(
            line > sections[section] && line < sections[section + 1],
            "{flag} is not in section {section}"
        );
    }
}

/// Once `--lr` was answered with `--tolerance`, and `--servers` with `--seed`.
#[test]
fn an_unknown_flag_was_answered_with_another_meaning() {
    for (flags, tip) in [
        ("--lr 0.1", "--alpha RATE"),
        ("--learning-rate=0.1", "--alpha RATE"),
        ("--learning_rate 0.1", "--alpha RATE"),
        ("-l 0.5", "--alpha RATE"),
        ("--num-epochs 3", "--epochs N"),
        ("--passes 3", "--epochs N"),
        ("--batch-size 3", "--batch N"),
        ("--ps a:1", "--ps-hosts"),
        ("--servers a:1", "--ps-hosts"),
        ("--workers 2", "--worker-hosts"),
        ("--test-data x", "--test FILE"),
        ("--train x", "the data needs no flag"),
        ("--C 1", "--l2 X is 1/C"),
        ("--tol 1", "--tolerance X"),
        ("--port 3", "--listen HOST:PORT"),
        ("--epohcs 3", "did you mean --epochs?"),
        ("--optimiser adam", "did you mean --optimizer?"),
    ] {
        let done = run(&format!("train x {flags}"));
        assert_eq!(done.code, Some(2), "{flags}: {done:?}");
        assert!(done.err.contains(tip), "{flags}: {done:?}");
        assert!(done.err.lines().count() <= 6, "{flags}: {done:?}");
    }
    for flags in ["--qq 1", "--colour red", "--warp 9"] {
        let done = run(&format!("train x {flags}"));
        assert!(done.code == Some(2) && !done.err.contains("tip:"), "{flags}: {done:?}");
    }
    assert!(run("server --port 7700").err.contains("--listen HOST:PORT"));
    for flag in ["--l2 1", "--alpha 0.2"] {
        let folder = tempfile::tempdir().unwrap();
        let data = write(folder.path(), "a.csv", table(20));
        assert_eq!(run(&format!("train {data} {flag}")).code, Some(0), "{flag}");
    }
}
