//! `--warm-start` in jobs: a job that starts from a model learns what one process learns from it, bit by bit, on any
//! servers, also when its chief is killed while it puts the rows.

use crate::harness;
use crate::world::{Place, until};

use harness::ports::free_addr;
use harness::*;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

impl Place {
    /// Clicks of two days.
    fn clicks(&self, examples: u64) -> [String; 2] {
        [1, 2].map(|day| clicks(&self.at(&format!("{day}.svm")), examples, day).display().to_string())
    }

    /// Two days of users, items and ratings in steps of one half.
    fn ratings(&self, examples: u64) -> [String; 2] {
        [1u64, 2].map(|day| {
            let mut text = String::new();
            for i in 0..examples {
                let (user, item) = ((i * 7 + day) % 40, 100 + (i * 13 + day * 5) % 60);
                writeln!(text, "{}.5 {user}:1 {item}:1", (user + item) % 5).unwrap();
            }
            write(self.folder.path(), &format!("ratings-{day}.svm"), text)
        })
    }

    /// Two days of rows with columns, of which some are numbers that few are large of.
    fn columns(&self, examples: u64) -> [String; 2] {
        [1u64, 2].map(|day| {
            let mut text = "label,who,what,spent\n".to_owned();
            for i in 0..examples {
                let (who, what) = ((i * 7 + day) % 40, (i * 13 + day * 5) % 60);
                let spent = (i * 31 % 97).pow(3) as f64 / 7.0;
                writeln!(text, "{},w{who},t{what},{spent:.3}", u8::from((who + what) % 3 == 0)).unwrap();
            }
            write(self.folder.path(), &format!("columns-{day}.csv"), text)
        })
    }

    /// Two days whose features almost all come once, for many rows.
    fn rare(&self, examples: u64) -> [String; 2] {
        [1u64, 2].map(|day| {
            let mut text = String::new();
            for i in 0..examples {
                let features = (0..12).map(|at| format!(" {}:1", at * 1_000_000 + i + day * 1_000));
                writeln!(text, "{}{}", i % 3 % 2, features.collect::<String>()).unwrap();
            }
            write(self.folder.path(), &format!("rare-{day}.svm"), text)
        })
    }

    /// Removes what a training has saved, so that the next one may have another model.
    fn without(&self, names: &[&str]) {
        names.iter().for_each(|name| drop(std::fs::remove_dir_all(self.at(name))));
    }
}

/// The servers of a job.
struct Cluster {
    _served: Vec<Served>,
    hosts: String,
}

/// Servers. `turned`: the last one that was started is named first.
fn serve(servers: usize, turned: bool, flags: &str) -> Cluster {
    let start = |_| Served::start(gannet(&format!("server --listen 127.0.0.1:0 --threads 2 {flags}")));
    let served: Vec<Served> = (0..servers).map(start).collect();
    let mut hosts: Vec<String> = served.iter().map(|server| server.addr.clone()).collect();
    if turned {
        hosts.reverse();
    }
    Cluster { hosts: hosts.join(","), _served: served }
}

fn worker_line(hosts: &str, (index, of): (usize, usize), line: &str) -> String {
    let workers = (0..of).map(|index| format!("w:{index}")).collect::<Vec<_>>().join(",");
    format!(
        "train --job-name worker --task-index {index} --worker-hosts {workers} --ps-hosts {hosts} --peer-timeout 20 \
         {line}"
    )
}

fn worker(hosts: &str, of: (usize, usize), line: &str) -> Process {
    Process::start(gannet(&worker_line(hosts, of, line)))
}

/// Runs all workers of a job. Returns what worker 0 said.
fn job(hosts: &str, workers: usize, line: &str) -> Done {
    let started: Vec<Process> = (0..workers).map(|index| worker(hosts, (index, workers), line)).collect();
    let mut done: Vec<Done> = started.into_iter().map(Process::wait).collect();
    done.iter().for_each(|done| assert_eq!(done.code, Some(0), "{line}: {done:?}"));
    done.remove(0)
}

/// The rows of all tables of a model, bit by bit.
fn all_rows(model: &Path) -> Vec<(String, u64, Vec<u32>)> {
    let tables = std::fs::read_dir(model).unwrap().map(|entry| entry.unwrap().path());
    let named = tables.filter(|path| path.is_dir() && !path.ends_with("previous")).map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name.split('-').next().unwrap().to_owned(), path)
    });
    let all = named.chain([(String::new(), model.to_path_buf())]);
    let mut rows: Vec<_> = all
        .flat_map(|(name, path)| {
            model_rows(&path).into_iter().map(move |(key, row)| (name.clone(), key, row))
        })
        .collect();
    rows.sort();
    rows
}

