//! Unpacks gzip and zstd, also files of several members or frames. It recognises them by their first bytes, under any
//! file name. Files that are packed in another way, or are not text, are an error that says what they are.

use crate::read::bytes::stop_flag::StopFlag;
use crate::read::bytes::stream::Stream;
use crate::read::error::ReadError;
use flate2::bufread::MultiGzDecoder;
use std::io::{self, Read};

/// The plain bytes of a stream.
pub(crate) enum Decompressed {
    Plain(Stream),
    /// There are no more bytes: the text was in memory.
    Nothing,
    Gzip(Box<MultiGzDecoder<Stream>>),
    Zstd(Box<zstd::Decoder<'static, Stream>>),
}

const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// A frame of zstd that readers skip. Its first byte is one of sixteen values.
const ZSTD_SKIPPED: &[u8] = b"?\x2a\x4d\x18";

/// First bytes of files that cannot be read, what these files are, and what to do.
const UNREADABLE: [(&[u8], &str, &str); 8] = [
    (b"\xfd7zXZ\0", "packed by xz", REPACK),
    (b"BZh?1AY&SY", "packed by bzip2", REPACK),
    (b"PK\x03\x04", "a zip archive", REPACK),
    (b"\x04\x22\x4d\x18", "packed by lz4", REPACK),
    (b"PAR1\x15", "a Parquet file", TABLES),
    (b"ARROW1\0\0", "an Arrow file", TABLES),
    (b"\xff\xfe", "UTF-16 text", "save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text", "save it as UTF-8"),
];
const TABLES: &str = if cfg!(feature = "parquet") {
    "it must be a regular file, and all files must be such"
} else {
    "this gannet was built without Parquet: `cargo install --locked --path cli` builds one that reads it"
};
const UNPACK: &str = "packed as a whole it cannot be read: unpack it";
const REPACK: &str = "unpack it, or pack it with gzip or zstd";

/// Whether a file with these first bytes is packed, and so can be read from its beginning only.
pub(crate) fn is_packed(head: &[u8]) -> bool {
    [GZIP, ZSTD, ZSTD_SKIPPED].iter().any(|first| head.len() >= first.len() && agree(first, head))
}

impl Decompressed {
    /// Recognises the packing of `file` by the first bytes.
    pub fn new(file: &str, mut stream: Stream, stop: &StopFlag) -> Result<Decompressed, ReadError> {
        let io = |source| failed_io(file, source, stop);
        let known = || UNREADABLE.iter().map(|s| s.0).chain([GZIP, ZSTD, ZSTD_SKIPPED]);
        let too_few = |head: &[u8]| known().any(|first| head.len() < first.len() && agree(first, head));
        let head = stream.head(too_few).map_err(io)?;
        let is = |first: &[u8]| head.len() >= first.len() && agree(first, head);
        let gzip = is(GZIP);
        let zstd = is(ZSTD) || (is(ZSTD_SKIPPED) && head[0] & 0xf0 == 0x50);
        let unreadable = UNREADABLE.iter().find(|s| is(s.0));
        if let Some((_, what, remedy)) = unreadable {
            return Err(ReadError::NotText { file: file.to_owned(), what, remedy });
        }
        for (extension, packing, is) in [(".gz", "gzip", gzip), (".zst", "zstd", zstd)] {
            if file.ends_with(extension) && !is && !head.is_empty() {
                return Err(ReadError::NotPacked { file: file.to_owned(), packing });
            }
        }
        Ok(if gzip {
            Decompressed::Gzip(Box::new(MultiGzDecoder::new(stream)))
        } else if zstd {
            Decompressed::Zstd(Box::new(zstd::Decoder::with_buffer(stream).map_err(io)?))
        } else {
            Decompressed::Plain(stream)
        })
    }

    /// The error if the unpacked bytes begin a table in a binary file.
    pub fn table_inside(&self, file: &str, head: &[u8]) -> Option<ReadError> {
        if matches!(self, Decompressed::Plain(_) | Decompressed::Nothing) {
            return None;
        }
        let mut tables = UNREADABLE.iter().filter(|(_, _, remedy)| *remedy == TABLES);
        let (_, what, _) = tables.find(|(first, ..)| head.starts_with(first))?;
        Some(ReadError::NotText { file: file.to_owned(), what, remedy: UNPACK })
    }

    /// The error of a failed read, after `bytes` unpacked bytes.
    #[cold]
    pub fn failed(&self, file: &str, bytes: u64, source: io::Error, stop: &StopFlag) -> ReadError {
        let (packing, at) = match self {
            Decompressed::Plain(_) | Decompressed::Nothing => return failed_io(file, source, stop),
            Decompressed::Gzip(decoder) => ("gzip", decoder.get_ref().consumed()),
            Decompressed::Zstd(decoder) => ("zstd", decoder.get_ref().consumed()),
        };
        if stop.is_set() || source.raw_os_error().is_some() {
            return failed_io(file, source, stop);
        }
        let file = file.to_owned();
        match source.kind() {
            io::ErrorKind::UnexpectedEof => ReadError::Truncated { file, packing, at, bytes },
            _ => ReadError::Damaged { file, packing, at, bytes, why: source.to_string() },
        }
    }
}

impl Read for Decompressed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Decompressed::Plain(stream) => stream.read(out),
            Decompressed::Nothing => Ok(0),
            Decompressed::Gzip(decoder) => decoder.read(out),
            Decompressed::Zstd(decoder) => decoder.read(out),
        }
    }
}

/// Whether the common length of both agrees. A `?` of `first` matches any byte.
fn agree(first: &[u8], bytes: &[u8]) -> bool {
    first.iter().zip(bytes).all(|(&a, &b)| a == b || a == b'?')
}

fn failed_io(file: &str, source: io::Error, stop: &StopFlag) -> ReadError {
    if stop.is_set() { ReadError::Stopped { file: file.to_owned() } } else { ReadError::io(file, source) }
}
