//! `gannet serve --follow`: the rows of a job while it trains, and what is handed on to other readers.

use crate::client::{Connection, Served, get, post, predicted, served, table};
use crate::harness::{self, Process, gannet, limit, ok, run};
use gannet::storage::Checkpoint;
use gannet::table::{Capacity, Eviction};
use gannet::transport::Transport;
use gannet::{Read, Transports, Worker, WorkerConfig, Write};
use std::io::{BufRead, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

fn servers(count: usize, flags: &str) -> (Vec<harness::Served>, String) {
    let start =
        |_| harness::Served::start(gannet(&format!("server --listen 127.0.0.1:0 --threads 2 {flags}")));
    let all: Vec<harness::Served> = (0..count).map(start).collect();
    let hosts = all.iter().map(|server| server.addr.as_str()).collect::<Vec<_>>().join(",");
    (all, hosts)
}

/// The flags of worker `rank` of `workers` on these servers.
fn worker(hosts: &str, rank: usize, workers: usize) -> String {
    let all = (0..workers).map(|of| format!("127.0.0.1:{}", of + 1)).collect::<Vec<_>>().join(",");
    format!("--ps-hosts {hosts} --worker-hosts {all} --job-name worker --task-index {rank}")
}

/// Asks until the answer is this one.
fn await_answer(served: &Served, lines: &str, expected: &str) {
    let start = Instant::now();
    loop {
        let answer = post(served, "/v1/predict", lines.as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
        if answer.text() == expected {
            return;
        }
        assert!(start.elapsed() < limit(), "{} for {expected}", answer.text());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn metric(served: &Served, name: &str) -> f64 {
    let page = get(served, "/metrics").text();
    let line = page.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Where pulls are answered.
fn pulls(served: &mut Served) -> String {
    let mut line = String::new();
    served.out.read_line(&mut line).unwrap();
    line.trim().rsplit(' ').next().unwrap().to_owned()
}

/// Whatever is trained, and by how many workers on how many servers: while it trains, all requests are answered, and
/// the answers move. When all is trained, they are those of the saved model.
#[test]
fn a_follower_answers_what_the_trained_model_predicts() {
    let folder = tempfile::tempdir().unwrap();
    let lines = table(400, 60);
    let data = harness::write(folder.path(), "a.csv", lines.as_bytes());
    let cases = [
        ("lr", "--run lr", 2, 2),
        ("scaled", "--run scaled --cross city*plan --scale standard", 1, 1),
        ("deepfm", "--run deepfm --model deepfm --hidden 8 --factors 4", 2, 2),
        ("linear", "--run linear --model linear --loss poisson --optimizer adagrad", 2, 1),
    ];
    // All runs on the same servers: each follower has its own.
    let (_servers, hosts) = servers(2, "");
    for (name, flags, workers, passes) in cases {
        let out = folder.path().join(name).display().to_string();
        let train = |rank| {
            let own = worker(&hosts, rank, workers);
            Process::start(gannet(&format!(
                "train {data} {own} {flags} --out {out} --batch 8 --epochs {}",
                passes * 40
            )))
        };
        let job: Vec<Process> = (0..workers).map(train).collect();
        let served = served(&format!("--follow {hosts} --run {name}"));
        let (mut connection, mut versions) = (Connection::open(&served), Vec::new());
        let mut job: Vec<Option<Process>> = job.into_iter().map(Some).collect();
        while job.iter_mut().flatten().any(Process::is_alive) {
            let answer = connection.ask("POST /v1/predict HTTP/1.1", lines.as_bytes());
            assert_eq!((answer.status, answer.text().lines().count()), (200, 400), "{answer:?}");
            versions.push(answer.header("gannet-version").unwrap().to_owned());
        }
        for process in job.iter_mut().filter_map(Option::take) {
            let done = process.wait();
            assert_eq!(done.code, Some(0), "{name}: {done:?}");
        }
        await_answer(&served, &lines, &predicted(&out, &data));
        let commands = |version: &String| version.split_once('-').unwrap().0.parse::<u64>().unwrap();
        assert!(versions.is_sorted_by_key(commands), "{name}: {versions:?}");
    }
}

/// A server is killed and comes back with its rows while others train and ask. The follower answers all the time, says
/// how old its rows are, and catches up.
#[test]
fn a_follower_outlives_servers_and_says_how_old_its_rows_are() {
    let folder = tempfile::tempdir().unwrap();
    let lines = table(300, 61);
    let data = harness::write(folder.path(), "a.csv", lines.as_bytes());
    let out = folder.path().join("out").display().to_string();
    let kept = folder.path().join("kept").display().to_string();
    let (mut others, first) = servers(1, "");
    let second = harness::Served::start(gannet(&format!("server --listen 127.0.0.1:0 --data-dir {kept}")));
    let (addr, hosts) = (second.addr.clone(), format!("{first},{}", second.addr));
    let train = worker(&hosts, 0, 1);
    let job = Process::start(gannet(&format!("train {data} {train} --batch 4 --epochs 200 --out {out}")));
    let served = served(&format!("--follow {hosts} --max-age 2"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let (mut connection, mut answers) = (Connection::open(&served), 0);
            while !stop.load(Relaxed) {
                let answer = connection.ask("POST /v1/predict HTTP/1.1", lines.as_bytes());
                assert_eq!(answer.status, 200, "{answer:?}");
                answers += 1;
            }
            answers
        });
        second.kill();
        let start = Instant::now();
        while get(&served, "/readyz").status != 503 {
            assert!(start.elapsed() < limit(), "it never says that its rows are old");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(metric(&served, "gannet_serve_model_age_seconds") > 2.0);
        assert!(get(&served, "/readyz").text().contains("has the rows of"));
        others.push(harness::Served::start(gannet(&format!("server --listen {addr} --data-dir {kept}"))));
        let done = job.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
        await_answer(&served, &lines, &predicted(&out, &data));
        while get(&served, "/readyz").status != 200 {
            assert!(start.elapsed() < limit(), "it never says that its rows are new");
            std::thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Relaxed);
        assert!(asked.join().unwrap() > 0);
    });
}

/// All rows of a saved model, and the table of its job.
fn saved(out: &str, run: &str) -> (gannet::Schema, Vec<u64>, Vec<f32>) {
    let model = Checkpoint::open(Path::new(out)).unwrap();
    let (mut keys, mut rows) = (Vec::new(), Vec::new());
    let read = model.read(|some, floats| {
        keys.extend_from_slice(some);
        rows.extend_from_slice(floats);
    });
    read.unwrap();
    let schema = model.schema();
    (gannet::Schema { name: format!("{run}.{}", schema.name), ..schema.clone() }, keys, rows)
}

/// A follower feeds another one, and a worker's library reads from both, over tcp and over shared memory: the rows have
/// the bits of the servers. Nobody can change them there.
#[test]
fn a_follower_feeds_followers_and_answers_pulls() {
    let folder = tempfile::tempdir().unwrap();
    let lines = table(300, 62);
    let data = harness::write(folder.path(), "a.csv", lines.as_bytes());
    let out = folder.path().join("out").display().to_string();
    let (_servers, hosts) = servers(2, "");
    let train = worker(&hosts, 0, 1);
    let job =
        Process::start(gannet(&format!("train {data} {train} --run own --batch 4 --epochs 100 --out {out}")));
    let mut first = served(&format!("--follow {hosts} --pulls 127.0.0.1:0"));
    let from_first = pulls(&mut first);
    let mut second = served(&format!("--follow {from_first} --pulls 127.0.0.1:0"));
    let from_second = pulls(&mut second);
    let done = job.wait();
    assert_eq!(done.code, Some(0), "{done:?}");
    for served in [&first, &second] {
        await_answer(served, &lines, &predicted(&out, &data));
        assert!(metric(served, "gannet_serve_model_age_seconds") < limit().as_secs_f64());
    }
    // Both name the position of the job's servers. The last one may have to end.
    let version =
        |served| post(served, "/v1/predict", lines.as_bytes()).header("gannet-version").unwrap().to_owned();
    let start = Instant::now();
    while version(&first) != version(&second) {
        assert!(start.elapsed() < limit(), "{} and {}", version(&first), version(&second));
        std::thread::sleep(Duration::from_millis(50));
    }
    let (schema, keys, rows) = saved(&out, "own");
    for addr in [&from_first, &from_second] {
        for transport in [Transport::Tcp, Transport::Shm] {
            let net = Transports::new().with_transport(transport);
            let mut reader = Worker::connect(net, WorkerConfig::reader([addr])).unwrap();
            let table = reader.open_table(&schema).unwrap();
            let mut read = vec![0.0; rows.len()];
            reader.pull(table, &keys, Read::State, &mut read).unwrap();
            assert!(read == rows, "{addr} over {transport:?}");
            let refused = reader.push(table, &keys[..1], Write::Gradient, &[1.0]).unwrap_err().to_string();
            assert!(refused.contains("a follower"), "{refused}");
        }
        let other = gannet::Schema { name: "own.other".to_owned(), ..schema.clone() };
        let mut reader = Worker::connect(Transports::new(), WorkerConfig::reader([addr])).unwrap();
        let refused = reader.open_table(&other).unwrap_err().to_string();
        assert!(refused.contains("a follower"), "{refused}");
        let mut eager = Worker::connect(Transports::new(), WorkerConfig::reader([addr])).unwrap();
        eager
            .evict_rows(&schema.name, Eviction { capacity: Some(Capacity::Rows(64)), ..Eviction::default() })
            .unwrap();
        let refused = eager.open_table(&schema).unwrap_err().to_string();
        assert!(refused.contains("a follower"), "{refused}");
        let train = run(&format!("train {data} {} --run own --continue", worker(addr, 0, 1)));
        assert!(train.code != Some(0) && train.err.contains("a follower"), "{train:?}");
    }
}

/// A run begins anew with data that cannot be followed, and then with other data. Meanwhile the rows of before answer,
/// and their age grows.
#[test]
fn a_run_that_cannot_be_followed_any_more_leaves_the_rows_of_before() {
    let folder = tempfile::tempdir().unwrap();
    let lines = table(200, 64);
    let data = harness::write(folder.path(), "a.csv", lines.as_bytes());
    let out = folder.path().join("out").display().to_string();
    let (_servers, hosts) = servers(1, "");
    let train = |data: &str, flags: &str| format!("train {data} {} --run own {flags}", worker(&hosts, 0, 1));
    ok(&train(&data, &format!("--out {out}")));
    let served = served(&format!("--follow {hosts} --max-age 2"));
    let before = predicted(&out, &data);
    await_answer(&served, &lines, &before);
    for flags in ["", "--model fm"] {
        let mut command = gannet(&train("-", &format!("--format csv --fresh {flags}")));
        let mut piped = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        piped.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        assert!(piped.wait().unwrap().success(), "{flags}");
        let start = Instant::now();
        while get(&served, "/readyz").status != 503 {
            assert!(start.elapsed() < limit(), "it never says that its rows are old");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(metric(&served, "gannet_serve_model_behind") == 1.0);
        assert_eq!(post(&served, "/v1/predict", lines.as_bytes()).text(), before, "{flags}");
    }
    let other = folder.path().join("other").display().to_string();
    ok(&train(&data, &format!("--fresh --alpha 0.01 --out {other}")));
    await_answer(&served, &lines, &predicted(&other, &data));
}

/// The age of rows counts from the servers of the job, through a chain of followers, whenever each of them has started.
#[test]
fn a_follower_of_a_follower_knows_how_old_its_rows_are() {
    let folder = tempfile::tempdir().unwrap();
    let data = harness::write(folder.path(), "a.csv", table(100, 65).as_bytes());
    let (servers, hosts) = servers(1, "");
    ok(&format!("train {data} {} --run own", worker(&hosts, 0, 1)));
    let mut first = served(&format!("--follow {hosts} --pulls 127.0.0.1:0"));
    let mut second = served(&format!("--follow {} --pulls 127.0.0.1:0", pulls(&mut first)));
    let from_second = pulls(&mut second);
    servers.into_iter().for_each(harness::Served::kill);
    let start = Instant::now();
    while metric(&first, "gannet_serve_model_age_seconds") < 4.0 {
        assert!(start.elapsed() < limit(), "it does not age");
        std::thread::sleep(Duration::from_millis(50));
    }
    let third = served(&format!("--follow {from_second} --max-age 3"));
    let age = metric(&third, "gannet_serve_model_age_seconds");
    assert!(age >= 4.0 && get(&third, "/readyz").status == 503, "{age}");
}

/// What cannot be followed is said by name.
#[test]
fn what_cannot_be_followed_is_named() {
    let none = run("serve --listen 127.0.0.1:0 --follow somewhere");
    assert!(none.code == Some(2) && none.err.contains("HOST:PORT"), "{none:?}");
    let two =
        run("serve --listen 127.0.0.1:0 --follow a=127.0.0.1:1 --follow b=127.0.0.1:2 --pulls 127.0.0.1:0");
    assert!(two.code == Some(2) && two.err.contains("give --follow once"), "{two:?}");
    let (_servers, hosts) = servers(1, "");
    for run_of in ["a", "b"] {
        let folder = tempfile::tempdir().unwrap();
        let data = harness::write(folder.path(), "a.csv", table(20, 63).as_bytes());
        ok(&format!("train {data} {} --run {run_of}", worker(&hosts, 0, 1)));
    }
    let several = run(&format!("serve --listen 127.0.0.1:0 --follow {hosts}"));
    assert!(several.code == Some(2) && several.err.contains("choose one with --run"), "{several:?}");
}
