//! The first trainings of a user with a CSV file that has a yes/no label, tested from outside: labels, scales, and
//! flags that were once accepted and ignored.

use crate::harness;

use harness::*;
use std::fmt::Write as _;
use std::path::Path;

/// The flags for reading a day's customers.
const FLAGS: &str = "--label churned --positive yes --numeric age,income --categorical city,plan";

/// The customers of a day. `yes` and `no` are the labels of those who left and of those who stayed.
fn day(n: u64, day: u64, yes: &str, no: &str) -> String {
    let mut text = "customer_id,age,income,city,plan,churned\n".to_owned();
    for i in 0..n {
        let at = i * 7 + day * 3;
        let (age, income) = (18 + at % 60, 20_000 + (at * 911) % 60_000);
        let label = if (age + income / 1000) % 5 < 2 { yes } else { no };
        let (city, plan) = (["Rome", "Oslo", "Bern"][i as usize % 3], ["a", "b"][at as usize % 2]);
        writeln!(text, "{},{age},{income},{city},{plan},{label}", 100_000 + i).unwrap();
    }
    text
}

fn in_folder(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

#[test]
fn a_warm_start_with_the_flags_of_the_first_training_did_not_know_the_scale() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (one, two) =
        (write(f, "day1.csv", day(400, 1, "yes", "no")), write(f, "day2.csv", day(300, 2, "yes", "no")));
    for more in ["", "--model fm", "--optimizer lbfgs --l2 1"] {
        for scale in ["standard", "minmax", "log"] {
            let (m, same, own) = (in_folder(f, "m"), in_folder(f, "same"), in_folder(f, "own"));
            ok(&format!("train {one} {FLAGS} {more} --scale {scale} --out {m}"));
            let warm = format!("train {two} {FLAGS} {more} --warm-start {m}");
            ok(&format!("{warm} --scale {scale} --out {same}"));
            ok(&format!("{warm} --out {own}"));
            let scores = |model: &str| ok(&format!("predict --model {model} {one}")).out;
            assert_eq!(scores(&same), scores(&own), "{more} {scale}: the model's own numbers");
            let other = if scale == "log" { "standard" } else { "log" };
            refused(&format!("{warm} --scale {other}"), &["--warm-start", "--scale", scale, other]);
            refused(&format!("{warm} --scale none"), &["--warm-start", "--scale", scale, "none"]);
            [m, same, own].iter().for_each(|model| std::fs::remove_dir_all(model).unwrap());
        }
    }
}

/// Once only worker 0 read the model unless --scale was given, and the other workers learned from unscaled numbers.
#[test]
fn a_warm_start_of_lbfgs_scaled_the_numbers_of_one_worker_only() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let data = write(f, "day1.csv", day(3_000, 1, "yes", "no"));
    let m = in_folder(f, "m");
    let line = format!("train {data} {FLAGS} --optimizer lbfgs --l2 1 --json");
    ok(&format!("{line} --scale standard --max-iter 2 --out {m}"));
    let alone = ok(&format!("{line} --warm-start {m}")).json();
    let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 1"));
    let hosts = format!("--ps-hosts {} --worker-hosts 127.0.0.1:1,127.0.0.1:2", server.addr);
    let worker = |i: u32| {
        let job = format!("{hosts} --job-name worker --task-index {i} --peer-timeout 30");
        Process::start(gannet(&format!("{line} --warm-start {m} {job}")))
    };
    // The second worker starts first, so that it cannot get the scale from the first.
    let second = worker(1);
    std::thread::sleep(std::time::Duration::from_millis(700));
    let done = [worker(0), second].map(Process::wait);
    assert!(done.iter().all(|done| done.code == Some(0)), "{done:?}");
    assert!(done[1].json()["examples"].as_u64() > Some(1_000), "{done:?}");
    let objective = |json: &serde_json::Value| json["objective"].as_f64().unwrap();
    let (alone, job) = (objective(&alone), objective(&done[0].json()));
    assert!((alone - job).abs() < 1e-7 * alone, "{alone} {job}");
    server.stop();
}