const ALIKE: &str = "--deterministic --batch 64";

#[test]
fn a_job_that_starts_from_a_model_learns_what_one_process_does() {
    let place = Place::new();
    let (svm, ratings, csv) = (place.clicks(1_024), place.ratings(1_024), place.columns(1_024));
    for (round, (flags, [first, second])) in [
        ("--l1 0.1", &svm),
        ("--optimizer adam", &csv),
        ("--optimizer group-ftrl", &svm),
        ("--model linear", &ratings),
        ("--model softmax --classes 2", &svm),
        ("--model fm --factors 4", &csv),
        ("--model fm --factors 4 --optimizer adam", &svm),
        ("--model ffm --factors 2", &csv),
        ("--model deepfm --factors 4 --hidden 8", &csv),
        ("--model mf --factors 4", &ratings),
    ]
    .into_iter()
    .enumerate()
    {
        let [model, want, got] = ["model", "want", "got"].map(|name| place.at(name));
        ok(&format!("train {first} {flags} --out {}", model.display()));
        let line = format!("{second} {flags} --warm-start {}", model.display());
        ok(&format!("train {line} --push gradient --batch 64 --out {}", want.display()));
        for servers in [1, 2] {
            let cluster = serve(servers, round % 2 == 0, "");
            let done = job(&cluster.hosts, 1, &format!("{line} {ALIKE} --out {}", got.display()));
            assert!(done.err.contains("the job starts with"), "{done:?}");
            assert!(all_rows(&got) == all_rows(&want), "{flags}, {servers} servers: other bits");
            let notes = |model: &Path| {
                let model = gannet::storage::Checkpoint::open(model).unwrap();
                ["normalized-features", "fields", "numeric", "scale-columns", "generation"]
                    .map(|note| model.note(note).map(str::to_owned))
            };
            assert_eq!(notes(&got), notes(&want), "{flags}");
        }
        assert!(all_rows(&want) != all_rows(&model), "{flags}: it learns");
        place.without(&["model", "want", "got"]);
    }
}

/// What two workers make of a model equals what they make of rows that are at their servers: those of the same model,
/// of which the second day is trained with --continue.
#[test]
fn workers_go_on_from_a_model_as_from_their_own_rows() {
    let place = Place::new();
    let (svm, csv) = (place.clicks(1_024), place.columns(1_024));
    for (flags, [first, second]) in [
        ("--l1 0.1", &svm),
        ("--model fm --factors 4", &csv),
        ("--model softmax --classes 2 --optimizer adagrad", &svm),
        ("--scale standard", &csv),
        ("--model deepfm --factors 4 --hidden 8", &csv),
    ] {
        let [model, want, got] = ["model", "want", "got"].map(|name| place.at(name));
        let own = serve(2, false, "");
        job(&own.hosts, 2, &format!("{first} {flags} {ALIKE} --out {}", model.display()));
        job(&own.hosts, 2, &format!("{second} {flags} {ALIKE} --continue --out {}", want.display()));
        // The model says it.
        let flags = flags.replace("--scale standard", "");
        let line = format!("{second} {flags} {ALIKE} --warm-start {}", model.display());
        for (servers, turned) in [(1, false), (2, true), (3, false)] {
            let cluster = serve(servers, turned, "");
            job(&cluster.hosts, 2, &format!("{line} --out {}", got.display()));
            assert!(all_rows(&got) == all_rows(&want), "{flags}, {servers} servers: other bits");
        }
        place.without(&["model", "want", "got"]);
    }
}

/// Rows of 16 bits round by chance, which the names of pushes decide. They are the same on any servers.
#[test]
fn rows_of_16_bits_and_other_types_start_from_a_model() {
    let place = Place::new();
    let [first, second] = &place.clicks(1_024);
    let [model, got] = ["model", "got"].map(|name| place.at(name));
    for (before, flags) in
        [("bf16", "--row-type bf16"), ("f32", "--row-type f16"), ("f16", "--row-type f32 --optimizer sgd")]
    {
        let fm = "--model fm --factors 4";
        ok(&format!("train {first} {fm} --row-type {before} --out {}", model.display()));
        let line = format!("{second} {fm} {flags} {ALIKE} --warm-start {}", model.display());
        let mut all = [1, 3].map(|servers| {
            let cluster = serve(servers, true, "");
            job(&cluster.hosts, 2, &format!("{line} --out {}", got.display()));
            all_rows(&got)
        });
        let [one, three] = &mut all;
        assert!(!one.is_empty() && one == three, "{flags}: other bits");
        place.without(&["model", "got"]);
    }
}

