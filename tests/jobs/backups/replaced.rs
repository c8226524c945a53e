//! Servers that die for good are replaced by new ones at other addresses, while a job goes on.

use super::cluster::{Cluster, Setup};
use crate::harness::refused;
use crate::world::until;

#[test]
fn all_servers_are_killed_one_after_another_and_every_record_counts_once() {
    let mut cluster = Cluster::of(Setup { servers: 3, passes: 30, ..Setup::default() });
    cluster.until_backed(1);
    let mut first = cluster.worker(0, "asp");
    cluster.until_done(2);
    for victim in 0..3 {
        cluster.kill(victim);
        cluster.start_spare();
        cluster.until_taken(victim);
        cluster.until_backed(1);
        let status = cluster.status();
        let members = status["members"].as_array().unwrap();
        assert_eq!(members.len(), 3, "{status}");
    }
    assert!(first.is_alive(), "the job was over before the last server died");
    // Every address of --ps-hosts is dead. Who comes now asks the coordinator.
    let second = cluster.worker(1, "asp");
    let status = cluster.status_by("--json");
    assert_eq!(status.code, Some(0), "{status:?}");
    let owners: Vec<_> = (0..3).map(|place| cluster.owner(place)).collect();
    assert!(owners.iter().all(|&owner| owner >= 3), "{owners:?}");
    for worker in [first, second] {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    cluster.check();
}

#[test]
fn status_shows_who_is_backed_by_whom_and_who_waits_for_a_place() {
    let mut cluster = Cluster::new(2, 1);
    cluster.until_backed(1);
    let spare = cluster.start_spare();
    until("the spare", || cluster.status()["members"].as_array().is_some_and(|members| members.len() == 3));
    let worker = cluster.worker(0, "asp");
    assert_eq!(worker.wait().code, Some(0));
    let [one, other, spare] = [0, 1, spare].map(|at| cluster.host(at).to_owned());
    // What a server tells of its backups may be half a lease old.
    until("filled backups", || {
        let status = cluster.status();
        let members = status["members"].as_array().unwrap();
        let backups = members.iter().flat_map(|member| member["backups"].as_array().unwrap());
        let filled = |of: &&serde_json::Value| {
            of["joined"] == true
                && of["shards"].as_u64() > Some(0)
                && of["shards_filled"] == of["shards"]
                && of["commands_behind"] == 0
        };
        backups.filter(filled).count() == 2
    });
    let text = cluster.status_by("").out;
    for line in [
        format!("place 0    {one} serves, epoch 1, sync, backups {other}"),
        "place 0    1 of 1 backup complete: survives one more death".to_owned(),
        format!("place 1    {other} serves, epoch 1, sync, backups {one}"),
        format!("backup     {other} has all rows of {one}"),
        format!("backup     {one} has all rows of {other}"),
        format!("spare      {spare} has no place"),
    ] {
        assert!(text.contains(&line), "{line}: {text}");
    }
    let place = &cluster.status()["places"][0];
    assert_eq!((&place["backups_wanted"], &place["survives_deaths"]), (&1.into(), &1.into()), "{place}");
    // A server that dies is missed as a backup until the spare has its slot.
    cluster.kill(1);
    until("the spare is a backup", || {
        let status = cluster.status();
        (0..2).all(|place| status["places"][place]["backups"][0] == spare.as_str())
    });
}

#[test]
fn nonsense_about_spares_is_refused_by_name() {
    let line = |role: &str, flags: &str| {
        let hosts = "--ps-hosts 127.0.0.1:1,127.0.0.1:2 --worker-hosts a:1";
        format!("train {role} {hosts} {flags}")
    };
    let spare = |flags: &str| line("--job-name ps", &format!("--coordinator 127.0.0.1:3 {flags}"));
    refused(&line("--job-name ps", "--spare 127.0.0.1:9"), &["--coordinator"]);
    refused(&spare("--backups 1 --spare nowhere"), &["--spare nowhere", "HOST:PORT"]);
    refused(&spare("--backups 1 --spare 127.0.0.1:2"), &["--spare 127.0.0.1:2", "one of --ps-hosts"]);
    refused(&spare("--backups 1 --spare 127.0.0.1:3"), &["--spare 127.0.0.1:3", "is the coordinator"]);
    refused(&spare("--backups 1 --spare 127.0.0.1:9 --task-index 0"), &["--task-index"]);
    refused(&spare("--spare 127.0.0.1:9"), &["--spare 127.0.0.1:9", "--backups 0"]);
    let worker = line("data.svm --job-name worker", "--coordinator 127.0.0.1:3 --spare 127.0.0.1:9");
    refused(&worker, &["--spare", "a ps"]);
    let unknown = crate::harness::run("status --coordinator 127.0.0.1:1 --peer-timeout 1");
    assert!(unknown.code == Some(3) && unknown.err.contains("--coordinator 127.0.0.1:1"), "{unknown:?}");
}
