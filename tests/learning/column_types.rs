//! The types of columns that no flag names, tested from outside: what the same table becomes in other formats, and in
//! trainings that go on with its model.

use crate::harness;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use harness::*;
use parquet::arrow::ArrowWriter;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

/// A row: the label, a whole number, a skewed number, and a category.
type Row = (i64, i64, f64, String);

fn rows(n: i64, seed: i64) -> Vec<Row> {
    let row = |i: i64| {
        let at = (i * 7_919 + seed * 104_729) % 1_009;
        let skewed = f64::from((at as f32 / 100.0).exp() + 0.5);
        (i64::from(at % 11 < 4), at % 50, skewed, format!("c{}", at % 13))
    };
    (0..n).map(row).collect()
}

fn csv(rows: &[Row]) -> String {
    let lines =
        rows.iter().map(|(label, whole, skewed, text)| format!("{label},{whole},{skewed:?},{text}\n"));
    std::iter::once("label,whole,skewed,text\n".to_owned()).chain(lines).collect()
}

fn json(rows: &[Row]) -> String {
    let line = |(label, whole, skewed, text): &Row| {
        format!("{{\"label\":{label},\"whole\":{whole},\"skewed\":{skewed:?},\"text\":\"{text}\"}}\n")
    };
    rows.iter().map(line).collect()
}

/// The rows as Parquet, with one more column of floats.
fn parquet_with_another(path: &Path, rows: &[Row]) -> String {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("label", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)))),
        ("whole", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1)))),
        ("skewed", Arc::new(Float64Array::from_iter_values(rows.iter().map(|row| row.2)))),
        ("text", Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.3)))),
        ("another", Arc::new(Float64Array::from_iter_values(rows.iter().map(|row| row.2 / 3.0)))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    path.display().to_string()
}

fn scores(model: &str, data: &str) -> Vec<f32> {
    let lines = ok(&format!("predict --model {model} {data}")).out;
    lines.lines().map(|line| line.parse().unwrap()).collect()
}

/// Once a model of JSON lines refused a Parquet file with a column of floats that it does not know, and no flag helped.
#[test]
fn a_model_of_json_lines_scores_a_table_with_more_columns() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (lines, text) = (write(f, "a.jsonl", json(&rows(500, 1))), write(f, "a.csv", csv(&rows(500, 1))));
    let table = parquet_with_another(&f.join("a.parquet"), &rows(500, 1));
    let model = f.join("m").display().to_string();
    ok(&format!("train {lines} --out {model}"));
    assert_eq!(scores(&model, &table), scores(&model, &text));
    let by_csv = f.join("n").display().to_string();
    ok(&format!("train {text} --test {table} --out {by_csv}"));
    assert_eq!(scores(&by_csv, &table), scores(&by_csv, &lines));
}

/// Once `predict` took JSON lines for a model of CSV, and `--warm-start` did not.
#[test]
fn a_training_goes_on_in_another_format_of_the_same_table() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let first = [write(f, "1.csv", csv(&rows(500, 1))), write(f, "1.jsonl", json(&rows(500, 1)))];
    let second = [write(f, "2.csv", csv(&rows(400, 2))), write(f, "2.jsonl", json(&rows(400, 2)))];
    let mut found = Vec::new();
    for (begin, next) in first.iter().flat_map(|begin| second.iter().map(move |next| (begin, next))) {
        let (one, two) = (f.join("one").display().to_string(), f.join("two").display().to_string());
        ok(&format!("train {begin} --out {one}"));
        ok(&format!("train {next} --warm-start {one} --out {two}"));
        found.push(scores(&two, &second[0]));
        refused(
            &format!("train {next} --warm-start {one} --scale none"),
            &["--warm-start", "logarithms", "leave --scale out"],
        );
        refused(
            &format!("train {next} --warm-start {one} --numeric text --types off"),
            &["columns of the model"],
        );
        [one, two].iter().for_each(|model| std::fs::remove_dir_all(model).unwrap());
    }
    assert!(found.iter().all(|scores| *scores == found[0]), "all four ways learn the same");
}

/// A few texts among numbers are categories, and the numbers stay numbers. Missing ones are spelt in many ways.
#[test]
fn one_text_made_a_category_of_each_number() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    for (text, becomes) in [
        ("", "skewed: number;"),
        ("NaN", "skewed: number;"),
        ("null", "skewed: number;"),
        ("-", "skewed: number and category"),
        ("007", "skewed: category"),
    ] {
        let mut lines = csv(&rows(500, 1));
        writeln!(lines, "1,3,{text},c1").unwrap();
        let data = write(f, "a.csv", &lines);
        let done = ok(&format!("train {data}"));
        assert!(done.err.contains(becomes), "{text}: {done:?}");
    }
    let bad: String = std::iter::repeat_n("1,2\n", 12_000).collect();
    let data = write(f, "b.csv", csv(&[]) + &bad + csv(&rows(500, 1)).split_once('\n').unwrap().1);
    let done = ok(&format!("train {data} --skip-bad-lines 20000"));
    assert!(done.err.contains("skewed: number;"), "bad lines say nothing of types: {done:?}");
}