#[test]
fn the_first_column_was_taken_for_the_label_without_saying_so() {
    let folder = tempfile::tempdir().unwrap();
    let data = write(folder.path(), "day1.csv", day(50, 1, "yes", "no"));
    let expected =
        ["day1.csv:2: ", "\"customer_id\"", "\"100000\"", "the first is the label", "--label COLUMN"];
    for more in ["", "--positive yes", "--model fm"] {
        let skipped = if more == "--positive yes" { &expected[1..2] } else { &expected[..] };
        refused(&format!("train {data} {more}"), skipped);
        refused(&format!("train {data} {more}"), &expected[3..]);
    }
    // A user who names the column, or calls it `label`, gets no message about it.
    let done = run(&format!("train {data} --label churned"));
    assert!(!done.err.contains("--label"), "{done:?}");
    let called = write(folder.path(), "called.csv", day(50, 1, "yes", "no").replace("customer_id", "label"));
    let done = run(&format!("train {called}"));
    assert!(done.code == Some(2) && !done.err.contains("--label"), "{done:?}");
}

#[test]
fn the_message_about_a_label_other_than_0_and_1_was_unclear() {
    let folder = tempfile::tempdir().unwrap();
    let data = write(folder.path(), "day1.csv", day(50, 1, "yes", "no"));
    let says = "column \"churned\" has \"yes\", which is not 0, 1 or -1: say which value means 1 with --positive yes; \
                the line: ";
    let no_first = write(folder.path(), "day2.csv", "churned,a\nno,1\nyes,2\n");
    refused(
        &format!("train {no_first} --label churned"),
        &["has \"no\"", "means 1 with --positive yes; the line: \"no,1\""],
    );
    let done = run(&format!("train {data} --label churned"));
    assert!(
        done.err.contains(says) || done.err.contains(&says.replace("has \"yes\"", "has \"no\"")),
        "{done:?}"
    );
}

#[test]
fn a_missing_label_became_a_class_or_a_third() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    for missing in ["", "NA"] {
        for (name, at) in [("first", 0), ("later", 5)] {
            let mut lines: Vec<String> = day(40, 1, "yes", "no").lines().map(str::to_owned).collect();
            let cut = lines[at + 1].rsplit_once(',').unwrap().0.to_owned();
            lines[at + 1] = format!("{cut},{missing}");
            let data = write(f, &format!("{name}.csv"), lines.join("\n") + "\n");
            let line = format!("{name}.csv:{}: ", at + 2);
            for flags in [FLAGS.to_owned(), FLAGS.replace("--positive yes", "")] {
                if flags == FLAGS || at == 0 {
                    refused(
                        &format!("train {data} {flags}"),
                        &[&line, "\"churned\"", "the line has no label"],
                    );
                }
            }
            let done = ok(&format!("train {data} {FLAGS} --skip-bad-lines 1 --json"));
            assert_eq!(
                (&done.json()["bad_lines"], &done.json()["examples"]),
                (&1.into(), &39.into()),
                "{done:?}"
            );
            assert!(!done.err.contains("third"), "{done:?}");
        }
    }
    let svm = write(f, "a.svm", "NA 1:1\nyes 2:1\nno 1:1\nno 2:1\n");
    refused(&format!("train {svm} --positive yes"), &["a.svm:1: ", "\"NA\"", "the line has no label"]);
    let numbers = write(f, "n.csv", "price,a\n3,1\nNA,2\n");
    refused(
        &format!("train {numbers} --label price --model linear"),
        &["n.csv:3: ", "the line has no label"],
    );
}

