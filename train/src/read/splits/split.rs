//! Splits: a scheduler hands them out one at a time, to the worker that requests one. A split is the lines that begin
//! in a range of a file's bytes, so every line is in one split. Its batches start at its first line, and are the same
//! for every worker.

use crate::limits::{CHUNK_BYTES, IN_TOUCH_EVERY, READ_PATIENCE};
use crate::read::bytes::data_file::{DataFile, FileFacts, FileVersion, is_url, shown_name};
use crate::read::bytes::decompress::is_packed;
use crate::read::bytes::source::Source;
use crate::read::bytes::stop_flag::StopFlag;
use crate::read::bytes::stream::{ReadPosition, Stream};
use crate::read::data::Data;
use crate::read::error::ReadError;
use crate::read::formats::format::LineReader;
use crate::read::growing::looking::GrowingSource;
use crate::read::splits::split_file::SplitFiles;
use gannet_wire::GrownTask;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// A split that was granted to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// The split's number over all passes.
    pub index: u64,
    /// The pass, from 0.
    pub epoch: u32,
    /// The index of the file.
    pub file: usize,
    /// The first byte.
    pub start: u64,
    /// The end of the range, exclusive.
    pub end: u64,
    /// How many of its batches have been learned already.
    pub from: u64,
    /// The pusher and incarnation in the names of its pushes. The number of the batch, from 1, completes a name.
    pub name: (u64, u64),
}

impl Split {
    /// A task of a source that grows, from batch `from` on.
    pub(crate) fn grown(index: u64, task: &GrownTask, from: u64, name: (u64, u64)) -> Split {
        let (GrownTask::Lines { start, end, .. } | GrownTask::Messages { start, end, .. }) = *task;
        Split { index, epoch: 0, file: 0, start, end, from, name }
    }
}

/// What a split of a source that grows is, and who can read it.
#[derive(Clone, Debug)]
pub struct GrownSplit {
    /// The task.
    pub task: GrownTask,
    /// The source.
    pub source: Arc<dyn GrowingSource>,
}

impl GrownSplit {
    /// Its name, for messages.
    pub fn name(&self) -> String {
        self.source.name_of(&self.task)
    }
}

/// The source of the bytes of splits, when this machine has no files.
pub trait TextSource: Send + Sync {
    /// The first bytes of a file, at most so many, and the file's length.
    ///
    /// # Errors
    /// The reason in words.
    fn head(&self, file: usize, most: usize) -> Result<(Vec<u8>, u64), String>;

    /// The lines that begin in a split, and the position in the file of the first one.
    ///
    /// # Errors
    /// As [`head`](Self::head).
    fn open(&self, split: &Split) -> Result<(u64, Box<dyn Read + Send>), String>;

    /// Why an opened text could not be read to its end.
    fn trouble(&self) -> Option<String>;

    /// Whether a file is packed.
    fn is_packed(&self, file: usize) -> bool;
}

/// A source of splits, such as the scheduler.
pub trait Splits: Send + Sync {
    /// The next split to read. Waits while other workers may still return one. `None`: all are learned, or `stop`
    /// returned true.
    ///
    /// # Errors
    /// Why there will be no more splits, in words.
    fn take(&self, stop: &dyn Fn() -> bool) -> Result<Option<Split>, String>;

    /// Reports that a split of so many examples is learned: the servers have acknowledged all its pushes.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    fn done(&self, index: u64, examples: u64) -> Result<(), String>;

    /// Reports that the first `batches` of a split have been pushed and acknowledged.
    fn acked(&self, index: u64, batches: u64);

    /// How long to wait for the bytes of a split. After that its worker ends, and other workers continue its splits.
    fn patience(&self) -> Duration {
        READ_PATIENCE
    }

    /// Reports whether the learner waits for bytes of a split. It is called again whenever some have come.
    fn waits(&self, _for_bytes: bool) {}

    /// What a split that was taken is, if its source grows. The split then names no file.
    fn grown(&self, _index: u64) -> Option<GrownSplit> {
        None
    }

    /// The source of all splits, if it grows.
    fn growing(&self) -> Option<&dyn GrowingSource> {
        None
    }

    /// The source of the bytes of splits, when this machine has no files.
    fn texts(&self) -> Option<&dyn TextSource> {
        None
    }
}

