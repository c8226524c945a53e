//! Servers of another job that has the same name and the same coordinator.

use super::cluster::Cluster;
use crate::harness::ports::free_addr;
use crate::harness::{Process, gannet};

#[test]
fn a_server_of_another_job_with_the_same_name_ends_and_says_what_to_do() {
    let cluster = Cluster::new(2, 1);
    cluster.until_backed(1);
    let (coordinator, hosts) = (cluster.coordinator_addr(), [free_addr(), free_addr()].join(","));
    let flags = format!("--ps-hosts {hosts} --worker-hosts a:1 --backups 1 --coordinator {coordinator}");
    let ps = format!("train --job-name ps --task-index 0 --lease 1 --threads 1 {flags}");
    let done = Process::start(gannet(&ps)).wait();
    assert_eq!(done.code, Some(1), "{done:?}");
    let live = format!("is that of other servers, which live ({}, {})", cluster.host(0), cluster.host(1));
    let says = [live.as_str(), "--run NAME", "--spare", "gannet forget --coordinator"];
    assert!(says.iter().all(|text| done.err.contains(text)), "{says:?}: {done:?}");
    let known = cluster.status();
    assert_eq!(known["members"].as_array().map(Vec::len), Some(2), "{known}");
    // With a name of its own it is a job of its own.
    let mut other = Process::start(gannet(&format!("{ps} --run other")));
    crate::world::until("another job", || {
        cluster.status_by("--run other --json").out.contains("\"state\":\"serves\"")
    });
    assert!(other.is_alive());
}
