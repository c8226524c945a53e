//! `POST /v1/predict` answers what `gannet predict` prints.

use crate::client::{get, objects, post, predicted, served, table, trained};
use crate::harness::ok;

/// Every kind of model, on data with and without columns: the same bytes.
#[test]
fn every_model_answers_what_predict_prints() {
    let folder = tempfile::tempdir().unwrap();
    let csv = table(600, 1);
    let svm: String = (0..600).map(|i| format!("{} {}:1 {}:0.5\n", i % 3 / 2, i % 11, 20 + i % 5)).collect();
    let vw: String =
        (0..600).map(|i| format!("{} |a x{} |b y{}:2\n", 2 * (i % 2) - 1, i % 9, i % 4)).collect();
    let classes: String = (0..600).map(|i| format!("{} {}:1 {}:1\n", i % 3, i % 11, 20 + i % 5)).collect();
    let cases = [
        ("lr.csv", &csv, ""),
        ("deepfm.csv", &csv, "--model deepfm --epochs 2"),
        ("ffm.csv", &csv, "--model ffm"),
        ("hinge.csv", &csv, "--model linear --loss hinge"),
        ("lr.svm", &svm, ""),
        ("fm.svm", &svm, "--model fm"),
        ("linear.svm", &svm, "--model linear --loss poisson"),
        ("softmax.svm", &classes, "--model softmax --classes 3"),
        ("lr.vw", &vw, "--cross a*b"),
    ];
    for (file, lines, flags) in cases {
        let (model, data) = trained(folder.path(), file, lines, flags);
        let served = served(&format!("--model {model}"));
        let answer = post(&served, "/v1/predict", lines.as_bytes());
        assert_eq!((answer.status, answer.text()), (200, predicted(&model, &data)), "{file}");
    }
}

/// Objects, in a list or on lines of their own, and a packed body.
#[test]
fn objects_are_rows_of_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let (model, data) = trained(folder.path(), "a.csv", &table(500, 2), "--cross city*plan");
    let (served, expected) = (served(&format!("--model {model}")), predicted(&model, &data));
    let rows = objects(&table(500, 2));
    let list = serde_json::to_string_pretty(&rows).unwrap();
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    for body in [list, lines] {
        let answer = post(&served, "/v1/predict", body.as_bytes());
        assert_eq!((answer.status, answer.text()), (200, expected.clone()));
    }
    let one = serde_json::to_string_pretty(&rows[0]).unwrap();
    let answer = post(&served, "/v1/predict", one.as_bytes());
    assert_eq!(Some(&*answer.text()), expected.split_inclusive('\n').next());
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, table(500, 2).as_bytes()).unwrap();
    let head = "POST /v1/predict HTTP/1.1\r\nContent-Encoding: gzip";
    let answer = crate::client::ask(&served, head, &packer.finish().unwrap());
    assert_eq!(answer.text(), expected);
}

/// The explanations are the bytes that `gannet predict --explain` prints.
#[test]
fn explanations_are_those_of_predict() {
    let folder = tempfile::tempdir().unwrap();
    for (file, flags) in [("lr.csv", ""), ("deepfm.csv", "--model deepfm"), ("x.csv", "--cross city*plan")] {
        let (model, data) = trained(folder.path(), file, &table(300, 3), flags);
        let served = served(&format!("--model {model}"));
        let answer = post(&served, "/v1/predict?explain=true", table(300, 3).as_bytes());
        let expected = ok(&format!("predict --model {model} {data} --explain")).out;
        assert_eq!((answer.status, answer.text()), (200, expected), "{file}");
    }
}

/// A column that a request lacks is a missing value, under the name of the column.
#[test]
fn missing_columns_are_explained_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _) = trained(folder.path(), "a.csv", &table(300, 3), "");
    let served = served(&format!("--model {model}"));
    let answer = post(&served, "/v1/predict?explain=true", b"{\"age\": 30.5}").json();
    let names: Vec<&str> = answer["contributions"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["age", "city=", "intercept", "plan="], "{answer}");
}

