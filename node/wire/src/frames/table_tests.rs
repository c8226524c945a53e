//! The table of scripts/book/frames.py and the frame types are equal, and only this folder knows the places of fields.

use crate::frames::declare::{Field, FrameDirection, FrameKind, FrameRow};
use crate::frames::session::WelcomeFrame;
use crate::frames::{ALL, any_head, decode_as_all};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// A frame type as the page should write it.
fn as_row(row: &FrameRow) -> String {
    let direction = match row.direction {
        FrameDirection::ToServer => "to server",
        FrameDirection::ToWorker => "to worker",
    };
    let field = |field: &Field| {
        let named = row.fields.iter().find(|(at, _)| at == field);
        named.map_or("0", |(_, meaning)| meaning).to_owned()
    };
    let fields: Vec<String> = Field::ALL.iter().map(field).collect();
    format!("| {} | {} | {direction} | {} | {} |", row.kind, row.name, fields.join(" | "), row.payload)
}

#[test]
fn the_printed_table_is_that_of_the_code() {
    let printed = Command::new("python3").arg(root().join("scripts/book/frames.py")).output().unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let document = String::from_utf8(printed.stdout).unwrap();
    let title = "| kind | name | direction | aux | w0 | w1 | w2 | w3 | payload |";
    let rows = document.lines().skip_while(|line| *line != title).skip(2);
    let rows: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
    let mut types: Vec<&FrameRow> = ALL.into_iter().flatten().collect();
    types.sort_by_key(|row| row.kind);
    assert!(types.is_sorted_by(|a, b| a.kind < b.kind), "two frame types have one kind");
    let types: Vec<String> = types.into_iter().map(as_row).collect();
    let missing = |of: &[String], rows: &[&str]| -> Vec<String> {
        of.iter().filter(|row| !rows.contains(&row.as_str())).cloned().collect()
    };
    let of_code = missing(&types, &rows);
    assert!(of_code.is_empty(), "scripts/book/frames.py prints no such rows, the code has: {of_code:#?}");
    let documented: Vec<String> = rows.iter().map(|row| row.to_string()).collect();
    let of_document = missing(&documented, &types.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(
        of_document.is_empty(),
        "the code has no such frame types, scripts/book/frames.py prints: {of_document:#?}"
    );
    assert_eq!(types, documented, "the printed rows must be in the order of their kinds, each once");
}

#[test]
fn a_place_is_described_once() {
    for row in ALL.into_iter().flatten() {
        let places: BTreeSet<&str> = row.fields.iter().map(|(place, _)| place.name()).collect();
        assert_eq!(places.len(), row.fields.len(), "{}", row.name);
    }
}

fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, out),
            false => out.extend(Some(path).filter(|path| path.extension().is_some_and(|ext| ext == "rs"))),
        }
    }
}

#[test]
fn only_this_folder_reads_and_builds_heads() {
    let (node, frames) = (root().join("node"), root().join("node/wire/src/frames"));
    let mut files = Vec::new();
    ["wire", "jobs", "worker", "server"]
        .iter()
        .for_each(|role| sources(&node.join(role).join("src"), &mut files));
    assert!(files.len() > 200, "{} files of {}", files.len(), node.display());
    for file in files.iter().filter(|file| !file.starts_with(&frames)) {
        let text = fs::read_to_string(file).unwrap();
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let by_hand = ["Head::new(", "head.words", "head.aux", ".0.words", ".0.aux", "Head::default()"];
            let found = by_hand.iter().find(|by_hand| code.contains(**by_hand));
            assert_eq!(
                found,
                None,
                "{}:{}: heads are built and read in node/wire/src/frames: use a frame type",
                file.display(),
                number + 1
            );
        }
    }
}

proptest! {
    #[test]
    fn what_decodes_encodes_again(aux in 0u16..70, words in prop::array::uniform4(word()), id: u64) {
        decode_as_all(&any_head(0, aux, id, words));
    }
}

/// Words that many frame types take, and others.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0u64..4, any::<u32>().prop_map(u64::from), any::<u64>(), Just(u64::MAX)]
}

#[test]
fn the_bytes_of_a_welcome() {
    let welcome =
        WelcomeFrame { credit_requests: 1024, credit_bytes: 1 << 26, silence_ms: 9, lease_ms: 2000 };
    let head = welcome.encode(7);
    let mut bytes = [0; gannet_transport::limits::HEAD_BYTES];
    head.encode(&mut bytes);
    let mut want = b"GN\x02\0\x02\0\0\0\0\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0".to_vec();
    for word in [1024u64, 1 << 26, 9, 2000] {
        want.extend_from_slice(&word.to_le_bytes());
    }
    assert_eq!(bytes[..56], want);
    let read = WelcomeFrame::decode(&head).unwrap();
    assert_eq!((read.silence_ms, read.lease_ms), (9, 2000));
}

#[test]
fn unknown_bits_are_refused_with_their_place() {
    let text = |kind: u16, aux, words| {
        let row = ALL.into_iter().flatten().find(|row| row.kind == kind).unwrap();
        (row.reencode)(&any_head(kind, aux, 0, words)).unwrap_err().to_string()
    };
    assert_eq!(
        text(21, 0, [0, 5, 0, 0]),
        "frame ping: w1 is 0x5, but this version has no such field: run the same gannet on both sides"
    );
    assert_eq!(
        text(29, 0, [0, 5, 2, 0]),
        "frame tick: w2 (skip) is 0x2, which is out of range or has unknown bits"
    );
    assert_eq!(
        text(5, 64, [0; 4]),
        "frame pull: aux (state 1, slots 2, newer 4, f16 8, version 16) is 0x40, which is out of range or has unknown bits"
    );
    assert_eq!(
        text(7, 33, [0; 4]),
        "frame push: aux has more than one of change, sum, damped, row and delete"
    );
}
