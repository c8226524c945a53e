//! A new model takes the place of the former one between two requests, and a broken one does not.

use crate::client::{Connection, Served, get, post, predicted, served, table, trained};
use crate::harness::{limit, ok};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Waits until the server says this of a model.
fn wait_for(served: &Served, line: &str) {
    let start = Instant::now();
    while !get(served, "/metrics").text().lines().any(|of| of == line) {
        assert!(start.elapsed() < limit(), "{line}: {}", get(served, "/metrics").text());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Trainings save into the folder again and again while clients ask. Each answer is that of one whole model, under its
/// version, and none is refused.
#[test]
fn answers_are_of_one_model_while_others_take_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let flags = |seed: usize| format!("--model deepfm --hidden 8 --factors 4 --seed {seed}");
    let (model, data) = trained(folder.path(), "a.csv", &table(300, 8), &flags(0));
    let served = served(&format!("--model {model}"));
    let stop = AtomicBool::new(false);
    let version = || get(&served, "/v2/models/default").json()["versions"][0].as_str().unwrap().to_owned();
    let mut saved = vec![(version(), predicted(&model, &data))];
    let answers: Vec<(String, String)> = std::thread::scope(|scope| {
        let ask = || {
            let mut connection = Connection::open(&served);
            let mut answers = Vec::new();
            while !stop.load(Relaxed) {
                let answer = connection.ask("POST /v1/predict HTTP/1.1", table(300, 8).as_bytes());
                assert_eq!(answer.status, 200, "{answer:?}");
                answers.push((answer.header("gannet-version").unwrap().to_owned(), answer.text()));
            }
            answers
        };
        let clients = [scope.spawn(ask), scope.spawn(ask)];
        for seed in 1..4 {
            ok(&format!("train {data} --out {model} {}", flags(seed)));
            wait_for(&served, &format!("gannet_serve_model_replacements_total{{model=\"default\"}} {seed}"));
            saved.push((version(), predicted(&model, &data)));
        }
        stop.store(true, Relaxed);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    for answer in &answers {
        assert!(saved.contains(answer), "{answer:?}");
    }
    let seen = |of: &&(String, String)| answers.contains(of);
    assert!(saved.iter().filter(seen).count() >= 3, "{} answers", answers.len());
}

/// A model that is damaged, of another kind of folder, or gone is counted and named, and the former one goes on.
#[test]
fn a_broken_model_leaves_the_former_one() {
    let folder = tempfile::tempdir().unwrap();
    let (model, data) = trained(folder.path(), "a.csv", &table(300, 9), "");
    let served = served(&format!("--model {model}"));
    let expected = predicted(&model, &data);
    let manifest = format!("{model}/MANIFEST");
    let whole = std::fs::read(&manifest).unwrap();
    std::fs::write(&manifest, &whole[..whole.len() / 2]).unwrap();
    wait_for(&served, "gannet_serve_model_refusals_total{model=\"default\"} 1");
    wait_for(&served, "gannet_serve_model_behind{model=\"default\"} 1");
    assert_eq!(post(&served, "/v1/predict", table(300, 9).as_bytes()).text(), expected);
    std::fs::remove_file(&manifest).unwrap();
    wait_for(&served, "gannet_serve_model_refusals_total{model=\"default\"} 2");
    assert_eq!(post(&served, "/v1/predict", table(300, 9).as_bytes()).text(), expected);
    // A whole one takes its place again.
    std::fs::remove_dir_all(&model).unwrap();
    ok(&format!("train {data} --out {model} --alpha 0.3"));
    wait_for(&served, "gannet_serve_model_behind{model=\"default\"} 0");
    assert_eq!(post(&served, "/v1/predict", table(300, 9).as_bytes()).text(), predicted(&model, &data));
}

/// `--max-age`: the process is not ready while its model is old. A new save makes it ready, also one of the same bytes.
#[test]
fn an_old_model_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let (model, data) = trained(folder.path(), "a.csv", &table(100, 13), "");
    let served = served(&format!("--model {model} --max-age 3"));
    let start = Instant::now();
    let await_status = |path: &str, status: u16| {
        while get(&served, path).status != status {
            assert!(start.elapsed() < limit(), "{path} {status}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    for path in ["/readyz", "/v2/health/ready"] {
        await_status(path, 503);
        assert!(get(&served, path).text().contains("--max-age is 3 s"));
        assert_eq!(get(&served, "/healthz").status, 200);
        assert_eq!(post(&served, "/v1/predict", b"{}").status, 200);
        ok(&format!("train {data} --out {model}"));
        await_status(path, 200);
    }
}

/// Two models by their names, and a share of the requests to the first one that the second one answers.
#[test]
fn a_share_of_requests_goes_to_another_model() {
    let folder = tempfile::tempdir().unwrap();
    let (old, _) = trained(folder.path(), "a.csv", &table(300, 10), "");
    let (new, _) = trained(folder.path(), "b.csv", &table(300, 11), "");
    let served = served(&format!("--model old={old} --model new={new} --split new=25"));
    let mut connection = Connection::open(&served);
    let mut ask = |head: &str| {
        let answer = connection.ask(&format!("POST /v1/predict{head}"), b"{\"city\": \"town 1\"}");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.header("gannet-model").unwrap().to_owned()
    };
    let by_turn = (0..2000).filter(|_| ask(" HTTP/1.1") == "new").count();
    assert!((420..580).contains(&by_turn), "{by_turn} of 2000");
    let of_id = |id: usize| format!(" HTTP/1.1\r\nX-Request-Id: user-{id}");
    let by_id = (0..1000).filter(|id| ask(&of_id(*id)) == "new").count();
    assert!((190..310).contains(&by_id), "{by_id} of 1000");
    for id in 0..50 {
        assert_eq!(ask(&of_id(id)), ask(&of_id(id)), "{id}");
    }
    assert!((0..50).all(|_| ask("?model=new HTTP/1.1") == "new"));
}

#[test]
fn wrong_flags_are_refused_before_anything_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let (model, data) = trained(folder.path(), "a.csv", &table(100, 12), "");
    let none = folder.path().join("none").display().to_string();
    let cases = [
        (format!("--model {none}"), "no gannet checkpoint here"),
        (format!("--model {data}"), "a.csv"),
        (format!("--model {model} --model {model}"), "two models have the name \"default\""),
        (format!("--model a/b={model}"), "a/b="),
        (format!("--model {model} --split new=5"), "no model has this name"),
        (format!("--model {model} --split default=5"), "the first model"),
        (format!("--model a={model} --model b={model} --split b=101"), "NAME=PERCENT"),
        (
            format!("--model a={model} --model b={model} --model c={model} --split b=60 --split c=60"),
            "100 together",
        ),
        (format!("--model {model} --name x/y"), "signs but `/`"),
        (format!("--model {model} --name x%y"), "signs but `/`"),
        (format!("--model {model} --max-age=-1"), "seconds above 0"),
        (format!("--model {model} --request-bytes 5EiB"), "at most 1GiB"),
        (format!("--model {model} --listen 0.0.0.0:0"), "--token-file FILE and --tls-cert FILE"),
        (format!("--model {model} --listen nowhere"), "--listen nowhere"),
        (String::new(), "--model"),
    ];
    for (flags, part) in cases {
        let listen = if flags.contains("--listen") { "" } else { "--listen 127.0.0.1:0" };
        let done = crate::harness::run(&format!("serve {listen} {flags}"));
        assert!(matches!(done.code, Some(1 | 2)) && done.err.contains(part), "{flags}: {done:?}");
        assert!(done.out.is_empty(), "{flags}: {done:?}");
    }
}
