//! Models with a vector for each field, tested from outside: `--model deepfm` and `ffm`, in one process, in jobs, and
//! in trainings that go on with other data.

use crate::harness;

use gannet::storage::Checkpoint;
use harness::*;
use std::fmt::Write as _;
use std::path::Path;

/// A row: the label, a user, an item and an hour. The label depends on which user meets which item.
fn rows(n: u32, seed: u32) -> Vec<(u32, [u32; 3])> {
    let row = |i: u32| {
        let drawn = |part: u32| {
            let x = (i * 4 + part).wrapping_add(seed.wrapping_mul(0x9E37_79B9)).wrapping_mul(2_654_435_761);
            (x ^ x >> 15).wrapping_mul(0x85EB_CA6B) >> 9
        };
        let (user, item, hour) = (drawn(0) % 20, drawn(1) % 20, drawn(2) % 24);
        let likes = (user + item) % 2 == 0;
        (u32::from(likes != (drawn(3) % 10 == 0)), [user, item, hour])
    };
    (0..n).map(row).collect()
}

/// The rows as CSV, with the columns in this order.
fn csv(rows: &[(u32, [u32; 3])], order: [usize; 3]) -> String {
    let names = ["user", "item", "hour"];
    let mut text = format!("label,{}\n", order.map(|at| names[at]).join(","));
    for (label, values) in rows {
        let _ = writeln!(
            text,
            "{label},{}",
            order.map(|at| format!("{}{}", &names[at][..1], values[at])).join(",")
        );
    }
    text
}

fn loss(report: &serde_json::Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"))
}

fn predicted(model: &Path, data: &str) -> f64 {
    loss(&ok(&format!("predict --model {} {data} --json", model.display())).json(), "logloss")
}

/// The weights of a row in a table of a model: those of the rows of features, or of units of the first layer.
fn width(model: &Path, table: &str) -> usize {
    if table.is_empty() {
        return Checkpoint::open(model).unwrap().schema().weights();
    }
    let folder = std::fs::read_dir(model).unwrap().map(|entry| entry.unwrap().path());
    let mut found = folder.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(table));
    Checkpoint::open(&found.next().unwrap()).unwrap().schema().weights()
}

#[test]
fn a_network_reads_a_vector_of_each_field_and_an_ffm_row_has_one_for_each() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (train, test) = (write(f, "a.csv", csv(&rows(6_000, 1), [0, 1, 2])), rows(2_000, 2));
    let test_csv = write(f, "b.csv", csv(&test, [0, 1, 2]));
    // The header says which column is which.
    let turned = write(f, "c.csv", csv(&test, [2, 0, 1]));
    for (model, table, wide) in [("deepfm", "deepfm.1-", 3 * 8 + 1), ("ffm", "", 1 + 3 * 4)] {
        let out = f.join(model);
        let line = format!("train {train} --model {model} --epochs 8 --alpha 0.1 --test {test_csv} --json");
        let report = ok(&format!("{line} --out {}", out.display())).json();
        let learned = loss(&report, "test_logloss");
        assert!(learned < 0.55, "{model} learns who meets whom, and no weights can: {learned}");
        assert_eq!(width(&out, table), wide);
        for data in [&test_csv, &turned] {
            assert!((predicted(&out, data) - learned).abs() < 1e-6, "{model} {data}");
        }
    }
}

#[test]
fn libffm_and_csv_have_the_same_pairs_and_libsvm_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let ffm = |rows: &[(u32, [u32; 3])]| -> String {
        let line = |(label, [user, item, hour]): &(u32, [u32; 3])| {
            format!("{label} 0:{user}:1 1:{}:1 2:{}:1\n", 100 + item, 200 + hour)
        };
        rows.iter().map(line).collect()
    };
    let (train, test) = (write(f, "a.ffm", ffm(&rows(6_000, 1))), write(f, "b.ffm", ffm(&rows(2_000, 2))));
    let line = format!("train {train} --model ffm --epochs 8 --alpha 0.1 --test {test} --json");
    assert!(loss(&ok(&line).json(), "test_logloss") < 0.55);
    let svm = write(f, "a.svm", "1 1:1 5:1\n0 2:1 6:1\n".repeat(20));
    refused(&format!("train {svm} --model ffm"), &["says no fields", "--model fm"]);
    // A network without fields reads the sum of all vectors.
    let out = f.join("pooled");
    ok(&format!("train {svm} --model deepfm --out {}", out.display()));
    assert_eq!(width(&out, "deepfm.1-"), 8 + 1);
}