/// Ways to train whose bits depend on time learn as much as one process does.
#[test]
fn all_ways_to_keep_step_start_from_a_model() {
    let place = Place::new();
    let [first, second] = &place.clicks(6_000);
    let [model, alone, got] = ["model", "alone", "got"].map(|name| place.at(name));
    let loss = |model: &Path| {
        let report = ok(&format!("predict {second} --json --model {}", model.display())).json();
        report["logloss"].as_f64().unwrap_or_else(|| panic!("{report}"))
    };
    ok(&format!("train {first} --epochs 3 --out {}", model.display()));
    let rows = |model: &Path| all_rows(model).iter().map(|row| row.1).collect::<Vec<u64>>();
    let line = format!("{second} --warm-start {}", model.display());
    ok(&format!("train {line} --out {}", alone.display()));
    for (workers, flags) in [
        (2, "--tasks on --task-bytes 64KiB"),
        (3, "--tasks off"),
        (2, "--tasks off --sync ssp:2 --cache-bytes 1MiB"),
        (2, "--tasks on --sync bsp"),
        (2, "--admit-count 200"),
    ] {
        let cluster = serve(2, false, "");
        job(&cluster.hosts, workers, &format!("{line} {flags} --out {}", got.display()));
        let (own, of_job) = (loss(&alone), loss(&got));
        assert!((of_job / own - 1.0).abs() < 0.08, "{flags}: {of_job}, alone {own}");
        let all = rows(&got);
        assert!(rows(&model).iter().all(|key| all.binary_search(key).is_ok()), "{flags}: rows are missing");
        place.without(&["got"]);
    }
}

#[test]
fn a_job_starts_from_a_checkpoint_of_more_servers() {
    let place = Place::new();
    let (svm, csv) = (place.clicks(1_024), place.columns(1_024));
    for (flags, [first, second]) in
        [("--intercept-start zero", &svm), ("--model deepfm --factors 4 --hidden 8", &csv)]
    {
        let [model, got, saved] = ["model", "got", "saved"].map(|name| place.at(name));
        let cluster = serve(3, true, &format!("--checkpoint {}", saved.display()));
        let line = format!("{first} {flags} {ALIKE} --checkpoint {}", saved.display());
        job(&cluster.hosts, 2, &format!("{line} --out {}", model.display()));
        let mut all = [(&model, 2), (&saved, 1)].map(|(from, servers)| {
            let cluster = serve(servers, false, "");
            let line = format!("{second} {flags} {ALIKE} --warm-start {}", from.display());
            job(&cluster.hosts, 2, &format!("{line} --out {}", got.display()));
            all_rows(&got)
        });
        let [of_model, of_checkpoint] = &mut all;
        assert!(of_model == of_checkpoint, "{flags}: other bits");
        place.without(&["model", "got", "saved"]);
    }
}

/// Nothing is trained before worker 1 comes, so the chief dies before the training, wherever it dies.
#[test]
fn a_chief_that_is_killed_while_it_puts_rows_changes_no_bit() {
    let place = Place::new();
    let [first, second] = &place.rare(12_000);
    let (model, folder) = (place.at("model"), place.at("rows"));
    ok(&format!("train {first} --model fm --factors 8 --out {}", model.display()));
    let line = |out: &Path| {
        format!(
            "{second} --model fm --factors 8 --deterministic --batch 4096 --warm-start {} --out {}",
            model.display(),
            out.display()
        )
    };
    let undisturbed = place.at("undisturbed");
    let cluster = serve(2, false, "");
    job(&cluster.hosts, 2, &line(&undisturbed));
    for round in 0..4u64 {
        let out = place.at("killed");
        let addrs = [free_addr(), free_addr()];
        let start = |index: usize| {
            let rows = folder.join(format!("{round}-{index}"));
            Served::start(gannet(&format!(
                "server --listen {} --threads 2 --data-dir {}",
                addrs[index],
                rows.display()
            )))
        };
        let mut served: Vec<Served> = [0, 1].map(start).into();
        let hosts = addrs.join(",");
        for kill in 0..3 {
            let mut chief = worker(&hosts, (0, 2), &line(&out));
            std::thread::sleep(Duration::from_millis(60 + 45 * round + 30 * kill));
            assert!(chief.is_alive());
            if (round + kill) % 2 == 1 {
                // The chief sends again what this server has not acknowledged.
                let victim = kill as usize % 2;
                served.remove(victim).kill();
                served.insert(victim, start(victim));
            }
            drop(chief);
        }
        let all = [0, 1].map(|index| worker(&hosts, (index, 2), &line(&out)));
        for done in all.map(Process::wait) {
            assert_eq!(done.code, Some(0), "round {round}: {done:?}");
        }
        assert!(all_rows(&out) == all_rows(&undisturbed), "round {round}: other bits than without kills");
        place.without(&["killed"]);
    }
}

