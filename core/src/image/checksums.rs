//! Checksums of the chunks of an image, in a file beside it. A server that stops in order writes them. The next one
//! checks the image against them before it serves. While an image is open, the file says which chunks have changed, so
//! after a kill the others are still checked. docs/image.md has the bytes.

use crate::image::layout::*;
use crate::limits::CHUNK_BYTES;
use crate::own_files;
use rustix::fs::{SeekFrom, seek};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What the file begins with, in all versions.
pub(crate) const BEGINNING: &[u8] = b"GNTSUMS";
const MAGIC: [u8; 8] = *b"GNTSUMS1";
/// Bytes before the sums: the magic, the checksum of birth and sums, their number, the birth, the last incarnation.
const HEAD: usize = 32;
/// Where the last incarnation is whose changes the file knows. The checksum leaves it out, because it changes.
const COVERED: u64 = 24;
/// In that word: the incarnation has begun to change the image.
const BEGUN: u64 = 1 << 63;
/// Words of the header that change when the image is closed and opened.
const STATE: std::ops::Range<usize> = CLEAN..COMMIT;
const PAGE: usize = 4096;
/// The most bytes of the file: that of an image of 100 TiB.
const BYTES_MAX: u64 = 256 << 20;

/// The path of the checksums of an image.
pub(crate) fn path_of(image: &Path) -> PathBuf {
    image.with_extension("sums")
}

/// The checksums of an image that is open, which notes what changes.
pub(crate) struct Checksums {
    file: File,
    sums: Vec<u32>,
    /// The chunks of the file that have changed since.
    dirty: Vec<bool>,
    /// The chunks of rows that are noted.
    rows: Vec<bool>,
    /// Whether the index is noted.
    index: bool,
    birth: u64,
    /// The incarnations up to this one note what they change.
    covered: u64,
}

impl Checksums {
    /// The checksums beside an image. `None` if there are none, or none that can be read: nothing can be checked then.
    pub(crate) fn load(image: &Path) -> Option<Checksums> {
        let path = path_of(image);
        if std::fs::metadata(&path).is_ok_and(|there| there.len() > BYTES_MAX) {
            return None;
        }
        let bytes = own_files::read_whole(&path).ok()??;
        let file = own_files::open_or_make(&path).ok()?;
        let number =
            |at: usize| bytes.get(at..at + 4).map(|b| u32::from_le_bytes(b.try_into().unwrap_or_default()));
        let long =
            |at: usize| bytes.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default()));
        let (crc, count, birth, covered) =
            (number(8)?, number(12)? as usize, long(16)?, long(COVERED as usize)?);
        let whole = HEAD.checked_add(count.checked_mul(5)?)?;
        if bytes[..8] != MAGIC || bytes.len() != whole {
            return None;
        }
        let (sums, dirty) = bytes[HEAD..].split_at(4 * count);
        if crc32c::crc32c_append(crc32c::crc32c(&bytes[12..COVERED as usize]), sums) != crc {
            return None;
        }
        let sums = sums.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap_or_default()));
        let (sums, dirty) = (sums.collect(), dirty.iter().map(|&byte| byte != 0).collect());
        Some(Checksums { file, sums, dirty, rows: Vec::new(), index: false, birth, covered })
    }

    /// Whether the checksums are of this image, and every life of it since has noted what it changed. `closed`: the
    /// image was closed in order. Its checksums were written at that time, or they are lost: a power loss can bring
    /// back older ones.
    pub(crate) fn are_of(&self, birth: u64, incarnation: u64, closed: bool) -> bool {
        let is_of = match closed {
            true => self.covered == incarnation,
            false => self.covered & BEGUN != 0 && incarnation <= self.covered & !BEGUN,
        };
        self.birth == birth && is_of
    }

    /// Notes that the image has another life from now on. Called before anything in the image changes.
    pub(crate) fn begin_life(&mut self, incarnation: u64) -> io::Result<()> {
        self.covered = incarnation | BEGUN;
        self.file.write_all_at(&self.covered.to_le_bytes(), COVERED)?;
        self.note(0); // the header changes at once
        Ok(())
    }

    fn dirty_at(&self, chunk: usize) -> u64 {
        (HEAD + 4 * self.sums.len() + chunk) as u64
    }

    /// Notes that a chunk of rows changes, before it does. `in_file`: which chunk of the file that is.
    pub(crate) fn note_rows(&mut self, chunk: usize, in_file: impl FnOnce() -> Option<usize>) {
        if self.rows.get(chunk) == Some(&true) {
            return;
        }
        if let Some(in_file) = in_file() {
            self.note(in_file);
            self.rows.resize(self.rows.len().max(chunk + 1), false);
            self.rows[chunk] = true;
        }
    }

    /// Notes that the index changes, before it does: all of it, because new keys go anywhere.
    pub(crate) fn note_index(&mut self, in_file: impl FnOnce() -> Vec<usize>) {
        if !self.index {
            in_file().into_iter().for_each(|chunk| self.note(chunk));
            self.index = true;
        }
    }

    /// Notes that a chunk of the file changes, before it does.
    fn note(&mut self, chunk: usize) {
        if self.dirty.get(chunk) != Some(&false) {
            return;
        }
        self.dirty[chunk] = true;
        if let Err(error) = self.file.write_all_at(&[1], self.dirty_at(chunk)) {
            tracing::warn!(%error, "the checksums of an image cannot be written: it is not checked after a kill");
            // Without its end the file is none. Its beginning still says whose it is.
            if let Err(error) = self.file.set_len(BEGINNING.len() as u64) {
                tracing::error!(%error, "the checksums cannot be given up: after a kill, start with --no-verify");
            }
            self.dirty.fill(true);
        }
    }
}