/// Once a job of the launcher trained without a word on what its columns became.
#[test]
fn a_launched_job_says_what_columns_become() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let data = write(f, "a.csv", csv(&rows(500, 1)));
    let table = parquet_with_another(&f.join("a.parquet"), &rows(500, 1));
    for data in [&data, &table] {
        let done = ok(&format!("launch --servers 1 --workers 2 -- train {data}"));
        for part in ["whole: number and category", "skewed: number", "by the logarithm", "text: category"] {
            assert_eq!(done.err.matches(part).count(), 1, "{part}: {done:?}");
        }
    }
}

/// A job finds the types of columns, the logarithms and the start of the intercept that one process finds. So its model
/// is as good, and knows the same columns.
#[test]
fn a_job_types_columns_as_one_process_does() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    // The label depends on the logarithm of a number that no two rows share.
    let rows = |n: i64, seed: i64| {
        let row = |i: i64| {
            let u = ((i * 7_919 + seed * 104_729) % 100_003) as f64 / 100_003.0;
            (i64::from((u > 0.5) != (i % 10 == 0)), i % 50, (10.0 * u).exp(), format!("c{}", i % 13))
        };
        csv(&(0..n).map(row).collect::<Vec<Row>>())
    };
    let (data, test) = (write(f, "a.csv", rows(4_000, 1)), write(f, "b.csv", rows(1_000, 2)));
    let quality = |model: &Path| {
        let found = ok(&format!("predict --model {} {test} --json", model.display())).json();
        found["logloss"].as_f64().unwrap()
    };
    let (alone, job, fed) = (f.join("alone"), f.join("job"), f.join("fed"));
    ok(&format!("train {data} --out {}", alone.display()));
    ok(&format!("launch --servers 2 --workers 2 -- train {data} --out {}", job.display()));
    ok(&format!(
        "launch --servers 1 --workers 2 -- train {data} --tasks on --task-bytes 8kB --out {}",
        fed.display()
    ));
    let plain = f.join("plain");
    ok(&format!("train {data} --types off --scale none --out {}", plain.display()));
    let want = quality(&alone);
    for model in [&job, &fed] {
        assert!((quality(model) - want).abs() < 0.03, "{} is not {want}", quality(model));
    }
    assert!(want < quality(&plain) - 0.01, "types help here: {want}, not {}", quality(&plain));
}

/// Once a column that the first training had left out was learned by the second one, in another format.
#[test]
fn a_column_that_is_left_out_stays_so_in_another_format() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let of = |seed: i64, form: &dyn Fn(&[Row]) -> String| form(&rows(300, seed));
    let (text, lines) = (write(f, "a.csv", of(1, &csv)), write(f, "a.jsonl", of(1, &json)));
    let (text2, lines2) = (write(f, "b.csv", of(2, &csv)), write(f, "b.jsonl", of(2, &json)));
    for (begin, next) in [(&text, &lines2), (&lines, &text2)] {
        let (one, two) = (f.join("one").display().to_string(), f.join("two").display().to_string());
        ok(&format!("train {begin} --ignore text --out {one}"));
        let known = model_rows(Path::new(&one)).len();
        ok(&format!("train {next} --warm-start {one} --out {two}"));
        // The same 50 whole numbers, and no category of the third column.
        assert_eq!(model_rows(Path::new(&two)).len(), known, "{begin} {next}");
        [one, two].iter().for_each(|model| std::fs::remove_dir_all(model).unwrap());
    }
}

/// Numbers of columns that are both have one category each, however a program writes them.
#[test]
fn exponents_made_other_categories_in_another_format() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let rows: Vec<Row> = rows(400, 1)
        .into_iter()
        .map(|row| (row.0, row.1, 10f64.powi((row.1 % 40) as i32 - 20), row.3))
        .collect();
    let (text, lines) = (write(f, "a.csv", csv(&rows)), write(f, "a.jsonl", json(&rows)));
    let table = parquet_with_another(&f.join("a.parquet"), &rows);
    let model = f.join("m").display().to_string();
    ok(&format!("train {text} --both skewed --out {model}"));
    assert_eq!(scores(&model, &text), scores(&model, &lines));
    assert_eq!(scores(&model, &text), scores(&model, &table));
    // Many columns of numbers are no categories; one of them with texts is no number.
    let header: String = (0..101).map(|at| format!(",c{at}")).collect();
    let line = |row: i64| (0..101).map(|at| format!(",{}", (row * 7 + at) % 90)).collect::<String>();
    let mut wide = format!("label{header},odd\n");
    for row in 0..200 {
        let odd = if row % 20 == 4 { "oops".to_owned() } else { (row % 30).to_string() };
        writeln!(wide, "{}{},{odd}", row % 2, line(row)).unwrap();
    }
    let done = ok(&format!("train {}", write(f, "wide.csv", wide)));
    assert!(done.out.contains("200 examples"), "{done:?}");
}