/// Reports that a split of so many examples is learned. While the source does not answer (its scheduler may be away),
/// `stay_in_touch` shows the servers that this worker lives.
pub(crate) fn report_done<E: From<ReadError> + From<F>, F>(
    source: &dyn Splits,
    (index, examples): (u64, u64),
    mut stay_in_touch: impl FnMut() -> Result<(), F>,
) -> Result<(), E> {
    let (send, answer) = channel();
    std::thread::scope(|scope| {
        let report = move || drop(send.send(source.done(index, examples)));
        std::thread::Builder::new()
            .name("gannet-done".into())
            .spawn_scoped(scope, report)
            .map_err(|error| ReadError::Splits(format!("the system gives no thread: {error}")))?;
        loop {
            match answer.recv_timeout(IN_TOUCH_EVERY) {
                Ok(answer) => return Ok(answer.map_err(ReadError::Splits)?),
                Err(RecvTimeoutError::Timeout) => stay_in_touch()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(ReadError::Splits(
                        "the report of a split has ended without an answer".into(),
                    )
                    .into());
                }
            }
        }
    })
}

/// A file as it was when the training began. In a changed file, splits would begin at other lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFingerprint {
    /// The file's length.
    pub bytes: u64,
    /// A checksum of its beginning and one of its end; of an object, that of its version.
    pub print: u64,
    /// Whether it is packed, and so can be read from its beginning only.
    pub packed: bool,
    version: FileVersion,
}

/// Bytes at each end of a file that the checksums cover.
const PRINT_BYTES: u64 = 64 << 10;

impl FileFingerprint {
    /// The fingerprint of a file.
    ///
    /// # Errors
    /// The file cannot be read, or only once.
    pub fn of(path: &str) -> Result<FileFingerprint, ReadError> {
        let io = |source| ReadError::io(path, source);
        let once =
            || ReadError::ReadOnce { file: shown_name(path).to_owned(), what: "handing out its splits" };
        if path == "-" {
            return Err(once());
        }
        let facts = FileFacts::of(path).map_err(io)?;
        let bytes = facts.bytes.filter(|_| facts.again).ok_or_else(once)?;
        let version = facts.version.clone();
        if !facts.anywhere {
            // It can be read from its beginning only, as if it were packed.
            return Ok(FileFingerprint { bytes, print: print(&version), packed: true, version });
        }
        let mut file = DataFile::open(path, &StopFlag::default()).map_err(io)?;
        let mut head = Vec::new();
        file.by_ref().take(PRINT_BYTES).read_to_end(&mut head).map_err(io)?;
        let packed = is_packed(&head);
        if is_url(path) {
            return Ok(FileFingerprint { bytes, print: print(&version), packed, version });
        }
        let mut tail = Vec::new();
        file.seek(SeekFrom::Start(bytes.saturating_sub(PRINT_BYTES))).map_err(io)?;
        file.take(PRINT_BYTES).read_to_end(&mut tail).map_err(io)?;
        let print = u64::from(crc32c::crc32c(&head)) << 32 | u64::from(crc32c::crc32c(&tail));
        Ok(FileFingerprint { bytes, print, packed, version })
    }

    /// Whether the file has this length and was written at this time, in nanoseconds since 1970.
    pub(crate) fn is_of(&self, bytes: u64, written: u64) -> bool {
        match self.version {
            FileVersion::Written(seconds, nanoseconds) => {
                let own = (seconds as u64).saturating_mul(1_000_000_000) + nanoseconds as u64;
                (self.bytes, own) == (bytes, written)
            }
            #[cfg(feature = "cloud")]
            FileVersion::Object(_) => false,
        }
    }

    /// A file of another machine, with the client's description.
    pub fn remote(bytes: u64, print: u64, packed: bool) -> FileFingerprint {
        FileFingerprint { bytes, print, packed, version: FileVersion::Written(0, 0) }
    }

    /// Checks that a file has not changed.
    ///
    /// # Errors
    /// The file is gone, or has changed.
    pub fn check(&self, path: &str) -> Result<(), ReadError> {
        let now = FileFacts::now(path).map_err(|source| ReadError::io(path, source))?;
        let bytes = now.bytes.unwrap_or(0);
        if (bytes, &now.version) == (self.bytes, &self.version) {
            return Ok(());
        }
        let (file, before, now) = (path.to_owned(), self.bytes, bytes);
        Err(ReadError::Changed { file, before, now })
    }
}

/// The files of data as they were before the first of several passes.
#[derive(Clone, Debug, Default)]
pub struct UnchangedFiles(Vec<(String, FileFingerprint)>);

impl UnchangedFiles {
    /// The files of `data` as they are now. Of one pass, and of data in memory, nothing is compared.
    ///
    /// # Errors
    /// A file cannot be read, or only once.
    pub fn of(data: &Data, passes: u32) -> Result<UnchangedFiles, ReadError> {
        if passes < 2 || data.source.is_some() {
            return Ok(UnchangedFiles::default());
        }
        let file = |path: &String| Ok((path.clone(), FileFingerprint::of(path)?));
        data.files.iter().map(file).collect::<Result<_, _>>().map(UnchangedFiles)
    }

