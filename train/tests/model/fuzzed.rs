//! The entries of the readers' fuzz targets (fuzz/fuzz_targets). The readers must read any bytes without a panic,
//! with the result of the plain way, however the bytes are cut into chunks.
#![allow(dead_code)] // each target uses its part

use crate::plain::{self, Line, Plain, Role};
use gannet_train::{Block, ColumnChoice, Counts, CsvForm, Data, Format, ReadError, Reader, Share};
use std::io::{self, Read, Write};

/// Bytes in chunks of these sizes, again and again.
pub struct ByteChunks {
    bytes: Vec<u8>,
    at: usize,
    sizes: Vec<usize>,
    next: usize,
}

impl ByteChunks {
    pub fn new(bytes: &[u8], sizes: &[usize]) -> ByteChunks {
        ByteChunks { bytes: bytes.to_vec(), at: 0, sizes: sizes.to_vec(), next: 0 }
    }
}

impl Read for ByteChunks {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes[self.next % self.sizes.len()].max(1);
        self.next += 1;
        let n = size.min(out.len()).min(self.bytes.len() - self.at);
        out[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

/// The examples that a reader finds, and the number of lines it skipped.
pub fn read(
    data: &Data,
    bytes: impl Read + Send + 'static,
    batch: usize,
) -> Result<(Vec<Plain>, u64), ReadError> {
    let mut reader = Reader::over(data, Box::new(bytes), batch, Share::ALL)?;
    let (mut block, mut rows) = (Block::default(), Vec::new());
    loop {
        match reader.next(&mut block) {
            Ok(true) => {}
            // Lines without an example are compared like others.
            Ok(false) | Err(ReadError::NoExample { .. }) => return Ok((rows, reader.bad_lines().count)),
            Err(error) => return Err(error),
        }
        for i in 0..block.len() {
            let features = block.range(i).map(|j| (block.keys[j], block.values[j])).collect();
            rows.push((block.labels[i], [block.importance(i), block.base(i)], features));
        }
    }
}

/// Compares bit for bit, so that NaN labels are equal too.
pub fn same(a: &[Plain], b: &[Plain]) -> bool {
    let bits = |rows: &[Plain]| {
        let row = |(y, w, f): &Plain| {
            (y.to_bits(), w.map(f32::to_bits), f.iter().map(|(k, v)| (*k, v.to_bits())).collect::<Vec<_>>())
        };
        rows.iter().map(row).collect::<Vec<_>>()
    };
    bits(a) == bits(b)
}

/// The first bytes choose the sizes of the chunks, the batch size, and whether labels are needed.
struct Choices<'a> {
    sizes: Vec<usize>,
    batch: usize,
    flag: bool,
    other: bool,
    rest: &'a [u8],
}

fn choices(bytes: &[u8]) -> Option<Choices<'_>> {
    let (&[a, b, c, d], rest) = bytes.split_first_chunk()?;
    let sizes = vec![usize::from(a) + 1, usize::from(b) + 1];
    Some(Choices { sizes, batch: usize::from(c) + 1, flag: d & 1 == 1, other: d & 2 == 2, rest })
}

/// Reads `text` with the reader and in the plain way. Both skip every bad line.
fn check(data: Data, text: &[u8], sizes: &[usize], batch: usize, line: impl Fn(&[u8]) -> Line) {
    let data = Data { skip_bad_lines: u64::MAX, ..data };
    let (mut want, wrong) = plain::all(text, data.csv.delimiter, line);
    let mixed = plain::settle(&mut want);
    match read(&data, ByteChunks::new(text, sizes), batch) {
        Ok((rows, skipped)) => {
            assert!(!mixed, "mixed: {:?}", String::from_utf8_lossy(text));
            assert_eq!(skipped, wrong, "bad lines of {:?}", String::from_utf8_lossy(text));
            assert!(same(&rows, &want), "{:?}: {rows:?} is not {want:?}", String::from_utf8_lossy(text));
        }
        Err(ReadError::MixedLabels { .. }) => {
            assert!(mixed, "not mixed: {:?}", String::from_utf8_lossy(text))
        }
        Err(ReadError::OldMac { .. }) => {
            let bare = text.windows(2).any(|pair| pair[0] == b'\r' && pair[1] != b'\n');
            assert!(bare || text.ends_with(b"\r"), "no CR alone: {text:?}");
        }
        Err(ReadError::Empty { .. }) => assert!(want.is_empty() && wrong == 0, "not empty: {text:?}"),
        Err(error) => panic!("{error}: {:?}", String::from_utf8_lossy(text)),
    }
}

