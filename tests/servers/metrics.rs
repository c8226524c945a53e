//! `--metrics`, tested from outside. A parser of the format reads the pages of a running job, and they are compared
//! with what the job did. Endpoints must also survive scrapers that are slow, many, or absent.

use crate::harness;

use gannet::optim::Sgd;
use gannet::transport::Tcp;
use gannet::{Read as Rows, Rule, Schema, Worker, WorkerConfig, Write as Push};
use harness::*;
use prometheus_parse::{Scrape, Value};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A process that has printed the address of its metrics. Its output is read to the end.
struct Running {
    child: Owned,
    metrics: String,
    err: Option<std::thread::JoinHandle<String>>,
}

impl Running {
    fn start(mut command: Command) -> Running {
        let mut child = Owned(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let (line, mut err) = first_line(child.0.stderr.take().unwrap());
        let addr = line.trim().strip_prefix("gannet: metrics on http://");
        let addr = addr.and_then(|rest| rest.strip_suffix("/metrics")).unwrap_or_else(|| panic!("{line:?}"));
        let rest = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = err.read_to_string(&mut text);
            text
        });
        Running { child, metrics: addr.to_owned(), err: Some(rest) }
    }

    /// The address in the first line of a server's standard output.
    fn listens(&mut self) -> String {
        let (line, _) = first_line(self.child.0.stdout.take().unwrap());
        line.split_whitespace().nth(4).unwrap_or_else(|| panic!("{line:?}")).to_owned()
    }

    fn page(&self) -> Numbers {
        let (head, body) = get(&self.metrics, "/metrics").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
        Numbers::parse(&body)
    }

    /// The page, once `ready` is true for it.
    fn page_when(&self, ready: impl Fn(&Numbers) -> bool) -> Numbers {
        let start = Instant::now();
        loop {
            let page = self.page();
            if ready(&page) {
                return page;
            }
            assert!(start.elapsed() < LIMIT, "it never comes: {:#?}", page.values);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn stop(mut self) -> String {
        self.child.signal(Signal::TERM);
        self.child.ended();
        self.err.take().unwrap().join().unwrap()
    }
}

/// The head and the body of an answer.
fn ask(addr: &str, request: &str) -> std::io::Result<(String, String)> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    Ok((head.to_owned(), body.to_owned()))
}

fn get(addr: &str, path: &str) -> std::io::Result<(String, String)> {
    ask(addr, &format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\nAccept: text/plain\r\n\r\n"))
}

/// A page: every number by name and labels.
struct Numbers {
    families: BTreeMap<String, String>,
    values: BTreeMap<String, f64>,
}

impl Numbers {
    /// Parses a page. The parser skips what it cannot read, so its numbers are counted. This function checks the rules
    /// that the parser does not check.
    fn parse(text: &str) -> Numbers {
        let scrape = Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).unwrap();
        let samples = text.lines().filter(|line| !line.starts_with('#')).count();
        let read = scrape.samples.iter().map(|sample| match &sample.value {
            Value::Histogram(buckets) => buckets.len(),
            _ => 1,
        });
        assert_eq!(read.sum::<usize>(), samples, "the parser did not understand all of {text}");
        let families = families(text);
        let mut values = BTreeMap::new();
        for sample in &scrape.samples {
            let mut labels: Vec<_> = sample.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
            labels.sort();
            let full = |suffix: &str| format!("{}{suffix}{{{}}}", sample.metric, labels.join(","));
            let value = match &sample.value {
                Value::Counter(v) | Value::Gauge(v) | Value::Untyped(v) => *v,
                Value::Histogram(buckets) => {
                    let growing = |w: &[prometheus_parse::HistogramCount]| {
                        w[0].less_than < w[1].less_than && w[0].count <= w[1].count
                    };
                    assert!(buckets.windows(2).all(growing), "{}: {buckets:?}", full(""));
                    let last = buckets.last().unwrap();
                    assert_eq!(last.less_than, f64::INFINITY);
                    for bucket in buckets {
                        values.insert(full(&format!("_bucket_{}", bucket.less_than)), bucket.count);
                    }
                    values.insert(full("_inf"), last.count);
                    continue;
                }
                other => panic!("{}: {other:?}", full("")),
            };
            assert!(values.insert(full(""), value).is_none(), "{} stands there twice", full(""));
        }
        let page = Numbers { families, values };
        for (name, _) in page.families.iter().filter(|(_, kind)| *kind == "histogram") {
            for (full, count) in page.starting(&format!("{name}_inf{{")) {
                let counted = page.values[&full.replace("_inf{", "_count{")];
                assert_eq!(*count, counted, "{full}");
                let sum = page.values[&full.replace("_inf{", "_sum{")];
                assert!(sum >= 0.0, "{full}: sum {sum}");
            }
        }
        page
    }

    fn starting<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a f64)> {
        self.values.iter().filter(move |(name, _)| name.starts_with(prefix))
    }

    fn get(&self, name: &str) -> f64 {
        let full = if name.ends_with('}') { name.to_owned() } else { format!("{name}{{}}") };
        *self.values.get(&full).unwrap_or_else(|| panic!("{full} is not in {:#?}", self.values.keys()))
    }

    fn has(&self, name: &str) -> bool {
        self.starting(&format!("{name}{{")).next().is_some()
    }

    /// The sum of one family over all labels.
    fn sum(&self, name: &str) -> f64 {
        self.starting(&format!("{name}{{")).map(|(_, value)| value).sum()
    }

    /// Checks that no counter and no bucket went back.
    fn grew_from(&self, before: &Numbers) {
        for (full, was) in &before.values {
            let name = full.split('{').next().unwrap();
            let of = |suffix: &str| name.strip_suffix(suffix).and_then(|name| self.families.get(name));
            let bucket = name.split("_bucket_").next().and_then(|name| self.families.get(name));
            let kind = [self.families.get(name), of("_sum"), of("_count"), of("_inf"), bucket];
            if kind.into_iter().flatten().any(|kind| kind != "gauge") {
                assert!(self.values[full] >= *was, "{full} was {was}, is {}", self.values[full]);
            }
        }
    }
}