/// Worker 1 comes first, and sees a chief that dies.
#[test]
fn workers_wait_for_the_chief_that_puts_the_rows_and_name_it() {
    let place = Place::new();
    let [first, second] = &place.clicks(2_000);
    let [model, out] = ["model", "out"].map(|name| place.at(name));
    ok(&format!("train {first} --out {}", model.display()));
    let line = format!("{second} --warm-start {} --out {}", model.display(), out.display());
    for tasks in ["--tasks on", "--tasks off"] {
        let cluster = serve(2, false, "");
        let alone = worker_line(&cluster.hosts, (1, 2), &format!("{line} {tasks} --run alone"));
        let done = run(&alone.replace("--peer-timeout 20", "--peer-timeout 1"));
        assert_eq!(done.code, Some(3), "{done:?}");
        for word in ["waits for worker 0 (w:0)", "--warm-start", "away for 1 s (--peer-timeout)", "start it"]
        {
            assert!(done.err.contains(word), "{word}: {done:?}");
        }
        let log = place.at("log");
        let mut other = gannet(&worker_line(&cluster.hosts, (1, 2), &format!("{line} {tasks}")));
        other.stderr(std::fs::File::create(&log).unwrap());
        let other = other.spawn().map(Owned).unwrap();
        let said = || std::fs::read_to_string(&log).unwrap();
        until("worker 1 waits", || said().contains("waits for worker 0 (w:0), which puts the rows"));
        let mut other = other;
        let chief = worker(&cluster.hosts, (0, 2), &format!("{line} {tasks}")).wait();
        assert_eq!(chief.code, Some(0), "{chief:?}");
        assert!(other.ended().success(), "{}", said());
        place.without(&["out"]);
    }
}

#[test]
fn a_run_that_goes_on_keeps_its_rows() {
    let place = Place::new();
    let [first, second] = &place.clicks(1_024);
    let [model, other, once, want, got] =
        ["model", "other", "once", "want", "got"].map(|name| place.at(name));
    ok(&format!("train {first} --out {}", model.display()));
    ok(&format!("train {second} --out {}", other.display()));
    let (own, cluster) = (serve(2, false, ""), serve(1, false, ""));
    let day = |data: &str, out: &Path| format!("{data} {ALIKE} --out {}", out.display());
    let warm = format!("--warm-start {}", model.display());
    for hosts in [&own.hosts, &cluster.hosts] {
        job(hosts, 2, &format!("{} {warm}", day(first, &once)));
    }
    job(&own.hosts, 2, &format!("{} --continue", day(second, &want)));
    // The same model, a later one, or none: the rows stay.
    job(&cluster.hosts, 2, &format!("{} {warm} --continue", day(second, &got)));
    assert!(all_rows(&got) == all_rows(&want), "the rows of the model have replaced trained ones");
    job(&own.hosts, 2, &format!("{} --continue", day(first, &want)));
    let later = format!("--warm-start {}", other.display());
    job(&cluster.hosts, 2, &format!("{} {later} --continue", day(first, &got)));
    assert!(all_rows(&got) == all_rows(&want), "the rows of the model have replaced trained ones");
    // New rows begin from the model again.
    job(&cluster.hosts, 2, &format!("{} {warm} --fresh", day(first, &got)));
    assert!(all_rows(&got) == all_rows(&once), "a fresh run begins from the model");

    let cold = serve(1, false, "");
    job(&cold.hosts, 1, &day(first, &got));
    let refused = worker(&cold.hosts, (0, 1), &format!("{} {warm} --continue", day(second, &got))).wait();
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.err.contains("did not begin from a model") && refused.err.contains("--fresh"),
        "{refused:?}"
    );
}

