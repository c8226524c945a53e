//! `--transport`, tested from outside: what is chosen and reported, what is refused, which users' processes may
//! connect, and a job whose transport fails in the middle.

use crate::harness;

use harness::*;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

fn served(flags: &str) -> Served {
    Served::start(gannet(&format!("server --listen 127.0.0.1:0 --threads 2 {flags}")))
}

/// A worker of a job of one that logs how it reaches its server.
fn worker(data: &Path, addr: &str, flags: &str) -> Command {
    gannet(&format!(
        "train {} --ps-hosts {addr} --worker-hosts 127.0.0.1:9 --job-name worker --json --log info {flags}",
        data.display()
    ))
}

/// The log line about the choice, and the transport that the report names.
fn chosen(done: &Done) -> (String, String) {
    let line = done.err.lines().rfind(|line| line.contains("chose the transport to a server"));
    let transport = done.json()["transport"].as_str().unwrap().to_owned();
    (line.unwrap_or_else(|| panic!("{done:?}")).to_owned(), transport)
}

#[test]
fn a_worker_says_what_it_chose_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 2_000, 1);
    for (server, flags, transport, why) in [
        ("", "", "shm", "the server is on this host"),
        ("--transport shm", "", "shm", "the server is on this host"),
        ("", "--transport shm", "shm", "it was requested"),
        ("--io uring", "--io uring", "shm", "the server is on this host"),
        ("", "--transport tcp", "tcp", "it was requested"),
        ("--transport tcp", "", "tcp", "no server of this host offers shared memory at this address"),
    ] {
        let server = served(server);
        let done = Process::start(worker(&data, &server.addr, flags)).wait();
        let (line, used) = chosen(&done);
        assert_eq!((used.as_str(), &done.json()["examples"]), (transport, &2_000.into()), "{done:?}");
        assert!(line.contains(&server.addr) && line.contains(why), "{line}");
        assert!(line.contains(&format!("transport=\"{transport}\"")), "{line}");
        // There is one line for all links of a server.
        assert_eq!(done.err.matches("chose the transport to a server").count(), 1, "{done:?}");
    }
}

#[test]
fn a_transport_that_is_not_there_is_named_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 100, 1);
    for (server, flags, says) in [
        ("--transport tcp", "--transport shm", "no server of this host offers shared memory at this address"),
        // Closed or reset.
        ("--transport shm", "--transport tcp", "connection"),
    ] {
        let server = served(server);
        let done = Process::start(worker(&data, &server.addr, &format!("{flags} --peer-timeout 1"))).wait();
        assert_eq!(done.code, Some(3), "{done:?}");
        let error = done.err.lines().find(|line| line.starts_with("gannet:")).unwrap();
        assert!(error.contains(&server.addr) && error.to_lowercase().contains(says), "{error}");
    }
    let done = run("server --listen 127.0.0.1:0 --transport carrier-pigeon");
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("carrier-pigeon") && done.err.contains("shm"), "{}", done.err);
}

/// A process of the user nobody, if this test runs as root. It must be able to read the binary and the data.
#[test]
fn another_users_worker_gets_tcp_and_the_reason_unless_both_have_a_token() {
    const NOBODY: u32 = 65_534;
    let folder = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open.clone()).unwrap();
    let binary = folder.path().join("gannet");
    std::fs::copy(env!("CARGO_BIN_EXE_gannet"), &binary).unwrap();
    std::fs::set_permissions(&binary, open).unwrap();
    let data = clicks(&folder.path().join("train.svm"), 500, 1);
    let (mine, nobodys) = (folder.path().join("mine"), folder.path().join("nobodys"));
    for (path, user) in [(&mine, None), (&nobodys, Some(NOBODY))] {
        std::fs::write(path, "5ecre7-0f-th1s-j0b-4nd-n0-0ther").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        if let Err(error) = chown(path, user, None) {
            return eprintln!("not root, so nobody else can be played: {error}");
        }
    }
    let as_nobody = |addr: &str, flags: &str| {
        let line = worker(&data, addr, flags);
        let mut command = Command::new(&binary);
        command.args(line.get_args()).uid(NOBODY).current_dir("/");
        Process::start(command).wait()
    };
    let server = served("");
    let done = as_nobody(&server.addr, "");
    let (line, used) = chosen(&done);
    assert_eq!(used, "tcp", "{done:?}");
    assert!(["user 0", "user 65534", "--token-file"].iter().all(|word| line.contains(word)), "{line}");
    // If another attempt cannot help, there is none: with this time-out the test would exceed its own limit.
    let done = as_nobody(&server.addr, "--transport shm --peer-timeout 600");
    assert_eq!(done.code, Some(3), "{done:?}");
    let error = done.err.lines().find(|line| line.starts_with("gannet:")).unwrap();
    assert!([&server.addr, "user 0", "--token-file"].iter().all(|word| error.contains(*word)), "{error}");

    let server = served(&format!("--token-file {}", mine.display()));
    let done = as_nobody(&server.addr, &format!("--token-file {}", nobodys.display()));
    assert_eq!(chosen(&done).1, "shm", "{done:?}");
    // Without the token a process gets no further than the greeting.
    let done = as_nobody(&server.addr, "--peer-timeout 5");
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains("asks for a token"), "{done:?}");
}

