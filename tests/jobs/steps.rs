//! Jobs whose workers keep step: what their reports contain, a worker that is killed in the middle, and models
//! with the same bits.

use crate::harness;

use harness::*;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

fn hosts(workers: usize) -> String {
    (0..workers).map(|i| format!("127.0.0.1:{}", 9 + i)).collect::<Vec<_>>().join(",")
}

fn serve(servers: usize, threads: usize) -> (Vec<Served>, String) {
    let start = |_| Served::start(gannet(&format!("server --listen 127.0.0.1:0 --threads {threads}")));
    let served: Vec<Served> = (0..servers).map(start).collect();
    let addrs = served.iter().map(|served| served.addr.clone()).collect::<Vec<_>>().join(",");
    (served, addrs)
}

fn line(data: &Path, addrs: &str, workers: usize, index: usize, flags: &str) -> String {
    // Only FTRL has an L1.
    let l1 = if flags.contains("adam") || flags.contains("--model") { "" } else { "--l1 0.1" };
    format!(
        "train {} --ps-hosts {addrs} --worker-hosts {} --job-name worker --task-index {index} --json {l1} \
         --tasks off --peer-timeout 30 {flags}",
        data.display(),
        hosts(workers)
    )
}

/// Runs all workers of a job. The chief's report comes first.
fn job(data: &Path, addrs: &str, workers: usize, flags: &str, chief: &str) -> Vec<Done> {
    let others: Vec<Process> =
        (1..workers).map(|index| Process::start(gannet(&line(data, addrs, workers, index, flags)))).collect();
    let first = run(&format!("{} {chief}", line(data, addrs, workers, 0, flags)));
    let all: Vec<Done> = std::iter::once(first).chain(others.into_iter().map(Process::wait)).collect();
    all.iter().for_each(|done| assert_eq!(done.code, Some(0), "{flags}: {done:?}"));
    all
}

fn furthest(done: &Done) -> u64 {
    let staleness = done.json()["staleness"].clone();
    let steps = staleness.as_object().unwrap_or_else(|| panic!("{done:?}")).keys();
    steps.map(|steps| steps.trim_end_matches('+').parse().unwrap()).max().unwrap()
}

#[test]
fn reports_say_the_staleness_and_what_came_too_late() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 6_000, 1);
    for (flags, bound) in [
        ("--sync ssp:2 --batch 100 --transport tcp", 2),
        ("--sync ssp:0 --batch 100", 0),
        ("--issync 1 --batch 100", 0),
        ("--sync bsp --replicas-to-aggregate 1 --batch 100 --push replay", 0),
    ] {
        let (_served, addrs) = serve(2, 2);
        let all = job(&data, &addrs, 3, flags, "");
        let examples: u64 = all.iter().map(|done| done.json()["examples"].as_u64().unwrap()).sum();
        assert_eq!(examples, 6_000, "{flags}");
        for done in &all {
            assert!(furthest(done) <= bound, "{flags}: {done:?}");
            let late = &done.json()["dropped_late"];
            let (records, rows) = (late["records"].as_u64().unwrap(), late["rows"].as_u64().unwrap());
            assert_eq!(records == 0, rows == 0, "{flags}: {done:?}");
            assert!(flags.contains("aggregate") || records == 0, "{flags}: {done:?}");
        }
    }
}

/// Worker 1 gets half of its data and is killed. The others name it and continue without it.
#[test]
fn a_killed_worker_is_named_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 3_000, 1);
    let bytes = std::fs::read(&data).unwrap();
    for flags in ["--sync ssp:1 --batch 100 --worker-timeout 3", "--sync bsp --batch 100 --worker-timeout 3"]
    {
        let (_served, addrs) = serve(1, 2);
        let mut command = gannet(&line(Path::new("-"), &addrs, 2, 1, flags));
        command.stdin(Stdio::piped());
        let mut victim = Process::start(command);
        let mut pipe = victim.child.0.stdin.take().unwrap();
        pipe.write_all(&bytes[..bytes.len() / 2]).unwrap();
        // Only the chief waits for worker 1, which waits for its data.
        let chief =
            line(Path::new("-"), &addrs, 2, 0, flags).replace("--peer-timeout 30", "--peer-timeout 5");
        let mut chief = gannet(&chief);
        chief.stdin(Stdio::piped());
        let mut chief = Process::start(chief);
        let (mut data, all) = (chief.child.0.stdin.take().unwrap(), bytes.clone());
        // It reads all of its data only after worker 1 has been given up.
        std::thread::spawn(move || data.write_all(&all));
        std::thread::sleep(std::time::Duration::from_secs(2));
        victim.signal(rustix::process::Signal::KILL);
        let done = chief.wait();
        drop(pipe);
        assert_eq!((done.code, &done.json()["examples"]), (Some(3), &1_500.into()), "{flags}: {done:?}");
        assert_eq!(done.json()["missing_workers"], serde_json::json!([1]), "{flags}: {done:?}");
        assert!(done.err.contains("waiting for worker 1, which is at clock"), "{flags}: {done:?}");
    }
}

#[test]
fn a_deterministic_job_fails_when_a_worker_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 1_000, 1);
    let (_served, addrs) = serve(1, 1);
    let done = run(&line(&data, &addrs, 2, 0, "--deterministic --worker-timeout 2"));
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains("worker 1") && done.err.contains("--worker-timeout"), "{done:?}");
}

