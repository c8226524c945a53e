//! The machine, and what its kernel offers to any process.

use crate::doctor::finding::Finding;
use bytesize::ByteSize;
use gannet::transport::try_uring;
use rustix::process::{Resource, getrlimit};
use std::fs::read_to_string;

/// A server opens one descriptor for each session and each shard. On a large machine a lower limit is reached with
/// one worker for each thread.
const DESCRIPTORS_MIN: u64 = 4096;

pub fn findings() -> Vec<Finding> {
    vec![machine(), descriptors(), uring()]
}

fn machine() -> Finding {
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.trim();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let size = |name| meminfo(name).map_or("?".into(), |bytes| ByteSize(bytes).display().iec().to_string());
    let (total, free) = (size("MemTotal"), size("MemAvailable"));
    let s = if processors == 1 { "" } else { "s" };
    Finding::ok(
        "system",
        format!("Linux {kernel}, {processors} processor{s}, {free} of {total} memory available"),
    )
}

/// A line of /proc/meminfo, in bytes.
fn meminfo(name: &str) -> Option<u64> {
    let text = read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

fn descriptors() -> Finding {
    // A server raises its own soft limit.
    match getrlimit(Resource::Nofile).maximum {
        Some(most) if most < DESCRIPTORS_MIN => Finding::note(
            "system",
            format!("a process may have {most} open files; a server needs one a session and one a shard"),
            "ulimit -Hn 65536, nofile in /etc/security/limits.conf, or LimitNOFILE= of a systemd service",
        ),
        Some(most) => Finding::ok("system", format!("a process may have {most} open files")),
        None => Finding::ok("system", "no limit of open files"),
    }
}

fn uring() -> Finding {
    match try_uring() {
        Ok(()) => Finding::ok("io_uring", "works: --io uring may be used (--io auto is epoll)"),
        Err(why) => Finding::note(
            "io_uring",
            format!("{why}"),
            "--io uring would fall back to epoll, which is what --io auto uses",
        ),
    }
}
