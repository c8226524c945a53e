//! Jobs whose coordinator is a real cluster of etcd.

use super::cluster::{Cluster, Setup};
use crate::harness::authority::Authority;
use crate::harness::ports::free_addr;
use crate::harness::{self, Owned};
use crate::world::until;
use gannet::backups::{Coordinator, EtcdCoordinator, MemoryCoordinator};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A cluster of etcd.
struct Etcd {
    folder: tempfile::TempDir,
    /// Of each member: for clients, and for the other members.
    addrs: Vec<(String, String)>,
    members: Vec<Option<Owned>>,
    /// Flags with which a member speaks TLS with clients, and asks for their certificates.
    tls: Vec<String>,
}

impl Etcd {
    fn start(members: usize) -> Etcd {
        let etcd = Etcd::begin(members, Vec::new());
        until("etcd", || etcd.leader().is_some());
        etcd
    }

    fn begin(members: usize, tls: Vec<String>) -> Etcd {
        let addrs = (0..members).map(|_| (free_addr(), free_addr())).collect();
        let mut etcd = Etcd { folder: tempfile::tempdir().unwrap(), addrs, members: Vec::new(), tls };
        etcd.members = (0..members).map(|member| Some(etcd.member(member))).collect();
        etcd
    }

    fn member(&self, number: usize) -> Owned {
        let (clients, peers) = &self.addrs[number];
        let scheme = if self.tls.is_empty() { "http" } else { "https" };
        let all =
            self.addrs.iter().enumerate().map(|(number, (_, peers))| format!("m{number}=http://{peers}"));
        let child = Command::new("etcd")
            .args(["--name", &format!("m{number}")])
            .arg("--data-dir")
            .arg(self.folder.path().join(format!("m{number}")))
            .args(["--listen-client-urls", &format!("{scheme}://{clients}")])
            .args(["--advertise-client-urls", &format!("{scheme}://{clients}")])
            .args(["--listen-peer-urls", &format!("http://{peers}")])
            .args(["--initial-advertise-peer-urls", &format!("http://{peers}")])
            .args(["--initial-cluster", &all.collect::<Vec<_>>().join(",")])
            .args(&self.tls)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Owned(child.expect("etcd starts: scripts/test.sh installs it"))
    }

    fn kill(&mut self, number: usize) {
        drop(self.members[number].take());
    }

    fn clients(&self) -> Vec<String> {
        self.addrs.iter().map(|(clients, _)| clients.clone()).collect()
    }

    /// The member that leads, if there is one.
    fn leader(&self) -> Option<usize> {
        let leads = |number: &usize| {
            let status = self.status(*number).unwrap_or_default();
            let leader = &status["leader"];
            leader.is_string() && *leader == status["header"]["member_id"]
        };
        (0..self.addrs.len()).filter(|&number| self.members[number].is_some()).find(leads)
    }

