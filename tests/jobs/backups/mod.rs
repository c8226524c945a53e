//! Jobs whose servers die for good, with real processes: another server goes on in the place of each.

mod away;
mod cluster;
#[cfg(feature = "etcd")]
mod etcd;
mod folders;
mod forgotten;
mod images;
mod learners;
mod lost;
mod replaced;
mod restored;
mod strangers;
mod two_deaths;

use crate::world::until;
use cluster::{Cluster, Setup};
use rustix::process::Signal;

fn two_of_three_servers_die_for_good(sync: &str, replication: &str) {
    let server = format!("--replication {replication}");
    let mut cluster = Cluster::of(Setup { servers: 3, backups: 2, server, ..Setup::default() });
    cluster.until_backed(0);
    let workers = [cluster.worker(0, sync), cluster.worker(1, sync)];
    cluster.until_done(4);
    cluster.until_backed(2);
    // This one is the scheduler, too.
    cluster.kill(0);
    cluster.until_done(12);
    cluster.until_backed(1);
    let scheduler = cluster.owner(0);
    cluster.kill(scheduler);
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    cluster.check();
}

#[test]
fn two_of_three_servers_die_for_good_and_every_record_counts_once() {
    two_of_three_servers_die_for_good("asp", "sync");
}

#[test]
fn so_it_is_within_a_bound() {
    two_of_three_servers_die_for_good("ssp:4", "sync");
}

#[test]
fn so_it_is_in_synchronous_steps() {
    two_of_three_servers_die_for_good("bsp", "sync");
}

#[test]
fn so_it_is_with_rows_that_are_read_before_the_backups_have_them() {
    two_of_three_servers_die_for_good("asp", "async");
}

#[test]
fn so_it_is_in_synchronous_steps_with_such_rows() {
    two_of_three_servers_die_for_good("bsp", "async");
}

#[test]
fn a_server_that_comes_back_is_a_backup_and_takes_the_place_of_the_next_that_dies() {
    let mut cluster = Cluster::new(2, 1);
    cluster.until_backed(0);
    let workers = [cluster.worker(0, "asp"), cluster.worker(1, "asp")];
    cluster.until_done(2);
    cluster.until_backed(1);
    for victim in [0, 1, 0] {
        cluster.kill(victim);
        cluster.servers[victim] = Some(cluster.server(victim));
        cluster.until_taken(victim);
        cluster.until_backed(1);
        assert_eq!((cluster.owner(0), cluster.owner(1)), (1 - victim, 1 - victim));
    }
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    cluster.check();
}

#[test]
fn a_server_that_slept_longer_than_its_lease_ends_by_itself() {
    let mut cluster = Cluster::new(2, 1);
    cluster.until_backed(0);
    let workers = [cluster.worker(0, "asp"), cluster.worker(1, "asp")];
    cluster.until_done(2);
    cluster.until_backed(1);
    let asleep = cluster.servers[0].take().unwrap();
    asleep.child.signal(Signal::STOP);
    until("the place is taken", || cluster.owner(0) == 1);
    asleep.child.signal(Signal::CONT);
    let mut asleep = asleep;
    assert_eq!(asleep.child.ended().code(), Some(1), "it has lost its place");
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    cluster.check();
}

#[test]
fn a_backup_that_dies_while_nothing_is_told_leaves() {
    let mut cluster = Cluster::new(3, 2);
    cluster.until_backed(2);
    cluster.kill(2);
    let is_named = |place: &serde_json::Value| {
        let backups = place["backups"].as_array().unwrap().iter();
        backups.chain([&place["owner"]]).any(|host| *host == *cluster.host(2))
    };
    until("no place with the dead server", || {
        cluster.status()["places"].as_array().is_some_and(|places| !places.iter().any(is_named))
    });
}

/// The backups do not have the registry of runs. With this time the command would outlast the test if it waited for
/// what they say of it.
#[test]
fn status_waits_for_no_more_than_a_greeting_of_backups() {
    let cluster = Cluster::new(2, 1);
    cluster.until_backed(1);
    let done = cluster.status_by(&format!("--ps-hosts {},{}", cluster.host(0), cluster.host(1)));
    assert_eq!(done.code, Some(0), "{done:?}");
    let addr = cluster.coordinator_addr();
    let done = crate::harness::ok(&format!("status --coordinator {addr} --peer-timeout 600"));
    assert_eq!(done.out.matches("answers over").count(), 2, "{done:?}");
}
