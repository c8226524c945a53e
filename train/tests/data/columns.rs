//! The same table in every format that has columns: the same keys, values and labels.

use gannet_train::{
    Block, ColumnChoice, ColumnKeys, Crosses, CsvForm, Data, FieldUse, Format, Reader, Share, Survey,
    cross_key, text_key,
};
use proptest::prelude::*;
use std::fmt::Write;
use std::sync::Arc;

/// A row: its label, a text and a number that may be missing, a whole number, a flag.
pub type Row = (bool, Option<String>, Option<f32>, i64, bool);

pub fn rows() -> impl Strategy<Value = Vec<Row>> {
    let number = || (-999_999i32..999_999).prop_map(|number| number as f32 / 64.0);
    let text = || "[a-c,\"; \\n\\\\é]{0,8}";
    let row = (any::<bool>(), prop::option::of(text()), prop::option::of(number()), -5i64..50, any::<bool>());
    prop::collection::vec(row, 1..60)
}

pub fn choice() -> ColumnChoice {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let (numeric, both) = (names(&["height"]), names(&["hour", "is_new"]));
    ColumnChoice { label: Some("clicked".into()), numeric, both, ..ColumnChoice::default() }
}

fn csv(rows: &[Row], delimiter: char, header: bool) -> String {
    let mut text = String::new();
    if header {
        text = ["clicked", "city", "height", "hour", "is_new"].join(&delimiter.to_string()) + "\n";
    }
    for (label, city, height, hour, is_new) in rows {
        let city = city.as_ref().map(|city| format!("\"{}\"", city.replace('"', "\"\""))).unwrap_or_default();
        let height = height.map(|height| height.to_string()).unwrap_or_default();
        let fields = [u8::from(*label).to_string(), city, height, hour.to_string(), is_new.to_string()];
        writeln!(text, "{}", fields.join(&delimiter.to_string())).unwrap();
    }
    text
}

fn json(rows: &[Row]) -> String {
    let line = |(clicked, city, height, hour, is_new): &Row| {
        let object = serde_json::json!({
            "clicked": u8::from(*clicked), "city": city, "height": height, "hour": hour, "is_new": is_new,
        });
        // Numbers as in the CSV file.
        let height = height.map_or("null".into(), |height| height.to_string());
        let fields = ["clicked", "city", "height", "hour", "is_new"].map(|name| {
            let value = if name == "height" { height.clone() } else { object[name].to_string() };
            format!("{name:?}: {value}")
        });
        format!("{{{}}}\n", fields.join(","))
    };
    rows.iter().map(line).collect()
}

/// All examples of some data, in one block.
pub fn examples(data: &Data) -> Block {
    let mut reader = Reader::open(data, 7, Share::ALL).unwrap();
    let (mut all, mut block) = (Block::default(), Block::default());
    all.clear();
    while reader.next(&mut block).unwrap() {
        let base = all.keys.len() as u32;
        all.labels.extend(&block.labels);
        all.offsets.extend(block.offsets[1..].iter().map(|end| base + end));
        all.keys.extend(&block.keys);
        all.values.extend(&block.values);
        all.bases.extend(&block.bases);
        all.importances.extend(&block.importances);
        all.fields.extend(&block.fields);
    }
    all
}

pub fn file(folder: &tempfile::TempDir, name: &str, text: impl AsRef<[u8]>) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// The examples of a table as a CSV file.
pub fn of_csv(rows: &[Row], folder: &tempfile::TempDir) -> Block {
    let path = file(folder, "want.csv", csv(rows, ',', true));
    examples(&Data { columns: choice(), ..Data::new(&path) })
}

