//! Data in a bucket: a training on it has the bits of one on local files, also where the store fails now and then.

use crate::harness::ports::free_addr;
use crate::harness::*;
use crate::store::ObjectStore;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use flate2::write::GzEncoder;
use parquet::arrow::ArrowWriter;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// A table in one format: the names of its files, their bytes, and flags.
type Table = (&'static str, Vec<(String, Vec<u8>)>, &'static str);

fn rows(from: i64) -> Vec<(i64, String, f64)> {
    let mix = |x: i64| (x as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let row = |at: i64| {
        let (city, x) = (mix(at) % 3000, mix(at + 1_000_000) % 1000);
        (i64::from(mix(at + 7) % 1000 < city / 4 + x / 8), format!("city {city}"), x as f64 / 8.0)
    };
    (from..from + 20_000).map(row).collect()
}

fn packed(text: &str) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(text.as_bytes()).unwrap();
    packer.finish().unwrap()
}

fn csv(rows: &[(i64, String, f64)]) -> String {
    let mut text = "label,city,x\n".to_owned();
    rows.iter().for_each(|(label, city, x)| writeln!(text, "{label},{city},{x}").unwrap());
    text
}

fn json(rows: &[(i64, String, f64)]) -> String {
    let line = |(label, city, x): &(i64, String, f64)| {
        format!("{{\"label\": {label}, \"city\": \"{city}\", \"x\": {x}}}\n")
    };
    rows.iter().map(line).collect()
}