fn data(format: Format, unlabelled: bool) -> Data {
    Data { format, unlabelled, ..Data::new("fuzzed") }
}

/// An empty first line keeps the bytes from looking like a packed file.
fn after_a_line(first: &[u8], rest: &[u8]) -> Vec<u8> {
    [first, b"\n", rest].concat()
}

pub fn libsvm(bytes: &[u8]) {
    let Some(Choices { sizes, batch, flag, rest, .. }) = choices(bytes) else { return };
    let text = after_a_line(b"", rest);
    check(data(Format::Libsvm, flag), &text, &sizes, batch, |l| plain::libsvm(l, flag));
}

pub fn vw(bytes: &[u8]) {
    let Some(Choices { sizes, batch, flag, rest, .. }) = choices(bytes) else { return };
    let text = after_a_line(b"", rest);
    check(data(Format::Vw, flag), &text, &sizes, batch, |l| plain::vw(l, flag));
}

pub fn libffm(bytes: &[u8]) {
    let Some(Choices { sizes, batch, flag, rest, .. }) = choices(bytes) else { return };
    let text = after_a_line(b"", rest);
    check(data(Format::Libffm, flag), &text, &sizes, batch, |l| plain::libffm(l, flag));
}

/// Reads text in chunks of these sizes and as a whole, with the same result.
fn read_twice(data: &Data, text: &[u8], sizes: &[usize], batch: usize) {
    let got = [sizes, &[usize::MAX]].map(|sizes| read(data, ByteChunks::new(text, sizes), batch));
    match &got {
        [Ok((a, skipped)), Ok((b, also))] => assert!(same(a, b) && skipped == also),
        [Err(a), Err(b)] => assert_eq!(a.to_string(), b.to_string()),
        other => panic!("{other:?}"),
    }
}

/// vw's JSON lines of any bytes. All numbers that are read are finite.
pub fn vw_json(bytes: &[u8]) {
    let Some(Choices { sizes, batch, flag, rest, .. }) = choices(bytes) else { return };
    let data = Data { skip_bad_lines: u64::MAX, ..data(Format::VwJson, flag) };
    let text = after_a_line(b"", rest);
    read_twice(&data, &text, &sizes, batch);
    if let Ok((rows, _)) = read(&data, ByteChunks::new(&text, &[usize::MAX]), batch) {
        let numbers = rows.iter().flat_map(|(_, head, features)| {
            head.iter().copied().chain(features.iter().map(|feature| feature.1))
        });
        assert!(numbers.into_iter().all(f32::is_finite), "{:?}", String::from_utf8_lossy(&text));
    }
}

/// A line of JSON is read only if another parser takes it for an object; what is refused as no JSON is none.
pub fn json(bytes: &[u8]) {
    let Some(Choices { sizes, batch, flag, rest, .. }) = choices(bytes) else { return };
    let data = Data { skip_bad_lines: u64::MAX, ..data(Format::Json, flag) };
    let text = after_a_line(b"", rest);
    read_twice(&data, &text, &sizes, batch);
    let strict = Data { skip_bad_lines: 0, ..data };
    for line in plain::lines(&text).into_iter().filter(|line| !line.trim_ascii().is_empty()) {
        let other = serde_json::from_slice::<serde_json::Value>(line);
        let line_of = || String::from_utf8_lossy(line).into_owned();
        // A line that is read alone may look like a packed file.
        match read(&strict, ByteChunks::new(&after_a_line(b"", line), &[usize::MAX]), 1) {
            Ok(_) => match &other {
                Ok(value) => assert!(value.is_object(), "{}", line_of()),
                // Numbers are read as text.
                Err(error) => assert!(error.to_string().contains("out of range"), "{error}: {}", line_of()),
            },
            Err(error) if error.to_string().contains("expected a JSON object") => {
                assert!(!other.is_ok_and(|value| value.is_object()), "{error}: {}", line_of());
            }
            Err(_) => {}
        }
    }
}

pub fn criteo(bytes: &[u8]) {
    let Some(Choices { sizes, batch, flag, other, rest }) = choices(bytes) else { return };
    let (text, counts) = (after_a_line(b"", rest), if other { Counts::Log } else { Counts::Buckets });
    let data = Data { counts, ..data(Format::Criteo, flag) };
    check(data, &text, &sizes, batch, |l| plain::criteo(l, flag, counts));
}