/// Labels are not read, whatever they are. Neither are the bytes before a text that some programs write.
#[test]
fn labels_and_marks_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let (model, data) = trained(folder.path(), "a.csv", &table(200, 5), "--model fm");
    let (served, expected) = (served(&format!("--model {model}")), predicted(&model, &data));
    for label in ["", "maybe", "7"] {
        let line = |line: &str| match line.split_once(',') {
            Some((name @ "label", rest)) => format!("{name},{rest}\n"),
            Some((_, rest)) => format!("{label},{rest}\n"),
            None => String::new(),
        };
        let body: String = table(200, 5).lines().map(line).collect();
        assert_eq!(post(&served, "/v1/predict", body.as_bytes()).text(), expected, "{label:?}");
        let mut row = objects(&table(200, 5))[0].clone();
        row["label"] = label.into();
        let body = format!("\u{feff}{row}");
        let answer = post(&served, "/v1/predict", body.as_bytes());
        assert_eq!(Some(&*answer.text()), expected.split_inclusive('\n').next(), "{label:?}");
    }
    let body = table(200, 5).replace(',', ";");
    assert_eq!(post(&served, "/v1/predict?delimiter=%3B", body.as_bytes()).text(), expected);
}

/// Lines of vw's JSON, as JSON and as text.
#[test]
fn lines_of_vw_json_are_read_as_text_too() {
    let folder = tempfile::tempdir().unwrap();
    let line = |i: i32| {
        format!("{{\"_label\": {}, \"a\": {{\"x{}\": 1, \"y\": {}}}}}\n", 2 * (i % 2) - 1, i % 9, i % 4)
    };
    let lines: String = (0..300).map(line).collect();
    let (model, data) = trained(folder.path(), "a.json", &lines, "--format vw-json");
    let (served, expected) = (served(&format!("--model {model}")), predicted(&model, &data));
    for kind in ["text/plain", "application/json"] {
        let head = format!("POST /v1/predict HTTP/1.1\r\nContent-Type: {kind}");
        let answer = crate::client::ask(&served, &head, lines.as_bytes());
        assert_eq!((answer.status, answer.text()), (200, expected.clone()), "{kind}");
    }
}

/// A wrong request is answered with what is wrong, and nothing else happens.
#[test]
fn wrong_requests_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _) = trained(folder.path(), "a.csv", &table(200, 4), "");
    let (svm, _) = trained(folder.path(), "a.svm", &"1 1:1\n0 2:1\n".repeat(50), "");
    let served = served(&format!("--model {model} --model svm={svm}"));
    let cases = [
        ("/v1/predict", "{\"city\": ", 400, "JSON"),
        ("/v1/predict", "[1, 2", 400, ""),
        ("/v1/predict", "", 400, "no examples"),
        ("/v1/predict", "{\"age\": \"old\"}", 400, "old"),
        ("/v1/predict?model=none", "{}", 404, "no model \"none\"; there is default, svm"),
        ("/v1/predict?model=svm&version=x", "{}", 404, "no version \"x\""),
        ("/v1/predict?model=svm", "{\"a\": 1}", 400, "trained on libsvm, which has no columns"),
        ("/v1/predict?model=svm", "1 1:x\n", 400, "1:x"),
        ("/v1/predict?explian=true", "{}", 400, "explain=true"),
        ("/v1/predict", "[{\"age\": 1}] x", 400, "no JSON"),
        ("/v1/nothing", "{}", 404, "/v1/predict"),
    ];
    for (path, body, status, part) in cases {
        let answer = post(&served, path, body.as_bytes());
        let error = answer.error();
        assert!(answer.status == status && error.contains(part), "{path} {body}: {} {error}", answer.status);
        assert!(!["--skip-bad-lines", "--positive"].iter().any(|flag| error.contains(flag)), "{error}");
    }
    assert_eq!(get(&served, "/v1/predict").status, 405);
    assert_eq!(post(&served, "/v1/predict", b"{}").status, 200);
}
