//! `gannet doctor` on a real device, named by GANNET_RDMA_DEVICE: its findings about the device, a port that is
//! down, a limit that is too low, and a missing library.

use crate::harness::*;
use serde_json::Value;
use std::process::Command;

/// The device to test on.
fn device() -> Option<String> {
    let device = std::env::var("GANNET_RDMA_DEVICE").ok().filter(|name| !name.is_empty());
    if device.is_none() {
        eprintln!("skipped: GANNET_RDMA_DEVICE names no device; make test-rdma does");
    }
    device
}

/// The device of a guest, whose network no other user needs.
fn guest_device() -> Option<String> {
    device().filter(|_| std::env::var_os("GANNET_GUEST").is_some())
}

fn rdma(report: &Value) -> Vec<(&str, &str, Option<&str>)> {
    let findings = report["findings"].as_array().unwrap().iter().filter(|finding| finding["area"] == "rdma");
    findings
        .map(|f| (f["level"].as_str().unwrap(), f["text"].as_str().unwrap(), f["remedy"].as_str()))
        .collect()
}

fn sh(line: &str) {
    let status = Command::new("sh").args(["-c", line]).status().unwrap();
    assert!(status.success(), "{line}");
}

/// Runs the doctor in a line of shell, in which $G is the binary.
fn doctor_in(line: &str) -> Done {
    let mut command = Command::new("sh");
    command.args(["-c", line]).env("G", env!("CARGO_BIN_EXE_gannet"));
    Process::start(command).wait()
}

#[test]
fn a_working_device_is_reported_with_its_addresses_and_limits() {
    let Some(name) = device() else { return };
    let done = run("doctor --json");
    assert_eq!(done.code, Some(0), "{done:?}");
    let report = done.json();
    let device = report["devices"].as_array().unwrap().iter().find(|d| d["name"] == name.as_str()).unwrap();
    let port = &device["ports"][0];
    assert!(
        device["limits"]["sge"].as_u64().unwrap() >= 1 && port["mtu"].as_u64().unwrap() >= 256,
        "{device}"
    );
    if let Ok(ip) = std::env::var("NODE_IP") {
        let gids = port["gids"].as_array().unwrap();
        let gid = gids.iter().find(|gid| gid["ip"] == ip.as_str() && gid["kind"] == "RoCE v2");
        let index = gid.unwrap_or_else(|| panic!("{gids:?}"))["index"].to_string();
        assert!(
            std::env::var("RDMA_GID_INDEX").is_ok_and(|known| known == index) || guest_device().is_none()
        );
        assert!(
            rdma(&report).iter().any(|(_, text, _)| text.contains("ACTIVE") && text.contains(&ip)),
            "{report}"
        );
    }
    assert!(
        rdma(&report).iter().any(|(level, text, _)| *level == "ok" && text.contains("registers 16")),
        "{report}"
    );
}

#[test]
fn ports_that_are_down_or_slow_are_reported_with_a_remedy() {
    let Some(name) = guest_device() else { return };
    sh("ip link set dev eth0 mtu 1500");
    let small = run("doctor --json");
    sh("ip link set dev eth0 mtu 4200 down");
    let down = run("doctor --json");
    sh("ip link set dev eth0 up");
    let found = small.json();
    let notes = rdma(&found);
    let note = notes.iter().find(|(level, text, _)| *level == "note" && text.contains("1024 bytes"));
    assert!(note.is_some_and(|(.., remedy)| remedy.unwrap().contains("eth0 mtu 9000")), "{notes:?}");
    assert_eq!(small.code, Some(0), "{small:?}");
    assert_eq!(down.code, Some(1), "{down:?}");
    let found = down.json();
    let problem = format!("{name} port 1 is DOWN");
    let finding = rdma(&found).into_iter().find(|(_, text, _)| *text == problem);
    assert!(
        finding.is_some_and(|(level, _, remedy)| level == "problem" && remedy.unwrap().contains("up")),
        "{found}"
    );
}

#[test]
fn a_limit_that_is_too_low_is_a_problem_with_a_remedy() {
    let Some(name) = device() else { return };
    let unprivileged = "setpriv --inh-caps=-ipc_lock --bounding-set=-ipc_lock";
    let done = doctor_in(&format!("ulimit -l 64; exec {unprivileged} \"$G\" doctor --json"));
    assert_eq!(done.code, Some(1), "{done:?}");
    let report = done.json();
    let refused = rdma(&report).into_iter().find(|(_, text, _)| text.contains("cannot register")).unwrap();
    assert_eq!(refused.0, "problem");
    for part in [name.as_str(), "16777216 bytes", "65536 bytes", "ulimit -l"] {
        assert!(refused.1.contains(part), "{part}: {refused:?}");
    }
    assert!(report["findings"].to_string().contains("LimitMEMLOCK=infinity"), "{report}");
}

/// Only the build that loads the library starts without it. It says so, and works over other transports.
#[test]
#[cfg(feature = "rdma-dlopen")]
fn without_the_library_all_but_rdma_works() {
    let Some(name) = device() else { return };
    // For this process alone, an empty file hides the library.
    let hidden = "for f in /usr/lib/*/libibverbs.so.1; do mount --bind /dev/null \"$(readlink -f $f)\"; done; exec \"$G\" ";
    let hidden = |rest: &str| format!("exec unshare -m sh -c '{hidden}{rest}'");
    let done = doctor_in(&hidden("doctor --json"));
    assert_eq!(done.code, Some(1), "{done:?}");
    let report = done.json();
    let finding = rdma(&report).into_iter().find(|(_, text, _)| text.contains("libibverbs.so.1")).unwrap();
    assert!(
        finding.0 == "problem" && finding.1.starts_with(&name) && finding.1.contains("install"),
        "{finding:?}"
    );

    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 200, 1);
    let done = doctor_in(&hidden(&format!("train {} --json", data.display())));
    assert_eq!(done.json()["examples"], 200, "{done:?}");
}