/// Rows under a known header; and a header of any bytes, which must be read or refused in the same way in any chunks.
pub fn csv(bytes: &[u8]) {
    let Some(Choices { sizes, batch, flag: tabs, other: any_header, rest }) = choices(bytes) else { return };
    let d = if tabs { "\t" } else { "," };
    if any_header {
        let data = Data { skip_bad_lines: u64::MAX, ..data(Format::Csv, tabs) };
        let text = after_a_line(b"", rest);
        let got = [&sizes[..], &[usize::MAX]].map(|sizes| read(&data, ByteChunks::new(&text, sizes), batch));
        match &got {
            [Ok((a, skipped)), Ok((b, also))] => assert!(same(a, b) && skipped == also),
            [Err(a), Err(b)] => assert_eq!(a.to_string(), b.to_string()),
            other => panic!("{other:?}"),
        }
        return;
    }
    let columns = [
        ("label", Role::Label),
        ("a", Role::Categorical),
        ("n", Role::Numeric),
        ("not", Role::Skipped),
        ("b", Role::Both),
    ];
    let header = columns.map(|c| c.0).join(d);
    let text = after_a_line(header.as_bytes(), rest);
    let choice = ColumnChoice {
        label: None,
        categorical: vec!["a".into()],
        numeric: vec!["n".into()],
        both: vec!["b".into()],
        ..ColumnChoice::default()
    };
    let csv = CsvForm { delimiter: Some(d.as_bytes()[0]), names: None };
    let data = Data { columns: choice, csv, ..data(Format::Csv, false) };
    check(data, &text, &sizes, batch, |line| {
        if line == header.as_bytes() && std::ptr::eq(line.as_ptr(), text.as_ptr()) {
            return None;
        }
        plain::csv(line, d.as_bytes()[0], &columns)
    });
}

/// Packed bytes. Packed members unpack to the original. Cut or changed ones are refused and never read as complete.
/// Any other bytes give the same result in any chunks.
pub fn packed(bytes: &[u8]) {
    let Some(Choices { sizes, batch, flag: gzip, other: valid, rest }) = choices(bytes) else { return };
    let data = Data { skip_bad_lines: u64::MAX, ..data(Format::Libsvm, false) };
    let read = |bytes: &[u8], sizes: &[usize]| read(&data, ByteChunks::new(bytes, sizes), batch);
    if !valid {
        let magic: &[u8] = if gzip { b"\x1f\x8b\x08\0\0\0\0\0\0\x03" } else { b"\x28\xb5\x2f\xfd" };
        let any = [magic, rest].concat();
        match (read(&any, &sizes), read(&any, &[usize::MAX])) {
            (Ok((a, skipped)), Ok((b, also))) => assert!(same(&a, &b) && skipped == also),
            (Err(a), Err(b)) => {
                assert_eq!(std::mem::discriminant(&a), std::mem::discriminant(&b), "{a} / {b}")
            }
            other => panic!("{other:?}"),
        }
        return;
    }
    let text = after_a_line(b"1 7", rest);
    let cut = sizes[0] * text.len() / 257;
    let (front, back) = text.split_at(cut);
    let pack = if gzip { pack_gzip } else { pack_zst };
    let members = [pack(front), pack(back)];
    let whole = members.concat();
    let (mut want, wrong) = plain::all(&text, None, |l| plain::libsvm(l, false));
    if plain::settle(&mut want) {
        assert!(matches!(read(&whole, &sizes), Err(ReadError::MixedLabels { .. })), "a mixture of labels");
        return;
    }
    let (rows, skipped) = read(&whole, &sizes).expect("a whole file");
    assert!(same(&rows, &want) && skipped == wrong);
    // Cut anywhere but between the two members, the file is truncated.
    let end = sizes[1] * whole.len() / 257;
    if end > 3 && end < whole.len() && end != members[0].len() {
        assert!(matches!(read(&whole[..end], &sizes), Err(ReadError::Truncated { .. })), "cut at {end}");
    }
}

fn pack_gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).expect("memory takes all");
    packer.finish().expect("memory takes all")
}

fn pack_zst(bytes: &[u8]) -> Vec<u8> {
    let mut packer = zstd::Encoder::new(Vec::new(), 1).expect("a level that is there");
    packer.include_checksum(true).expect("it can");
    packer.write_all(bytes).expect("memory takes all");
    packer.finish().expect("memory takes all")
}