    /// Checks that no file has changed.
    ///
    /// # Errors
    /// A file is gone, or has changed.
    pub fn check(&self) -> Result<(), ReadError> {
        self.0.iter().try_for_each(|(path, before)| before.check(path))
    }
}

/// A checksum of the version of an object, which all machines see alike.
fn print(version: &FileVersion) -> u64 {
    match version {
        FileVersion::Written(..) => 0,
        #[cfg(feature = "cloud")]
        FileVersion::Object(version) => u64::from(crc32c::crc32c(version.as_bytes())),
    }
}

/// Opens the lines of a split. Returns them, their format and where they begin. `None`: no line begins in it.
pub(crate) fn open(
    data: &Data,
    split: &Split,
    position: &ReadPosition,
    packed: bool,
    files: &mut SplitFiles,
) -> Result<Option<(Source, LineReader, u64)>, ReadError> {
    if !packed {
        let Some(file) = files.file(data, split.file)? else { return Ok(None) };
        let kind = file.kind.clone();
        return Ok(file.source(split, position)?.map(|(source, start)| (source, kind, start)));
    }
    let path = &data.files[split.file];
    let name = shown_name(path).to_owned();
    let io = |source| ReadError::io(path, source);
    let stream = Stream::open(path, position.read.clone(), &data.stop).map_err(io)?;
    let mut source = Source::new(name.clone(), stream, &data.stop)?;
    Ok(LineReader::of(&mut source, data)?.map(|kind| (source, kind, 0)))
}

/// The position of the first line that begins at `at` or later, or the file's length. A longer search than `most`
/// bytes is an error.
pub(crate) fn line_from(file: &mut DataFile, at: u64, most: u64) -> io::Result<u64> {
    if at == 0 {
        return Ok(0);
    }
    // A line begins at `at` exactly when the byte before is a newline.
    let mut from = at - 1;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = vec![0; CHUNK_BYTES.min(64 << 10)];
    loop {
        let n = match file.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        match bytes[..n].iter().position(|&b| b == b'\n') {
            Some(newline) => return Ok(from + newline as u64 + 1),
            None if n == 0 => return Ok(from),
            None if from.saturating_sub(at) > most => {
                return Err(io::Error::other("a line is longer than the limit"));
            }
            None => from += n as u64,
        }
    }
}

/// The number of lines before byte `at` of a file, for messages.
pub(crate) fn lines_before(path: &str, at: u64) -> u64 {
    let count = || -> io::Result<u64> {
        let (mut file, mut lines, mut bytes) =
            (DataFile::open(path, &StopFlag::default())?.take(at), 0, vec![0; CHUNK_BYTES]);
        loop {
            let n = file.read(&mut bytes)?;
            if n == 0 {
                return Ok(lines);
            }
            lines += bytes[..n].iter().filter(|&&b| b == b'\n').count() as u64;
        }
    };
    count().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scheduler that answers late, and then says no.
    struct Slow(Duration);

    impl Splits for Slow {
        fn take(&self, _stop: &dyn Fn() -> bool) -> Result<Option<Split>, String> {
            Ok(None)
        }

        fn done(&self, index: u64, examples: u64) -> Result<(), String> {
            std::thread::sleep(self.0);
            if index == 7 && examples == 10 { Ok(()) } else { Err("no".into()) }
        }

        fn acked(&self, _index: u64, _batches: u64) {}
    }

    /// A worker that waited for its scheduler was silent at all other servers, which gave it up.
    #[test]
    fn a_worker_stays_in_touch_while_its_scheduler_does_not_answer() {
        let mut touched = 0;
        let mut report = |index, wait| {
            report_done::<ReadError, ReadError>(&Slow(wait), (index, 10), || {
                touched += 1;
                Ok(())
            })
        };
        report(7, IN_TOUCH_EVERY * 6).unwrap();
        assert!(matches!(report(8, Duration::ZERO), Err(ReadError::Splits(why)) if why == "no"));
        assert!(touched >= 3, "{touched}");
        let lost = || Err(ReadError::Splits("the servers are lost".into()));
        let failed = report_done::<ReadError, ReadError>(&Slow(IN_TOUCH_EVERY * 2), (7, 10), lost);
        assert!(matches!(failed, Err(ReadError::Splits(why)) if why.contains("lost")));
    }
}
