//! `--normalize` in jobs: all workers normalize values by the same numbers, also when processes are killed and when the
//! training goes on with other data. They are those of a training in one process.

use crate::harness;
use crate::world::Place;

use gannet::storage::{Checkpoint, CheckpointDir};
use gannet::table::mix;
use harness::ports::free_addr;
use harness::*;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// From 0 to 1, by a number.
fn chance(of: u64) -> f64 {
    (mix(of) >> 11) as f64 / (1u64 << 53) as f64
}

/// Examples with a signal in one of three numbers, whose sizes are very different.
fn examples(unit: f64, count: u64) -> String {
    (0..count).fold(String::new(), |mut text, i| {
        let [x, label, a, b] = [0, 1, 2, 3].map(|at| chance(4 * i + at));
        let (large, small, number) = ((500_000.0 + 40_000.0 * a) * unit, x * 1e-4, (2000.0 * b).floor());
        writeln!(text, "{} 1:{large:e} 2:{small:e} 3:{number}", u8::from(label < x)).unwrap();
        text
    })
}

impl Place {
    fn data(&self, unit: f64, count: u64) -> String {
        write(self.folder.path(), &format!("{unit}-{count}.svm"), examples(unit, count))
    }

    /// What a training in one process notes.
    fn alone(&self, data: &str, model: &str) -> String {
        let out = self.at(&format!("alone-{model}"));
        ok(&format!("train {data} --model {model} --out {}", out.display()));
        noted(&out)
    }
}

fn noted(model: &Path) -> String {
    let model = Checkpoint::open(model).unwrap();
    assert_eq!(model.note("normalize"), Some("on"));
    model.note("normalized-features").unwrap().to_owned()
}

fn serve(count: usize, flags: &str) -> (Vec<Served>, String) {
    let start = |_| Served::start(gannet(&format!("server --listen 127.0.0.1:0 --threads 2 {flags}")));
    let served: Vec<Served> = (0..count).map(start).collect();
    let hosts = served.iter().map(|server| server.addr.clone()).collect::<Vec<_>>().join(",");
    (served, hosts)
}

fn workers(count: usize, line: &str) -> Vec<Process> {
    let hosts = (0..count).map(|index| format!("w:{index}")).collect::<Vec<_>>().join(",");
    let worker = |index| {
        Process::start(gannet(&format!(
            "train --job-name worker --task-index {index} --worker-hosts {hosts} --peer-timeout 30 --json {line}"
        )))
    };
    (0..count).map(worker).collect()
}

fn all_well(workers: Vec<Process>) -> Vec<Done> {
    let done: Vec<Done> = workers.into_iter().map(Process::wait).collect();
    done.iter().for_each(|done| assert_eq!(done.code, Some(0), "{done:?}"));
    done
}

fn tested(data: &str, model: &Path) -> f64 {
    let report = ok(&format!("predict {data} --json --model {}", model.display())).json();
    report["logloss"].as_f64().unwrap_or_else(|| panic!("{report}"))
}

#[test]
fn workers_of_any_job_normalize_as_one_process_does() {
    let place = Place::new();
    let data = place.data(1.0, 12_000);
    for model in ["lr", "fm"] {
        let known = place.alone(&data, model);
        assert_eq!(known.lines().count(), 3, "{known}");
        for (count, servers, flags) in [
            (1, 1, "--tasks off"),
            (1, 2, "--tasks on"),
            (2, 1, "--tasks on --task-bytes 64KiB"),
            (2, 2, "--tasks off --issync 1"),
            (2, 2, "--tasks off --issync 0"),
        ] {
            let (_served, hosts) = serve(servers, "");
            let out = place.at(&format!("job-{model}"));
            let line = format!("{data} --model {model} --ps-hosts {hosts} {flags} --out {}", out.display());
            all_well(workers(count, &line));
            assert_eq!(noted(&out), known, "{model} {count} {servers} {flags}");
            let loss = tested(&data, &out);
            assert!(loss < 0.65, "{model} {count} {servers} {flags}: {loss}");
        }
    }
}

