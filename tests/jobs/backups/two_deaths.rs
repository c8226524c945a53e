//! Two servers die one after the other, the second as soon as it has the place of the first. The third had every row.

use super::cluster::{Cluster, Setup};

fn two_owners_die_at_once(sync: &str, replication: &str) {
    let server = format!("--replication {replication}");
    let mut cluster = Cluster::of(Setup { servers: 3, backups: 2, server, passes: 6, ..Setup::default() });
    cluster.until_backed(0);
    let mut workers = [cluster.worker(0, sync), cluster.worker(1, sync)];
    cluster.until_done(4);
    cluster.until_backed(2);
    let first = cluster.owner(1);
    cluster.kill(first);
    let second = cluster.until_taken_by(1, first);
    cluster.kill(second);
    assert!(workers.iter_mut().all(|worker| worker.is_alive()), "the job was over before");
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    cluster.check();
}

/// The second owner had taken the third server out of the set, and the workers gave up.
#[test]
fn nobody_took_a_place_whose_next_owner_died_at_once() {
    two_owners_die_at_once("asp", "sync");
}

#[test]
fn nor_did_anybody_when_rows_are_read_before_the_backups_have_them() {
    two_owners_die_at_once("asp", "async");
}

#[test]
fn nor_did_anybody_in_synchronous_steps() {
    two_owners_die_at_once("bsp", "sync");
}
