//! Servers with data folders and a coordinator: all of them die at once, and the job goes on.

use super::cluster::{Cluster, Setup};
use crate::harness::{Process, gannet, refused, run};
use std::path::{Path, PathBuf};

/// A cluster of two servers with folders, whose coordinator keeps what it knows.
fn with_folders(backups: u32) -> Cluster {
    let cluster = Cluster::of(Setup { backups, passes: 10, keeps: true, folders: true, ..Setup::default() });
    cluster.until_backed(backups as usize);
    cluster
}

/// All servers and the coordinator are killed twice while two workers train.
fn all_die(backups: u32, sync: &str) {
    let mut cluster = with_folders(backups);
    let mut workers = [cluster.worker(0, sync), cluster.worker(1, sync)];
    for (round, first) in [(1, true), (2, false)] {
        cluster.until_done(4 * round);
        if first {
            cluster.coordinator.take().unwrap().kill();
        }
        cluster.kill_all();
        if !first {
            cluster.coordinator.take().unwrap().kill();
        }
        assert!(workers.iter_mut().all(|worker| worker.is_alive()), "the job was over before");
        cluster.start_coordinator();
        cluster.start_all();
        cluster.until_backed(backups as usize);
        assert_eq!((cluster.owner(0), cluster.owner(1)), (0, 1));
        let status = cluster.status();
        assert!(status["places"][0]["epoch"].as_u64() > Some(round), "{status}");
    }
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    cluster.check();
}

#[test]
fn all_servers_and_the_coordinator_are_killed_and_every_record_counts_once() {
    all_die(1, "asp");
}

#[test]
fn so_it_is_without_backups() {
    all_die(0, "ssp:4");
}

#[test]
fn so_it_is_in_synchronous_steps_with_folders() {
    all_die(1, "bsp");
}

#[test]
fn a_server_whose_place_was_taken_does_not_serve_the_rows_in_its_folder() {
    let mut cluster = with_folders(1);
    let workers = [cluster.worker(0, "asp"), cluster.worker(1, "asp")];
    cluster.until_done(4);
    cluster.until_backed(1);
    // This one is the scheduler, too.
    cluster.kill(0);
    cluster.until_taken(0);
    cluster.until_done(8);
    cluster.servers[0] = Some(cluster.server(0));
    cluster.until_backed(1);
    assert_eq!((cluster.owner(0), cluster.owner(1)), (1, 1));
    let former = cluster.data_dir(0).join("former");
    for moved in ["PLACE", "default.lr", "RUNS", "scheduler.default.book"] {
        assert!(former.join(moved).exists(), "{moved}");
        assert!(!cluster.data_dir(0).join(moved).exists(), "{moved}");
    }
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    cluster.check();
}

#[test]
fn servers_whose_coordinator_has_forgotten_them_keep_their_rows_and_end() {
    let mut cluster = Cluster::of(Setup { folders: true, ..Setup::default() });
    cluster.until_backed(1);
    assert_eq!(cluster.worker(0, "asp").wait().code, Some(0));
    cluster.kill_all();
    cluster.coordinator.take().unwrap().kill();
    cluster.start_coordinator();
    for at in 0..2 {
        let done = Process::start(gannet(&cluster.server_line(at))).wait();
        assert_eq!(done.code, Some(1), "{done:?}");
        let wanted = [format!("place {at} of 2 of job"), "does not know".into(), "--data-dir".into()];
        assert!(wanted.iter().all(|text| done.err.contains(text)), "{done:?}");
        assert!(cluster.data_dir(at).join("default.lr").is_dir());
    }
}

