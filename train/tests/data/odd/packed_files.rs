//! Packed files: torn, damaged, misnamed.

use super::run::{Case, Count, Error, Rows, text};
use std::io::Write;

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn zst(bytes: &[u8]) -> Vec<u8> {
    let mut packer = zstd::Encoder::new(Vec::new(), 1).unwrap();
    packer.include_checksum(true).unwrap();
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn changed(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    bytes[at] ^= 0x55;
    bytes
}

fn lines() -> String {
    (0..5000u64).map(|at| format!("{} {}:1 {}:0.5\n", at % 2, at * at % 9973, 10_000 + at % 77)).collect()
}

pub fn cases() -> Vec<Case> {
    [of_gzip(), of_zstd(), others()].into_iter().flatten().collect()
}

fn of_gzip() -> Vec<Case> {
    let gz = gzip(lines().as_bytes());
    let half = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
    let part = |bytes: &[u8], cut: usize| bytes[..bytes.len() - cut].to_vec();
    let two = |one: &[u8]| [one, one].concat();
    vec![
        text("gzip", "a.svm.gz", &gz, Count(5000)),
        text("gzip under another name", "a.svm", &gz, Count(5000)),
        text("two members of gzip", "a.svm.gz", two(&gz), Count(10_000)),
        text("gzip within gzip", "a.svm.gz", gzip(&gzip(b"1 1:1\n")), Error(&[":1: "])),
        text("gzip that is torn", "a.svm.gz", half(&gz), Error(&["gzip stream is truncated at its byte"])),
        text("gzip without its checksum", "a.svm.gz", part(&gz, 8), Error(&["gzip stream is truncated"])),
        text("gzip without its last byte", "a.svm.gz", part(&gz, 1), Error(&["gzip stream is truncated"])),
        text(
            "gzip with a wrong checksum",
            "a.svm.gz",
            changed(gz.clone(), gz.len() - 6),
            Error(&["gzip stream is damaged"]),
        ),
        text("gzip with a changed byte", "a.svm.gz", changed(gz.clone(), gz.len() / 2), Error(&["a.svm.gz"])),
        text("garbage behind gzip", "a.svm.gz", [&gz[..], b"garbage"].concat(), Error(&["gzip stream"])),
        text("an empty file called .gz", "a.svm.gz", "", Error(&["no examples in it"])),
        text("gzip of nothing", "a.svm.gz", gzip(b""), Error(&["no examples in it"])),
        text("text called .gz", "a.svm.gz", "1 1:1\n", Error(&["the name says gzip"])),
        text("the head of gzip alone", "a.svm.gz", &gz[..5], Error(&["gzip stream is truncated"])),
    ]
}

fn of_zstd() -> Vec<Case> {
    let zs = zst(lines().as_bytes());
    let half = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
    let part = |bytes: &[u8], cut: usize| bytes[..bytes.len() - cut].to_vec();
    let two = |one: &[u8]| [one, one].concat();
    let skipped = [b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc".to_vec(), zst(b"1 1:1\n")].concat();
    vec![
        text("zstd", "a.svm.zst", &zs, Count(5000)),
        text("zstd under another name", "a", &zs, Count(5000)),
        text("two frames of zstd", "a.svm.zst", two(&zs), Count(10_000)),
        text("a frame of zstd that is skipped", "a.svm.zst", skipped, Rows("1¦1:1")),
        text("zstd that is torn", "a.svm.zst", half(&zs), Error(&["zstd stream is truncated at its byte"])),
        text("zstd without its last byte", "a.svm.zst", part(&zs, 1), Error(&["zstd stream is truncated"])),
        text(
            "zstd with a wrong checksum",
            "a.svm.zst",
            changed(zs.clone(), zs.len() - 2),
            Error(&["zstd stream is damaged"]),
        ),
        text(
            "zstd with a changed byte",
            "a.svm.zst",
            changed(zs.clone(), zs.len() / 2),
            Error(&["zstd stream is damaged"]),
        ),
        text("garbage behind zstd", "a.svm.zst", [&zs[..], b"garbage!"].concat(), Error(&["zstd stream"])),
        text("text called .zst", "a.svm.zst", "1 1:1\n", Error(&["the name says zstd"])),
    ]
}

fn others() -> Vec<Case> {
    let gz = gzip(lines().as_bytes());
    let part = |bytes: &[u8], cut: usize| bytes[..bytes.len() - cut].to_vec();
    vec![
        text("gzip called .zst", "a.svm.zst", &gz, Error(&["the name says zstd"])),
        text("xz", "a.svm.xz", b"\xfd7zXZ\0\0\x04", Error(&["packed by xz", "gzip or zstd"])),
        text("bzip2", "a.svm.bz2", b"BZh91AY&SYxxxx", Error(&["packed by bzip2"])),
        text("zip", "a.svm.zip", b"PK\x03\x04\x14\0\0\0", Error(&["a zip archive"])),
        text("lz4", "a.svm.lz4", b"\x04\x22\x4d\x18\x64\x40", Error(&["packed by lz4"])),
        text("JSON lines in gzip", "a.jsonl.gz", gzip(b"{\"label\":1,\"a\":\"x\"}\n"), Rows("1¦a=x")),
        text(
            "CSV in zstd, torn in a record",
            "a.csv.zst",
            part(&zst(b"label,x\n1,a\n0,\"b"), 3),
            Error(&["zstd stream is truncated"]),
        ),
        text(
            "a bomb of gzip",
            "a.svm.gz",
            gzip(&vec![b'1'; 64 << 20]),
            Error(&[":1: the line is longer than"]),
        ),
        text(
            "a bomb of zstd",
            "a.svm.zst",
            zst(&vec![b'1'; 64 << 20]),
            Error(&[":1: the line is longer than"]),
        ),
    ]
}