/// Names and kinds. Checks that each family comes once, that it is announced before its samples, and that its name
/// follows the convention.
fn families(text: &str) -> BTreeMap<String, String> {
    let mut families = BTreeMap::new();
    let (mut helped, mut current) = (String::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(help.len() > 1, "{line}");
            helped = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, helped, "{line}");
            let counts = name.ends_with("_total");
            assert_eq!(counts, kind == "counter", "{line}");
            assert!(kind != "histogram" || name.ends_with("_seconds"), "{line}");
            assert!(name.starts_with("gannet_") || name.starts_with("process_"), "{line}");
            assert!(families.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} comes twice");
            current = name.to_owned();
        } else {
            let name = line.split(['{', ' ']).next().unwrap();
            let parts = ["", "_bucket", "_sum", "_count"].map(|part| format!("{current}{part}"));
            assert!(parts.iter().any(|part| part == name), "{line} under {current}");
        }
    }
    families
}

fn server(flags: &str) -> (Running, String) {
    let mut server =
        Running::start(gannet(&format!("server --listen 127.0.0.1:0 --metrics 127.0.0.1:0 {flags}")));
    let addr = server.listens();
    (server, addr)
}

/// The names of all metrics in the source.
fn defined() -> BTreeSet<String> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let folder = |path: &str| std::fs::read_dir(root.join(path)).unwrap().map(|entry| entry.unwrap().path());
    let files = folder("node/server/src/counters").chain(folder("cli/src/metrics"));
    let files = files.chain([root.join("node/worker/src/counters.rs")]);
    let is_name = |text: &&str| {
        (text.starts_with("gannet_") || text.starts_with("process_"))
            && text.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    };
    let names = |file: PathBuf| -> Vec<String> {
        let text = std::fs::read_to_string(file).unwrap();
        text.split('"').filter(is_name).map(String::from).collect()
    };
    files.flat_map(names).collect()
}