/// A server is killed and comes back without shared memory, then with it. The job continues over the available
/// transport, and trains the same model as an undisturbed job.
#[test]
fn a_job_goes_on_over_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 12_000, 5);
    let alone = run(&format!("train {} --json --batch 256", data.display())).json();
    let images = folder.path().join("images");
    let serve = |addr: &str, flags: &str| {
        let mut command = gannet(&format!("server --listen {addr} --threads 2 {flags}"));
        command.arg("--data-dir").arg(&images);
        Served::start(command)
    };
    let mut server = serve("127.0.0.1:0", "");
    let addr = server.addr.clone();
    let mut command = worker(Path::new("-"), &addr, "--batch 256 --peer-timeout 30");
    command.stdin(std::process::Stdio::piped());
    let mut job = Process::start(command);
    let mut pipe = job.child.0.stdin.take().unwrap();
    let bytes = std::fs::read(&data).unwrap();
    let quarter = bytes.len() / 4;
    for (round, flags) in ["--transport tcp", "--transport shm", "--transport tcp"].into_iter().enumerate() {
        pipe.write_all(&bytes[round * quarter..(round + 1) * quarter]).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        server.kill();
        server = serve(&addr, flags);
    }
    pipe.write_all(&bytes[3 * quarter..]).unwrap();
    drop(pipe);
    let done = job.wait();
    let trained = done.json();
    assert_eq!((&trained["examples"], &trained["rows"]), (&alone["examples"], &alone["rows"]), "{done:?}");
    let loss = |report: &serde_json::Value| report["logloss"].as_f64().unwrap();
    assert!((loss(&trained) - loss(&alone)).abs() < 1e-5, "{trained} {alone}");
    assert_eq!(chosen(&done).1, "tcp", "{done:?}");
    assert!(done.err.contains("transport=\"shm\""), "{done:?}");
}

/// The processes that a process has started and that still run, with their command lines.
fn children(of: u32) -> Vec<(u32, String)> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parent = |id: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    ids.filter(|&id| parent(id) == Some(of)).map(|id| (id, command_line(id))).collect()
}

/// Empty: the process has ended.
fn command_line(id: u32) -> String {
    String::from_utf8_lossy(&std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default()).into_owned()
}

/// Kills these processes, if they still have these command lines.
struct Killed(Vec<(u32, String)>);

