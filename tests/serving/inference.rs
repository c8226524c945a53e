//! The Open Inference Protocol: tensors in JSON and in bytes answer what `gannet predict` prints. Real clients of it
//! are tested in scripts/test_ecosystem.sh.

use crate::client::{Answer, Served, ask, get, objects, post, predicted, served, table, trained};
use serde_json::{Value, json};

fn infer(served: &Served, body: &Value) -> Answer {
    post(served, "/v2/models/default/infer", body.to_string().as_bytes())
}

fn printed(answer: &Value, output: &str) -> String {
    let outputs = answer["outputs"].as_array().unwrap();
    let found = outputs.iter().find(|of| of["name"] == output).unwrap_or_else(|| panic!("{answer}"));
    let line = |x: &Value| format!("{:.6}\n", x.as_f64().unwrap() as f32);
    found["data"].as_array().unwrap().iter().map(line).collect()
}

#[test]
fn a_tensor_a_column_answers_what_predict_prints() {
    let folder = tempfile::tempdir().unwrap();
    let (model, data) = trained(folder.path(), "a.csv", &table(300, 5), "--model deepfm --epochs 2");
    let (served, expected) = (served(&format!("--model {model}")), predicted(&model, &data));
    let rows = objects(&table(300, 5));
    let column = |name: &str| rows.iter().map(|row| row[name].clone()).collect::<Vec<Value>>();
    let nested = |values: Vec<Value>| values.into_iter().map(|value| json!([value])).collect::<Vec<Value>>();
    let input = |name: &str, kind: &str, shape: Value, data: Vec<Value>| json!({"name": name, "shape": shape, "datatype": kind, "data": data});
    let inputs = json!([
        input("city", "BYTES", json!([300]), column("city")),
        input("age", "FP32", json!([300, 1]), nested(column("age"))),
        input("plan", "BYTES", json!([300]), column("plan")),
    ]);
    let answer = infer(&served, &json!({"id": "7", "inputs": inputs})).json();
    assert_eq!(printed(&answer, "probability"), expected);
    assert_eq!((&answer["id"], &answer["model_name"]), (&json!("7"), &json!("default")));
    // The same as bytes, with the output as bytes.
    let texts = |name: &str| -> Vec<u8> {
        let text = |row: &Value| {
            let text = row[name].as_str().unwrap().as_bytes().to_vec();
            [(text.len() as u32).to_le_bytes().to_vec(), text].concat()
        };
        rows.iter().flat_map(text).collect()
    };
    let ages: Vec<u8> = rows.iter().flat_map(|row| row["age"].as_f64().unwrap().to_le_bytes()).collect();
    let parts = [("city", "BYTES", texts("city")), ("age", "FP64", ages), ("plan", "BYTES", texts("plan"))];
    let inputs: Vec<Value> = parts
        .iter()
        .map(|(name, kind, bytes)| {
            let parameters = json!({"binary_data_size": bytes.len()});
            json!({"name": name, "shape": [300], "datatype": kind, "parameters": parameters})
        })
        .collect();
    let outputs = json!([{"name": "probability", "parameters": {"binary_data": true}}]);
    let mut body = json!({"inputs": inputs, "outputs": outputs}).to_string().into_bytes();
    let head =
        format!("POST /v2/models/default/infer HTTP/1.1\r\nInference-Header-Content-Length: {}", body.len());
    parts.iter().for_each(|(_, _, bytes)| body.extend_from_slice(bytes));
    let answer = ask(&served, &head, &body);
    let at: usize = answer.header("inference-header-content-length").unwrap().parse().unwrap();
    let floats = answer.body[at..].chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap()));
    assert_eq!(floats.map(|x| format!("{x:.6}\n")).collect::<String>(), expected);
}

/// Lines, and keys as they are in the ONNX file of a model.
#[test]
fn lines_and_keys_answer_what_predict_prints() {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<String> = (0..200).map(|i| format!("{} {}:1 {}:0.5", i % 3, i % 11, 20 + i % 5)).collect();
    let text = lines.join("\n") + "\n";
    let (model, data) = trained(folder.path(), "a.svm", &text, "--model softmax --classes 3");
    let (served, expected) = (served(&format!("--model {model}")), predicted(&model, &data));
    let keys: Vec<i64> = (0..200).flat_map(|i| [i % 11, 20 + i % 5, -1]).collect();
    let values: Vec<f64> = (0..200).flat_map(|_| [1.0, 0.5, 0.0]).collect();
    let bodies = [
        json!([{"name": "line", "shape": [200], "datatype": "BYTES", "data": lines}]),
        json!([{"name": "ids", "shape": [200, 3], "datatype": "INT64", "data": keys},
               {"name": "values", "shape": [200, 3], "datatype": "FP32", "data": values}]),
    ];
    for inputs in bodies {
        let answer = infer(&served, &json!({"inputs": inputs})).json();
        let outputs = &answer["outputs"];
        assert_eq!(outputs[1]["shape"], json!([200, 3]), "{answer}");
        let line = |at: usize| {
            let class = outputs[0]["data"][at].as_u64().unwrap() as usize;
            let chance = outputs[1]["data"][3 * at + class].as_f64().unwrap() as f32;
            format!("{class} {chance:.6}\n")
        };
        assert_eq!((0..200).map(line).collect::<String>(), expected);
    }
}