proptest! {
    #[test]
    fn every_text_format_has_the_examples_of_the_table(rows in rows()) {
        let folder = tempfile::tempdir().unwrap();
        let want = of_csv(&rows, &folder);
        prop_assert_eq!(want.len(), rows.len());
        let path = file(&folder, "x.jsonl", json(&rows));
        prop_assert_eq!(&examples(&Data { columns: choice(), ..Data::new(&path) }), &want);
        let path = file(&folder, "x.csv", csv(&rows, ';', true));
        let form = CsvForm { delimiter: Some(b';'), names: None };
        prop_assert_eq!(&examples(&Data { columns: choice(), csv: form, ..Data::new(&path) }), &want);
        let path = file(&folder, "x.txt", csv(&rows, '|', false));
        let names = ["clicked", "city", "height", "hour", "is_new"].map(String::from).to_vec();
        let form = CsvForm { delimiter: Some(b'|'), names: Some(names) };
        prop_assert_eq!(&examples(&Data { columns: choice(), csv: form, ..Data::new(&path) }), &want);
        // A column that is left out, by its name or because it has none.
        let indexed: String = csv(&rows, ',', true);
        let indexed = indexed.replacen("clicked", ",clicked", 1);
        let indexed = indexed.replacen("hour", "hour,more", 1);
        let mut at = 0;
        let whole = csv::records(&indexed).into_iter().enumerate().map(|(number, record)| {
            if number == 0 { return record; }
            at += 1;
            let (rest, last) = record.trim_end_matches('\n').rsplit_once(',').unwrap();
            format!("{at},{rest},x{at},{last}\n")
        });
        let path = file(&folder, "y.csv", whole.collect::<String>());
        let columns = ColumnChoice { ignored: vec!["more".into()], ..choice() };
        prop_assert_eq!(&examples(&Data { columns, ..Data::new(&path) }), &want);
    }
}

mod csv {
    /// The records of a text whose quotes are in pairs.
    pub fn records(text: &str) -> Vec<String> {
        let (mut all, mut record, mut quoted) = (Vec::new(), String::new(), false);
        for c in text.chars() {
            quoted ^= c == '"';
            record.push(c);
            if c == '\n' && !quoted {
                all.push(std::mem::take(&mut record));
            }
        }
        all
    }
}

