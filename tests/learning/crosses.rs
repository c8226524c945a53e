//! Crosses and offsets, tested from outside: what they learn, that a model remembers them, and that predictions make
//! them.

use crate::harness;

use harness::*;
use std::fmt::Write as _;
use std::path::Path;

/// Rows whose label is 1 if two columns of two values are equal: neither column alone says anything.
fn equal_pairs(n: usize) -> Vec<(u8, &'static str, &'static str)> {
    let value = |at: usize, shift: u32| ["x", "y"][((at * 2_654_435_761) >> shift) & 1];
    (0..n).map(|at| (value(at, 7), value(at, 11))).map(|(a, b)| (u8::from(a == b), a, b)).collect()
}

fn scores(model: &Path, data: &str) -> Vec<f64> {
    let out = ok(&format!("predict --model {} {data}", model.display())).out;
    out.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn crosses_learn_what_no_column_says_and_the_model_remembers_them() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let rows = equal_pairs(4000);
    let (mut csv, mut json, mut vw) = ("label,first,second\n".to_owned(), String::new(), String::new());
    for (label, a, b) in &rows {
        writeln!(csv, "{label},{a},{b}").unwrap();
        writeln!(json, "{{\"second\": \"{b}\", \"label\": {label}, \"first\": \"{a}\"}}").unwrap();
        writeln!(vw, "{label} |first {a} |second {b}").unwrap();
    }
    let csv = write(f, "pairs.csv", csv);
    let (json, vw) = (write(f, "pairs.jsonl", json), write(f, "pairs.vw", vw));
    let mut seen = Vec::new();
    for (name, data, flags) in [
        ("csv", &csv, "--cross first,second"),
        ("turned", &csv, "--cross second*first"),
        ("json", &json, "--cross first*second"),
        ("vw", &vw, "-q fs"),
        ("lbfgs", &csv, "--cross first,second --optimizer lbfgs --l2 1"),
        ("fm", &csv, "--cross first,second --model fm"),
        ("launched", &csv, "--cross first,second"),
    ] {
        let model = f.join(name);
        let line = format!("{data} {flags} --out {} --json", model.display());
        match name {
            "launched" => ok(&format!("launch --servers 2 --workers 2 -- train {line}")),
            _ => ok(&format!("train {line}")),
        };
        let right =
            scores(&model, data).iter().zip(&rows).filter(|(p, row)| (**p > 0.5) == (row.0 == 1)).count();
        assert_eq!(right, rows.len(), "{name}");
        seen.push(scores(&model, data));
    }
    // The same crosses in each format, and in each order of the names.
    assert!(seen[0] == seen[1] && seen[0] == seen[2] && seen[0] == seen[3]);
    let plain = f.join("plain");
    let done = ok(&format!("train {csv} --out {} --json", plain.display()));
    assert!(done.json()["logloss"].as_f64().unwrap() > 0.68, "{done:?}");

    let model = f.join("csv").display().to_string();
    ok(&format!("predict --model {model} {csv} --cross second,first"));
    refused(
        &format!("predict --model {model} {csv} --cross first,first"),
        &["other crosses", "leave the flag out"],
    );
    refused(&format!("train {csv} --warm-start {model}"), &["crosses (--cross)", "first*second", "none"]);
    ok(&format!("train {csv} --warm-start {model} --cross second,first"));
    refused(
        &format!("train {csv} --cross first,third"),
        &["\"third\"", "no column of features", "first, second"],
    );
    refused(&format!("train {csv} --cross first"), &["--cross", "\"first\" has 1 parts"]);
    refused(&format!("train {csv} -q f"), &["--quadratic", "2 ASCII letters"]);
}

/// The log odds of a chance.
fn logit(p: f64) -> f64 {
    (p / (1.0 - p)).ln()
}