    /// What a member says of itself.
    fn status(&self, number: usize) -> Option<serde_json::Value> {
        let mut stream = TcpStream::connect(&self.addrs[number].0).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let request = "POST /v3/maintenance/status HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}";
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    fn flag(&self) -> String {
        format!("etcd://{}", self.clients().join(","))
    }
}

/// A cluster of servers whose coordinator is this one.
fn cluster_of(etcd: &Etcd) -> Cluster {
    let cluster = Cluster::of(Setup { etcd: Some(etcd.flag()), ..Setup::default() });
    cluster.until_backed(1);
    cluster
}

/// What a coordinator answers to one story, without its numbers.
fn story(coordinator: &dyn Coordinator, sleep: impl Fn(Duration)) -> Vec<String> {
    let mut told = Vec::new();
    let ttl = Duration::from_secs(3);
    let value = |key: &str| coordinator.get(key).unwrap().map(|entry| entry.value);
    told.push(format!("{:?}", value("a")));
    let first = coordinator.compare_and_set("a", 0, b"one", None).unwrap().unwrap();
    assert_eq!(coordinator.get("a").unwrap().unwrap().version, first);
    told.push(format!("{:?}", coordinator.compare_and_set("a", 0, b"two", None).unwrap()));
    let second = coordinator.compare_and_set("a", first, b"", None).unwrap().unwrap();
    assert!(second > first);
    told.push(format!("{:?} {:?}", value("a"), coordinator.compare_and_set("a", first, b"x", None).unwrap()));
    let (lease, other) = (coordinator.grant(ttl).unwrap(), coordinator.grant(ttl).unwrap());
    assert_ne!(lease, other);
    told.push(format!("{:?}", coordinator.compare_and_set("b", 0, b"mine", Some(lease)).unwrap().is_some()));
    told.push(format!("{:?}", coordinator.compare_and_set("b", 0, b"yours", Some(other)).unwrap()));
    // One lease is kept alive for more than its time, and the other is not.
    for _ in 0..8 {
        sleep(Duration::from_secs(1));
        told.push(format!("{} {:?}", coordinator.keep_alive(lease).unwrap(), value("b")));
    }
    told.push(format!("{}", coordinator.keep_alive(other).unwrap()));
    told.push(format!("{:?}", coordinator.compare_and_set("c", 0, b"late", Some(other)).unwrap()));
    let from = Instant::now();
    while value("b").is_some() && from.elapsed() < harness::limit() {
        sleep(Duration::from_millis(100));
    }
    told.push(format!("{:?} {} {:?}", value("b"), coordinator.keep_alive(lease).unwrap(), value("a")));
    told.push(format!("{}", coordinator.grant(Duration::ZERO).is_err()));
    told.extend(story_of_many(coordinator, sleep));
    told
}

/// The part of the story about pages of keys, and about changes.
fn story_of_many(coordinator: &dyn Coordinator, sleep: impl Fn(Duration)) -> Vec<String> {
    let mut told = Vec::new();
    for key in ["m", "m/", "m/0", "m0", "n"] {
        coordinator.compare_and_set(key, 0, b"other", None).unwrap().unwrap();
    }
    for number in 0..70 {
        coordinator.compare_and_set(&format!("m/{number:02}"), 0, b"many", None).unwrap().unwrap();
    }
    let mut after = String::new();
    loop {
        let page = coordinator.list("m/", &after).unwrap();
        told.push(format!("{} {:?}", page.more, page.entries.iter().map(|(key, _)| key).collect::<Vec<_>>()));
        assert!(page.entries.iter().all(|(_, entry)| entry.version > 0 && entry.version <= page.version));
        match page.entries.last() {
            Some((last, _)) if page.more => after.clone_from(last),
            _ => break,
        }
    }
    let begun = coordinator.list("w/", "").unwrap();
    told.push(format!("{:?} {}", begun.entries, begun.more));
    let watch = |since| coordinator.watch("w/", since, Duration::from_millis(200)).unwrap();
    // A coordinator may answer before it knows of a change.
    let news = |since| {
        let from = Instant::now();
        loop {
            match watch(since) {
                Some(version) => return version,
                None => assert!(from.elapsed() < harness::limit(), "no news since {since}"),
            }
            sleep(Duration::from_millis(20));
        }
    };
    told.push(format!("{:?}", watch(begun.version)));
    coordinator.compare_and_set("v", 0, b"another prefix", None).unwrap().unwrap();
    told.push(format!("{:?}", watch(begun.version)));
    let lease = coordinator.grant(Duration::from_secs(3)).unwrap();
    let written = coordinator.compare_and_set("w/1", 0, b"", Some(lease)).unwrap().unwrap();
    let seen = news(begun.version);
    assert!(seen >= written, "{seen} is before {written}");
    told.push(format!("{:?}", watch(seen)));
    let ended = news(seen);
    assert!(ended > seen, "the lease has ended");
    told.push(format!("{:?} {:?}", coordinator.get("w/1").unwrap(), watch(ended)));
    let version = coordinator.compare_and_set("w/2", 0, b"", None).unwrap().unwrap();
    let other = coordinator.get("m/69").unwrap().unwrap().version;
    let remove = |of_other| coordinator.remove_all(&[("w/2".into(), version), ("m/69".into(), of_other)]);
    told.push(format!("{:?} {:?}", remove(version), coordinator.get("w/2").unwrap().is_some()));
    told.push(format!("{:?} {:?}", remove(other), coordinator.get("m/69").unwrap()));
    assert!(news(version) > version, "a key is gone");
    told
}

#[test]
fn etcd_answers_as_the_coordinator_of_a_single_process_does() {
    let etcd = Etcd::start(1);
    let of_etcd = EtcdCoordinator::new(&etcd.clients(), None).unwrap();
    let begin = Instant::now();
    let in_memory = MemoryCoordinator::new(Arc::new(move || begin.elapsed()));
    let [one, other] = [&of_etcd as &(dyn Coordinator + Sync), &in_memory].map(|coordinator| {
        let told = || story(coordinator, std::thread::sleep);
        std::thread::scope(|scope| scope.spawn(told).join().unwrap())
    });
    assert_eq!(one, other);
}

#[test]
fn a_cluster_goes_on_without_one_member_and_says_who_is_silent_without_two() {
    let mut etcd = Etcd::start(3);
    let coordinator = EtcdCoordinator::new(&etcd.clients(), None).unwrap();
    coordinator.compare_and_set("a", 0, b"one", None).unwrap().unwrap();
    let leader = etcd.leader().unwrap();
    etcd.kill(leader);
    until("an answer", || coordinator.get("a").is_ok_and(|entry| entry.unwrap().value == b"one"));
    let other = (leader + 1) % 3;
    etcd.kill(other);
    let silent = (0..3).map(|_| coordinator.get("a").unwrap_err().to_string()).collect::<String>();
    assert!(etcd.clients().iter().all(|member| silent.contains(member)), "{silent}");
    etcd.members[other] = Some(etcd.member(other));
    until("an answer", || coordinator.get("a").is_ok_and(|entry| entry.unwrap().value == b"one"));
}

#[test]
fn a_server_dies_for_good_and_then_the_leader_of_etcd() {
    let mut etcd = Etcd::start(3);
    let mut cluster = cluster_of(&etcd);
    let workers = [cluster.worker(0, "asp"), cluster.worker(1, "asp")];
    cluster.until_done(2);
    cluster.kill(0);
    cluster.until_done(4);
    let leader = etcd.leader().unwrap();
    etcd.kill(leader);
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    assert_eq!((cluster.owner(0), cluster.owner(1)), (1, 1));
    cluster.check();
}

#[test]
fn a_job_outlives_an_etcd_that_is_away_for_longer_than_a_lease() {
    let mut etcd = Etcd::start(1);
    let cluster = cluster_of(&etcd);
    let workers = [cluster.worker(0, "ssp:4"), cluster.worker(1, "ssp:4")];
    cluster.until_done(2);
    etcd.kill(0);
    std::thread::sleep(Duration::from_secs(5));
    etcd.members[0] = Some(etcd.member(0));
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    cluster.check();
}

#[test]
fn all_servers_and_etcd_are_killed_at_once_and_go_on_with_their_folders() {
    let mut etcd = Etcd::start(1);
    let mut cluster =
        Cluster::of(Setup { etcd: Some(etcd.flag()), folders: true, passes: 8, ..Setup::default() });
    cluster.until_backed(1);
    let mut workers = [cluster.worker(0, "asp"), cluster.worker(1, "asp")];
    cluster.until_done(4);
    etcd.kill(0);
    cluster.kill_all();
    assert!(workers.iter_mut().all(|worker| worker.is_alive()), "the job was over before");
    etcd.members[0] = Some(etcd.member(0));
    cluster.start_all();
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    cluster.check();
}

#[test]
fn servers_and_workers_ask_etcd_over_tls_and_show_their_certificates() {
    let authority = Authority::new("one");
    let file = |name: &str| authority.path(name);
    let [shown, own] = ["etcd", "gannet"].map(|name| authority.shows(name, "127.0.0.1", 2999));
    assert!(shown.contains(&file("etcd.pem")) && shown.contains(&file("etcd.key")));
    let flags = format!(
        "--cert-file {} --key-file {} --trusted-ca-file {} --client-cert-auth",
        file("etcd.pem"),
        file("etcd.key"),
        file("ca.pem")
    );
    let etcd = Etcd::begin(1, flags.split(' ').map(str::to_owned).collect());
    let clients = format!("{own} {}", authority.believed());
    let members = etcd.flag().replace("etcd://", "etcds://");
    let setup = Setup { etcd: Some(members), server: clients.clone(), client: clients, ..Setup::default() };
    let cluster = Cluster::of(setup);
    cluster.until_backed(1);
    let plain = EtcdCoordinator::new(&etcd.clients(), None).unwrap();
    assert!(plain.get("default/place/0").is_err(), "etcd asks for TLS");
}

#[test]
fn a_wrong_address_is_refused_by_name() {
    let line = |coordinator: &str| {
        format!(
            "train --job-name ps --task-index 0 --ps-hosts 127.0.0.1:1,127.0.0.1:2 --worker-hosts a:1 --backups 1 --coordinator {coordinator}"
        )
    };
    harness::refused(&line("etcd://"), &["--coordinator etcd://", "HOST:PORT"]);
    harness::refused(&line("etcd://127.0.0.1:1,b"), &["\"b\" is no HOST:PORT"]);
    harness::refused(&line("etcds://127.0.0.1:1"), &["--tls-ca FILE"]);
    harness::refused(&line("etcd://10.0.0.1:1"), &["etcd member 10.0.0.1:1", "etcds://", "--insecure"]);
}

#[test]
fn a_run_without_servers_stayed_in_etcd_when_it_was_forgotten() {
    let etcd = Etcd::start(1);
    super::forgotten::is_forgotten(cluster_of(&etcd));
}
