//! The bytes of a table's file, which are counted. Of an object the ranges of each column are read ahead by themselves.

use crate::limits::TABLE_PAGE_BYTES_MAX;
use crate::read::bytes::data_file::DataFile;
use crate::read::bytes::stop_flag::StopFlag;
#[cfg(feature = "cloud")]
use crate::read::tables::object_columns::ObjectColumns;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A file whose bytes are counted.
pub(super) struct CountedFile {
    file: TableBytes,
    read: Arc<AtomicU64>,
    stop: StopFlag,
}

enum TableBytes {
    OnDisk(File),
    /// An object, and the next byte.
    #[cfg(feature = "cloud")]
    Object(Arc<ObjectColumns>, u64),
}

impl CountedFile {
    pub fn open(path: &str, read: &Arc<AtomicU64>, stop: &StopFlag) -> io::Result<CountedFile> {
        let file = match DataFile::open(path, stop)? {
            DataFile::OnDisk(file) => TableBytes::OnDisk(file),
            #[cfg(feature = "cloud")]
            DataFile::Object(whole) => {
                TableBytes::Object(Arc::new(ObjectColumns::new(path, *whole, stop)), 0)
            }
        };
        Ok(CountedFile { file, read: read.clone(), stop: stop.clone() })
    }

    /// The same file, of which only these parts will be read, each from its beginning.
    pub fn with_chunks(self, chunks: impl Iterator<Item = Range<u64>>) -> CountedFile {
        #[cfg(feature = "cloud")]
        if let TableBytes::Object(object, at) = self.file {
            let file = TableBytes::Object(Arc::new(object.with_chunks(chunks.collect())), at);
            return CountedFile { file, ..self };
        }
        drop(chunks);
        self
    }

    fn again(&self) -> io::Result<CountedFile> {
        let file = match &self.file {
            TableBytes::OnDisk(file) => TableBytes::OnDisk(file.try_clone()?),
            #[cfg(feature = "cloud")]
            TableBytes::Object(object, at) => TableBytes::Object(object.clone(), *at),
        };
        Ok(CountedFile { file, read: self.read.clone(), stop: self.stop.clone() })
    }
}

impl Read for CountedFile {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_set() {
            return Err(io::Error::other("stop requested"));
        }
        let n = match &mut self.file {
            TableBytes::OnDisk(file) => file.read(out)?,
            #[cfg(feature = "cloud")]
            TableBytes::Object(object, at) => {
                let n = object.read_at(*at, out)?;
                *at += n as u64;
                n
            }
        };
        self.read.fetch_add(n as u64, Relaxed);
        Ok(n)
    }
}

impl Seek for CountedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match &mut self.file {
            TableBytes::OnDisk(file) => file.seek(to),
            #[cfg(feature = "cloud")]
            TableBytes::Object(object, at) => {
                let next = match to {
                    SeekFrom::Start(at) => Some(at),
                    SeekFrom::End(by) => object.len().checked_add_signed(by),
                    SeekFrom::Current(by) => at.checked_add_signed(by),
                };
                *at = next.ok_or(io::ErrorKind::InvalidInput)?;
                Ok(*at)
            }
        }
    }
}

impl Length for CountedFile {
    fn len(&self) -> u64 {
        match &self.file {
            TableBytes::OnDisk(file) => Length::len(file),
            #[cfg(feature = "cloud")]
            TableBytes::Object(object, _) => object.len(),
        }
    }
}

impl ChunkReader for CountedFile {
    type T = BufReader<CountedFile>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let mut file = self.again()?;
        file.seek(SeekFrom::Start(start))?;
        Ok(BufReader::new(file))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes, ParquetError> {
        // A damaged length must not ask for memory that no file has.
        if start.saturating_add(length as u64) > Length::len(self) {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at byte {start} are behind the end of the file"
            )));
        }
        if length > TABLE_PAGE_BYTES_MAX {
            return Err(ParquetError::General(format!(
                "a page or the description of the file has {length} bytes, and at most {TABLE_PAGE_BYTES_MAX} are read at \
                 once; write it with smaller pages"
            )));
        }
        let mut bytes = vec![0; length];
        let mut file = self.again()?;
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}