#[test]
fn offsets_are_added_to_margins_in_training_and_in_predictions() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    // The labels follow the offset alone: their chance is that of the offset.
    let at = |i: u32| i.wrapping_mul(2_654_435_761);
    let rows: Vec<(u8, f64, u32)> = (0..6000u32)
        .map(|i| {
            let base = f64::from(at(i) >> 16 & 255) / 32.0 - 4.0;
            let chance = 1.0 / (1.0 + (-base).exp());
            let drawn = f64::from(at(i ^ 0x5555).rotate_left(9) >> 8) / f64::from(1u32 << 24);
            (u8::from(drawn < chance), base, at(i) >> 28)
        })
        .collect();
    let csv = |shift: f64| {
        let line = |(label, base, at): &(u8, f64, u32)| format!("{label},{},c{at}\n", base + shift);
        "label,start,city\n".to_owned() + &rows.iter().map(line).collect::<String>()
    };
    let vw: String = rows.iter().map(|(label, base, at)| format!("{label} 1 {base} |city c{at}\n")).collect();
    let (data, shifted) = (write(f, "rows.csv", csv(0.0)), write(f, "shifted.csv", csv(0.75)));
    let vw = write(f, "rows.vw", vw);
    let loss = |line: &str| ok(&format!("train {line} --json")).json()["logloss"].as_f64().unwrap();
    for more in ["", "--push gradient", "--model fm", "--model deepfm", "--optimizer lbfgs --l2 1"] {
        let model = f.join("model");
        let out = format!("--out {} {more}", model.display());
        let with = loss(&format!("{data} --offset start {out}"));
        let without = loss(&format!("{data} --ignore start {more}"));
        assert!(with < 0.5 && without > 0.6, "{more}: {with} {without}");
        // A larger offset moves each prediction by as much, whatever was learned.
        for (p, moved) in scores(&model, &data).iter().zip(scores(&model, &shifted)) {
            assert!((logit(moved) - logit(*p) - 0.75).abs() < 0.01, "{more}: {p} {moved}");
        }
        std::fs::remove_dir_all(&model).unwrap();
    }
    // vw's base is the same number.
    let of_vw = loss(&vw);
    assert!((of_vw - loss(&format!("{data} --offset start"))).abs() < 0.003, "{of_vw}");
    // A model of L-BFGS absorbs an offset that all examples share in its intercept.
    let same = f.join("same");
    for (flags, of) in [("--ignore start", "own"), ("--offset start", "same")] {
        let constant: String = rows.iter().map(|(label, _, at)| format!("{label},2.5,c{at}\n")).collect();
        let constant = write(f, "constant.csv", "label,start,city\n".to_owned() + &constant);
        let line = "--optimizer lbfgs --l2 1 --tolerance 1e-7";
        ok(&format!("train {constant} {flags} {line} --out {}", f.join(of).display()));
    }
    let constant = f.join("constant.csv").display().to_string();
    for (a, b) in scores(&f.join("own"), &constant).iter().zip(scores(&same, &constant)) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
    let no_start = write(f, "bare.csv", "label,city\n1,c1\n");
    refused(&format!("predict --model {} {no_start}", same.display()), &["start", "--offset"]);
    refused(&format!("train {data} --offset city"), &["expected an offset: a number", "city"]);
    // Flags that would mean nothing are refused.
    refused(&format!("train {vw} --offset start"), &["--offset", "this file has none: it is vw"]);
    refused(&format!("train {vw} --format vw --delimiter ;"), &["--delimiter", "are for CSV", "vw"]);
    let plain = f.join("plain").display().to_string();
    ok(&format!("train {data} --ignore start --out {plain}"));
    refused(
        &format!("predict --model {plain} {data} --offset start"),
        &["trained without --offset", "leave the flag"],
    );
    refused(
        &format!("predict --model {plain} {data} --ignore city"),
        &["--ignore city", "trained on this column"],
    );
    let classes = write(f, "classes.vw", "1 1 0.5 | x\n");
    refused(&format!("train {classes} --model softmax --classes 3"), &["no base", "several margins"]);
}

/// Once a line without a label stopped a training.
#[test]
fn lines_of_vw_without_a_label_are_read_over_and_scored() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (mut all, mut labelled) = (String::new(), String::new());
    for i in 0..600 {
        let line = format!("{} |a x{} |b color:{}\n", i % 2, i % 7, ["red", "blue"][i % 2]);
        all += &line;
        labelled += &line;
        if i % 3 == 0 {
            all += &format!("|a x{} |b color:red\n", i % 7);
        }
    }
    let (all, labelled) = (write(f, "all.vw", all), write(f, "labelled.vw", labelled));
    let (one, other) = (f.join("one"), f.join("other"));
    let flags = "--batch 1 --threads 1";
    let done = ok(&format!("train {all} {flags} --json --out {}", one.display()));
    assert_eq!(done.json()["examples"], 600);
    assert!(done.err.contains("without a label are read over"), "{done:?}");
    let done = ok(&format!("train {labelled} {flags} --json --out {}", other.display()));
    assert!(!done.err.contains("without a label"), "{done:?}");
    assert_eq!(scores(&one, &labelled), scores(&other, &labelled));
    assert_eq!(scores(&one, &all).len(), 800);
}

