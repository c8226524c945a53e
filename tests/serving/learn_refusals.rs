//! `gannet serve --learn`: what is refused, and that nothing of it is taken.

use crate::client::{Connection, ask, get, post, served, trained};
use crate::harness::{NOBODY, Owned, first_line, refused, write};
use crate::learn::base_model;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

fn taken(server: &crate::client::Served) -> String {
    let page = get(server, "/metrics").text();
    page.lines().find(|line| line.starts_with("gannet_learn_examples_total ")).unwrap().to_owned()
}

#[test]
fn bad_requests_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (csv, _) = trained(folder.path(), "a.csv", "label,city,age\n1,Rome,20.5\n0,Oslo,30.5\n", "");
    let place = |name: &str| folder.path().join(name).display().to_string();
    let server = served(&format!("--model {csv} --learn {} --job {NOBODY} --join-window 60", place("a")));
    let long = "x".repeat(300);
    let cases = [
        (json!([1]), "the body is {\"ids\""),
        (json!({"ids": ["a"]}), "the body is {\"ids\""),
        (json!({"ids": ["a"], "examples": [{"city": "Rome"}], "labels": {}}), "the body is {\"ids\""),
        (json!({"ids": ["a"], "example": [{}]}), "\"example\" is not known"),
        (json!({"ids": ["a", "b"], "examples": [{"label": 1}]}), "there are 2 ids and 1 examples"),
        (json!({"ids": ["a", "a"], "examples": [{"label": 1}, {"label": 1}]}), "id \"a\" is there twice"),
        (json!({"ids": [""], "examples": [{"label": 1}]}), "an id has 0 bytes"),
        (json!({"ids": [long], "examples": [{"label": 1}]}), "an id has 300 bytes"),
        (json!({"ids": [1.5], "examples": [{"label": 1}]}), "1.5 is no id"),
        (json!({"ids": [], "examples": []}), "there are no examples"),
        (json!({"ids": [1, 2], "examples": [{"label": 1}, 3]}), "number 2 is no object"),
        (
            json!({"ids": [1, 2], "examples": [{"label": 1}, {"city": "Rome"}]}),
            "the examples:2: expected a label",
        ),
        (json!({"ids": [1, 2], "examples": [{"label": 1}, {"label": 7}]}), "the examples:2:"),
        (json!({"ids": [1, 2], "examples": [{"label": 1}, {"label": 1, "age": "old"}]}), "the examples:2:"),
        (json!({"ids": [1], "lines": ["city,label", "Rome,1,2"]}), "row 1 has 3 fields, and the header 2"),
        (json!({"labels": {}}), "there are no examples"),
    ];
    for (body, why) in cases {
        let answer = post(&server, "/v1/learn", body.to_string().as_bytes());
        assert!(answer.status == 400 && answer.error().contains(why), "{body}: {answer:?}");
    }
    let kept = ask(&server, "POST /v1/predict HTTP/1.1\r\nX-Request-Id: p", b"{\"city\": \"Rome\"}");
    assert_eq!(kept.status, 200);
    for (label, why) in
        [(json!(7), "the labelled predictions:1:"), (json!({"x": 1}), "has no member \"label\"")]
    {
        let answer = post(&server, "/v1/learn", json!({"labels": {"p": label}}).to_string().as_bytes());
        assert!(answer.status == 400 && answer.error().contains(why), "{answer:?}");
    }
    assert_eq!(post(&server, "/v1/learn", b"{\"ids\":").status, 400);
    assert_eq!(get(&server, "/v1/learn").status, 405);
    assert_eq!(taken(&server), "gannet_learn_examples_total 0");
    let still = served(&format!("--model {csv}"));
    let none = post(&still, "/v1/learn", b"{}");
    assert!(none.status == 404 && none.error().contains("start it with --learn DIR"), "{none:?}");
}

/// What is beyond a limit is refused at once, and predictions are not held up by it.
#[test]
fn limits_refuse_and_waits_end() {
    let folder = tempfile::tempdir().unwrap();
    let model = base_model(folder.path());
    let place = folder.path().join("a").display().to_string();
    let flags = "--learn-bytes 20B --requests 4 --request-time 3 --join-window 0.3";
    let server = served(&format!("--model {model} --learn {place} --job {NOBODY} {flags}"));
    let body = |id: &str, lines: usize| {
        let ids: Vec<String> = (0..lines).map(|at| format!("{id}{at}")).collect();
        json!({"ids": ids, "lines": vec!["1 3:1"; lines]}).to_string()
    };
    let first = post(&server, "/v1/learn", body("a", 3).as_bytes());
    assert_eq!((first.status, &first.json()["ids"]["a2"]), (202, &json!("waiting")), "{first:?}");
    assert!(first.json()["why"].as_str().unwrap().contains(NOBODY), "{first:?}");
    let full = post(&server, "/v1/learn", body("b", 1).as_bytes());
    assert!(full.status == 503 && full.header("retry-after").is_some(), "{full:?}");
    assert!(full.error().contains("--learn-bytes"), "{full:?}");
    // Half of the requests may wait; the others still get their predictions.
    let mut waiting = [Connection::open(&server), Connection::open(&server)];
    waiting.iter_mut().for_each(|one| one.send("POST /v1/learn HTTP/1.1", body("a", 3).as_bytes()));
    std::thread::sleep(Duration::from_millis(300));
    let third = post(&server, "/v1/learn", body("a", 3).as_bytes());
    assert!(third.status == 503 && third.error().contains("half of --requests"), "{third:?}");
    assert_eq!(post(&server, "/v1/predict", b"1 3:1\n").status, 200);
    waiting.iter_mut().for_each(|one| assert_eq!(one.answer().status, 202));
    // A prediction whose label comes too late is not known any more.
    let kept = ask(&server, "POST /v1/predict HTTP/1.1\r\nX-Request-Id: p", b"3:1\n");
    assert_eq!(kept.header("gannet-kept"), Some("1"));
    std::thread::sleep(Duration::from_millis(400));
    let late = post(&server, "/v1/learn", b"{\"labels\": {\"p\": 1}}");
    assert_eq!(late.json()["ids"], json!({"p": "unknown"}));
    assert!(get(&server, "/metrics").text().contains("gannet_learn_expired_total 1\n"));
}