#[test]
fn an_absent_positive_value_was_blamed_on_other_values() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let data = write(f, "day1.csv", day(300, 1, "yes", "no"));
    let flags = FLAGS.replace("--positive yes", "--positive Yes");
    let says = ["\"Yes\" (--positive) does not occur", "\"yes\"", "\"no\"", "--positive yes"];
    for more in ["", "--model fm", "--optimizer lbfgs --l2 1"] {
        refused(&format!("train {data} {flags} {more}"), &says);
    }
    // A third value beside both is still an error.
    let third = write(f, "third.csv", "churned,a\nyes,1\nno,2\nmaybe,3\n");
    refused(&format!("train {third} --label churned --positive yes"), &["a third, \"maybe\""]);
    // Only one value is seen. This is known only at the end.
    let one = write(f, "one.csv", day(300, 1, "no", "no"));
    for more in ["", "--model fm", "--optimizer lbfgs --l2 1"] {
        let done = ok(&format!("train {one} {FLAGS} {more}"));
        assert!(done.err.contains("label \"no\", and none \"yes\" (--positive)"), "{more}: {done:?}");
    }
}

#[test]
fn a_job_said_nothing_of_a_positive_value_that_does_not_occur() {
    let folder = tempfile::tempdir().unwrap();
    let one = write(folder.path(), "one.csv", day(600, 1, "no", "no"));
    let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 1"));
    let hosts = format!("--ps-hosts {} --worker-hosts 127.0.0.1:1,127.0.0.1:2", server.addr);
    let worker = |i: u32| {
        let line = format!("train {one} {FLAGS} --batch 64 --tasks off {hosts} --job-name worker");
        Process::start(gannet(&format!("{line} --task-index {i} --peer-timeout 30")))
    };
    for done in [worker(0), worker(1)].map(Process::wait) {
        assert!(done.code == Some(0) && done.err.contains("\"yes\" (--positive)"), "{done:?}");
    }
    server.stop();
}

/// Once worker 0 ended with code 2, and worker 1 with code 0 and 0 examples.
#[test]
fn a_worker_of_bad_lines_only_ended_well() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let bad = write(f, "bad.svm", "1 1:x\n".repeat(600));
    for model in ["lr", "fm"] {
        let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 1"));
        let hosts = format!("--ps-hosts {} --worker-hosts 127.0.0.1:1,127.0.0.1:2", server.addr);
        let worker = |i: u32| {
            let line =
                format!("train {bad} --model {model} --skip-bad-lines 600 --batch 64 --tasks off {hosts}");
            let line = format!("{line} --job-name worker --task-index {i} --peer-timeout 30");
            Process::start(gannet(&format!("{line} --out {}", in_folder(f, "m"))))
        };
        for done in [worker(0), worker(1)].map(Process::wait) {
            let says = done.err.contains("0 examples were learned") && done.err.contains("bad.svm:");
            assert!(done.code == Some(2) && says, "{model}: {done:?}");
        }
        server.stop();
    }
}

#[test]
fn flags_of_a_job_were_accepted_and_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let data = write(folder.path(), "day1.csv", day(50, 1, "1", "0"));
    for flag in [
        "--tasks on",
        "--tasks off",
        "--peer-timeout 60",
        "--task-index 0",
        "--task_index=3",
        "--task-bytes 64KiB",
        "--start-together",
        "--scheduler 127.0.0.1:9",
    ] {
        let name = flag.split([' ', '=']).next().unwrap().replace('_', "-");
        let says = format!("{name}: works only in a process of a job (--job-name)");
        refused(&format!("train {data} --label churned {flag}"), &[&says]);
    }
    ok(&format!("train {data} --label churned --tasks auto"));
    let job = format!("--ps-hosts {NOBODY} --worker-hosts 127.0.0.1:2 --job-name worker --peer-timeout 1");
    let line = format!("train {data} --label churned {job} --data-dir {}", in_folder(folder.path(), "rows"));
    refused(&line, &["--data-dir: works only in a ps or a client", "a worker keeps no rows"]);
}

