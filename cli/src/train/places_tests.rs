//! Every flag that means nothing somewhere is refused there, with the reason; in their places flags are accepted.

use super::*;
use crate::flags::{Cli, Command};

/// The error about these flags of `gannet train x` in this role, or nothing.
fn refused(role: &str, flags: &str) -> String {
    let job = match role {
        "alone" | "bare" => String::new(),
        role => format!("--ps-hosts a:1,b:1 --worker-hosts c:1,d:1 --job-name {role}"),
    };
    let names_data = ["--feed", "--follow ", "kafka://"].iter().any(|flag| flags.contains(flag));
    let data = if ["bare", "ps"].contains(&role) || names_data { "" } else { "x" };
    let line = format!("gannet train {data} {job} {flags}");
    let words = line.split_whitespace().map(Into::into).collect();
    let read = Cli::of(words).unwrap_or_else(|error| panic!("{line}: {error}"));
    let Command::Train(mut args) = read.command else { panic!("{line}") };
    follow::take_topic(&mut args.data);
    let checked = Process { args: &args, is_launched: false }.check_places();
    checked.err().map(|failure| failure.to_string()).unwrap_or_default()
}

/// Every flag that means nothing somewhere, beside the other flags of the command, and why.
const REFUSED: &[(&str, &str, &[&str], &str)] = &[
    ("alone", "", &["--until", "--until-end"], "works only with --follow or a topic of Kafka"),
    ("alone", "", &["--follow-order"], "works only with --follow"),
    ("alone", "--follow x y", &["DATA"], "the files of --follow take its place"),
    ("alone", "kafka://a:1/t y", &["y"], "one topic of Kafka is trained at a time"),
    ("alone", "kafka://a:1/t", &["--follow"], "a topic of Kafka is trained alone"),
    ("worker", "--follow x --feed e:1", &["--feed e:1"], "data that grows needs workers that see it"),
    ("alone", "--follow x", &["--epochs"], "data that grows is trained once"),
    ("alone", "kafka://a:1/t", &["--cache"], "data that grows is trained once"),
    ("alone", "--follow x --scale minmax", &["--scale minmax"], "looks at all data before the training"),
    ("alone", "--follow x", &["--model lda"], "its workers keep their data"),
    ("alone", "--follow x", &["--optimizer lbfgs"], "it looks at all data in each step"),
    ("alone", "--follow x", &["--data-dir"], "one process alone does not keep which data it has trained"),
    ("worker", "--follow x", &["--tasks off", "--deterministic"], HANDED_OUT),
    ("worker", "--follow x --replicas-to-aggregate 1", &["--replicas-to-aggregate 1"], HANDED_OUT),
    ("alone", "", OF_JOBS, "works only in a process of a job (--job-name)"),
    ("alone", "", OF_SERVERS, "works only in a ps or gannet server"),
    ("alone", "", OF_CACHE, LR_WORKER),
    ("alone", "", &["--shards"], LR_WORKER),
    ("alone", "", &RUN_FLAGS, "works only in a job (--job-name) or with --data-dir"),
    ("ps", "--feed e:1", &["--feed e:1"], "works only in a worker or the client of a job"),
    ("ps", "", &["--tls-ca", "--one-sided", "--wire"], "works only in a worker"),
    ("ps", "", &RUN_FLAGS, "works only in a worker or a client"),
    ("ps", "", OF_CACHE, LR_WORKER),
    ("ps", "", &["--shards"], LR_WORKER),
    ("ps", "", &["--warm-start"], "works only in a worker"),
    ("worker", "", OF_SERVERS, "works only in a ps or gannet server"),
    (
        "worker",
        "--coordinator e:1",
        &["--lease", "--on-server-loss", "--replication", "--spare"],
        "works only in a ps",
    ),
    ("worker", "", &["--exit-with-job", "--listen", "--tls-client-ca"], "works only in a ps"),
    ("worker", "", &["--memory-limit"], "works only in a process that has tables; a worker has none"),
    ("worker", "", &["--data-dir"], "works only in a ps or a client; a worker keeps no rows"),
    ("worker", "", OF_CACHE.split_at(1).1, "works only with a cache (--cache-bytes)"),
    ("worker", "--feed e:1", &["--warm-start"], "the workers of a client (--feed) cannot compare"),
    ("worker", "--model fm", &["--cache-bytes", "--shards"], LR_WORKER),
    ("worker", "--model fm", &["--damping"], "works only with --model lr"),
    (
        "worker",
        "--tasks off",
        &["--scheduler", "--task-bytes", "--start-together"],
        "works only with --tasks on",
    ),
    ("worker", "--coordinator e:1", &["--scheduler"], "with --coordinator the owner of the first place"),
    ("worker", "--coordinator e:1 --feed f:1", &["--feed f:1"], "with --coordinator the client cannot be"),
    ("worker", "--feed e:1", READING, "with --feed the client decides how the data is read"),
    ("worker", "--feed e:1", &["--test", "--out"], "with --feed the client tests and saves"),
    ("worker", "--feed e:1", &["--task-bytes"], "with --feed the client makes the splits"),
    ("worker", "--feed e:1", &["--scheduler"], "the client (--feed) is the job's scheduler"),
    ("worker", "--feed e:1", &["--data-dir"], "works only in the client"),
    ("worker", "--feed e:1", &["--scale"], "the workers of a client cannot read its files"),
    ("worker", "--feed e:1 --model fm", &["--feed e:1"], "works only with --model lr"),
    ("worker", "--feed e:1 --optimizer lbfgs", &["--feed e:1"], "works only with --model lr"),
    ("client", "x --feed e:1", &["--task-index"], "a job has one client"),
    ("client", "x --feed e:1", &["--checkpoint"], "works only in a ps or a worker"),
    ("client", "x --feed e:1", &["--wire"], "works only in a worker"),
    ("client", "x --feed e:1", &["--memory-limit"], "works only in a process that has tables"),
    ("client", "x --feed e:1", &["--exit-with-job", "--listen"], "works only in a ps"),
    ("client", "x --feed e:1", &["--warm-start"], "the workers of a client (--feed) cannot compare"),
    ("client", "x --feed e:1", OF_CACHE, LR_WORKER),
    (
        "alone",
        "",
        &["--history", "--max-iter", "--tolerance", "--data-memory", "--pass-timeout"],
        "works only with --optimizer lbfgs",
    ),
    ("alone", "--model fm", &["--optimizer lbfgs"], "works only with --model lr"),
    (
        "alone",
        "--optimizer lbfgs",
        &[
            "--push",
            "--reduce",
            "--clip-value",
            "--clip-norm",
            "--schedule",
            "--warmup",
            "--alpha",
            "--beta",
            "--l21",
            "--rho",
        ],
        "no setting of --optimizer lbfgs, which has --l1, --l2",
    ),
    ("alone", "--optimizer lbfgs", &["--epochs"], "L-BFGS has --max-iter"),
    ("alone", "--optimizer lbfgs", &["--batch"], "L-BFGS looks at the whole data"),
    ("alone", "--optimizer lbfgs --test x", &["--validate-every"], "L-BFGS has no steps of batches"),
    ("alone", "--optimizer lbfgs --out x", &["--save-secs"], "L-BFGS saves --out when it has ended"),
    ("alone", "--optimizer lbfgs", ADMISSION, "L-BFGS gives every key a row"),
    ("alone", "--optimizer lbfgs", EVICTION, "L-BFGS needs the rows of all features"),
    ("worker", "--deterministic", EVICTION, "when a row dies depends on the time"),
    (
        "alone",
        "--optimizer lbfgs",
        &["--row-type"],
        "the vectors and sums of --optimizer lbfgs must stay f32",
    ),
    ("worker", "--optimizer lbfgs", &["--wire"], "the vectors and sums of --optimizer lbfgs must stay f32"),
    ("worker", "--optimizer lbfgs", &["--sync", "--issync"], "the workers of L-BFGS make each pass together"),
    (
        "worker",
        "--optimizer lbfgs",
        &["--replicas-to-aggregate"],
        "L-BFGS needs the gradients of all workers",
    ),
    ("worker", "--optimizer lbfgs", &["--damping"], "L-BFGS pushes no changes of state"),
    ("worker", "--optimizer lbfgs", &["--worker-timeout"], "L-BFGS waits for its workers for --pass-timeout"),
    ("worker", "--optimizer lbfgs", &["--deterministic"], "L-BFGS adds sums over rows"),
    (
        "worker",
        "--optimizer lbfgs",
        &["--tasks", "--task-bytes", "--start-together", "--scheduler"],
        "does not work with L-BFGS",
    ),
    ("alone", "", &["--row-type"], "with --model lr and linear a row has one weight"),
    ("alone", "--model lda", &["--row-type"], "the counts of words of --model lda"),
    ("worker", "--model lda", &["--wire"], "the counts of words of --model lda"),
    ("alone", "--model lda", &["--warm-start"], "--model lda counts topics of words"),
    ("alone", "--model lda --data-dir x", &["--continue"], "does not work with --model lda"),
    ("alone", "--model lda", &["--optimizer", "--alpha", "--push", "--test"], GRADIENTS),
    ("alone", "--model lda --out x", &["--save-secs"], GRADIENTS),
    ("alone", "--model lda", ADMISSION, GRADIENTS),
    ("alone", "--model lda", EVICTION, "counts the words of its documents"),
    ("worker", "--model lda", &["--checkpoint"], GRADIENTS),
    ("worker", "--model lda", &["--tasks"], "does not work with --model lda"),
    (
        "alone",
        "",
        &[
            "--classes",
            "--factors",
            "--deviation",
            "--hidden",
            "--topics",
            "--document-prior",
            "--word-prior",
            "--vocabulary",
            "--seed",
        ],
        "no setting of --model lr, which has none; it belongs to ",
    ),
    (
        "alone",
        "--optimizer sgd",
        &[
            "--beta",
            "--l1",
            "--l21",
            "--momentum",
            "--rho",
            "--beta1",
            "--beta2",
            "--epsilon",
            "--weight-decay",
        ],
        "no setting of --optimizer sgd, which has --alpha, --l2; it belongs to ",
    ),
    (
        "alone",
        "",
        &["--decay-steps", "--decay-rate", "--decay-end", "--decay-power"],
        "no setting of --schedule constant, which has none; it belongs to ",
    ),
];

