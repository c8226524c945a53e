//! Jobs whose servers come back at other addresses, or on each other's folders. The folders say who is the scheduler.

use crate::harness;

use crate::scheduler::{Job, LINES, check_end, until_done};
use harness::*;
use rustix::process::Signal;

/// Servers on two folders, at these addresses.
fn on_folders(job: &Job, addrs: [&str; 2], names: [&str; 2]) -> [Served; 2] {
    [0, 1].map(|i| {
        let mut command = gannet(&format!("server --listen {} --threads 2", addrs[i]));
        command.arg("--data-dir").arg(job.store.with_extension(names[i]));
        Served::start(command)
    })
}

/// Begins a job on folders `a` and `b` that is killed in the middle, and returns the addresses of its servers. The
/// first of them comes first in alphabetical order.
fn killed_in_the_middle(job: &Job) -> [String; 2] {
    let (mut servers, names) = (on_folders(job, ["127.0.0.1:0"; 2], ["x", "y"]), ["a", "b"]);
    servers.sort_by(|one, other| one.addr.cmp(&other.addr));
    let addrs = servers.each_ref().map(|served| served.addr.clone());
    servers.into_iter().for_each(Served::kill);
    let servers = on_folders(job, addrs.each_ref().map(|addr| &**addr), names);
    let first = job.worker(&addrs.join(","), 0, "");
    until_done(&addrs[0], 2);
    first.signal(Signal::KILL);
    drop(first);
    servers.into_iter().for_each(Served::kill);
    addrs
}

/// Goes on with a job at these servers, in its first generation.
fn goes_on(job: &Job, servers: &[Served; 2], more: &str) {
    let hosts = servers.each_ref().map(|served| &*served.addr).join(",");
    let done = run(&job.line(&hosts, 0, more));
    assert_eq!(done.code, Some(0), "{done:?}");
    let report = done.json();
    assert_eq!(report["run"]["generation"], if more.is_empty() { 1 } else { 2 }, "{report}");
    if more.is_empty() {
        assert!(report["examples"].as_u64() < Some(2 * LINES), "the job began a second time: {report}");
    }
    check_end(&hosts);
}

/// Once servers that came back on each other's folders were refused as if the scheduler had lost its state, and before
/// that they began the job a second time: the scheduler was found by its address, and not by its folder.
#[test]
fn a_job_could_not_go_on_when_its_servers_had_swapped_their_folders() {
    let job = Job::new();
    let addrs = killed_in_the_middle(&job);
    let swapped = on_folders(&job, addrs.each_ref().map(|addr| &**addr), ["b", "a"]);
    goes_on(&job, &swapped, "");
    goes_on(&job, &swapped, "--fresh");
}

/// Once a job whose servers came back at new addresses was refused, because the address of another server came first in
/// alphabetical order. So was one with the same first server.
#[test]
fn a_job_could_not_go_on_at_new_addresses_that_made_another_server_its_scheduler() {
    for addrs in [["127.0.0.3:0", "127.0.0.2:0"], ["127.0.0.2:0", "127.0.0.3:0"]] {
        let job = Job::new();
        killed_in_the_middle(&job);
        let servers = on_folders(&job, addrs, ["a", "b"]);
        let states =
            ["a", "b"].map(|name| job.store.with_extension(name).join("scheduler.default.book").is_file());
        assert_eq!(states, [true, false]);
        goes_on(&job, &servers, "");
    }
}

/// A job at new addresses is refused if the state of the job is gone: it would train its records again.
#[test]
fn a_job_at_new_addresses_without_the_state_of_the_job_is_refused() {
    let job = Job::new();
    killed_in_the_middle(&job);
    std::fs::remove_file(job.store.with_extension("a").join("scheduler.default.book")).unwrap();
    let servers = on_folders(&job, ["127.0.0.3:0", "127.0.0.2:0"], ["a", "b"]);
    let hosts = servers.each_ref().map(|served| &*served.addr).join(",");
    let refused = run(&job.line(&hosts, 0, ""));
    let says = "was started without the state of the job";
    assert!(refused.code == Some(2) && refused.err.contains(says), "{refused:?}");
    goes_on(&job, &servers, "--fresh");
}