#[test]
fn workers_with_different_sync_modes_are_refused() {
    let (_served, addrs) = serve(1, 1);
    let mut command = gannet(&line(Path::new("-"), &addrs, 2, 1, "--sync ssp:3"));
    command.stdin(Stdio::piped());
    let mut first = Process::start(command);
    let pipe = first.child.0.stdin.take().unwrap();
    // The one that comes second is refused. Without its peer, worker 0 finds no examples.
    let refused = (0..100).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        if !first.is_alive() {
            return Some(None);
        }
        let done = run(&line(Path::new("-"), &addrs, 2, 0, "--sync ssp:4 --worker-timeout 1"));
        (done.code == Some(2) && done.err.contains("--sync")).then_some(Some(done))
    });
    let (refused, why) = match refused.expect("two ways at once are refused") {
        Some(done) => (done, "--sync: worker 1 has ssp:3, this worker (0) was given ssp:4"),
        None => (first.wait(), "--sync: worker 0 has ssp:4, this worker (1) was given ssp:3"),
    };
    assert!(refused.code == Some(2) && refused.err.contains(why), "{refused:?}");
    drop(pipe);
}

/// Servers are killed with SIGKILL in the middle of a deterministic job and restarted on their folders. The
/// model must have the same bits.
#[test]
fn killed_servers_change_no_bit() {
    servers_are_killed("");
}

#[test]
fn killed_servers_change_no_bit_of_f16() {
    servers_are_killed("--wire f16");
}

#[test]
fn killed_servers_change_no_bit_of_16_bit_rows() {
    servers_are_killed("--model fm --factors 3 --row-type f16");
    servers_are_killed("--model fm --factors 3 --row-type bf16");
}

fn servers_are_killed(what: &str) {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 8_000, 5);
    let flags = &format!("--deterministic --batch 50 --worker-timeout 50 {what}");
    let undisturbed = folder.path().join("undisturbed");
    let (_served, addrs) = serve(2, 2);
    job(&data, &addrs, 2, flags, &format!("--out {}", undisturbed.display()));

    let start = |addr: &str, index: usize| {
        let mut command = gannet(&format!("server --listen {addr} --threads 2"));
        command.arg("--data-dir").arg(folder.path().join(index.to_string()));
        Served::start(command)
    };
    let mut served: Vec<Served> = (0..2).map(|index| start("127.0.0.1:0", index)).collect();
    let addrs = served.iter().map(|served| served.addr.clone()).collect::<Vec<_>>().join(",");
    let (out, pipes) = (folder.path().join("killed"), Path::new("-"));
    let mut workers: Vec<Process> = (0..2)
        .map(|index| {
            let chief = if index == 0 { format!("--out {}", out.display()) } else { String::new() };
            let mut command = gannet(&format!("{} {chief}", line(pipes, &addrs, 2, index, flags)));
            command.stdin(Stdio::piped());
            Process::start(command)
        })
        .collect();
    let mut ends: Vec<_> = workers.iter_mut().map(|worker| worker.child.0.stdin.take().unwrap()).collect();
    let bytes = std::fs::read(&data).unwrap();
    for (round, chunk) in bytes.chunks(bytes.len() / 6 + 1).enumerate() {
        ends.iter_mut().for_each(|end| end.write_all(chunk).unwrap());
        // While the workers train on what they have.
        std::thread::sleep(std::time::Duration::from_millis(15 + 10 * round as u64));
        let index = round % 2;
        let addr = served[index].addr.clone();
        served.remove(index).kill();
        served.insert(index, start(&addr, index));
    }
    drop(ends);
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    assert!(model(&out) == model(&undisturbed), "other bits than without kills");
}

/// Key and bits of each row of a saved model.
fn model(folder: &Path) -> Vec<(u64, Vec<u32>)> {
    let checkpoint = gannet::storage::Checkpoint::open(folder).unwrap();
    let floats = checkpoint.schema().floats();
    let mut all = Vec::new();
    checkpoint
        .read(|keys, rows| {
            let rows = rows.chunks(floats).map(|row| row.iter().map(|value| value.to_bits()).collect());
            all.extend(keys.iter().copied().zip(rows));
        })
        .unwrap();
    all.sort();
    all
}

#[test]
fn the_same_data_makes_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 4_000, 1);
    let trainings = [
        (2, ""),
        (3, "--push replay"),
        (2, "--optimizer adam --alpha 0.01"),
        (2, "--wire f16"),
        (2, "--model fm --factors 3 --row-type bf16"),
    ];
    for (workers, push) in trainings {
        let mut first: Option<Vec<(u64, Vec<u32>)>> = None;
        for (servers, threads, flags) in [
            (1, 1, "--transport tcp"),
            (1, 8, ""),
            (2, 2, "--transport tcp"),
            (4, 1, ""),
            (4, 3, "--threads 1"),
        ] {
            let (_served, addrs) = serve(servers, threads);
            let out = folder.path().join("model");
            let _ = std::fs::remove_dir_all(&out);
            let flags = format!("--deterministic --batch 64 {push} {flags}");
            let others: Vec<Process> = (1..workers)
                .map(|index| Process::start(gannet(&line(&data, &addrs, workers, index, &flags))))
                .collect();
            let chief = format!("{} --out {}", line(&data, &addrs, workers, 0, &flags), out.display());
            let chief = run(&chief);
            assert_eq!(chief.code, Some(0), "{flags}: {chief:?}");
            others.into_iter().map(Process::wait).for_each(|done| assert_eq!(done.code, Some(0), "{done:?}"));
            let made = model(&out);
            assert!(made.len() > 1_000);
            match &first {
                None => first = Some(made),
                Some(first) => {
                    assert!(*first == made, "{servers} servers of {threads} threads, {flags}: other bits")
                }
            }
        }
    }
}
