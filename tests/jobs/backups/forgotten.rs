//! Runs whose servers are gone: the coordinator forgets them when it is told to.

use super::cluster::{Cluster, Setup};
use crate::harness::{Done, run};
use crate::world::until;

impl Cluster {
    fn forget(&self) -> Done {
        run(&format!("forget --coordinator {} --run default", self.coordinator_addr()))
    }
}

/// A run is forgotten while its servers live, and at last when they are dead. `gannet forget` once did not reach the
/// coordinator.
pub(super) fn is_forgotten(mut cluster: Cluster) {
    cluster.until_backed(1);
    let workers = [cluster.worker(0, "asp"), cluster.worker(1, "asp")];
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let done = cluster.forget();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.out, "run default is forgotten: 2 tables dropped\n");
    assert!(done.err.contains("the servers of run default keep their places"), "{done:?}");
    cluster.kill_all();
    // Nobody has heard of the servers when their leases have ended.
    until("the end of the leases", || {
        let known = cluster.status_by("--json").json();
        known["members"].as_array().is_some_and(Vec::is_empty) && known["places"][0]["state"] == "is silent"
    });
    let done = cluster.forget();
    assert_eq!(done.code, Some(0), "{done:?}");
    let says = "run default is forgotten: no server of it lives, and the coordinator had 3 keys of it\n";
    assert_eq!(done.out, says);
    let done = cluster.status_by("");
    assert!(done.code == Some(3) && done.err.contains("it knows of no server of run default"), "{done:?}");
    let done = cluster.forget();
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("the coordinator knows of no such run"), "{done:?}");
    // The name is free again.
    cluster.start_all();
    cluster.until_backed(1);
}

#[test]
fn a_run_without_servers_stayed_in_the_coordinator_when_it_was_forgotten() {
    is_forgotten(Cluster::of(Setup { keeps: true, ..Setup::default() }));
}
