//! `gannet serve --learn`: real processes that are killed while clients send examples again and again. Each example has
//! a feature of its own. All features begin at the same weight and are learned alone, so equal scores say that each was
//! learned once.

use crate::client::{Served, get, post, served};
use crate::harness::{Owned, gannet, limit, ok, run, write};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The model that the jobs begin from knows none of the examples.
const FLAGS: &str = "--no-intercept --l1 0";

/// The first feature of an example.
const FIRST: usize = 1000;

pub fn base_model(folder: &Path) -> String {
    let data = write(folder, "base.svm", "1 1:1\n0 2:1\n");
    let model = folder.join("model").display().to_string();
    ok(&format!("train {data} --out {model} {FLAGS}"));
    model
}

fn line(example: usize) -> String {
    format!("1 {}:1", FIRST + example)
}

fn body(examples: &[usize]) -> Value {
    let lines: Vec<String> = examples.iter().map(|&example| line(example)).collect();
    json!({"ids": examples, "lines": lines})
}

/// Asks, and is content with no answer.
fn try_post(addr: &str, path: &str, body: &[u8]) -> Option<(u16, Value)> {
    let mut stream = TcpStream::connect(addr).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, serde_json::from_str(body).ok()?))
}

/// Sends a request until all its examples are learned. Returns what was said of each at last.
fn learn(addr: &Mutex<String>, examples: &[usize]) -> BTreeMap<String, String> {
    let (begun, body) = (Instant::now(), body(examples).to_string());
    loop {
        assert!(begun.elapsed() < limit(), "{examples:?} are not learned");
        let at = addr.lock().unwrap().clone();
        match try_post(&at, "/v1/learn", body.as_bytes()) {
            Some((200, answer)) => return serde_json::from_value(answer["ids"].clone()).unwrap(),
            Some((202 | 500 | 503 | 504, _)) | None => std::thread::sleep(Duration::from_millis(20)),
            Some(other) => panic!("{other:?}"),
        }
    }
}

/// Waits until the served model scores all examples alike, as one that has learned each of them once.
fn await_learned_once(served: &Served, examples: usize) {
    let lines: String = (0..examples).map(|example| line(example) + "\n").collect();
    let begun = Instant::now();
    loop {
        let scores: Vec<f64> = post(served, "/v1/predict", lines.as_bytes())
            .text()
            .lines()
            .map(|score| score.parse().unwrap())
            .collect();
        assert_eq!(scores.len(), examples);
        let (least, most) = scores
            .iter()
            .fold((1.0, 0.0f64), |(least, most): (f64, f64), &score| (least.min(score), most.max(score)));
        if least > 0.5 && least == most {
            return;
        }
        assert!(begun.elapsed() < limit(), "scores from {least} to {most}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The processes whose command lines have all of these words.
fn processes(words: &[&str]) -> Vec<Pid> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).into_owned();
        if words.iter().all(|word| line.contains(word)) {
            found.extend(Pid::from_raw(id));
        }
    }
    found
}

/// Kills such processes. Waits for the first one: it may just be started again.
fn kill(words: &[&str]) {
    let (begun, mut are_killed) = (Instant::now(), false);
    while !are_killed {
        assert!(begun.elapsed() < limit(), "no process has the words {words:?}");
        for id in processes(words) {
            are_killed |= kill_process(id, Signal::KILL).is_ok();
        }
    }
}

fn examples_of_job(addr: &str) -> u64 {
    run(&format!("status --ps-hosts {addr} --json")).json()["job"]["examples"].as_u64().unwrap_or(0)
}