#[test]
fn a_job_without_coordinator_goes_on_with_one() {
    let folder = tempfile::tempdir().unwrap();
    let data = crate::harness::clicks(&folder.path().join("train.svm"), 2_000, 1);
    let (ps, coordinator) = (crate::harness::ports::free_addr(), crate::harness::ports::free_addr());
    let kept = folder.path().join("ps");
    let hosts = format!("--ps-hosts {ps} --worker-hosts a:1");
    let server = format!("train --job-name ps --task-index 0 {hosts} --data-dir {}", kept.display());
    let worker = |more: &str| {
        let line = format!("train {} --job-name worker --task-index 0 {hosts} {more}", data.display());
        let done = run(&format!("{line} --optimizer sgd --alpha 0.01 --json --peer-timeout 30"));
        assert_eq!(done.code, Some(0), "{done:?}");
        done.json()
    };
    let served = crate::harness::Served::start(gannet(&server));
    let first = worker("");
    served.kill();
    let keeper = crate::harness::Served::start(gannet(&format!("scheduler --listen {coordinator}")));
    let of_job = format!("--coordinator {coordinator}");
    let served = crate::harness::Served::start(gannet(&format!("{server} {of_job}")));
    // The run is known with its rows, and it has ended. What comes now goes on with them.
    let status = run(&format!("status --ps-hosts {ps} {of_job} --json"));
    assert_eq!(status.code, Some(0), "{status:?}");
    let status = status.json();
    assert_eq!((&status["runs"][0]["rows"], &status["job"]["examples"]), (&first["rows"], &2_000.into()));
    let again = worker(&format!("{of_job} --continue"));
    assert_eq!((&again["run"]["decided"], &again["run"]["generation"]), (&"continued".into(), &2.into()));
    assert!(again["logloss"].as_f64() < first["logloss"].as_f64(), "{again} after {first}");
    drop((served, keeper));
}

/// What a folder has: its files with their bytes.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => files.push((entry.path(), std::fs::read(entry.path()).unwrap())),
            }
        }
    }
    files.sort();
    files
}

/// A training in one process began new rows in the folder of a server, and dropped those of the job.
#[test]
fn a_training_without_coordinator_took_the_folder_of_a_place_and_dropped_its_rows() {
    let mut cluster = Cluster::of(Setup { folders: true, keeps: true, ..Setup::default() });
    cluster.until_backed(1);
    assert_eq!(cluster.worker(0, "asp").wait().code, Some(0));
    cluster.kill_all();
    cluster.coordinator.take().unwrap().kill();
    let folder = cluster.data_dir(0);
    let before = contents(&folder);
    let data = cluster.data().display().to_string();
    for more in ["--fresh", "--continue", "--run other", "--optimizer lbfgs", "--model fm", "--model lda"] {
        let line = format!("train {data} --data-dir {} {more}", folder.display());
        refused(&line, &["place 0 of 2 of job", "another server may have newer ones", "name another folder"]);
        assert!(contents(&folder) == before, "{more}: the folder has changed");
    }
    let keys = cluster.coordinator_folder();
    let line = format!("train {data} --data-dir {}", keys.display());
    refused(&line, &[&keys.display().to_string(), "gannet scheduler keeps"]);
}

#[test]
fn folders_that_do_not_fit_are_refused_by_name() {
    let mut cluster = Cluster::of(Setup { folders: true, keeps: true, ..Setup::default() });
    cluster.until_backed(1);
    assert_eq!(cluster.worker(0, "asp").wait().code, Some(0));
    let path = |at| cluster.data_dir(at).display().to_string();
    let (one, other) = (path(0), path(1));
    let line = cluster.server_line(0);
    // The process before it still lives.
    let locked = run(&line);
    assert!(locked.code == Some(1) && locked.err.contains(&one), "{locked:?}");
    cluster.kill_all();
    refused(
        &line.replace(&one, &other),
        &[&other, "place 1 of 2", "place 0 of 2", "alphabetical order of --ps-hosts"],
    );
    let another_run = format!("{line} --run other");
    refused(&another_run, &[&one, "job \"default\"", "job \"other\""]);
    refused(
        &format!("server --listen 127.0.0.1:0 --data-dir {one}"),
        &[&one, "--coordinator", "place 0 of 2"],
    );
    let spare = line.replace("--task-index 0", "--spare 127.0.0.1:9");
    refused(&spare, &["--spare 127.0.0.1:9", "leave --data-dir out"]);
    let record = Path::new(&one).join("PLACE");
    let mut bytes = std::fs::read(&record).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&record, bytes).unwrap();
    refused(&line, &["PLACE", "checksum", "put the file back"]);
}
