//! The frames of a cache's file, each with a checksum.
//!
//! ```text
//! head    "GANNET\0C" 8, version u32
//! frame   kind u32, length u32, CRC-32C of the content u32, content
//!         kind 1: what it is a cache of; 2: a packed block; 3: the end, with what the first pass learned
//! ```
//! Numbers are little-endian. Without the last frame a file is not whole.

use crate::limits::CACHE_FRAME_MAX;
use crate::read::error::{BadLine, BadLines};
use rkyv::rancor::Error;
use rkyv::util::AlignedVec;
use std::io::{self, Read, Write};

/// The first bytes of every version.
pub(super) const MAGIC: &[u8; 8] = b"GANNET\0C";
const VERSION: u32 = 1;
/// Bytes of the head.
pub(super) const HEAD_BYTES: u64 = 12;
/// Bytes of a frame before its content.
const FRAME_BYTES: usize = 12;

pub(super) const IDENTITY: u32 = 1;
pub(super) const BLOCK: u32 = 2;
pub(super) const END: u32 = 3;

/// What the first pass learned.
#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize, Clone, Debug, PartialEq)]
pub(super) struct EndV1 {
    /// The blocks of the file.
    pub blocks: u64,
    /// As [`next_batch`](super::packed_block::BlockEnd::next_batch) at the end of the data.
    pub next_batch: u64,
    pub data_lines: u64,
    pub bad_lines: u64,
    /// The first bad lines: file, line, text, what was expected.
    pub first_bad: Vec<(String, u64, String, String)>,
}

impl EndV1 {
    pub fn bad(&self) -> BadLines {
        let line = |(file, line, text, expected): &(String, u64, String, String)| BadLine {
            file: file.clone(),
            line: *line,
            text: text.clone(),
            expected: expected.clone(),
        };
        BadLines { count: self.bad_lines, first: self.first_bad.iter().map(line).collect() }
    }

    pub fn with_bad(self, bad: &BadLines) -> EndV1 {
        let line = |bad: &BadLine| (bad.file.clone(), bad.line, bad.text.clone(), bad.expected.clone());
        EndV1 { bad_lines: bad.count, first_bad: bad.first.iter().map(line).collect(), ..self }
    }

    pub fn bytes(&self) -> AlignedVec {
        rkyv::to_bytes::<Error>(self).unwrap_or_default()
    }

    pub fn of(bytes: &AlignedVec) -> Option<EndV1> {
        rkyv::from_bytes::<EndV1, Error>(bytes).ok()
    }
}

pub(super) fn write_head(to: &mut impl Write) -> io::Result<()> {
    to.write_all(MAGIC)?;
    to.write_all(&VERSION.to_le_bytes())
}

/// Writes a frame. Returns its bytes.
pub(super) fn write_frame(to: &mut impl Write, kind: u32, content: &[u8]) -> io::Result<u64> {
    let length = u32::try_from(content.len()).ok().filter(|length| *length <= CACHE_FRAME_MAX);
    let length = length.ok_or_else(|| io::Error::other("a batch is too large for a cache"))?;
    for number in [kind, length, crc32c::crc32c(content)] {
        to.write_all(&number.to_le_bytes())?;
    }
    to.write_all(content)?;
    Ok((FRAME_BYTES + content.len()) as u64)
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Reads the head.
///
/// # Errors
/// This is no cache, or one of another version.
pub(super) fn read_head(from: &mut impl Read) -> io::Result<()> {
    let mut head = [0; HEAD_BYTES as usize];
    from.read_exact(&mut head)?;
    match head[..8] == *MAGIC && number(&head, 8) == VERSION {
        true => Ok(()),
        false => Err(io::Error::other("it is no cache of this version")),
    }
}

/// Reads a frame into `content`. Returns its kind.
///
/// # Errors
/// The file cannot be read, is torn, or is damaged.
pub(super) fn read_frame(from: &mut impl Read, content: &mut AlignedVec) -> io::Result<u32> {
    let mut head = [0; FRAME_BYTES];
    from.read_exact(&mut head)?;
    let (kind, length, sum) = (number(&head, 0), number(&head, 4), number(&head, 8));
    if length > CACHE_FRAME_MAX {
        return Err(io::Error::other("a frame has a wrong length"));
    }
    content.clear();
    content.resize(length as usize, 0);
    from.read_exact(content)?;
    if crc32c::crc32c(content) != sum {
        return Err(io::Error::other("a checksum does not agree"));
    }
    Ok(kind)
}
