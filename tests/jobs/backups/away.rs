//! A coordinator stands still, or is killed and started again, for longer than a worker may be silent. Its servers hold
//! their answers back meanwhile.

use super::cluster::{Cluster, Setup};
use rustix::process::Signal;
use std::time::Duration;

/// Longer than a lease (2 s) and the time for which a worker may be silent together.
const AWAY: Duration = Duration::from_secs(8);

/// `killed`: the coordinator is killed, and one of its servers with it.
fn a_coordinator_is_away(sync: &str, killed: bool) {
    let worker = "--worker-timeout 3".to_owned();
    let setup = Setup { servers: 3, keeps: true, passes: 12, worker, ..Setup::default() };
    let mut cluster = Cluster::of(setup);
    cluster.until_backed(0);
    let mut workers = [cluster.worker(0, sync), cluster.worker(1, sync)];
    cluster.until_done(4);
    cluster.until_backed(1);
    if killed {
        cluster.coordinator.take().unwrap().kill();
        cluster.kill(2);
    } else {
        cluster.coordinator.as_ref().unwrap().child.signal(Signal::STOP);
    }
    std::thread::sleep(AWAY);
    assert!(
        workers.iter_mut().all(|worker| worker.is_alive()),
        "the job was over before, or a worker has ended"
    );
    match killed {
        true => cluster.start_coordinator(),
        false => cluster.coordinator.as_ref().unwrap().child.signal(Signal::CONT),
    }
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    cluster.check();
}

/// The workers were given up when the coordinator was back: exit code 3.
#[test]
fn a_coordinator_that_stood_still_cost_healthy_workers_their_places() {
    a_coordinator_is_away("asp", false);
}

#[test]
fn so_it_did_in_synchronous_steps() {
    a_coordinator_is_away("bsp", false);
}

#[test]
fn so_did_one_that_was_killed_together_with_a_server() {
    a_coordinator_is_away("asp", true);
    a_coordinator_is_away("bsp", true);
}
