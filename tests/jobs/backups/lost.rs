//! What no backup can help against: all servers of a place die at once, or the coordinator dies.

use super::cluster::{Cluster, Setup};

/// Servers of a job with two of them die at once. They are started again, without their rows.
fn rows_are_gone(backups: u32, victims: &[usize]) {
    let mut cluster = Cluster::of(Setup { backups, passes: 20, ..Setup::default() });
    cluster.until_backed(backups as usize);
    let workers = [cluster.worker(0, "asp"), cluster.worker(1, "asp")];
    cluster.until_done(2);
    cluster.until_backed(backups as usize);
    victims.iter().for_each(|&victim| cluster.kill(victim));
    victims.iter().for_each(|&victim| cluster.servers[victim] = Some(cluster.server(victim)));
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(3), "{done:?}");
        let last = done.err.lines().rfind(|line| line.starts_with("gannet: ")).unwrap_or_default();
        // The worker notices the lost rows, or the lost job if the scheduler was there.
        let gone = ["they are gone", "was the scheduler started again without its job state file?"];
        assert!(gone.iter().any(|text| last.contains(text)), "the error says what happened: {last:?}");
        assert!(done.err.len() < 20_000, "the log tells what is new: {} bytes", done.err.len());
    }
    // The places serve again.
    cluster.until_backed(backups as usize);
}

#[test]
fn a_job_ends_by_name_when_a_server_without_backups_has_lost_its_rows() {
    rows_are_gone(0, &[1]);
}

#[test]
fn so_it_does_when_that_was_the_scheduler_too() {
    rows_are_gone(0, &[0]);
}

#[test]
fn so_it_does_when_all_servers_of_a_place_die_at_once() {
    rows_are_gone(1, &[0, 1]);
}

#[test]
fn a_coordinator_with_a_data_folder_may_die_and_nothing_is_lost() {
    let mut cluster = Cluster::of(Setup { keeps: true, ..Setup::default() });
    cluster.until_backed(1);
    let workers = [cluster.worker(0, "asp"), cluster.worker(1, "asp")];
    cluster.until_done(2);
    cluster.coordinator.take().unwrap().kill();
    cluster.start_coordinator();
    cluster.until_done(4);
    cluster.until_backed(1);
    // It still knows who has the rows of whom.
    cluster.kill(0);
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    // On a busy machine the job may be over before the server dies.
    cluster.until_taken(0);
    cluster.check();
}

#[test]
fn servers_end_when_their_coordinator_has_forgotten_them() {
    let mut cluster = Cluster::new(2, 1);
    cluster.until_backed(1);
    cluster.coordinator.take().unwrap().kill();
    cluster.start_coordinator();
    for server in &mut cluster.servers {
        assert_eq!(server.as_mut().unwrap().child.ended().code(), Some(1));
    }
    // A supervisor starts them again, and the next job may begin.
    for at in 0..2 {
        cluster.servers[at] = Some(cluster.server(at));
    }
    cluster.until_backed(1);
}