/// One command serves and trains. It, its worker and its server are killed while three clients send the same examples
/// in different orders, each several times.
#[test]
fn each_example_counts_once_whatever_is_killed() {
    const EXAMPLES: usize = 240;
    let folder = tempfile::tempdir().unwrap();
    let model = base_model(folder.path());
    let place = folder.path().join("learned").display().to_string();
    let flags = format!("--model {model} --learn {place} -- {FLAGS} --worker-timeout 2 --checkpoint-secs 1");
    let start = || served(&flags);
    let server = Mutex::new(start());
    let addr = Mutex::new(server.lock().unwrap().addr.clone());
    let (sent, learned) = (AtomicUsize::new(0), Mutex::new(BTreeMap::<String, usize>::new()));
    std::thread::scope(|scope| {
        for client in 0..3usize {
            let (addr, sent, learned) = (&addr, &sent, &learned);
            scope.spawn(move || {
                for turn in 0..EXAMPLES / 4 {
                    // Each client goes its own way through the examples.
                    let step = [1, 7, 11][client];
                    let at = |k: usize| (turn * 4 + k) * step % EXAMPLES;
                    let examples = [at(0), at(1), at(2), at(3)];
                    for (id, said) in learn(addr, &examples) {
                        *learned.lock().unwrap().entry(id).or_default() += usize::from(said == "learned");
                    }
                    sent.fetch_add(1, Relaxed);
                }
            });
        }
        let turns = |n: usize| {
            let begun = Instant::now();
            while sent.load(Relaxed) < n {
                assert!(begun.elapsed() < limit());
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        turns(10);
        kill(&[&place, "--job-name=worker"]);
        turns(40);
        kill(&[&place, "--job-name=ps"]);
        turns(70);
        // SIGKILL, and its job dies with it.
        let mut server = server.lock().unwrap();
        server.process.0.kill().unwrap();
        server.process.0.wait().unwrap();
        *server = start();
        *addr.lock().unwrap() = server.addr.clone();
        turns(100);
        kill(&[&place, "--job-name=worker"]);
        kill(&[&place, "--job-name=ps"]);
    });
    let learned = learned.into_inner().unwrap();
    assert!(learned.len() == EXAMPLES && learned.values().all(|&times| times <= 1), "{learned:?}");
    let server = server.into_inner().unwrap();
    await_learned_once(&server, EXAMPLES);
    let page = get(&server, "/metrics").text();
    assert!(page.contains("gannet_learn_waiting_examples 0\n"), "{page}");
}

/// A job of other processes trains the folder. Requests that come before it, and before a kill, are learned later.
#[test]
fn examples_wait_for_a_job_of_other_processes() {
    let folder = tempfile::tempdir().unwrap();
    let model = base_model(folder.path());
    let (place, rows) = (folder.path().join("learned"), folder.path().join("rows"));
    let (saves, rows) = (place.join("checkpoints").display().to_string(), rows.display().to_string());
    let rows = crate::harness::Served::start(gannet(&format!(
        "server --listen 127.0.0.1:0 --threads 2 --data-dir {rows} --checkpoint {saves}"
    )));
    let flags = format!("--model {model} --learn {} --job {} --request-time 1", place.display(), rows.addr);
    let mut server = served(&flags);
    let asked = post(&server, "/v1/learn", body(&[0, 1, 2]).to_string().as_bytes());
    assert_eq!(
        (asked.status, asked.json()),
        (202, json!({"ids": {"0": "waiting", "1": "waiting", "2": "waiting"}}))
    );
    server.process.0.kill().unwrap();
    server.process.0.wait().unwrap();
    server = served(&flags);
    let again = post(&server, "/v1/learn", body(&[1, 3]).to_string().as_bytes());
    assert_eq!((again.status, again.json()["ids"]["3"].as_str()), (202, Some("waiting")), "{again:?}");
    let worker = |index: u32| {
        let line = format!(
            "train --follow {}/examples --format libsvm --warm-start {model} {FLAGS} --ps-hosts {} --worker-hosts a:1,b:1 \
             --job-name worker --task-index {index} --checkpoint {saves} --checkpoint-secs 1 --worker-timeout 2",
            place.display(),
            rows.addr
        );
        Owned(gannet(&line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    };
    let workers = [worker(0), worker(1)];
    let addr = Mutex::new(server.addr.clone());
    let said = learn(&addr, &[3, 2, 1, 0]);
    assert!(said.values().all(|said| said == "known"), "{said:?}");
    let said = learn(&addr, &[4, 0]);
    assert_eq!((said["4"].as_str(), said["0"].as_str()), ("learned", "known"));
    assert_eq!(examples_of_job(&rows.addr), 5);
    await_learned_once(&server, 5);
    drop(workers);
}

/// The features of a prediction are joined with the label that comes later, once.
#[test]
fn labels_come_later() {
    let folder = tempfile::tempdir().unwrap();
    let data = write(folder.path(), "a.csv", crate::client::table(200, 7));
    let model = folder.path().join("model").display().to_string();
    ok(&format!("train {data} --out {model}"));
    let place = folder.path().join("learned");
    let server = served(&format!("--model {model} --learn {} --join-window 600", place.display()));
    let predict = |id: &str, body: &str| {
        let head = format!("POST /v1/predict HTTP/1.1\r\nX-Request-Id: {id}");
        crate::client::ask(&server, &head, body.as_bytes())
    };
    let kept = predict("a", r#"{"city": "town 1", "age": 30.5, "plan": "p1", "label": 0}"#);
    assert_eq!((kept.status, kept.header("gannet-kept")), (200, Some("1")));
    let rows = predict("b", "city,age,plan\ntown 2,31.5,\n\"town, 3\",NA,p2\n");
    assert_eq!((rows.status, rows.header("gannet-kept")), (200, Some("2")));
    let label = |body: Value| post(&server, "/v1/learn", body.to_string().as_bytes());
    let said = label(json!({"labels": {"a": 1, "b/1": 0, "b/2": {"label": 1}, "c": 1}}));
    let expected = json!({"a": "learned", "b/1": "learned", "b/2": "learned", "c": "unknown"});
    assert_eq!((said.status, &said.json()["ids"]), (200, &expected), "{said:?}");
    let said = label(json!({"labels": {"b/1": 1, "a": 0}}));
    assert_eq!(said.json()["ids"], json!({"a": "known", "b/1": "known"}));
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(place.join("examples")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        lines.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
    }
    let expected = [
        json!({"city": "town 1", "age": 30.5, "plan": "p1", "label": 1}),
        json!({"city": "town 2", "age": "31.5", "label": 0}),
        json!({"city": "town, 3", "plan": "p2", "label": 1}),
    ];
    assert_eq!(lines, expected);
    let page = get(&server, "/metrics").text();
    for number in
        ["examples_total 3", "joined_total 3", "repeats_total 2", "unknown_total 1", "kept_predictions 0"]
    {
        assert!(page.contains(&format!("gannet_learn_{number}\n")), "{number}: {page}");
    }
}

/// Rows of CSV are kept as JSON: both have the same predictions, also where fields are missing or quoted.
#[test]
fn rows_of_csv_and_their_objects_are_alike() {
    let folder = tempfile::tempdir().unwrap();
    let data = write(folder.path(), "a.csv", crate::client::table(200, 8));
    let model = folder.path().join("model").display().to_string();
    ok(&format!("train {data} --out {model}"));
    let place = folder.path().join("learned");
    let server = served(&format!("--model {model} --learn {}", place.display()));
    let rows =
        ["1,town 2,31.5,p1", "0,,,", "1,NA,NA,NA", "0,\"town \"\"3\"\"\",1e1,p2", "1, town 1 ,+20.5,p9"];
    let text = format!("label,city,age,plan\n{}\n", rows.join("\n"));
    let ids: Vec<usize> = (0..rows.len()).collect();
    let lines: Vec<&str> = std::iter::once("label,city,age,plan").chain(rows).collect();
    let taken = post(&server, "/v1/learn", json!({"ids": ids, "lines": lines}).to_string().as_bytes());
    assert_eq!(taken.status, 200, "{taken:?}");
    let file = std::fs::read_dir(place.join("examples")).unwrap().next().unwrap().unwrap().path();
    let objects = std::fs::read(file).unwrap();
    let still = served(&format!("--model {model}"));
    let of_rows = post(&still, "/v1/predict", text.as_bytes()).text();
    assert_eq!(post(&still, "/v1/predict", &objects).text(), of_rows);
    assert_eq!(of_rows.lines().count(), rows.len());
}
