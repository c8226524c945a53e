//! A pass over cached blocks, and the choice between reading and writing a cache.

use crate::limits::CHUNK_BYTES;
use crate::read::block::Block;
use crate::read::bytes::stream::ReadPosition;
use crate::read::cache::cache_file::{BLOCK, END, EndV1, IDENTITY, read_frame, read_head};
use crate::read::cache::packed_block::{BlockEnd, unpack};
use crate::read::cache::place::{Cache, CacheIdentity, identity};
use crate::read::cache::writer::CacheWriter;
use crate::read::data::{Data, Share};
use crate::read::error::BadLines;
use rkyv::util::AlignedVec;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What a pass does with the cache.
pub(crate) enum CacheUse {
    Read(Box<CachePass>),
    Write(Box<CacheWriter>),
}

impl CacheUse {
    /// Opens the cache of this data, or begins to write it. `None`: it cannot be used.
    pub fn begin(data: &Data, batch: usize, share: Share) -> Option<CacheUse> {
        let cache = data.cache.as_ref().filter(|cache| !cache.is_off())?;
        let CacheIdentity { text: identity, bytes } = identity(data, batch, share)?;
        let path = cache.path(data, share);
        match CachePass::open(cache, &identity, path.clone(), bytes) {
            Ok(Some(pass)) => return Some(CacheUse::Read(Box::new(pass))),
            Ok(None) => {}
            Err(error) => warn_of_damage(&path, &error),
        }
        match CacheWriter::begin(cache, identity, path) {
            Ok(writer) => Some(CacheUse::Write(Box::new(writer))),
            Err(error) => {
                tracing::warn!("no cache of the data is kept, so later passes parse it again: {error}");
                cache.give_up();
                None
            }
        }
    }
}

fn warn_of_damage(path: &std::path::Path, error: &io::Error) {
    tracing::warn!("the cache {} is damaged and is made anew: {error}", path.display());
}

/// One pass over a cache.
pub(crate) struct CachePass {
    cache: Cache,
    path: PathBuf,
    input: BufReader<FromStart>,
    frame: AlignedVec,
    end: BlockEnd,
    blocks: u64,
    bad: BadLines,
    position: ReadPosition,
    over: bool,
}

/// A file that several passes read, each from its start.
struct FromStart {
    file: Arc<File>,
    at: u64,
    bytes: u64,
    position: ReadPosition,
}

impl Read for FromStart {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(out, self.at)?;
        self.at += n as u64;
        // As far in the data as in the cache.
        let data = u128::from(self.position.total.unwrap_or(0));
        let read = data * u128::from(self.at) / u128::from(self.bytes.max(1));
        self.position.read.store(read as u64, Relaxed);
        Ok(n)
    }
}

impl CachePass {
    /// Opens a cache of data of so many bytes. `None`: there is none of this data.
    ///
    /// # Errors
    /// There is one, and its beginning is damaged.
    fn open(cache: &Cache, identity: &str, path: PathBuf, data_bytes: u64) -> io::Result<Option<CachePass>> {
        let Some(file) = cache.open(&path, identity)? else { return Ok(None) };
        let bytes = file.metadata()?.len();
        let position = ReadPosition { total: Some(data_bytes), ..ReadPosition::default() };
        let from = FromStart { file, at: 0, bytes, position: position.clone() };
        let mut input = BufReader::with_capacity(CHUNK_BYTES, from);
        let mut frame = AlignedVec::new();
        read_head(&mut input)?;
        let kind = read_frame(&mut input, &mut frame)?;
        if kind != IDENTITY {
            return Err(io::Error::other("it does not say what it is a cache of"));
        }
        if frame[..] != *identity.as_bytes() {
            return Ok(None);
        }
        let (bad, end) = (BadLines::default(), BlockEnd::default());
        let (cache, blocks, over) = (cache.clone(), 0, false);
        Ok(Some(CachePass { cache, path, input, frame, end, blocks, bad, position, over }))
    }

    /// The next block. `Some(false)` at the end. `None`: the cache is damaged here, and removed; the pass goes on from
    /// the files, behind [`end`](Self::end).
    pub fn next(&mut self, block: &mut Block) -> Option<bool> {
        block.clear();
        if self.over {
            return Some(false);
        }
        match self.try_next(block) {
            Ok(more) => Some(more),
            Err(error) => {
                warn_of_damage(&self.path, &error);
                self.cache.remove(&self.path);
                block.clear();
                None
            }
        }
    }

    fn try_next(&mut self, block: &mut Block) -> io::Result<bool> {
        let damaged = || io::Error::other("a frame cannot be read");
        match read_frame(&mut self.input, &mut self.frame)? {
            BLOCK => {
                self.end = unpack(&self.frame, block).ok_or_else(damaged)?;
                self.blocks += 1;
                Ok(true)
            }
            END => {
                let end =
                    EndV1::of(&self.frame).filter(|end| end.blocks == self.blocks).ok_or_else(damaged)?;
                self.end = BlockEnd { next_batch: end.next_batch, data_lines: end.data_lines };
                (self.bad, self.over) = (end.bad(), true);
                Ok(false)
            }
            _ => Err(damaged()),
        }
    }

    /// Where the last block ended.
    pub fn end(&self) -> BlockEnd {
        self.end
    }

    /// The bad lines of the data. Known at the end.
    pub fn bad_lines(&self) -> &BadLines {
        &self.bad
    }

    /// The bytes of the files that parsing would have read so far.
    pub fn position(&self) -> &ReadPosition {
        &self.position
    }
}