/// The servers of a job are lost. Others take the rows from its checkpoint, which says that the model is in them.
#[test]
fn a_checkpoint_knows_that_the_rows_of_the_model_are_in_it() {
    let place = Place::new();
    let [first, second] = &place.clicks(1_024);
    for flags in ["", "--model deepfm --factors 4 --hidden 8"] {
        let [model, saved, want, got] = ["model", "saved", "want", "got"].map(|name| place.at(name));
        ok(&format!("train {first} {flags} --out {}", model.display()));
        let line = |data: &str, out: &Path| {
            format!("{data} {flags} {ALIKE} --warm-start {} --out {}", model.display(), out.display())
        };
        let keeps = format!("--checkpoint {}", saved.display());
        let own = serve(2, false, &keeps);
        job(&own.hosts, 2, &format!("{} {keeps}", line(second, &got)));
        let hosts = [free_addr(), free_addr(), free_addr()].join(",");
        let start = |index: usize| {
            let of_job = format!("--ps-hosts {hosts} --worker-hosts w:0,w:1 {keeps}");
            Served::start(gannet(&format!("train --job-name ps --task-index {index} {of_job}")))
        };
        let _others = [0, 1, 2].map(start);
        job(&own.hosts, 2, &format!("{} --continue", line(first, &want)));
        drop(own);
        job(&hosts, 2, &format!("{} {keeps} --continue", line(first, &got)));
        assert!(all_rows(&got) == all_rows(&want), "{flags}: other bits after the restore");
        place.without(&["model", "saved", "want", "got"]);
    }
}

/// The first day's model, and files of the second day that come while the job trains.
#[test]
fn a_job_of_a_folder_that_grows_starts_from_a_model() {
    let place = Place::new();
    let [first, second] = &place.clicks(2_000);
    let [model, grows, got] = ["model", "grows", "got"].map(|name| place.at(name));
    ok(&format!("train {first} --out {}", model.display()));
    std::fs::create_dir(&grows).unwrap();
    std::fs::copy(second, grows.join("0.svm")).unwrap();
    let cluster = serve(2, false, "");
    let line = format!("--follow {} --until-end --warm-start {}", grows.display(), model.display());
    job(&cluster.hosts, 2, &format!("{line} --out {}", got.display()));
    let keys = |model: &Path| all_rows(model).into_iter().map(|row| row.1).collect::<Vec<u64>>();
    let all = keys(&got);
    assert!(keys(&model).iter().all(|key| all.binary_search(key).is_ok()), "rows of the model are missing");
    assert!(all.len() > keys(&model).len(), "it has trained the folder");
}

#[test]
fn workers_with_other_models_are_refused_by_name() {
    let place = Place::new();
    let [first, second] = &place.clicks(600);
    let [model, other] = ["model", "other"].map(|name| place.at(name));
    ok(&format!("train {first} --out {}", model.display()));
    ok(&format!("train {second} --out {}", other.display()));
    let cluster = serve(1, false, "");
    let line = |from: &Path| format!("{second} --tasks off --warm-start {}", from.display());
    let mut chief = worker(&cluster.hosts, (0, 2), &line(&model));
    until("the chief has come", || crate::world::runs(&cluster.hosts).len() == 1);
    let done = worker(&cluster.hosts, (1, 2), &line(&other)).wait();
    let names = [model.display().to_string(), other.display().to_string()];
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(
        names.iter().all(|name| done.err.contains(name)) && done.err.contains("--warm-start"),
        "{done:?}"
    );
    let done = worker(&cluster.hosts, (1, 2), &line(&place.at("nowhere"))).wait();
    assert_eq!(done.code, Some(2), "{done:?}");
    for word in ["nowhere", "--warm-start", "Each worker of a job", "give worker 1 that model"] {
        assert!(done.err.contains(word), "{word}: {done:?}");
    }
    assert!(chief.is_alive(), "the others do not end it");
    // A copy of the model is that model.
    let copy = place.at("copy");
    let copied = std::process::Command::new("cp").arg("-r").arg(&model).arg(&copy).status().unwrap();
    assert!(copied.success());
    let done = [worker(&cluster.hosts, (1, 2), &line(&copy)).wait(), chief.wait()];
    assert!(done.iter().all(|done| done.code == Some(0)), "{done:?}");
}

#[test]
fn a_launched_job_with_folders_or_backups_starts_from_a_model() {
    let place = Place::new();
    let [first, second] = &place.clicks(1_024);
    let [model, want, got] = ["model", "want", "got"].map(|name| place.at(name));
    ok(&format!("train {first} --out {}", model.display()));
    let line = format!("{second} --warm-start {} {ALIKE}", model.display());
    let cluster = serve(1, false, "");
    job(&cluster.hosts, 2, &format!("{line} --out {}", want.display()));
    for (flags, train) in [
        (format!("--data-dir {}", place.at("rows").display()), "--one-sided never"),
        (format!("--data-dir {}", place.at("backed").display()), "--backups 1"),
    ] {
        let launch = format!("launch --servers 2 --workers 2 {flags}");
        ok(&format!("{launch} -- train {line} {train} --out {}", got.display()));
        assert!(all_rows(&got) == all_rows(&want), "{flags} {train}: other bits");
        place.without(&["got"]);
    }
}