/// A server, a worker that trains repeatedly, and trainings in one process, of logistic regression and of
/// another model. Their pages are read during the training and after it.
#[test]
fn a_running_job_tells_every_metric_that_the_source_defines() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 4_000, 1);
    let (server, addr) = server("--threads 2");
    let idle = server.page();
    assert!(!idle.has("gannet_table_rows") && idle.sum("gannet_server_sessions") == 0.0);
    let flags = "--metrics 127.0.0.1:0 --epochs 10000 --l1 0.1 --json";
    let job = format!("--ps-hosts {addr} --worker-hosts 127.0.0.1:9 --job-name worker --tasks off");
    let worker = Running::start(gannet(&format!("train {} {flags} {job}", data.display())));
    let alone = Running::start(gannet(&format!("train {} {flags}", data.display())));
    let model = Running::start(gannet(&format!(
        "train {} --model linear --metrics 127.0.0.1:0 --epochs 10000 --json",
        data.display()
    )));

    let learning = |page: &Numbers| page.has("gannet_train_auc") && page.get("gannet_train_epoch") > 1.0;
    let at_worker = worker.page_when(learning);
    let at_alone = alone.page_when(learning);
    // The first passes over this data have errors of 1.0 and more.
    let learned = |page: &Numbers| page.has("gannet_train_loss") && page.get("gannet_train_epoch") > 5.0;
    let at_model = model.page_when(learned);
    // A batch is 256 examples here; the last one of a pass has fewer. The page may be written between the two counts of
    // a batch.
    let (examples, steps) =
        (at_model.get("gannet_train_examples_total"), at_model.get("gannet_train_steps_total"));
    let possible = 250.0 * (steps - 1.0)..=256.0 * (steps + 1.0);
    assert!(possible.contains(&examples), "{examples} examples in {steps} steps");
    let loss = at_model.get("gannet_train_loss");
    assert!(loss < 1.0, "{loss} after {examples} examples in {steps} steps");
    let trained = |page: &Numbers| page.has("gannet_table_rows") && page.sum("gannet_table_rows") > 0.0;
    let at_server = server.page_when(trained);
    at_server.grew_from(&idle);
    let later = worker.page();
    later.grew_from(&at_worker);
    assert!(later.get("gannet_train_examples_total") >= 4_000.0);
    assert_eq!(later.get("gannet_train_input_bytes"), std::fs::metadata(&data).unwrap().len() as f64);
    assert_eq!(later.get("gannet_worker_links"), 2.0);
    assert!(later.get("gannet_worker_pushed_rows_total{outcome=applied}") > 0.0);
    assert!(later.get("gannet_worker_round_trip_seconds_count{kind=pull}") > 0.0);
    assert!((0.0..0.9).contains(&later.get("gannet_train_log_loss")));
    // Both are on this host and use shared memory: one session for each thread, and one for the worker's place in the
    // run.
    assert_eq!(at_server.get("gannet_server_sessions{transport=shm}"), 3.0);
    assert_eq!(at_server.sum("gannet_server_sessions"), 3.0);
    assert!(at_server.get("gannet_server_received_bytes_total{transport=shm}") > 4_000.0);
    assert_eq!(at_server.get("gannet_server_received_bytes_total{transport=tcp}"), 0.0);
    assert!(at_server.get("process_resident_memory_bytes") > 1e6);
    assert!(at_server.get("process_open_fds") > 3.0);
    for (page, role) in [(&at_server, "server"), (&at_worker, "worker"), (&at_alone, "train")] {
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(page.get(&format!("gannet_build_info{{role={role},version={version}}}")), 1.0);
    }

    let reported: BTreeSet<String> = [&at_server, &at_worker, &at_alone, &at_model]
        .iter()
        .flat_map(|page| page.families.keys().cloned())
        .collect();
    assert_eq!(reported, defined(), "the page of metrics, made from such a job, would not have all of them");
    worker.stop();
    alone.stop();
    model.stop();
    let after = server.page_when(|page| page.sum("gannet_server_sessions") == 0.0);
    after.grew_from(&at_server);
    assert_eq!(after.get("gannet_server_requests_total{kind=close_pusher}"), 2.0);
    assert_eq!(get(&server.metrics, "/healthz").unwrap().1, "ok\n");
    let err = server.stop();
    assert_eq!(err, "");
}

/// Forwards connections to a server, and can hold its answers back.
struct Proxy {
    addr: String,
    hold: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    fn start(to: String) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let (hold, streams) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<TcpStream>>>::default());
        let (held, made) = (hold.clone(), streams.clone());
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&to) else { return };
                made.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                let (near_out, far_in) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                std::thread::spawn(move || forward(near, far, None));
                let held = held.clone();
                std::thread::spawn(move || forward(far_in, near_out, Some(held)));
            }
        });
        Proxy { addr, hold, streams }
    }

    /// Breaks every connection; answers that were held back are lost.
    fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.hold.store(false, Relaxed);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, hold: Option<Arc<AtomicBool>>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        if hold.as_ref().is_some_and(|hold| hold.load(Relaxed)) {
            continue; // lost
        }
        if to.write_all(&bytes[..n]).is_err() {
            return;
        }
    }
}

