//! numpy's .npz: a zip archive of .npy files. The head of a .npy file is one line of Python with three fields (numpy's
//! NEP 1). The crates that read it bring a grammar and big integers along, so it is read here.

use crate::checkpoint::arrays::{ArrayFiles, ArrayHead, ArrayRows, dimensions, unreadable};
use crate::failure::Failure;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// The most bytes of a .npy file's head. Those of numpy have 128.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Writes an archive with both arrays, not compressed.
pub fn write(out: &File, mut arrays: ArrayFiles) -> io::Result<()> {
    let mut archive = ZipWriter::new(BufWriter::with_capacity(1 << 20, out));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
    archive.start_file("keys.npy", stored)?;
    archive.write_all(&head("<u8", &format!("({},)", arrays.rows)))?;
    io::copy(&mut arrays.keys, &mut archive)?;
    archive.start_file("values.npy", stored)?;
    archive.write_all(&head("<f4", &format!("({}, {})", arrays.rows, arrays.width)))?;
    io::copy(&mut arrays.values, &mut archive)?;
    archive.finish()?.flush()
}

/// The head of a .npy file, which ends at a multiple of 64 bytes.
fn head(dtype: &str, shape: &str) -> Vec<u8> {
    let mut text = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
    let before = MAGIC.len() + 4;
    while !(before + text.len() + 1).is_multiple_of(64) {
        text.push(' ');
    }
    text.push('\n');
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
    out
}

/// Reads both arrays. `take` gets them as streams.
pub fn read_npz<T>(
    path: &Path,
    take: impl FnOnce(ArrayRows<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let bad = |what: &str| Failure::input(format!("{}: {what}", path.display()));
    let open = || {
        let file = File::open(path).map_err(|error| unreadable(path, &error))?;
        ZipArchive::new(BufReader::with_capacity(1 << 20, file))
            .map_err(|error| bad(&format!("this is no .npz file: {error}")))
    };
    // An archive lends one member at a time.
    let (mut first, mut second) = (open()?, open()?);
    let absent = |name| {
        move |error| {
            Failure::input(format!(
                "{}: no array `{name}` ({error}): numpy.savez(file, keys=..., values=...) makes such a file",
                path.display()
            ))
        }
    };
    let mut keys = first.by_name("keys.npy").map_err(absent("keys"))?;
    let mut values = second.by_name("values.npy").map_err(absent("values"))?;
    let of_keys = read_head(&mut keys).map_err(|why| bad(&format!("`keys`: {why}")))?;
    let of_values = read_head(&mut values).map_err(|why| bad(&format!("`values`: {why}")))?;
    let (rows, width) = dimensions(path, (&of_keys, &["<u8", "<i8"]), (&of_values, "<f4"))?;
    take(ArrayRows { rows, width, keys: &mut keys, values: &mut values })
}

/// Reads the head of a .npy file.
fn read_head(from: &mut impl Read) -> Result<ArrayHead, String> {
    let mut take = |bytes: usize| {
        let mut out = vec![0; bytes];
        from.read_exact(&mut out).map_err(|error| format!("its head cannot be read: {error}")).map(|()| out)
    };
    let begin = take(8)?;
    if begin[..6] != *MAGIC {
        return Err("this is no .npy array".into());
    }
    let length = match begin[6] {
        1 => take(2)?,
        2 | 3 => take(4)?,
        version => return Err(format!("version {version} of .npy is not known")),
    };
    let length = length.iter().rev().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte));
    if length > HEAD_BYTES_MAX {
        return Err(format!("its head has {length} bytes, and at most {HEAD_BYTES_MAX} are read"));
    }
    let text = String::from_utf8_lossy(&take(length)?).into_owned();
    parse_head(&text)
}

/// The fields of a head such as `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }`.
fn parse_head(text: &str) -> Result<ArrayHead, String> {
    let after = |field: &str| {
        let quoted = format!("'{field}':");
        let at = text.find(&quoted).ok_or_else(|| format!("its head names no {field}: {}", text.trim()));
        at.map(|at| text[at + quoted.len()..].trim_start())
    };
    if !after("fortran_order")?.starts_with("False") {
        return Err("it is in Fortran's order: numpy.ascontiguousarray makes the order that is read".into());
    }
    let dtype = after("descr")?.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
    let Some((dtype, _)) = dtype else {
        return Err("its elements are records: one number each is needed".into());
    };
    let shape = after("shape")?.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let numbers = shape.map(|(inner, _)| {
        inner.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::parse::<u64>).collect()
    });
    match numbers {
        Some(Ok(shape)) => Ok(ArrayHead { dtype: dtype.into(), shape }),
        _ => Err(format!("its shape cannot be read: {}", text.trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_those_of_numpy() {
        // numpy.lib.format.write_array_header_1_0 of zeros((3, 2), float32).
        let bytes = head("<f4", "(3, 2)");
        assert_eq!((bytes.len(), &bytes[..10]), (128, &b"\x93NUMPY\x01\x00v\x00"[..]));
        let read = read_head(&mut &bytes[..]).unwrap();
        assert_eq!(read, ArrayHead { dtype: "<f4".into(), shape: vec![3, 2] });
        let read = read_head(&mut &head("<u8", "(7,)")[..]).unwrap();
        assert_eq!(read, ArrayHead { dtype: "<u8".into(), shape: vec![7] });
    }

    #[test]
    fn other_heads_are_refused_by_name() {
        for (text, words) in [
            ("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }", "Fortran"),
            ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", "records"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }", "shape"),
            ("{'descr': '<f4', 'fortran_order': False}", "names no shape"),
            ("", "names no"),
        ] {
            let error = parse_head(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        let good = head("<f4", "(3, 2)");
        for length in 0..good.len() {
            read_head(&mut &good[..length]).unwrap_err();
        }
        read_head(&mut &[b"\x93NUMPY\x02\x00\xff\xff\xff\xff", &good[..]].concat()[..]).unwrap_err();
    }
}