impl Drop for Killed {
    fn drop(&mut self) {
        for (id, line) in self.0.iter().filter(|(id, line)| command_line(*id) == *line) {
            eprintln!("process {id} has outlived the test: {line:?}");
            let pid = rustix::process::Pid::from_raw(*id as i32).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

#[test]
fn a_bench_that_is_killed_leaves_no_server_and_no_worker() {
    let work = "--transport tcp --dims 2 --rows 4000 --batch 500 --seconds 600 --threads 1";
    for (flags, part) in [("", "--part=throughput"), ("--sessions 1 --in-flight 1", "--part=small")] {
        let mut bench = Process::start(gannet(&format!("bench {work} {flags}")));
        let start = std::time::Instant::now();
        let started = loop {
            let started = children(bench.child.0.id());
            let has = |word: &str| started.iter().any(|(_, line)| line.contains(word));
            if has("server\0--listen") && has(part) {
                break Killed(started);
            }
            assert!(start.elapsed() < limit(), "{started:?}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        bench.signal(rustix::process::Signal::KILL);
        bench.child.ended();
        let lives = |(id, line): &(u32, String)| command_line(*id) == *line;
        while started.0.iter().any(lives) {
            assert!(start.elapsed() < limit(), "they outlive the bench: {:?}", started.0);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// The end of its standard input says that the bench has been killed. It is no start.
#[test]
fn a_part_of_a_bench_whose_command_is_gone_measures_nothing() {
    let server = served("--transport tcp");
    let addr = &server.addr;
    for (part, flags) in [
        ("throughput", ""),
        ("latency", ""),
        ("grow", "--grow 1000"),
        ("small", "--sessions 1 --in-flight 1 --pull-keys 8"),
    ] {
        let work = "--transport tcp --dims 2 --rows 4000 --batch 500 --seconds 0.05";
        let done = run(&format!("bench --part={part}={addr} {work} {flags}"));
        assert_eq!((done.code, done.out.as_str()), (Some(1), "ready\n"), "{part}: {done:?}");
        assert!(done.err.contains("the benchmark that started this part has ended"), "{part}: {done:?}");
    }
}

#[test]
fn bench_measures_the_chosen_transport() {
    for (transport, flags, read) in [
        ("shm", "", None),
        ("shm", "--one-sided always", Some(true)),
        ("shm", "--one-sided never", Some(false)),
        ("tcp", "", Some(false)),
    ] {
        let done = run(&format!(
            "bench --transport {transport} --dims 2 --rows 4000 --batch 500 --seconds 0.05 --threads 1 --json {flags}"
        ));
        let rates = &done.json()[transport]["dim2"];
        for name in ["pull_keys_per_s", "push_keys_per_s", "cycle_keys_per_s", "pull64_us_p50"] {
            assert!(rates[name].as_f64().is_some_and(|rate| rate > 0.0), "{name}: {done:?}");
        }
        for name in ["pull_server_cpu_ms_per_million", "push_worker_cpu_ms_per_million"] {
            assert!(rates[name].as_f64().is_some_and(|cost| cost >= 0.0), "{name}: {done:?}");
        }
        assert!(rates["settled_after_s"].as_f64().is_some_and(|seconds| seconds > 0.0), "{done:?}");
        // Every row was pushed before, so all of them can be read in place. By default the worker measures what is
        // faster.
        let share = rates["pull_one_sided"].as_f64().unwrap();
        let expected = match read {
            Some(true) => share > 0.9,
            Some(false) => share == 0.0,
            None => (0.0..=1.0).contains(&share),
        };
        assert!(expected, "{transport} {flags}: {share}");
    }
    for (transport, one_sided) in [("tcp", false), ("shm", true)] {
        let flags = "--one-sided always --dims 2 --rows 4000 --batch 500 --seconds 0.05 --sessions 1,3 --in-flight 1,4";
        let done = run(&format!("bench --transport {transport} --pull-keys 8 --threads 2 --json {flags}"));
        let report = done.json();
        let cells = report[transport]["dim2"].as_array().unwrap();
        let shapes: Vec<_> = cells.iter().map(|cell| (&cell["sessions"], &cell["in_flight"])).collect();
        assert_eq!(serde_json::json!(shapes), serde_json::json!([[1, 1], [1, 4], [3, 1], [3, 4]]));
        for cell in cells {
            let get = |name: &str| cell[name].as_f64().unwrap();
            assert!(
                get("keys_per_s") > 0.0 && get("us_p50") > 0.0 && get("us_p50") <= get("us_p99"),
                "{cell}"
            );
            assert!(if one_sided { get("one_sided") > 0.9 } else { get("one_sided") == 0.0 }, "{cell}");
        }
    }
    let done = run("bench --pull-keys 8");
    assert!(done.code == Some(2) && done.err.contains("--sessions"), "{done:?}");
    let done = run("bench --one-sided perhaps");
    assert!(done.code == Some(2) && done.err.contains("perhaps") && done.err.contains("never"), "{done:?}");
    for flags in ["", "--ps-hosts 127.0.0.1:1 --job-name ps"] {
        let done = run(&format!("train - --one-sided never {flags}"));
        assert!(done.code == Some(2) && done.err.contains("--one-sided: works only in a"), "{done:?}");
    }
}