/// Pushes whose acks are lost are resent. The server drops them, and both sides report how many rows that was.
#[test]
fn rows_parts_and_doubled_pushes_are_those_of_the_job() {
    let (server, addr) = server("--threads 1");
    let proxy = Proxy::start(addr);
    let mut worker = Worker::connect(Tcp::new(), WorkerConfig::new([&proxy.addr], 1, 1)).unwrap();
    let table = worker.open_table(&Schema::scalar("sums", Rule::Sgd(Sgd { lr: 1.0 }))).unwrap();
    let keys: Vec<u64> = (0..20_000).collect();
    worker.push(table, &keys, Push::Gradient, &vec![1.0; keys.len()]).unwrap();
    let before = server.page();
    let parts = before.get("gannet_table_pushed_parts_total{table=sums}");
    assert!(parts > 1.0);
    assert_eq!(before.get("gannet_table_pushed_rows_total{outcome=applied,table=sums}"), 20_000.0);
    assert_eq!(before.sum("gannet_table_duplicate_parts_total"), 0.0);

    proxy.hold.store(true, Relaxed);
    let cut = Arc::new(worker.cut(table, &keys));
    let push = worker
        .begin_push(table, cut, Push::Gradient, vec![1.0; keys.len()], None, worker.next_seq(table))
        .unwrap();
    let both = |page: &Numbers| page.get("gannet_table_pushed_parts_total{table=sums}") == 2.0 * parts;
    let start = Instant::now();
    while !both(&server.page()) {
        worker.poll().unwrap();
        assert!(start.elapsed() < LIMIT);
    }
    proxy.cut();
    worker.finish_push(push).unwrap();

    let mut out = vec![0.0; 1];
    worker.pull(table, &[7], Rows::Weights, &mut out).unwrap();
    assert_eq!(out, [-2.0], "applied twice in all: once a push");
    let nan = worker.push(table, &[1, 2, 3], Push::Gradient, &[f32::NAN, 1.0, f32::INFINITY]);
    nan.unwrap();
    let page = server.page_when(|page| page.sum("gannet_table_rows") == 20_000.0);
    page.grew_from(&before);
    let rows = |outcome| page.get(&format!("gannet_table_pushed_rows_total{{outcome={outcome},table=sums}}"));
    assert_eq!((rows("applied"), rows("duplicate"), rows("not_finite")), (40_001.0, 20_000.0, 2.0));
    assert_eq!(page.get("gannet_table_duplicate_parts_total{table=sums}"), parts);
    assert_eq!(page.get("gannet_table_pushed_parts_total{table=sums}"), 3.0 * parts + 1.0);
    assert_eq!(page.get("gannet_server_requests_total{kind=push}"), 3.0 * parts + 1.0);
    assert_eq!(page.get("gannet_server_request_seconds_count{kind=push}"), 3.0 * parts + 1.0);
    assert!(page.get("gannet_server_request_seconds_sum{kind=push}") > 0.0);
    let steps = page.sum("gannet_table_growth_steps_total");
    assert!(steps > 0.0 && page.get("gannet_table_growth_seconds_count{table=sums}") > 0.0);
    assert!(page.get("gannet_store_used_bytes") >= page.get("gannet_table_bytes{table=sums}"));
    assert_eq!(page.get("gannet_store_limit_bytes"), f64::INFINITY);
    assert_eq!(page.get("gannet_table_pulled_rows_total{table=sums}"), 1.0);
    assert!(page.sum("gannet_server_received_bytes_total") > 3.0 * 20_000.0 * 12.0);
    assert_eq!(page.get("gannet_server_sessions_begun_total"), 2.0);
    assert_eq!(worker.counters().duplicate, 20_000);
    let refused = worker.open_table(&Schema::scalar("sums", Rule::Sgd(Sgd { lr: 2.0 })));
    assert!(refused.is_err());
    assert_eq!(server.page().get("gannet_server_refused_total{reason=mismatch}"), 1.0);
}