#[test]
fn a_loss_worse_than_the_mean_was_answered_with_a_scale_that_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let data = write(f, "day1.csv", day(2_000, 1, "yes", "no"));
    let linear = write(f, "price.csv", day(2_000, 1, "3", "-3"));
    let svm = clicks(&f.join("a.svm"), 2_000, 1).display().to_string();
    let fast = "--optimizer sgd --alpha 1000";
    for scale in ["standard", "minmax"] {
        let flags = FLAGS.replace("--positive yes", "");
        for line in [
            format!("train {data} {FLAGS} {fast} --scale {scale}"),
            format!("train {data} {FLAGS} --model fm {fast} --scale {scale}"),
            format!(
                "train {linear} {flags} --model linear --optimizer sgd --alpha 0.9 --scale {scale} --batch 1"
            ),
        ] {
            let done = ok(&line);
            let says = format!("scaled already (--scale {scale})");
            assert!(done.err.contains("worse than") && done.err.contains(&says), "{line}: {done:?}");
            assert!(done.err.contains("--alpha") && !done.err.contains("scale them"), "{line}: {done:?}");
        }
    }
    // In this file no column needs scaling.
    let done = ok(&format!("train {svm} {fast}"));
    assert!(done.err.contains("worse than") && !done.err.contains("--scale"), "{done:?}");
}

#[test]
fn a_value_that_is_no_number_was_answered_by_the_standard_library() {
    let folder = tempfile::tempdir().unwrap();
    let data = write(folder.path(), "day1.csv", day(50, 1, "1", "0"));
    for (flag, says) in [
        ("--batch many", "invalid value 'many' for '--batch <BATCH>': a whole number is needed"),
        ("--epochs 1.5", "invalid value '1.5' for '--epochs <EPOCHS>': a whole number is needed"),
        ("--skip-bad-lines all", "a whole number is needed"),
        ("--skip-bad-lines 99999999999999999999", "a smaller number is needed"),
        ("--alpha fast", "invalid value 'fast' for '--alpha <RATE>': a number is needed"),
        ("--worker-timeout 5s", "a number is needed"),
        ("--admit-probability 1.5", "'--admit-probability <P>': a number above 0 and at most 1"),
    ] {
        refused(&format!("train {data} --label churned {flag}"), &[says, "--help"]);
    }
    ok(&format!("train {data} --label churned --admit-probability 1"));
}

#[test]
fn what_was_typed_was_repeated_in_other_words() {
    let folder = tempfile::tempdir().unwrap();
    let data = write(folder.path(), "day1.csv", day(50, 1, "1", "0"));
    let job = format!("--ps-hosts {NOBODY} --worker-hosts 127.0.0.1:2 --job-name worker");
    for (typed, sync) in [("TRUE", "asp"), ("1", "ssp:3"), ("false", "bsp")] {
        let says = format!("--issync {typed} and --sync {sync} contradict");
        refused(&format!("train {data} {job} --issync {typed} --sync {sync}"), &[&says]);
    }
    refused(&format!("train {data} --issync True"), &["--issync True: works only in a process of a job"]);
}

#[test]
fn a_model_was_to_be_a_file_and_the_system_answered() {
    let folder = tempfile::tempdir().unwrap();
    let data = write(folder.path(), "day1.csv", day(50, 1, "1", "0"));
    for more in ["", "--model fm", "--optimizer lbfgs --l2 1"] {
        let line = format!("train {data} --label churned {more} --out {data}");
        refused(&line, &[&format!("--out {data}: is a file"), "folder"]);
        let done = run(&format!("{line}/model"));
        let says = done.err.contains(&format!("--out {data}/model: ")) && done.err.contains("can be written");
        assert!(done.code == Some(1) && says, "{done:?}");
    }
}

#[test]
fn the_short_help_did_not_mention_csv_files() {
    let done = ok("train -h");
    for flag in ["--label", "--positive", "--numeric", "--categorical", "--scale", "--warm-start"] {
        assert!(done.out.contains(&format!("{flag} <")), "{flag}: {}", done.out);
    }
    let lines = done.out.lines().count();
    assert!((24..=40).contains(&lines), "{lines} lines:\n{}", done.out);
}
