//! Each way to learn goes on when a server dies for good, also over TLS.

use super::cluster::{Cluster, Setup};
use crate::harness::Process;
use crate::harness::authority::Authority;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// A server dies while two workers learn. Returns the report of the first, and that of a process without servers.
fn learned((how, job): (&str, &str), victim: usize) -> (serde_json::Value, serde_json::Value) {
    let mut cluster = Cluster::new(2, 1);
    cluster.until_backed(1);
    let mut workers = [0, 1].map(|index| cluster.learner(index, &format!("{how} {job}")));
    kill_in_the_middle(&mut cluster, victim, &mut workers);
    let [first, second] = workers.map(|worker| worker.wait());
    assert_eq!((first.code, second.code), (Some(0), Some(0)), "{first:?} {second:?}");
    (first.json(), cluster.embedded(how))
}

fn kill_in_the_middle(cluster: &mut Cluster, victim: usize, workers: &mut [Process; 2]) {
    cluster.until_workers(2);
    // So that it has begun to learn. How far it has come does not matter.
    std::thread::sleep(Duration::from_millis(300));
    cluster.kill(victim);
    assert!(workers.iter_mut().all(Process::is_alive), "the server died too late");
}

fn near(value: &serde_json::Value, other: &serde_json::Value, relative: f64) {
    let (value, other) = (value.as_f64().unwrap(), other.as_f64().unwrap());
    assert!((value - other).abs() <= relative * other.abs(), "{value} is not near {other}");
}

#[test]
fn passes_of_lbfgs_go_on() {
    let how = "--optimizer lbfgs --l2 0.0001 --tolerance 1e-13 --max-iter 1000";
    let (with_death, without) = learned((how, ""), 0);
    assert_eq!(with_death["converged"], true, "{with_death}");
    near(&with_death["objective"], &without["objective"], 1e-6);
}

#[test]
fn a_factorization_machine_goes_on() {
    let (with_death, without) = learned(("--model fm --epochs 8", "--tasks on --task-bytes 256KiB"), 1);
    near(&with_death["logloss"], &without["logloss"], 0.02);
}

#[test]
fn a_network_goes_on_in_synchronous_steps() {
    let (with_death, without) = learned(("--model deepfm --epochs 8", "--sync bsp"), 0);
    near(&with_death["logloss"], &without["logloss"], 0.05);
}

#[test]
fn records_of_fixed_shares_count_once() {
    let mut cluster = Cluster::of(Setup { passes: 40, ..Setup::default() });
    cluster.until_backed(1);
    let mut workers = [0, 1].map(|index| cluster.counter(index, "--tasks off --sync ssp:2"));
    kill_in_the_middle(&mut cluster, 1, &mut workers);
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    cluster.check_rows();
}

#[test]
fn servers_speak_tls_with_each_other_and_with_the_coordinator() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("one");
    let shown = authority.shows("server", "127.0.0.1", 2999);
    let token = folder.path().join("token");
    std::fs::write(&token, "5ecre7-0f-th1s-j0b-4nd-n0-0ther-w0rld").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let token = format!("--token-file {} --transport tcp", token.display());
    let client = format!("{token} {}", authority.believed());
    let mut cluster = Cluster::of(Setup {
        coordinator: format!("{token} {shown}"),
        server: format!("{client} {shown}"),
        client,
        ..Setup::default()
    });
    cluster.until_backed(1);
    let workers = [cluster.worker(0, "asp"), cluster.worker(1, "asp")];
    cluster.until_done(2);
    cluster.kill(0);
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    cluster.check();
}