/// Workers that found other fields than the others would give a unit's weights other inputs.
#[test]
fn a_job_agrees_on_fields_and_learns_as_one_process_does() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let train = write(f, "a.csv", csv(&rows(8_000, 1), [0, 1, 2]));
    let test = write(f, "b.csv", csv(&rows(2_000, 2), [1, 0, 2]));
    for model in ["deepfm", "ffm"] {
        let (alone, job) = (f.join(format!("{model}-alone")), f.join(format!("{model}-job")));
        let line = format!("train {train} --model {model} --epochs 8 --alpha 0.1 --out");
        ok(&format!("{line} {}", alone.display()));
        ok(&format!("launch --servers 2 --workers 2 -- {line} {}", job.display()));
        let (one, many) = (predicted(&alone, &test), predicted(&job, &test));
        assert!(one < 0.55 && many < 0.58, "{model}: {one} {many}");
    }
}

/// The second day's log begins with other fields than the first one's: the run keeps its own.
#[test]
fn a_run_that_continues_keeps_its_fields() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let line = |(label, [user, item, hour]): &(u32, [u32; 3]), names: [&str; 3]| {
        let sign = if *label == 1 { "1" } else { "-1" };
        format!("{sign} |{} {user} |{} {item} |{} {hour}\n", names[0], names[1], names[2])
    };
    let log = |seed: u32, names: [&str; 3]| -> String {
        rows(6_000, seed).iter().map(|row| line(row, names)).collect()
    };
    let days = [
        write(f, "monday.vw", log(1, ["user", "item", "hour"])),
        write(f, "tuesday.vw", log(2, ["user", "item", "other"])),
    ];
    let test = write(f, "test.vw", log(3, ["user", "item", "hour"]));
    let data_dir = f.join("rows");
    for model in ["deepfm", "ffm"] {
        let run = |day: &str, more: &str| {
            let line = format!("train {day} --model {model} --epochs 6 --alpha 0.1 --run {model}");
            ok(&format!("{line} --data-dir {} {more}", data_dir.display()))
        };
        let (one, two) = (f.join(format!("{model}-1")), f.join(format!("{model}-2")));
        run(&days[0], &format!("--out {}", one.display()));
        let said = run(&days[1], &format!("--continue --out {}", two.display())).err;
        assert!(said.contains("6000") || said.contains("36000"), "features of a new field are named: {said}");
        let (before, after) = (predicted(&one, &test), predicted(&two, &test));
        assert!(before < 0.55 && after < 0.55, "{model}: {before} {after}");
        // A model from which another training starts keeps them, too.
        let warm = f.join(format!("{model}-3"));
        let begin = format!("train {} --model {model} --alpha 0.1 --warm-start {}", days[1], two.display());
        ok(&format!("{begin} --out {}", warm.display()));
        assert!(predicted(&warm, &test) < 0.55, "{model}");
    }
}

/// A table of 1,500 columns was refused, because a row would have needed 12,000 factors.
#[test]
fn fields_share_vectors_where_a_row_would_be_too_wide() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let mut text = (0..1_500).fold("label".to_owned(), |line, at| line + &format!(",c{at}")) + "\n";
    for i in 0..30u32 {
        let cells = (0..1_500).map(|at| format!(",v{}", (at * 31 + i) % 3)).collect::<String>();
        let _ = writeln!(text, "{}{cells}", i % 2);
    }
    let data = write(f, "wide.csv", text);
    for (model, places) in [("deepfm", 511), ("ffm", 1023)] {
        let out = f.join(model);
        let said = ok(&format!("train {data} --model {model} --out {}", out.display())).err;
        assert!(said.contains(&format!("1500 fields share {places} vectors")), "{said}");
        assert!(predicted(&out, &data).is_finite());
    }
}