fn parquet(rows: &[(i64, String, f64)]) -> Vec<u8> {
    let columns: [(&str, ArrayRef); 3] = [
        ("label", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)))),
        ("city", Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.1)))),
        ("x", Arc::new(Float64Array::from_iter_values(rows.iter().map(|row| row.2)))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    for part in 0..4 {
        writer.write(&batch.slice(part * 5000, 5000)).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
    bytes
}

fn tables() -> [Table; 5] {
    let files = |extension: &str, bytes: &dyn Fn(i64) -> Vec<u8>| {
        (0..3).map(|part| (format!("part-{part}.{extension}"), bytes(part * 20_000))).collect()
    };
    let svm = |from: i64| -> String {
        rows(from).iter().map(|(label, city, x)| format!("{label} {}:1 {}:{x}\n", &city[5..], 5000)).collect()
    };
    [
        ("svm", files("svm", &|from| svm(from).into()), ""),
        ("csv", files("csv", &|from| csv(&rows(from)).into()), "--numeric x"),
        ("gz", files("csv.gz", &|from| packed(&csv(&rows(from)))), "--numeric x"),
        ("json", files("jsonl", &|from| json(&rows(from)).into()), "--numeric x"),
        ("parquet", files("parquet", &|from| parquet(&rows(from))), ""),
    ]
}

/// Puts a table into a folder on the disk and into one of the bucket. Returns both names of its files.
fn put(store: &ObjectStore, folder: &Path, (name, files, _): &Table) -> (String, String) {
    let day = folder.join(name).join("day-1");
    std::fs::create_dir_all(&day).unwrap();
    for (file, bytes) in files {
        std::fs::write(day.join(file), bytes).unwrap();
        store.put(&format!("{name}/day-1/{file}"), bytes);
    }
    // No data. The first is what consoles of stores make for a new folder.
    store.put(&format!("{name}/day-1/"), b"");
    store.put(&format!("{name}/day-1/_SUCCESS"), b"");
    store.put(&format!("{name}/other/part-9.txt"), b"nothing");
    (format!("{}/day-*/part-*", folder.join(name).display()), format!("s3://models/{name}/day-*/part-*"))
}

fn train(store: &ObjectStore, data: &str, flags: &str, out: &Path) -> Done {
    let out = out.display();
    store.ok(&format!("train {data} {flags} --epochs 2 --json --threads 1 --out {out}"))
}

#[test]
#[ignore = "needs an object store: scripts/test_cloud.sh"]
fn data_in_a_bucket_gives_the_bits_of_local_files() {
    let (store, folder) = (ObjectStore::start(None), tempfile::tempdir().unwrap());
    for table in tables() {
        let (here, there) = put(&store, folder.path(), &table);
        let models = ["here", "there", "cut"].map(|name| folder.path().join(format!("{}-{name}", table.0)));
        let want = train(&store, &here, table.2, &models[0]).json();
        assert_eq!(want["examples"], 2 * 60_000, "{want}");
        let got = train(&store, &there, table.2, &models[1]).json();
        assert!(want["logloss"].is_f64() && got["logloss"] == want["logloss"], "{want} {got}");
        assert!(model_rows(&models[1]) == model_rows(&models[0]), "{}: other weights", table.0);
        // The store cuts answers and is busy.
        store.faults.cut_after.store(300_000, SeqCst);
        store.faults.busy.store(3, SeqCst);
        train(&store, &there, table.2, &models[2]);
        store.faults.cut_after.store(0, SeqCst);
        assert!(model_rows(&models[2]) == model_rows(&models[0]), "{}: cut", table.0);
        let scores = |data: &str| store.ok(&format!("predict {data} --model {}", models[0].display())).out;
        assert!(scores(&there) == scores(&here), "{}: other scores", table.0);
    }
    // Folders are named with or without a slash, and a test set may be in a bucket, too.
    let (here, model) = (folder.path().join("svm/day-1").display().to_string(), folder.path().join("folder"));
    let want = train(&store, &here, &format!("--test {here}"), &model).json();
    let done = train(&store, "s3://models/svm/day-1", "--test s3://models/svm/day-1/", &model).json();
    assert!(want["test_logloss"].is_f64(), "{want}");
    assert_eq!((&done["logloss"], &done["test_logloss"]), (&want["logloss"], &want["test_logloss"]));
    // A pattern may match folders, and a name that exists is none.
    let done = train(&store, "s3://models/svm/day-*", "", &model).json();
    assert_eq!(done["logloss"], want["logloss"]);
    store.put("odd/a[1].svm", b"1 2:1\n0 3:1\n");
    store.put("nested/x/y/a.svm", b"1 2:1\n0 3:1\n");
    assert_eq!(train(&store, "s3://models/nested/**/*", "", &model).json()["examples"], 4);
    store.put("h[0]/a.svm", b"1 2:1\n0 3:1\n");
    store.put("h0/a.svm", b"1 2:1\n");
    for named in ["s3://models/h[0]", "s3://models/h[0]/"] {
        assert_eq!(train(&store, named, "", &model).json()["examples"], 4, "{named}");
    }
    assert_eq!(train(&store, "s3://models/svm/day-*/", "", &model).json()["logloss"], want["logloss"]);
    assert_eq!(train(&store, "s3://models/odd/a[1].svm", "", &model).json()["examples"], 4);
}

#[test]
#[ignore = "needs an object store: scripts/test_cloud.sh"]
fn splits_of_objects_are_trained_once_each() {
    let (store, folder) = (ObjectStore::start(None), tempfile::tempdir().unwrap());
    for table in tables() {
        let (_, there) = put(&store, folder.path(), &table);
        let addr = free_addr();
        let hosts = format!("--ps-hosts {addr} --worker-hosts w:0,w:1");
        let _server =
            Served::start(store.gannet(&format!("train --job-name ps --task-index 0 {hosts} --threads 2")));
        store.faults.cut_after.store(300_000, SeqCst);
        let worker = |index: u32| {
            Process::start(store.gannet(&format!(
                "train {there} {} --job-name worker --task-index {index} {hosts} --tasks on --task-bytes 100kB --json",
                table.2
            )))
        };
        let done = [worker(0), worker(1)].map(Process::wait);
        store.faults.cut_after.store(0, SeqCst);
        let examples: u64 = done
            .iter()
            .map(|done| {
                assert_eq!(done.code, Some(0), "{}: {done:?}", table.0);
                done.json()["examples"].as_u64().unwrap()
            })
            .sum();
        assert_eq!(examples, 60_000, "{}: {done:?}", table.0);
    }
}

#[test]
#[ignore = "needs an object store: scripts/test_cloud.sh"]
fn what_cannot_be_read_from_a_bucket_is_named_with_a_remedy() {
    let store = ObjectStore::start(None);
    store.put("one/a.svm", b"1 2:1\n0 3:1\n");
    for (data, expected) in [
        ("s3://models/one/absent.svm", "s3://models/one/absent.svm: cannot read: "),
        ("s3://models/one/b-*.svm", "no object has a name like this"),
        ("s3://models/one/absent.svm", "there is no such object"),
        ("s3://absent/a.svm", "there is no such bucket"),
        ("s3://mod*/a.svm", "a bucket must be named without a pattern"),
        ("s3://models", "has a folder in it (s3://models/one)"),
    ] {
        let done = store.run(&format!("train {data}"));
        assert!(done.code == Some(2) && done.err.contains(expected), "{data}: {done:?}");
    }
    let wrong = |name: &str, value: &str, expected: &str| {
        let mut command = store.gannet("train s3://models/one/a.svm");
        command.env(name, value);
        let done = Process::start(command).wait();
        assert!(done.code == Some(2) && done.err.contains(expected), "{name}={value}: {done:?}");
    };
    wrong("AWS_ALLOW_HTTP", "false", "allow this by AWS_ALLOW_HTTP=true");
    wrong("AWS_ENDPOINT", "127.0.0.1:9", "AWS_ENDPOINT is no address such as https://");
    wrong("AWS_SECRET_ACCESS_KEY", "two\n", "AWS_SECRET_ACCESS_KEY has a line break");
    wrong("AWS_ALLOW_HTTP", "maybe", "a setting in the environment (AWS_...) is missing or cannot be used");
    let strict = ObjectStore::start(Some(1));
    let wrong = strict.run("train s3://models/a.svm");
    assert!(wrong.code == Some(2) && wrong.err.contains("AWS_ACCESS_KEY_ID"), "{wrong:?}");
}

/// A store that accepts connections and says nothing held a training for ever.
#[test]
#[ignore = "needs an object store: scripts/test_cloud.sh"]
fn a_store_that_is_silent_is_given_up_and_asked_again() {
    let (store, folder) = (ObjectStore::start(None), tempfile::tempdir().unwrap());
    let table = tables().into_iter().next().unwrap();
    let (here, there) = put(&store, folder.path(), &table);
    let models = ["here", "there"].map(|name| folder.path().join(name));
    train(&store, &here, table.2, &models[0]);
    store.faults.silent.store(1, SeqCst);
    train(&store, &there, table.2, &models[1]);
    assert!(model_rows(&models[1]) == model_rows(&models[0]));
}