/// Writes the checksums of an image that was closed in order in this incarnation.
/// `chunks`: those of the file that the image uses. A kill may have left others behind them, which a later life takes.
pub(crate) fn write_checksums(
    image: &File,
    path: &Path,
    birth: u64,
    incarnation: u64,
    chunks: usize,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    let sums =
        (0..chunks).map(|chunk| sum_of(image, chunk, &mut buffer)).collect::<io::Result<Vec<u32>>>()?;
    let sums: Vec<u8> = sums.into_iter().flat_map(u32::to_le_bytes).collect();
    let mut bytes = vec![0; HEAD];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[12..16].copy_from_slice(&(chunks as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&birth.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[12..COVERED as usize]), &sums);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes[COVERED as usize..HEAD].copy_from_slice(&incarnation.to_le_bytes());
    bytes.extend(sums);
    bytes.resize(bytes.len() + chunks, 0);
    // After a power loss the file may be torn. Its checksum tells that, and nothing is checked then.
    own_files::replace_unsynced(&path_of(path), BEGINNING, &bytes)
}

/// The checksum of a chunk of a file. A page of zeros and a page without file space are the same, because a copy of the
/// file may turn one into the other.
fn sum_of(image: &File, chunk: usize, buffer: &mut Vec<u8>) -> io::Result<u32> {
    let (mut at, end) = (chunk * CHUNK_BYTES, (chunk + 1) * CHUNK_BYTES);
    let mut sum = 0;
    while at < end {
        let data = match seek(image, SeekFrom::Data(at as u64)) {
            Err(rustix::io::Errno::NXIO) => break,
            Err(rustix::io::Errno::INVAL) => at as u64, // this filesystem does not know
            data => data?,
        };
        let from = data as usize / PAGE * PAGE;
        if from >= end {
            break;
        }
        let hole = seek(image, SeekFrom::Hole(data)).map_or(end, |hole| hole as usize);
        let to = hole.next_multiple_of(PAGE).min(end).max(from + PAGE);
        read_part(image, from, to - from, buffer)?;
        if from == 0 {
            buffer[STATE].fill(0);
        }
        for (place, page) in (from / PAGE..).zip(buffer.chunks(PAGE)) {
            if page.iter().any(|&byte| byte != 0) {
                sum = crc32c::crc32c_append(sum, &(place as u64).to_le_bytes());
                sum = crc32c::crc32c_append(sum, page);
            }
        }
        at = to;
    }
    Ok(sum)
}

/// Reads a piece of a file, with zeros behind its end.
fn read_part(file: &File, at: usize, bytes: usize, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    buffer.resize(bytes, 0);
    let mut got = 0;
    while got < bytes {
        match file.read_at(&mut buffer[got..], (at + got) as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What a check of an image has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    /// Chunks that have their checksum.
    pub(crate) good: u64,
    /// Chunks that nobody can check: they have no checksum, or have changed since the image was last closed in order.
    pub(crate) unknown: u64,
    /// The first chunk whose checksum is wrong.
    pub(crate) damaged: Option<u64>,
    /// The image was closed in order, and its checksums are gone or damaged.
    pub(crate) is_without: bool,
}

/// Checks an image that is not open against its checksums. `go_on` gets the bytes of each chunk, and says whether to go
/// on.
pub(crate) fn check_checksums(path: &Path, go_on: &mut dyn FnMut(u64) -> bool) -> io::Result<Checked> {
    let image = own_files::open_regular(path)?;
    let mut head = Vec::new();
    read_part(&image, 0, HEAD_PAGE_BYTES, &mut head)?;
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
    let mut buffer = Vec::new();
    let chunks = image.metadata()?.len().div_ceil(CHUNK_BYTES as u64);
    let closed = word(CLEAN) == CLOSED_IN_ORDER;
    let sums = Checksums::load(path).filter(|sums| sums.are_of(word(HEAD_BIRTH), word(INCARNATION), closed));
    let Some(sums) = sums else {
        return Ok(Checked { unknown: chunks, is_without: closed, ..Checked::default() });
    };
    let mut found = Checked { unknown: chunks.saturating_sub(sums.sums.len() as u64), ..Checked::default() };
    for (chunk, wanted) in sums.sums.iter().enumerate() {
        if sums.dirty[chunk] {
            found.unknown += 1;
        } else if sum_of(&image, chunk, &mut buffer)? == *wanted {
            found.good += 1;
        } else {
            found.damaged = Some(chunk as u64);
            break;
        }
        if !go_on(CHUNK_BYTES as u64) {
            break;
        }
    }
    Ok(found)
}