/// A value that asks for something.
fn with_value(flag: &str) -> String {
    let value = match flag {
        "--no-header"
        | "--no-intercept"
        | "--insecure"
        | "--start-together"
        | "--exit-with-job"
        | "--continue"
        | "--until-end"
        | "--fresh"
        | "--allow-missing-workers"
        | "--deterministic" => return flag.to_owned(),
        "--tls-cert" => "2 --tls-key 2",
        "--tls-client-ca" => "2 --tls-cert 2 --tls-key 2",
        flag if flag.contains(' ') => return flag.to_owned(),
        "DATA" | "y" => return "y".to_owned(),
        "--follow-order" => "time",
        "--sync" => "bsp",
        "--issync" => "1",
        "--tasks" | "--damping" => "on",
        "--wire" | "--row-type" => "f16",
        "--one-sided" => "never",
        "--cache-use" => "always",
        "--sync-rows" => "full",
        "--cache-bytes" | "--memory-limit" | "--task-bytes" | "--data-memory" => "64MiB",
        "--session-memory" | "--keyset-memory" | "--rdma-memory" => "64MiB",
        "--format" => "csv",
        "--criteo-counts" => "log",
        "--scale" => "log",
        "--normalize" | "--types" => "off",
        "--intercept-start" => "zero",
        "--class-weight" => "2:1",
        "--keep-negatives" => "0.5",
        "--loss" => "squared",
        "--push" => "gradient",
        "--reduce" => "mean",
        "--schedule" => "cosine",
        "--optimizer" => "sgd",
        "--on-server-loss" => "wait",
        "--replication" => "async",
        "--admit-probability" => "0.5",
        "--delimiter" => ";",
        "--quadratic" => "ab",
        "--cubic" => "abc",
        _ => "2",
    };
    format!("{flag} {value}")
}

