//! Numbers of examples that are no features: offsets and importances, in each format with columns and in vw.

use crate::columns::{examples, file};
use gannet_train::{Block, ColumnChoice, Data, Reader, Share};

fn choice() -> ColumnChoice {
    ColumnChoice { offset: Some("start".into()), importance: Some("often".into()), ..ColumnChoice::default() }
}

#[test]
fn offsets_and_importances_are_those_of_vw_in_each_format() {
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str, text: &str| {
        let columns = if name == "vw" { ColumnChoice::default() } else { choice() };
        examples(&Data { columns, ..Data::new(&file(&folder, &format!("table.{name}"), text)) })
    };
    let csv = read("csv", "label,start,often,a\n1,0,1,x\n0,-1.5,0.5,y\n1,2e1,0,z\n");
    let json = read(
        "jsonl",
        "{\"label\": 1, \"start\": 0, \"a\": \"x\", \"often\": 1}\n\
         {\"start\": \"-1.5\", \"label\": 0, \"a\": \"y\", \"often\": \"0.5\"}\n\
         {\"label\": 1, \"often\": 0, \"a\": \"z\", \"start\": 20.0}\n",
    );
    assert_eq!(csv, json);
    assert_eq!((&csv.bases[..], csv.keys.len()), (&[0.0, -1.5, 20.0][..], 6));
    assert_eq!(csv.importances, [1.0, 0.5, 0.0]);
    let vw = read("vw", "1 1 0 |a x\n0 0.5 -1.5 |a y\n1 0 2e1 |a z\n");
    assert_eq!((vw.bases, vw.importances), (csv.bases, csv.importances));
}

#[test]
fn numbers_that_cannot_be_are_named_with_their_column() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text, words) in [
        (
            "csv",
            "label,start,often,a\n1,,1,x\n",
            "an offset: a number that may not be missing, in column \"start\"",
        ),
        ("csv", "label,start,often,a\n1,up,1,x\n", "expected an offset: a number"),
        ("csv", "label,often,a\n1,1,x\n", "no column \"start\" (named by --offset)"),
        ("csv", "label,start,a\n1,0,x\n", "no column \"often\" (named by --importance)"),
        ("csv", "label,start,often,a\n1,0,-1,x\n", "that is 0 or more, and may not be missing"),
        ("csv", "label,start,often,a\n1,0,,x\n", "an importance: a number that is 0 or more"),
        ("csv", "label,start,often,a\n1,0,inf,x\n", "\"often\""),
        (
            "jsonl",
            "{\"label\": 1, \"a\": \"x\", \"often\": 1}\n",
            "an offset: a number that may not be missing",
        ),
        (
            "jsonl",
            "{\"label\": 1, \"a\": \"x\", \"start\": 1}\n",
            "an importance: a number that is 0 or more",
        ),
        ("jsonl", "{\"label\": 1, \"often\": -2, \"start\": 1}\n", "in \"often\""),
        ("jsonl", "{\"label\": 1, \"start\": [1]}\n", "no list"),
    ] {
        let path = file(&folder, &format!("wrong.{name}"), text);
        let data = Data { columns: choice(), ..Data::new(&path) };
        let opened = Reader::open(&data, 1, Share::ALL);
        let read = opened.and_then(|mut reader| reader.next(&mut Block::default()));
        let error = read.unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

/// Data that is scored has offsets, and may have no importances.
#[test]
fn data_without_labels_needs_no_importances() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("csv", "start,a\n2,x\n"),
        ("csv", "a,often,start\nx,1,2\n"),
        ("jsonl", "{\"a\": \"x\", \"start\": 2}\n"),
        ("jsonl", "{\"a\": \"x\", \"often\": 1, \"start\": 2}\n"),
    ] {
        let path = file(&folder, &format!("scored.{name}"), text);
        let block = examples(&Data { columns: choice(), unlabelled: true, ..Data::new(&path) });
        assert_eq!((block.bases, block.keys.len()), (vec![2.0], 2), "{text}");
        assert!(block.importances.is_empty(), "{text}");
    }
}