/// Once workers that named the same crosses in another order were refused as different.
#[test]
fn workers_may_name_crosses_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let rows = equal_pairs(400);
    let vw: String = rows.iter().map(|(label, a, b)| format!("{label} |first {a} |second {b}\n")).collect();
    let vw = write(folder.path(), "pairs.vw", vw);
    let job = |crosses: [&str; 2]| {
        let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 1"));
        let hosts = format!("--ps-hosts {} --worker-hosts 127.0.0.1:1,127.0.0.1:2", server.addr);
        let worker = |i: usize| {
            let line = format!("train {vw} {} --tasks off {hosts} --batch 50", crosses[i]);
            Process::start(gannet(&format!("{line} --job-name worker --task-index {i} --peer-timeout 20")))
        };
        let done = [worker(0), worker(1)].map(Process::wait);
        server.stop();
        done
    };
    let first = "--cross first,second --cross first,first -q fs -q ff --cubic sff";
    let done = job([first, "--cross first*first --cross second,first -q ff -q sf --cubic fsf"]);
    assert!(done.iter().all(|done| done.code == Some(0)), "{done:?}");
    let done = job([first, "--cross first,second -q fs -q ff --cubic sff"]);
    assert!(done.iter().any(|done| done.code == Some(2) && done.err.contains("--cross")), "{done:?}");
}

/// Once a name that no line has made no feature and no word.
#[test]
fn a_cross_that_made_no_feature_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let rows = equal_pairs(3000);
    let (mut json, mut vw, mut ffm) = (String::new(), String::new(), String::new());
    for (label, a, b) in &rows {
        writeln!(json, "{{\"second\": \"{b}\", \"label\": {label}, \"first\": \"{a}\"}}").unwrap();
        writeln!(vw, "{label} |first {a} |second {b}").unwrap();
        writeln!(ffm, "{label} 1:{}:1 2:{}:1", u8::from(*a == "x"), 2 + u8::from(*b == "x")).unwrap();
    }
    let (json, vw, ffm) = (write(f, "a.jsonl", json), write(f, "a.vw", vw), write(f, "a.ffm", ffm));
    let alone = |line: &str| ok(&format!("train {line}")).err;
    for (line, cross) in [
        (format!("{json} --cross first,secnod --cross first,second"), "first*secnod"),
        (format!("{vw} --cross first,secnod -q fs"), "first*secnod"),
        (format!("{vw} -q fs -q fz --epochs 2 --model fm"), "fz"),
        (format!("{vw} --cubic fsz --threads 3 --optimizer lbfgs --l2 1"), "fsz"),
        (format!("{ffm} --cross 1,3 --cross 1,2"), "1*3"),
    ] {
        let err = alone(&line);
        let says = format!("the cross {cross} made no feature in the ");
        assert_eq!(err.matches("made no feature").count(), 1, "{line}: {err}");
        assert!(err.contains(&says) && err.contains("see how the data spells"), "{line}: {err}");
    }
    // Each cross has a feature somewhere, if only in the last line.
    let last = std::fs::read_to_string(&vw).unwrap() + "1 |first a |third b\n";
    let last = write(f, "last.vw", last);
    assert!(!alone(&format!("{last} --cross first,third -q fs")).contains("made no feature"));
    // In a job the feature may be in a split of another worker, so few examples say nothing. A worker may read them
    // twice: once to see how large their values are.
    let launched = |line: &str| ok(&format!("launch --servers 1 --workers 2 -- train {line}")).err;
    assert!(
        launched(&format!("{vw} --cross first,secnod --batch 100"))
            .contains("the cross first*secnod made no")
    );
    let few = write(f, "few.vw", "1 |first a |second b\n".repeat(400));
    assert!(!launched(&format!("{few} --cross first,secnod")).contains("made no feature"));
}