#[test]
fn every_flag_that_means_nothing_is_refused_with_the_reason_and_what_to_do() {
    for (role, beside, flags, why) in REFUSED {
        for flag in *flags {
            let own = with_value(flag);
            let beside =
                if beside.contains(own.as_str()) { (*beside).to_owned() } else { format!("{beside} {own}") };
            let said = refused(role, &beside);
            assert!(
                said.starts_with(flag.split(' ').next().unwrap()) && said.contains(why),
                "{role} {beside}: {why:?} is not in {said:?}"
            );
            assert!(said.ends_with("; leave it out"), "{said}");
        }
    }
}

#[test]
fn a_process_without_what_it_needs_is_refused() {
    assert!(refused("bare", "").starts_with("DATA is missing"));
    assert!(refused("client", "").starts_with("--job-name client: --feed HOST:PORT is missing"));
    assert!(refused("client", "--feed e:1").starts_with("--job-name client: DATA is missing"));
    assert!(
        refused("worker", "x --feed e:1").starts_with("DATA: with --feed only the client reads the data")
    );
}

#[test]
fn values_that_ask_for_nothing_and_flags_in_their_place_are_accepted() {
    for (role, flags) in [
        ("alone", "--tasks auto --cache-bytes 0 --issync 0 --epochs 1 --skip-bad-lines 0 --format auto"),
        ("alone", "--data-dir x --run a --continue --memory-limit 1GiB"),
        ("alone", "--optimizer lbfgs --l1 1 --history 5 --epochs 1 --warm-start x"),
        ("alone", "--model lda --topics 5 --word-prior 0.1"),
        ("alone", "--optimizer adam --schedule cosine --decay-steps 5 --decay-end 0.1"),
        ("alone", "--follow x --until-end --follow-order time --scale log --epochs 1 --no-cache"),
        ("worker", "--follow x --until 5 --tasks on --task-bytes 1MiB --replicas-to-aggregate 2"),
        ("ps", "--listen a:1 --data-dir x --exit-with-job --run a --sessions-max 5"),
        ("ps", "--coordinator e:1 --tls-ca x --lease 3 --checkpoint x --run a"),
        ("worker", "--optimizer lbfgs --sync asp --issync 0 --tasks off --wire f32"),
        (
            "worker",
            "--cache-bytes 64MiB --sync-rows full --shards 8 --damping on --tasks on --task-bytes 1MiB",
        ),
        ("worker", "--feed e:1 --task-index 1 --skip-bad-lines 0 --format auto"),
        ("client", "x --feed e:1 --task-index 0 --data-dir x --test x --out x --shards 8"),
    ] {
        assert_eq!(refused(role, flags), "", "{role} {flags}");
    }
}