/// Names inside objects, lists, names that a line lacks, and escapes.
#[test]
fn json_lines_mean_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let key = |column: &str, text: &str| gannet_train::ColumnKeys::new(column).categorical(text.as_bytes());
    let number = gannet_train::ColumnKeys::new("n");
    let all =
        ColumnChoice { numeric: vec!["n".into()], ignored: vec!["id".into()], ..ColumnChoice::default() };
    let only = ColumnChoice { categorical: vec!["a".into(), "b".into()], ..ColumnChoice::default() };
    for (choice, line, label, want) in [
        (
            &all,
            r#"{"label":1,"a":"x","n":2.5,"id":7}"#,
            1.0,
            vec![(key("a", "x"), 1.0), (number.numeric(), 2.5)],
        ),
        (&all, r#" { "n" : "3" , "label" : true } "#, 1.0, vec![(number.numeric(), 3.0)]),
        (
            &all,
            r#"{"label":0,"o":{"p":{"q":1.0},"r":null}}"#,
            0.0,
            vec![(key("o.p.q", "1.0"), 1.0), (key("o.r", ""), 1.0), (number.missing(), 1.0)],
        ),
        (
            &all,
            r#"{"l":["x","y",null,2],"m":[],"label":-1,"n":null}"#,
            0.0,
            vec![
                (key("l", "x"), 1.0),
                (key("l", "y"), 1.0),
                (key("l", ""), 1.0),
                (key("l", "2"), 1.0),
                (number.missing(), 1.0),
            ],
        ),
        (
            &all,
            r#"{"label":"1","caf\u00e9":"a\"b\n\ud83d\ude00","n":-0.5e1}"#,
            1.0,
            vec![(key("café", "a\"b\n😀"), 1.0), (number.numeric(), -5.0)],
        ),
        // The index of pandas.
        (
            &all,
            r#"{"Unnamed: 0":3,"label":1,"__index_level_0__":"u","n":1,"Unnamed":"x"}"#,
            1.0,
            vec![(number.numeric(), 1.0), (key("Unnamed", "x"), 1.0)],
        ),
        (&only, r#"{"label":1,"z":3,"b":false}"#, 1.0, vec![(key("b", "false"), 1.0), (key("a", ""), 1.0)]),
    ] {
        let path = file(&folder, "x.jsonl", format!("{line}\n"));
        let data = Data { columns: choice.clone(), intercept: false, ..Data::new(&path) };
        let block = examples(&data);
        let got: Vec<(u64, f32)> = block.keys.iter().copied().zip(block.values.iter().copied()).collect();
        assert_eq!((block.labels[0], got), (label, want), "{line}");
    }
}

#[test]
fn wrong_json_lines_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let numeric = ColumnChoice { numeric: vec!["n".into()], ..ColumnChoice::default() };
    let deep = format!(r#"{{"label":1,"o":{}1{}}}"#, r#"{"o":"#.repeat(40), "}".repeat(40));
    for (line, part) in [
        (r#"{"a":1}"#, "expected a label in \"label\"; name its column with --label"),
        (r#"{"label":2}"#, "--positive"),
        (r#"{"label":1,"label":0}"#, "expected one label"),
        (r#"{"label":1,"n":"x"}"#, "expected a number, or nothing or NA where it is missing"),
        (r#"{"label":1,"n":"x"}"#, "(--both allows texts, as categories), in \"n\""),
        (r#"{"label":1,"n":{"x":1}}"#, "expected a number, not an object, in \"n\""),
        (r#"{"label":1,"n":[1]}"#, "expected a number, not a list, in \"n\""),
        (r#"{"label":1,"a":[[1]]}"#, "no list inside a list"),
        (r#"{"label":1,"a":[{"b":1}]}"#, "no object inside a list"),
        (r#"{"label":1,"a":"#, "expected a JSON object"),
        (r#"{"label":1,"a":"x"#, "expected a JSON object"),
        (r#"{"label":1} x"#, "nothing behind it"),
        // A form feed is no white space of JSON.
        ("{\"label\":1}\x0c", "nothing behind it"),
        (r#"{"label":1}{"label":1}"#, "nothing behind it"),
        (r#"{"label":1,}"#, "expected a JSON object"),
        (r#"{"label":1,"n":1e400}"#, "expected a finite number"),
        (r#"{"label":1,"a":nul}"#, "expected a JSON object"),
        (&deep, "objects inside each other"),
    ] {
        let path = file(&folder, "x.jsonl", format!("{{\"label\":1}}\n{line}\n"));
        let data = Data { columns: numeric.clone(), ..Data::new(&path) };
        let mut reader = Reader::open(&data, 7, Share::ALL).unwrap();
        let error = reader.next(&mut Block::default()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{path}:2: ")) && error.contains(part), "{line}: {error}");
    }
    let path = file(&folder, "x.json", "[\n{\"label\":1}\n]\n");
    let error = Reader::look(&Data::new(&path)).unwrap_err().to_string();
    assert!(error.contains("is a JSON array") && error.contains("jq -c"), "{error}");
}

#[test]
fn libffm_and_ranking_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let ffm = file(&folder, "x.data", "1 0:3:1 1:7:0.5 # c\n0 2:9:1 10:8:-2\r\n");
    let ranked = file(&folder, "x.svm", "1 qid:3 3:1 7:0.5\n0 qid:12 9:1 8:-2\n");
    let plain = file(&folder, "y.svm", "1 3:1 7:0.5\n0 9:1 8:-2\n");
    let want = examples(&Data::new(&plain));
    assert_eq!(Reader::check(&Data::new(&ffm)).unwrap(), Some("libffm"));
    assert_eq!(examples(&Data::new(&ffm)), want);
    assert_eq!(examples(&Data::new(&ranked)), want);
    for (text, part) in [
        ("1 0:3", "expected field:id:value"),
        ("1 70000:3:1", "a field of at most 65535"),
        ("1 0:18446744073709551615:1", "expected field:id:value"),
        ("1 0:3:x", "expected a number after the colon"),
        ("1 0:3:1:2", "expected a number after the colon"),
    ] {
        let path = file(&folder, "bad.ffm", format!("1 0:3:1\n{text}\n"));
        let mut reader = Reader::open(&Data::new(&path), 7, Share::ALL).unwrap();
        let error = reader.next(&mut Block::default()).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains(":2: "), "{text}: {error}");
    }
}

#[test]
fn odd_csv_files_end_right_or_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let semicolons = CsvForm { delimiter: Some(b';'), names: None };
    let bare = |names: &[&str]| CsvForm {
        delimiter: None,
        names: Some(names.iter().map(|n| n.to_string()).collect()),
    };
    let ignored = |name: &str| ColumnChoice { ignored: vec![name.into()], ..ColumnChoice::default() };
    for (text, form, columns, want) in [
        ("label,a\n1,\"x\ny\"\n0,z\n", CsvForm::default(), ColumnChoice::default(), Ok(2)),
        (
            "label,\"a\nb\"\n1,x\n",
            CsvForm::default(),
            ColumnChoice::default(),
            Err("has a line break; rename it"),
        ),
        (
            "label,a\n1,\"x\n0,z\n",
            CsvForm::default(),
            ColumnChoice::default(),
            Err(":2: expected the closing quote"),
        ),
        (
            "label,a\n1,\"x\n\"y\n0,z\n",
            CsvForm::default(),
            ColumnChoice::default(),
            Err(":2: expected the delimiter after"),
        ),
        ("label,a\n1,\"x\n\ny\"\n0,\n2,z\n", CsvForm::default(), ColumnChoice::default(), Err(":6: ")),
        ("label;a\n1;x\n", semicolons.clone(), ColumnChoice::default(), Ok(1)),
        ("label,a\n1,x\n", semicolons, ColumnChoice::default(), Err("no feature columns")),
        ("1,x\n0,y\n", bare(&[]), ColumnChoice::default(), Ok(2)),
        ("1,x\n0,y\n", bare(&["label", "a"]), ColumnChoice::default(), Ok(2)),
        (
            "1,x\n0,y\n",
            bare(&["label", "a", "b"]),
            ColumnChoice::default(),
            Err("has 2 fields, and --columns names 3"),
        ),
        ("1,x\n0,y\n", CsvForm::default(), ColumnChoice::default(), Err("--no-header")),
        ("label,a,b\n1,x,y\n", CsvForm::default(), ignored("a"), Ok(1)),
        ("label,a\n1,x\n", CsvForm::default(), ignored("c"), Err("--ignore")),
        ("label,a,b\n1,x,y\n", CsvForm::default(), ignored("label"), Err("left out (--ignore) and chosen")),
    ] {
        let path = file(&folder, "x.csv", text);
        let data = Data { csv: form, columns, ..Data::new(&path) };
        let read = Reader::open(&data, 7, Share::ALL).and_then(|mut reader| {
            let mut block = Block::default();
            reader.next(&mut block).map(|_| block.len())
        });
        match (read, want) {
            (Ok(examples), Ok(want)) => assert_eq!(examples, want, "{text:?}"),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text:?}: {error}"),
            (read, want) => panic!("{text:?}: {read:?}, and {want:?} is expected"),
        }
    }
}

/// A quote that nothing closes makes one bad record of all lines behind it. Each of them counts as bad.
#[test]
fn an_open_quote_does_not_hide_lines() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("label,a\n1,\"x\n{}", "0,y\n".repeat(50));
    let path = file(&folder, "x.csv", text);
    for (allowed, says) in [(50, "bad line 51 of the 50"), (51, "none of its 51 lines is an example")] {
        let data = Data { skip_bad_lines: allowed, ..Data::new(&path) };
        let mut reader = Reader::open(&data, 7, Share::ALL).unwrap();
        let error = reader.next(&mut Block::default()).unwrap_err().to_string();
        assert!(error.contains(says), "{allowed}: {error}");
        assert_eq!(reader.bad_lines().count, 51);
    }
}

#[test]
fn formats_with_columns_are_alike() {
    assert!(Format::Csv.is_like(Format::Json) && Format::Json.is_like(Format::Parquet));
    assert!(!Format::Csv.is_like(Format::Libsvm) && Format::Vw.is_like(Format::Vw));
}

/// A table of categories in every format that has fields: the crosses and the fields are the same.
#[test]
fn crosses_and_fields_are_the_same_in_each_format() {
    let folder = tempfile::tempdir().unwrap();
    let rows = [("UA", "7", "1.5"), ("AA", "9", "-2"), ("UA", "", "0.25")];
    let mut files = vec![("csv", String::from("label,air,hour,x\n")), ("jsonl", String::new())];
    files.push(("vw", String::new()));
    for (at, (air, hour, x)) in rows.iter().enumerate() {
        let label = at % 2;
        files[0].1 += &format!("{label},{air},{hour},{x}\n");
        files[1].1 += &format!("{{\"label\": {label}, \"air\": {air:?}, \"hour\": {hour:?}, \"x\": {x}}}\n");
        // A namespace for each column. vw has no names that are empty texts.
        files[2].1 += &format!("{label} |air {air} |hour {hour} |x value:{x}\n");
    }
    let crosses = |named: &[&str], lettered: &[&str]| {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        Arc::new(Crosses::new(&owned(named), &owned(lettered)).unwrap())
    };
    let read = |name: &str, text: &str, crosses: &Arc<Crosses>| {
        let columns = ColumnChoice { numeric: vec!["x".into()], ..ColumnChoice::default() };
        let columns = if name == "vw" { ColumnChoice::default() } else { columns };
        let fields = FieldUse { crosses: crosses.clone(), in_blocks: true, ..FieldUse::default() };
        examples(&Data { columns, fields, ..Data::new(&file(&folder, &format!("table.{name}"), text)) })
    };
    let named = crosses(&["air*hour", "x,air", "x*x"], &[]);
    let csv = read("csv", &files[0].1, &named);
    assert_eq!(csv, read("jsonl", &files[1].1, &named));
    // The intercept, three columns, three crosses.
    assert_eq!(csv.offsets, [0, 7, 14, 21]);
    let (air, x) = (ColumnKeys::new("air"), ColumnKeys::new("x").numeric());
    let hour = ColumnKeys::new("hour").categorical(b"7");
    let ua = air.categorical(b"UA");
    let first: Vec<(u64, f32)> = csv.keys[4..7].iter().copied().zip(csv.values[4..7].to_vec()).collect();
    let mut want = [(cross_key(&[ua, hour]), 1.0), (cross_key(&[ua, x]), 1.5), (cross_key(&[x, x]), 2.25)];
    assert_eq!(first, want);
    let field = |name: &str| text_key(0, name.as_bytes());
    let fields = ["air", "hour", "x", "air*hour", "air*x", "x*x"].map(field);
    assert_eq!(csv.fields[..7], [&[0][..], &fields].concat());
    // vw's letters, and the same fields. The third line has no hour, and so no cross with it.
    let letters = crosses(&[], &["ah", "xa", "xx"]);
    let vw = read("vw", &files[2].1, &letters);
    let value = text_key(text_key(0, b"x"), b"value");
    want =
        [(cross_key(&[ua, hour]), 1.0), (cross_key(&[ua, value]), 1.5), (cross_key(&[value, value]), 2.25)];
    let of_vw: Vec<(u64, f32)> = vw.keys[4..7].iter().copied().zip(vw.values[4..7].to_vec()).collect();
    assert_eq!(of_vw, want);
    assert_eq!((&vw.offsets[..], &vw.fields[..4]), (&[0, 7, 14, 19][..], &csv.fields[..4]));
    // libffm has fields by number, and libsvm has none.
    let ffm = file(&folder, "table.ffm", "1 3:7:1 12:9:2\n");
    let of =
        |fields: &Arc<Crosses>| FieldUse { crosses: fields.clone(), in_blocks: true, ..FieldUse::default() };
    let ffm = examples(&Data { fields: of(&crosses(&["3*12"], &[])), ..Data::new(&ffm) });
    assert_eq!((ffm.keys[3], ffm.values[3]), (cross_key(&[9, 7]), 2.0));
    assert_eq!(ffm.fields, [0, field("3"), field("12"), field("12*3")]);
    let svm = file(&folder, "table.svm", "1 3:7\n");
    let refused = |data: Data| Reader::open(&data, 1, Share::ALL).err().unwrap().to_string();
    let error = refused(Data { fields: of(&named), ..Data::new(&svm) });
    assert!(error.contains("libsvm has no fields"), "{error}");
    let json = file(&folder, "table.jsonl", &files[1].1);
    let error = refused(Data { fields: of(&crosses(&["air,label"], &[])), ..Data::new(&json) });
    assert!(error.contains("\"label\", which is no column of features"), "{error}");
    let csv = file(&folder, "table.csv", &files[0].1);
    let error = refused(Data { fields: of(&crosses(&["air,hours"], &[])), ..Data::new(&csv) });
    assert!(error.contains("\"hours\", which is no column of features; they are air, hour, x"), "{error}");
}

/// Examples in vw's text and in its JSON: the same keys, values, labels, importances and bases.
#[test]
fn json_lines_of_vw_have_the_examples_of_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let text = "1 |user age:2 color:red vip |item 3:0.5 7 |words big red |v 0:1 1:-2 |tags x y\n\
                -1 2 0.5 |inner x:1\n\
                1 1 0 |\n\
                0 |user age:1\n";
    let json = [
        r#"{"_label": 1, "_tag": "t", "user": {"age": 2, "color": "red", "vip": true, "old": false, "no": null},
            "item": {"3": 5e-1, "7": 1}, "words": {"_text": " big  red "}, "v": [1, -2], "tags": ["x", "y"]}"#
            .replace('\n', " "),
        r#"{"outer": {"inner": {"x": 1}}, "_label": {"Label": -1, "Weight": 2, "Initial": 0.5}}"#.into(),
        r#"{"_label": "1"}"#.into(),
        r#"{"user": {"age": 7}}"#.into(),
        r#"{"_label": 0, "_skipped": [{}], "user": {"age": 1.0}}"#.into(),
    ];
    let json = json.join("\n");
    let read = |name: &str, text: &str| {
        let fields = FieldUse { in_blocks: true, ..FieldUse::default() };
        examples(&Data { fields, ..Data::new(&file(&folder, name, text)) })
    };
    let of_text = read("a.vw", &text.replace("-1", "0"));
    assert_eq!(of_text, read("a.jsonl", &json.replace("\"Label\": -1", "\"Label\": 0")));
    assert_eq!((of_text.len(), of_text.keys.len()), (4, 4 + 11 + 1 + 1));
    // In the namespace without a name whole numbers are keys.
    let plain = read("plain.json", "{\"_label\": 1, \"17\": 2, \"x\": 1}");
    assert_eq!(plain, read("plain.vw", "1 | 17:2 x\n"));
    // Flags that name columns say that it is no file of vw.
    let columns = ColumnChoice { label: Some("_label".into()), ..ColumnChoice::default() };
    let named = Data { columns, ..Data::new(&file(&folder, "plain.json", "{\"_label\": 1, \"x\": 1}")) };
    assert_eq!(examples(&named).keys[1], ColumnKeys::new("x").categorical(b"1"));
    for (line, words) in [
        ("{\"_label\": 2}", "which is not 0, 1 or -1"),
        ("{\"_label\": {\"Label\": 1, \"Cost\": 2}}", "Label, Weight and Initial"),
        ("{\"_label\": {\"Label\": 1, \"label\": 0}}", "not a second one"),
        ("{\"_labelIndex\": 1, \"_label_Action\": 1, \"_label\": 1}", "contextual bandits"),
        ("{\"_label\": 1, \"_multi\": [{\"a\": 1}]}", "\"_multi\""),
        ("{\"_label\": {\"Label\": 1, \"Weight\": -2}}", "an importance that is not negative"),
        ("{\"_label\": 1, \"a\": [[1]]}", "numbers or texts in the list \"a\""),
        ("{\"_label\": 1, \"a\": 1e99}", "a finite number that fits f32, in \"a\""),
        ("{\"_label\": 1} x", "nothing behind it"),
        ("{\"_label\": 1, \"a\": {\"b\": 1}", "expected a JSON object"),
    ] {
        let data = Data { format: Format::VwJson, ..Data::new(&file(&folder, "wrong.json", line)) };
        let opened = Reader::open(&data, 1, Share::ALL);
        let read = opened.and_then(|mut reader| reader.next(&mut Block::default()));
        let error = read.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

/// A first file of a header alone made categories of all columns.
#[test]
fn the_survey_goes_on_in_the_next_file() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        ("a.csv", "label,x,y\n"),
        ("b.csv", "label,x,y\n1,0.5,3\n"),
        ("c.csv", "label,x,y\n0,1.5,4\n1,2,5\n"),
    ];
    let files = files.map(|(name, text)| file(&folder, name, text));
    for (lines, values) in [(Some(2), 2), (Some(10_000), 3), (None, 3)] {
        let survey = Survey::of(&Data::of(files.to_vec()), lines).unwrap();
        let column = survey.column("x").unwrap();
        assert_eq!((survey.lines.0, column.values, column.decimals), (values, values, 2), "{lines:?}");
    }
}

#[test]
fn columns_get_the_type_that_their_values_suggest() {
    let folder = tempfile::tempdir().unwrap();
    let line =
        |i: usize| format!("{},{}.5,{},{},{:03},{}\n", i % 2, i % 9, i % 7, i % 2, i % 40, ["x", "7"][i % 2]);
    let text = "label,price,age,flag,code,mixed\n".to_owned() + &(0..200).map(line).collect::<String>();
    let types = |path: &str| {
        let data = Data::new(path);
        let columns = Reader::look(&data).unwrap().unwrap().columns.unwrap();
        Survey::of(&data, Some(100)).unwrap().numbers_of(&columns)
    };
    let want = || (vec!["price".to_owned()], vec!["age".to_owned()]);
    assert_eq!(types(&file(&folder, "x.csv", &text)), want());
    let object = |i: usize| {
        format!(
            "{{\"label\":{},\"price\":{}.5,\"age\":{},\"flag\":{},\"ages\":[{i},{}],\"code\":\"{:03}\"}}\n",
            i % 2,
            i % 9,
            i % 7,
            i % 2,
            i + 1,
            i % 40
        )
    };
    assert_eq!(types(&file(&folder, "x.jsonl", (0..200).map(object).collect::<String>())), want());
    // Too many whole numbers for two features each.
    let header: String = (0..101).map(|at| format!(",c{at}")).collect();
    let row = |i: usize| {
        format!("{}{}\n", i % 2, (0..101).map(|at| format!(",{}", (i + at) % 17)).collect::<String>())
    };
    let wide = format!("label{header}\n{}", (0..100).map(row).collect::<String>());
    let (numbers, both) = types(&file(&folder, "wide.csv", wide));
    assert!(both.is_empty() && numbers.len() == 101, "{numbers:?} {both:?}");
}

/// An object that was left out stayed a feature, name by name.
#[test]
fn an_object_is_left_out_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "x.jsonl", "{\"label\":1,\"o\":{\"p\":2,\"q\":\"x\"},\"of\":3}\n");
    let columns = ColumnChoice { ignored: vec!["o".into()], ..ColumnChoice::default() };
    let block = examples(&Data { columns, intercept: false, ..Data::new(&path) });
    assert_eq!(block.keys, [ColumnKeys::new("of").categorical(b"3")]);
}
