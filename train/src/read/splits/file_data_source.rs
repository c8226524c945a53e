//! Data files that a data server sends to workers (in-graph): the range of a split's text, and its bytes.

use crate::limits::LINE_BYTES_MAX;
use crate::read::bytes::data_file::DataFile;
use crate::read::data::Data;
use crate::read::error::ReadError;
use crate::read::splits::split::FileFingerprint;
use crate::read::splits::split_file::SplitFiles;
use gannet_jobs::DataSource;
use gannet_wire::Split;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

/// Files that must not change while they are served.
pub struct FileDataSource {
    data: Data,
    files: Vec<(String, FileFingerprint)>,
    /// The file of the last split.
    splits: Mutex<SplitFiles>,
    /// The file that was read last.
    open: Mutex<Option<(u32, DataFile)>>,
}

impl FileDataSource {
    /// A source of the files of `data` with their fingerprints.
    pub fn new(data: &Data, fingerprints: &[FileFingerprint]) -> FileDataSource {
        let files = data.files.iter().cloned().zip(fingerprints.iter().cloned()).collect();
        FileDataSource { data: data.clone(), files, splits: Mutex::default(), open: Mutex::new(None) }
    }

    /// The lines of a split. The first split of a file also has its header.
    fn lines(&self, task: &Split) -> Result<Range<u64>, ReadError> {
        let none = || ReadError::Splits(format!("file {} of {}", task.file, self.files.len()));
        let (path, fingerprint) = self.files.get(task.file as usize).ok_or_else(none)?;
        fingerprint.check(path)?;
        let mut splits = self.splits.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = splits.file(&self.data, task.file as usize)? else {
            return Ok(task.start..task.start);
        };
        let most = LINE_BYTES_MAX as u64 + 1;
        let found = file.lines(task.start..task.end, most, &AtomicU64::default());
        // If the file has changed meanwhile, its lines may begin elsewhere.
        fingerprint.check(path)?;
        let lines = found?;
        Ok(if task.start == 0 { 0..lines.end } else { lines })
    }

    /// Runs `work` on a file, and checks before and after it that the file has not changed.
    fn with<T>(
        &self,
        file: u32,
        work: impl FnOnce(&mut DataFile) -> std::io::Result<T>,
    ) -> Result<T, ReadError> {
        let none = || ReadError::Splits(format!("file {file} of {}", self.files.len()));
        let (path, fingerprint) = self.files.get(file as usize).ok_or_else(none)?;
        let io = |source| ReadError::io(path, source);
        fingerprint.check(path)?;
        let mut cached = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.as_ref().is_none_or(|(of, _)| *of != file) {
            *cached = Some((file, DataFile::open(path, &self.data.stop).map_err(io)?));
        }
        let Some((_, open)) = cached.as_mut() else { return Err(none()) };
        let done = work(open).map_err(io);
        if done.is_err() {
            *cached = None;
        }
        // If the file has changed meanwhile, its bytes may differ from the planned ones.
        fingerprint.check(path)?;
        done
    }
}

impl DataSource for FileDataSource {
    fn text(&self, task: &Split) -> Result<Range<u64>, String> {
        let whole = self.files.get(task.file as usize).is_some_and(|(_, fingerprint)| fingerprint.packed);
        if whole {
            return Ok(task.start..task.end);
        }
        self.lines(task).map_err(|error| error.to_string())
    }

    fn read(&self, file: u32, at: u64, out: &mut [u8]) -> Result<(), String> {
        let read = self.with(file, |file| {
            file.seek(SeekFrom::Start(at))?;
            file.read_exact(out)
        });
        read.map_err(|error| error.to_string())
    }
}
