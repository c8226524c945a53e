//! Writes the cache of a pass while it is read.

use crate::read::block::Block;
use crate::read::cache::cache_file::{BLOCK, END, EndV1, HEAD_BYTES, IDENTITY, write_frame, write_head};
use crate::read::cache::packed_block::{BlockEnd, pack};
use crate::read::cache::place::{Cache, remove_part};
use crate::read::error::BadLines;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Bytes after which a writer looks again how much room there is.
const LOOK_EVERY: u64 = 64 << 20;

pub(crate) struct CacheWriter {
    cache: Cache,
    identity: String,
    /// The name of the whole cache, and that of this file if it has one.
    whole: PathBuf,
    part: Option<PathBuf>,
    file: Option<BufWriter<File>>,
    blocks: u64,
    bytes: u64,
    /// The bytes that there is room for, and when to look again.
    room: u64,
    look: u64,
}

impl CacheWriter {
    pub(super) fn begin(cache: &Cache, identity: String, whole: PathBuf) -> io::Result<CacheWriter> {
        let room = cache.room();
        let (file, part) = cache.create()?;
        let mut writer = CacheWriter {
            cache: cache.clone(),
            identity,
            whole,
            part,
            file: None,
            blocks: 0,
            bytes: HEAD_BYTES,
            room,
            look: LOOK_EVERY,
        };
        let mut file = BufWriter::with_capacity(1 << 20, file);
        write_head(&mut file)?;
        writer.bytes += write_frame(&mut file, IDENTITY, writer.identity.as_bytes())?;
        writer.file = Some(file);
        Ok(writer)
    }

    /// Adds the next block. If it cannot, the pass goes on without a cache.
    pub(crate) fn add(&mut self, block: &Block, end: BlockEnd) {
        let added = self.try_add(block, end);
        self.or_give_up(added);
    }

    fn try_add(&mut self, block: &Block, end: BlockEnd) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let packed = pack(block, end);
        if self.bytes >= self.look {
            self.look = self.bytes + LOOK_EVERY;
            self.room = self.bytes.saturating_add(self.cache.room());
        }
        if self.bytes + packed.len() as u64 > self.room {
            let why = format!("it would take more than the {} MB that it may", self.room >> 20);
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        self.blocks += 1;
        self.bytes += write_frame(file, BLOCK, &packed)?;
        Ok(())
    }

    /// Ends the cache: the data has ended.
    pub(crate) fn finish(&mut self, end: BlockEnd, bad: &BadLines) {
        let finished = self.try_finish(end, bad);
        self.or_give_up(finished);
    }

    fn try_finish(&mut self, end: BlockEnd, bad: &BadLines) -> io::Result<()> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        let BlockEnd { next_batch, data_lines } = end;
        let learned =
            EndV1 { blocks: self.blocks, next_batch, data_lines, bad_lines: 0, first_bad: Vec::new() };
        write_frame(&mut file, END, &learned.with_bad(bad).bytes())?;
        file.flush()?;
        let file = file.into_inner().map_err(|error| error.into_error())?;
        self.cache.publish(file, self.part.as_deref(), &self.whole, &self.identity)?;
        self.part = None;
        Ok(())
    }

    fn or_give_up(&mut self, done: io::Result<()>) {
        if let Err(error) = done {
            tracing::warn!("no cache of the data is kept, so later passes parse it again: {error}");
            self.cache.give_up();
            self.file = None;
            self.remove();
        }
    }

    fn remove(&mut self) {
        if let Some(part) = self.part.take() {
            remove_part(&part);
        }
    }
}

impl Drop for CacheWriter {
    fn drop(&mut self) {
        self.remove();
    }
}