#[test]
fn slow_and_strange_scrapers_hold_nothing() {
    let (server, addr) = server("--threads 1");
    // There are more connections than places. Some say nothing, some send half a head, and some read no answer.
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(&server.metrics).unwrap()).collect();
    for (i, mut stream) in silent.iter().enumerate() {
        let _ = match i % 3 {
            0 => Ok(()),
            1 => stream.write_all(b"GET /metrics HTT"),
            _ => stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"),
        };
    }
    // The server continues to serve. The next scraper gets its answer when the silent ones have timed out.
    let mut worker = Worker::connect(Tcp::new(), WorkerConfig::new([&addr], 1, 1)).unwrap();
    let table = worker.open_table(&Schema::scalar("t", Rule::Sgd(Sgd { lr: 1.0 }))).unwrap();
    worker.push(table, &[1], Push::Gradient, &[1.0]).unwrap();
    assert_eq!(server.page().get("gannet_table_pushed_rows_total{outcome=applied,table=t}"), 1.0);
    for mut stream in silent {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut rest = Vec::new();
        // Closed or reset, within the limit.
        if let Err(error) = stream.read_to_end(&mut rest) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
        }
    }
    for (request, expected) in [
        ("GET /metric HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "405"),
        ("HEAD /healthz HTTP/1.1\r\nHost: a\r\n\r\n", "200"),
        ("once upon a time\r\n\r\n", "400"),
        (&format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", "a".repeat(20_000)), "431"),
    ] {
        // The answer to a request that is too long may be lost with the connection.
        match ask(&server.metrics, request) {
            Ok((head, _)) => assert!(head.starts_with(&format!("HTTP/1.1 {expected}")), "{request}: {head}"),
            Err(error) => assert!(expected == "431", "{request}: {error}"),
        }
    }
    assert_eq!(get(&server.metrics, "/healthz").unwrap().1, "ok\n");
    assert_eq!(server.stop(), "");
}

#[test]
fn addresses_that_cannot_be_are_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 100, 1);
    let (server, addr) = server("--threads 1");
    let train = format!("train {}", data.display());
    let job = format!("{train} --ps-hosts {addr} --worker-hosts 127.0.0.1:9 --job-name worker");
    for (line, code, expected) in [
        ("server --listen 127.0.0.1:0 --metrics 0.0.0.0:0".to_owned(), 2, "--metrics-public"),
        (format!("{train} --metrics [::]:0"), 2, "--metrics-public"),
        (format!("{train} --metrics 127.0.0.1"), 2, "HOST:PORT"),
        (format!("{train} --metrics 127.0.0.1:99999"), 2, "65535"),
        (format!("{train} --metrics-public"), 2, "--metrics"),
        (format!("{train} --metrics {}", server.metrics), 1, server.metrics.as_str()),
        (format!("{job} --metrics {}", server.metrics), 1, server.metrics.as_str()),
        (format!("server --listen 127.0.0.1:0 --metrics {}", server.metrics), 1, server.metrics.as_str()),
    ] {
        let done = run(&line);
        assert_eq!(done.code, Some(code), "{line}: {done:?}");
        assert!(done.err.contains(expected), "{line}: {expected} in {done:?}");
    }
    let open = "server --listen 127.0.0.1:0 --metrics 0.0.0.0:0 --metrics-public --threads 1";
    let open = Running::start(gannet(open));
    let port = open.metrics.rsplit_once(':').unwrap().1;
    assert_eq!(get(&format!("127.0.0.1:{port}"), "/healthz").unwrap().1, "ok\n");
}

/// A worker that cannot reach its servers still answers scrapes.
#[test]
fn a_worker_that_waits_tells_so() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 100, 1);
    let line = format!(
        "train {} --ps-hosts {NOBODY} --worker-hosts 127.0.0.1:9 --job-name worker --metrics 127.0.0.1:0",
        data.display()
    );
    let worker = Running::start(gannet(&line));
    let links = "gannet_worker_links_wanted";
    let page = worker.page_when(|page| page.has(links) && page.get(links) == 1.0);
    assert_eq!(page.get("gannet_worker_links"), 0.0);
    assert!(!page.has("gannet_train_examples_total"));
}
