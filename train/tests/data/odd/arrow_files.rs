//! Arrow: files and streams, dictionaries, damage.

use super::parquet_files::of;
use super::run::{Case, Count, Error, Rows, text};
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::*;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{DictionaryHandling, FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::Schema;
use std::slice::from_ref;
use std::sync::Arc;

fn file(batches: &[RecordBatch], options: IpcWriteOptions) -> Vec<u8> {
    let mut writer = FileWriter::try_new_with_options(Vec::new(), &batches[0].schema(), options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

fn stream(batches: &[RecordBatch], options: IpcWriteOptions) -> Vec<u8> {
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batches[0].schema(), options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

pub fn cases() -> Vec<Case> {
    [forms(), dictionaries(), no_rows(), damage()].into_iter().flatten().collect()
}

fn forms() -> Vec<Case> {
    let plain = IpcWriteOptions::default;
    let strings = |values: &[Option<&str>]| of("x", Arc::new(StringArray::from(values.to_vec())));
    let one = strings(&[Some("a"), None]);
    let zstd = plain().try_with_compression(Some(CompressionType::ZSTD)).unwrap();
    let lz4 = plain().try_with_compression(Some(CompressionType::LZ4_FRAME)).unwrap();
    vec![
        text("a file", "a.arrow", file(from_ref(&one), plain()), Rows("1¦x=a§1¦x=")),
        text("a file without an extension", "a", file(from_ref(&one), plain()), Rows("1¦x=a§1¦x=")),
        text(
            "a stream",
            "a.arrows",
            stream(&[one.clone(), one.clone()], plain()),
            Rows("1¦x=a§1¦x=§1¦x=a§1¦x="),
        ),
        text("a stream called .arrow", "a.arrow", stream(from_ref(&one), plain()), Rows("1¦x=a§1¦x=")),
        text("zstd", "a.arrow", file(&[one.clone(), one.clone()], zstd), Count(4)),
        text("lz4", "a.arrow", file(&[one.clone(), one.clone()], lz4), Count(4)),
    ]
}

fn dictionaries() -> Vec<Case> {
    let plain = IpcWriteOptions::default;
    let packed = |values: &[Option<&str>]| {
        of("x", Arc::new(values.iter().copied().collect::<DictionaryArray<Int32Type>>()))
    };
    let (first, grown) = (packed(&[Some("a"), None]), packed(&[Some("a"), Some("b")]));
    let deltas = || plain().with_dictionary_handling(DictionaryHandling::Delta);
    let small = of("x", Arc::new(vec!["a", "b"].into_iter().collect::<DictionaryArray<Int8Type>>()));
    vec![
        text("a dictionary", "a.arrow", file(from_ref(&first), plain()), Rows("1¦x=a§1¦x=")),
        text("a dictionary with small keys", "a.arrow", file(&[small], plain()), Rows("1¦x=a§1¦x=b")),
        text(
            "a dictionary that grows in a file",
            "a.arrow",
            file(&[first.clone(), grown.clone()], deltas()),
            Rows("1¦x=a§1¦x=§1¦x=a§1¦x=b"),
        ),
        text(
            "a dictionary that grows in a stream",
            "a.arrows",
            stream(&[first.clone(), grown.clone()], deltas()),
            Rows("1¦x=a§1¦x=§1¦x=a§1¦x=b"),
        ),
        text(
            "a dictionary that is replaced in a stream",
            "a.arrows",
            stream(&[grown, packed(&[Some("z"), Some("a")])], plain()),
            Rows("1¦x=a§1¦x=b§1¦x=z§1¦x=a"),
        ),
    ]
}

fn no_rows() -> Vec<Case> {
    let plain = IpcWriteOptions::default;
    let strings = |values: &[Option<&str>]| of("x", Arc::new(StringArray::from(values.to_vec())));
    let one = strings(&[Some("a"), None]);
    let views =
        of("x", Arc::new(StringViewArray::from(vec![Some("a text that is longer than twelve bytes"), None])));
    let no_rows = one.slice(0, 0);
    let nothing = RecordBatch::new_empty(Arc::new(Schema::empty()));
    vec![
        text(
            "views",
            "a.arrow",
            file(&[views], plain()),
            Rows("1¦x=a text that is longer than twelve bytes§1¦x="),
        ),
        text("no rows", "a.arrow", file(from_ref(&no_rows), plain()), Error(&["no examples in it"])),
        text(
            "no rows before others",
            "a.arrow",
            file(&[no_rows.clone(), one.clone()], plain()),
            Rows("1¦x=a§1¦x="),
        ),
        text("no rows in a stream", "a.arrows", stream(&[no_rows], plain()), Error(&["no examples in it"])),
        text("no columns", "a.arrow", file(&[nothing], plain()), Error(&["a.arrow"])),
    ]
}

fn damage() -> Vec<Case> {
    let plain = IpcWriteOptions::default;
    let strings = |values: &[Option<&str>]| of("x", Arc::new(StringArray::from(values.to_vec())));
    let one = strings(&[Some("a"), None]);
    let good =
        file(&[strings(&(0..200).map(|at| Some(["p", "q", "r"][at % 3])).collect::<Vec<_>>())], plain());
    let length = good.len();
    let changed = |what: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        what(&mut bytes);
        bytes
    };
    let streamed = stream(&[one.clone(), one.clone()], plain());
    let refused = |what, name, bytes: Vec<u8>| {
        text(what, name, bytes, Error(&["cannot be read", "fetch or write the file again"]))
    };
    vec![
        text("a stream without its end", "a.arrows", &streamed[..streamed.len() - 8], Count(4)),
        refused("a stream that is torn", "a.arrows", streamed[..streamed.len() * 3 / 4].to_vec()),
        refused("a stream torn in its schema", "a.arrows", streamed[..40].to_vec()),
        refused(
            "a stream with a schema of 2 GiB",
            "a.arrows",
            [&b"\xff\xff\xff\xff\xff\xff\xff\x7f"[..], &streamed[8..]].concat(),
        ),
        refused("the magic alone", "a.arrow", b"ARROW1\0\0".to_vec()),
        refused("both magics alone", "a.arrow", b"ARROW1\0\0ARROW1".to_vec()),
        refused("the first half", "a.arrow", good[..length / 2].to_vec()),
        refused("without its last byte", "a.arrow", good[..length - 1].to_vec()),
        refused("another magic at the end", "a.arrow", changed(&|bytes| bytes[length - 1] = b'9')),
        refused(
            "a description longer than the file",
            "a.arrow",
            changed(&|bytes| bytes[length - 10..length - 6].copy_from_slice(&(length as i32).to_le_bytes())),
        ),
        refused(
            "a description of a negative length",
            "a.arrow",
            changed(&|bytes| bytes[length - 10..length - 6].fill(0xff)),
        ),
        refused(
            "a description of zeros",
            "a.arrow",
            changed(&|bytes| bytes[length - 100..length - 10].fill(0)),
        ),
        refused(
            "record batches of ones",
            "a.arrow",
            changed(&|bytes| bytes[300..length / 2 + 200].fill(0xff)),
        ),
    ]
}
