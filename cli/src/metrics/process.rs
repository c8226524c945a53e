//! What the system reports about this process, under the names that Prometheus clients use, and the program's
//! version.

use gannet::metrics::MetricsSink;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// The time now, in seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Writes the numbers that the system has, and leaves the others out.
pub fn tell(role: &str, started: f64, page: &mut dyn MetricsSink) {
    page.gauge(
        "gannet_build_info",
        "1. Labels: the version of the program, and the role of the process.",
        &[("version", env!("CARGO_PKG_VERSION")), ("role", role)],
        1.0,
    );
    page.gauge("gannet_uptime_seconds", "Time since the command began.", &[], (now() - started).max(0.0));
    page.gauge("process_start_time_seconds", "When the process began, in seconds since 1970.", &[], started);
    if let Some(stat) = Stat::read() {
        page.counter("process_cpu_seconds_total", "CPU time, user and system.", &[], stat.cpu_seconds);
        page.gauge("process_threads", "Threads.", &[], stat.threads);
        page.gauge(
            "process_virtual_memory_bytes",
            "Address space; images reserve theirs at once, so it is large.",
            &[],
            stat.virtual_bytes,
        );
        page.gauge(
            "process_resident_memory_bytes",
            "Resident memory, shards on memfd and tmpfs included.",
            &[],
            stat.resident_bytes,
        );
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        // One of them is the folder itself.
        let open = files.count().saturating_sub(1);
        page.gauge("process_open_fds", "Open file descriptors.", &[], open as f64);
    }
    if let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        page.gauge("process_max_fds", "The limit of open file descriptors.", &[], limit as f64);
    }
}

struct Stat {
    cpu_seconds: f64,
    threads: f64,
    virtual_bytes: f64,
    resident_bytes: f64,
}

impl Stat {
    /// Parses the fields of /proc/self/stat after the name, which may contain blanks and brackets (proc(5)).
    fn read() -> Option<Stat> {
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        // The first field here is field 3 of proc(5).
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let page = rustix::param::page_size() as f64;
        Some(Stat {
            cpu_seconds: (field(14)? + field(15)?) / ticks,
            threads: field(20)?,
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * page,
        })
    }
}