/// An answer never has fewer examples than were asked.
#[test]
fn lines_that_are_no_examples_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _) = trained(folder.path(), "a.svm", &"1 1:1\n0 2:1\n".repeat(50), "");
    let served = served(&format!("--model {model}"));
    let line =
        json!([{"name": "line", "shape": [3], "datatype": "BYTES", "data": ["1 1:1", "# none", "0 2:1"]}]);
    let answer = infer(&served, &json!({"inputs": line}));
    assert!(answer.status == 400 && answer.error().contains("3 examples are asked, and 2"), "{answer:?}");
}

#[test]
fn pages_say_what_the_protocol_wants() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _) = trained(folder.path(), "a.csv", &table(200, 6), "");
    let served = served(&format!("--model clicks={model}"));
    for path in ["/v2/health/live", "/v2/health/ready", "/v2/models/clicks/ready", "/healthz", "/readyz"] {
        assert_eq!(get(&served, path).status, 200, "{path}");
    }
    assert_eq!(get(&served, "/v2").json()["extensions"], json!(["binary_tensor_data"]));
    let about = get(&served, "/v2/models/clicks").json();
    let version = about["versions"][0].as_str().unwrap().to_owned();
    let names =
        |of: &str| about[of].as_array().unwrap().iter().map(|t| t["name"].clone()).collect::<Vec<_>>();
    assert_eq!(
        (names("inputs"), names("outputs")),
        (vec![json!("city"), json!("plan"), json!("age")], vec![json!("probability")])
    );
    assert_eq!(get(&served, &format!("/v2/models/clicks/versions/{version}/ready")).status, 200);
    for path in ["/v2/models/none", "/v2/models/none/ready", "/v2/models/clicks/versions/1/ready"] {
        let answer = get(&served, path);
        assert!(answer.status == 404 && answer.json()["error"].is_string(), "{path}: {answer:?}");
    }
}

/// Each wrong request names the input that is wrong.
#[test]
fn wrong_tensors_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _) = trained(folder.path(), "a.csv", &table(200, 7), "");
    let served = served(&format!("--model {model}"));
    let city = json!({"name": "city", "shape": [1], "datatype": "BYTES", "data": ["x"]});
    let plan = json!({"name": "plan", "shape": [1], "datatype": "BYTES", "data": ["x"]});
    let age = |shape: Value, kind: &str, data: Value| json!({"inputs": [city, plan, {"name": "age", "shape": shape, "datatype": kind, "data": data}]});
    let good = age(json!([1]), "FP64", json!([1.5]));
    assert_eq!(infer(&served, &good).status, 200);
    assert_eq!(infer(&served, &age(json!([1]), "FP64", json!([null]))).status, 200);
    let cases = [
        (json!({"inputs": [city]}), "missing: [\"plan\", \"age\"]"),
        (json!({"inputs": [city, city]}), "\"city\" is there twice"),
        (json!({}), "missing"),
        (json!({"inputs": 3}), "no request of the Open Inference Protocol"),
        (
            age(json!([2]), "FP64", json!([1.5])),
            "\"age\" (FP64): its shape [2] has 2 elements, and its data 1",
        ),
        (age(json!([2]), "FP64", json!([1.5, 2])), "\"age\" has the shape [2]"),
        (age(json!([u64::MAX, 2]), "FP64", json!([])), "more than"),
        (age(json!([1]), "FP64", json!(["old"])), "\"age\": element 0 is no FP64"),
        (age(json!([1]), "INT8", json!([300])), "\"age\": element 0 is no INT8"),
        (age(json!([1]), "FP8", json!([1])), "the type FP8 is not known"),
        (age(json!([1]), "BYTES", json!(["old"])), "old"),
    ];
    for (body, part) in cases {
        let answer = infer(&served, &body);
        assert!(answer.status == 400 && answer.error().contains(part), "{body}: {}", answer.error());
    }
    let mut other = good.clone();
    other["inputs"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "b", "shape": [1], "datatype": "BOOL", "data": [true]}));
    assert!(infer(&served, &other).error().contains("no column \"b\""));
    other = good;
    other["outputs"] = json!([{"name": "margin"}]);
    assert!(
        infer(&served, &other).error().contains("no output \"margin\"; its outputs are [\"probability\"]")
    );
}