#[test]
fn a_token_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let model = base_model(folder.path());
    let token = write(folder.path(), "token", "a token of sixteen bytes\n");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let place = folder.path().join("a").display().to_string();
    let server = served(&format!(
        "--model {model} --learn {place} --job {NOBODY} --token-file {token} --request-time 1"
    ));
    let body = b"{\"ids\": [1], \"lines\": [\"1 3:1\"]}";
    assert_eq!(post(&server, "/v1/learn", body).status, 401);
    let head = "POST /v1/learn HTTP/1.1\r\nAuthorization: Bearer a token of sixteen bytes";
    assert_eq!(ask(&server, head, body).status, 202);
    drop(server);
    // The processes of an own job have the token, too.
    let server =
        served(&format!("--model {model} --learn {place} --token-file {token} -- --no-intercept --l1 0"));
    let known = ask(&server, head, body);
    assert_eq!((known.status, known.json()["ids"].clone()), (200, json!({"1": "known"})));
}

/// Formats and folders that cannot be learned, and a folder that another process has.
#[test]
fn folders_and_formats_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let model = base_model(folder.path());
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (csv, _) = trained(folder.path(), "a.csv", "label,city,age\n1,Rome,20.5\n0,Oslo,30.5\n", "");
    let line = |model: &str, learn: &str| {
        format!("serve --listen 127.0.0.1:0 --model {model} --learn {} --job {NOBODY}", place(learn))
    };
    let json = "{\"_label\": 1, \"a\": {\"x\": 1}}\n{\"_label\": -1, \"a\": {\"y\": 1}}\n";
    let (other, _) = trained(folder.path(), "b.json", json, "--format vw-json");
    refused(&line(&other, "x"), &["--learn", "trained on vw-json"]);
    refused(
        &format!("serve --listen 127.0.0.1:0 --checkpoint {model} --learn {}", place("x")),
        &["--learn", "--job"],
    );
    let own = served(&format!("--model {model} --learn {} --job {NOBODY}", place("own")));
    refused(&line(&model, "own"), &["another process learns in this folder"]);
    drop(own);
    refused(&line(&csv, "own"), &["has lines of libsvm, and the model reads json"]);
    let file = write(folder.path(), "file", "x");
    refused(&line(&model, "file"), &[&file]);
}

/// A disk that is full: nothing of the request is taken, and what fits later is.
#[test]
fn a_full_disk_takes_nothing_by_half() {
    let folder = tempfile::tempdir().unwrap();
    let model = base_model(folder.path());
    let place = folder.path().join("a").display().to_string();
    let flags =
        format!("serve --listen 127.0.0.1:0 --model {model} --learn {place} --job {NOBODY} --request-time 1");
    // In blocks of 512 bytes: a file has at most 32 KiB.
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -f 64; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_gannet")])
        .args(flags.split(' '));
    let mut process = Owned(limited.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let (said, out) = first_line(process.0.stdout.take().unwrap());
    let addr = said.trim().rsplit("://").next().unwrap().to_owned();
    let server = crate::client::Served { process, addr, out };
    let body = |id: usize, bytes: usize| {
        let line =
            format!("1 {}", (0..bytes / 8).map(|at| format!("{}:1 ", 10_000 + at)).collect::<String>());
        json!({"ids": [id], "lines": [line.trim()]}).to_string()
    };
    assert_eq!(post(&server, "/v1/learn", body(1, 1000).as_bytes()).status, 202);
    let full = post(&server, "/v1/learn", body(2, 40_000).as_bytes());
    assert!(full.status == 500 && full.error().contains("none of the request is taken"), "{full:?}");
    assert!(full.error().contains(&place) && full.error().contains("make room"), "{full:?}");
    assert_eq!(post(&server, "/v1/learn", body(3, 1000).as_bytes()).status, 202);
    assert_eq!(taken(&server), "gannet_learn_examples_total 2");
    drop(server);
    let server = served(&format!("--model {model} --learn {place} --job {NOBODY} --request-time 1"));
    for (id, is_new) in [(1, false), (3, false), (2, true)] {
        let before = taken(&server);
        assert_eq!(post(&server, "/v1/learn", body(id, 1000).as_bytes()).status, 202);
        assert_eq!(taken(&server) != before, is_new, "{id}");
    }
}