#[test]
fn a_job_goes_on_as_it_began() {
    let place = Place::new();
    let (data, other) = (place.data(1.0, 11_000), place.data(1e-3, 11_000));
    let (known, of_other) = (place.alone(&data, "lr"), place.alone(&other, "lr"));
    assert_ne!(known, of_other);
    let (rows, out) = (place.at("rows"), place.at("job"));
    let (ps, saved) = (free_addr(), place.at("checkpoints"));
    let start = |flags: &str| {
        Served::start(gannet(&format!(
            "server --listen {ps} --threads 2 --data-dir {} --checkpoint {} {flags}",
            rows.display(),
            saved.display()
        )))
    };
    let job = |data: &str, flags: &str| {
        let line = format!(
            "{data} --ps-hosts {ps} --checkpoint {} {flags} --out {}",
            saved.display(),
            out.display()
        );
        all_well(workers(2, &line));
        noted(&out)
    };
    let server = start("");
    assert_eq!(job(&data, ""), known);
    assert_eq!(job(&other, "--continue"), known);
    // The second life of the server.
    server.kill();
    let server = start("");
    assert_eq!(job(&other, "--continue"), known);
    drop(server);
    // Another server, from the newest checkpoint.
    std::fs::remove_dir_all(&rows).unwrap();
    let server = start(&format!("--restore {}", saved.display()));
    assert_eq!(job(&other, "--continue"), known);
    assert_eq!(job(&other, "--fresh"), of_other);
    drop(server);
    // One process goes on from the checkpoint of a job.
    let warm = place.at("warm");
    ok(&format!("train {data} --warm-start {} --out {}", saved.display(), warm.display()));
    assert_eq!(noted(&warm), of_other);
}

/// The chief dies before it has said anything, in the middle, or when it has learned something.
#[test]
fn a_chief_that_is_killed_leaves_no_halves() {
    let place = Place::new();
    let data = place.data(1.0, 12_000);
    let known = place.alone(&data, "lr");
    for (round, tasks) in (0..12u64).zip(["off", "on"].into_iter().cycle()) {
        let (_served, hosts) = serve(1 + round as usize % 2, "");
        let out = place.at("job");
        let line = format!(
            "{data} --ps-hosts {hosts} --tasks {tasks} --worker-timeout 2 --epochs 3 --out {}",
            out.display()
        );
        let mut started = workers(2, &line);
        std::thread::sleep(Duration::from_millis(15 * round));
        let mut chief = started.remove(0);
        let killed = chief.is_alive();
        drop(chief);
        let again = Process::start(gannet(&format!(
            "train --job-name worker --task-index 0 --worker-hosts w:0,w:1 --peer-timeout 30 --json {line}"
        )));
        let done = [again.wait(), started.remove(0).wait()];
        assert!(done.iter().all(|done| done.code == Some(0)), "round {round}: {done:?}");
        assert!(!killed || noted(&out) == known, "round {round}");
        assert!(tested(&data, &out) < 0.53, "round {round}");
    }
}

#[test]
fn the_client_of_a_job_says_it_for_its_workers() {
    let place = Place::new();
    let data = place.data(1.0, 12_000);
    let known = place.alone(&data, "lr");
    let (_served, hosts) = serve(2, "");
    let (feed, out) = (free_addr(), place.at("fed"));
    let line = |role: &str| {
        format!(
            "--ps-hosts {hosts} --worker-hosts w:0,w:1 --job-name {role} --feed {feed} --peer-timeout 30 --json"
        )
    };
    let client = Process::start(gannet(&format!(
        "train {data} --test {data} {} --task-bytes 64KiB --out {}",
        line("client"),
        out.display()
    )));
    let fed =
        [0, 1].map(|index| Process::start(gannet(&format!("train {} --task-index {index}", line("worker")))));
    all_well(fed.into_iter().collect());
    let done = client.wait();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(noted(&out), known);
    assert!(done.json()["test_logloss"].as_f64().unwrap() < 0.52, "{done:?}");
}

#[test]
fn a_folder_that_grows_is_normalized_by_what_came_first() {
    let place = Place::new();
    let grows = place.at("grows");
    std::fs::create_dir(&grows).unwrap();
    std::fs::write(grows.join("0.svm"), examples(1.0, 12_000)).unwrap();
    let known = place.alone(&format!("{}/0.svm", grows.display()), "lr");
    let (_served, hosts) = serve(1, "");
    let out = place.at("grown");
    let line = format!("--follow {} --until-end --ps-hosts {hosts} --out {}", grows.display(), out.display());
    all_well(workers(1, &line));
    assert_eq!(noted(&out), known);
    std::fs::write(grows.join("1.svm"), examples(1e3, 12_000)).unwrap();
    all_well(workers(2, &format!("{line} --continue")));
    assert_eq!(noted(&out), known);
    ok(&format!("train --follow {} --until-end --out {}", grows.display(), place.at("one").display()));
    assert_eq!(noted(&place.at("one")), known);
}

/// The newest checkpoint has the numbers, too.
#[test]
fn checkpoints_have_the_numbers() {
    let place = Place::new();
    let data = place.data(1.0, 2_000);
    let saved = place.at("checkpoints");
    let (_served, hosts) = serve(1, &format!("--checkpoint {}", saved.display()));
    let line = format!("{data} --ps-hosts {hosts} --checkpoint {}", saved.display());
    all_well(workers(1, &line));
    let newest = CheckpointDir::open(&saved).unwrap().newest_valid().unwrap().unwrap();
    let names: Vec<&str> = newest.tables.iter().map(|table| table.schema.name.as_str()).collect();
    assert!(names.iter().any(|name| name.ends_with("lr-norm")), "{names:?}");
}
